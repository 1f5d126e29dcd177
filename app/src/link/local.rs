//! Takes effects, carries them out on named threads of this process, gives their events through a
//! channel. Native only.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use loka_core::{
    engine::{self, CpuEngine, EngineError},
    model::{ModSet, Results},
    plan::Plan,
    session::{Effect, Event, OpenedTrace},
    tables,
    trace::Trace,
};

use super::{
    Link, Wake,
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
    busy: Arc<Mutex<Vec<String>>>,
}

/// The probe or the timing under way.
struct Running {
    run: u64,
    cancel: Arc<AtomicBool>,
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

    fn find_engines(&self) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-engines", None, failed, || Some(Event::EnginesFound { engines: engine::statuses() }));
    }

    fn start_probe(&mut self, run: u64, mods: ModSet, name: &str) {
        let work = match self.work_on(name) {
            Ok(work) => work,
            Err(event) => return self.sender.send(0, event),
        };
        // Told before the thread starts, so that nothing of this run can arrive ahead of it.
        self.sender.send(run, work.probe_started(run, mods.clone()));
        let refused = self.sender.clone();
        if let Err(error) = self.start(run, "loka-probe", move |cancel, outbox| work.probe(run, mods, cancel, outbox)) {
            refused.send(0, Event::OpenFailed { message: format!("the probe could not start: {error}") });
            refused.send(run, Event::ProbeFinished { run, cancelled: true, seconds: 0.0 });
        }
    }

    fn start_measure(&mut self, run: u64, name: &str) {
        let refused = self.sender.clone();
        let finished = |problem| Event::MeasureFinished { run, problem: Some(problem) };
        match self.work_on(name) {
            Ok(work) => {
                let started = self.start(run, "loka-measure", move |cancel, outbox| work.measure(run, cancel, outbox));
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
        work: impl FnOnce(&AtomicBool, &Outbox) + Send + 'static,
    ) -> std::io::Result<()> {
        let before = self.stop_running();
        let cancel = Arc::new(AtomicBool::new(false));
        let (flag, outbox) = (cancel.clone(), self.sender.clone());
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            // One piece of work at a time has the cores; a cancelled one needs a moment to stop.
            drop(before.map(JoinHandle::join));
            work(&flag, &outbox);
        })?;
        self.running = Some(Running { run, cancel, thread: Some(thread) });
        Ok(())
    }

    /// Asks what runs to stop; gives its thread to wait for.
    fn stop_running(&mut self) -> Option<JoinHandle<()>> {
        let running = self.running.as_mut()?;
        running.cancel.store(true, Ordering::Relaxed);
        running.thread.take()
    }
}

impl Link for LocalLink {
    fn run(&mut self, effect: Effect) {
        match effect {
            Effect::LoadTrace { path } => self.load_trace(path),
            Effect::LoadResults { path } => self.load_results(path),
            Effect::FindEngines => self.find_engines(),
            Effect::Probe { run, mods, engine } => self.start_probe(run, mods, &engine),
            Effect::Measure { run, engine } => self.start_measure(run, &engine),
            Effect::Cancel => {
                if let Some(running) = &self.running {
                    running.cancel.store(true, Ordering::Relaxed);
                }
            }
            Effect::WriteResults { path, results } => self.write_results(path, results),
            Effect::WritePlan { path, plan } => self.write_plan(path, plan),
        }
    }

    fn poll(&mut self) -> Option<Event> {
        let current = self.running.as_ref().map_or(0, |running| running.run);
        loop {
            let (run, event) = self.receiver.try_recv().ok()?;
            // What an earlier run still had to say is of no use to this one.
            if run == 0 || run >= current {
                return Some(event);
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
    let meta = probing::results_meta(&trace, String::new(), &CpuEngine, &config(ModSet::none()));
    let opened = OpenedTrace { path: path.to_owned(), name: trace.manifest().model.name.clone(), meta };
    Ok((trace, opened))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn next(link: &mut LocalLink) -> Event {
        let start = Instant::now();
        loop {
            if let Some(event) = link.poll() {
                return event;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no event came");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_missing_file_is_one_line() {
        let mut link = LocalLink::new(Arc::new(|| {}));
        link.run(Effect::LoadTrace { path: "nowhere.trace.safetensors".to_owned() });
        let Event::OpenFailed { message } = next(&mut link) else { panic!("not a failure") };
        assert!(message.contains("nowhere.trace.safetensors") && !message.contains('\n'), "{message}");
        assert_eq!(link.busy(), None);
    }

    #[test]
    fn a_panic_becomes_an_event() {
        let mut link = LocalLink::new(Arc::new(|| {}));
        let failed = |message| Event::OpenFailed { message };
        link.spawn("loka-open", Some("Opening".to_owned()), failed, || panic!("boom"));
        let Event::OpenFailed { message } = next(&mut link) else { panic!("not a failure") };
        assert!(message.ends_with("boom"), "{message}");
    }

    #[test]
    fn a_probe_without_a_trace_says_so() {
        let mut link = LocalLink::new(Arc::new(|| {}));
        link.run(Effect::Probe { run: 1, mods: ModSet::none(), engine: "cpu".to_owned() });
        assert!(matches!(next(&mut link), Event::OpenFailed { .. }));
        link.run(Effect::Measure { run: 2, engine: "cpu".to_owned() });
        assert!(matches!(next(&mut link), Event::OpenFailed { .. }));
        assert_eq!(next(&mut link), Event::MeasureFinished { run: 2, problem: None });
    }

    #[test]
    fn engines_are_found_on_a_thread() {
        let mut link = LocalLink::new(Arc::new(|| {}));
        link.run(Effect::FindEngines);
        let Event::EnginesFound { engines } = next(&mut link) else { panic!("not a list") };
        assert!(engines.iter().any(|status| status.name == "cpu" && status.problem.is_none()));
    }
}
