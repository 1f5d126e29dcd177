//! What every policy's threshold buys: takes a snapshot, gives a curve a policy, from a threshold that lets
//! nothing into low precision to one that lets everything; and where the plan of now stands among them.
//!
//! A curve is of the policy itself. Overrides are not in it: they are decisions beside the policy.

use crate::{
    dispatch::{Curve, FrontierAxis, Policy, parallel, policies_beside, tail_us},
    model::{Estimate, Gemm, Metric, ResultRow, SiteMods},
    views::{PlanView, Snapshot},
};

use super::changed::Changed;

/// All curves of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrontierView {
    pub revision: u64,
    /// In the order of [`Policy::BUILTIN`], then the policy in force where it is of no built-in kind; none that
    /// has no point.
    pub curves: Vec<Curve>,
    /// The number of the curve of the policy in force.
    pub now_at: usize,
    /// What the curves were made of: the same again gives the same.
    made_of: Option<(u64, SiteMods, Metric)>,
}

impl FrontierView {
    /// `last`: what was derived before; a curve whose rows and policy stand as they were is taken from it.
    pub fn of(snapshot: &Snapshot, last: &Self) -> Self {
        let shown = snapshot.document.policy.metric;
        let made_of = Some((snapshot.rows_revision, snapshot.document.mods.clone(), shown));
        let kept: &[Curve] = if last.made_of == made_of { &last.curves } else { &[] };
        let candidates = snapshot.candidates();
        let curve = |policy: Policy| match kept.iter().find(|curve| curve.serves(&policy)) {
            Some(curve) => Curve { policy, points: curve.points.clone() },
            None => Curve::new(policy, &candidates, snapshot.loss(), shown),
        };
        let curves = policies_beside(&snapshot.document.policy).into_iter().map(curve);
        let curves: Vec<Curve> = curves.filter(|curve| !curve.points.is_empty()).collect();
        let now_at = curves.iter().position(|curve| curve.policy == snapshot.document.policy).unwrap_or(0);
        Self { revision: snapshot.revision, curves, now_at, made_of }
    }

    /// True where no threshold of any policy lets a GEMM into low precision: nothing is fast enough.
    pub fn buys_nothing(&self) -> bool {
        self.curves.iter().flat_map(|curve| &curve.points).all(|point| point.totals.num_low_precision == 0)
    }

    /// True where no point of any curve costs anything on that axis: then there is no curve to draw.
    pub fn is_free(&self, axis: FrontierAxis) -> bool {
        self.curves.iter().flat_map(|curve| &curve.points).all(|point| axis.cost(&point.totals).is_none())
    }
}

/// How much longer and shorter a chosen kernel may take than the totals count it, in the baseline's time.
fn spread_us(snapshot: &Snapshot, at: usize, row: &ResultRow) -> Option<(f64, f64)> {
    let reference_us = snapshot.row(at, row.gemm, &snapshot.document.policy.baseline)?.latency.latency_us?;
    let us = row.latency.latency_us?;
    let tail_us = tail_us(row)?;
    let scale = (reference_us + tail_us) / row.speedup()? / us;
    let slower = (row.latency.latency_hi_us.unwrap_or(us) - us).max(0.0);
    let faster = (us - row.latency.latency_lo_us.unwrap_or(us)).max(0.0);
    Some((scale * slower, scale * faster))
}

/// A kernel in low precision that the plan runs at a GEMM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChosenLow {
    /// In the policy's metric.
    error: Option<Estimate>,
    noise: Option<Estimate>,
    spread_us: (f64, f64),
}

impl ChosenLow {
    /// Three a site, `None` in high precision. `last`: of the same rows, and where something else was decided since.
    pub(super) fn of_all(
        snapshot: &Snapshot,
        plan: &PlanView,
        last: Option<(&[Option<Self>], &Changed)>,
    ) -> Vec<Option<Self>> {
        let of = |place: usize| Self::of(snapshot, plan, place);
        let num_gemms = 3 * snapshot.sites().len();
        match last.filter(|(last, _)| last.len() == num_gemms) {
            None => parallel::map(num_gemms, of),
            Some((last, changed)) => {
                let mut all = last.to_vec();
                changed.sites().flat_map(|at| 3 * at..3 * at + 3).for_each(|place| all[place] = of(place));
                all
            }
        }
    }

    fn of(snapshot: &Snapshot, plan: &PlanView, place: usize) -> Option<Self> {
        let (at, gemm) = (place / 3, Gemm::ALL[place % 3]);
        let choice = plan.pick_at(at, gemm).filter(|choice| choice.kernel.is_low_precision())?;
        let row = snapshot.row(at, gemm, &choice.kernel)?;
        let is_known = |estimate: &Estimate| estimate.value.is_finite();
        Some(Self {
            error: row.figure(snapshot.document.policy.metric, snapshot.loss()).filter(is_known),
            noise: row.metric(Metric::NoiseShare).filter(is_known),
            spread_us: spread_us(snapshot, at, row).unwrap_or_default(),
        })
    }
}

/// The plan of now as a point, overrides included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Its ends: every chosen kernel at the slow or the fast end of its latency.
    pub speedup: Estimate,
    /// `None` when no GEMM has a loss cost. The lower end is not known: it is the value.
    pub loss_cost: Option<Estimate>,
    /// Of the GEMMs in low precision, in the policy's metric.
    pub worst_error: Option<Estimate>,
    /// Of the GEMMs in low precision that have a noise share.
    pub worst_noise: Option<Estimate>,
    pub num_low_precision: usize,
}

impl Now {
    /// `None` before a plan, or while no latency is known. `low`: of each GEMM.
    pub(super) fn of(plan: &PlanView, metric: Metric, low: &[Option<ChosenLow>]) -> Option<Self> {
        let totals = &plan.decided.as_ref()?.totals;
        let speedup = totals.speedup?;
        let badness = |error: &Estimate| metric.badness(error.value);
        let (mut slower_us, mut faster_us) = (0.0, 0.0);
        let (mut worst_error, mut worst_noise, mut num_low_precision) = (None::<Estimate>, None::<Estimate>, 0);
        // Summed in forward order: the same on any number of cores.
        for chosen in low.iter().flatten() {
            num_low_precision += 1;
            if let Some(error) = chosen.error
                && worst_error.is_none_or(|worst| badness(&error) > badness(&worst))
            {
                worst_error = Some(error);
            }
            if let Some(share) = chosen.noise
                && worst_noise.is_none_or(|worst| share.value > worst.value)
            {
                worst_noise = Some(share);
            }
            slower_us += chosen.spread_us.0;
            faster_us += chosen.spread_us.1;
        }
        let at = |us: f64| if us > 0.0 { totals.baseline_us / us } else { speedup };
        let (lo, hi) = (at(totals.planned_us + slower_us), at(totals.planned_us - faster_us));
        let loss_cost = totals.loss_cost.zip(totals.loss_cost_hi);
        Some(Self {
            speedup: Estimate::new(speedup, lo, hi),
            loss_cost: loss_cost.map(|(value, hi)| Estimate::new(value, value, hi)),
            worst_error,
            worst_noise,
            num_low_precision,
        })
    }

    /// The cost on an axis: its value, and the end that counts.
    pub fn cost(&self, axis: FrontierAxis) -> Option<Estimate> {
        let cost = match axis {
            FrontierAxis::LossCost => self.loss_cost,
            FrontierAxis::WorstError => self.worst_error,
            FrontierAxis::WorstNoise => self.worst_noise,
        };
        cost.filter(|cost| cost.hi > 0.0)
    }
}
