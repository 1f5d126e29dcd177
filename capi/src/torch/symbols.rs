//! PyTorch's stable C interface: takes the paths of its libraries, gives its functions. Each gives 0, or not where it failed.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    path::Path,
    ptr::null_mut,
};

use libloading::os::unix::{Library, RTLD_LAZY};

/// `AtenTensorHandle`.
pub type AtenHandle = *mut c_void;
/// `StableIValue`: a number, or an address.
pub type StableValue = u64;
/// An op as PyTorch calls it: the stack, how many arguments are on it, how many results it wants.
pub type Kernel = unsafe extern "C-unwind" fn(*mut StableValue, u64, u64);

macro_rules! symbols {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that ops need. They live as long as the process, as PyTorch does.
        #[expect(non_snake_case, reason = "what a C++ compiler makes of a name")]
        pub struct Functions { $($(#[$doc])* pub $name: unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?,)* }

        impl Functions {
            fn of(find: &dyn Fn(&str) -> Result<*mut c_void, String>) -> Result<Self, String> {
                // SAFETY: the types are those of PyTorch's header of that version.
                Ok(Self { $($name: unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?>(find(stringify!($name))?) },)* })
            }
        }
    };
}

symbols! {
    fn aoti_torch_library_init_impl(*const c_char, *const c_char, *const c_char, u32, *mut *mut c_void) -> i32;
    fn torch_library_impl(*mut c_void, *const c_char, Kernel, u64) -> i32;
    fn aoti_torch_delete_tensor_object(AtenHandle) -> i32;
    fn aoti_torch_get_data_ptr(AtenHandle, *mut *mut c_void) -> i32;
    fn aoti_torch_get_dim(AtenHandle, *mut i64) -> i32;
    fn aoti_torch_get_sizes(AtenHandle, *mut *const i64) -> i32;
    fn aoti_torch_get_strides(AtenHandle, *mut *const i64) -> i32;
    fn aoti_torch_get_dtype(AtenHandle, *mut i32) -> i32;
    fn aoti_torch_get_device_type(AtenHandle, *mut i32) -> i32;
    fn aoti_torch_get_device_index(AtenHandle, *mut i32) -> i32;
    fn aoti_torch_is_contiguous(AtenHandle, *mut bool) -> i32;
    /// ndim, sizes, strides, dtype, device type and index.
    fn aoti_torch_empty_strided(i64, *const i64, *const i64, i32, i32, i32, *mut AtenHandle) -> i32;
    fn aoti_torch_copy_(AtenHandle, AtenHandle, i32) -> i32;
    fn aoti_torch_device_type_cuda() -> i32;
    fn aoti_torch_dtype_bfloat16() -> i32;
    fn aoti_torch_dtype_float32() -> i32;
    fn aoti_torch_dtype_float16() -> i32;
    fn aoti_torch_dtype_float64() -> i32;
    fn aoti_torch_dtype_int64() -> i32;
    fn aoti_torch_dtype_uint8() -> i32;
    fn aoti_torch_dtype_float8_e4m3fn() -> i32;
    fn aoti_torch_dtype_float8_e5m2() -> i32;
    fn torch_string_length(*mut c_void, *mut usize) -> i32;
    fn torch_string_c_str(*mut c_void, *mut *const c_char) -> i32;
    fn torch_delete_string(*mut c_void) -> i32;
    /// C++'s operator delete: an argument that may be missing comes in a box of its own.
    fn _ZdlPv(*mut c_void);
    /// Throws where the first is false.
    fn aoti_torch_check(bool, *const c_char, *const c_char, u32, *const c_char);
}

/// Types of elements, by PyTorch's numbers.
#[derive(Clone, Copy)]
pub struct Types {
    pub bf16: i32,
    pub fp32: i32,
    pub int64: i32,
    pub bytes: i32,
    pub e4m3: i32,
    pub e5m2: i32,
    fp16: i32,
    fp64: i32,
}

impl Types {
    /// As Python calls it.
    pub fn name(&self, dtype: i32) -> &'static str {
        let names = [
            (self.bf16, "torch.bfloat16"),
            (self.fp32, "torch.float32"),
            (self.int64, "torch.int64"),
            (self.bytes, "torch.uint8"),
            (self.e4m3, "torch.float8_e4m3fn"),
            (self.e5m2, "torch.float8_e5m2"),
            (self.fp16, "torch.float16"),
            (self.fp64, "torch.float64"),
        ];
        names.into_iter().find(|(number, _)| *number == dtype).map_or("another type", |(_, name)| name)
    }
}

