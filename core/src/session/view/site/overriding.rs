//! Takes a kernel that a person thinks of setting by hand, gives what that would break and what it would
//! move: before it is done.

use crate::{
    dispatch::{
        Bound, Candidates, Dispatch, Group, Override, Overrides, Policy,
        chain::{Links, produces, reads},
        decided_by, dispatch, judge,
    },
    model::{Estimate, Gemm, KernelId, Safety, Site, SiteId, Speed},
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
        let (_, speed, _) = judge(row, policy, loss);
        let (safety, bound) = decided_by(row, policy, loss);
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
        let chained = session.index().at(site).is_some_and(|at| plan.chain_at(at).is_some());
        let sites =
            if chained || reads(row) || produces(row) { tree(session, site) } else { vec![session.site(site)?] };
        let alone = |overrides| alone(session, &sites, policy, overrides, loss);
        let (before, after) = (alone(&now)?, alone(&then)?);
        effect.num_sites = sites.len();
        effect.site_us = (before.totals.num_without_latency == 0 && after.totals.num_without_latency == 0)
            .then_some((before.totals.planned_us, after.totals.planned_us));
        let places = sites.iter().flat_map(|site| Gemm::ALL.map(|gemm| (&site.id, gemm)));
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
    session: &Session,
    plan: &PlanView,
    (site, gemm): (&SiteId, Gemm),
    kernel: &KernelId,
    loss: f64,
) -> Option<Broken> {
    let budget = session.document.policy.loss_budget? * loss;
    let cost_of =
        |kernel: &KernelId| session.row(site, gemm, kernel)?.charged_loss_cost(loss).map(|cost| cost.hi.max(0.0));
    let all = plan.decided.as_ref()?.totals.loss_cost_hi.unwrap_or(0.0);
    let now = plan.choice(site, gemm).and_then(|choice| cost_of(&choice.kernel)).unwrap_or(0.0);
    let cost = all - now + cost_of(kernel).filter(|_| gemm == Gemm::Fprop)?;
    (cost > budget).then_some(Broken::Budget { cost, budget })
}

/// The site, and those that codes may be handed between there.
fn tree<'a>(session: &'a Session, id: &SiteId) -> Vec<&'a Site> {
    let Some(at) = session.index().at(id) else { return Vec::new() };
    let groups: Vec<[Group; 3]> = session.sites().iter().map(|site| groups(session, site)).collect();
    let links = Links::of(&groups, session.document.runtime);
    links.tree(links.root_of(at)).into_iter().filter_map(|at| session.sites().get(at)).collect()
}

fn groups<'a>(session: &'a Session, site: &'a Site) -> [Group<'a>; 3] {
    let rows = session.site_rows(&site.id);
    let of = |gemm| rows.map_or_else(Vec::new, |rows| rows.of(gemm).iter().collect());
    Gemm::ALL.map(|gemm| Group::new(site, gemm, of(gemm), None))
}

/// The sites as if they were the model: without a budget no other depends on them.
fn alone(session: &Session, sites: &[&Site], policy: &Policy, overrides: &Overrides, loss: f64) -> Option<Dispatch> {
    let has_row = |id: &SiteId, gemm: Gemm, kernel: &KernelId| session.row(id, gemm, kernel).is_some();
    let here = overrides
        .iter()
        .filter(|((of, gemm), wanted)| sites.iter().any(|site| site.id == *of) && has_row(of, *gemm, &wanted.kernel));
    let here: Overrides = here.map(|(key, wanted)| (key.clone(), wanted.clone())).collect();
    let groups = sites.iter().flat_map(|site| groups(session, site)).collect();
    dispatch(&Candidates { groups, target: session.target() }, policy, &here, loss).ok()
}
