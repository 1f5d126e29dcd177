//! What is known of a kernel before it is compiled, and the geometry of a launch; headers that several kernels include.

/// One kernel: a file of `cu/`, named like its entry symbol.
#[derive(Clone, Copy, Debug)]
pub struct KernelSource {
    /// The `extern "C"` symbol.
    pub entry: &'static str,
    /// CUDA C++, without the headers.
    pub source: &'static str,
    /// What `source` includes, directly or through another header.
    pub headers: &'static [Header],
    /// Values for NVRTC's `--gpu-architecture`, as the file's first line names them.
    pub architectures: &'static [&'static str],
    /// In the order of the kernel's parameters.
    pub arguments: &'static [Argument],
    /// One sentence: what it takes and gives.
    pub about: &'static str,
}

/// A file for NVRTC's list of headers. By name rather than pasted in front of the source, so that
/// the compiler's messages name the file and line that a person can open.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// As `#include` writes it.
    pub name: &'static str,
    pub text: &'static str,
}

/// One parameter of a kernel. Pointers are device addresses; all of them 16-byte aligned for full speed.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    pub name: &'static str,
    pub kind: ArgumentKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    Pointer,
    U32,
    U64,
    F32,
    /// By value, of so many bytes: a `#[repr(C)]` mirror stands beside the kernel's list.
    Struct(u32),
}

/// The geometry of one launch. With 0 blocks there is nothing to do: do not launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchGrid {
    pub blocks: [u32; 3],
    /// Threads of a block, in x alone.
    pub threads: u32,
    /// Dynamic shared memory of a block. Beyond 48 KiB the function's attribute must allow it.
    pub shared_bytes: u32,
    /// Blocks of a thread-block cluster, in x; it divides `blocks[0]`. 1: launch without the attribute.
    pub cluster: u32,
    /// The kernel waits by itself for the one before it on the stream, so it may be launched while that one
    /// still runs: the attribute of programmatic stream serialization, compute capability 9.0 and later.
    pub programmatic: bool,
}

impl LaunchGrid {
    /// `blocks` in x alone, without dynamic shared memory or launch attributes.
    pub const fn line(blocks: u32, threads: u32) -> Self {
        Self { blocks: [blocks, 1, 1], threads, shared_bytes: 0, cluster: 1, programmatic: false }
    }

    /// Nothing to do: CUDA refuses to launch it.
    pub fn is_empty(&self) -> bool {
        self.blocks.contains(&0)
    }
}

pub(crate) const fn pointer(name: &'static str) -> Argument {
    Argument { name, kind: ArgumentKind::Pointer }
}

pub(crate) const fn number(name: &'static str, kind: ArgumentKind) -> Argument {
    Argument { name, kind }
}

pub(crate) const TYPES: Header = Header { name: "common/types.cuh", text: include_str!("../cu/common/types.cuh") };
pub(crate) const FP8: Header = Header { name: "common/fp8.cuh", text: include_str!("../cu/common/fp8.cuh") };
pub(crate) const WARP: Header = Header { name: "common/warp.cuh", text: include_str!("../cu/common/warp.cuh") };
pub(crate) const CAST: Header = Header { name: "common/cast.cuh", text: include_str!("../cu/common/cast.cuh") };

/// No tensor cores needed: each architecture with an FP8 conversion instruction runs these.
pub(crate) const WITH_FP8_CASTS: &[&str] = &["sm_89", "sm_90a", "sm_100a"];
