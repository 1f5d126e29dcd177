//! Gives the CPU time of this thread, and of all threads together: on a busy machine the clock on the wall
//! measures the neighbours.

#![allow(unsafe_code, reason = "the system's clocks")]

use std::time::Duration;

/// CPU time that this thread has used.
pub fn of_thread() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time that this process has used.
pub fn of_process() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of ours, written before the call returns.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(failed, 0, "no such clock");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Milliseconds of CPU time of this thread that `work` takes.
pub fn cpu_ms<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let before = of_thread();
    let done = work();
    (1e3 * (of_thread() - before).as_secs_f64(), done)
}
