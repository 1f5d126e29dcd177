//! Stage 4b. Takes kernels and shapes, gives latencies: measured on this machine's GPU ([`measure`]), looked
//! up where they were recorded, or modelled; and where each came from.
//!
//! A shape that was recorded is looked up; another is modelled from that kernel's records in that direction
//! ([`Fit`]: launch + compute + waves + bytes, never below the host's launch time, corrected by what its
//! neighbours are off by), with the error on held-out shapes beside it; a kernel that nobody timed has none,
//! and the note says so. Speed-ups compare with BF16 *of the same run or database*: eager launches, CUDA
//! graphs and this machine are never mixed.

mod compact;
mod condition;
mod database;
mod fit;
mod fleet;
mod latency;
mod measure;
mod measured;
mod quantile;
mod shapes;
#[cfg(feature = "native")]
mod sites;
mod source;
mod summary;
mod tail;
mod work;

pub use compact::{from_csv, to_csv};
pub use condition::{Clock, Condition, DeviceState, Watch};
pub use database::KernelDb;
pub use fit::{Fit, FitError, Sample};
pub use fleet::{DeviceError, FleetError, devices, fleet, is_device, of_device};
pub use latency::{KernelFits, Latencies};
pub use measure::{BenchEvent, Measurement, measure, with_baseline};
pub use shapes::{ShapesError, parse_shapes, shapes_of};
#[cfg(feature = "native")]
pub use sites::{
    MIN_SITE_SAMPLES, MeasuredSites, SiteMeasurement, measure_sites, num_site_workers, site_families, site_triples,
};
pub use summary::{GemmSummary, Means, Moved, REPEATS_WITHIN, Speedups, Summary, Winner, moved, summarise};
pub use tail::{COPY_BYTES_PER_US, TAIL_LAUNCH_US, tail_fused_us, tail_us};
pub use work::Work;
