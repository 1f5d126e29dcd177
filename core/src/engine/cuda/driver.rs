//! The CUDA driver, thin: the functions that we call, the device, its kernels. Every call checks its status, and
//! an error that sticks is remembered: nothing more is asked of a device that is lost.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::{Arc, OnceLock},
};

use super::{
    CudaError,
    libraries::{SearchPath, symbols},
};
use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUlaunchConfig,
    CUmemoryPool, CUmodule, CUstream,
};
use loka_kernels::gemm::TensorMap;

symbols! {
    /// Of libcuda.
    DriverApi {
        fn cuInit(c_uint) -> c_int;
        fn cuDriverGetVersion(*mut c_int) -> c_int;
        fn cuGetErrorName(c_int, *mut *const c_char) -> c_int;
        fn cuDeviceGetCount(*mut c_int) -> c_int;
        fn cuDeviceGet(*mut CUdevice, c_int) -> c_int;
        fn cuDeviceGetName(*mut c_char, c_int, CUdevice) -> c_int;
        fn cuDeviceGetAttribute(*mut c_int, c_int, CUdevice) -> c_int;
        fn cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice) -> c_int;
        fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice) -> c_int;
        fn cuCtxSetCurrent(CUcontext) -> c_int;
        fn cuCtxGetCurrent(*mut CUcontext) -> c_int;
        fn cuMemGetInfo_v2(*mut usize, *mut usize) -> c_int;
        fn cuMemAlloc_v2(*mut CUdeviceptr, usize) -> c_int;
        fn cuMemFree_v2(CUdeviceptr) -> c_int;
        fn cuMemAllocAsync(*mut CUdeviceptr, usize, CUstream) -> c_int;
        fn cuMemFreeAsync(CUdeviceptr, CUstream) -> c_int;
        fn cuDeviceGetDefaultMemPool(*mut CUmemoryPool, CUdevice) -> c_int;
        fn cuMemPoolSetAttribute(CUmemoryPool, c_int, *mut c_void) -> c_int;
        fn cuMemPoolGetAttribute(CUmemoryPool, c_int, *mut c_void) -> c_int;
        fn cuMemPoolTrimTo(CUmemoryPool, usize) -> c_int;
        fn cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream) -> c_int;
        fn cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream) -> c_int;
        fn cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream) -> c_int;
        fn cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, CUstream) -> c_int;
        fn cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream) -> c_int;
        fn cuStreamCreate(*mut CUstream, c_uint) -> c_int;
        fn cuStreamDestroy_v2(CUstream) -> c_int;
        fn cuStreamSynchronize(CUstream) -> c_int;
        fn cuStreamBeginCapture_v2(CUstream, c_int) -> c_int;
        fn cuStreamEndCapture(CUstream, *mut CUgraph) -> c_int;
        fn cuEventCreate(*mut CUevent, c_uint) -> c_int;
        fn cuEventRecord(CUevent, CUstream) -> c_int;
        fn cuEventSynchronize(CUevent) -> c_int;
        fn cuEventElapsedTime(*mut f32, CUevent, CUevent) -> c_int;
        fn cuEventDestroy_v2(CUevent) -> c_int;
        fn cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, u64) -> c_int;
        fn cuGraphLaunch(CUgraphExec, CUstream) -> c_int;
        fn cuGraphExecDestroy(CUgraphExec) -> c_int;
        fn cuGraphDestroy(CUgraph) -> c_int;
        fn cuModuleLoadData(*mut CUmodule, *const c_void) -> c_int;
        fn cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char) -> c_int;
        fn cuFuncGetAttribute(*mut c_int, c_int, CUfunction) -> c_int;
        fn cuFuncSetAttribute(CUfunction, c_int, c_int) -> c_int;
        fn cuTensorMapEncodeTiled(*mut AlignedMap, c_int, c_uint, u64, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int) -> c_int;
        fn cuLaunchKernelEx(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void) -> c_int;
        fn cuIpcGetMemHandle(*mut [u8; 64], CUdeviceptr) -> c_int;
    }
}

// CUdevice_attribute, CUmemPool_attribute, CUfunction_attribute: numbers of cuda.h.
const MULTIPROCESSORS: c_int = 16;
const L2_BYTES: c_int = 38;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const SHARED_BYTES_OPT_IN: c_int = 97;
const POOL_RELEASE_THRESHOLD: c_int = 4;
const POOL_USED_HIGH: c_int = 8;
const FUNCTION_STATIC_SHARED: c_int = 1;
const FUNCTION_MAX_DYNAMIC_SHARED: c_int = 8;

// CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion.
const MAP_UINT8: c_int = 0;
const MAP_BFLOAT16: c_int = 9;
const MAP_SWIZZLE_128: c_int = 3;
const MAP_PROMOTE_128: c_int = 2;

/// The driver writes a map only where it is aligned.
#[repr(C, align(64))]
pub(super) struct AlignedMap(TensorMap);

