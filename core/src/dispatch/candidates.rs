//! Takes results and the mods in force, gives the kernels to choose from at every GEMM of every site.

use std::collections::HashMap;

use crate::model::{Gemm, KernelId, ResultRow, Results, Runtime, Site, SiteId, SiteMods};

use super::Target;

/// One GEMM of one site with the rows of every kernel, sorted by kernel.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    pub site: &'a Site,
    pub gemm: Gemm,
    pub rows: Vec<&'a ResultRow>,
    /// Why there are no rows, where that is known.
    pub problem: Option<&'a str>,
}

impl<'a> Group<'a> {
    /// `rows`: sorted by kernel. Those of a GEMM that training does not need are left out: nobody runs it.
    pub fn new(site: &'a Site, gemm: Gemm, rows: Vec<&'a ResultRow>, problem: Option<&'a str>) -> Self {
        let rows = if site.runs(gemm) { rows } else { Vec::new() };
        Self { site, gemm, rows, problem }
    }

    pub fn row(&self, kernel: &KernelId) -> Option<&'a ResultRow> {
        self.rows.iter().find(|row| row.kernel == *kernel).copied()
    }

    /// The one time that this GEMM's speed-ups are applied to.
    pub fn reference_us(&self, baseline: &KernelId) -> Option<f64> {
        self.row(baseline).and_then(|row| row.latency.latency_us).filter(|us| *us > 0.0 && us.is_finite())
    }
}

/// Every GEMM of every site of the trace, in forward order, the three of a site in the order of
/// [`Gemm::ALL`]: also those without a row.
#[derive(Clone, Debug)]
pub struct Candidates<'a> {
    pub groups: Vec<Group<'a>>,
    /// Where the choices will run.
    pub target: Target,
}

impl<'a> Candidates<'a> {
    /// For a launched step; another runtime: [`Self::at`].
    pub fn new(results: &'a Results, mods: &SiteMods) -> Self {
        Self::at(results, mods, Runtime::default())
    }

    pub fn at(results: &'a Results, mods: &SiteMods, runtime: Runtime) -> Self {
        let mut rows: HashMap<(&SiteId, Gemm), Vec<&ResultRow>> = HashMap::new();
        for row in results.rows.iter().filter(|row| row.mods == *mods.of(&row.site)) {
            rows.entry((&row.site, row.gemm)).or_default().push(row);
        }
        let problems: HashMap<&SiteId, &str> =
            results.meta.problems.iter().map(|(site, problem)| (site, problem.as_str())).collect();
        let mut groups = Vec::with_capacity(3 * results.meta.manifest.sites.len());
        for site in &results.meta.manifest.sites {
            for gemm in Gemm::ALL {
                let mut rows = rows.remove(&(&site.id, gemm)).unwrap_or_default();
                rows.sort_by(|a, b| a.kernel.cmp(&b.kernel));
                groups.push(Group::new(site, gemm, rows, problems.get(&site.id).copied()));
            }
        }
        Self { groups, target: Target::new(runtime, results.meta.site_times.as_ref()) }
    }
}
