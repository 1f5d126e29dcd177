//! Takes a plan and who reads what; gives how much its FP8 adds to the noise of each weight's gradient: the share of its own wgrad, and
//! of every dgrad that its dy came through (docs/concepts/method.md, "Noise share and bias").

use std::collections::HashMap;

use serde::Serialize;

use crate::{
    model::{Gemm, Metric, Site, SiteId},
    plan::Plan,
};

/// Of one weight. An upper end: of several readers of an output the one that adds most counts as all of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CarriedNoise {
    pub site: SiteId,
    /// Of the noise that the batch's gradient has anyway.
    pub share: f64,
    /// Its own wgrad's part of it.
    pub wgrad: f64,
    /// How many dgrads in FP8 make the rest.
    pub dgrads: usize,
}

/// What reaches a site's dy.
#[derive(Clone, Copy, Default)]
struct Reached {
    share: f64,
    dgrads: usize,
}

/// The weight whose gradient gets most of it, as far as `feeds` of these sites, in forward order, tell; `None`: nothing in FP8 has a share.
pub fn most_noise(plan: &Plan, sites: &[Site]) -> Option<CarriedNoise> {
    let at: HashMap<&SiteId, usize> = plan.sites.iter().enumerate().map(|(at, site)| (&site.site, at)).collect();
    let of = |site: &SiteId, gemm: Gemm| -> Option<f64> {
        let choice = plan.sites[*at.get(site)?].choice(gemm);
        choice.error.get(&Metric::NoiseShare).copied().filter(|_| choice.kernel.is_low_precision())
    };
    let mut reached: HashMap<&SiteId, Reached> = HashMap::new();
    // The last first: whoever reads an output comes behind it.
    for site in sites.iter().rev() {
        let through = |reader: &SiteId| {
            let behind = reached.get(reader).copied().unwrap_or_default();
            let share = of(reader, Gemm::Dgrad);
            Reached { share: behind.share + share.unwrap_or(0.0), dgrads: behind.dgrads + usize::from(share.is_some()) }
        };
        let most = site.feeds.iter().map(through).max_by(|one, other| one.share.total_cmp(&other.share));
        reached.insert(&site.id, most.unwrap_or_default());
    }
    let carried = |site: &Site| {
        let (Reached { share, dgrads }, wgrad) = (reached[&site.id], of(&site.id, Gemm::Wgrad).unwrap_or(0.0));
        CarriedNoise { site: site.id.clone(), share: share + wgrad, wgrad, dgrads }
    };
    let most = sites.iter().map(carried).max_by(|one, other| one.share.total_cmp(&other.share))?;
    (most.share > 0.0).then_some(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{
            Policy, overrides_of,
            testing::{results, row},
        },
        model::{Estimate, KernelId, NoiseBasis, NoiseShare, ResultRow, SiteMods, baseline_kernel},
        plan::build,
    };

    const FAST: &str = "cublaslt/fp8-rowwise+fast";

    #[test]
    fn shares_add_up_along_what_reads_what() {
        let share = |site: &str, gemm: Gemm, value: f64| -> ResultRow {
            let mut row = row(site, gemm, FAST, 0.1, Some(2.0), 0.0);
            let error = row.error.as_mut().unwrap();
            error.noise = Some(NoiseShare { share: Estimate::exact(value), basis: NoiseBasis::Recorded, steps: None });
            row
        };
        let rows = vec![
            share("first", Gemm::Wgrad, 0.001),
            share("one", Gemm::Dgrad, 0.002),
            share("other", Gemm::Dgrad, 0.004),
            share("last", Gemm::Dgrad, 0.008),
            share("last", Gemm::Wgrad, 0.003),
        ];
        let probed = rows.clone();
        let mut results = results(&["first", "one", "other", "last"], rows);
        let sites = &mut results.meta.manifest.sites;
        let to = |names: &[&str]| names.iter().map(|name| SiteId::new(name)).collect::<Vec<_>>();
        sites[0].feeds = to(&["one", "other"]);
        sites[1].feeds = to(&["last"]);
        let sites = sites.clone();
        let plan_of = |in_fp8: &dyn Fn(&str) -> bool| {
            let taken = probed.iter().map(|row| format!("{}:{}", row.site, row.gemm));
            let (fast, bf16) = (KernelId::new(FAST), baseline_kernel());
            let kernel = |at: &str| if in_fp8(at) { fast.as_str() } else { bf16.as_str() };
            let wanted: Vec<_> = taken.map(|at| format!("{at}={}", kernel(&at)).parse().unwrap()).collect();
            let overrides = overrides_of(&wanted, &sites, "tried").unwrap();
            let built =
                build(&results, &Policy::paper(), &SiteMods::default(), &overrides, "p", "2026-11-20T00:00:00Z");
            built.unwrap().plan
        };
        let most = most_noise(&plan_of(&|_| true), &sites).unwrap();
        // first: .001, and the larger of one's .002 with last's .008 and other's .004.
        assert_eq!((most.site.as_str(), most.wgrad, most.dgrads), ("first", 0.001, 2));
        assert!((most.share - 0.011).abs() < 1e-12);
        let most = most_noise(&plan_of(&|at| at != "last:dgrad"), &sites).unwrap();
        assert_eq!((most.site.as_str(), most.dgrads), ("first", 1));
        assert!((most.share - 0.005).abs() < 1e-12);
        assert_eq!(most_noise(&plan_of(&|_| false), &sites), None);
    }
}