/// A row-major matrix in device memory, and the box of it that the copy engine moves at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    pub address: u64,
    pub rows: u64,
    pub cols: u64,
    /// Elements from one row to the next.
    pub pitch: u64,
    /// Else single bytes.
    pub is_bf16: bool,
    pub box_rows: u32,
    pub box_cols: u32,
}

/// One GPU, opened. Shared by all threads of the process.
pub(super) struct Device {
    pub(super) api: DriverApi,
    ordinal: CUdevice,
    context: CUcontext,
    pool: CUmemoryPool,
    pub name: String,
    /// 13000 is CUDA 13.0.
    pub driver_version: i32,
    pub capability: (i32, i32),
    pub multiprocessors: u32,
    pub l2_bytes: usize,
    pub shared_bytes: u32,
    pub bus_id: String,
    /// Why nothing runs on it any more.
    lost: OnceLock<CudaError>,
}

// SAFETY: the driver's handles may be used from any thread once the context is current there, which
// `bind` sees to.
#[expect(unsafe_code, reason = "raw handles of a thread-safe library")]
unsafe impl Send for Device {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "raw handles of a thread-safe library")]
unsafe impl Sync for Device {}

macro_rules! call {
    ($device:expr, $symbol:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the arguments are handles made by this module and pointers valid for the call.
        #[expect(unsafe_code, reason = "a driver call")]
        let status = unsafe { ($device.api.$symbol)($($argument),*) };
        $device.check(stringify!($symbol), status)
    }};
}

pub(super) use call;

impl Device {
    /// The first GPU that the driver lists, for this process alone.
    pub fn open(search: &SearchPath) -> Result<Arc<Self>, CudaError> {
        let device = Self::open_at(search, 0)?;
        // Freed memory stays with the process: a probe frees and wants the same sizes again and again.
        let mut keep = u64::MAX;
        call!(device, cuMemPoolSetAttribute(device.pool, POOL_RELEASE_THRESHOLD, (&raw mut keep).cast()))?;
        Ok(device)
    }

    /// The GPU of that number in the driver's list, its primary context as whoever else uses it has it.
    pub fn open_at(search: &SearchPath, ordinal: u32) -> Result<Arc<Self>, CudaError> {
        let (api, _) = search.open("cuda", DriverApi::load)?;
        let mut device = Self {
            api,
            ordinal: 0,
            context: std::ptr::null_mut(),
            pool: std::ptr::null_mut(),
            name: String::new(),
            driver_version: 0,
            capability: (0, 0),
            multiprocessors: 0,
            l2_bytes: 0,
            shared_bytes: 0,
            bus_id: String::new(),
            lost: OnceLock::new(),
        };
        device.initialise(ordinal)?;
        Ok(Arc::new(device))
    }

    fn initialise(&mut self, ordinal: u32) -> Result<(), CudaError> {
        call!(self, cuDriverGetVersion(&mut self.driver_version))?;
        if self.driver_version < 12_000 {
            return Err(CudaError::OldDriver { found: version_text(self.driver_version) });
        }
        call!(self, cuInit(0)).map_err(|error| CudaError::NoDevice(error.to_string()))?;
        let mut count = 0;
        call!(self, cuDeviceGetCount(&mut count))?;
        if count == 0 {
            return Err(CudaError::NoDevice("none listed".to_owned()));
        }
        if ordinal >= count.unsigned_abs() {
            return Err(CudaError::NoDevice(format!("device {ordinal} of {count}")));
        }
        call!(self, cuDeviceGet(&mut self.ordinal, ordinal.cast_signed()))?;
        let mut text: [c_char; 256] = [0; 256];
        call!(self, cuDeviceGetName(text.as_mut_ptr(), 256, self.ordinal))?;
        self.name = c_text(&text);
        call!(self, cuDeviceGetPCIBusId(text.as_mut_ptr(), 256, self.ordinal))?;
        self.bus_id = c_text(&text);
        self.capability = (self.attribute(MAJOR)?, self.attribute(MINOR)?);
        self.multiprocessors = self.attribute(MULTIPROCESSORS)?.unsigned_abs();
        self.l2_bytes = self.attribute(L2_BYTES)?.unsigned_abs() as usize;
        self.shared_bytes = self.attribute(SHARED_BYTES_OPT_IN)?.unsigned_abs();
        if self.capability < (8, 9) {
            let (major, minor) = self.capability;
            return Err(CudaError::NoFp8 { device: self.name.clone(), major, minor });
        }
        call!(self, cuDevicePrimaryCtxRetain(&mut self.context, self.ordinal))?;
        call!(self, cuDeviceGetDefaultMemPool(&mut self.pool, self.ordinal))
    }

    fn attribute(&self, attribute: c_int) -> Result<c_int, CudaError> {
        let mut value = 0;
        call!(self, cuDeviceGetAttribute(&mut value, attribute, self.ordinal))?;
        Ok(value)
    }

