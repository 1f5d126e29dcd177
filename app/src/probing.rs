//! What every probe needs around the engine, for the command line and the workbench alike: latencies
//! of kernels, the circumstances of the results, the time.

use std::{
    sync::{Arc, LazyLock},
    time::SystemTime,
};

use loka_core::{
    bench::{Latencies, tail_us},
    engine::Engine,
    model::{Gemm, GemmShape, Latency, ResultsMeta},
    mods::modified_ops,
    probe::{LatencyOf, ProbeConfig},
    trace::Trace,
};

static LATENCIES: LazyLock<Latencies> = LazyLock::new(Latencies::builtin);

/// Latencies from the recorded databases that ship with LoKA, with the modelled cost of the tail
/// beside fprop.
pub fn recorded_latencies() -> LatencyOf {
    Arc::new(|kernel, gemm, site, mods| {
        let shape = GemmShape { m: site.m, k: site.k, n: site.n };
        let (ops, bias) = modified_ops(site, mods);
        let tail = (gemm == Gemm::Fprop).then(|| tail_us(&ops, bias, site.m, site.n));
        Latency { tail_us: tail, ..LATENCIES.latency(&kernel.id(), gemm, shape) }
    })
}

/// The circumstances of results from `engine` on `trace`. `trace_digest` may be empty while it is still
/// being computed: that reads the whole file.
pub fn results_meta(trace: &Trace, trace_digest: String, engine: &dyn Engine, config: &ProbeConfig) -> ResultsMeta {
    let info = engine.describe();
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
    }
}

/// The time of now, RFC 3339 in UTC, to the second.
pub fn now_rfc3339() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    rfc3339(since.map_or(0, |since| since.as_secs()))
}

/// Days to a civil date by Howard Hinnant's algorithm (public domain).
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn known_times() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_176_000), "2026-11-20T12:00:00Z");
    }
}
