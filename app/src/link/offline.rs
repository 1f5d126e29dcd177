//! Takes effects, answers each with the one line that says why nothing happened: a page without an
//! engine is honest about it.

use std::collections::VecDeque;

use loka_core::{
    engine::EngineStatus,
    session::{ENGINES, Effect, Event, shared::News},
};

use super::Link;

const NO_ENGINE: &str = "This page has no engine: run the loka program on your machine to open and probe a trace.";

/// Where there are neither threads nor files.
#[derive(Debug, Default)]
pub struct OfflineLink {
    answers: VecDeque<Event>,
}

impl Link for OfflineLink {
    fn run(&mut self, effect: Effect) {
        let message = NO_ENGINE.to_owned();
        match effect {
            Effect::LoadTrace { .. }
            | Effect::LoadResults { .. }
            | Effect::LoadPlan { .. }
            | Effect::Identify { .. }
            | Effect::Probe { .. } => {
                self.answers.push_back(Event::OpenFailed { message });
            }
            Effect::WriteResults { .. } | Effect::WritePlan { .. } => {
                self.answers.push_back(Event::WriteFailed { message });
            }
            Effect::ReadSeries { path } => {
                self.answers.push_back(Event::SeriesRead { path, table: Err(message) });
            }
            Effect::FindEngines => {
                let engines = ENGINES.map(|name| EngineStatus::missing(name, message.clone(), Vec::new()));
                self.answers.push_back(Event::EnginesFound { engines: engines.to_vec() });
            }
            Effect::Measure { run, .. } => {
                self.answers.push_back(Event::MeasureFinished { run, problem: Some(message) });
            }
            Effect::Inspect { trace, site } => {
                self.answers.push_back(Event::SiteInspected { trace, other: None, site, outcome: Err(message) });
            }
            Effect::InspectOther { trace, path, site } => {
                self.answers.push_back(Event::SiteInspected { trace, other: Some(path), site, outcome: Err(message) });
            }
            // Nothing runs, so there is nothing to say.
            Effect::Cancel | Effect::Pause { .. } | Effect::Watch { .. } => {}
        }
    }

    fn poll(&mut self) -> Option<News> {
        self.answers.pop_front().map(|event| News::from(event))
    }

    fn busy(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(link: &mut OfflineLink) -> Option<Event> {
        match link.poll()? {
            News::Event(event) => Some(*event),
            other => panic!("not an event: {other:?}"),
        }
    }

    #[test]
    fn every_request_is_answered_in_one_line() {
        let mut link = OfflineLink::default();
        link.run(Effect::LoadTrace { path: "a".to_owned() });
        assert_eq!(next(&mut link), Some(Event::OpenFailed { message: NO_ENGINE.to_owned() }));
        let site = loka_core::model::SiteId::new("s");
        link.run(Effect::Inspect { trace: "a".to_owned(), site: site.clone() });
        let refused = Event::SiteInspected { trace: "a".into(), other: None, site, outcome: Err(NO_ENGINE.to_owned()) };
        assert_eq!(next(&mut link), Some(refused));
        link.run(Effect::Cancel);
        assert_eq!(next(&mut link), None);
    }
}
