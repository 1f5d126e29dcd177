//! Takes a few numbers, gives rows and results for tests of dispatch and plan.

use serde_json::json;

use crate::model::{
    ErrorSummary, Estimate, Gemm, GemmShape, KernelId, Latency, LatencySource, Manifest, ModSet, ResultRow, Results,
    ResultsMeta, Runtime, SiteId, SiteTime, SiteTimes, Spread, StaticScale,
};

pub const SHAPE: GemmShape = GemmShape { m: 64, k: 32, n: 16 };

/// Every metric is `error` with a 10 % interval; a cost of 0 is no loss cost. The reference takes 100 us.
pub fn row(site: &str, gemm: Gemm, kernel: &str, error: f64, speedup: Option<f64>, cost: f64) -> ResultRow {
    let around = |value: f64| Estimate::new(value, 0.9 * value, 1.1 * value);
    let latency = Latency {
        latency_us: speedup.map(|speedup| 100.0 / speedup),
        baseline_us: speedup.map(|_| 100.0),
        source: if speedup.is_some() { LatencySource::Recorded } else { LatencySource::None },
        ..Latency::unknown("a test")
    };
    let summary = ErrorSummary {
        draws: 8,
        zeros_skipped: 0,
        mere: around(error),
        rel_l2: around(error),
        sqnr_db: -20.0 * error.log10(),
        median_rel: error,
        max_abs: error,
        block_rel_l2: None,
        loss_cost: (cost > 0.0).then(|| around(cost)),
        loss_excess: None,
        noise: None,
        bias: Some(Estimate::new(0.0, 0.0, 0.0)),
    };
    ResultRow {
        site: SiteId::new(site),
        gemm,
        kernel: KernelId::new(kernel),
        mods: ModSet::none(),
        shape: SHAPE,
        supported: true,
        reason: None,
        error: Some(summary),
        latency,
        fidelity: None,
        static_scale: None,
        flushed: None,
        sampler: "gaussian".into(),
        engine: "cpu".into(),
        device: "a test".into(),
        seed: 1,
    }
}

/// With the bare product's time, so that the rest of the latency is casts.
pub fn with_gemm_us(row: ResultRow, gemm_us: f64) -> ResultRow {
    let latency = Latency { gemm_us: Some(gemm_us), ..row.latency };
    ResultRow { latency, ..row }
}

/// A kernel with a static scale: what it takes with the weight already cast, and with x in codes too.
pub fn with_codes(row: ResultRow, scale: f32, cached_us: f64, gemm_us: f64) -> ResultRow {
    let latency = Latency { cached_us: Some(cached_us), gemm_us: Some(gemm_us), ..row.latency };
    ResultRow { latency, static_scale: Some(StaticScale { scale, saturation: 0.0 }), ..row }
}

/// `loka/fp8-block+fast`, which takes so long for GEMM and tail, where BF16 takes 100 us and the tail by itself
/// `tail_us`.
pub fn block(site: &str, error: f64, latency_us: f64, tail_us: f64, cost: f64) -> ResultRow {
    let row = row(site, Gemm::Fprop, "loka/fp8-block+fast", error, Some(1.0), cost);
    let (baseline_us, tail_us) = (Some(100.0 + tail_us), Some(tail_us));
    let latency = Latency { latency_us: Some(latency_us), baseline_us, tail_us, ..row.latency };
    ResultRow { latency, ..row }
}

/// Who feeds whom. All sites become square, and large enough that storing codes takes 1 us.
pub fn fed(mut results: Results, feeds: &[(&str, &[&str])]) -> Results {
    for site in &mut results.meta.manifest.sites {
        (site.m, site.k, site.n) = (43_000, 100, 100);
        let of = feeds.iter().filter(|(from, _)| *from == site.id.as_str());
        site.feeds = of.flat_map(|(_, to)| to.iter().map(|to| SiteId::new(to))).collect();
    }
    results
}

