//! Everything about one site, ready to draw: takes a snapshot and its plan, gives shapes, the tail, the
//! kernels of each GEMM with their verdicts, and what would change them. One site is cheap: a few dozen rows.

mod overriding;
mod verdict_margin;
pub mod words;

pub use overriding::{Broken, OverrideEffect, override_effect};
pub use verdict_margin::{
    ErrorOutlook, Faithful, MOST_DRAWS, MoreDraws, Outlook, Parts, SlowPart, SpeedOutlook, draws_to_ask, further_draws,
};

use std::sync::Arc;

use crate::{
    dispatch::{
        Bound, Choice, ChoiceSource, SharedCast, bound_of, chain::extra_us, decided_by, judge, own_us, shared_casts,
    },
    format::Term,
    model::{
        Estimate, Gemm, GemmShape, KernelId, LatencySource, Metric, Quadrant, ResultRow, Site, SiteId, baseline_kernel,
        catalogue, op_name,
    },
    mods::modified_ops,
    views::{PlanView, Snapshot},
};

/// One site.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteView {
    /// Its number in the trace.
    pub at: usize,
    pub tail: Vec<TailStep>,
    /// In the order of [`Gemm::ALL`].
    pub gemms: [GemmView; 3],
    /// Casts that the chosen kernels share.
    pub shared: Vec<SharedCast>,
    /// What the forward GEMM takes or hands on as codes.
    pub chain: Option<ChainView>,
    /// Why the site cannot be used.
    pub problem: Option<String>,
}

/// How a site's x arrives and how its output is stored, where either is codes. Times are as [`crate::dispatch::Chain`] has
/// them.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainView {
    pub reads: Option<CodesRead>,
    pub stores: Option<CodesStored>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CodesRead {
    pub from: SiteId,
    pub scale: f64,
    /// By the cast that is not needed.
    pub saved_us: f64,
    /// BF16 is there too.
    pub beside_bf16: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CodesStored {
    pub to: Vec<SiteId>,
    pub scale: f64,
    /// What the codes take beside BF16; `None`: BF16 is not stored.
    pub beside_us: Option<f64>,
}

/// One step of what follows the linear, under the mods in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailStep {
    pub name: String,
    /// What was recorded, where a mod changes it.
    pub was: Option<String>,
}

/// One of a site's three GEMMs.
#[derive(Clone, Debug, PartialEq)]
pub struct GemmView {
    pub gemm: Gemm,
    /// Of the output, and what is reduced over.
    pub rows: usize,
    pub reduced: usize,
    pub cols: usize,
    pub bound: Bound,
    pub choice: Option<Choice>,
    /// Of the chosen kernel where it is in low precision, else of the one that is nearest to be chosen.
    pub verdict: Option<Quadrant>,
    /// In catalogue order.
    pub kernels: Vec<KernelLine>,
    /// The low-precision kernel that the least would have to change for, by its place in `kernels`.
    pub nearest: Option<usize>,
    /// What the chosen kernel saves against the first runner-up, in the time of the baseline.
    pub ahead: Option<(KernelId, f64)>,
    /// What to ask for so that verdicts may be expected to stand; `None` before the first rows.
    pub draws_to_ask: Option<u64>,
}

/// Whether a kernel was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelStanding {
    Chosen,
    Overridden,
    /// 1 is the first.
    RunnerUp(usize),
    Other,
}

/// One kernel at one GEMM.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelLine {
    pub kernel: KernelId,
    pub about: &'static str,
    pub is_low: bool,
    /// Why it cannot run here; `None`: it can.
    pub unsupported: Option<Arc<str>>,
    /// In the metric that was asked for.
    pub error: Option<Estimate>,
    /// It has none there because it is a loss cost outside its range, which means nothing.
    pub is_out_of_range: bool,
    pub draws: Option<u64>,
    pub latency_us: Option<f64>,
    pub latency_range_us: Option<(f64, f64)>,
    pub parts: Option<Parts>,
    pub source: LatencySource,
    pub note: Arc<str>,
    pub speedup: Option<f64>,
    pub quadrant: Quadrant,
    pub verdict_margin: Outlook,
    pub standing: KernelStanding,
}

