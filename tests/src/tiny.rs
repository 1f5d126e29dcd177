//! Takes a number of sites, gives a trace of so many small layers: a probe of one takes milliseconds.

use std::path::Path;

use loka_core::trace::{Covariance, Distribution, SiteStats, TraceData, WeightStats, write};
use serde_json::{Value, json};

const WIDTH: usize = 16;
const ROWS: usize = 32;

/// Independent features, no two alike.
fn distribution(seed: usize, width: usize) -> Distribution {
    let diag = |row: usize, column: usize| if row == column { 1.0 + ((row + seed) % 7) as f64 } else { 0.0 };
    Distribution {
        count: 1000,
        mean: (0..width).map(|at| at as f64 * 0.01).collect(),
        cov: Covariance::Full((0..width * width).map(|at| diag(at / width, at % width)).collect()),
        quantiles: None,
        hist: None,
        amax: None,
    }
}

pub fn trace(num_sites: usize) -> TraceData {
    trace_of(num_sites, WIDTH)
}

/// Layers of so many features in and out.
pub fn trace_of(num_sites: usize, width: usize) -> TraceData {
    let id = |at: usize| format!("layers.{at}");
    let site = |at: usize| -> Value {
        json!({"id": id(at), "class": "torch.nn.Linear", "m": ROWS, "k": width, "n": width, "dtype": "bf16",
               "bias": false, "head": false, "tail": [], "feeds": []})
    };
    let manifest = json!({
        "version": 1, "model": {"name": "tiny"}, "run": {"id": "tiny-0", "step": 10}, "quantile_probs": [],
        "loss": {"name": "log_loss", "value": 0.5}, "sites": (0..num_sites).map(site).collect::<Vec<_>>(),
    });
    let manifest: loka_core::model::Manifest = serde_json::from_value(manifest).unwrap();
    let weight = |at: usize| (0..width * width).map(|cell| ((cell * 37 + at) % 11) as f32 * 0.05).collect();
    let stats = |at: usize| SiteStats {
        grad_output: Some(distribution(at + 3, width)),
        ..SiteStats::new(manifest.sites[at].clone(), distribution(at, width), WeightStats::Snapshot(weight(at)))
    };
    let sites = (0..num_sites).map(stats).collect();
    TraceData { manifest, sites }
}

/// Writes one there.
pub fn put(path: &Path, num_sites: usize) {
    write(path, &trace(num_sites)).unwrap();
}
