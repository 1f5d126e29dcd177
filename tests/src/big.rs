//! Takes a number of sites and a seed, gives the made-up results of a large recommender: 3 GEMMs and 8 kernels a
//! site, errors around the thresholds of the built-in policies, latencies of every source, some GEMMs that a kernel
//! refuses, some sites that cannot be probed. The same seed gives the same rows.

use std::sync::Arc;

use crate::dice::Dice;
use loka_core::{
    model::{
        ErrorSummary, Estimate, Fidelity, Gemm, GemmShape, Kernel, KernelId, Latency, LatencySource, Manifest, ModSet,
        ResultRow, Results, ResultsMeta, SiteId, SiteMods, kernel,
    },
    session::{Circumstances, Event},
    views::OpenedTrace,
};
use serde_json::{Value, json};

/// The baseline, then what it is compared with: name, typical MERE, typical speed-up.
const KERNELS: [(&str, f64, f64); 8] = [
    ("cublaslt/bf16", 0.006, 1.0),
    ("cublaslt/fp8-blockwise", 0.10, 1.02),
    ("cublaslt/fp8-rowwise", 0.13, 1.12),
    ("cublaslt/fp8-rowwise+fast", 0.15, 1.22),
    ("cublaslt/fp8-tensorwise+fast", 0.24, 1.10),
    ("deepgemm/blockwise", 0.10, 1.08),
    ("te/current", 0.22, 1.05),
    ("torchao/rowwise", 0.17, 0.98),
];

/// What a block of the model consists of; the last feed the next block.
const BLOCK: [&str; 7] =
    ["fmb.mlp.0", "fmb.mlp.3", "fmb.mlp.6", "lcb.project", "attention.qkv", "attention.out", "residual"];

/// In and out features; the odd ones are refused by FP8 kernels.
const WIDTHS: [usize; 8] = [256, 512, 768, 1024, 1536, 2048, 2052, 1000];

/// One site in so many cannot be probed.
const BROKEN_EVERY: usize = 500;

pub const ENGINE: &str = "cpu";
pub const DEVICE: &str = "a made-up machine";

/// A whole session's worth of rows, in forward order.
pub fn results(num_sites: usize, seed: u64) -> Results {
    let mut dice = Dice::new(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let shapes: Vec<GemmShape> = (0..num_sites).map(|_| shape(&mut dice)).collect();
    let meta = meta(&shapes, seed);
    let mut rows = Vec::with_capacity(24 * num_sites);
    let kernels = KERNELS.map(|(name, error, speedup)| Typical::new(name, error, speedup));
    for (at, site) in meta.manifest.sites.iter().enumerate().filter(|(at, _)| !is_broken(*at)) {
        let maker = Maker { site: &site.id, shape: shapes[at], hardness: dice.log_normal(0.5), seed };
        for gemm in Gemm::ALL {
            let baseline_us = baseline_us(shapes[at]) * dice.log_normal(0.05);
            rows.extend(kernels.iter().map(|kernel| maker.row(gemm, kernel, baseline_us, &mut dice)));
        }
    }
    Results { meta, rows }
}

fn is_broken(at: usize) -> bool {
    at % BROKEN_EVERY == BROKEN_EVERY - 1
}

/// `layers.37.fmb.mlp.3` and what stands before and after the layers.
pub fn site_name(at: usize) -> String {
    match at {
        0 => "sparse.project".to_owned(),
        1 => "dense.mlp.0".to_owned(),
        2 => "dense.mlp.3".to_owned(),
        at => format!("layers.{}.{}", (at - 3) / BLOCK.len(), BLOCK[(at - 3) % BLOCK.len()]),
    }
}

fn shape(dice: &mut Dice) -> GemmShape {
    GemmShape { m: 2048 << dice.below(4), k: WIDTHS[dice.below(WIDTHS.len())], n: WIDTHS[dice.below(WIDTHS.len())] }
}

/// 400 TFLOP/s and a launch.
fn baseline_us(shape: GemmShape) -> f64 {
    3.0 + 2.0 * shape.m as f64 * shape.k as f64 * shape.n as f64 / 4e8
}

fn meta(shapes: &[GemmShape], seed: u64) -> ResultsMeta {
    let sites: Vec<Value> = shapes.iter().enumerate().map(|(at, shape)| site(at, *shape, shapes.len())).collect();
    let manifest: Result<Manifest, _> = serde_json::from_value(json!({
        "version": 1,
        "model": {"name": "made-up recommender", "family": "wukong"},
        "run": {"id": "made-up", "step": 6000},
        "loss": {"name": "log_loss", "value": 0.45},
        "sites": sites,
    }));
    let broken = (0..shapes.len()).filter(|at| is_broken(*at));
    let why = || "input.cov is not symmetric".to_owned();
    ResultsMeta {
        trace_digest: format!("sha256:{seed:064x}"),
        manifest: manifest.unwrap(),
        engine: ENGINE.to_owned(),
        device: DEVICE.to_owned(),
        driver: String::new(),
        versions: "made up".to_owned(),
        time: "2026-11-21T12:00:00Z".to_owned(),
        seed,
        confidence: 0.95,
        problems: broken.map(|at| (SiteId::new(&site_name(at)), why())).collect(),
        site_times: None,
    }
}

fn site(at: usize, shape: GemmShape, num_sites: usize) -> Value {
    let feeds = if at + 1 < num_sites { vec![site_name(at + 1)] } else { Vec::new() };
    json!({
        "id": site_name(at), "class": "torch.nn.Linear", "m": shape.m, "k": shape.k, "n": shape.n, "dtype": "bf16",
        "bias": at.is_multiple_of(3), "tail": [{"op": "layer_norm", "eps": 1e-5, "affine": true}, {"op": "swish"}],
        "feeds": feeds,
    })
}

struct Typical {
    id: KernelId,
    known: &'static Kernel,
    error: f64,
    speedup: f64,
}

impl Typical {
    fn new(name: &str, error: f64, speedup: f64) -> Self {
        Self { id: KernelId::new(name), known: kernel(name).unwrap(), error, speedup }
    }
}

/// Makes the rows of one site.
struct Maker<'a> {
    site: &'a SiteId,
    shape: GemmShape,
    /// How hard the site is for every kernel.
    hardness: f64,
    seed: u64,
}

