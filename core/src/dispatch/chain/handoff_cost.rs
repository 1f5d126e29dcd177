//! Takes a row of the results, gives what its kernel can do with codes: store them, read them, and what that
//! saves.

use crate::{
    bench::COPY_BYTES_PER_US,
    model::{Gemm, Kernel, ResultRow, Runtime, Site},
};

use crate::dispatch::sharing::{own_us, tail_us};

/// What a GEMM gains when its x arrives as codes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Codes {
    /// That they must have been made with: a power of two.
    pub scale: f64,
    /// In the time of the policy's baseline.
    pub saved_us: f64,
}

/// Where what codes save is known from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SavedByCodes {
    /// By the reader's own row, as if nothing but its kernel could cast.
    Modelled,
    /// Where sites are timed whole, a cast may be free beside whatever makes x. Behind a kernel that nothing fuses with it
    /// is not: so this was timed at the site that stores the codes. `None`: it was not.
    Timed(Option<f64>),
}

fn forward_static(row: &ResultRow) -> Option<&'static Kernel> {
    // Asked for every row of a large trace: the catalogue only where there is a scale.
    let able = row.gemm == Gemm::Fprop && row.supported && row.static_scale.is_some();
    able.then(|| row.kernel.known())?
}

/// Scales that follow do not stand still in training: codes of one are no codes of the next step's.
fn takes_codes(row: &ResultRow, runtime: Runtime) -> bool {
    let takes = |kernel: &Kernel| kernel.casts_on_the_way() || (kernel.is_static() && runtime == Runtime::Inference);
    forward_static(row).is_some_and(takes)
}

/// True of kernels whose epilogue can store codes: those with a tail that bounds what it gives.
pub(crate) fn produces(row: &ResultRow) -> bool {
    forward_static(row).is_some_and(Kernel::has_tail)
}

/// True of kernels that may read x as codes and gain by it.
pub(crate) fn reads(row: &ResultRow, runtime: Runtime) -> bool {
    takes_codes(row, runtime) && cast_us(row) > 0.0
}

/// What casting x takes, in the row's own time: with the weight already cast, less the bare product.
fn cast_us(row: &ResultRow) -> f64 {
    match (row.latency.cached_us, row.latency.gemm_us) {
        (Some(cached_us), Some(gemm_us)) if (cached_us - gemm_us).is_finite() => cached_us - gemm_us,
        _ => 0.0,
    }
}

/// `None`: the kernel reads BF16, or gains nothing. `reference_us`: the baseline's time.
pub(crate) fn codes(row: &ResultRow, reference_us: f64, (saved, runtime): (SavedByCodes, Runtime)) -> Option<Codes> {
    if !takes_codes(row, runtime) {
        return None;
    }
    let saved_us = match saved {
        SavedByCodes::Modelled => modelled_us(row, reference_us)?,
        SavedByCodes::Timed(us) => us?,
    };
    let scale = f64::from(row.static_scale?.scale);
    (saved_us > 0.0 && scale > 0.0 && scale.is_finite()).then_some(Codes { scale, saved_us })
}

fn modelled_us(row: &ResultRow, reference_us: f64) -> Option<f64> {
    let (own_us, tail_us) = (own_us(row, reference_us)?, tail_us(row)?);
    let baseline_us = row.latency.baseline_us.filter(|us| *us > 0.0)?;
    // Never more than all of it: parts were timed by themselves.
    Some((cast_us(row) * (reference_us + tail_us) / baseline_us).min(0.99 * own_us))
}

/// What storing a site's output as codes beside BF16 takes: a byte an element at the bandwidth of a copy.
/// Always modelled.
pub(crate) fn extra_us(site: &Site) -> f64 {
    site.m as f64 * site.n as f64 / COPY_BYTES_PER_US
}

/// How x reaches a forward GEMM: what its kernel need not do, and what the site before it does instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arriving {
    pub saved_us: f64,
    pub extra_us: f64,
}

impl Arriving {
    pub(crate) const BF16: Self = Self { saved_us: 0.0, extra_us: 0.0 };
}
