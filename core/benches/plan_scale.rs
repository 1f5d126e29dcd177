//! Takes generated results of 1,000 and 10,000 sites x 3 GEMMs x 8 kernels, gives the time of a plan
//! under every policy, of a check, diffs of plans (the bar for 10,000 sites: 200 ms) and of results, and the frontier.
//! Cost a site must stay flat.

// A benchmark that cannot set itself up has nothing to report.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use loka_core::{
    dispatch::{Candidates, Overrides, Policy, frontier},
    model::{
        ErrorSummary, Estimate, Gemm, GemmShape, KernelId, Latency, LatencySource, Manifest, ModSet, ResultRow,
        Results, ResultsMeta, SiteId, SiteMods,
    },
    numerics::rng::Rng,
    plan::{Plan, build, check, diff, diff_results},
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

fn error(dice: &mut Rng, gemm: Gemm) -> ErrorSummary {
    let mut around = |scale: f64| {
        let value = scale * dice.uniform();
        Estimate::new(value, 0.9 * value, 1.1 * value)
    };
    let (mere, rel_l2) = (around(0.4), around(0.1));
    let loss_cost = (gemm == Gemm::Fprop).then(|| {
        let cost = around(1.0);
        // Heavy-tailed, as loss costs are: a few sites own most of the sum.
        Estimate::new(1e-7 * cost.value.powi(4), 0.9e-7 * cost.value.powi(4), 1.1e-7 * cost.value.powi(4))
    });
    ErrorSummary {
        draws: 32,
        zeros_skipped: 0,
        mere,
        rel_l2,
        sqnr_db: 30.0,
        median_rel: 0.02,
        max_abs: 1.0,
        block_rel_l2: None,
        loss_cost,
        loss_excess: None,
        noise: None,
        bias: None,
    }
}

fn generate(num_sites: usize, seed: u64) -> Results {
    let mut dice = Rng::new(seed, &[]);
    let shape = GemmShape { m: 8192, k: 512, n: 512 };
    let mut rows = Vec::with_capacity(num_sites * 24);
    let mut sites = Vec::with_capacity(num_sites);
    let kernels = KERNELS.map(KernelId::new);
    for index in 0..num_sites {
        let site = SiteId::new(&format!("net.layers.{index}.fmb.mlp.0"));
        sites.push(serde_json::json!({"id": site, "m": shape.m, "k": shape.k, "n": shape.n, "dtype": "f32"}));
        let baseline_us = 5.0 + 500.0 * dice.uniform();
        for gemm in Gemm::ALL {
            for (number, kernel) in kernels.iter().enumerate() {
                let speedup = if number == 0 { 1.0 } else { 0.6 + dice.uniform() };
                let latency = Latency {
                    latency_us: Some(baseline_us / speedup),
                    // The rest is casts, which tensorwise kernels share.
                    gemm_us: Some((0.5 + 0.5 * dice.uniform()) * baseline_us / speedup),
                    baseline_us: Some(baseline_us),
                    source: LatencySource::Modelled,
                    ..Latency::unknown("generated")
                };
                rows.push(ResultRow {
                    site: site.clone(),
                    gemm,
                    kernel: kernel.clone(),
                    mods: ModSet::none(),
                    shape,
                    supported: true,
                    reason: None,
                    error: Some(error(&mut dice, gemm)),
                    latency,
                    fidelity: None,
                    static_scale: None,
                    flushed: None,
                    sampler: "gaussian".into(),
                    engine: "cpu".into(),
                    device: "generated".into(),
                    seed,
                });
            }
        }
    }
    let manifest: Manifest = serde_json::from_value(serde_json::json!({
        "version": 1, "model": {"name": "generated"}, "run": {"id": "r", "step": 1},
        "loss": {"name": "log_loss", "value": 0.5}, "sites": sites,
    }))
    .unwrap();
    let meta = ResultsMeta {
        trace_digest: "sha256:00".to_owned(),
        manifest,
        engine: "cpu".to_owned(),
        device: "generated".to_owned(),
        driver: String::new(),
        versions: String::new(),
        time: "2026-11-20T00:00:00Z".to_owned(),
        seed,
        confidence: 0.95,
        problems: Vec::new(),
        site_times: None,
    };
    Results { meta, rows }
}

fn plan(results: &Results, policy: &Policy) -> Plan {
    build(results, policy, &SiteMods::default(), &Overrides::new(), "scale", "2026-11-20T00:00:00Z").unwrap().plan
}

/// One error in fifty and one latency in fifty moved beyond its interval.
fn drawn_again(results: &Results) -> Results {
    let mut again = results.clone();
    for row in again.rows.iter_mut().step_by(50) {
        if let Some(error) = &mut row.error {
            let value = 1.5 * error.mere.value;
            error.mere = Estimate::new(value, 0.9 * value, 1.1 * value);
        }
    }
    for row in again.rows.iter_mut().skip(25).step_by(50) {
        row.latency.latency_us = row.latency.latency_us.map(|us| 1.2 * us);
    }
    again
}

fn plan_scale(criterion: &mut Criterion) {
    for num_sites in [1_000, 10_000] {
        let (results, other) = (generate(num_sites, 1), generate(num_sites, 2));
        let mut group = criterion.benchmark_group("plan");
        group.sample_size(10).throughput(Throughput::Elements(num_sites as u64));
        for name in Policy::BUILTIN {
            let policy = Policy::builtin(name).unwrap();
            group.bench_function(BenchmarkId::new(name, num_sites), |b| b.iter(|| plan(black_box(&results), &policy)));
        }
        let (a, b) = (plan(&results, &Policy::paper()), plan(&other, &Policy::paper()));
        group.bench_function(BenchmarkId::new("check", num_sites), |bench| {
            bench.iter(|| check(black_box(&a), &results));
        });
        group.bench_function(BenchmarkId::new("diff", num_sites), |bench| bench.iter(|| diff(black_box(&a), &b)));
        // Another draw of the same model, with everything else as it was.
        let (paper, none) = (Policy::paper(), SiteMods::default());
        let again = drawn_again(&results);
        group.bench_function(BenchmarkId::new("diff of results", num_sites), |bench| {
            bench.iter(|| diff_results(black_box(&results), &again, &paper, &none).unwrap());
        });
        let text = a.to_json();
        group.bench_function(BenchmarkId::new("read", num_sites), |bench| {
            bench.iter(|| Plan::from_json(black_box(&text)));
        });
        let candidates = Candidates::new(&results, &SiteMods::default());
        let policy = Policy::loss_budget();
        group.bench_function(BenchmarkId::new("frontier", num_sites), |bench| {
            bench.iter(|| frontier(black_box(&candidates), &policy, 0.5));
        });
        group.finish();
    }
}

criterion_group!(benches, plan_scale);
criterion_main!(benches);