impl Maker<'_> {
    fn row(&self, gemm: Gemm, kernel: &Typical, baseline_us: f64, dice: &mut Dice) -> ResultRow {
        let reason = kernel.known.refuses(gemm, self.shape);
        let supported = reason.is_none();
        let error = supported.then(|| self.error(gemm, kernel, dice));
        let latency = if supported { latency(kernel, baseline_us, dice) } else { Latency::unknown("") };
        let fidelity = error.as_ref().filter(|_| gemm == Gemm::Fprop).map(|error| Fidelity {
            rows: 64,
            heldout_rel_l2: error.rel_l2.value * dice.log_normal(0.05),
            heldout_mere: error.mere.value * dice.log_normal(0.1),
        });
        ResultRow {
            site: self.site.clone(),
            gemm,
            kernel: kernel.id.clone(),
            mods: ModSet::none(),
            shape: self.shape,
            supported,
            reason: reason.map(Into::into),
            error,
            latency,
            fidelity,
            static_scale: None,
            flushed: None,
            sampler: if self.hardness > 1.3 { "copula" } else { "gaussian" }.into(),
            engine: ENGINE.into(),
            device: DEVICE.into(),
            seed: self.seed,
        }
    }

    fn error(&self, gemm: Gemm, kernel: &Typical, dice: &mut Dice) -> ErrorSummary {
        let hardness = self.hardness * if gemm == Gemm::Wgrad { 1.3 } else { 1.0 };
        let mere = kernel.error * hardness * dice.log_normal(0.15);
        let rel_l2 = 0.25 * kernel.error * hardness * dice.log_normal(0.15);
        let forward = gemm == Gemm::Fprop;
        // Heavy-tailed, as loss costs are: a few sites own most of the sum.
        let cost = 1e-9 * (rel_l2 / 0.03).powi(2) * dice.log_normal(1.5);
        ErrorSummary {
            draws: 16 + 8 * dice.below(7) as u64,
            zeros_skipped: dice.below(3) as u64,
            mere: interval(mere, dice),
            rel_l2: interval(rel_l2, dice),
            sqnr_db: -20.0 * rel_l2.log10(),
            median_rel: 0.3 * mere,
            max_abs: 4.0 * mere * dice.log_normal(0.3),
            block_rel_l2: forward.then(|| interval(0.6 * rel_l2, dice)),
            loss_cost: forward.then(|| interval(cost, dice)),
            loss_excess: None,
            noise: None,
            bias: Some(Estimate::new(0.0, -1e-3, 1e-3)),
        }
    }
}

