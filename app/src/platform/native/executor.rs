//! Takes effects, carries them out on named threads of this process, gives their events through a channel. Native only.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::AtomicU64,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use loka_core::{
    engine::{
        self, Control, EngineError, EngineStatus,
        cluster::{self as ray, ClusterInfo},
    },
    export::Target,
    model::{Results, SiteId, SiteMods},
    plan::Plan,
    review::{KeyRing, Statement},
    runtime::{Executor, Report},
    session::{Effect, Event},
    tables::{self, read_results, read_results_by_site},
    trace::Trace,
    views::drift::Followed,
};

pub(crate) mod checkpoints;
pub(crate) mod compare;
mod identify;
mod journals;
mod on_cluster;
mod reading;
mod watch;
mod work;

use self::{watch::Watch, work::Work};
use crate::{
    beside::beside,
    executor::{
        Wake,
        exporting::{self, PlanDates, PlanFiles},
        inspect, panic_text,
    },
    files, keys, signing,
};

pub(crate) use identify::identify;

/// The engines of this process: the CPU, always there, and CUDA where it is.
pub struct ThreadExecutor {
    sender: Outbox,
    receiver: Receiver<(u64, Report)>,
    /// The trace that probes read, put there by the thread that opened it.
    trace: Arc<Mutex<Option<Trace>>>,
    /// Where it lies.
    trace_path: Arc<Mutex<String>>,
    /// The cluster that was found.
    cluster: Arc<Mutex<Option<ClusterInfo>>>,
    /// Counts openings: a slow earlier one must not replace what was opened after it.
    opening: Arc<AtomicU64>,
    running: Option<Running>,
    /// The results file that is open.
    watch: Option<Watch>,
    busy: Arc<Mutex<Vec<String>>>,
    dates: PlanDates,
    journals: Journals,
}

/// What is done with the journal beside a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Journals {
    None,
    #[cfg(feature = "serve")]
    Read,
    Kept,
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
    sender: Sender<(u64, Report)>,
    wake: Wake,
}

impl Outbox {
    pub(super) fn send(&self, run: u64, event: Event) {
        self.report(run, Report::from(event));
    }

    fn report(&self, run: u64, report: Report) {
        // A closed channel means that the window is gone, and nobody is left to tell.
        drop(self.sender.send((run, report)));
        (self.wake)();
    }
}

impl ThreadExecutor {
    pub fn new(wake: Wake) -> Self {
        let (sender, receiver) = channel();
        Self {
            sender: Outbox { sender, wake },
            receiver,
            trace: Arc::default(),
            trace_path: Arc::default(),
            cluster: Arc::default(),
            opening: Arc::default(),
            running: None,
            watch: None,
            busy: Arc::default(),
            dates: PlanDates::default(),
            journals: Journals::None,
        }
    }

    /// Keeps a journal beside every trace that is opened, and takes up what was left there.
    #[must_use]
    pub fn with_journal(mut self) -> Self {
        self.journals = Journals::Kept;
        self
    }

