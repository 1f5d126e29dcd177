//! The engine "cluster" of a session: finds a Ray cluster, probes on it, gives the events that an engine of this process
//! gives. Rows come a part at a time; a cluster that fails costs what was under way, and can be looked for again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use loka_core::{
    engine::{
        self, Control, EngineStatus,
        cluster::{self as ray, Cluster, ClusterInfo},
    },
    model::{Site, SiteId, SiteMods},
    session::{Circumstances, Event, NoticeKind},
    trace::Trace,
};

use super::{Outbox, ThreadExecutor, work};
use crate::{
    cluster::{self, ClusterJob},
    executor::panic_text,
    probing,
};

/// Where Ray is looked for, as the library worker's Python is.
const PYTHON: &str = "python3";

/// So many sites are named to a task one by one; of more, whole parts are probed again.
const MOST_NAMED: usize = 500;

/// What there is now. It is left again: an idle driver is a guest that nobody needs.
pub(super) fn look(slot: &Mutex<Option<ClusterInfo>>) -> EngineStatus {
    let found = Cluster::connect(&cluster::config(Path::new(PYTHON)), &Control::new());
    let (info, status) = match found {
        Ok(cluster) => (Some(cluster.info().clone()), cluster.info().status()),
        Err(error) => (None, EngineStatus::missing(ray::NAME, error.to_string(), Vec::new())),
    };
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = info;
    status
}

/// One probe.
struct OnCluster {
    run: u64,
    trace: Trace,
    path: String,
    mods: SiteMods,
    sites: Vec<SiteId>,
    draws: Option<u64>,
    /// As it was found: its rows are awaited.
    info: ClusterInfo,
    slot: Arc<Mutex<Option<ClusterInfo>>>,
    busy: Arc<Mutex<Vec<String>>>,
}

impl ThreadExecutor {
    pub(super) fn start_on_cluster(&mut self, run: u64, mods: SiteMods, sites: Vec<SiteId>, draws: Option<u64>) {
        let trace = match self.open_trace() {
            Ok(trace) => trace,
            Err(event) => return self.sender.send(0, event),
        };
        let found = self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(info) = found else {
            let message = ray::unknown().problem.unwrap_or_default();
            return self.sender.send(0, Event::OpenFailed { message });
        };
        let meta = probing::results_meta_by(&trace, String::new(), info.engine(), &work::config(SiteMods::none()));
        let by = Box::new(Circumstances::from(&meta));
        self.sender.send(run, Event::ProbeStarted { run, mods: mods.clone(), sites: sites.clone(), by });
        let path = self.trace_path.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (slot, busy) = (self.cluster.clone(), self.busy.clone());
        let work = OnCluster { run, trace, path, mods, sites, draws, info, slot, busy };
        let refused = self.sender.clone();
        if let Err(error) = self.start(run, "loka-probe", move |control, outbox| work.run(control, outbox)) {
            refused.send(0, Event::OpenFailed { message: format!("the probe could not start: {error}") });
            refused.send(run, Event::ProbeFinished { run, cancelled: true, seconds: 0.0 });
        }
    }
}

impl OnCluster {
    fn run(&self, control: &Control, outbox: &Outbox) {
        let (run, watch) = (self.run, control.stopwatch());
        let probe = || self.probe(control, outbox, &|| watch.seconds());
        let problem = match catch_unwind(AssertUnwindSafe(probe)) {
            Ok(Ok(())) => None,
            // Nobody waits for it.
            Ok(Err(_)) if control.is_cancelled() => None,
            Ok(Err(error)) => Some(format!("The probe on the cluster stopped: {error:#}. Rows that came are kept.")),
            Err(cause) => Some(panic_text(&*cause)),
        };
        let cancelled = problem.is_some() || control.is_cancelled();
        let failed = problem.is_some();
        if let Some(message) = problem {
            outbox.send(run, Event::Notice { kind: NoticeKind::Error, message });
        }
        outbox.send(run, Event::ProbeFinished { run, cancelled, seconds: watch.seconds() });
        if failed {
            // Is it still there?
            let engines = engine::statuses().into_iter().chain([look(&self.slot)]).collect();
            outbox.send(0, Event::EnginesFound { engines });
        }
    }

    fn probe(&self, control: &Control, outbox: &Outbox, seconds: &dyn Fn() -> f64) -> anyhow::Result<()> {
        let run = self.run;
        let mut cluster = self.join(control)?;
        let (found, expected) = (cluster.info(), &self.info);
        anyhow::ensure!(
            (&found.engine, &found.device) == (&expected.engine, &expected.device),
            "it computes on {} now, no longer on {}",
            found.device,
            expected.device
        );
        let all: Vec<Site> = self.trace.sites().iter().map(|entry| entry.site.clone()).collect();
        let ids: Vec<SiteId> = all.iter().map(|site| site.id.clone()).collect();
        let (mut options, mut probed) = (Vec::new(), &ids);
        if let Some(draws) = self.draws {
            options.extend([format!("--min-draws={draws}"), format!("--max-draws={draws}")]);
            if self.sites.len() <= MOST_NAMED {
                options.extend(self.sites.iter().map(|site| format!("--sites={}", globset::escape(site.as_str()))));
                probed = &self.sites;
            }
        }
        let mods = (!self.mods.is_empty()).then_some(&self.mods);
        let path = Path::new(&self.path);
        let job = ClusterJob { trace: &self.trace, path, sites: &all, probed, wanted: &self.sites, mods, options };
        cluster::probe(&mut cluster, &job, control, &mut |part, done| {
            for (site, reason) in part.results.meta.problems {
                outbox.send(run, Event::Problem { run, site, reason });
            }
            outbox.send(run, Event::Rows { run, rows: part.results.rows });
            outbox.send(run, Event::Progress { run, done, seconds: seconds() });
        })
    }

    fn join(&self, control: &Control) -> anyhow::Result<Cluster> {
        let label = "Joining the Ray cluster".to_owned();
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).push(label.clone());
        let joined = Cluster::connect(&cluster::config(Path::new(PYTHON)), control);
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = busy.iter().position(|of| *of == label) {
            busy.remove(at);
        }
        Ok(joined?)
    }
}
