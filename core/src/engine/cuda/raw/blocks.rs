//! BlockNorm and hard swish in memory of others, behind a product or by themselves: takes operands by address, gives
//! launches of `loka_kernels::gemm` and `loka_kernels::norms`.

use loka_kernels::{
    LaunchGrid,
    gemm::{
        BLOCK_COLUMNS, BlockLaunch, BlockType, CODES_BOX, STORE_CODES, STORE_H, STORE_Z, TILE_K, TensorMap, block_all,
        block_gemm,
    },
    norms,
};

use super::{
    super::{CudaError, arguments::Arguments},
    GemmMemory, Gpu, RawStream, aligned, wanted,
};

/// What a block stores beside h in BF16; 0 for what is not wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockOutputs {
    /// x w^T + bias in BF16: what the backward pass needs.
    pub z: u64,
    /// h in E4M3 by the scale at `scale`.
    pub codes: u64,
    pub scale: u64,
}

/// Gradients through hard swish and BlockNorm, `[m, n]`; 0 for what is not wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackwardMemory {
    pub dh: u64,
    pub z: u64,
    pub dz: u64,
    /// dz in E4M3 with a scale a row, which is written to `row_scales`.
    pub codes: u64,
    pub row_scales: u64,
    pub m: u32,
    pub n: u32,
}

/// Where the gradient by a scale of dz known beforehand reads and writes; 0 for what is not wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct StaticBackwardMemory {
    pub dh: u64,
    pub z: u64,
    pub dz: u64,
    /// dz in E4M3.
    pub codes: u64,
    /// The same transposed, `[n, m]`: then m is a multiple of 16.
    pub codes_t: u64,
    /// A power of two.
    pub scale: u64,
    /// A u64 to which saturated elements are added.
    pub saturated: u64,
    /// An FP32 that is raised to the largest magnitude of dz.
    pub amax: u64,
    pub m: u32,
    pub n: u32,
}

impl StaticBackwardMemory {
    /// The launch of `block_backward_static`; None where it has none for these rows.
    pub(in crate::engine::cuda) fn launch(&self) -> Option<(LaunchGrid, Arguments)> {
        let grid = norms::block_backward_static([self.m, self.n], BLOCK_COLUMNS, self.codes_t != 0)?;
        let addresses = [self.dh, self.z, self.dz, self.codes, self.codes_t, self.scale, self.saturated, self.amax];
        Some((grid, addresses.into_iter().fold(Arguments::new(), Arguments::value).value(self.m).value(self.n)))
    }
}

impl Gpu {
    /// h = hard swish(BlockNorm(x w^T + bias)), blocks of 256 columns. x is E4M3, or BF16 and cast on its way in by the
    /// scale at `x_scales`, a power of two; then its saturated elements are added to the u64 at `saturated`.
    pub fn block(
        &self,
        stream: RawStream,
        at: &GemmMemory,
        is_x_e4m3: bool,
        to: &BlockOutputs,
        saturated: u64,
    ) -> Result<(), CudaError> {
        self.check(at)?;
        aligned("saturated", saturated, 8)?;
        for (what, address) in [("z", to.z), ("h", at.out), ("codes", to.codes)] {
            wanted(what, address, 16)?;
        }
        if to.codes != 0 {
            aligned("the scale of h", to.scale, 4)?;
        }
        let mut launch = self.block_launch(at, is_x_e4m3, to)?;
        launch.shape.bias = at.bias;
        let &GemmMemory { m, n, k, x_pitch, w_pitch, .. } = at;
        let mut arguments = Arguments::new()
            .structure(self.map(at.x, [m, k], x_pitch, !is_x_e4m3, launch.x_box)?)
            .structure(self.map(at.w, [n, k], w_pitch, false, [BLOCK_COLUMNS, TILE_K])?);
        // Of outputs alone, those that the launch takes: all three, or the one that there is.
        let all = launch.shape.stores != 0;
        for (address, is_bf16) in [(to.z, true), (at.out, true), (to.codes, false)] {
            let steps = if is_bf16 { launch.h_box } else { CODES_BOX };
            match address {
                0 if all => arguments = arguments.structure(TensorMap { words: [0; 16] }),
                0 => {}
                address => arguments = arguments.structure(self.map(address, [m, n], n, is_bf16, steps)?),
            }
        }
        let arguments =
            arguments.value(at.x_scales).value(at.w_scales).value(to.scale).value(saturated).structure(launch.shape);
        self.launch(stream, launch.entry, launch.grid, &arguments)
    }

