//! LoKA's kernels as PyTorch's own ops call them, without Python in between: registers functions with PyTorch's dispatcher
//! through its stable C interface (`torch/csrc/stable/c/shim.h`, PyTorch 2.10 or later). Nothing is compiled against
//! PyTorch, and no symbol of it is needed to load this library: its functions are looked up in the process that calls.
//!
//! The ops are defined in Python (`loka.kernels.native_ops`), which says what each does and runs them elsewhere.

mod ops;
mod symbols;
mod tensor;

use std::{
    ffi::{CStr, CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

use loka_core::engine::cuda::CudaError;

use self::{
    symbols::{StableValue, Torch},
    tensor::{Arguments, Results},
};
use crate::outcome::{self, guarded};

/// The version of the stable interface that this is written for, as PyTorch encodes it.
const STABLE_2_10: u64 = 2 << 56 | 10 << 48;

/// One process has one PyTorch.
static TORCH: OnceLock<Torch> = OnceLock::new();
/// Where to look for NVIDIA's libraries when an op meets a GPU that is not open yet.
static FOLDERS: Mutex<String> = Mutex::new(String::new());

/// From now on the ops of namespace `ns` that are listed in [`ops::KERNELS`] run here for tensors of dispatch key `key`.
///
/// # Safety
/// All are strings that end; `libraries` names libtorch_cpu.so and libtorch_cuda.so of this process, separated by `:`, the
/// second of which may be missing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loka_torch_register(
    libraries: *const c_char,
    ns: *const c_char,
    key: *const c_char,
    folders: *const c_char,
) -> i32 {
    guarded(|| {
        if [libraries, ns, key, folders].iter().any(|text| text.is_null()) {
            return Err(CudaError::Refused("a null string".to_owned()));
        }
        // SAFETY: the caller's promise, for all four.
        let [libraries, ns, key, folders] = unsafe { [libraries, ns, key, folders].map(|text| CStr::from_ptr(text)) };
        *FOLDERS.lock().unwrap_or_else(PoisonError::into_inner) = folders.to_string_lossy().into_owned();
        let text = libraries.to_string_lossy();
        let paths: Vec<&Path> = text.split(':').filter(|path| !path.is_empty()).map(Path::new).collect();
        let torch = match TORCH.get() {
            Some(torch) => torch,
            None => {
                let opened = Torch::open(&paths).map_err(CudaError::Refused)?;
                TORCH.get_or_init(|| opened)
            }
        };
        torch.register(ns, key, STABLE_2_10, &ops::KERNELS).map_err(CudaError::Refused)
    })
}

/// The device of that number, opened by the first op that meets it.
fn gpu(device: i32) -> Result<&'static loka_core::engine::cuda::raw::Gpu, CudaError> {
    crate::devices::opened(device).or_else(|_| {
        let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        crate::devices::open(device, &folders)?;
        crate::devices::opened(device)
    })
}

/// Why an op did not run, one line: PyTorch makes a RuntimeError of it.
type OpError = String;

/// Takes the stack that PyTorch gives an op: arguments in, results out. What goes wrong in `op` is thrown as PyTorch's
/// own error, at the very end, when nothing of ours is left to be dropped.
///
/// # Safety
/// PyTorch's: `stack` has room for the arguments, which become ours, and for the results.
unsafe fn called(
    stack: *mut StableValue,
    num_arguments: u64,
    op: fn(&mut Arguments, &mut Results) -> Result<(), OpError>,
) {
    let Some(torch) = TORCH.get() else { return };
    let refusal = {
        // SAFETY: as many as PyTorch says.
        let values = unsafe { std::slice::from_raw_parts(stack, num_arguments as usize) };
        let mut arguments = Arguments::new(torch, values);
        let mut results = Results::default();
        let done = catch_unwind(AssertUnwindSafe(|| op(&mut arguments, &mut results)));
        match done {
            Ok(Ok(())) => {
                // SAFETY: room for the results, PyTorch's promise.
                unsafe { results.into_stack(stack) };
                None
            }
            Ok(Err(refusal)) => Some(refusal),
            Err(panic) => Some(outcome::told_of(panic.as_ref())),
        }
    };
    if let Some(refusal) = refusal {
        let text = CString::new(refusal.replace('\0', " ")).unwrap_or_default();
        torch.refuse(text);
    }
}
