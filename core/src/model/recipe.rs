//! What a recipe fixes: types, scale granularity and accumulation of one GEMM, and so its error.

use serde::{Deserialize, Serialize};

/// An element type on the way into a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Format {
    F32,
    /// 10 mantissa bits, FP32's exponent; round to nearest even.
    Tf32,
    Bf16,
    E4m3,
    E5m2,
}

/// How many elements share a scale. Rows are rows of the operand *as the GEMM reads it*, with the
/// reduced dimension last; blocks of 128 run along the reduced dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Granularity {
    /// No scale: the format's range is enough.
    None,
    Tensor,
    Row,
    Block1x128,
    Block128x128,
    /// One for the tensor, known before the tensor is: [`StaticScale`].
    Static,
}

/// The scale of a [`Granularity::Static`] operand: a code stands for code * scale, and a value beyond 448 * scale
/// saturates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StaticScale {
    /// A power of two, so that scaling itself is exact.
    pub scale: f32,
    /// Probability that at least one element of a step's whole tensor saturates.
    pub saturation: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperandCast {
    pub format: Format,
    pub granularity: Granularity,
    /// The scale is rounded to a power of two so that scaling itself is exact.
    pub power_of_two: bool,
}

impl OperandCast {
    pub const fn unscaled(format: Format) -> Self {
        Self { format, granularity: Granularity::None, power_of_two: false }
    }

    pub const fn scaled(format: Format, granularity: Granularity) -> Self {
        Self { format, granularity, power_of_two: false }
    }

    pub const fn scaled_pow2(format: Format, granularity: Granularity) -> Self {
        Self { format, granularity, power_of_two: true }
    }
}

/// How the tensor core sums along the reduced dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Accumulation {
    /// FP32 throughout.
    Fp32,
    /// 13 bits below the largest of 32 products and the sum, promoted to FP32 every 128 along the reduced
    /// dimension.
    Promoted,
    /// The same from beginning to end.
    Fast,
}

/// All that decides a GEMM's error. `a` is the left operand (x, dy, dy^T), `b` the right one (W, W, x).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GemmNumerics {
    pub a: OperandCast,
    pub b: OperandCast,
    pub accumulation: Accumulation,
    /// The type that the GEMM stores.
    pub output: Format,
}
