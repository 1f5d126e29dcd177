//! Native entry.

use std::process::ExitCode;

/// Draws allocate and free megabytes at a time; the system allocator gives them back to the kernel and
/// pays for fresh pages each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(loka::cli::run())
}
