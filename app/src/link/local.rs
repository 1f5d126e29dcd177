//! Takes effects, carries them out on named threads of this process, gives their events through a
//! channel. Native only.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use loka_core::{
    engine::{self, Control, CpuEngine, EngineError},
    model::{Results, SiteId, SiteMods},
    plan::Plan,
    session::{
        Effect, Event, OpenedTrace,
        shared::News,
        view::{SeriesTable, SiteSeries},
    },
    tables,
    trace::{Series, Trace},
};

use super::{
    Link, Wake,
    identify::identify,
    inspect,
    watch::Watch,
    work::{Work, config, panic_text},
};
use crate::{files, probing};

/// The engines of this process: the CPU, always there, and CUDA where it is.
pub struct LocalLink {
    sender: Outbox,
    receiver: Receiver<(u64, Event)>,
    /// The trace that probes read, put there by the thread that opened it.
    trace: Arc<Mutex<Option<Trace>>>,
    /// Counts openings: a slow earlier one must not replace what was opened after it.
    opening: Arc<AtomicU64>,
    running: Option<Running>,
    /// The results file that is open.
    watch: Option<Watch>,
    busy: Arc<Mutex<Vec<String>>>,
}

/// The probe or the timing under way.
struct Running {
    run: u64,
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

/// Sends events and wakes the window. The number is the run that an event belongs to, 0 for none.
#[derive(Clone)]
pub(super) struct Outbox {
    sender: Sender<(u64, Event)>,
    wake: Wake,
}

impl Outbox {
    pub(super) fn send(&self, run: u64, event: Event) {
        // A closed channel means that the window is gone, and nobody is left to tell.
        drop(self.sender.send((run, event)));
        (self.wake)();
    }
}

impl LocalLink {
    pub fn new(wake: Wake) -> Self {
        let (sender, receiver) = channel();
        Self {
            sender: Outbox { sender, wake },
            receiver,
            trace: Arc::default(),
            opening: Arc::default(),
            running: None,
            watch: None,
            busy: Arc::default(),
        }
    }