/// What the kernels can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelColumn {
    /// As the catalogue lists them: by library and recipe.
    #[default]
    Kernel,
    Error,
    Draws,
    Latency,
    Speedup,
}

impl KernelColumn {
    /// What stands in the column where this metric is shown.
    pub fn term(self, metric: Metric) -> Term {
        match self {
            Self::Kernel => Term::Kernel,
            Self::Error => Term::of_metric(metric),
            Self::Draws => Term::Draw,
            Self::Latency => Term::Latency,
            Self::Speedup => Term::Speedup,
        }
    }
}

impl SiteView {
    /// `None`: the trace has no such site.
    pub fn of(snapshot: &Snapshot, plan: &PlanView, id: &SiteId, metric: Metric) -> Option<Self> {
        let at = snapshot.index.at(id)?;
        let site = snapshot.sites().get(at)?;
        let seen = Looking { snapshot, plan, site, at, metric, loss: snapshot.loss() };
        let gemms = Gemm::ALL.map(|gemm| seen.gemm(gemm));
        Some(Self {
            at,
            tail: tail(snapshot, site, at),
            shared: seen.shared(),
            chain: seen.chain(),
            problem: snapshot.trace.meta.problems.iter().find(|(of, _)| of == id).map(|(_, reason)| reason.clone()),
            gemms,
        })
    }
}

/// Sites whose outputs this one reads. Looks at every site: ask when the selection changes.
pub fn fed_by(sites: &[Site], id: &SiteId) -> Vec<SiteId> {
    sites.iter().filter(|site| site.feeds.contains(id)).map(|site| site.id.clone()).collect()
}

fn tail(snapshot: &Snapshot, site: &Site, at: usize) -> Vec<TailStep> {
    let mods = snapshot.mods_of(at);
    let (ops, bias) = modified_ops(site, mods);
    let mut steps = Vec::new();
    if site.bias {
        let name = if bias { "bias" } else { "no bias" }.to_owned();
        steps.push(TailStep { name, was: (!bias).then(|| "bias".to_owned()) });
    }
    for (recorded, now) in site.tail.iter().zip(ops) {
        // What is not known keeps its own name.
        let now = if now == "other" { recorded.op.as_str() } else { now };
        let was = (now != recorded.op).then(|| op_name(&recorded.op));
        steps.push(TailStep { name: op_name(now), was });
    }
    steps
}

/// A site, and what it is looked at with.
struct Looking<'a> {
    snapshot: &'a Snapshot,
    plan: &'a PlanView,
    site: &'a Site,
    at: usize,
    metric: Metric,
    loss: f64,
}

