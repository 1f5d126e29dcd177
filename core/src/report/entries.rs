//! Takes a plan and, where they are given, the results that it was made from; gives one entry for every kernel at every
//! GEMM: its error, its speed-up and its verdict. Without results only what was chosen has one, with no interval.

use std::collections::HashMap;

use crate::{
    dispatch::{Candidates, Choice, ChoiceSource, Group, bound_of, judge, quadrant_of},
    model::{Estimate, Gemm, KernelId, LatencySource, Quadrant, ResultRow, Safety, SiteId, catalogue},
    plan::Plan,
    views::value,
};

use super::Source;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The site's place in the plan.
    pub site: u32,
    pub gemm: Gemm,
    /// The kernel's place in the catalogue.
    pub kernel: u16,
    pub supported: bool,
    pub low: bool,
    /// In the policy's metric.
    pub error: Option<Estimate>,
    /// In the metric that a heatmap shows where that bounds ([`Metric::shown`]).
    pub shown: Option<Estimate>,
    pub speedup: Option<f64>,
    /// The speed-up's ends, as far as they are known.
    pub slowest: Option<f64>,
    pub fastest: Option<f64>,
    pub quadrant: Quadrant,
    pub source: LatencySource,
    /// The plan runs it, and who said so.
    pub chosen: Option<ChoiceSource>,
    /// Of the policy's baseline at this GEMM.
    pub reference_us: Option<f64>,
}

impl Entry {
    pub fn kernel(&self) -> &'static str {
        catalogue().get(usize::from(self.kernel)).map_or("", |kernel| kernel.name)
    }
}

/// Where a GEMM's kernel is among the entries.
pub fn find<'a>(entries: &'a [Entry], site: u32, gemm: Gemm, kernel: &KernelId) -> Option<&'a Entry> {
    let from = entries.partition_point(|entry| (entry.site, entry.gemm) < (site, gemm));
    let mut of_gemm = entries[from..].iter().take_while(|entry| (entry.site, entry.gemm) == (site, gemm));
    of_gemm.find(|entry| entry.kernel() == kernel.as_str())
}

/// By site in the plan's order, then GEMM; the kernels of one GEMM are beside one another.
pub fn entries(source: &Source<'_>) -> Vec<Entry> {
    let numbers: HashMap<&str, u16> = (0..).zip(catalogue()).map(|(at, kernel)| (kernel.name, at)).collect();
    match source.results {
        Some(results) => {
            let mods = source.plan.site_mods();
            let candidates = Candidates::at(results, &mods, source.plan.runtime);
            let sites: HashMap<&SiteId, u32> =
                (0..).zip(&source.plan.sites).map(|(at, site)| (&site.site, at)).collect();
            let loss = results.meta.manifest.loss.value;
            let mut groups: Vec<(u32, &Group<'_>)> =
                candidates.groups.iter().filter_map(|group| Some((*sites.get(&group.site.id)?, group))).collect();
            groups.sort_by_key(|(site, group)| (*site, group.gemm));
            let of = |(site, group): (u32, &Group<'_>)| of_group(source.plan, site, group, loss, &numbers);
            groups.into_iter().flat_map(of).collect()
        }
        None => of_plan(source.plan, &numbers),
    }
}

fn of_group(plan: &Plan, site: u32, group: &Group<'_>, loss: f64, numbers: &HashMap<&str, u16>) -> Vec<Entry> {
    let choice = plan.sites[site as usize].choice(group.gemm);
    let reference_us = group.reference_us(&plan.policy.baseline).map(|us| us * group.site.calls as f64);
    let of = |row: &ResultRow| {
        let ratio = |us: Option<f64>| Some(row.latency.baseline_us? / us.filter(|us| *us > 0.0)?);
        Some(Entry {
            site,
            gemm: group.gemm,
            kernel: *numbers.get(row.kernel.as_str())?,
            supported: row.supported,
            low: row.kernel.is_low_precision(),
            error: value(row, None, plan.policy.metric, loss),
            shown: value(row, None, plan.policy.metric.shown(), loss),
            speedup: row.speedup(),
            slowest: ratio(row.latency.latency_hi_us),
            fastest: ratio(row.latency.latency_lo_us),
            quadrant: judge(row, &plan.policy, loss).2,
            source: row.latency.source,
            chosen: (row.kernel == choice.kernel).then_some(choice.source),
            reference_us,
        })
    };
    group.rows.iter().filter_map(of).collect()
}

fn of_plan(plan: &Plan, numbers: &HashMap<&str, u16>) -> Vec<Entry> {
    let mut all = Vec::with_capacity(3 * plan.sites.len());
    for (at, site) in plan.sites.iter().enumerate() {
        for gemm in Gemm::ALL {
            let choice = site.choice(gemm);
            let Some(number) = numbers.get(choice.kernel.as_str()) else { continue };
            all.push(Entry {
                site: at as u32,
                gemm,
                kernel: *number,
                supported: true,
                low: choice.kernel.is_low_precision(),
                error: choice.error.get(&plan.policy.metric).copied().map(Estimate::exact),
                shown: choice.error.get(&plan.policy.metric.shown()).copied().map(Estimate::exact),
                speedup: choice.speedup,
                slowest: None,
                fastest: None,
                quadrant: verdict_of(plan, &site.site, gemm, choice),
                source: LatencySource::None,
                chosen: Some(choice.source),
                reference_us: None,
            });
        }
    }
    all
}

/// A plan has no intervals: what Dispatch chose in low precision was safe, or it would not have been chosen; a person's
/// choice is judged by its value alone.
fn verdict_of(plan: &Plan, site: &SiteId, gemm: Gemm, choice: &Choice) -> Quadrant {
    let safety = if choice.source == ChoiceSource::Dispatch && choice.kernel.is_low_precision() {
        Safety::Safe
    } else if plan.policy.loss_budget.is_some() && gemm == Gemm::Fprop {
        // The budget is a share of a loss that the plan does not hold.
        Safety::Uncertain
    } else {
        let bound = bound_of(&plan.policy, site, gemm, 0.0);
        bound.safety(choice.error.get(&bound.metric).copied().map(Estimate::exact))
    };
    quadrant_of(safety, choice.speedup, &plan.policy).1
}

/// The entries of one GEMM at a time.
pub fn by_gemm(entries: &[Entry]) -> impl Iterator<Item = &[Entry]> {
    entries.chunk_by(|a, b| (a.site, a.gemm) == (b.site, b.gemm))
}
