//! One row of the results (`*.results.parquet`, docs/reference/results.md) and the file's circumstances.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Estimate, Gemm, GemmShape, KernelId, LatencySource, Manifest, Metric, ModSet, SiteId, SiteTimes, StaticScale,
    baseline_kernel,
};

/// Errors of one GEMM's output over all draws so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorSummary {
    pub draws: u64,
    /// Elements with ref = 0, left out of the relative errors.
    pub zeros_skipped: u64,
    pub mere: Estimate,
    pub rel_l2: Estimate,
    pub sqnr_db: f64,
    pub median_rel: f64,
    pub max_abs: f64,
    /// After bias, tail and the next cast; `None` without a tail.
    pub block_rel_l2: Option<Estimate>,
    /// In units of the loss; `None` without gradients, and for dgrad and wgrad.
    pub loss_cost: Option<Estimate>,
    /// What is charged of it: beyond BF16's at the same GEMM. Derived ([`charge_excess`]), never stored; `None` without
    /// a row of BF16.
    #[serde(default)]
    pub loss_excess: Option<Estimate>,
    /// Of dgrad and wgrad.
    #[serde(default)]
    pub noise: Option<NoiseShare>,
    /// Slope of output on reference less one; of wgrad in fast accumulation at most minus what was recorded as cut off.
    #[serde(default)]
    pub bias: Option<Estimate>,
}

/// What an error adds to the noise that a batch's gradient has anyway (docs/concepts/method.md).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseShare {
    pub share: Estimate,
    pub basis: NoiseBasis,
    /// Of wgrad, where the trace says how large the gradient was step by step.
    #[serde(default)]
    pub steps: Option<StepErrors>,
}

/// rel L2 of a weight's gradient in the first recorded step, and in the last five (the median). Rounding errs by a share of
/// each product, and what is left of their sum changes as a model learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepErrors {
    pub first: f64,
    pub last: f64,
}

/// What is known of the noise that a share is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoiseBasis {
    /// E[|x|^2 |g|^2] was recorded.
    Recorded,
    /// It is taken to be E|x|^2 E|g|^2.
    Independent,
}

impl NoiseBasis {
    pub const ALL: [Self; 2] = [Self::Recorded, Self::Independent];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Independent => "independent",
        }
    }
}

/// Beyond this share of the loss a second-order estimate means nothing: it is the first term of a series in the change
/// of the loss.
pub const LOSS_COST_RANGE: f64 = 0.1;

impl ErrorSummary {
    /// The metric with its interval; metrics that have none come as a point.
    pub fn metric(&self, metric: Metric) -> Option<Estimate> {
        match metric {
            Metric::Mere => Some(self.mere),
            Metric::RelL2 => Some(self.rel_l2),
            Metric::SqnrDb => Some(Estimate::exact(self.sqnr_db)),
            Metric::MedianRel => Some(Estimate::exact(self.median_rel)),
            Metric::MaxAbs => Some(Estimate::exact(self.max_abs)),
            Metric::BlockRelL2 => self.block_rel_l2,
            // BF16 is what the model is trained in: its own error is no cost of a plan.
            Metric::LossCost => self.loss_excess.or(self.loss_cost),
            Metric::NoiseShare => self.noise.map(|noise| noise.share),
            Metric::Bias => self.bias,
        }
    }

    /// The loss cost as measured is more than a tenth of the loss: whatever is charged of it means nothing.
    pub fn is_loss_cost_out_of_range(&self, loss: f64) -> bool {
        // A loss of 0 is of a trace that does not say.
        let means_nothing = |cost: Estimate| cost.value > LOSS_COST_RANGE * loss || cost.value.is_nan();
        loss > 0.0 && self.loss_cost.is_some_and(means_nothing)
    }
}