    fn load_trace(&self, path: String) {
        let ticket = self.opening.fetch_add(1, Ordering::SeqCst) + 1;
        let (latest, slot, outbox) = (self.opening.clone(), self.trace.clone(), self.sender.clone());
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", Some(format!("Opening {path}")), failed, move || {
            let (trace, opened) = match open(&path) {
                Ok(opened) => opened,
                Err(message) => return Some(Event::OpenFailed { message }),
            };
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            if latest.load(Ordering::SeqCst) != ticket {
                return None;
            }
            *slot = Some(trace.clone());
            drop(slot);
            outbox.send(0, Event::TraceOpened { trace: Box::new(opened) });
            // Reads the whole file, a second and a half for a gigabyte: the sites need not wait for it.
            Some(Event::TraceDigest { path, digest: trace.digest() })
        });
    }

    fn load_results(&self, path: String) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", Some(format!("Opening {path}")), failed, move || {
            Some(match tables::read_results(Path::new(&path)) {
                Ok(results) => Event::ResultsOpened { path, results: Box::new(results) },
                Err(error) => Event::OpenFailed { message: error.to_string() },
            })
        });
    }

    /// What a file is whose name does not say.
    fn identify(&self, path: String) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", None, failed, move || {
            let kind = identify(Path::new(&path));
            Some(Event::Identified { path, kind })
        });
    }

    fn watch(&mut self, path: Option<String>) {
        self.watch = None;
        let Some(path) = path else { return };
        let outbox = self.sender.clone();
        let (file, named) = (path.clone(), path);
        let tell = move |change| outbox.send(0, Event::FileChanged { path: named.clone(), change });
        // Without a thread the file is not watched; what is open stays as it is.
        self.watch = Watch::start(file.into(), tell).ok();
    }

    /// A plan to compare with.
    fn load_plan(&self, path: String) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", Some(format!("Opening {path}")), failed, move || {
            let read = files::read_text(Path::new(&path)).map_err(|error| error.to_string());
            let plan = read.and_then(|text| Plan::from_json(&text).map_err(|error| format!("{error}: {path}")));
            Some(match plan {
                Ok(plan) => Event::PlanOpened { path, plan: Box::new(plan) },
                Err(message) => Event::OpenFailed { message },
            })
        });
    }

    /// Small beside the statistics, and spread over the whole file: read when somebody looks.
    fn read_series(&self, path: String) {
        let trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-series", Some("Reading series".to_owned()), failed, move || {
            let none = "these results came without their trace: open the trace to see its series".to_owned();
            Some(Event::SeriesRead { path, table: trace.ok_or(none).map(|trace| Box::new(series_of(&trace))) })
        });
    }

    fn write_results(&self, path: String, results: Box<Results>) {
        let failed = |message| Event::WriteFailed { message };
        self.spawn("loka-write", Some(format!("Writing {path}")), failed, move || {
            Some(match tables::write_results(Path::new(&path), &results) {
                Ok(()) => Event::Written { path, what: "Results".to_owned() },
                Err(error) => Event::WriteFailed { message: error.to_string() },
            })
        });
    }

    fn write_plan(&self, path: String, mut plan: Box<Plan>) {
        let failed = |message| Event::WriteFailed { message };
        self.spawn("loka-write", Some(format!("Writing {path}")), failed, move || {
            plan.created_at = probing::now_rfc3339();
            plan.digest = plan.content_digest();
            Some(match files::write_atomically(Path::new(&path), plan.to_json().as_bytes()) {
                Ok(()) => Event::Written { path, what: "Plan".to_owned() },
                Err(error) => Event::WriteFailed { message: format!("{error:#}") },
            })
        });
    }

    /// Runs `work` on a thread of that name, with `label` as what the link is busy with. A panic in it becomes an event, not a silent thread.
    fn spawn(
        &self,
        name: &str,
        label: Option<String>,
        failed: fn(String) -> Event,
        work: impl FnOnce() -> Option<Event> + Send + 'static,
    ) {
        let (outbox, busy) = (self.sender.clone(), self.busy.clone());
        busy.lock().unwrap_or_else(PoisonError::into_inner).extend(label.clone());
        let done = move || {
            let mut busy = busy.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = busy.iter().position(|of| Some(of) == label.as_ref()) {
                busy.remove(at);
            }
        };
        let refused = self.sender.clone();
        let spawned = Builder::new().name(name.to_owned()).spawn(move || {
            let event = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| Some(failed(panic_text(&*cause))));
            done();
            match event {
                Some(event) => outbox.send(0, event),
                None => (outbox.wake)(),
            }
        });
        if let Err(error) = spawned {
            refused.send(0, failed(format!("no thread could be started: {error}")));
        }
    }

    /// `other`: read the site there instead of in the open trace.
    fn inspect(&self, trace: String, other: Option<String>, site: SiteId) {
        let failed = |message| Event::OpenFailed { message };
        let open = self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.spawn("loka-inspect", Some(format!("Reading {site}")), failed, move || {
            Some(inspect::answer(trace, open, other, site))
        });
    }

    fn find_engines(&self) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-engines", None, failed, || Some(Event::EnginesFound { engines: engine::statuses() }));
    }

    fn start_probe(&mut self, run: u64, mods: SiteMods, sites: Vec<SiteId>, draws: Option<u64>, name: &str) {
        let work = match self.work_on(name) {
            Ok(work) => work,
            Err(event) => return self.sender.send(0, event),
        };
        // Told before the thread starts, so that nothing of this run can arrive ahead of it.
        self.sender.send(run, work.probe_started(run, mods.clone(), sites.clone()));
        let refused = self.sender.clone();
        if let Err(error) = self
            .start(run, "loka-probe", move |control, outbox| work.probe(run, (mods, draws), &sites, control, outbox))
        {
            refused.send(0, Event::OpenFailed { message: format!("the probe could not start: {error}") });
            refused.send(run, Event::ProbeFinished { run, cancelled: true, seconds: 0.0 });
        }
    }

    fn start_measure(&mut self, run: u64, name: &str) {
        let refused = self.sender.clone();
        let finished = |problem| Event::MeasureFinished { run, problem: Some(problem) };
        match self.work_on(name) {
            Ok(work) => {
                let started =
                    self.start(run, "loka-measure", move |control, outbox| work.measure(run, control, outbox));
                if let Err(error) = started {
                    refused.send(run, finished(format!("it could not start: {error}")));
                }
            }
            Err(event) => {
                refused.send(0, event);
                refused.send(run, Event::MeasureFinished { run, problem: None });
            }
        }
    }

    /// The open trace and the engine of that name, or the event that says what is missing.
    fn work_on(&self, name: &str) -> Result<Work, Event> {
        let trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let message = "These results came without their trace: open the trace to probe it.".to_owned();
        let trace = trace.ok_or(Event::OpenFailed { message })?;
        let lost = |error: EngineError| Event::EngineLost { name: name.to_owned(), reason: error.to_string() };
        Ok(Work { trace, engine: engine::open(name).map_err(lost)? })
    }

    /// Runs `work` on a thread of that name, after what ran before has stopped.
    fn start(
        &mut self,
        run: u64,
        name: &str,
        work: impl FnOnce(&Control, &Outbox) + Send + 'static,
    ) -> std::io::Result<()> {
        let before = self.stop_running();
        let control = Arc::new(Control::new());
        let (asked, outbox) = (control.clone(), self.sender.clone());
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            // One piece of work at a time has the cores; a cancelled one needs a moment to stop.
            drop(before.map(JoinHandle::join));
            work(&asked, &outbox);
        })?;
        self.running = Some(Running { run, control, thread: Some(thread) });
        Ok(())
    }

    /// Asks what runs to stop; gives its thread to wait for.
    fn stop_running(&mut self) -> Option<JoinHandle<()>> {
        let running = self.running.as_mut()?;
        running.control.cancel();
        running.thread.take()
    }

    /// Holds what runs between two steps, or lets it go on; with nothing under way, neither. Work that starts
    /// later is not paused, and cancelling ends a pause.
    pub fn pause(&self, paused: bool) {
        if let Some(running) = &self.running {
            if paused { running.control.pause() } else { running.control.resume() }
        }
    }
}

