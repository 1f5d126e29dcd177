//! BlockNorm and hard swish by themselves, behind a product that stored z: forward, and backward with the cast of its
//! result. Takes addresses, puts one kernel on the stream.

use loka_kernels::{gemm::BLOCK_COLUMNS, norms};

use super::{CudaError, arguments::Arguments, ops::Kernels, raw::StaticBackwardMemory, stream::Stream};

/// Where the tail of a block reads and writes; 0: an output that is not wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TailPlaces {
    /// BF16.
    pub z: u64,
    /// BF16.
    pub h: u64,
    pub codes: u64,
    /// Of the codes.
    pub scale: u64,
}

/// BlockNorm and hard swish by themselves, behind a product that stored z `[rows, cols]`.
pub(super) fn block_norm_hard_swish(
    stream: &Stream,
    kernels: &Kernels,
    (rows, cols): (usize, usize),
    at: TailPlaces,
) -> Result<(), CudaError> {
    let shape = narrow(rows, cols)?;
    let grid = norms::block_norm_hard_swish(shape, BLOCK_COLUMNS, stream.device.multiprocessors);
    let grid = grid.ok_or_else(|| refused(cols))?;
    let TailPlaces { z, h, codes, scale } = at;
    let arguments = Arguments::new().value(z).value(h).value(codes).value(scale).value((rows * cols) as u64);
    stream.launch(kernels.get("block_norm_hard_swish")?, grid, &arguments)
}

/// Where the gradient through the tail reads and writes; 0: an output that is not wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GradientPlaces {
    /// BF16, as z, which BlockNorm read.
    pub dh: u64,
    pub z: u64,
    /// BF16.
    pub dz: u64,
    pub codes: u64,
    /// One a row.
    pub row_scales: u64,
}

/// The gradient of z `[rows, cols]`.
pub(super) fn block_backward(
    stream: &Stream,
    kernels: &Kernels,
    (rows, cols): (usize, usize),
    at: GradientPlaces,
) -> Result<(), CudaError> {
    let shape = narrow(rows, cols)?;
    let grid = norms::block_backward(shape, BLOCK_COLUMNS).ok_or_else(|| refused(cols))?;
    let GradientPlaces { dh, z, dz, codes, row_scales } = at;
    let addresses = [dh, z, dz, codes, row_scales];
    let arguments = addresses.into_iter().fold(Arguments::new(), Arguments::value).value(shape[1]);
    stream.launch(kernels.get("block_backward")?, grid, &arguments)
}

/// The gradient of z `[m, n]`.
pub(super) fn block_backward_static(
    stream: &Stream,
    kernels: &Kernels,
    at: &StaticBackwardMemory,
) -> Result<(), CudaError> {
    let (grid, arguments) = at.launch().ok_or_else(|| refused(at.n as usize))?;
    stream.launch(kernels.get("block_backward_static")?, grid, &arguments)
}

fn narrow(rows: usize, cols: usize) -> Result<[u32; 2], CudaError> {
    let too_large = |_| CudaError::Refused(format!("[{rows}, {cols}] is too large for BlockNorm's kernels"));
    Ok([u32::try_from(rows).map_err(too_large)?, u32::try_from(cols).map_err(too_large)?])
}

fn refused(cols: usize) -> CudaError {
    CudaError::Refused(format!("no kernel has BlockNorm of {BLOCK_COLUMNS} columns for rows of {cols}"))
}