/// Microseconds, with where they came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Casts included, both operands.
    pub latency_us: Option<f64>,
    pub latency_lo_us: Option<f64>,
    pub latency_hi_us: Option<f64>,
    pub gemm_us: Option<f64>,
    pub cast_us: Option<f64>,
    /// `latency_us` with the weight already cast. Of a kernel with a static scale x is BF16 here and in
    /// `latency_us`, and already codes in `gemm_us`.
    pub cached_us: Option<f64>,
    /// `cublaslt/bf16` from the same source.
    pub baseline_us: Option<f64>,
    /// Bias, norm and activation after fprop, from the bytes they move. Always modelled.
    pub tail_us: Option<f64>,
    pub source: LatencySource,
    /// Device, versions and, when modelled, the fit's error: one line for a tooltip.
    pub note: Arc<str>,
}

impl Latency {
    pub fn unknown(note: &str) -> Self {
        Self {
            latency_us: None,
            latency_lo_us: None,
            latency_hi_us: None,
            gemm_us: None,
            cast_us: None,
            cached_us: None,
            baseline_us: None,
            tail_us: None,
            source: LatencySource::None,
            note: note.into(),
        }
    }

    /// The GPU that it was timed on, out of the note: results that were written before have nothing else that says it.
    pub fn device(&self) -> Option<&str> {
        let known = ["recorded on ", "measured here on "].into_iter().find_map(|how| self.note.strip_prefix(how));
        let on =
            known.or_else(|| self.note.strip_prefix("modelled from ")?.split_once(" recorded on ").map(|of| of.1))?;
        on.split_once(", driver ").map(|(device, _)| device)
    }

    /// The note for people: *here* was the machine that measured, which need not be the one that reads it.
    pub fn told(&self) -> String {
        self.note.replacen("measured here on ", "measured on ", 1)
    }

    /// `baseline_us / latency_us`.
    pub fn speedup(&self) -> Option<f64> {
        match (self.baseline_us, self.latency_us) {
            (Some(baseline), Some(latency)) if latency > 0.0 => Some(baseline / latency),
            _ => None,
        }
    }
}

/// The same kernel on the trace's held-out rows instead of sampled ones: how faithful the sampler is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    pub rows: u64,
    pub heldout_rel_l2: f64,
    pub heldout_mere: f64,
}

/// Error and speed of one kernel at one GEMM of one site under one set of mods. Its texts are those of many rows: one copy of
/// each where they come from a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    pub site: SiteId,
    pub gemm: Gemm,
    pub kernel: KernelId,
    pub mods: ModSet,
    pub shape: GemmShape,
    pub supported: bool,
    /// Why it is not supported or has no error.
    pub reason: Option<Arc<str>>,
    pub error: Option<ErrorSummary>,
    pub latency: Latency,
    pub fidelity: Option<Fidelity>,
    /// Of x at fprop and of dy at dgrad and wgrad; `None` where the kernel finds its scales itself.
    pub static_scale: Option<StaticScale>,
    /// Share of the left operand's elements that are not zero and that its cast to FP8 makes zero, the mean over draws.
    pub flushed: Option<f64>,
    /// How inputs were drawn: `gaussian`, `copula`, or `through <site>` behind a modified block.
    pub sampler: Arc<str>,
    pub engine: Arc<str>,
    pub device: Arc<str>,
    pub seed: u64,
}

impl ResultRow {
    pub fn metric(&self, metric: Metric) -> Option<Estimate> {
        self.error.as_ref().and_then(|error| error.metric(metric))
    }

    pub fn speedup(&self) -> Option<f64> {
        self.latency.speedup()
    }

    /// See [`ErrorSummary::is_loss_cost_out_of_range`].
    pub fn is_loss_cost_out_of_range(&self, loss: f64) -> bool {
        self.error.as_ref().is_some_and(|error| error.is_loss_cost_out_of_range(loss))
    }

    /// Its loss cost decides nothing: it is out of its range. BF16 is charged nothing, whatever its own cost, and that means
    /// what it says; of a kernel in low precision that errs no more than a BF16 which is out of range itself, it does not.
    pub fn loss_cost_means_nothing(&self, loss: f64) -> bool {
        let decides = || !self.kernel.is_low_precision() && self.charged_loss_cost(loss).is_some();
        self.is_loss_cost_out_of_range(loss) && !decides()
    }

