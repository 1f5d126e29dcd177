//! Opens the journal beside a trace that was opened: takes the trace with its stamp and, if it is known, its digest, gives the journal and what an
//! earlier process left there.

use std::{path::Path, sync::Arc};

use loka_core::{
    format::number::counted,
    journal::{self, Journal, Restored},
    runtime::{Journaling, NoJournal},
    session::{NoticeKind, SavedSession},
    views::OpenedTrace,
};

/// One that cannot be opened is kept nowhere, and says so for as long as the trace is open. Lines for the person go to `warn`.
pub(super) fn open(
    opened: &OpenedTrace,
    stamp: &str,
    wake: journal::Wake,
    warn: impl Fn(String),
) -> (Box<dyn Journaling>, Option<SavedSession>) {
    let place = journal::beside(Path::new(&opened.path));
    match Journal::open(&place, (stamp, &opened.meta.trace_digest), wake) {
        Ok((journal, restored, told)) => {
            told.into_iter().for_each(warn);
            (Box::new(journal), restored.map(|restored| taken_up(restored, opened)))
        }
        // What stands in every window then, and refuses approvals, is the same as of a disk that is full.
        Err(error) => {
            let problem = format!("{error}; the journal is tried again when the trace is opened again");
            (Box::new(NoJournal { problem: Some(problem) }), None)
        }
    }
}

/// What was left there, for a session that keeps no journal.
#[cfg(feature = "serve")]
pub(super) fn left(opened: &OpenedTrace, stamp: &str, warn: impl Fn(String)) -> Option<SavedSession> {
    let place = journal::beside(Path::new(&opened.path));
    let left = Journal::left_at(&place, (stamp, &opened.meta.trace_digest)).map_err(|error| error.to_string());
    match left.flatten() {
        Ok(restored) => restored.map(|restored| taken_up(restored, opened)),
        Err(why) => {
            warn(format!("What was decided here before is not seen: {why}"));
            None
        }
    }
}

/// The trace may have another path today than when its journal was kept.
fn taken_up(restored: Restored, opened: &OpenedTrace) -> SavedSession {
    let Restored { mut ordered, num_commands, .. } = restored;
    let session = &mut ordered.session;
    if let Some(trace) = session.trace.as_mut().map(Arc::make_mut) {
        (trace.path, trace.name) = (opened.path.clone(), opened.name.clone());
        trace.meta.trace_digest.clone_from(&opened.meta.trace_digest);
    }
    let rows = session.rows().count();
    if num_commands > 0 || rows > 0 {
        let (rows, commands) = (counted(rows, "row"), counted(num_commands as usize, "command"));
        session.notify(NoticeKind::Info, format!("Taken up where it was left: {rows}, {commands}"));
    }
    ordered.save()
}
