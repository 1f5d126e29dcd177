//! What the local link reads: traces with their journals, results, plans, series. Each on a thread of its own, which
//! ends as an event.

use std::{
    path::Path,
    sync::{PoisonError, atomic::Ordering},
};

use loka_core::{
    journal,
    model::FileMagic,
    plan::Plan,
    session::{Event, OpenedTrace, shared::News},
    tables,
    trace::Trace,
};

use super::LocalLink;
use crate::{
    files,
    link::{identify::identify, keeping::Found, reading},
};

impl LocalLink {
    pub(super) fn load_trace(&self, path: String) {
        let ticket = self.opening.fetch_add(1, Ordering::SeqCst) + 1;
        let (latest, slot, outbox) = (self.opening.clone(), self.trace.clone(), self.sender.clone());
        let failed = |message| Event::OpenFailed { message };
        let arriving = self.keeping.arriving();
        self.spawn("loka-open", Some(format!("Opening {path}")), failed, move || {
            let (trace, mut opened) = match open(&path) {
                Ok(opened) => opened,
                Err(message) => return Some(Event::OpenFailed { message }),
            };
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            if latest.load(Ordering::SeqCst) != ticket {
                return None;
            }
            *slot = Some(trace.clone());
            drop(slot);
            let Some(arriving) = arriving else {
                outbox.send(0, Event::TraceOpened { trace: Box::new(opened) });
                // Reads the whole file, a second and a half for a gigabyte: the sites need not wait for it.
                return Some(Event::TraceDigest { path, digest: trace.digest() });
            };
            let warn = |message| outbox.send(0, Event::Warned { message });
            if !journal::beside(Path::new(&path)).exists() {
                outbox.send(0, Event::TraceOpened { trace: Box::new(opened.clone()) });
                let digest = trace.digest();
                arriving.open(&opened, &digest, warn);
                return Some(Event::TraceDigest { path, digest });
            }
            // What was left is of this very trace or of none.
            opened.meta.trace_digest = trace.digest();
            match arriving.open(&opened, &opened.meta.trace_digest, warn) {
                Found::Nothing => Some(Event::TraceOpened { trace: Box::new(opened) }),
                Found::Left(saved) => {
                    outbox.news(0, News::State(saved));
                    None
                }
            }
        });
    }

    pub(super) fn load_results(&self, path: String) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", Some(format!("Opening {path}")), failed, move || {
            Some(match tables::read_results(Path::new(&path)) {
                Ok(results) => Event::ResultsOpened { path, results: Box::new(results) },
                Err(error) => Event::OpenFailed { message: error.to_string() },
            })
        });
    }

    /// Results to compare with.
    pub(super) fn compare_results(&self, path: String) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", Some(format!("Opening {path}")), failed, move || {
            Some(match tables::read_results(Path::new(&path)) {
                Ok(results) => Event::ResultsCompared { path, results: Box::new(results) },
                Err(error) => Event::OpenFailed { message: error.to_string() },
            })
        });
    }

    /// What a file is whose name does not say.
    pub(super) fn identify(&self, path: String) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", None, failed, move || {
            let kind = identify(Path::new(&path));
            Some(Event::Identified { path, kind })
        });
    }

    /// A plan to compare with.
    pub(super) fn load_plan(&self, path: String) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", Some(format!("Opening {path}")), failed, move || {
            let read = files::read_document(Path::new(&path), "a plan", FileMagic::Plan);
            let read = read.map_err(|error| error.to_string());
            let plan = read.and_then(|text| Plan::from_json(&text).map_err(|error| format!("{error}: {path}")));
            Some(match plan {
                Ok(plan) => Event::PlanOpened { path, plan: Box::new(plan) },
                Err(message) => Event::OpenFailed { message },
            })
        });
    }

    /// Small beside the statistics, and spread over the whole file: read when somebody looks.
    pub(super) fn read_series(&self, path: String) {
        let trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-series", Some("Reading series".to_owned()), failed, move || {
            let none = "these results came without their trace: open the trace to see its series".to_owned();
            Some(Event::SeriesRead { path, table: trace.ok_or(none).map(|trace| Box::new(reading::series_of(&trace))) })
        });
    }
}

fn open(path: &str) -> Result<(Trace, OpenedTrace), String> {
    let trace = Trace::open(Path::new(path)).map_err(|error| error.to_string())?;
    let opened = reading::opened(path, &trace);
    Ok((trace, opened))
}