    /// The architecture that kernels are compiled for, as NVRTC names it.
    pub fn architecture(&self) -> String {
        let (major, minor) = self.capability;
        // From 9.0 on the instructions that we use belong to the architecture-specific targets.
        format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
    }

    pub fn version(&self) -> String {
        version_text(self.driver_version)
    }

    /// Makes the context current in this thread.
    pub fn bind(&self) -> Result<(), CudaError> {
        if let Some(error) = self.lost.get() {
            return Err(error.clone());
        }
        call!(self, cuCtxSetCurrent(self.context))
    }

    /// Does `work` with the context current, and leaves the thread with the one that it had: it is another's.
    pub fn within<T>(&self, work: impl FnOnce() -> Result<T, CudaError>) -> Result<T, CudaError> {
        let mut before = std::ptr::null_mut();
        call!(self, cuCtxGetCurrent(&mut before))?;
        self.bind()?;
        let done = work();
        if before != self.context {
            call!(self, cuCtxSetCurrent(before))?;
        }
        done
    }

    /// Why the device is lost to this process, if it is.
    pub fn lost(&self) -> Option<&CudaError> {
        self.lost.get()
    }

    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the driver fills in a pointer to a constant string, or leaves it null.
        #[expect(unsafe_code, reason = "a driver call")]
        let known = unsafe { (self.api.cuGetErrorName)(code, &mut name) } == 0 && !name.is_null();
        // SAFETY: a constant, terminated string of the driver.
        #[expect(unsafe_code, reason = "a C string")]
        let name = if known {
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            format!("error {code}")
        };
        let error = CudaError::Driver { call, name, code };
        if error.is_sticky() {
            let _ = self.lost.set(error.clone());
        }
        Err(error)
    }

    /// (free, total) bytes of the whole GPU.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        call!(self, cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    /// The most that this process ever had allocated on streams, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let mut bytes = 0u64;
        let _ = call!(self, cuMemPoolGetAttribute(self.pool, POOL_USED_HIGH, (&raw mut bytes).cast()));
        bytes
    }

    /// Gives memory that is free in our pool back to the GPU, for other libraries' allocations.
    pub fn trim(&self) {
        let _ = call!(self, cuMemPoolTrimTo(self.pool, 0));
    }

    pub(super) fn out_of_memory(&self, error: CudaError, wanted: usize) -> CudaError {
        match error {
            CudaError::Driver { code: 2, .. } => {
                let free = self.memory().map_or(0, |(free, _)| free);
                CudaError::OutOfMemory { wanted_mb: wanted as u64 / 1_000_000, free_mb: free / 1_000_000 }
            }
            other => other,
        }
    }

    /// What a kernel of Hopper steers the copy engine by: boxes swizzled by 128 bytes, zeros beyond the matrix.
    pub fn tensor_map(&self, matrix: Matrix) -> Result<TensorMap, CudaError> {
        let Matrix { address, rows, cols, pitch, is_bf16, box_rows, box_cols } = matrix;
        let (data_type, bytes) = if is_bf16 { (MAP_BFLOAT16, 2) } else { (MAP_UINT8, 1) };
        let mut map = AlignedMap(TensorMap { words: [0; 16] });
        let (sizes, pitch, sides, steps) = ([cols, rows], pitch * bytes, [box_cols, box_rows], [1, 1]);
        call!(
            self,
            cuTensorMapEncodeTiled(
                &mut map,
                data_type,
                2,
                address,
                sizes.as_ptr(),
                &pitch,
                sides.as_ptr(),
                steps.as_ptr(),
                0,
                MAP_SWIZZLE_128,
                MAP_PROMOTE_128,
                0
            )
        )?;
        Ok(map.0)
    }

    /// A compiled kernel.
    pub fn load(self: &Arc<Self>, cubin: &[u8], entry: &str) -> Result<Function, CudaError> {
        self.bind()?;
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        call!(self, cuModuleLoadData(&mut module, cubin.as_ptr().cast()))?;
        let name = std::ffi::CString::new(entry).map_err(|_| CudaError::Refused(format!("'{entry}' is no symbol")))?;
        call!(self, cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
        // The default of 48 KB is a promise to old code; launches name what they need.
        let mut fixed = 0;
        call!(self, cuFuncGetAttribute(&mut fixed, FUNCTION_STATIC_SHARED, function))?;
        let most = self.shared_bytes as c_int - fixed;
        call!(self, cuFuncSetAttribute(function, FUNCTION_MAX_DYNAMIC_SHARED, most))?;
        Ok(Function { handle: function })
    }
}

fn c_text(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|c| c.cast_unsigned()).take_while(|c| *c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// A kernel's entry. Its module stays loaded as long as the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub handle: CUfunction,
}

// SAFETY: a handle of a thread-safe library.
#[expect(unsafe_code, reason = "raw handles of a thread-safe library")]
unsafe impl Send for Function {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "raw handles of a thread-safe library")]
unsafe impl Sync for Function {}
