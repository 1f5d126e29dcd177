//! Takes recorded kernel latencies, gives the latency of any kernel at any GEMM, and where it came from.
//!
//! A shape that was recorded is looked up; another is modelled from that kernel's records
//! ([`Fit`]: launch + compute + bytes, never below the host's launch time), with the fit's error
//! beside it; a kernel that nobody timed has none, and the note says so. Speed-ups compare with
//! BF16 *of the same database*: eager launches and CUDA graphs are never mixed.

mod database;
mod fit;
mod latency;
mod nnls;
mod source;
mod tail;
mod work;

pub use database::KernelDb;
pub use fit::{Fit, FitError, Sample};
pub use latency::{KernelFits, Latencies};
pub use tail::{COPY_BYTES_PER_US, TAIL_LAUNCH_US, tail_fused_us, tail_us};
pub use work::Work;
