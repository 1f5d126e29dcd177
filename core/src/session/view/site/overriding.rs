//! Takes a kernel that a person thinks of setting by hand, gives what that would break and what it would
//! move: before it is done.

use crate::{
    dispatch::{Bound, Candidates, Dispatch, Group, Override, Overrides, Policy, bound_of, dispatch, judge},
    model::{Estimate, Gemm, KernelId, Metric, Safety, SiteId, Speed},
    session::{PlanView, Session},
};

/// A rule of the policy that does not hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Broken {
    /// `certain`: the whole interval is beyond the bound.
    Error { bound: Bound, estimate: Option<Estimate>, certain: bool },
    /// The policy would not have it for its speed.
    Slow { speedup: f64, min_speedup: f64 },
    /// The plan's summed loss cost, at most, against the budget.
    Budget { cost: f64, budget: f64 },
}

/// What an override does besides setting its kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverrideEffect {
    pub breaks: Vec<Broken>,
    /// The site's three GEMMs before and after, casts shared, in the time of the baseline. `None` where no
    /// time is known, and under a loss budget, where all sites are chosen together.
    pub site_us: Option<(f64, f64)>,
    /// Other GEMMs of the site that get another kernel with it: a cast was shared, or can be now.
    pub moves: Vec<(Gemm, KernelId, KernelId)>,
}

/// `None`: the kernel was not probed there, or cannot run.
pub fn override_effect(
    session: &Session,
    plan: &PlanView,
    (site, gemm): (&SiteId, Gemm),
    kernel: &KernelId,
) -> Option<OverrideEffect> {
    let row = session.row(site, gemm, kernel).filter(|row| row.supported)?;
    let policy = &session.document.policy;
    let loss = session.trace.as_ref()?.manifest().loss.value;
    let mut breaks = Vec::new();
    if *kernel != policy.baseline {
        let (safety, speed, _) = judge(row, policy, loss);
        let bound = bound_of(policy, gemm, loss);
        if safety != Safety::Safe {
            let certain = safety == Safety::Unsafe;
            breaks.push(Broken::Error { bound, estimate: row.metric(bound.metric), certain });
        }
        if let (Speed::Slow, Some(speedup)) = (speed, row.speedup()) {
            breaks.push(Broken::Slow { speedup, min_speedup: policy.min_speedup });
        }
    }
    breaks.extend(over_budget(session, plan, (site, gemm), kernel, loss));
    let mut effect = OverrideEffect { breaks, ..OverrideEffect::default() };
    if policy.loss_budget.is_none() {
        let now = session.document.overrides.clone();
        let mut then = now.clone();
        then.insert((site.clone(), gemm), Override { kernel: kernel.clone(), reason: String::new() });
        let (before, after) = (alone(session, site, policy, &now, loss)?, alone(session, site, policy, &then, loss)?);
        effect.site_us = (before.totals.num_without_latency == 0 && after.totals.num_without_latency == 0)
            .then_some((before.totals.planned_us, after.totals.planned_us));
        for (of, (was, is)) in Gemm::ALL.into_iter().zip(before.choices.iter().zip(&after.choices)) {
            if of != gemm && was.kernel != is.kernel {
                effect.moves.push((of, was.kernel.clone(), is.kernel.clone()));
            }
        }
    }
    Some(effect)
}

/// The budget is paid by the plan as a whole: the others stay as they are.
fn over_budget(
    session: &Session,
    plan: &PlanView,
    (site, gemm): (&SiteId, Gemm),
    kernel: &KernelId,
    loss: f64,
) -> Option<Broken> {
    let budget = session.document.policy.loss_budget? * loss;
    let cost_of = |kernel: &KernelId| {
        let cost = session.row(site, gemm, kernel)?.metric(Metric::LossCost)?;
        Some(cost.hi.max(0.0)).filter(|hi| hi.is_finite())
    };
    let all = plan.decided.as_ref()?.totals.loss_cost_hi.unwrap_or(0.0);
    let now = plan.choice(site, gemm).and_then(|choice| cost_of(&choice.kernel)).unwrap_or(0.0);
    let cost = all - now + cost_of(kernel).filter(|_| gemm == Gemm::Fprop)?;
    (cost > budget).then_some(Broken::Budget { cost, budget })
}

/// The site as if it were the model: without a budget no site depends on another.
fn alone(session: &Session, id: &SiteId, policy: &Policy, overrides: &Overrides, loss: f64) -> Option<Dispatch> {
    let (site, rows) = (session.site(id)?, session.site_rows(id)?);
    let groups = Gemm::ALL.map(|gemm| Group { site, gemm, rows: rows.of(gemm).iter().collect(), problem: None });
    let here = overrides.iter().filter(|((of, gemm), wanted)| of == id && rows.get(*gemm, &wanted.kernel).is_some());
    let here: Overrides = here.map(|(key, wanted)| (key.clone(), wanted.clone())).collect();
    dispatch(&Candidates { groups: groups.to_vec() }, policy, &here, loss).ok()
}
