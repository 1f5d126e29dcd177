//! The words: site, GEMM, recipe, kernel, mod, verdict, row. Plain data without behaviour of its own;
//! every later stage takes and gives these.

pub mod as_text;
mod bounded;
mod canonical;
mod file_magic;
mod flop_coverage;
mod gemm;
mod kernel;
mod manifest;
mod metric;
mod mod_set;
mod moment;
#[cfg(feature = "native")]
mod persist;
mod record;
mod results_by_site;
mod row;
mod runtime;
mod site;
mod site_index;
mod site_mods;
mod site_rows;
mod site_time;
mod verdict;
mod visible;

pub use loka_numerics::{Accumulation, Estimate, Format, GemmNumerics, Granularity, Matrix, OperandCast, StaticScale};

pub use bounded::bounded_list;
pub use canonical::{canonical_json, sha256, sha256_of};
pub use file_magic::{FileMagic, HEAD_BYTES};
pub use flop_coverage::{FlopCoverage, LITTLE_COVERED, Unseen};
pub use gemm::{Gemm, GemmShape};
pub use kernel::{Kernel, KernelId, NORM_BLOCK, baseline_kernel, catalogue, kernel, padded_in_bf16};
pub use manifest::{Loss, Manifest, Model, Run, StepPace};
pub use metric::Metric;
pub use mod_set::{ModKind, ModSet, UnknownMod};
pub use moment::Moment;
#[cfg(feature = "native")]
pub(crate) use persist::temporary_beside;
#[cfg(feature = "native")]
pub use persist::{persist, persist_new};
pub use record::{KernelRecord, LatencySource};
pub use results_by_site::{ResultsBySite, together};
#[cfg(feature = "web")]
pub(crate) use row::Bf16LossCosts;
pub use row::{
    ErrorSummary, Fidelity, LOSS_COST_RANGE, Latency, NoiseBasis, NoiseShare, ResultRow, Results, ResultsMeta,
    StepErrors, charge_excess,
};
pub use runtime::{APPLY_RUNS_BLOCKS, Runtime, catalogue_json};
pub use site::{Fixed, Forward, Grads, Site, SiteId, TailOp, op_name};
pub(crate) use site::{is_once, once};
pub use site_index::SiteIndex;
pub use site_mods::SiteMods;
pub use site_rows::SiteRows;
pub use site_time::{
    SITE_TIMES_FORMAT, SITE_TIMES_PART_FORMAT, SITE_TIMES_VERSION, SiteTime, SiteTimes, SiteTimesError, Spread,
};
pub use verdict::{Quadrant, Safety, Speed};
pub use visible::{is_hidden, visible, visible_json, visible_within};
