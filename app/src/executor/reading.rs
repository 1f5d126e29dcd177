//! Takes an opened trace, gives what a session is told of it: its sites with their circumstances, its series.

use loka_core::{
    engine::CpuEngine,
    probe::ProbeConfig,
    trace::{Series, Trace},
    views::{OpenedTrace, SeriesTable, SiteSeries},
};

use crate::provenance::results_meta;

/// Without its digest, which takes a while. The engine is the one that every machine has, until another gives rows.
pub(crate) fn opened(path: &str, trace: &Trace) -> OpenedTrace {
    let meta = results_meta(trace, String::new(), &CpuEngine, &ProbeConfig::default());
    OpenedTrace { path: path.to_owned(), name: trace.manifest().model.name.clone(), meta }
}

/// Sites that cannot be read have none.
pub(crate) fn series_of(trace: &Trace) -> SeriesTable {
    let mut all = Vec::new();
    for (at, entry) in trace.sites().iter().enumerate() {
        let series = trace.site_series(&entry.site.id).unwrap_or_default();
        all.extend(series.into_iter().map(|Series { name, steps, values }| SiteSeries {
            site: at as u32,
            name,
            steps,
            values,
        }));
    }
    SeriesTable::of(trace.sites().len(), all)
}
