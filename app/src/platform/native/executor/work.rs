//! Takes a trace and an engine, gives the events of a probe or of a timing: what a thread of the local
//! executor does from its start to its end.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use loka_core::{
    engine::{Control, Engine, EngineError},
    model::{SiteId, SiteMods},
    probe::{ProbeConfig, ProbeEvent, probe},
    session::{Circumstances, Event},
    trace::Trace,
};

use super::Outbox;
use crate::{executor::panic_text, probing};

/// How often the memory of a device is told.
const MEMORY_EVERY: Duration = Duration::from_millis(250);

pub(super) struct Work {
    pub trace: Trace,
    pub engine: Arc<dyn Engine>,
}

pub(super) fn config(mods: SiteMods) -> ProbeConfig {
    ProbeConfig { mods, latency: probing::recorded_latencies(), ..ProbeConfig::default() }
}

impl Work {
    fn name(&self) -> String {
        self.engine.describe().name.to_owned()
    }

    pub fn probe_started(&self, run: u64, mods: SiteMods, sites: Vec<SiteId>) -> Event {
        let meta = probing::results_meta(&self.trace, String::new(), self.engine.as_ref(), &config(SiteMods::none()));
        Event::ProbeStarted { run, mods, sites, by: Box::new(Circumstances::from(&meta)) }
    }

    /// `draws`: of every kernel, whatever their intervals say.
    pub fn probe(
        &self,
        run: u64,
        (mods, draws): (SiteMods, Option<u64>),
        sites: &[SiteId],
        control: &Control,
        outbox: &Outbox,
    ) {
        let (watch, memory) = (control.stopwatch(), MemoryNews::default());
        let lost = AtomicBool::new(false);
        let sink = |event: ProbeEvent| {
            let event = match event {
                ProbeEvent::Rows(rows) => Event::Rows { run, rows },
                // Sites that wait when an engine is lost are not to blame.
                ProbeEvent::Problem(..) if lost.load(Ordering::Relaxed) => return,
                ProbeEvent::Problem(site, reason) => Event::Problem { run, site, reason },
                ProbeEvent::Progress(done) => {
                    memory.tell(self.engine.as_ref(), run, outbox);
                    Event::Progress { run, done, seconds: watch.seconds() }
                }
                ProbeEvent::Lost(reason) => {
                    lost.store(true, Ordering::Relaxed);
                    Event::EngineLost { name: self.name(), reason }
                }
            };
            outbox.send(run, event);
        };
        let mut config = config(mods);
        if let Some(draws) = draws {
            (config.min_draws, config.max_draws) = (draws, draws);
        }
        let work = || probe(&self.trace, sites, self.engine.as_ref(), &config, control, &sink);
        let outcome = catch_unwind(AssertUnwindSafe(work));
        if let Err(cause) = &outcome {
            outbox.send(run, Event::OpenFailed { message: panic_text(&**cause) });
        }
        memory.last(self.engine.as_ref(), run, outbox);
        let cancelled = outcome.is_err() || control.is_cancelled() || lost.load(Ordering::Relaxed);
        outbox.send(run, Event::ProbeFinished { run, cancelled, seconds: watch.seconds() });
    }

    pub fn measure(&self, run: u64, control: &Control, outbox: &Outbox) {
        let (watch, memory) = (control.stopwatch(), MemoryNews::default());
        let report = |latencies, done| {
            memory.tell(self.engine.as_ref(), run, outbox);
            outbox.send(run, Event::Measured { run, latencies, done, seconds: watch.seconds() });
        };
        let work = || probing::measure(self.engine.as_ref(), &self.trace, control, &report);
        let problem = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => None,
            Ok(Err(EngineError::Lost(reason))) => {
                outbox.send(run, Event::EngineLost { name: self.name(), reason });
                None
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(cause) => Some(panic_text(&*cause)),
        };
        memory.last(self.engine.as_ref(), run, outbox);
        outbox.send(run, Event::MeasureFinished { run, problem });
    }
}

/// Tells a device's memory now and then: asking costs the driver a call.
#[derive(Default)]
struct MemoryNews {
    told: Mutex<Option<Instant>>,
}

impl MemoryNews {
    fn tell(&self, engine: &dyn Engine, run: u64, outbox: &Outbox) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= MEMORY_EVERY) {
            *told = Some(Instant::now());
            self.last(engine, run, outbox);
        }
    }

    fn last(&self, engine: &dyn Engine, run: u64, outbox: &Outbox) {
        if let Some(memory) = engine.memory() {
            outbox.send(run, Event::EngineMemory { name: engine.describe().name.to_owned(), memory });
        }
    }
}
