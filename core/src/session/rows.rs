//! Rows of results, one set an engine and device: they stand side by side and are never mixed. One set
//! is shown at a time. A set is shared site by site, so that a snapshot of all of it costs a pointer a site.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    engine::{EngineStatus, SiteContext},
    model::{Gemm, Kernel, KernelId, Latency, ResultRow, ResultsMeta, SiteId, SiteIndex, SiteRows, together},
};

/// Whose rows: an engine on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    pub engine: Arc<str>,
    pub device: Arc<str>,
}

impl Origin {
    pub fn new(engine: &str, device: &str) -> Self {
        Self { engine: engine.into(), device: device.into() }
    }

    /// Of the rows that this engine makes.
    pub(super) fn of(status: &EngineStatus) -> Self {
        Self::new(status.rows_by(), &status.device)
    }

    pub(super) fn of_row(row: &ResultRow) -> Self {
        Self { engine: row.engine.clone(), device: row.device.clone() }
    }

    /// Asked in every frame: nothing is allocated for it.
    pub fn is_of(&self, status: &EngineStatus) -> bool {
        *self.engine == *status.rows_by() && *self.device == *status.device
    }
}

/// What a results file says of who made its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    pub engine: String,
    pub device: String,
    pub driver: String,
    pub versions: String,
    /// RFC 3339, UTC.
    pub time: String,
    pub seed: u64,
    pub confidence: f64,
}

impl Circumstances {
    pub fn origin(&self) -> Origin {
        Origin::new(&self.engine, &self.device)
    }

    pub(super) fn stamp(&self, meta: ResultsMeta) -> ResultsMeta {
        let Self { engine, device, driver, versions, time, seed, confidence } = self.clone();
        ResultsMeta { engine, device, driver, versions, time, seed, confidence, ..meta }
    }
}

impl From<&ResultsMeta> for Circumstances {
    fn from(meta: &ResultsMeta) -> Self {
        let ResultsMeta { engine, device, driver, versions, time, seed, confidence, .. } = meta.clone();
        Self { engine, device, driver, versions, time, seed, confidence }
    }
}

/// A latency that was measured at one GEMM of one site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredLatency {
    pub site: SiteId,
    pub gemm: Gemm,
    pub kernel: KernelId,
    /// Without the tail, which depends on the mods.
    pub latency: Latency,
}

/// One engine's rows, without them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedSet {
    pub origin: Origin,
    pub circumstances: Option<Circumstances>,
    /// By site, GEMM and kernel, sorted.
    pub measured: Vec<(u32, Gemm, KernelId, Latency)>,
}

/// The rows of one site from one engine under one set of mods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowChunk {
    pub origin: Origin,
    /// The site's number.
    pub at: u32,
    pub context: SiteContext,
    /// Nothing more is to come.
    pub complete: bool,
    pub rows: Arc<SiteRows>,
}

/// The rows of one origin.
#[derive(Clone, Debug, Default)]
pub(super) struct RowSet {
    pub circumstances: Option<Circumstances>,
    sites: Vec<SiteSet>,
    num_rows: usize,
    /// Measured once, for the rows of every later probe too.
    measured: HashMap<(usize, Gemm, KernelId), Latency>,
}

/// One site's rows: replaced, never lost. Those under other mods stay for before and after.
#[derive(Clone, Debug, Default)]
struct SiteSet(BTreeMap<SiteContext, Probed>);

#[derive(Clone, Debug, Default)]
struct Probed {
    rows: Arc<SiteRows>,
    /// A probe ran to its end, or the rows came from a file.
    complete: bool,
}

impl RowSet {
    fn site(&mut self, at: usize) -> &mut SiteSet {
        if self.sites.len() <= at {
            self.sites.resize_with(at + 1, SiteSet::default);
        }
        &mut self.sites[at]
    }

    /// Rows of one site under one set of mods.
    fn take(&mut self, at: usize, context: SiteContext, mut rows: Vec<ResultRow>) {
        if !self.measured.is_empty() {
            for row in &mut rows {
                let measured = self.measured.get(&(at, row.gemm, row.kernel.clone()));
                if let Some(latency) = measured.and_then(|latency| replaced(row, latency)) {
                    row.latency = latency;
                }
            }
        }
        let probed = self.site(at).0.entry(context).or_default();
        self.num_rows += Arc::make_mut(&mut probed.rows).take(rows);
    }

