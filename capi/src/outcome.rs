//! How a call went: takes what it does, gives a number, and keeps the words for `loka_last_error`.

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

use loka_core::engine::cuda::CudaError;

/// As in `loka.h`.
pub const OK: i32 = 0;
const REFUSED: i32 = 1;
const MISSING: i32 = 2;
const FAILED: i32 = 3;
const LOST: i32 = 4;
const BUG: i32 = 5;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Does `call`; a panic in it ends here.
pub fn guarded(call: impl FnOnce() -> Result<(), CudaError>) -> i32 {
    // Nothing is left half done that another call would see: locks that panicked are taken as they are.
    let (code, words) = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return OK,
        Ok(Err(error)) => (code_of(&error), error.to_string()),
        Err(panic) => (BUG, told_of(panic.as_ref())),
    };
    // One line, and no zero inside.
    let words = words.replace(['\n', '\0'], " ");
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(words).unwrap_or_default());
    code
}

/// What a panic says, as a bug of ours.
pub fn told_of(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("a bug in LoKA: {}", said.unwrap_or_default())
}

pub fn last_error() -> *const c_char {
    // A thread that ends has no place for it any more.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn code_of(error: &CudaError) -> i32 {
    match error {
        error if error.is_sticky() => LOST,
        CudaError::Refused(_) => REFUSED,
        CudaError::NoLibrary(_)
        | CudaError::NoSymbol { .. }
        | CudaError::OldCublasLt { .. }
        | CudaError::OldDriver { .. }
        | CudaError::NoDevice(_)
        | CudaError::NoFp8 { .. } => MISSING,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn words() -> String {
        // SAFETY: valid until the next call that fails.
        unsafe { CStr::from_ptr(last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_ends_at_the_boundary_and_is_told() {
        assert_eq!(guarded(|| panic!("{} of two\nlines", 1)), BUG);
        assert_eq!(words(), "a bug in LoKA: 1 of two lines");
        assert_eq!(guarded(|| Ok(())), OK);
        assert_eq!(words(), "a bug in LoKA: 1 of two lines", "what goes well leaves the words");
    }

    #[test]
    fn words_are_of_their_own_thread() {
        assert_eq!(guarded(|| Err(CudaError::Refused("k is 3".to_owned()))), REFUSED);
        std::thread::spawn(|| assert_eq!(words(), "")).join().unwrap();
        assert_eq!(words(), "k is 3");
    }

    #[test]
    fn errors_have_their_numbers() {
        let driver = |code| CudaError::Driver { call: "cuLaunchKernelEx", name: "NAME".to_owned(), code };
        assert_eq!(code_of(&driver(700)), LOST);
        assert_eq!(code_of(&driver(1)), FAILED);
        assert_eq!(code_of(&CudaError::NoLibrary("cuda")), MISSING);
    }
}
