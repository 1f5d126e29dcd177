//! Products in memory of others: takes operands by address, gives launches of `loka_kernels::gemm`.

use loka_kernels::gemm::{Fp8Product, TILE_K, TensorMap, X_BOX_COLUMNS, X_ROWS, Y_BOX, fp8_gemm, static_gemm};

use super::{
    super::{CudaError, arguments::Arguments, driver::Matrix},
    Gpu, RawStream, aligned,
};

/// Operands of out `[m, n]` = x `[m, k]` w `[n, k]`^T, by addresses.
#[derive(Clone, Copy, Debug, Default)]
pub struct GemmMemory {
    pub x: u64,
    /// FP32, of the tensor or of each row.
    pub x_scales: u64,
    /// E4M3
    pub w: u64,
    pub w_scales: u64,
    /// BF16 `[n]`, or 0: only of what casts x on its way in, and of blocks.
    pub bias: u64,
    /// Of blocks h in BF16, 0 where it is not wanted.
    pub out: u64,
    pub m: u32,
    pub n: u32,
    pub k: u32,
    /// From one row of x to the next, in elements, a multiple of 16 bytes; 0: rows lie behind one another.
    pub x_pitch: u32,
    /// The same of w.
    pub w_pitch: u32,
    pub w_scaled_by_rows: bool,
}

impl Gpu {
    /// Both operands FP8, BF16 out. `tiling`: which of the kernels, in the order of their expected time; `None`: the
    /// first. Fast or promoted, E5M2 of x: as `loka_kernels::gemm::Fp8Product` has it.
    pub fn fp8_gemm(
        &self,
        stream: RawStream,
        at: &GemmMemory,
        (fast, is_x_e5m2, x_scaled_by_rows): (bool, bool, bool),
        tiling: Option<u32>,
    ) -> Result<(), CudaError> {
        self.check(at)?;
        aligned("the output", at.out, 16)?;
        let &GemmMemory { m, n, k, x_pitch, w_pitch, w_scaled_by_rows, .. } = at;
        let product = Fp8Product { m, n, k, fast, is_x_e5m2, scaled_by_rows: w_scaled_by_rows };
        let mut launch = picked(&fp8_gemm(product, self.device.multiprocessors), at, tiling)?;
        launch.shape.x_scale_step = u32::from(x_scaled_by_rows);
        let arguments = Arguments::new()
            .structure(self.map(at.x, [m, k], x_pitch, false, [X_ROWS, TILE_K])?)
            .structure(self.map(at.w, [n, k], w_pitch, false, [launch.w_rows, TILE_K])?)
            .structure(self.map(at.out, [m, n], n, true, Y_BOX)?)
            .value(at.x_scales)
            .value(at.w_scales)
            .structure(launch.shape);
        self.launch(stream, launch.entry, launch.grid, &arguments)
    }

    /// x is BF16 and cast on its way in by the scale at `x_scales`, a power of two; w is E4M3, BF16 out. Adds the
    /// saturated elements of x to the u64 at `saturated`.
    pub fn static_gemm(
        &self,
        stream: RawStream,
        at: &GemmMemory,
        saturated: u64,
        tiling: Option<u32>,
    ) -> Result<(), CudaError> {
        self.check(at)?;
        aligned("the output", at.out, 16)?;
        aligned("saturated", saturated, 8)?;
        let &GemmMemory { m, n, k, x_pitch, w_pitch, .. } = at;
        let launches = static_gemm(m, n, k, at.w_scaled_by_rows, self.device.multiprocessors);
        let mut launch = picked(&launches, at, tiling)?;
        launch.shape.bias = at.bias;
        let arguments = Arguments::new()
            .structure(self.map(at.x, [m, k], x_pitch, true, [launch.x_rows, X_BOX_COLUMNS])?)
            .structure(self.map(at.w, [n, k], w_pitch, false, [launch.w_rows, TILE_K])?)
            .structure(self.map(at.out, [m, n], n, true, Y_BOX)?)
            .value(at.x_scales)
            .value(at.w_scales)
            .value(saturated)
            .structure(launch.shape);
        self.launch(stream, launch.entry, launch.grid, &arguments)
    }

    pub(super) fn check(&self, at: &GemmMemory) -> Result<(), CudaError> {
        let (major, minor) = self.device.capability;
        if (major, minor) != (9, 0) {
            return Err(CudaError::Refused(format!(
                "LoKA's GEMMs are built for compute capability 9.0, this GPU has {major}.{minor}"
            )));
        }
        aligned("x", at.x, 16)?;
        aligned("w", at.w, 16)?;
        aligned("x_scales", at.x_scales, 4)?;
        for (what, pitch) in [("x", at.x_pitch), ("w", at.w_pitch)] {
            if pitch != 0 && pitch < at.k {
                return Err(CudaError::Refused(format!("rows of {what} are {pitch} apart, of {} elements", at.k)));
            }
        }
        if at.bias != 0 {
            aligned("bias", at.bias, 4)?;
        }
        aligned("w_scales", at.w_scales, 4)
    }

    pub(super) fn map(
        &self,
        address: u64,
        [rows, cols]: [u32; 2],
        pitch: u32,
        is_bf16: bool,
        [box_rows, box_cols]: [u32; 2],
    ) -> Result<TensorMap, CudaError> {
        let pitch = u64::from(if pitch == 0 { cols } else { pitch });
        if !(pitch * if is_bf16 { 2 } else { 1 }).is_multiple_of(16) {
            return Err(CudaError::Refused(format!("rows of {cols} elements begin at no multiples of 16 bytes")));
        }
        let (rows, cols) = (u64::from(rows), u64::from(cols));
        // Of autograd, a thread without a context: the driver wants one even to write a descriptor on the host.
        let of = Matrix { address, rows, cols, pitch, is_bf16, box_rows, box_cols };
        self.device.within(|| self.device.tensor_map(of))
    }
}

fn picked<L: Copy>(launches: &[L], at: &GemmMemory, tiling: Option<u32>) -> Result<L, CudaError> {
    if launches.is_empty() {
        let GemmMemory { m, n, k, .. } = at;
        return Err(CudaError::Refused(format!(
            "LoKA's GEMMs want m, n, k of at least 1, and n and k multiples of 16, not {m}, {n}, {k}"
        )));
    }
    let index = tiling.unwrap_or(0) as usize;
    launches
        .get(index)
        .copied()
        .ok_or_else(|| CudaError::Refused(format!("tiling {index}: this product has {}, from 0", launches.len())))
}