    /// The kernel that stores one output where that is all, else the one that can store all.
    fn block_launch(&self, at: &GemmMemory, is_x_e4m3: bool, to: &BlockOutputs) -> Result<BlockLaunch, CudaError> {
        let &GemmMemory { m, n, k, w_scaled_by_rows, .. } = at;
        let bit = |address: u64, bit: u32| if address == 0 { 0 } else { bit };
        let stores = bit(to.z, STORE_Z) | bit(at.out, STORE_H) | bit(to.codes, STORE_CODES);
        let of = |is_e4m3| if is_e4m3 { BlockType::E4m3 } else { BlockType::Bf16 };
        let (x, multiprocessors) = (of(is_x_e4m3), self.device.multiprocessors);
        let found = match stores {
            0 => return Err(CudaError::Refused("none of z, h and codes is wanted".to_owned())),
            STORE_H => block_gemm([m, n, k], (x, BlockType::Bf16), w_scaled_by_rows, multiprocessors),
            STORE_CODES => block_gemm([m, n, k], (x, BlockType::E4m3), w_scaled_by_rows, multiprocessors),
            _ => block_all([m, n, k], x, stores, w_scaled_by_rows, multiprocessors),
        };
        found.ok_or_else(|| {
            CudaError::Refused(format!(
                "a block wants m, n, k of at least 1, n a multiple of {BLOCK_COLUMNS} and k of 16, not {m}, {n}, {k}"
            ))
        })
    }

    /// h = hard swish(BlockNorm(z)) of z `[m, n]` in BF16, to h in BF16 and to codes by the scale at `scale`; 0 for what
    /// is not wanted.
    pub fn block_norm_hard_swish(
        &self,
        stream: RawStream,
        [z, h, codes, scale]: [u64; 4],
        [m, n]: [u32; 2],
    ) -> Result<(), CudaError> {
        aligned("z", z, 16)?;
        wanted("h", h, 16)?;
        wanted("codes", codes, 8)?;
        if codes != 0 {
            aligned("the scale of h", scale, 4)?;
        }
        let grid = norms::block_norm_hard_swish([m, n], BLOCK_COLUMNS, self.device.multiprocessors)
            .ok_or_else(|| broken_rows(n))?;
        let count = u64::from(m) * u64::from(n);
        let arguments = Arguments::new().value(z).value(h).value(codes).value(scale).value(count);
        self.launch(stream, "block_norm_hard_swish", grid, &arguments)
    }

    /// The gradient of z, of h = hard swish(BlockNorm(z)).
    pub fn block_backward(&self, stream: RawStream, at: &BackwardMemory) -> Result<(), CudaError> {
        aligned("dh", at.dh, 16)?;
        aligned("z", at.z, 16)?;
        wanted("dz", at.dz, 16)?;
        wanted("codes", at.codes, 8)?;
        if at.codes != 0 {
            aligned("row_scales", at.row_scales, 4)?;
        }
        let grid = norms::block_backward([at.m, at.n], BLOCK_COLUMNS).ok_or_else(|| broken_rows(at.n))?;
        let arguments =
            Arguments::new().value(at.dh).value(at.z).value(at.dz).value(at.codes).value(at.row_scales).value(at.n);
        self.launch(stream, "block_backward", grid, &arguments)
    }

    /// The gradient of z by a scale known beforehand.
    pub fn block_backward_static(&self, stream: RawStream, at: &StaticBackwardMemory) -> Result<(), CudaError> {
        aligned("dh", at.dh, 16)?;
        aligned("z", at.z, 16)?;
        wanted("dz", at.dz, 16)?;
        wanted("codes", at.codes, 8)?;
        wanted("codes_t", at.codes_t, 16)?;
        aligned("the scale of dz", at.scale, 4)?;
        wanted("saturated", at.saturated, 8)?;
        wanted("amax", at.amax, 4)?;
        if at.codes_t != 0 && !at.m.is_multiple_of(16) {
            return Err(CudaError::Refused(format!("codes are transposed where m is a multiple of 16, not {}", at.m)));
        }
        let (grid, arguments) = at.launch().ok_or_else(|| broken_rows(at.n))?;
        self.launch(stream, "block_backward_static", grid, &arguments)
    }
}

fn broken_rows(n: u32) -> CudaError {
    CudaError::Refused(format!(
        "BlockNorm wants rows of a multiple of {BLOCK_COLUMNS}, in the backward pass of at most {}, not {n}",
        norms::LONGEST_BACKWARD
    ))
}
