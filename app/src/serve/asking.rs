//! What one window wants to know for itself: takes a question, gives the event that answers it, from a thread beside
//! the sessions'.

use std::{path::Path, sync::Arc};

use loka_core::{
    session::{Event, shared::Question},
    trace::Trace,
};

use super::{Jail, hub::Hub, room::Room};
use crate::executor::{identify, inspect_answer, series_of};

/// Answered in its turn, with those of all windows.
pub async fn answer(hub: &Hub, room: Option<Arc<Room>>, question: Question) -> Event {
    let unanswered = refusal(room.as_deref(), question.clone(), "the server could not answer".to_owned());
    let Ok(_turn) = hub.askers.acquire().await else { return unanswered };
    let jail = hub.jail.clone();
    let work = tokio::task::spawn_blocking(move || answered(room.as_deref(), &jail, question));
    work.await.unwrap_or(unanswered)
}

fn answered(room: Option<&Room>, jail: &Jail, question: Question) -> Event {
    let inside = |name: &str| {
        let path = jail.path(name)?;
        jail.name(&path).ok_or_else(|| format!("its name is no text: {name}"))
    };
    match question {
        Question::Identify { path } => {
            let kind = inside(&path).and_then(|name| identify(Path::new(&name)));
            Event::Identified { path, kind }
        }
        Question::Series => match room.and_then(Room::opened) {
            Some(trace) => Event::SeriesRead { path: name_of(room), table: Ok(Box::new(series_of(&trace))) },
            None => refusal(room, Question::Series, NO_TRACE.to_owned()),
        },
        Question::Inspect { site, other } => {
            let found = match other.as_deref().map(inside).transpose() {
                Ok(found) => found,
                Err(line) => return refusal(room, Question::Inspect { site, other }, line),
            };
            let answer = inspect_answer(name_of(room), room.and_then(Room::opened), found, site, read);
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
pub fn refusal(room: Option<&Room>, question: Question, line: String) -> Event {
    match question {
        Question::Identify { path } => Event::Identified { path, kind: Err(line) },
        Question::Series => Event::SeriesRead { path: name_of(room), table: Err(line) },
        Question::Inspect { site, other } => {
            Event::SiteInspected { trace: name_of(room), other, site, outcome: Err(line) }
        }
    }
}

fn name_of(room: Option<&Room>) -> String {
    room.map(|room| room.trace.clone()).unwrap_or_default()
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
            inspect_answer("t".to_owned(), Some(trace.clone()), None, site, read)
        };
        for event in [series, inspect(0), inspect(trace.sites().len() - 1)] {
            assert!(matches!(
                &event,
                Event::SeriesRead { table: Ok(_), .. } | Event::SiteInspected { outcome: Ok(_), .. }
            ));
            let message = ToClient::Answer(Box::new(event));
            // What is no number is no equal, but it has letters.
            let again: ToClient = decode(&encode(&message), MAX_TO_CLIENT).unwrap();
            assert_eq!(format!("{again:?}"), format!("{message:?}"));
        }
    }
}
