//! What the process asks of the allocator that it has.

/// Larger lists are mapped each for itself, and are the system's again as soon as they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_FROM: i32 = 4 << 20;

/// Has memory that large lists took given back, from now on. Once, at the start of a process: glibc maps large lists each for
/// itself, but the first that is freed moves its bound up to that size, and later ones lie in its heap, where small texts that
/// live on keep their place from being given back. A decision at 10,000 sites leaves 70 MB so.
pub fn give_back_large_lists() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets a number of the allocator's; glibc allows it at any time.
    #[allow(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
    }
}

/// Gives back what was freed already, however small the pieces: once much was made to be thrown away, on the thread that made it.
/// Reading the rows of 10,000 sites leaves 45 MB so.
#[cfg(any(feature = "gui", feature = "serve"))]
pub(super) fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: looks through what is free, under the allocator's own locks.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}
