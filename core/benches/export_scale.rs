//! Takes a generated plan of 10,000 sites with every kernel, gives the time to export it to each target, with the
//! resolution of all names: under 2 s each. Cost a site must stay flat.

// A benchmark that cannot set itself up has nothing to report.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use loka_core::{
    dispatch::{Policy, Totals},
    export::{Target, export, modules_of},
    model::catalogue,
    plan::{FORMAT, Plan, VERSION},
};
use serde_json::{Value, json};

fn plan(num_sites: usize) -> Plan {
    let kernels: Vec<&str> = catalogue().iter().map(|kernel| kernel.name).collect();
    let choice = |number: usize| -> Value {
        json!({
            "kernel": kernels[number % kernels.len()], "source": "dispatch", "reason": "generated",
            "error": {"mere": 0.1}, "speedup": 1.2, "runners_up": [],
        })
    };
    let sites: Vec<Value> = (0..num_sites)
        .map(|at| {
            let (fprop, backward) = (choice(at), choice(at / 3));
            let name = format!("net.layers.{}.fmb.mlp.{}", at / 7, at % 7);
            json!({"site": name, "fprop": fprop, "dgrad": backward, "wgrad": backward})
        })
        .collect();
    serde_json::from_value(json!({
        "format": FORMAT, "version": VERSION, "name": "scale", "created_at": "2026-11-20T00:00:00Z",
        "model": {"name": "generated"}, "trace_digest": "sha256:00", "results_digest": "sha256:00",
        "policy": Policy::paper(), "mods": {}, "sites": sites, "totals": Totals::default(), "digest": "sha256:00",
    }))
    .unwrap()
}

fn export_scale(criterion: &mut Criterion) {
    for num_sites in [1_000, 10_000] {
        let plan = plan(num_sites);
        let modules = modules_of(&plan);
        let mut group = criterion.benchmark_group("export");
        group.sample_size(10).throughput(Throughput::Elements(num_sites as u64));
        for target in Target::ALL {
            group.bench_function(BenchmarkId::new(target.as_str(), num_sites), |bench| {
                bench.iter(|| export(black_box(&plan), &modules, target, "").unwrap());
            });
        }
        group.finish();
    }
}

criterion_group!(benches, export_scale);
criterion_main!(benches);
