//! Arguments and results of an op: takes PyTorch's stack, gives tensors that are given back when they are dropped.

use std::{
    ffi::{c_char, c_void},
    mem::ManuallyDrop,
    ptr::{null, null_mut},
    slice::from_raw_parts,
};

use loka_core::engine::cuda::raw;

use super::{
    OpError,
    symbols::{AtenHandle, StableValue, Torch},
};

/// A reference to a tensor, with what ops ask of it.
pub struct TorchTensor {
    torch: &'static Torch,
    handle: AtenHandle,
    pub dtype: i32,
    pub sizes: Vec<i64>,
    strides: Vec<i64>,
    pub is_contiguous: bool,
    pub is_cuda: bool,
    device_type: i32,
    pub device: i32,
    pub address: u64,
}

impl Drop for TorchTensor {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody uses it after.
        unsafe { (self.torch.functions.aoti_torch_delete_tensor_object)(self.handle) };
    }
}

impl TorchTensor {
    fn of(torch: &'static Torch, handle: AtenHandle) -> Self {
        let at = &torch.functions;
        let (mut address, mut sizes, mut strides, mut num_sizes) = (null_mut(), null(), null(), 0);
        let (mut dtype, mut device_type, mut device, mut is_contiguous) = (0, 0, 0, false);
        // SAFETY: a handle of PyTorch's, and room for one value each; they fail for no tensor that an op gets.
        unsafe {
            (at.aoti_torch_get_data_ptr)(handle, &raw mut address);
            (at.aoti_torch_get_dim)(handle, &raw mut num_sizes);
            (at.aoti_torch_get_sizes)(handle, &raw mut sizes);
            (at.aoti_torch_get_strides)(handle, &raw mut strides);
            (at.aoti_torch_get_dtype)(handle, &raw mut dtype);
            (at.aoti_torch_get_device_type)(handle, &raw mut device_type);
            (at.aoti_torch_get_device_index)(handle, &raw mut device);
            (at.aoti_torch_is_contiguous)(handle, &raw mut is_contiguous);
        }
        let copied = |of: *const i64| match usize::try_from(num_sizes) {
            // SAFETY: as many as it has dimensions; copied before anybody may change the tensor.
            Ok(count) if count > 0 && !of.is_null() => unsafe { from_raw_parts(of, count) }.to_vec(),
            _ => Vec::new(),
        };
        let (sizes, strides) = (copied(sizes), copied(strides));
        let is_cuda = device_type == torch.cuda;
        let address = address as u64;
        Self { torch, handle, dtype, sizes, strides, is_contiguous, is_cuda, device_type, device, address }
    }

    /// A new one, contiguous, on the same device.
    pub fn new_empty(&self, sizes: &[i64], dtype: i32) -> Result<Self, OpError> {
        let mut strides = vec![1; sizes.len()];
        for at in (1..sizes.len()).rev() {
            strides[at - 1] = strides[at] * sizes[at].max(1);
        }
        self.new_strided(sizes, &strides, dtype)
    }

    /// Codes on the same device, each row from a line of memory on.
    pub fn new_codes(&self, [rows, cols]: [i64; 2], dtype: i32) -> Result<Self, OpError> {
        let pitch = raw::pitch(usize::try_from(cols).unwrap_or(0)).max(1) as i64;
        self.new_strided(&[rows, cols], &[pitch, 1], dtype)
    }

    fn new_strided(&self, sizes: &[i64], strides: &[i64], dtype: i32) -> Result<Self, OpError> {
        let mut made = null_mut();
        // SAFETY: sizes and strides of that length, and room for one handle.
        let code = unsafe {
            (self.torch.functions.aoti_torch_empty_strided)(
                sizes.len() as i64,
                sizes.as_ptr(),
                strides.as_ptr(),
                dtype,
                self.device_type,
                self.device,
                &raw mut made,
            )
        };
        if code != 0 {
            // PyTorch keeps its own words to itself here. In these, trainers that try smaller batches find what they look for.
            let of = self.torch.types.name(dtype);
            return Err(format!(
                "CUDA out of memory: there is no room for {of} of {sizes:?} (allocating an op's output failed)"
            ));
        }
        Ok(Self::of(self.torch, made))
    }

    pub fn copy_from(&self, other: &Self) -> Result<(), OpError> {
        // SAFETY: two tensors that live.
        match unsafe { (self.torch.functions.aoti_torch_copy_)(self.handle, other.handle, 0) } {
            0 => Ok(()),
            _ => Err(format!("PyTorch could not copy {other}")),
        }
    }

    /// As kernels read it: rows behind one another, from a multiple of so many bytes.
    pub fn ready(self, bytes: u64) -> Result<Self, OpError> {
        if self.is_contiguous && self.address.is_multiple_of(bytes) {
            return Ok(self);
        }
        let made = self.new_empty(&self.sizes, self.dtype)?;
        made.copy_from(&self)?;
        Ok(made)
    }

