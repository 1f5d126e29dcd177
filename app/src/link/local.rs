//! Takes effects, carries them out on named threads of this process, gives their events through a
//! channel. Native only.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
    time::Instant,
};

use loka_core::{
    engine::CpuEngine,
    model::{ModSet, Results, SiteId},
    plan::Plan,
    probe::{ProbeConfig, ProbeEvent, probe},
    session::{Effect, Event, OpenedTrace},
    tables,
    trace::Trace,
};

use super::{Link, Wake};
use crate::{files, probing};

/// The engine of this process: the CPU, always there.
pub struct LocalLink {
    sender: Outbox,
    receiver: Receiver<(u64, Event)>,
    /// The trace that probes read, put there by the thread that opened it.
    trace: Arc<Mutex<Option<Trace>>>,
    /// Counts openings: a slow earlier one must not replace what was opened after it.
    opening: Arc<AtomicU64>,
    probe: Option<Probing>,
    busy: Arc<Mutex<Vec<String>>>,
}

struct Probing {
    run: u64,
    cancel: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Sends events and wakes the window. The number is the run that an event belongs to, 0 for none.
#[derive(Clone)]
struct Outbox {
    sender: Sender<(u64, Event)>,
    wake: Wake,
}

impl Outbox {
    fn send(&self, run: u64, event: Event) {
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
            probe: None,
            busy: Arc::default(),
        }
    }

    fn load_trace(&self, path: String) {
        let ticket = self.opening.fetch_add(1, Ordering::SeqCst) + 1;
        let (latest, slot, outbox) = (self.opening.clone(), self.trace.clone(), self.sender.clone());
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", format!("Opening {path}"), failed, move || {
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
        self.spawn("loka-open", format!("Opening {path}"), failed, move || {
            Some(match tables::read_results(Path::new(&path)) {
                Ok(results) => Event::ResultsOpened { path, results: Box::new(results) },
                Err(error) => Event::OpenFailed { message: error.to_string() },
            })
        });
    }

    fn write_results(&self, path: String, results: Box<Results>) {
        let failed = |message| Event::WriteFailed { message };
        self.spawn("loka-write", format!("Writing {path}"), failed, move || {
            Some(match tables::write_results(Path::new(&path), &results) {
                Ok(()) => Event::Written { path, what: "Results".to_owned() },
                Err(error) => Event::WriteFailed { message: error.to_string() },
            })
        });
    }

    fn write_plan(&self, path: String, mut plan: Box<Plan>) {
        let failed = |message| Event::WriteFailed { message };
        self.spawn("loka-write", format!("Writing {path}"), failed, move || {
            plan.created_at = probing::now_rfc3339();
            plan.digest = plan.content_digest();
            Some(match files::write_atomically(Path::new(&path), plan.to_json().as_bytes()) {
                Ok(()) => Event::Written { path, what: "Plan".to_owned() },
                Err(error) => Event::WriteFailed { message: format!("{error:#}") },
            })
        });
    }

