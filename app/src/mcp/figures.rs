//! Figures as an assistant gets them: takes estimates and times, gives them with unit, interval and origin, as data and in
//! words. No number leaves here without saying where it came from.

use loka_core::{
    format::number,
    model::{Estimate, Latency, LatencySource, Metric, ResultRow},
    views::Views,
};
use serde_json::{Value, json};

/// NaN and infinity have no JSON: what is not known is null.
fn finite(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}

fn unit(metric: Metric) -> &'static str {
    match metric {
        Metric::SqnrDb => "dB",
        Metric::LossCost => "units of the loss",
        Metric::MaxAbs => "units of the output",
        Metric::NoiseShare => "share of the gradient's noise",
        Metric::Mere | Metric::RelL2 | Metric::MedianRel | Metric::BlockRelL2 | Metric::Bias => "relative",
    }
}

/// Whose draws an error is of.
pub fn error_origin(engine: &str, device: &str) -> String {
    match engine {
        "cpu" => "emulated on the CPU".to_owned(),
        _ => format!("measured on {device}"),
    }
}

pub fn of_row(row: &ResultRow) -> String {
    error_origin(&row.engine, &row.device)
}

/// `origin`: as [`error_origin`] says.
pub fn error(metric: Metric, estimate: Estimate, origin: &str) -> Value {
    json!({
        "metric": metric.as_str(), "value": finite(estimate.value), "low": finite(estimate.lo),
        "high": finite(estimate.hi), "unit": unit(metric), "origin": origin,
    })
}

/// The same of a row, with what of a loss cost has to be known: whether it is in the range where it means anything. `loss`:
/// the trace's.
pub fn error_of(row: &ResultRow, (metric, estimate): (Metric, Estimate), loss: f64) -> Value {
    let mut told = error(metric, estimate, &of_row(row));
    if metric == Metric::LossCost {
        told["in_range"] = json!(!row.loss_cost_means_nothing(loss));
    }
    told
}

/// `MERE .14 ± .02 (.12 to .16)`, and of a loss cost that means nothing that it does. `loss`: the trace's.
pub fn error_words(row: Option<&ResultRow>, (metric, estimate): (Metric, Estimate), loss: f64) -> String {
    let means_nothing = metric == Metric::LossCost && row.is_some_and(|row| row.loss_cost_means_nothing(loss));
    let mark = if means_nothing { ", outside its range: it means nothing" } else { "" };
    format!("{} {}{mark}", metric.label(), number::sentence(estimate))
}

/// The time of one kernel with its casts.
pub fn latency(latency: &Latency) -> Value {
    json!({
        "value": latency.latency_us.map(finite), "low": latency.latency_lo_us.map(finite),
        "high": latency.latency_hi_us.map(finite), "gemm_alone": latency.gemm_us.map(finite), "unit": "us",
        "origin": latency.source.as_str(), "about": latency.told(),
    })
}

/// A sum of times, which has the least certain origin of its parts.
pub fn time(us: Option<f64>, source: LatencySource) -> Value {
    json!({"value": us.map(finite), "unit": "us a step", "origin": source.as_str()})
}

pub fn micros(us: f64) -> String {
    format!("{} µs", number::micros(us))
}

pub fn maybe_micros(us: Option<f64>) -> String {
    us.map_or_else(|| "unknown".to_owned(), micros)
}

/// How many of the plan's kernels have a time of which origin: `26 recorded, 9 modelled`.
pub fn sources_words(views: &Views) -> String {
    let of = |source: LatencySource| {
        let count = views.sources.get(&source).copied().unwrap_or(0);
        let word = if source == LatencySource::None { "without a time" } else { source.as_str() };
        (count > 0).then(|| format!("{} {word}", number::count(count as u64)))
    };
    let told: Vec<String> = LatencySource::ALL.into_iter().filter_map(of).collect();
    if told.is_empty() { "no times".to_owned() } else { told.join(", ") }
}

pub fn sources(views: &Views) -> Value {
    let counts = views.sources.iter().map(|(source, count)| (source.as_str().to_owned(), json!(count)));
    Value::Object(counts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_says_what_it_is() {
        let told = error(Metric::Mere, Estimate::new(0.14, 0.12, f64::INFINITY), "emulated on the CPU");
        assert_eq!(told["low"], 0.12);
        assert_eq!(told["high"], Value::Null, "JSON has no infinity");
        assert_eq!((told["unit"].as_str(), told["origin"].as_str()), (Some("relative"), Some("emulated on the CPU")));
        assert_eq!(
            error_words(None, (Metric::Mere, Estimate::new(0.14, 0.12, 0.16)), 0.5),
            "MERE .14 ± .02 (.120 to .160)"
        );
        assert_eq!(error_origin("cuda", "NVIDIA H200"), "measured on NVIDIA H200");
        assert_eq!(time(None, LatencySource::None)["value"], Value::Null);
    }
}
