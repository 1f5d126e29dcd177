//! Streams and what lives on them: memory, events, graphs. Whatever is freed in `Drop` is freed on its stream,
//! behind the work that uses it.

use std::{
    ffi::{c_int, c_uint},
    marker::PhantomData,
    sync::Arc,
};

use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUdeviceptr, CUevent, CUgraphExec, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchConfig, CUmemorytype, CUstream,
};
use loka_kernels::LaunchGrid;

use super::{
    CudaError,
    arguments::Arguments,
    driver::{Device, Function, call},
};

/// Nothing but this stream's work is captured; other threads' calls do not end the capture.
const CAPTURE_THREAD_LOCAL: c_int = 1;
const STREAM_NON_BLOCKING: c_uint = 1;

/// A queue of work.
pub(super) struct Stream {
    pub device: Arc<Device>,
    handle: CUstream,
}

// SAFETY: a handle of a thread-safe library.
#[expect(unsafe_code, reason = "raw handles of a thread-safe library")]
unsafe impl Send for Stream {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "raw handles of a thread-safe library")]
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new(device: &Arc<Device>) -> Result<Arc<Self>, CudaError> {
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        call!(device, cuStreamCreate(&mut handle, STREAM_NON_BLOCKING))?;
        Ok(Arc::new(Self { device: device.clone(), handle }))
    }

    pub fn handle(&self) -> CUstream {
        self.handle
    }

    /// Waits until everything on the stream is done.
    pub fn wait(&self) -> Result<(), CudaError> {
        call!(self.device, cuStreamSynchronize(self.handle))
    }

    /// Memory of `len` elements, with whatever was in it.
    pub fn alloc<T: Element>(self: &Arc<Self>, len: usize) -> Result<Buffer<T>, CudaError> {
        let bytes = len * size_of::<T>();
        let mut address = 0;
        // Zero bytes are refused; a buffer that nobody reads may be any.
        call!(self.device, cuMemAllocAsync(&mut address, bytes.max(16), self.handle))
            .map_err(|error| self.device.out_of_memory(error, bytes))?;
        Ok(Buffer { address, len, stream: self.clone(), of: PhantomData })
    }

    pub fn zeros<T: Element>(self: &Arc<Self>, len: usize) -> Result<Buffer<T>, CudaError> {
        let buffer = self.alloc(len)?;
        self.fill(&buffer, 0)?;
        Ok(buffer)
    }

    /// A copy of `data` on the device. Waits for the copy, so that `data` may go.
    pub fn upload<T: Element>(self: &Arc<Self>, data: &[T]) -> Result<Buffer<T>, CudaError> {
        let buffer = self.alloc(data.len())?;
        self.write(&buffer, data)?;
        Ok(buffer)
    }

    pub fn write<T: Element>(&self, to: &Buffer<T>, data: &[T]) -> Result<(), CudaError> {
        assert!(data.len() <= to.len, "more data than memory");
        call!(self.device, cuMemcpyHtoDAsync_v2(to.address, data.as_ptr().cast(), size_of_val(data), self.handle))?;
        self.wait()
    }

    pub fn download<T: Element>(&self, from: &Buffer<T>) -> Result<Vec<T>, CudaError> {
        let mut data = vec![T::zeroed(); from.len];
        let bytes = size_of_val(&data[..]);
        call!(self.device, cuMemcpyDtoHAsync_v2(data.as_mut_ptr().cast(), from.address, bytes, self.handle))?;
        self.wait()?;
        Ok(data)
    }

    pub fn copy<T: Element>(&self, from: &Buffer<T>, to: &Buffer<T>) -> Result<(), CudaError> {
        assert!(from.len <= to.len, "more data than memory");
        call!(self.device, cuMemcpyDtoDAsync_v2(to.address, from.address, from.len * size_of::<T>(), self.handle))
    }

    /// `height` rows of `width` elements, as many of both sides' rows apart as each has a pitch, in elements.
    pub fn copy_rows<T: Element>(
        &self,
        (from, from_pitch): (&Buffer<T>, usize),
        (to, to_pitch): (&Buffer<T>, usize),
        (width, height): (usize, usize),
    ) -> Result<(), CudaError> {
        if width == 0 || height == 0 {
            return Ok(());
        }
        let last = |pitch: usize| (height - 1) * pitch + width;
        assert!(last(from_pitch) <= from.len && last(to_pitch) <= to.len, "more data than memory");
        let bytes = size_of::<T>();
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: from.address,
            srcPitch: from_pitch * bytes,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: to.address,
            dstPitch: to_pitch * bytes,
            WidthInBytes: width * bytes,
            Height: height,
            srcXInBytes: 0,
            srcY: 0,
            srcHost: std::ptr::null(),
            srcArray: std::ptr::null_mut(),
            dstXInBytes: 0,
            dstY: 0,
            dstHost: std::ptr::null_mut(),
            dstArray: std::ptr::null_mut(),
        };
        call!(self.device, cuMemcpy2DAsync_v2(&raw const copy, self.handle))
    }

    pub fn copy_to<T: Element>(&self, from: &Buffer<T>, to: &Shared) -> Result<(), CudaError> {
        let bytes = from.len * size_of::<T>();
        assert!(bytes <= to.bytes, "more data than memory");
        call!(self.device, cuMemcpyDtoDAsync_v2(to.address, from.address, bytes, self.handle))
    }

    pub fn fill_shared(&self, shared: &Shared, byte: u8) -> Result<(), CudaError> {
        call!(self.device, cuMemsetD8Async(shared.address, byte, shared.bytes, self.handle))
    }

    /// Sets every byte.
    pub fn fill<T: Element>(&self, buffer: &Buffer<T>, byte: u8) -> Result<(), CudaError> {
        call!(self.device, cuMemsetD8Async(buffer.address, byte, buffer.len * size_of::<T>(), self.handle))
    }

    /// Puts a kernel on the stream; nothing happens for an empty grid.
    pub fn launch(&self, function: Function, grid: LaunchGrid, arguments: &Arguments) -> Result<(), CudaError> {
        launch(&self.device, self.handle, function, grid, arguments)
    }

    /// What `work` puts on the stream, to be replayed at once.
    pub fn capture(self: &Arc<Self>, work: impl FnOnce() -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        call!(self.device, cuStreamBeginCapture_v2(self.handle, CAPTURE_THREAD_LOCAL))?;
        let outcome = work();
        let mut graph = std::ptr::null_mut();
        // Ended even when the work failed, or the stream stays useless.
        let ended = call!(self.device, cuStreamEndCapture(self.handle, &mut graph));
        outcome?;
        ended?;
        let mut replay = std::ptr::null_mut();
        let made = call!(self.device, cuGraphInstantiateWithFlags(&mut replay, graph, 0));
        let _ = call!(self.device, cuGraphDestroy(graph));
        made?;
        Ok(Graph { replay, stream: self.clone() })
    }

    pub fn event(&self) -> Result<Event, CudaError> {
        let mut handle = std::ptr::null_mut();
        call!(self.device, cuEventCreate(&mut handle, 0))?;
        Ok(Event { handle, device: self.device.clone() })
    }

    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        call!(self.device, cuEventRecord(event.handle, self.handle))
    }
}

