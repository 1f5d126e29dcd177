//! What a kernel is given.

use std::ffi::c_void;

use super::stream::Buffer;

/// A kernel's arguments in order, as the driver wants them: a pointer to each.
#[derive(Default)]
pub(super) struct Arguments {
    /// 8-byte words, so that every argument is aligned.
    words: Vec<u64>,
    starts: Vec<usize>,
}

impl Arguments {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn value<T: bytemuck::NoUninit>(mut self, value: T) -> Self {
        self.starts.push(self.words.len());
        let bytes = bytemuck::bytes_of(&value);
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words.push(u64::from_ne_bytes(word));
        }
        self
    }

    /// A struct by value: one of `loka_kernels`' `#[repr(C)]` mirrors, which have no padding.
    pub fn structure<T: Copy>(mut self, value: T) -> Self {
        const { assert!(align_of::<T>() <= 8) };
        let start = self.words.len();
        self.starts.push(start);
        self.words.resize(start + size_of::<T>().div_ceil(8), 0);
        // SAFETY: the words hold at least as many bytes, and are as aligned.
        #[expect(unsafe_code, reason = "bytes of a plain struct")]
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const value).cast::<u8>(),
                self.words.as_mut_ptr().add(start).cast(),
                size_of::<T>(),
            );
        }
        self
    }

    pub fn buffer<T>(self, buffer: &Buffer<T>) -> Self {
        self.value(buffer.address())
    }

    /// A pointer that may be null: an output that is not wanted.
    pub fn maybe<T>(self, buffer: Option<&Buffer<T>>) -> Self {
        self.value(buffer.map_or(0, Buffer::address))
    }

    pub fn pointers(&self) -> Vec<*mut c_void> {
        self.starts.iter().map(|start| (&raw const self.words[*start]).cast_mut().cast()).collect()
    }
}
