//! What one window wants to know for itself: takes a question, gives the event that answers it, from a thread beside
//! the sessions'.

use std::{path::Path, sync::Arc};

use loka_core::{
    session::{Event, shared::ClientQuery},
    trace::Trace,
};

use super::{ServedDir, session_registry::SessionRegistry, shared_session::SharedSession};
use crate::{
    executor::{inspect, reading::series_of},
    platform::{checkpoints, compare, identify},
};

/// Answered in its turn, with those of all windows.
pub async fn answer(registry: &SessionRegistry, shared: Option<Arc<SharedSession>>, question: ClientQuery) -> Event {
    let unanswered = refusal(shared.as_deref(), question.clone(), "the server could not answer".to_owned());
    let Ok(_turn) = registry.askers.acquire().await else { return unanswered };
    let served_dir = registry.served_dir.clone();
    let work = tokio::task::spawn_blocking(move || answered(shared.as_deref(), &served_dir, question));
    work.await.unwrap_or(unanswered)
}

fn answered(shared: Option<&SharedSession>, served_dir: &ServedDir, question: ClientQuery) -> Event {
    let inside = |name: &str| {
        let path = served_dir.path(name)?;
        served_dir.name(&path).ok_or_else(|| format!("its name is no text: {name}"))
    };
    match question {
        ClientQuery::Identify { path } => {
            let kind = inside(&path).and_then(|name| identify(Path::new(&name)));
            Event::Identified { path, kind }
        }
        ClientQuery::Series => match shared.and_then(SharedSession::opened) {
            Some(trace) => Event::SeriesRead { path: name_of(shared), table: Ok(Box::new(series_of(&trace))) },
            None => refusal(shared, ClientQuery::Series, NO_TRACE.to_owned()),
        },
        ClientQuery::Compare { path } => {
            let found = match inside(&path) {
                Ok(found) => found,
                Err(line) => return refusal(shared, ClientQuery::Compare { path }, line),
            };
            compare::answer(name_of(shared), shared.and_then(SharedSession::opened), path, &found)
        }
        ClientQuery::Checkpoints { followed } => {
            checkpoints::answer(name_of(shared), shared.and_then(SharedSession::opened), &followed, inside)
        }
        ClientQuery::Inspect { site, other } => {
            let found = match other.as_deref().map(inside).transpose() {
                Ok(found) => found,
                Err(line) => return refusal(shared, ClientQuery::Inspect { site, other }, line),
            };
            let answer = inspect::answer(name_of(shared), shared.and_then(SharedSession::opened), found, site, read);
            // By the name that was asked for.
            match answer {
                Event::SiteInspected { trace, site, outcome, .. } => {
                    Event::SiteInspected { trace, other, site, outcome }
                }
                answer => answer,
            }
        }
    }
}

const NO_TRACE: &str = "no trace is open";

/// The answer that says why there is none.
pub fn refusal(shared: Option<&SharedSession>, question: ClientQuery, line: String) -> Event {
    match question {
        ClientQuery::Identify { path } => Event::Identified { path, kind: Err(line) },
        ClientQuery::Series => Event::SeriesRead { path: name_of(shared), table: Err(line) },
        ClientQuery::Compare { path } => Event::TraceCompared { trace: name_of(shared), path, outcome: Err(line) },
        ClientQuery::Checkpoints { .. } => Event::CheckpointsRead { trace: name_of(shared), outcome: Err(line) },
        ClientQuery::Inspect { site, other } => {
            Event::SiteInspected { trace: name_of(shared), other, site, outcome: Err(line) }
        }
    }
}

fn name_of(shared: Option<&SharedSession>) -> String {
    shared.map(|shared| shared.trace.clone()).unwrap_or_default()
}

/// By its name: the process works in the served folder.
fn read(name: &str) -> Result<Trace, String> {
    Trace::open(Path::new(name)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use loka_core::session::shared::{MAX_TO_CLIENT, ToClient, decode, encode};

    use super::*;

    #[test]
    fn answers_of_a_recorded_trace_have_a_coding() {
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/wukong-drift.trace.safetensors");
        let trace = Trace::open(Path::new(sample)).unwrap();
        let series = Event::SeriesRead { path: "t".to_owned(), table: Ok(Box::new(series_of(&trace))) };
        let inspect = |at: usize| {
            let site = trace.sites()[at].site.id.clone();
            inspect::answer("t".to_owned(), Some(trace.clone()), None, site, read)
        };
        let compared = compare::answer("t".to_owned(), Some(trace.clone()), "o".to_owned(), sample);
        for event in [series, inspect(0), inspect(trace.sites().len() - 1), compared] {
            assert!(matches!(
                &event,
                Event::SeriesRead { table: Ok(_), .. }
                    | Event::SiteInspected { outcome: Ok(_), .. }
                    | Event::TraceCompared { outcome: Ok(_), .. }
            ));
            let message = ToClient::Answer(Box::new(event));
            // What is no number is no equal, but it has characters.
            let again: ToClient = decode(&encode(&message), MAX_TO_CLIENT).unwrap();
            assert_eq!(format!("{again:?}"), format!("{message:?}"));
        }
    }
}