impl Link for LocalLink {
    fn run(&mut self, effect: Effect) {
        match effect {
            Effect::LoadTrace { path } => self.load_trace(path),
            Effect::LoadResults { path } => self.load_results(path),
            Effect::FindEngines => self.find_engines(),
            Effect::Probe { run, mods, sites, engine, draws } => self.start_probe(run, mods, sites, draws, &engine),
            Effect::Pause { paused } => self.pause(paused),
            Effect::LoadPlan { path } => self.load_plan(path),
            Effect::ReadSeries { path } => self.read_series(path),
            Effect::Identify { path } => self.identify(path),
            Effect::Watch { path } => self.watch(path),
            Effect::Measure { run, engine } => self.start_measure(run, &engine),
            Effect::Cancel => {
                if let Some(running) = &self.running {
                    running.control.cancel();
                }
            }
            Effect::Inspect { trace, site } => self.inspect(trace, None, site),
            Effect::InspectOther { trace, path, site } => self.inspect(trace, Some(path), site),
            Effect::WriteResults { path, results } => self.write_results(path, results),
            Effect::WritePlan { path, plan } => self.write_plan(path, plan),
        }
    }

    fn poll(&mut self) -> Option<News> {
        let current = self.running.as_ref().map_or(0, |running| running.run);
        loop {
            let (run, event) = self.receiver.try_recv().ok()?;
            // What an earlier run still had to say is of no use to this one.
            if run == 0 || run >= current {
                return Some(News::from(event));
            }
        }
    }

    fn busy(&self) -> Option<String> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }
}

impl Drop for LocalLink {
    fn drop(&mut self) {
        // A closed window must not leave a probe that keeps the cores busy.
        drop(self.stop_running());
    }
}

fn open(path: &str) -> Result<(Trace, OpenedTrace), String> {
    let trace = Trace::open(Path::new(path)).map_err(|error| error.to_string())?;
    let meta = probing::results_meta(&trace, String::new(), &CpuEngine, &config(SiteMods::none()));
    let opened = OpenedTrace { path: path.to_owned(), name: trace.manifest().model.name.clone(), meta };
    Ok((trace, opened))
}

/// Sites that cannot be read have none.
pub(crate) fn series_of(trace: &Trace) -> SeriesTable {
    let mut all = Vec::new();
    for (at, entry) in trace.sites().iter().enumerate() {
        let series = trace.site_series(&entry.site.id).unwrap_or_default();
        all.extend(series.into_iter().map(|Series { name, steps, values }| SiteSeries {
            site: at as u32,
            name,
            steps,
            values,
        }));
    }
    SeriesTable::of(trace.sites().len(), all)
}

#[cfg(test)]
mod tests;
