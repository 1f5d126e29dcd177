//! Takes one site's recorded series and its inspection; gives curves of at most 512 points, what a change of
//! amax does to a cast with one scale for the whole tensor, and where a verdict would flip.
//!
//! # The model
//! A tensorwise scale is `amax / largest`, anew for each batch. So the amax of step t gives that step's scale
//! exactly. What the scale then does to the other values depends on them, and a series has the amax alone.
//! Two readings bound it:
//!
//! - *Everything moves together*: all values grow with the amax. Then the cast loses what it lost, and no
//!   verdict flips.
//! - *Only the extremes move*: the body of the distribution stays as it was recorded. Then small values sink
//!   towards zero as the amax grows; [`model`] integrates over the recorded histogram how many become zero or
//!   subnormal, and how much noise the cast makes.
//!
//! Curves and marks are of the second reading, the one in which FP8 breaks; the views say so. The truth of a
//! real step lies between.
//!
//! A kernel's error follows the noise of its two operands: both pass through the same GEMM, uncorrelated, so the
//! output's noise power is a gain times the sum of theirs, and
//! `error(t) = error * sqrt((noise_a(t) + noise_b(t)) / (noise_a + noise_b))`. The noises without t are at the
//! amax of the batches that the probe draws. Relative L2 grows with that factor, loss cost with its square.
//! MERE and the median do, too, unless a hundredth of the values holds the energy and the others' noise changes
//! otherwise: then they are not derived. The largest error and the error after the tail never are. Accumulation
//! and the output's rounding are in the measured error and are scaled along with it: an overestimate of the change
//! where they dominate, which with FP8 operands they do not.
//!
//! Held against real casts of heavy-tailed samples the noise is within 17 %, the error of a real GEMM within 12 %:
//! a verdict flips only where it would even if the error were that much nearer to the measured one.
//!
//! # What cannot be known
//! Rowwise and blockwise scales follow rows and blocks; a series has the tensor's amax only. Those kernels have
//! no marks, and say why. The same holds for a kernel with such a cast on one side. A series in another unit
//! than the statistics (gradients divided by the batch in one and not in the other) is shown and not used.

mod checkpoints;
mod flips;
mod model;
mod series;
mod snapshots;

pub use checkpoints::{
    Checkpoint, Followed, FollowedGemm, SafetyFlip, TimelinePoint, VerdictCounts, Verdicts, timeline,
};
pub use flips::{FlipSpan, KernelDrift, MODEL_ERROR, Predicted, kernel_drifts};
pub use model::{CastLoss, DriftMark, DriftPoint, MarkKind, OperandDrift, SHARE_BOUND};
pub use series::{Bucket, MAX_POINTS, SeriesView};
pub use snapshots::{OperandChange, VerdictFlip, snapshots, verdict_flips};

pub(super) use model::operand_drifts;
pub(super) use series::series_views;
