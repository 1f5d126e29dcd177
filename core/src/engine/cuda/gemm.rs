//! Our own FP8 GEMMs: takes a product, gives its kernels in the order of their expected time, and runs them.

use std::sync::Arc;

use loka_kernels::gemm::{self, Fp8Product, GemmLaunch, TILE_K, X_ROWS, Y_BOX};

use super::{
    CudaError,
    arguments::Arguments,
    driver::{Device, Matrix},
    lt::Addresses,
    ops::Kernels,
    product::{Product, ProductOperand, Scaling, Type},
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
        let mut launches = gemm::fp8_gemm(suited(device, product).map_err(CudaError::Refused)?, device.multiprocessors);
        if launches.is_empty() {
            return Err(CudaError::Refused(format!("LoKA's GEMMs want sizes of multiples of 16, not {product}")));
        }
        if product.a.scaling == Scaling::Tensor {
            launches.iter_mut().for_each(|launch| launch.shape.x_scale_step = 0);
        }
        Ok(Self { kernels: kernels.clone(), product, launches })
    }

    /// Puts the product on the stream, by the kernel of that index.
    pub fn run(&self, stream: &Stream, at: Addresses, index: usize) -> Result<(), CudaError> {
        let GemmLaunch { entry, grid, shape, w_rows, .. } = self.launches[index];
        let Product { rows, cols, reduced, .. } = self.product;
        let map = |matrix| stream.device.tensor_map(matrix);
        let arguments = Arguments::new()
            .structure(map(codes(at.a, (rows, reduced), self.product.a, [X_ROWS, TILE_K]))?)
            .structure(map(codes(at.b, (cols, reduced), self.product.b, [w_rows, TILE_K]))?)
            .structure(map(matrix(at.out, (rows, cols), true, Y_BOX))?)
            .value(at.a_scales)
            .value(at.b_scales)
            .structure(shape);
        stream.launch(self.kernels.get(entry)?, grid, &arguments)
    }
}

/// BF16 or single bytes, rows behind one another, and the box of it that the copy engine moves at a time.
pub(super) fn matrix(address: u64, (rows, cols): (usize, usize), is_bf16: bool, of_box: [u32; 2]) -> Matrix {
    let [box_rows, box_cols] = of_box;
    Matrix { address, rows: rows as u64, cols: cols as u64, pitch: cols as u64, is_bf16, box_rows, box_cols }
}

/// Codes of an operand as the product has them.
pub(super) fn codes(address: u64, sizes: (usize, usize), operand: ProductOperand, of_box: [u32; 2]) -> Matrix {
    Matrix { pitch: operand.pitch_of(sizes.1) as u64, ..matrix(address, sizes, false, of_box) }
}

/// Why our GEMMs do not run that product there, else what it is to them.
pub(super) fn suited(device: &Device, product: Product) -> Result<Fp8Product, String> {
    if device.capability != (9, 0) {
        let (major, minor) = device.capability;
        return Err(format!("LoKA's GEMMs are built for compute capability 9.0, this GPU has {major}.{minor}"));
    }
    let plain = |operand: ProductOperand| operand.of.is_fp8() && !operand.transposed;
    let scaled_by_rows = match (product.a.scaling, product.b.scaling) {
        // A tensor's scale is read once for all rows.
        (Scaling::Row | Scaling::Tensor, Scaling::Row) => true,
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