/// The PyTorch of this process.
pub struct Torch {
    pub functions: Functions,
    /// Of libtorch_cuda.so, which a PyTorch for CPUs has not.
    current_stream: Option<unsafe extern "C-unwind" fn(i32, *mut *mut c_void) -> i32>,
    pub types: Types,
    pub cuda: i32,
}

impl Torch {
    pub fn open(paths: &[&Path]) -> Result<Self, String> {
        let mut libraries = Vec::new();
        for path in paths {
            // SAFETY: what it initialises is initialised: this process runs on it.
            let library = unsafe { Library::open(Some(*path), RTLD_LAZY) }.map_err(|error| error.to_string())?;
            // Never closed: functions of it are kept.
            libraries.push(&*Box::leak(Box::new(library)));
        }
        let find = |name: &str| {
            // SAFETY: an address alone.
            let found =
                libraries.iter().find_map(|library| unsafe { library.get::<*mut c_void>(name.as_bytes()) }.ok());
            found
                .map(|symbol| symbol.into_raw())
                .ok_or_else(|| format!("this PyTorch has no {name}: 2.10 or later has"))
        };
        let functions = Functions::of(&find)?;
        let current_stream = find("aoti_torch_get_current_cuda_stream").ok();
        // SAFETY: as PyTorch's header has it.
        let current_stream = current_stream.map(|address| unsafe { std::mem::transmute::<*mut c_void, _>(address) });
        // SAFETY: they give constants.
        let (types, cuda) = unsafe {
            (
                Types {
                    bf16: (functions.aoti_torch_dtype_bfloat16)(),
                    fp32: (functions.aoti_torch_dtype_float32)(),
                    int64: (functions.aoti_torch_dtype_int64)(),
                    bytes: (functions.aoti_torch_dtype_uint8)(),
                    e4m3: (functions.aoti_torch_dtype_float8_e4m3fn)(),
                    e5m2: (functions.aoti_torch_dtype_float8_e5m2)(),
                    fp16: (functions.aoti_torch_dtype_float16)(),
                    fp64: (functions.aoti_torch_dtype_float64)(),
                },
                (functions.aoti_torch_device_type_cuda)(),
            )
        };
        Ok(Self { functions, current_stream, types, cuda })
    }

    /// Registers the kernels for good.
    pub fn register(&self, ns: &CStr, key: &CStr, version: u64, kernels: &[(&CStr, Kernel)]) -> Result<(), String> {
        let mut library = null_mut();
        // SAFETY: strings that end; the library is never freed, as its registrations last.
        let opened = unsafe {
            (self.functions.aoti_torch_library_init_impl)(
                ns.as_ptr(),
                key.as_ptr(),
                c"libloka".as_ptr(),
                0,
                &raw mut library,
            )
        };
        if opened != 0 {
            return Err(format!("PyTorch takes no kernels of {key:?} for {ns:?}"));
        }
        for (name, kernel) in kernels {
            // SAFETY: as above; kernels are functions.
            if unsafe { (self.functions.torch_library_impl)(library, name.as_ptr(), *kernel, version) } != 0 {
                return Err(format!("PyTorch does not take {name:?}"));
            }
        }
        Ok(())
    }

    /// The current stream of a GPU.
    pub fn stream(&self, device: i32) -> Result<u64, String> {
        let current = self.current_stream.ok_or("this PyTorch has no CUDA")?;
        let mut stream = null_mut();
        // SAFETY: room for one address.
        match unsafe { current(device, &raw mut stream) } {
            0 => Ok(stream as u64),
            _ => Err(format!("device {device} has no current stream")),
        }
    }

    /// Throws PyTorch's own error with that text.
    pub fn refuse(&self, text: CString) {
        // PyTorch copies the text before it throws, and who throws drops nothing of ours: the words are the thread's.
        thread_local! {
            static WORDS: std::cell::RefCell<CString> = std::cell::RefCell::default();
        }
        let words = WORDS.with(|words| {
            *words.borrow_mut() = text;
            words.borrow().as_ptr()
        });
        // SAFETY: strings that end. It unwinds through this frame, which has nothing to drop.
        unsafe { (self.functions.aoti_torch_check)(false, c"loka".as_ptr(), c"libloka".as_ptr(), 0, words) };
    }
}
