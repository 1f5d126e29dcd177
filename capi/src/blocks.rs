//! BlockNorm and hard swish of the ABI: takes operands as C has them, gives launches.

use std::ffi::c_void;

use loka_core::engine::cuda::raw::{BackwardMemory, BlockOutputs, GemmMemory, RawStream, StaticBackwardMemory};

use crate::{
    devices::opened,
    gemms::{W_ROW_SCALES, known},
    outcome::guarded,
};

// As in `loka.h`.
const X_E4M3: u32 = 16;

/// h = hard swish(BlockNorm(x w^T + bias)).
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_fp8_block(
    device: i32,
    x: *const c_void,
    x_scale: *const f32,
    w: *const c_void,
    w_scales: *const f32,
    bias: *const c_void,
    z: *mut c_void,
    h: *mut c_void,
    codes: *mut c_void,
    h_scale: *const f32,
    saturated: *mut u64,
    m: u32,
    n: u32,
    k: u32,
    x_pitch: u32,
    w_pitch: u32,
    flags: u32,
    stream: *mut c_void,
) -> i32 {
    guarded(|| {
        known(flags, W_ROW_SCALES | X_E4M3)?;
        let at = GemmMemory {
            x: x as u64,
            x_scales: x_scale as u64,
            w: w as u64,
            w_scales: w_scales as u64,
            bias: bias as u64,
            out: h as u64,
            m,
            n,
            k,
            x_pitch,
            w_pitch,
            w_scaled_by_rows: flags & W_ROW_SCALES != 0,
        };
        let to = BlockOutputs { z: z as u64, codes: codes as u64, scale: h_scale as u64 };
        opened(device)?.block(RawStream(stream as u64), &at, flags & X_E4M3 != 0, &to, saturated as u64)
    })
}

/// h = hard swish(BlockNorm(z)).
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_block_norm_hard_swish(
    device: i32,
    z: *const c_void,
    h: *mut c_void,
    codes: *mut c_void,
    h_scale: *const f32,
    m: u32,
    n: u32,
    stream: *mut c_void,
) -> i32 {
    guarded(|| {
        let addresses = [z as u64, h as u64, codes as u64, h_scale as u64];
        opened(device)?.block_norm_hard_swish(RawStream(stream as u64), addresses, [m, n])
    })
}

/// The gradient of z, and its codes by rows.
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_block_backward(
    device: i32,
    dh: *const c_void,
    z: *const c_void,
    dz: *mut c_void,
    codes: *mut c_void,
    row_scales: *mut f32,
    m: u32,
    n: u32,
    stream: *mut c_void,
) -> i32 {
    guarded(|| {
        let at = BackwardMemory {
            dh: dh as u64,
            z: z as u64,
            dz: dz as u64,
            codes: codes as u64,
            row_scales: row_scales as u64,
            m,
            n,
        };
        opened(device)?.block_backward(RawStream(stream as u64), &at)
    })
}

/// The gradient of z, and its codes by one scale known beforehand.
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_block_backward_static(
    device: i32,
    dh: *const c_void,
    z: *const c_void,
    dz: *mut c_void,
    codes: *mut c_void,
    codes_t: *mut c_void,
    dz_scale: *const f32,
    saturated: *mut u64,
    amax: *mut f32,
    m: u32,
    n: u32,
    stream: *mut c_void,
) -> i32 {
    guarded(|| {
        let at = StaticBackwardMemory {
            dh: dh as u64,
            z: z as u64,
            dz: dz as u64,
            codes: codes as u64,
            codes_t: codes_t as u64,
            scale: dz_scale as u64,
            saturated: saturated as u64,
            amax: amax as u64,
            m,
            n,
        };
        opened(device)?.block_backward_static(RawStream(stream as u64), &at)
    })
}