/// Puts a kernel on a stream, be it another's; nothing happens for an empty grid.
pub(super) fn launch(
    device: &Device,
    stream: CUstream,
    function: Function,
    grid: LaunchGrid,
    arguments: &Arguments,
) -> Result<(), CudaError> {
    let [x, y, z] = grid.blocks;
    if grid.is_empty() {
        return Ok(());
    }
    let mut attributes = launch_attributes(device, grid);
    let config = CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: grid.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: grid.shared_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as c_uint,
    };
    let mut pointers = arguments.pointers();
    call!(device, cuLaunchKernelEx(&config, function.handle, pointers.as_mut_ptr(), std::ptr::null_mut()))
}

fn launch_attributes(device: &Device, grid: LaunchGrid) -> Vec<CUlaunchAttribute> {
    let attribute = |id| CUlaunchAttribute { id, pad: [0; 4], value: CUlaunchAttributeValue { pad: [0; 64] } };
    let mut attributes = Vec::new();
    if grid.cluster > 1 {
        let mut cluster = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
        cluster.value.clusterDim.x = grid.cluster;
        cluster.value.clusterDim.y = 1;
        cluster.value.clusterDim.z = 1;
        attributes.push(cluster);
    }
    // Starts while the kernel before still runs; the kernel itself waits before it reads what that one wrote.
    if grid.programmatic && device.capability >= (9, 0) {
        let mut early = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
        early.value.programmaticStreamSerializationAllowed = 1;
        attributes.push(early);
    }
    attributes
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.device.bind();
        let _ = call!(self.device, cuStreamDestroy_v2(self.handle));
    }
}

/// What may lie in device memory: plain numbers and structs of them.
pub(super) trait Element: bytemuck::Pod {}
impl<T: bytemuck::Pod> Element for T {}

/// Device memory. Freed on its stream, behind the work that was put there before.
pub(super) struct Buffer<T> {
    address: CUdeviceptr,
    len: usize,
    stream: Arc<Stream>,
    of: PhantomData<T>,
}

impl<T> Buffer<T> {
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        let device = &self.stream.device;
        let _ = device.bind();
        let _ = call!(device, cuMemFreeAsync(self.address, self.stream.handle));
    }
}

/// A point on a stream.
pub(super) struct Event {
    handle: CUevent,
    device: Arc<Device>,
}

impl Event {
    pub fn wait(&self) -> Result<(), CudaError> {
        call!(self.device, cuEventSynchronize(self.handle))
    }

    pub fn ms_since(&self, earlier: &Self) -> Result<f32, CudaError> {
        let mut ms = 0.0;
        call!(self.device, cuEventElapsedTime(&mut ms, earlier.handle, self.handle))?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = call!(self.device, cuEventDestroy_v2(self.handle));
    }
}

/// Recorded work.
pub(super) struct Graph {
    replay: CUgraphExec,
    stream: Arc<Stream>,
}

impl Graph {
    pub fn replay(&self) -> Result<(), CudaError> {
        call!(self.stream.device, cuGraphLaunch(self.replay, self.stream.handle))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = call!(self.stream.device, cuGraphExecDestroy(self.replay));
    }
}

/// Memory that another process may open by its handle. Allocated outside the pool: the pool's cannot be shared.
pub(super) struct Shared {
    address: CUdeviceptr,
    pub bytes: usize,
    device: Arc<Device>,
}

impl Shared {
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        let mut address = 0;
        call!(device, cuMemAlloc_v2(&mut address, bytes.max(16)))
            .map_err(|error| device.out_of_memory(error, bytes))?;
        Ok(Self { address, bytes, device: device.clone() })
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn handle(&self) -> Result<[u8; 64], CudaError> {
        let mut handle = [0; 64];
        call!(self.device, cuIpcGetMemHandle(&mut handle, self.address))?;
        Ok(handle)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.device.bind();
        let _ = call!(self.device, cuMemFree_v2(self.address));
    }
}