    /// Runs `work` on a thread of that name. A panic in it becomes an event, not a silent thread.
    fn spawn(
        &self,
        name: &str,
        label: String,
        failed: fn(String) -> Event,
        work: impl FnOnce() -> Option<Event> + Send + 'static,
    ) {
        let (outbox, busy) = (self.sender.clone(), self.busy.clone());
        busy.lock().unwrap_or_else(PoisonError::into_inner).push(label.clone());
        let done = move || {
            let mut busy = busy.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = busy.iter().position(|of| *of == label) {
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

    fn start_probe(&mut self, run: u64, mods: ModSet) {
        let before = self.stop_probe();
        let Some(trace) = self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone() else {
            let message = "These results came without their trace: open the trace to probe it.".to_owned();
            return self.sender.send(0, Event::OpenFailed { message });
        };
        let sites = usable(&trace);
        // Told before the thread starts, so that nothing of this run can arrive ahead of it.
        self.sender.send(run, Event::ProbeStarted { run, mods: mods.clone(), num_sites: sites.len() });
        let cancel = Arc::new(AtomicBool::new(false));
        let (flag, outbox, refused) = (cancel.clone(), self.sender.clone(), self.sender.clone());
        let spawned = Builder::new().name("loka-probe".to_owned()).spawn(move || {
            // One probe at a time has the cores; a cancelled one needs a moment to stop.
            drop(before.map(JoinHandle::join));
            run_probe(run, mods, &trace, &sites, &flag, &outbox);
        });
        match spawned {
            Ok(thread) => self.probe = Some(Probing { run, cancel, thread: Some(thread) }),
            Err(error) => {
                let message = format!("the probe could not start: {error}");
                refused.send(0, Event::OpenFailed { message });
                refused.send(run, Event::ProbeFinished { run, cancelled: true, seconds: 0.0 });
            }
        }
    }

    /// Asks the running probe to stop; gives its thread to wait for.
    fn stop_probe(&mut self) -> Option<JoinHandle<()>> {
        let probing = self.probe.as_mut()?;
        probing.cancel.store(true, Ordering::Relaxed);
        probing.thread.take()
    }
}

impl Link for LocalLink {
    fn run(&mut self, effect: Effect) {
        match effect {
            Effect::LoadTrace { path } => self.load_trace(path),
            Effect::LoadResults { path } => self.load_results(path),
            Effect::Probe { run, mods } => self.start_probe(run, mods),
            Effect::Cancel => {
                if let Some(probing) = &self.probe {
                    probing.cancel.store(true, Ordering::Relaxed);
                }
            }
            Effect::WriteResults { path, results } => self.write_results(path, results),
            Effect::WritePlan { path, plan } => self.write_plan(path, plan),
        }
    }

    fn poll(&mut self) -> Option<Event> {
        let current = self.probe.as_ref().map_or(0, |probing| probing.run);
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

    fn engine(&self) -> String {
        "CPU, emulated: errors exact, speeds recorded on an H200".to_owned()
    }
}

impl Drop for LocalLink {
    fn drop(&mut self) {
        // A closed window must not leave a probe that keeps the cores busy.
        drop(self.stop_probe());
    }
}

fn open(path: &str) -> Result<(Trace, OpenedTrace), String> {
    let trace = Trace::open(Path::new(path)).map_err(|error| error.to_string())?;
    let meta = probing::results_meta(&trace, String::new(), &CpuEngine, &config(ModSet::none()));
    let opened = OpenedTrace { path: path.to_owned(), name: trace.manifest().model.name.clone(), meta };
    Ok((trace, opened))
}

fn config(mods: ModSet) -> ProbeConfig {
    ProbeConfig { mods, latency: probing::recorded_latencies(), ..ProbeConfig::default() }
}

fn usable(trace: &Trace) -> Vec<SiteId> {
    trace.sites().iter().filter(|entry| entry.problem.is_none()).map(|entry| entry.site.id.clone()).collect()
}

fn run_probe(run: u64, mods: ModSet, trace: &Trace, sites: &[SiteId], cancel: &AtomicBool, outbox: &Outbox) {
    let start = Instant::now();
    let sink = |event: ProbeEvent| {
        let event = match event {
            ProbeEvent::Rows(rows) => Event::Rows { run, rows },
            ProbeEvent::Problem(site, reason) => Event::Problem { run, site, reason },
            ProbeEvent::Progress(done) => Event::Progress { run, done, seconds: start.elapsed().as_secs_f64() },
        };
        outbox.send(run, event);
    };
    let work = || probe(trace, sites, &CpuEngine, &config(mods), cancel, &sink);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    if let Err(cause) = &outcome {
        outbox.send(run, Event::OpenFailed { message: panic_text(&**cause) });
    }
    let cancelled = outcome.is_err() || cancel.load(Ordering::Relaxed);
    outbox.send(run, Event::ProbeFinished { run, cancelled, seconds: start.elapsed().as_secs_f64() });
}

fn panic_text(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().copied().or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    format!("LoKA met an error of its own, please report it: {}", text.unwrap_or("no details"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        link.spawn("loka-open", "Opening".to_owned(), failed, || panic!("boom"));
        let Event::OpenFailed { message } = next(&mut link) else { panic!("not a failure") };
        assert!(message.ends_with("boom"), "{message}");
    }

    #[test]
    fn a_probe_without_a_trace_says_so() {
        let mut link = LocalLink::new(Arc::new(|| {}));
        link.run(Effect::Probe { run: 1, mods: ModSet::none() });
        assert!(matches!(next(&mut link), Event::OpenFailed { .. }));
    }
}
