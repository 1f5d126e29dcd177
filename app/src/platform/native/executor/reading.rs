//! What the executor reads: traces with their journals, results, plans, series. Each on a thread of its own, which
//! ends as an event.

use std::{
    path::Path,
    sync::{PoisonError, atomic::Ordering},
};

use loka_core::{
    journal,
    model::FileMagic,
    plan::Plan,
    runtime::{Journaling, Report},
    session::{Event, NoticeKind},
    tables::TableError,
    trace::Trace,
    views::OpenedTrace,
};

use super::{Journals, ThreadExecutor, identify, journals};
use crate::{executor::reading as tell, files, platform::native::memory};

impl ThreadExecutor {
    pub(super) fn load_trace(&self, path: String) {
        let ticket = self.opening.fetch_add(1, Ordering::SeqCst) + 1;
        let (latest, slot, outbox) = (self.opening.clone(), self.trace.clone(), self.sender.clone());
        let place = self.trace_path.clone();
        let failed = |message| Event::OpenFailed { message };
        let journals = self.journals;
        self.spawn("loka-open", Some(format!("Opening {path}")), failed, move || {
            let (trace, mut opened) = match open(&path) {
                Ok(opened) => opened,
                Err(message) => return Some(Report::from(Event::OpenFailed { message })),
            };
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            if latest.load(Ordering::SeqCst) != ticket {
                return None;
            }
            *slot = Some(trace.clone());
            place.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&path);
            drop(slot);
            let warn = |message| outbox.send(0, Event::Notice { kind: NoticeKind::Warning, message });
            let (stamp, wake) = (trace.stamp(), outbox.wake.clone());
            if journals == Journals::None || !journal::beside(Path::new(&path)).exists() {
                // It begins before the first command is taken, so that none is lost.
                let journal = (journals == Journals::Kept).then(|| journals::open(&opened, &stamp, wake, warn).0);
                let event = Event::TraceOpened { trace: Box::new(opened) };
                outbox.report(0, with_journal(event, journal));
                // Reads the whole file, a second and a half for a gigabyte: the sites need not wait for it.
                let digest = trace.digest();
                return Some(Report::from(Event::TraceDigest { path, digest }));
            }
            // What was left is of this very trace or of none.
            opened.meta.trace_digest = trace.digest();
            #[cfg(feature = "serve")]
            if journals == Journals::Read {
                return Some(match journals::left(&opened, &stamp, warn) {
                    Some(saved) => Report::Restored {
                        saved: Box::new(saved),
                        journal: Box::new(loka_core::runtime::NoJournal::default()),
                    },
                    None => Report::opened(opened),
                });
            }
            Some(match journals::open(&opened, &stamp, wake, warn) {
                (journal, Some(saved)) => Report::Restored { saved: Box::new(saved), journal },
                (journal, None) => with_journal(Event::TraceOpened { trace: Box::new(opened) }, Some(journal)),
            })
        });
    }

    /// Results to go on from, or to compare with: `read` says how they are read, `told` which of the two.
    pub(super) fn load_results<R: 'static>(
        &self,
        path: String,
        read: fn(&Path) -> Result<R, TableError>,
        told: fn(String, Box<R>) -> Event,
    ) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", Some(format!("Opening {path}")), failed, move || {
            let read = read(Path::new(&path));
            memory::give_back_freed();
            Some(Report::from(match read {
                Ok(results) => told(path, Box::new(results)),
                Err(error) => Event::OpenFailed { message: error.to_string() },
            }))
        });
    }

    /// What a file is whose name does not say.
    pub(super) fn identify(&self, path: String) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", None, failed, move || {
            let kind = identify(Path::new(&path));
            Some(Report::from(Event::Identified { path, kind }))
        });
    }

    /// A plan to compare with.
    pub(super) fn load_plan(&self, path: String) {
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-open", Some(format!("Opening {path}")), failed, move || {
            let read = files::read_document(Path::new(&path), "a plan", FileMagic::Plan);
            let read = read.map_err(|error| error.to_string());
            let plan = read.and_then(|text| Plan::from_json(&text).map_err(|error| format!("{error}: {path}")));
            Some(Report::from(match plan {
                Ok(plan) => Event::PlanOpened { path, plan: Box::new(plan) },
                Err(message) => Event::OpenFailed { message },
            }))
        });
    }

    /// Small beside the statistics, and spread over the whole file: read when somebody looks.
    pub(super) fn read_series(&self, path: String) {
        let trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failed = |message| Event::OpenFailed { message };
        self.spawn("loka-series", Some("Reading series".to_owned()), failed, move || {
            let none = "these results came without their trace: open the trace to see its series".to_owned();
            let table = trace.ok_or(none).map(|trace| Box::new(tell::series_of(&trace)));
            Some(Report::from(Event::SeriesRead { path, table }))
        });
    }
}

fn open(path: &str) -> Result<(Trace, OpenedTrace), String> {
    let trace = Trace::open(Path::new(path)).map_err(|error| error.to_string())?;
    let opened = tell::opened(path, &trace);
    Ok((trace, opened))
}

fn with_journal(event: Event, journal: Option<Box<dyn Journaling>>) -> Report {
    match journal {
        Some(journal) => Report::Journaled { event: Box::new(event), journal },
        None => Report::from(event),
    }
}
