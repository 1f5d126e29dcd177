//! Takes a kernel that a person thinks of setting by hand, gives what that would break and what it would
//! move: before it is done.

use crate::{
    dispatch::{
        Bound, Candidates, Dispatch, Override, Overrides,
        chain::{Links, produces, reads},
        decided_by, dispatch, judge, out_of_range,
    },
    model::{Estimate, Gemm, KernelId, Metric, Safety, SiteId, Speed},
    views::{PlanView, Snapshot},
};

/// A rule of the policy that does not hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Broken {
    /// `certain`: the whole interval is beyond the bound.
    Error { bound: Bound, estimate: Option<Estimate>, certain: bool },
    /// Its loss cost means nothing, and so it is not certainly safe. `why`: in words.
    OutOfRange { why: String },
    /// The policy would not have it for its speed.
    Slow { speedup: f64, min_speedup: f64 },
    /// The plan's summed loss cost, at most, against the budget.
    Budget { cost: f64, budget: f64 },
}

/// What an override does besides setting its kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverrideEffect {
    pub breaks: Vec<Broken>,
    /// The site's three GEMMs before and after, casts shared, in the time of the baseline; with those of the sites
    /// that codes may be handed between there. `None` where no time is known, and under a loss budget, where all
    /// sites are chosen together.
    pub site_us: Option<(f64, f64)>,
    /// Sites in `site_us`.
    pub num_sites: usize,
    /// Other GEMMs that get another kernel with it: a cast was shared, or codes handed on, or can be now.
    pub moves: Vec<(SiteId, Gemm, KernelId, KernelId)>,
}

/// `None`: the kernel was not probed there, or cannot run.
pub fn override_effect(
    snapshot: &Snapshot,
    plan: &PlanView,
    (site, gemm): (&SiteId, Gemm),
    kernel: &KernelId,
) -> Option<OverrideEffect> {
    let at = snapshot.index.at(site)?;
    let row = snapshot.row(at, gemm, kernel).filter(|row| row.supported)?;
    let (policy, loss) = (&snapshot.document.policy, snapshot.loss());
    let mut breaks = Vec::new();
    if *kernel != policy.baseline {
        let (_, speed, _) = judge(row, policy, loss);
        let (safety, bound) = decided_by(row, policy, loss);
        if bound.metric == Metric::LossCost && row.loss_cost_means_nothing(loss) {
            breaks.push(Broken::OutOfRange { why: out_of_range(row) });
        } else if safety != Safety::Safe {
            let certain = safety == Safety::Unsafe;
            breaks.push(Broken::Error { bound, estimate: row.metric(bound.metric), certain });
        }
        if let (Speed::Slow, Some(speedup)) = (speed, row.speedup()) {
            breaks.push(Broken::Slow { speedup, min_speedup: policy.min_speedup });
        }
    }
    breaks.extend(over_budget(snapshot, plan, (site, gemm), kernel, loss));
    let mut effect = OverrideEffect { breaks, ..OverrideEffect::default() };
    if policy.loss_budget.is_none() {
        let now = snapshot.document.overrides.clone();
        let mut then = now.clone();
        then.insert((site.clone(), gemm), Override { kernel: kernel.clone(), reason: String::new() });
        let chained = plan.chain_at(at).is_some();
        let sites = if chained || reads(row, snapshot.document.runtime) || produces(row) {
            tree(snapshot, at)
        } else {
            vec![at]
        };
        let alone = |overrides| alone(snapshot, &sites, overrides);
        let (before, after) = (alone(&now)?, alone(&then)?);
        effect.num_sites = sites.len();
        effect.site_us = (before.totals.num_without_latency == 0 && after.totals.num_without_latency == 0)
            .then_some((before.totals.planned_us, after.totals.planned_us));
        let ids = snapshot.index.ids();
        let places = sites.iter().flat_map(|at| Gemm::ALL.map(|gemm| (&ids[*at], gemm)));
        for ((id, of), (was, is)) in places.zip(before.choices.iter().zip(&after.choices)) {
            if (id, of) != (site, gemm) && was.kernel != is.kernel {
                effect.moves.push((id.clone(), of, was.kernel.clone(), is.kernel.clone()));
            }
        }
    }
    Some(effect)
}

/// The budget is paid by the plan as a whole: the others stay as they are.
fn over_budget(
    snapshot: &Snapshot,
    plan: &PlanView,
    (site, gemm): (&SiteId, Gemm),
    kernel: &KernelId,
    loss: f64,
) -> Option<Broken> {
    let budget = snapshot.document.policy.loss_budget? * loss;
    let cost_of = |kernel: &KernelId| {
        snapshot.row(snapshot.index.at(site)?, gemm, kernel)?.charged_loss_cost(loss).map(|cost| cost.hi.max(0.0))
    };
    let all = plan.decided.as_ref()?.totals.loss_cost_hi.unwrap_or(0.0);
    let now = plan.pick(site, gemm).and_then(|choice| cost_of(&choice.kernel)).unwrap_or(0.0);
    let cost = all - now + cost_of(kernel).filter(|_| gemm == Gemm::Fprop)?;
    (cost > budget).then_some(Broken::Budget { cost, budget })
}

/// The numbers of the site and of those that codes may be handed between there.
fn tree(snapshot: &Snapshot, at: usize) -> Vec<usize> {
    let candidates = snapshot.candidates();
    let links = Links::of(candidates.groups.as_chunks::<3>().0, snapshot.document.runtime, None);
    links.tree(links.root_of(at))
}

/// The sites as if they were the model: without a budget no other depends on them.
fn alone(snapshot: &Snapshot, sites: &[usize], overrides: &Overrides) -> Option<Dispatch> {
    let groups = sites.iter().flat_map(|at| snapshot.groups_at(*at)).collect();
    let candidates = Candidates { groups, target: snapshot.target() };
    let policy = &snapshot.document.policy;
    let here = candidates.ready(overrides, &policy.baseline);
    dispatch(&candidates, policy, &here, snapshot.loss()).ok()
}
