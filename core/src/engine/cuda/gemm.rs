//! Our own FP8 GEMMs: takes a product, gives its kernels in the order of their expected time, and runs them.

use std::sync::Arc;

use loka_kernels::gemm::{self, Fp8Product, GemmLaunch, TILE_K, X_ROWS, Y_BOX};

use super::{
    CudaError,
    arguments::Arguments,
    driver::{Device, Matrix},
    lt::Addresses,
    ops::Kernels,
    product::{Operand, Product, Scaling, Type},
    stream::Stream,
};

/// A product that our kernels run, and how.
pub(super) struct OwnGemm {
    kernels: Arc<Kernels>,
    pub product: Product,
    /// The one expected to be fastest first.
    pub launches: Vec<GemmLaunch>,
}

impl OwnGemm {
    /// Compiles nothing yet: [`OwnGemm::run`] does.
    pub fn new(device: &Device, kernels: &Arc<Kernels>, product: Product) -> Result<Self, CudaError> {
        let launches = gemm::fp8_gemm(suited(device, product).map_err(CudaError::Refused)?, device.multiprocessors);
        if launches.is_empty() {
            return Err(CudaError::Refused(format!("LoKA's GEMMs want sizes of multiples of 16, not {product}")));
        }
        Ok(Self { kernels: kernels.clone(), product, launches })
    }

    /// Puts the product on the stream, by the kernel of that index.
    pub fn run(&self, stream: &Stream, at: Addresses, index: usize) -> Result<(), CudaError> {
        let GemmLaunch { entry, grid, shape, w_rows, .. } = self.launches[index];
        let Product { rows, cols, reduced, .. } = self.product;
        let codes = |address, rows, box_rows| Matrix {
            address,
            rows: rows as u64,
            cols: reduced as u64,
            is_bf16: false,
            box_rows,
            box_cols: TILE_K,
        };
        let [box_rows, box_cols] = Y_BOX;
        let y = Matrix { address: at.out, rows: rows as u64, cols: cols as u64, is_bf16: true, box_rows, box_cols };
        let arguments = Arguments::new()
            .structure(stream.device.tensor_map(codes(at.a, rows, X_ROWS))?)
            .structure(stream.device.tensor_map(codes(at.b, cols, w_rows))?)
            .structure(stream.device.tensor_map(y)?)
            .value(at.a_scales)
            .value(at.b_scales)
            .structure(shape);
        stream.launch(self.kernels.get(entry)?, grid, &arguments)
    }
}

/// Why our GEMMs do not run that product there, else what it is to them.
pub(super) fn suited(device: &Device, product: Product) -> Result<Fp8Product, String> {
    if device.capability != (9, 0) {
        let (major, minor) = device.capability;
        return Err(format!("LoKA's GEMMs are built for compute capability 9.0, this GPU has {major}.{minor}"));
    }
    let plain = |operand: Operand| operand.of.is_fp8() && !operand.transposed;
    let scaled_by_rows = match (product.a.scaling, product.b.scaling) {
        (Scaling::Row, Scaling::Row) => true,
        (Scaling::Tensor, Scaling::Tensor) => false,
        _ => return Err("LoKA's GEMMs take one scale a tensor or one a row".to_owned()),
    };
    if !plain(product.a) || !plain(product.b) || product.b.of != Type::E4m3 || product.out != Type::Bf16 {
        return Err(format!("LoKA's GEMMs do not take {product}"));
    }
    let size = |size: usize| u32::try_from(size).map_err(|_| format!("{size} is too large for LoKA's GEMMs"));
    let (m, n, k) = (size(product.rows)?, size(product.cols)?, size(product.reduced)?);
    Ok(Fp8Product { m, n, k, fast: product.fast, is_x_e5m2: product.a.of == Type::E5m2, scaled_by_rows })
}

/// What times and checks a product without caring whose it is.
pub(super) enum Runner {
    Library(super::lt::Plan),
    Own(OwnGemm),
}

impl Runner {
    /// Ways to run it, the expected best first.
    pub fn count(&self) -> usize {
        match self {
            Self::Library(plan) => plan.algorithms.len(),
            Self::Own(own) => own.launches.len(),
        }
    }

    /// What tells way `index` from the others, in this process and later ones.
    pub fn identity(&self, index: usize) -> [u64; 8] {
        match self {
            Self::Library(plan) => plan.algorithms[index].data(),
            // The columns of a tile, and the first half of a hash of the name: an edited list forgets nothing.
            Self::Own(own) => {
                let GemmLaunch { entry, w_rows, .. } = own.launches[index];
                let name = entry.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
                });
                [u64::from(w_rows), name, 0, 0, 0, 0, 0, 0]
            }
        }
    }

    /// Under what name the fastest way is remembered.
    pub fn name(&self) -> String {
        match self {
            Self::Library(plan) => format!("{:?}", plan.product),
            Self::Own(own) => format!("loka {:?}", own.product),
        }
    }

    pub fn run(
        &mut self,
        stream: &Stream,
        at: Addresses,
        index: usize,
        workspace: &super::stream::Buffer<u8>,
    ) -> Result<(), CudaError> {
        match self {
            Self::Library(plan) => plan.run(stream, at, index, workspace),
            Self::Own(own) => own.run(stream, at, index),
        }
    }

    /// For people: which way, of how many.
    pub fn note(&self, index: usize) -> String {
        match self {
            Self::Library(plan) => format!(
                "algorithm {} of {}, {} MB workspace",
                index + 1,
                plan.algorithms.len(),
                plan.algorithms[index].workspace >> 20
            ),
            Self::Own(own) => own.launches[index].entry.to_owned(),
        }
    }
}