impl Looking<'_> {
    fn gemm(&self, gemm: Gemm) -> GemmView {
        let policy = &self.snapshot.document.policy;
        let (rows, reduced, cols) =
            GemmShape { m: self.site.m, k: self.site.k, n: self.site.n }.rows_reduced_cols(gemm);
        let bound = bound_of(policy, &self.site.id, gemm, self.loss);
        let choice = self.plan.choice_at(self.snapshot, self.at, gemm).cloned();
        let known = |kernel: &crate::model::Kernel| self.snapshot.row(self.at, gemm, &kernel.id());
        let kernels: Vec<KernelLine> =
            catalogue().iter().filter_map(known).map(|row| self.line(row, choice.as_ref())).collect();
        let nearest = nearest(&kernels);
        let chosen = kernels.iter().find(|line| line.is_low && line.is_taken());
        let verdict = chosen.or(nearest.map(|at| &kernels[at])).map(|line| line.quadrant);
        let low = self.snapshot.rows_of(self.at, gemm).iter().filter(|row| row.kernel.is_low_precision());
        let ahead = choice.as_ref().and_then(|choice| self.ahead(gemm, choice));
        GemmView {
            gemm,
            rows,
            reduced,
            cols,
            bound,
            verdict,
            nearest,
            ahead,
            draws_to_ask: draws_to_ask(low, bound, self.loss),
            choice,
            kernels,
        }
    }

    fn line(&self, row: &ResultRow, choice: Option<&Choice>) -> KernelLine {
        let policy = &self.snapshot.document.policy;
        let latency = &row.latency;
        let unknown = || "no reason was given".into();
        KernelLine {
            about: row.kernel.known().map_or("", |kernel| kernel.about),
            is_low: row.kernel.is_low_precision(),
            unsupported: (!row.supported).then(|| row.reason.clone().unwrap_or_else(unknown)),
            error: row.figure(self.metric, self.loss).filter(|_| row.supported),
            is_out_of_range: self.metric == Metric::LossCost && row.loss_cost_means_nothing(self.loss),
            draws: row.error.as_ref().map(|error| error.draws),
            latency_us: latency.latency_us,
            latency_range_us: latency.latency_lo_us.zip(latency.latency_hi_us),
            parts: Parts::of(latency),
            source: latency.source,
            note: latency.note.clone(),
            speedup: row.speedup(),
            quadrant: judge(row, policy, self.loss).2,
            // Of two bounds the one that decides on this kernel.
            verdict_margin: Outlook::of(row, decided_by(row, policy, self.loss).1, policy, self.loss),
            standing: standing(&row.kernel, choice),
            kernel: row.kernel.clone(),
        }
    }

    /// The baseline's time, that speed-ups are applied to.
    fn reference_us(&self, gemm: Gemm) -> Option<f64> {
        let baseline = &self.snapshot.document.policy.baseline;
        let row = self.snapshot.row(self.at, gemm, baseline)?;
        row.latency.latency_us.filter(|us| *us > 0.0 && us.is_finite())
    }

    fn ahead(&self, gemm: Gemm, choice: &Choice) -> Option<(KernelId, f64)> {
        let reference = self.reference_us(gemm)?;
        let baseline = &self.snapshot.document.policy.baseline;
        let us = |kernel: &KernelId| match kernel == baseline {
            true => Some(reference),
            false => own_us(self.snapshot.row(self.at, gemm, kernel)?, reference),
        };
        let runner_up = choice.runners_up.first()?;
        Some((runner_up.clone(), us(runner_up)? - us(&choice.kernel)?))
    }

    fn chain(&self) -> Option<ChainView> {
        let chain = self.plan.chain_at(self.at)?;
        let of = |id: &SiteId| self.snapshot.index.at(id).and_then(|at| self.plan.chain_at(at));
        let reads = chain.from.as_ref().and_then(|from| {
            let before = of(from)?;
            let extra_us = if chain.stores_codes() && chain.stores_bf16() { extra_us(self.site) } else { 0.0 };
            Some(CodesRead {
                from: from.clone(),
                scale: before.store_scale?,
                saved_us: chain.saved_us + extra_us,
                beside_bf16: before.stores_bf16(),
            })
        });
        let takes = |id: &&SiteId| of(id).is_some_and(|reader| reader.from.as_ref() == Some(&self.site.id));
        let stores = chain.store_scale.map(|scale| CodesStored {
            to: self.site.feeds.iter().filter(takes).cloned().collect(),
            scale,
            beside_us: chain.stores_bf16().then(|| extra_us(self.site)),
        });
        Some(ChainView { reads, stores })
    }

    fn shared(&self) -> Vec<SharedCast> {
        let chosen = |gemm: Gemm| {
            let choice = self.plan.pick_at(self.at, gemm)?;
            self.snapshot.row(self.at, gemm, &choice.kernel)
        };
        shared_casts(Gemm::ALL.map(chosen), Gemm::ALL.map(|gemm| self.reference_us(gemm)))
    }
}

fn standing(kernel: &KernelId, choice: Option<&Choice>) -> KernelStanding {
    let Some(choice) = choice else { return KernelStanding::Other };
    match choice.runners_up.iter().position(|other| other == kernel) {
        _ if choice.kernel == *kernel && choice.source == ChoiceSource::Override => KernelStanding::Overridden,
        _ if choice.kernel == *kernel => KernelStanding::Chosen,
        Some(at) => KernelStanding::RunnerUp(at + 1),
        None => KernelStanding::Other,
    }
}

