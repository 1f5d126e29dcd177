//! Runs all sites: a quick look at each first, so that a picture is there within a second, then each
//! to the end. Workers take sites from a queue; what they find does not depend on which of them took it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use crate::{
    engine::{Control, Engine, EngineError, Feeder, Feeds, SiteJob, StaticScales},
    model::{ResultRow, Site, SiteId},
    trace::SiteStats,
};

use super::{ProbeConfig, task::SiteTask};

/// Where sites' statistics come from: a trace, or a test.
pub trait SiteSource: Sync {
    /// Every site of the model, in forward order, usable or not.
    fn sites(&self) -> Vec<Site>;

    fn quantile_probs(&self) -> Vec<f64>;

    /// The loss that was recorded; 0: nobody said.
    fn loss(&self) -> f64;

    /// How many times a log loss that is, above 0: so many times too large is 1/2 E[(g . dy)^2] for what the loss changes by.
    fn loss_weight(&self) -> f64;

    /// One site's statistics, or why it is unusable.
    fn stats(&self, site: &SiteId) -> Result<SiteStats, String>;
}

/// What a probe says while it runs.
#[derive(Clone, Debug)]
pub enum ProbeEvent {
    /// Rows of one site and GEMM; they replace earlier rows of the same (site, gemm, kernel, mods).
    Rows(Vec<ResultRow>),
    /// A site that cannot be probed.
    Problem(SiteId, String),
    /// Share of the work that is done, 0 to 1.
    Progress(f64),
    /// The engine is gone, and why. Said once.
    Lost(String),
}

/// Share of the work that the first look takes, for the progress bar.
const FIRST_LOOK_SHARE: f64 = 0.15;

enum Stage {
    Look(SiteId),
    Finish(Box<SiteTask>),
}

struct Queue {
    waiting: VecDeque<Stage>,
    progress: f64,
}

/// Everything a worker needs.
struct ProbeShared<'a> {
    source: &'a dyn SiteSource,
    engine: &'a dyn Engine,
    config: &'a ProbeConfig,
    control: &'a Control,
    sink: &'a (dyn Fn(ProbeEvent) + Sync),
    feeds: Feeds<'a>,
    probs: Arc<[f64]>,
    queue: Mutex<Queue>,
    share: f64,
    /// Why the engine is gone: sites that still wait are told, and nothing more is asked of it.
    lost: OnceLock<String>,
}

/// Probes `chosen` sites of `source`. Returns when all is done or `control` is cancelled; rows that were
/// reported stay valid. While paused it holds what it prepared, and draws nothing.
pub fn probe(
    source: &dyn SiteSource,
    chosen: &[SiteId],
    engine: &dyn Engine,
    config: &ProbeConfig,
    control: &Control,
    sink: &(dyn Fn(ProbeEvent) + Sync),
) {
    let sites = source.sites();
    let shared = ProbeShared {
        source,
        engine,
        config,
        control,
        sink,
        feeds: Feeds::new(&sites),
        probs: source.quantile_probs().into(),
        queue: Mutex::new(Queue { waiting: chosen.iter().cloned().map(Stage::Look).collect(), progress: 0.0 }),
        share: 1.0 / chosen.len().max(1) as f64,
        lost: OnceLock::new(),
    };
    run_workers(&shared);
    if !control.is_cancelled() {
        sink(ProbeEvent::Progress(1.0));
    }
}

#[cfg(feature = "native")]
fn run_workers(shared: &ProbeShared<'_>) {
    let machine = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = match (shared.config.threads, shared.engine.parallel_sites()) {
        (0, 0) => machine,
        (0, wanted) => wanted,
        (asked, _) => asked,
    };
    std::thread::scope(|scope| {
        for index in 1..threads {
            let worker = std::thread::Builder::new().name(format!("probe-{index}"));
            // A machine that refuses a thread still has this one.
            drop(worker.spawn_scoped(scope, || work(shared)));
        }
        work(shared);
    });
}

#[cfg(not(feature = "native"))]
fn run_workers(shared: &ProbeShared<'_>) {
    work(shared);
}

fn work(shared: &ProbeShared<'_>) {
    let looks_first = shared.engine.wants_first_look();
    while shared.control.goes_on() {
        let next = lock(&shared.queue).waiting.pop_front();
        match next {
            Some(Stage::Look(id)) if !looks_first => {
                shared.advance(None, &id, false);
                shared.progressed(1.0);
            }
            Some(Stage::Look(id)) => {
                if let Some(task) = shared.advance(None, &id, true) {
                    lock(&shared.queue).waiting.push_back(Stage::Finish(task));
                }
                shared.progressed(FIRST_LOOK_SHARE);
            }
            Some(Stage::Finish(task)) => {
                let id = task.site.id.clone();
                shared.advance(Some(task), &id, false);
                shared.progressed(1.0 - FIRST_LOOK_SHARE);
            }
            // Another worker may still push its site's second stage, and then takes it itself.
            None => break,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A worker that panicked left the queue whole: every update is a single push or pop.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProbeShared<'_> {
    /// Loads a site's tensors, and those of the modified blocks that feed it.
    fn open(&self, id: &SiteId) -> Result<SiteJob, String> {
        let load = |id: &SiteId| self.source.stats(id).map(Arc::new);
        let context = self.feeds.context(id, &self.config.mods);
        let feeder = |(id, mods): (SiteId, _)| Ok::<_, String>(Feeder { stats: load(&id)?, mods });
        let job = SiteJob {
            stats: load(id)?,
            upstream: context.upstream.into_iter().map(feeder).collect::<Result<_, _>>()?,
            quantile_probs: self.probs.clone(),
            mods: context.own,
            sampler: self.config.sampler,
            seed: self.config.seed,
            scales: StaticScales::default(),
        };
        let wants_scales = self.config.kernels.iter().any(|kernel| kernel.is_static());
        Ok(if wants_scales { job.with_scales(self.feeds.input_bound(id, &self.config.mods)) } else { job })
    }

    fn advance(&self, task: Option<Box<SiteTask>>, id: &SiteId, first_look: bool) -> Option<Box<SiteTask>> {
        if let Some(reason) = self.lost.get() {
            (self.sink)(ProbeEvent::Problem(id.clone(), reason.clone()));
            return None;
        }
        let stop = || !self.control.goes_on() || self.lost.get().is_some();
        let outcome = self.open(id).and_then(|job| {
            let mut task =
                task.unwrap_or_else(|| Box::new(SiteTask::new(job.stats.site.clone(), self.source.loss_weight())));
            let mut report = |rows| (self.sink)(ProbeEvent::Rows(rows));
            let advanced = task.advance(job, self.engine, self.config, first_look, &stop, &mut report);
            if let Err(EngineError::Lost(reason)) = &advanced
                && self.lost.set(reason.clone()).is_ok()
            {
                (self.sink)(ProbeEvent::Lost(reason.clone()));
            }
            // One that another site's loss stopped half way is not done either.
            match (advanced, self.lost.get()) {
                (Ok(()), Some(reason)) if task.is_open() => Err(reason.clone()),
                (advanced, _) => advanced.map(|()| task).map_err(|error| error.to_string()),
            }
        });
        outcome.map_err(|reason| (self.sink)(ProbeEvent::Problem(id.clone(), reason))).ok()
    }

    fn progressed(&self, share: f64) {
        let progress = {
            let mut queue = lock(&self.queue);
            queue.progress += share * self.share;
            queue.progress
        };
        (self.sink)(ProbeEvent::Progress(progress.min(1.0)));
    }
}

#[cfg(all(test, feature = "native"))]
#[path = "run_tests.rs"]
mod tests;