    /// The same of rows that were put together elsewhere: where there are none yet they are shared as they are.
    fn adopt(&mut self, at: usize, context: SiteContext, rows: Arc<SiteRows>) {
        if !self.measured.is_empty() || self.rows_of(at, &context).is_some() {
            return self.take(at, context, Arc::unwrap_or_clone(rows).into());
        }
        self.num_rows += rows.all().len();
        self.site(at).0.entry(context).or_default().rows = rows;
    }

    fn measure(&mut self, at: usize, measured: MeasuredLatency) {
        let MeasuredLatency { gemm, kernel, latency, .. } = measured;
        for probed in self.site(at).0.values_mut() {
            // A row that is not there is no reason to copy the others.
            if probed.rows.get(gemm, &kernel).is_some() {
                Arc::make_mut(&mut probed.rows).set_latency(gemm, &kernel, |row| replaced(row, &latency));
            }
        }
        self.measured.insert((at, gemm, kernel), latency);
    }

    /// `None` before the first row, also where a probe ended without one.
    pub fn rows_of(&self, at: usize, context: &SiteContext) -> Option<&Arc<SiteRows>> {
        let probed = self.sites.get(at)?.0.get(context)?;
        Some(&probed.rows).filter(|rows| !rows.all().is_empty())
    }

    pub fn is_complete(&self, at: usize, context: &SiteContext) -> bool {
        self.sites.get(at).and_then(|site| site.0.get(context)).is_some_and(|probed| probed.complete)
    }

    /// In forward order, whatever the mods.
    pub fn rows(&self) -> impl Iterator<Item = (&SiteContext, &ResultRow)> {
        let contexts = self.sites.iter().flat_map(|site| site.0.iter());
        contexts.flat_map(|(context, probed)| probed.rows.all().iter().map(move |row| (context, row)))
    }
}

/// The tail's cost depends on the mods, not on the kernel: a row keeps its own. `None`: it keeps its latency.
fn replaced(row: &ResultRow, latency: &Latency) -> Option<Latency> {
    // Timed for its shape; this site's tail is another.
    let other_tail = !row.supported && row.kernel.known().is_some_and(Kernel::has_tail);
    (!other_tail).then(|| Latency { tail_us: latency.tail_us.or(row.latency.tail_us), ..latency.clone() })
}

/// No engine is called so.
fn compared_origin() -> Origin {
    Origin::new("compared", "")
}

/// All sets, and which is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct RowSets {
    pub index: Arc<SiteIndex>,
    sets: BTreeMap<Origin, RowSet>,
    shown: Origin,
}

impl RowSets {
    /// Forgets all rows: another trace has these sites.
    pub fn open(&mut self, index: Arc<SiteIndex>) {
        self.sets.clear();
        self.index = index;
    }

    pub fn shown_origin(&self) -> &Origin {
        &self.shown
    }

    pub fn show(&mut self, origin: Origin) {
        self.shown = origin;
    }

    pub fn shown(&self) -> Option<&RowSet> {
        self.sets.get(&self.shown)
    }

    pub fn num_rows(&self, origin: &Origin) -> usize {
        self.sets.get(origin).map_or(0, |set| set.num_rows)
    }

    /// The rows that are shown, whatever their mods.
    pub fn rows(&self) -> impl Iterator<Item = (&SiteContext, &ResultRow)> {
        self.shown().into_iter().flat_map(RowSet::rows)
    }

    /// What is known of the row's kernel at its GEMM.
    pub fn row(&self, origin: &Origin, at: usize, context: &SiteContext, row: &ResultRow) -> Option<&ResultRow> {
        self.sets.get(origin)?.rows_of(at, context)?.get(row.gemm, &row.kernel)
    }

    pub fn describe(&mut self, circumstances: Circumstances) {
        let set = self.sets.entry(circumstances.origin()).or_default();
        set.circumstances = Some(circumstances);
    }