/// Of kernels in low precision that run and were not taken: the one that more draws may free, the fastest
/// first; else the safe one that is nearest to be fast; else the unsafe one with the least error.
fn nearest(kernels: &[KernelLine]) -> Option<usize> {
    let rank = |line: &KernelLine| {
        let speedup = line.speedup.unwrap_or(0.0);
        match (line.verdict_margin.error, line.verdict_margin.speed) {
            (ErrorOutlook::Safe { .. }, SpeedOutlook::Fast { .. }) => (0, -speedup),
            (ErrorOutlook::Uncertain { .. }, SpeedOutlook::Fast { .. }) => (1, -speedup),
            (ErrorOutlook::Safe { .. }, _) => (2, -speedup),
            (ErrorOutlook::Unsafe { safe_from: Some(end) }, SpeedOutlook::Fast { .. }) => (3, end),
            (ErrorOutlook::Uncertain { .. }, _) => (4, -speedup),
            (ErrorOutlook::Unsafe { safe_from: Some(end) }, SpeedOutlook::Slow { .. }) => (5, end),
            (ErrorOutlook::Unsafe { safe_from: Some(end) }, _) => (6, end),
            (ErrorOutlook::MeansNothing, _) => (7, -speedup),
            _ => (8, 0.0),
        }
    };
    let able = kernels.iter().enumerate().filter(|(_, line)| line.is_low && line.unsupported.is_none());
    let others = able.filter(|(_, line)| !line.is_taken()).map(|(at, line)| (rank(line), at));
    others.min_by(|((a, x), _), ((b, y), _)| a.cmp(b).then(x.total_cmp(y))).map(|(_, at)| at)
}

impl KernelLine {
    /// The plan has it.
    pub fn is_taken(&self) -> bool {
        matches!(self.standing, KernelStanding::Chosen | KernelStanding::Overridden)
    }

    pub fn is_chosen_by_policy(&self) -> bool {
        self.standing == KernelStanding::Chosen
    }
}

impl GemmView {
    /// The policy's own choice is high precision: nothing in low precision may run.
    pub fn stays_high(&self) -> bool {
        self.choice.as_ref().is_none_or(|choice| !choice.kernel.is_low_precision())
    }

    pub fn line(&self, kernel: &KernelId) -> Option<&KernelLine> {
        self.kernels.iter().find(|line| line.kernel == *kernel)
    }

    /// The kernel that a person looks at first: the chosen one.
    pub fn first_look(&self) -> KernelId {
        self.choice.as_ref().map_or_else(baseline_kernel, |choice| choice.kernel.clone())
    }

    /// Places in `kernels`, in the order to show: what cannot run last, then what has no value.
    pub fn sorted(&self, by: KernelColumn, reversed: bool) -> Vec<usize> {
        let value = |line: &KernelLine| match by {
            KernelColumn::Kernel => None,
            KernelColumn::Error => line.error.map(|error| error.value),
            KernelColumn::Draws => line.draws.map(|draws| draws as f64),
            KernelColumn::Latency => line.latency_us,
            KernelColumn::Speedup => line.speedup,
        };
        let mut order: Vec<usize> = (0..self.kernels.len()).collect();
        order.sort_by(|a, b| {
            let (x, y) = (&self.kernels[*a], &self.kernels[*b]);
            let able = x.unsupported.is_some().cmp(&y.unsupported.is_some());
            let values = match (value(x), value(y)) {
                (Some(x), Some(y)) => {
                    if reversed {
                        y.total_cmp(&x)
                    } else {
                        x.total_cmp(&y)
                    }
                }
                (x, y) if by != KernelColumn::Kernel => x.is_none().cmp(&y.is_none()),
                _ => {
                    if reversed {
                        b.cmp(a)
                    } else {
                        a.cmp(b)
                    }
                }
            };
            able.then(values).then(a.cmp(b))
        });
        order
    }
}

#[cfg(test)]
mod tests;
