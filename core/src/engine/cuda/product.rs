//! What a matrix product is, before anyone runs it.
//!
//! Row-major `out[rows, cols] = A B^T` with A `[rows, reduced]` and B `[cols, reduced]`, or either of them stored
//! transposed.

use cudarc::cublaslt::sys::{cublasLtMatmulMatrixScale_t, cudaDataType_t};

use crate::model::{Accumulation, Format, GemmNumerics, Granularity, OperandCast};

/// The type of an operand or of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Type {
    F64,
    F32,
    Bf16,
    E4m3,
    E5m2,
}

impl Type {
    pub fn code(self) -> cudaDataType_t {
        match self {
            Self::F64 => cudaDataType_t::CUDA_R_64F,
            Self::F32 => cudaDataType_t::CUDA_R_32F,
            Self::Bf16 => cudaDataType_t::CUDA_R_16BF,
            Self::E4m3 => cudaDataType_t::CUDA_R_8F_E4M3,
            Self::E5m2 => cudaDataType_t::CUDA_R_8F_E5M2,
        }
    }

    pub fn is_fp8(self) -> bool {
        matches!(self, Self::E4m3 | Self::E5m2)
    }
}

/// How products are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Compute {
    F64,
    F32,
    Tf32,
}

/// How many elements share a scale, and in what layout cuBLASLt reads the scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scaling {
    None,
    /// One number.
    Tensor,
    /// `[rows of the operand]`
    Row,
    /// `[ceil(reduced / 128)][rows of the operand]`
    Block1x128,
    /// `[ceil(rows / 128)][ceil(reduced / 128) rounded up to 4]`
    Block128x128,
}

impl Scaling {
    pub fn mode(self) -> Option<cublasLtMatmulMatrixScale_t> {
        use cublasLtMatmulMatrixScale_t as Mode;
        Some(match self {
            Self::None => return None,
            Self::Tensor => Mode::CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
            Self::Row => Mode::CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
            Self::Block1x128 => Mode::CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
            Self::Block128x128 => Mode::CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
        })
    }
}

/// One operand as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProductOperand {
    pub of: Type,
    pub scaling: Scaling,
    /// Stored `[reduced, rows]` instead of `[rows, reduced]`.
    pub transposed: bool,
    /// Elements from one row, as it is stored, to the next; 0: rows lie behind one another.
    pub pitch: usize,
}

impl ProductOperand {
    /// A cast operand, along the reduced dimension.
    pub fn of(cast: OperandCast) -> Self {
        let of = match cast.format {
            Format::F32 | Format::Tf32 => Type::F32,
            Format::Bf16 => Type::Bf16,
            Format::E4m3 => Type::E4m3,
            Format::E5m2 => Type::E5m2,
        };
        let scaling = match cast.granularity {
            Granularity::None => Scaling::None,
            // A static scale is one for the tensor as well, where a product looks it up.
            Granularity::Tensor | Granularity::Static => Scaling::Tensor,
            Granularity::Row => Scaling::Row,
            Granularity::Block1x128 => Scaling::Block1x128,
            Granularity::Block128x128 => Scaling::Block128x128,
        };
        Self { of, scaling, transposed: false, pitch: 0 }
    }

    pub const fn plain(of: Type) -> Self {
        Self { of, scaling: Scaling::None, transposed: false, pitch: 0 }
    }

    pub const fn transposed(self) -> Self {
        Self { transposed: true, ..self }
    }

    /// Elements from one stored row of `cols` to the next.
    pub const fn pitch_of(self, cols: usize) -> usize {
        if self.pitch == 0 { cols } else { self.pitch }
    }
}

/// Everything that decides a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Product {
    pub rows: usize,
    pub cols: usize,
    pub reduced: usize,
    pub a: ProductOperand,
    pub b: ProductOperand,
    pub out: Type,
    pub compute: Compute,
    /// Add to what `out` holds.
    pub accumulate: bool,
    /// FP8: one accumulator from beginning to end, never promoted.
    pub fast: bool,
}

impl Product {
    /// The GEMM that `numerics` stands for, as cuBLASLt takes it.
    pub fn of(numerics: GemmNumerics, rows: usize, cols: usize, reduced: usize) -> Self {
        let mut product = Self::as_cast(numerics, rows, cols, reduced);
        // It wants both by rows or neither; a tensor's scale once a row is the same product.
        match (product.a.scaling, product.b.scaling) {
            (Scaling::Row, Scaling::Tensor) => product.b.scaling = Scaling::Row,
            (Scaling::Tensor, Scaling::Row) => product.a.scaling = Scaling::Row,
            _ => {}
        }
        product
    }

    /// The same with the scales as the recipe has them, as LoKA's own kernels take it.
    pub fn as_cast(numerics: GemmNumerics, rows: usize, cols: usize, reduced: usize) -> Self {
        Self {
            rows,
            cols,
            reduced,
            a: ProductOperand::of(numerics.a),
            b: ProductOperand::of(numerics.b),
            out: if numerics.output == Format::Bf16 { Type::Bf16 } else { Type::F32 },
            compute: if numerics.a.format == Format::Tf32 { Compute::Tf32 } else { Compute::F32 },
            accumulate: false,
            fast: numerics.accumulation == Accumulation::Fast,
        }
    }

    /// An unscaled product of one type.
    pub const fn plain(rows: usize, cols: usize, reduced: usize, of: Type, compute: Compute) -> Self {
        Self {
            rows,
            cols,
            reduced,
            a: ProductOperand::plain(of),
            b: ProductOperand::plain(of),
            out: of,
            compute,
            accumulate: false,
            fast: false,
        }
    }
}

impl std::fmt::Display for Product {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = |operand: ProductOperand| match operand.scaling {
            Scaling::None => format!("{:?}", operand.of),
            scaling => format!("{:?} {scaling:?}", operand.of),
        };
        let fast = if self.fast { ", fast accumulation" } else { "" };
        let Self { rows, cols, reduced, .. } = self;
        write!(f, "[{rows}, {reduced}] x [{reduced}, {cols}], {} x {}{fast}", side(self.a), side(self.b))
    }
}