    /// Takes up what was left beside a trace that is opened, and leaves the journal to whoever keeps it.
    #[cfg(feature = "serve")]
    #[must_use]
    pub fn with_what_was_left(mut self) -> Self {
        self.journals = Journals::Read;
        self
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

    fn write_results(&self, path: String, results: Box<Results>) {
        let failed = |message| Event::WriteFailed { message };
        self.spawn("loka-write", Some(format!("Writing {path}")), failed, move || {
            Some(Report::from(match tables::write_results(Path::new(&path), &results) {
                Ok(()) => Event::Written { path, what: "Results".to_owned() },
                Err(error) => Event::WriteFailed { message: error.to_string() },
            }))
        });
    }

    fn write_plan(&self, path: String, plan: Box<Plan>) {
        self.write_of_plan(path, plan, |plan| {
            Ok(PlanFiles { files: vec![(String::new(), plan.to_json().into_bytes())], what: "Plan".to_owned() })
        });
    }

    fn write_export(&self, path: String, plan: Box<Plan>, target: Target) {
        self.write_of_plan(path, plan, move |plan| exporting::for_framework(plan, target));
    }

    fn write_report(&self, path: String, plan: Box<Plan>, results: Box<Results>, keys: Option<Arc<KeyRing>>) {
        self.write_of_plan(path, plan, move |plan| Ok(exporting::as_report(plan, &results, keys.as_deref())));
    }

    /// What becomes of the plan once it has its date.
    fn write_of_plan(
        &self,
        path: String,
        mut plan: Box<Plan>,
        make: impl FnOnce(&Plan) -> Result<PlanFiles, String> + Send + 'static,
    ) {
        let failed = |message| Event::WriteFailed { message };
        let dates = self.dates.clone();
        self.spawn("loka-write", Some(format!("Writing {path}")), failed, move || {
            dates.stamp(&mut plan);
            let written = make(&plan).map_err(|reason| format!("{reason}: {path}")).and_then(|made| {
                for (suffix, bytes) in &made.files {
                    let to = format!("{path}{suffix}");
                    files::write_atomically(Path::new(&to), bytes).map_err(|error| format!("{error:#}"))?;
                }
                Ok(made.what)
            });
            Some(Report::from(match written {
                Ok(what) => Event::Written { path, what },
                Err(message) => Event::WriteFailed { message },
            }))
        });
    }

    fn sign(&self, path: String, statement: Statement) {
        let failed = |line| Event::Signed { approval: Err(line) };
        self.spawn("loka-sign", None, failed, move || {
            let key = keys::read(Path::new(&path)).map_err(|error| format!("{error:#}"));
            let approval = key.and_then(|key| signing::signed(statement, &key)).map(Box::new);
            Some(Report::from(Event::Signed { approval }))
        });
    }

    /// Runs `work` on a thread of that name, with `label` as what the executor is busy with. A panic in it
    /// becomes an event, not a silent thread.
    pub(super) fn spawn(
        &self,
        name: &str,
        label: Option<String>,
        failed: fn(String) -> Event,
        work: impl FnOnce() -> Option<Report> + Send + 'static,
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
            let panicked = |cause: Box<dyn Any + Send>| Some(Report::from(failed(panic_text(&*cause))));
            let report = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked);
            done();
            match report {
                Some(report) => outbox.report(0, report),
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
            let read = |path: &str| Trace::open(Path::new(path)).map_err(|error| error.to_string());
            Some(Report::from(inspect::answer(trace, open, other, site, read)))
        });
    }

    fn compare(&self, trace: String, path: String) {
        let failed = |message| Event::OpenFailed { message };
        let open = self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.spawn("loka-compare", Some(format!("Comparing with {path}")), failed, move || {
            Some(Report::from(compare::answer(trace, open, path.clone(), &path)))
        });
    }

    fn read_checkpoints(&self, trace: String, followed: Arc<Followed>) {
        let failed = |message| Event::OpenFailed { message };
        let open = self.trace();
        self.spawn("loka-checkpoints", Some("Reading the run's checkpoints".to_owned()), failed, move || {
            Some(Report::from(checkpoints::answer(trace, open, &followed, |name| Ok(name.to_owned()))))
        });
    }

    fn find_engines(&self) {
        let failed = |message| Event::OpenFailed { message };
        let (slot, outbox) = (self.cluster.clone(), self.sender.clone());
        self.spawn("loka-engines", None, failed, move || {
            let mut engines = engine::statuses();
            let cluster = if ray::is_known() {
                // It takes seconds: the others are there meanwhile.
                let so_far = engines.iter().cloned().chain([EngineStatus::looked_for(ray::NAME)]).collect();
                outbox.send(0, Event::EnginesFound { engines: so_far });
                on_cluster::look(&slot)
            } else {
                ray::unknown()
            };
            engines.push(cluster);
            Some(Report::from(Event::EnginesFound { engines }))
        });
    }

    fn start_probe(&mut self, run: u64, mods: SiteMods, sites: Vec<SiteId>, draws: Option<u64>, name: &str) {
        if name == ray::NAME {
            return self.start_on_cluster(run, mods, sites, draws);
        }
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
        let trace = self.open_trace()?;
        let lost = |error: EngineError| Event::EngineLost { name: name.to_owned(), reason: error.to_string() };
        Ok(Work { trace, engine: engine::open(name).map_err(lost)? })
    }

    fn open_trace(&self) -> Result<Trace, Event> {
        let trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let message = "These results came without their trace: open the trace to probe it.".to_owned();
        trace.ok_or(Event::OpenFailed { message })
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

impl Executor for ThreadExecutor {
    fn run(&mut self, effect: Effect) {
        match effect {
            Effect::LoadTrace { path } => self.load_trace(path),
            Effect::LoadResults { path } => {
                self.load_results(path, read_results_by_site, |path, results| Event::ResultsOpened { path, results });
            }
            Effect::FindEngines => self.find_engines(),
            Effect::Probe { run, mods, sites, engine, draws } => self.start_probe(run, mods, sites, draws, &engine),
            Effect::Pause { paused } => self.pause(paused),
            Effect::LoadPlan { path } => self.load_plan(path),
            Effect::CompareResults { path } => {
                self.load_results(path, read_results, |path, results| Event::ResultsCompared { path, results });
            }
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
            Effect::CompareTrace { trace, path } => self.compare(trace, path),
            Effect::ReadCheckpoints { trace, followed } => self.read_checkpoints(trace, followed),
            Effect::WriteResults { path, results } => self.write_results(path, results),
            Effect::WritePlan { path, plan } => self.write_plan(path, plan),
            Effect::WriteExport { path, plan, target } => self.write_export(path, plan, target),
            Effect::WriteReport { path, plan, results, keys } => self.write_report(path, plan, results, keys),
            Effect::Sign { path, statement } => self.sign(path, statement),
        }
    }

    fn results_beside(&self, trace: &str) -> Option<String> {
        let results = trace.ends_with(".trace.safetensors").then(|| beside(trace, "results.parquet"))?;
        Path::new(&results).is_file().then_some(results)
    }

    fn poll(&mut self) -> Option<Report> {
        let current = self.running.as_ref().map_or(0, |running| running.run);
        // What an earlier run still had to say is of no use to this one.
        self.receiver.try_iter().find(|(run, _)| *run == 0 || *run >= current).map(|(_, report)| report)
    }

    fn trace(&self) -> Option<Trace> {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn busy(&self) -> Option<String> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }
}

impl Drop for ThreadExecutor {
    fn drop(&mut self) {
        // A closed window must not leave a probe that keeps the cores busy.
        drop(self.stop_running());
    }
}

#[cfg(test)]
mod tests;
