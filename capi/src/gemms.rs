//! The products of the ABI: takes operands as C has them, gives launches.

use std::ffi::c_void;

use loka_core::engine::cuda::{
    CudaError,
    raw::{GemmMemory, RawStream},
};

use crate::{devices::opened, outcome::guarded};

// As in `loka.h`.
const FAST: u32 = 1;
const X_E5M2: u32 = 2;
const X_ROW_SCALES: u32 = 4;
pub const W_ROW_SCALES: u32 = 8;

pub fn known(flags: u32, which: u32) -> Result<(), CudaError> {
    match flags & !which {
        0 => Ok(()),
        unknown => Err(CudaError::Refused(format!("flags that this call does not have: {unknown:#x}"))),
    }
}

/// Negative: the one that is expected to be the fastest.
fn tiling_of(tiling: i32) -> Option<u32> {
    u32::try_from(tiling).ok()
}

/// y = x w^T, both operands FP8.
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_fp8_gemm(
    device: i32,
    x: *const c_void,
    x_scales: *const f32,
    w: *const c_void,
    w_scales: *const f32,
    y: *mut c_void,
    m: u32,
    n: u32,
    k: u32,
    x_pitch: u32,
    w_pitch: u32,
    flags: u32,
    tiling: i32,
    stream: *mut c_void,
) -> i32 {
    guarded(|| {
        known(flags, FAST | X_E5M2 | X_ROW_SCALES | W_ROW_SCALES)?;
        let has = |flag| flags & flag != 0;
        let at = GemmMemory {
            x: x as u64,
            x_scales: x_scales as u64,
            w: w as u64,
            w_scales: w_scales as u64,
            bias: 0,
            out: y as u64,
            m,
            n,
            k,
            x_pitch,
            w_pitch,
            w_scaled_by_rows: has(W_ROW_SCALES),
        };
        let how = (has(FAST), has(X_E5M2), has(X_ROW_SCALES));
        opened(device)?.fp8_gemm(RawStream(stream as u64), &at, how, tiling_of(tiling))
    })
}

/// y = x w^T + bias, x BF16 and cast on its way in.
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_fp8_static_gemm(
    device: i32,
    x: *const c_void,
    x_scale: *const f32,
    w: *const c_void,
    w_scales: *const f32,
    bias: *const c_void,
    y: *mut c_void,
    saturated: *mut u64,
    m: u32,
    n: u32,
    k: u32,
    x_pitch: u32,
    w_pitch: u32,
    flags: u32,
    tiling: i32,
    stream: *mut c_void,
) -> i32 {
    guarded(|| {
        known(flags, W_ROW_SCALES)?;
        let at = GemmMemory {
            x: x as u64,
            x_scales: x_scale as u64,
            w: w as u64,
            w_scales: w_scales as u64,
            bias: bias as u64,
            out: y as u64,
            m,
            n,
            k,
            x_pitch,
            w_pitch,
            w_scaled_by_rows: flags & W_ROW_SCALES != 0,
        };
        opened(device)?.static_gemm(RawStream(stream as u64), &at, saturated as u64, tiling_of(tiling))
    })
}
