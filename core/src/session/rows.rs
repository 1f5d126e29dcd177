//! Rows of results, one set an engine and device: they stand side by side and are never mixed. One set
//! is shown at a time.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::{Gemm, KernelId, Latency, ModSet, ResultRow, ResultsMeta, SiteId};

/// Whose rows: an engine on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    pub engine: String,
    pub device: String,
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
        Origin { engine: self.engine.clone(), device: self.device.clone() }
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

pub(super) type RowKey = (SiteId, Gemm, KernelId, ModSet);

/// The rows of one origin.
#[derive(Clone, Debug, Default)]
pub(super) struct RowSet {
    pub circumstances: Option<Circumstances>,
    /// Rows are replaced, never lost: those of other mods stay for before and after.
    pub rows: BTreeMap<RowKey, ResultRow>,
    /// Mods whose probe ran to its end, or whose rows came from a file.
    pub complete: BTreeSet<ModSet>,
    /// Measured once, for the rows of every later probe too.
    measured: BTreeMap<(SiteId, Gemm, KernelId), Latency>,
}

impl RowSet {
    fn take(&mut self, mut row: ResultRow) {
        if let Some(latency) = self.measured.get(&(row.site.clone(), row.gemm, row.kernel.clone())) {
            replace(&mut row, latency);
        }
        self.rows.insert((row.site.clone(), row.gemm, row.kernel.clone(), row.mods.clone()), row);
    }

    fn measure(&mut self, measured: MeasuredLatency) {
        let MeasuredLatency { site, gemm, kernel, latency } = measured;
        for row in self.rows.values_mut().filter(|row| row.site == site && row.gemm == gemm && row.kernel == kernel) {
            replace(row, &latency);
        }
        self.measured.insert((site, gemm, kernel), latency);
    }
}

/// The tail's cost depends on the mods, not on the kernel: a row keeps its own.
fn replace(row: &mut ResultRow, latency: &Latency) {
    row.latency = Latency { tail_us: row.latency.tail_us, ..latency.clone() };
}

/// All sets, and which is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct RowSets {
    sets: BTreeMap<Origin, RowSet>,
    shown: Origin,
}

impl RowSets {
    pub fn clear(&mut self) {
        self.sets.clear();
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

    pub fn of(&self, origin: &Origin) -> Option<&RowSet> {
        self.sets.get(origin)
    }

    pub fn num_rows(&self, origin: &Origin) -> usize {
        self.of(origin).map_or(0, |set| set.rows.len())
    }

    /// The rows that are shown.
    pub fn rows(&self) -> impl Iterator<Item = (&RowKey, &ResultRow)> {
        self.shown().into_iter().flat_map(|set| set.rows.iter())
    }

    pub fn describe(&mut self, circumstances: Circumstances) {
        let set = self.sets.entry(circumstances.origin()).or_default();
        set.circumstances = Some(circumstances);
    }

    pub fn complete(&mut self, origin: &Origin, mods: ModSet) {
        self.sets.entry(origin.clone()).or_default().complete.insert(mods);
    }

    /// Every row goes to the set that it names itself.
    pub fn take(&mut self, rows: Vec<ResultRow>) {
        for row in rows {
            let origin = Origin { engine: row.engine.clone(), device: row.device.clone() };
            self.sets.entry(origin).or_default().take(row);
        }
    }

    pub fn measure(&mut self, origin: &Origin, measured: Vec<MeasuredLatency>) {
        let set = self.sets.entry(origin.clone()).or_default();
        measured.into_iter().for_each(|measured| set.measure(measured));
    }
}
