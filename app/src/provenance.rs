//! Takes a trace and an engine, gives the provenance that results of them carry.

use loka_core::{
    engine::{Engine, EngineInfo},
    model::ResultsMeta,
    probe::ProbeConfig,
    trace::Trace,
};

use crate::clock::now_rfc3339;

/// The circumstances of results from `engine` on `trace`. `trace_digest` may be empty while it is still
/// being computed: that reads the whole file.
pub fn results_meta(trace: &Trace, trace_digest: String, engine: &dyn Engine, config: &ProbeConfig) -> ResultsMeta {
    results_meta_by(trace, trace_digest, engine.describe(), config)
}

/// The same of an engine that is elsewhere.
pub fn results_meta_by(trace: &Trace, trace_digest: String, info: EngineInfo, config: &ProbeConfig) -> ResultsMeta {
    let unusable = trace.sites().iter().filter_map(|entry| Some((entry.site.id.clone(), entry.problem.clone()?)));
    ResultsMeta {
        trace_digest,
        manifest: trace.manifest().clone(),
        engine: info.name.to_owned(),
        device: info.device,
        driver: info.driver,
        versions: info.versions,
        time: now_rfc3339(),
        seed: config.seed,
        confidence: config.confidence,
        problems: unusable.collect(),
        site_times: None,
    }
}