    /// The metric as it may be held against a bound or shown by itself: `None` also where it is a loss cost that means nothing.
    pub fn figure(&self, metric: Metric, loss: f64) -> Option<Estimate> {
        self.metric(metric).filter(|_| metric != Metric::LossCost || !self.loss_cost_means_nothing(loss))
    }

    /// What a budget is charged: `None` where nobody knows, or where the figure means nothing. What BF16 is charged, which
    /// is nothing, always means what it says.
    pub fn charged_loss_cost(&self, loss: f64) -> Option<Estimate> {
        let error = self.error.as_ref()?;
        let charged = error.metric(Metric::LossCost).filter(|cost| cost.hi.is_finite())?;
        let is_free = error.loss_excess.is_some_and(|excess| excess.hi == 0.0);
        (is_free || !error.is_loss_cost_out_of_range(loss)).then_some(charged)
    }
}

/// Charges every loss cost with what it is beyond BF16's at the same GEMM, site and mods. BF16 is charged nothing, and
/// nobody less than that.
pub fn charge_excess(rows: &mut [ResultRow]) {
    let of_bf16 = Bf16LossCosts::of(rows.iter());
    of_bf16.charge(rows);
}

/// What BF16's own rounding costs each site under each set of mods.
pub(crate) struct Bf16LossCosts(HashMap<(SiteId, ModSet), f64>);

impl Bf16LossCosts {
    pub fn of<'a>(rows: impl Iterator<Item = &'a ResultRow>) -> Self {
        let baseline = baseline_kernel();
        let of_bf16 = rows.filter(|row| row.gemm == Gemm::Fprop && row.kernel == baseline);
        let cost = |row: &ResultRow| Some(row.error.as_ref()?.loss_cost?.value);
        Self(of_bf16.filter_map(|row| Some(((row.site.clone(), row.mods.clone()), cost(row)?))).collect())
    }

    pub fn charge(&self, rows: &mut [ResultRow]) {
        let baseline = baseline_kernel();
        let mut key = None;
        for row in rows.iter_mut().filter(|row| row.gemm == Gemm::Fprop) {
            let is_baseline = row.kernel == baseline;
            let Some(error) = row.error.as_mut().filter(|error| error.loss_cost.is_some()) else { continue };
            // Neighbours are mostly of one site: their place is looked up once.
            let known = match &key {
                Some((site, mods, known)) if *site == row.site && *mods == row.mods => *known,
                _ => {
                    let known = self.0.get(&(row.site.clone(), row.mods.clone())).copied();
                    key = Some((row.site.clone(), row.mods.clone(), known));
                    known
                }
            };
            error.loss_excess = error.loss_cost.zip(known).map(|(cost, of_bf16)| cost.beyond(of_bf16, is_baseline));
        }
    }
}

/// The Parquet metadata key `loka.results`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultsMeta {
    /// `sha256:` + hex of the trace file's bytes.
    pub trace_digest: String,
    #[serde(with = "super::as_text")]
    pub manifest: Manifest,
    pub engine: String,
    pub device: String,
    pub driver: String,
    pub versions: String,
    /// RFC 3339, UTC.
    pub time: String,
    pub seed: u64,
    pub confidence: f64,
    /// Sites of the trace that could not be probed, and why.
    pub problems: Vec<(SiteId, String)>,
    /// What whole sites take where they were timed; Dispatch goes by these before it adds up GEMMs.
    #[serde(default)]
    pub site_times: Option<SiteTimes>,
}

/// A whole results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub meta: ResultsMeta,
    pub rows: Vec<ResultRow>,
}

impl Results {
    /// Rows and problems as a file has them, however they came: rows by the names of site, GEMM, kernel and mods,
    /// problems in forward order.
    pub fn in_order(&mut self) {
        let key = |row: &ResultRow| (row.site.clone(), row.gemm, row.kernel.clone(), row.mods.clone());
        self.rows.sort_by_cached_key(key);
        let sites = self.meta.manifest.sites.iter().enumerate();
        let at: HashMap<&SiteId, usize> = sites.map(|(at, site)| (&site.id, at)).collect();
        self.meta.problems.sort_by_key(|(site, _)| at.get(site).copied());
    }
}