    /// A matrix of BF16 or codes as the copy engine reads it: rows, each without gaps, that begin at multiples of so many bytes.
    pub fn with_rows(self, bytes: u64) -> Result<Self, OpError> {
        let size = if self.dtype == self.torch.types.bf16 { 2 } else { 1 };
        let fits = match (&self.sizes[..], &self.strides[..]) {
            (&[_, cols], &[pitch, 1]) => u32::try_from(pitch)
                .is_ok_and(|pitch| i64::from(pitch) >= cols && (u64::from(pitch) * size).is_multiple_of(bytes)),
            _ => false,
        };
        if fits && self.address.is_multiple_of(bytes) { Ok(self) } else { self.ready(bytes) }
    }

    /// Elements from one row of a matrix to the next, of what [`Self::with_rows`] gave; 0: rows lie behind one another.
    pub fn pitch(&self) -> u32 {
        match self.strides[..] {
            [pitch, _] if !self.is_contiguous => u32::try_from(pitch).unwrap_or(0),
            _ => 0,
        }
    }

    /// Whether both are on one device.
    pub fn is_beside(&self, other: &Self) -> bool {
        (self.device_type, self.device) == (other.device_type, other.device)
    }

    pub fn count(&self) -> i64 {
        self.sizes.iter().product()
    }

    pub fn stream(&self) -> Result<u64, OpError> {
        // Elsewhere only tests run, without a device.
        if self.is_cuda { self.torch.stream(self.device) } else { Ok(0) }
    }

    pub fn torch(&self) -> &'static Torch {
        self.torch
    }

    fn into_value(self) -> StableValue {
        let mut given = ManuallyDrop::new(self);
        drop((std::mem::take(&mut given.sizes), std::mem::take(&mut given.strides)));
        given.handle as StableValue
    }
}

impl std::fmt::Display for TorchTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {:?}", self.torch.types.name(self.dtype), self.sizes)
    }
}

/// What PyTorch gave an op, in the order of its schema. All of it is the op's, which takes it all before it can fail: only
/// what was taken is given back.
pub struct Arguments<'a> {
    torch: &'static Torch,
    values: &'a [StableValue],
}

impl<'a> Arguments<'a> {
    pub fn new(torch: &'static Torch, values: &'a [StableValue]) -> Self {
        Self { torch, values }
    }

    pub fn torch(&self) -> &'static Torch {
        self.torch
    }

    fn next(&mut self) -> StableValue {
        // As many as the schema has, which is what this op was written for.
        let (first, rest) = self.values.split_first().unwrap_or((&0, &[]));
        self.values = rest;
        *first
    }

    pub fn tensor(&mut self) -> TorchTensor {
        TorchTensor::of(self.torch, self.next() as AtenHandle)
    }

    /// One that may be missing.
    pub fn maybe(&mut self) -> Option<TorchTensor> {
        let boxed = self.next() as *mut StableValue;
        if boxed.is_null() {
            return None;
        }
        // SAFETY: PyTorch's box of one value, made by C++'s operator new, and ours.
        let handle = unsafe {
            let value = boxed.read();
            (self.torch.functions._ZdlPv)(boxed.cast());
            value
        };
        Some(TorchTensor::of(self.torch, handle as AtenHandle))
    }

    pub fn flag(&mut self) -> bool {
        // Its lowest byte is C's bool.
        self.next() & 0xff != 0
    }

    pub fn int(&mut self) -> i64 {
        self.next() as i64
    }

    pub fn text(&mut self) -> String {
        let handle = self.next() as *mut c_void;
        let (mut length, mut data): (usize, *const c_char) = (0, null());
        let at = &self.torch.functions;
        // SAFETY: a string of PyTorch's that is ours; read before it is given back.
        unsafe {
            (at.torch_string_length)(handle, &raw mut length);
            (at.torch_string_c_str)(handle, &raw mut data);
            let text = if data.is_null() { &[] } else { from_raw_parts(data.cast::<u8>(), length) };
            let text = String::from_utf8_lossy(text).into_owned();
            (at.torch_delete_string)(handle);
            text
        }
    }
}

/// What an op gives, in the order of its schema.
#[derive(Default)]
pub struct Results(Vec<TorchTensor>);

impl Results {
    pub fn push(&mut self, tensor: TorchTensor) {
        self.0.push(tensor);
    }

    /// # Safety
    /// The stack has room for them.
    pub unsafe fn into_stack(self, stack: *mut StableValue) {
        for (at, tensor) in self.0.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { stack.add(at).write(tensor.into_value()) };
        }
    }
}
