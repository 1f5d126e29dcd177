//! The casts of the ABI: takes operands as C has them, gives launches.

use std::ffi::c_void;

use loka_core::engine::cuda::{
    CudaError,
    raw::{CastMemory, Gpu, RawStream, StaticCastMemory},
};

use crate::{devices::opened, outcome::guarded};

/// `loka_operand` of `loka.h`, field by field.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CastOperand {
    x: *const c_void,
    codes: *mut c_void,
    scales: *mut f32,
    codes_t: *mut c_void,
    scales_t: *mut f32,
    partials: *mut c_void,
    partials_bytes: u64,
    rows: u32,
    cols: u32,
    flags: u32,
    pitch: u32,
    pitch_t: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<CastOperand>() == 80, "loka.h has it so");

impl From<CastOperand> for CastMemory {
    fn from(from: CastOperand) -> Self {
        Self {
            x: from.x as u64,
            codes: from.codes as u64,
            scales: from.scales as u64,
            codes_t: from.codes_t as u64,
            scales_t: from.scales_t as u64,
            partials: from.partials as u64,
            partials_bytes: from.partials_bytes,
            rows: from.rows,
            cols: from.cols,
            flags: from.flags,
            pitch: from.pitch,
            pitch_t: from.pitch_t,
        }
    }
}

// Addresses are numbers there: the kernel's own operand.
const _: () = assert!(size_of::<StaticCastMemory>() == 56 && size_of::<*const c_void>() == 8, "loka.h has it so");

/// Bytes of scratch that a columnwise or a tensorwise cast of an operand needs, to `bytes`.
///
/// # Safety
/// `bytes` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_partials_bytes(device: i32, rows: u32, cols: u32, bytes: *mut u64) -> i32 {
    guarded(|| {
        let needed = opened(device)?.partials_bytes(rows, cols);
        if bytes.is_null() {
            return Err(CudaError::Refused("bytes is null".to_owned()));
        }
        // SAFETY: not null, and the caller's promise.
        unsafe { bytes.write(needed) };
        Ok(())
    })
}

/// # Safety
/// `operands` has `count` of them; what they point to is memory of the device, and theirs.
unsafe fn cast(
    device: i32,
    operands: *const CastOperand,
    count: u32,
    work: impl FnOnce(&Gpu, &[CastMemory]) -> Result<(), CudaError>,
) -> i32 {
    guarded(|| {
        if operands.is_null() || count == 0 || count > 2 {
            return Err(CudaError::Refused(format!("{count} operands: a cast takes one or two")));
        }
        // SAFETY: not null, and the caller's promise.
        let given = unsafe { std::slice::from_raw_parts(operands, count as usize) };
        let mut memory = [CastMemory::default(); 2];
        for (to, from) in memory.iter_mut().zip(given) {
            *to = (*from).into();
        }
        work(opened(device)?, &memory[..given.len()])
    })
}

/// BF16 to codes and one scale a row.
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_cast_rowwise(
    device: i32,
    operands: *const CastOperand,
    count: u32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { cast(device, operands, count, |gpu, memory| gpu.cast_rowwise(RawStream(stream as u64), memory)) }
}

/// BF16 to transposed codes and one scale a column.
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_cast_columnwise(
    device: i32,
    operands: *const CastOperand,
    count: u32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { cast(device, operands, count, |gpu, memory| gpu.cast_columnwise(RawStream(stream as u64), memory)) }
}

/// BF16 to codes, as they lie or transposed or both, and one scale.
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_cast_tensorwise(
    device: i32,
    operands: *const CastOperand,
    count: u32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { cast(device, operands, count, |gpu, memory| gpu.cast_tensorwise(RawStream(stream as u64), memory)) }
}

/// Codes, transposed.
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_transpose_codes(
    device: i32,
    operands: *const CastOperand,
    count: u32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { cast(device, operands, count, |gpu, memory| gpu.transpose_codes(RawStream(stream as u64), memory)) }
}

/// BF16 to E4M3 by a scale known beforehand.
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_cast_static(
    device: i32,
    x: *const c_void,
    scale: *const f32,
    codes: *mut c_void,
    saturated: *mut u64,
    count: u64,
    stream: *mut c_void,
) -> i32 {
    guarded(|| {
        let addresses = [x as u64, scale as u64, codes as u64, saturated as u64];
        opened(device)?.cast_static(RawStream(stream as u64), addresses, count)
    })
}

/// BF16 to E4M3 by scales known beforehand, as it lies and transposed.
///
/// # Safety
/// As `loka.h` says of the pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_cast_static_turned(
    device: i32,
    operands: *const StaticCastMemory,
    count: u32,
    stream: *mut c_void,
) -> i32 {
    guarded(|| {
        if operands.is_null() {
            return Err(CudaError::Refused("operands is null".to_owned()));
        }
        // SAFETY: not null, and the caller's promise of `count` of them.
        let given = unsafe { std::slice::from_raw_parts(operands, count as usize) };
        opened(device)?.cast_static_turned(RawStream(stream as u64), given)
    })
}