/// Between 1 and 20 % to either side.
fn interval(value: f64, dice: &mut Dice) -> Estimate {
    let half = 0.01 + 0.19 * dice.unit().powi(2);
    Estimate::new(value, value / (1.0 + half), value * (1.0 + half))
}

fn latency(kernel: &Typical, baseline_us: f64, dice: &mut Dice) -> Latency {
    let (source, note) = match dice.below(20) {
        0 => return Latency::unknown("no kernel database has this shape or one near it"),
        1..=4 => (LatencySource::Measured, "measured on NVIDIA H200, CUDA 13.0, cuBLASLt 13.1.0"),
        5..=10 => (LatencySource::Recorded, "recorded on NVIDIA H200, driver 580.159.04, CUDA 13.0"),
        _ => (LatencySource::Modelled, "modelled from NVIDIA H200 records, fit error 4.2 % (p90 9.8 %)"),
    };
    let is_baseline = kernel.known.high_precision();
    let speedup = if is_baseline { 1.0 } else { kernel.speedup * dice.log_normal(0.12) };
    let latency_us = baseline_us / speedup;
    let casts = if is_baseline { 0.0 } else { 0.15 + 0.3 * dice.unit() };
    Latency {
        latency_us: Some(latency_us),
        latency_lo_us: Some(0.98 * latency_us),
        latency_hi_us: Some(1.03 * latency_us),
        gemm_us: Some((1.0 - casts) * latency_us),
        cast_us: Some(casts * latency_us),
        cached_us: Some((1.0 - 0.5 * casts) * latency_us),
        baseline_us: Some(baseline_us),
        tail_us: Some(0.1 * baseline_us),
        source,
        note: note.into(),
    }
}

/// The trace that the results are of, as if it had just been opened.
pub fn opened(results: &Results) -> Event {
    let (path, name) = ("made-up.trace.safetensors".to_owned(), results.meta.manifest.model.name.clone());
    Event::TraceOpened { trace: Box::new(OpenedTrace { path, name, meta: results.meta.clone() }) }
}

/// Who made the rows.
pub fn made_by(results: &Results) -> Circumstances {
    Circumstances::from(&results.meta)
}

/// The start of a probe of every site that can be probed.
pub fn started(results: &Results, run: u64) -> Event {
    let broken: std::collections::HashSet<&SiteId> = results.meta.problems.iter().map(|(site, _)| site).collect();
    let sites = results.meta.manifest.sites.iter().map(|site| site.id.clone());
    let sites = sites.filter(|site| !broken.contains(site)).collect();
    Event::ProbeStarted { run, mods: SiteMods::default(), sites, by: Box::new(made_by(results)) }
}

/// Rows as a probe gives them, `per_event` at a time.
pub fn streamed(rows: Vec<ResultRow>, run: u64, per_event: usize) -> impl Iterator<Item = Event> {
    let mut rows = rows.into_iter();
    std::iter::from_fn(move || {
        let rows: Vec<ResultRow> = rows.by_ref().take(per_event).collect();
        (!rows.is_empty()).then_some(Event::Rows { run, rows })
    })
}

/// Bytes of the rows themselves and of their texts, each copy once.
pub fn bytes_of<'a>(rows: impl Iterator<Item = &'a ResultRow>) -> usize {
    let mut shared = std::collections::HashSet::new();
    let mut bytes = 0;
    for row in rows {
        bytes += size_of::<ResultRow>();
        let texts = [&row.site.0, &row.sampler, &row.engine, &row.device, &row.latency.note];
        for text in texts.into_iter().chain(&row.reason) {
            if shared.insert(Arc::as_ptr(text).cast::<u8>()) {
                bytes += text.len();
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_rows() {
        assert_eq!(results(40, 7), results(40, 7));
        assert_ne!(results(40, 7).rows, results(40, 8).rows);
    }

    #[test]
    fn every_kind_of_row_is_there() {
        let results = results(1000, 1);
        let rows = &results.rows;
        assert_eq!((results.meta.problems.len(), rows.len()), (2, 24 * 998));
        for source in LatencySource::ALL {
            assert!(rows.iter().any(|row| row.supported && row.latency.source == source), "{source:?}");
        }
        let refused = rows.iter().filter(|row| !row.supported).count();
        assert!((rows.len() / 100..rows.len() / 2).contains(&refused), "{refused}");
        let straddling =
            rows.iter().filter_map(|row| row.error.as_ref()).filter(|e| e.mere.lo <= 0.2 && e.mere.hi > 0.2);
        assert!(straddling.count() > rows.len() / 50);
    }
}
