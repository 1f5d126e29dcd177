//! libloka: takes C calls with device addresses and a stream, gives LoKA's kernels on that stream. `loka.h` says what
//! each call does; `loka_core::engine::cuda::raw` does it.
//!
//! No call panics across the boundary, and each tells how it went by a number; the words are in `loka_last_error`.

#![expect(unsafe_code, reason = "a C ABI: pointers of callers")]

mod blocks;
mod casts;
mod devices;
mod gemms;
mod outcome;
mod torch;

use std::ffi::{CStr, c_char};

use outcome::guarded;

/// Raised whenever a function changes; new functions alone do not.
const ABI_VERSION: u32 = 3;

/// Of this ABI: what was compiled or written for another must not call.
#[unsafe(no_mangle)]
pub extern "C" fn loka_version() -> u32 {
    ABI_VERSION
}

/// What the last call of this thread that failed says, one line; empty where none did. Valid until the thread's next
/// call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn loka_last_error() -> *const c_char {
    outcome::last_error()
}

/// Opens the GPU of that number; a second time does nothing. `folders`: where to look for NVIDIA's libraries too,
/// separated by `:`, or null.
///
/// # Safety
/// `folders` is null or a string that ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_open(device: i32, folders: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let folders = if folders.is_null() { c"" } else { unsafe { CStr::from_ptr(folders) } };
        devices::open(device, &folders.to_string_lossy())
    })
}