pub fn unsupported(site: &str, gemm: Gemm, kernel: &str, reason: &str) -> ResultRow {
    let reason = Some(reason.into());
    ResultRow {
        supported: false,
        reason,
        error: None,
        latency: Latency::unknown(""),
        ..row(site, gemm, kernel, 0.1, None, 0.0)
    }
}

/// BF16 at every GEMM of every site, and the rows given.
pub fn results(sites: &[&str], mut rows: Vec<ResultRow>) -> Results {
    for site in sites {
        rows.extend(Gemm::ALL.map(|gemm| row(site, gemm, "cublaslt/bf16", 0.003, Some(1.0), 0.0)));
    }
    let sites: Vec<_> =
        sites.iter().map(|id| json!({"id": id, "m": SHAPE.m, "k": SHAPE.k, "n": SHAPE.n, "dtype": "f32"})).collect();
    let manifest: Manifest = serde_json::from_value(json!({
        "version": 1,
        "model": {"name": "toy", "family": "wukong"},
        "run": {"id": "toy-0", "step": 10},
        "loss": {"name": "log_loss", "value": 0.5},
        "sites": sites,
    }))
    .unwrap();
    let meta = ResultsMeta {
        trace_digest: "sha256:00".to_owned(),
        manifest,
        engine: "cpu".to_owned(),
        device: "a test".to_owned(),
        driver: String::new(),
        versions: "1".to_owned(),
        time: "2026-11-20T00:00:00Z".to_owned(),
        seed: 1,
        confidence: 0.95,
        problems: Vec::new(),
        site_times: None,
    };
    Results { meta, rows }
}

/// A site of [`SHAPE`] by three kernels, timed without any spread.
pub fn site_time(runtime: Runtime, kernels: [&str; 3], bf16_us: f64, us: f64) -> SiteTime {
    let spread = |us: f64| Some(Spread { us, p10_us: us, p90_us: us });
    SiteTime {
        shape: SHAPE,
        runtime,
        kernels: kernels.map(KernelId::new),
        site: spread(us),
        bf16: spread(bf16_us),
        codes: None,
        samples: 15,
        reason: None,
    }
}

pub fn site_times(rows: Vec<SiteTime>) -> SiteTimes {
    SiteTimes { device: "a test".to_owned(), rows, ..SiteTimes::default() }
}

/// Numbers for tests that need many instances and no distribution in particular.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.unit() * bound as f64) as usize
    }
}

/// Forty sites, the first ones in a chain: rows fast and slow, with casts to share and with codes, of other GPUs, refused, of
/// unknown kernels.
pub(crate) fn every_kind_of_row() -> Results {
    let mut dice = Dice::new(11);
    let names: Vec<String> = (0..40).map(|site| format!("s{site}")).collect();
    let mut rows = Vec::new();
    for name in &names {
        for gemm in Gemm::ALL {
            for kernel in ["cublaslt/fp8-tensorwise+fast", "te/current", "fbgemm/rowwise", "own/unknown"] {
                let speedup = (dice.below(9) > 0).then(|| 0.8 + dice.unit());
                let mut made = row(name, gemm, kernel, 0.3 * dice.unit(), speedup, 2e-6 * dice.unit());
                made.latency.note = ["recorded on A, driver 1", "recorded on B, driver 1"][dice.below(2)].into();
                rows.push(with_gemm_us(made, 40.0));
            }
            rows.push(unsupported(name, gemm, "deepgemm/blockwise", "k is 13"));
        }
        let error = 0.1 * dice.unit();
        rows.push(with_codes(row(name, Gemm::Fprop, "loka/fp8-static+fast", error, Some(1.3), 1e-6), 0.5, 60.0, 40.0));
        rows.push(with_codes(block(name, error, 70.0, 20.0, 1e-6), 0.5, 60.0, 40.0));
    }
    let sites: Vec<&str> = names.iter().map(String::as_str).collect();
    fed(results(&sites, rows), &[("s0", &["s1"]), ("s1", &["s2", "s3"])])
}
