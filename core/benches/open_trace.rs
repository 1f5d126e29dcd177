//! Opening a trace of a gigabyte: to the site list, and with every tensor checked.
//!
//! `cargo bench -p loka_core --bench open_trace` writes a generated trace of 1,000 sites to a temporary
//! folder, prints one JSON line and removes it.

use std::time::Instant;

use loka_core::{
    model::{Loss, Manifest, Model, Run, Site, SiteId},
    numerics::rng::Rng,
    trace::{self, Covariance, Distribution, SiteStats, Trace, TraceData, WeightStats},
};

const SITES: usize = 1000;
const FEATURES: usize = 512;
const RANK: usize = 16;

fn site(index: usize) -> SiteStats {
    let mut values = vec![0f32; FEATURES * FEATURES];
    Rng::new(index as u64, &[b"open"]).fill_normal(&mut values);
    let wide = |from: &[f32]| from.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
    let cov = Covariance::Factor {
        factor: wide(&values[..FEATURES * RANK]),
        rank: RANK,
        diag: wide(&values[..FEATURES]).into_iter().map(f64::abs).collect(),
    };
    let site = Site {
        id: SiteId::new(&format!("net.layers.{index}.linear")),
        class: "torch.nn.Linear".to_owned(),
        source: None,
        m: 8192,
        k: FEATURES,
        n: FEATURES,
        dtype: "f32".to_owned(),
        calls: 1,
        forward: None,
        grads: Default::default(),
        bias: false,
        head: false,
        tail: Vec::new(),
        feeds: Vec::new(),
        extra: Default::default(),
    };
    let input =
        Distribution { count: 8192, mean: wide(&values[..FEATURES]), cov, quantiles: None, hist: None, amax: None };
    SiteStats::new(site, input, WeightStats::Snapshot(values))
}

fn data() -> TraceData {
    let sites: Vec<SiteStats> = (0..SITES).map(site).collect();
    let model = Model {
        name: "generated".to_owned(),
        family: String::new(),
        framework: String::new(),
        parameters: 0,
        note: None,
        extra: Default::default(),
    };
    let run = Run {
        id: "generated".to_owned(),
        rank: 0,
        world_size: 1,
        step: 1,
        every: 1,
        device: String::new(),
        recorded_at: None,
        extra: Default::default(),
    };
    let loss = Loss { name: "log_loss".to_owned(), value: 0.5, weight: None, extra: Default::default() };
    let described = sites.iter().map(|stats| stats.site.clone()).collect();
    let manifest = Manifest {
        version: 1,
        model,
        run,
        loss,
        quantile_probs: Vec::new(),
        sites: described,
        extra: Default::default(),
    };
    TraceData { manifest, sites }
}

#[expect(clippy::expect_used, clippy::print_stdout, reason = "a benchmark's command line")]
fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("generated.trace.safetensors");
    trace::write(&path, &data()).expect("written");
    let bytes = std::fs::metadata(&path).expect("there").len();
    let mut open_ms: Vec<f64> = (0..20)
        .map(|_| {
            let started = Instant::now();
            let trace = Trace::open(&path).expect("opens");
            assert_eq!(trace.sites().len(), SITES);
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    open_ms.sort_by(f64::total_cmp);
    let trace = Trace::open(&path).expect("opens");
    let started = Instant::now();
    assert!(trace.check_all().is_empty());
    let check_seconds = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let digest = trace.digest();
    println!(
        "{}",
        serde_json::json!({
            "bytes": bytes, "sites": SITES, "open_median_ms": open_ms[10], "open_worst_ms": open_ms[19],
            "check_all_seconds": check_seconds, "digest_seconds": started.elapsed().as_secs_f64(), "digest": digest,
        })
    );
}