    /// The rows of other results, to compare with: a set by itself, which is never shown and no engine adds to. Each
    /// site's stand under no mods, whatever they were made under.
    pub fn compare(&mut self, rows: Vec<ResultRow>) {
        let mut set = RowSet::default();
        for mut rows in together(rows) {
            if let Some(at) = self.place(&mut rows) {
                set.adopt(at, SiteContext::default(), rows);
            }
        }
        self.sets.insert(compared_origin(), set);
    }

    pub fn compared(&self) -> Option<&RowSet> {
        self.sets.get(&compared_origin())
    }

    pub fn forget_compared(&mut self) {
        self.sets.remove(&compared_origin());
    }

    /// Nothing more is to come of these sites under those mods.
    pub fn complete(&mut self, origin: &Origin, sites: impl IntoIterator<Item = (usize, SiteContext)>) {
        let set = self.sets.entry(origin.clone()).or_default();
        for (at, context) in sites {
            set.site(at).0.entry(context).or_default().complete = true;
        }
    }

    /// Every row goes to the set that it names itself. `context`: what its site was probed under.
    pub fn take(&mut self, rows: Vec<ResultRow>, context: impl Fn(usize, &ResultRow) -> SiteContext) {
        self.adopt(together(rows), context);
    }

    /// The same of rows that were put together elsewhere.
    pub fn adopt(
        &mut self,
        sites: impl IntoIterator<Item = Arc<SiteRows>>,
        context: impl Fn(usize, &ResultRow) -> SiteContext,
    ) {
        for mut rows in sites {
            let Some(at) = self.place(&mut rows) else { continue };
            let first = &rows.all()[0];
            let set = self.sets.entry(Origin::of_row(first)).or_default();
            set.adopt(at, context(at, first), rows);
        }
    }

    /// The place of their site, whose name they share from here on: one a site in memory, not one a row. `None`: the trace does not
    /// have it, so that they have nowhere to be shown.
    fn place(&self, rows: &mut Arc<SiteRows>) -> Option<usize> {
        let site = &rows.all().first()?.site;
        let at = self.index.at(site)?;
        let known = &self.index.ids()[at];
        if !Arc::ptr_eq(&site.0, &known.0) {
            Arc::make_mut(rows).name_site(known);
        }
        Some(at)
    }

    pub fn measure(&mut self, origin: &Origin, measured: Vec<MeasuredLatency>) {
        let set = self.sets.entry(origin.clone()).or_default();
        for measured in measured {
            if let Some(at) = self.index.at(&measured.site) {
                set.measure(at, measured);
            }
        }
    }

    /// As plain data, sorted: by engine, site and mods.
    pub fn save(&self) -> (Vec<SavedSet>, Vec<RowChunk>) {
        let (mut heads, mut shares) = (Vec::new(), Vec::new());
        for (origin, set) in &self.sets {
            let measured = set.measured.iter();
            let mut measured: Vec<_> = measured
                .map(|((at, gemm, kernel), latency)| (*at as u32, *gemm, kernel.clone(), latency.clone()))
                .collect();
            measured.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
            heads.push(SavedSet { origin: origin.clone(), circumstances: set.circumstances.clone(), measured });
            for (at, site) in set.sites.iter().enumerate() {
                shares.extend(site.0.iter().map(|(context, probed)| RowChunk {
                    origin: origin.clone(),
                    at: at as u32,
                    context: context.clone(),
                    complete: probed.complete,
                    rows: probed.rows.clone(),
                }));
            }
        }
        (heads, shares)
    }

    /// Replaces everything. Rows of sites that are not in `index` go nowhere.
    pub fn restore(&mut self, index: Arc<SiteIndex>, heads: Vec<SavedSet>, shares: Vec<RowChunk>, shown: Origin) {
        self.open(index);
        self.shown = shown;
        for SavedSet { origin, circumstances, measured } in heads {
            let measured =
                measured.into_iter().map(|(at, gemm, kernel, of)| ((at as usize, gemm, kernel), of)).collect();
            self.sets.insert(origin, RowSet { circumstances, measured, ..RowSet::default() });
        }
        for RowChunk { origin, at, context, complete, rows } in shares {
            let at = at as usize;
            if at < self.index.len() {
                let set = self.sets.entry(origin).or_default();
                set.num_rows += rows.all().len();
                set.site(at).0.insert(context, Probed { rows, complete });
            }
        }
    }
}
