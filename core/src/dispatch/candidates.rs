//! Takes results and the mods in force, gives the kernels to choose from at every GEMM of every site.

use std::collections::HashMap;

use crate::model::{Gemm, KernelId, ResultRow, Results, ResultsMeta, Runtime, Site, SiteId, SiteMods};

use super::{Override, OverrideError, Overrides, Target, overrides::by_group};

/// Rows of one GEMM, sorted by kernel: as they lie, or picked out of others.
#[derive(Clone, Debug)]
pub enum GroupRows<'a> {
    Lying(&'a [ResultRow]),
    Picked(Vec<&'a ResultRow>),
}

impl<'a> GroupRows<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Lying(rows) => rows.len(),
            Self::Picked(rows) => rows.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a ResultRow> + Clone {
        (0..self.len()).map(|at| match self {
            Self::Lying(rows) => &rows[at],
            Self::Picked(rows) => rows[at],
        })
    }
}

/// One GEMM of one site with the rows of every kernel.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    pub site: &'a Site,
    pub gemm: Gemm,
    pub rows: GroupRows<'a>,
    /// Why there are no rows, where that is known.
    pub problem: Option<&'a str>,
}

impl<'a> Group<'a> {
    /// Rows of a GEMM that training does not need are left out: nobody runs it.
    pub fn new(site: &'a Site, gemm: Gemm, rows: GroupRows<'a>, problem: Option<&'a str>) -> Self {
        let rows = if site.runs(gemm) { rows } else { GroupRows::Lying(&[]) };
        Self { site, gemm, rows, problem }
    }

    pub fn row(&self, kernel: &KernelId) -> Option<&'a ResultRow> {
        self.rows.iter().find(|row| row.kernel == *kernel)
    }

    /// The baseline runs everywhere, probed or not, any other kernel where it has a row.
    pub(crate) fn can_have(&self, wanted: &Override, baseline: &KernelId) -> bool {
        wanted.kernel == *baseline || self.row(&wanted.kernel).is_some()
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
        Self::of(&results.meta, runtime, |site, gemm| {
            let mut rows = rows.remove(&(&site.id, gemm)).unwrap_or_default();
            rows.sort_by(|a, b| a.kernel.cmp(&b.kernel));
            GroupRows::Picked(rows)
        })
    }

    /// From wherever the rows are; `rows` gives those of one GEMM, and is asked in forward order.
    pub fn of(meta: &'a ResultsMeta, runtime: Runtime, mut rows: impl FnMut(&'a Site, Gemm) -> GroupRows<'a>) -> Self {
        let problems: HashMap<&SiteId, &str> =
            meta.problems.iter().map(|(site, problem)| (site, problem.as_str())).collect();
        let mut groups = Vec::with_capacity(3 * meta.manifest.sites.len());
        for site in &meta.manifest.sites {
            let problem = problems.get(&site.id).copied();
            groups.extend(Gemm::ALL.map(|gemm| Group::new(site, gemm, rows(site, gemm), problem)));
        }
        Self { groups, target: Target::of(meta, runtime) }
    }

    /// What a person wants and can be had of these rows. Of the rest nothing is known yet.
    pub fn ready(&self, overrides: &Overrides, baseline: &KernelId) -> Overrides {
        let mut ready = Overrides::new();
        for group in self.groups.iter().filter(|_| !overrides.is_empty()) {
            let key = (group.site.id.clone(), group.gemm);
            let wanted = overrides.get(&key);
            if let Some(wanted) = wanted.filter(|wanted| group.can_have(wanted, baseline)) {
                ready.insert(key, wanted.clone());
            }
        }
        ready
    }

    /// What of these overrides is ready may also be had.
    pub fn check(&self, overrides: &Overrides, baseline: &KernelId) -> Result<(), OverrideError> {
        by_group(self, &self.ready(overrides, baseline), baseline).map(drop)
    }
}
