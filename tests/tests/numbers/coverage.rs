//! The stated intervals hold what they promise on the real trace: many independent short probes of one
//! site, and how often each metric's 95 % interval contains the value of a long run.

use std::{collections::BTreeMap, sync::Mutex};

use loka_core::{
    engine::CpuEngine,
    model::{Estimate, Gemm, Metric, SiteId, kernel},
    probe::{Control, ProbeConfig, ProbeEvent, probe},
    trace::Trace,
};
use loka_tests::sample;

const SITE: &str = "net.layers.0.fmb.mlp.3";
const METRICS: [Metric; 3] = [Metric::Mere, Metric::RelL2, Metric::LossCost];

/// Draws of a short probe: fewer than the default 16, where a t interval from few draws is most strained.
const SHORT: u64 = 8;
const LONG: u64 = 400;
const TRIALS: u64 = 120;

type Estimates = BTreeMap<(Gemm, Metric), Estimate>;

fn estimates(trace: &Trace, seed: u64, draws: u64) -> Estimates {
    let config = ProbeConfig {
        kernels: vec![kernel("cublaslt/fp8-rowwise").unwrap()],
        min_draws: draws,
        max_draws: draws,
        seed,
        threads: 1,
        ..ProbeConfig::default()
    };
    let found = Mutex::new(Estimates::new());
    let sink = |event: ProbeEvent| {
        if let ProbeEvent::Rows(rows) = event {
            for row in rows {
                let of = |metric| Some(((row.gemm, metric), row.metric(metric)?));
                found.lock().unwrap().extend(METRICS.into_iter().filter_map(of));
            }
        }
    };
    probe(trace, &[SiteId::new(SITE)], &CpuEngine, &config, &Control::new(), &sink);
    found.into_inner().unwrap()
}

/// Seeds that two threads share: what they find does not depend on which of them took it.
fn short_probes(trace: &Trace) -> Vec<Estimates> {
    std::thread::scope(|scope| {
        let half = |first: u64| move || (first..=TRIALS).step_by(2).map(|seed| estimates(trace, seed, SHORT)).collect();
        let other = scope.spawn(half(2));
        let mut found: Vec<Estimates> = half(1)();
        found.extend(other.join().unwrap());
        found
    })
}

#[test]
fn the_intervals_cover() {
    let trace = Trace::open(&sample()).unwrap();
    let (long, short) = (estimates(&trace, 0, LONG), short_probes(&trace));
    assert_eq!((long.len(), short.len()), (7, TRIALS as usize), "mere and rel_l2 of three GEMMs, loss_cost of fprop");
    for ((gemm, metric), truth) in long {
        let of = |found: &Estimates| found[&(gemm, metric)];
        let covers = |found: &&Estimates| of(found).lo <= truth.value && truth.value <= of(found).hi;
        let coverage = short.iter().filter(covers).count() as f64 / TRIALS as f64;
        let width = short.iter().map(|found| (of(found).hi - of(found).lo) / 2.0).sum::<f64>() / TRIALS as f64;
        println!(
            "{gemm} {metric}: {:.1} % of {TRIALS}, ± {:.1} % of the value",
            100.0 * coverage,
            100.0 * width / truth.value
        );
        // Of 300 trials with a long run of 1,500 draws 91 % (wgrad's rel_l2) to 96 % covered. Here 120 trials
        // find that within 2.5 %: below 85 % an interval promises too much, and one that always covers
        // says nothing.
        assert!((0.85..1.0).contains(&coverage), "{gemm} {metric}: {coverage}");
    }
}
