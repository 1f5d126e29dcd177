//! Takes plans of 1,000 and 10,000 made-up sites with eight kernels each, gives the time of a report in both kinds, and
//! says how large they are. 3 s and 5 MB are the bounds for 10,000 sites.

// A benchmark that cannot set itself up has nothing to report.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use loka_core::{
    dispatch::{Overrides, Policy},
    model::{
        ErrorSummary, Estimate, Gemm, GemmShape, KernelId, Latency, LatencySource, Manifest, ModSet, ResultRow,
        Results, ResultsMeta, SiteId, SiteMods,
    },
    numerics::rng::Rng,
    plan::{build, standing},
    report::{Source, html, markdown},
};

const KERNELS: [&str; 8] = [
    "cublaslt/bf16",
    "cublaslt/fp8-rowwise",
    "cublaslt/fp8-rowwise+fast",
    "cublaslt/fp8-tensorwise+fast",
    "deepgemm/blockwise",
    "fbgemm/rowwise",
    "te/blockwise",
    "torchao/rowwise",
];
const SHAPE: GemmShape = GemmShape { m: 8192, k: 512, n: 512 };

fn row(site: &SiteId, gemm: Gemm, kernel: &str, dice: &mut Rng) -> ResultRow {
    let error = Estimate::new(0.2, 0.18, 0.22);
    let scaled = 2.0 * dice.uniform();
    let mere = Estimate::new(scaled * error.value, scaled * error.lo, scaled * error.hi);
    let us = if kernel == KERNELS[0] { 50.0 } else { 50.0 / (0.6 + dice.uniform()) };
    ResultRow {
        site: site.clone(),
        gemm,
        kernel: KernelId::new(kernel),
        mods: ModSet::none(),
        shape: SHAPE,
        supported: true,
        reason: None,
        error: Some(ErrorSummary {
            draws: 32,
            zeros_skipped: 0,
            mere,
            rel_l2: mere,
            sqnr_db: 30.0,
            median_rel: 0.02,
            max_abs: 1.0,
            block_rel_l2: None,
            loss_cost: None,
            loss_excess: None,
            noise: None,
            bias: None,
        }),
        latency: Latency {
            latency_us: Some(us),
            baseline_us: Some(50.0),
            source: LatencySource::Modelled,
            ..Latency::unknown("made up")
        },
        fidelity: None,
        static_scale: None,
        flushed: None,
        sampler: "gaussian".into(),
        engine: "cpu".into(),
        device: "made up".into(),
        seed: 1,
    }
}

fn results(num_sites: usize) -> Results {
    let mut dice = Rng::new(1, &[]);
    let (mut rows, mut sites) = (Vec::with_capacity(num_sites * 24), Vec::with_capacity(num_sites));
    for index in 0..num_sites {
        let site = SiteId::new(&format!("net.layers.{}.fmb.mlp.{}", index / 3, index % 3));
        sites.push(serde_json::json!({"id": site, "m": SHAPE.m, "k": SHAPE.k, "n": SHAPE.n, "dtype": "f32"}));
        for gemm in Gemm::ALL {
            rows.extend(KERNELS.map(|kernel| row(&site, gemm, kernel, &mut dice)));
        }
    }
    let manifest: Manifest = serde_json::from_value(serde_json::json!({
        "version": 1, "model": {"name": "made up"}, "run": {"id": "r", "step": 1},
        "loss": {"name": "log_loss", "value": 0.5}, "sites": sites,
    }))
    .unwrap();
    let meta = ResultsMeta {
        trace_digest: "sha256:00".to_owned(),
        manifest,
        engine: "cpu".to_owned(),
        device: "made up".to_owned(),
        driver: String::new(),
        versions: String::new(),
        time: "2026-11-20T00:00:00Z".to_owned(),
        seed: 1,
        confidence: 0.95,
        problems: Vec::new(),
        site_times: None,
    };
    Results { meta, rows }
}

fn report_scale(criterion: &mut Criterion) {
    for num_sites in [1_000, 10_000] {
        let results = results(num_sites);
        let built = build(&results, &Policy::paper(), &SiteMods::none(), &Overrides::new(), "scale", "");
        let plan = built.unwrap().plan;
        let source = || Source::new(&plan, Some(&results), standing(&plan, None, None)).unwrap();
        let mut group = criterion.benchmark_group("report");
        group.sample_size(10).throughput(Throughput::Elements(num_sites as u64));
        group.bench_function(BenchmarkId::new("html", num_sites), |b| b.iter(|| html(black_box(&source()))));
        group.bench_function(BenchmarkId::new("markdown", num_sites), |b| b.iter(|| markdown(black_box(&source()))));
        group.finish();
        println!(
            "{num_sites} sites: {} bytes of HTML, {} of Markdown",
            html(&source()).len(),
            markdown(&source()).len()
        );
    }
}

criterion_group!(benches, report_scale);
criterion_main!(benches);
