//! Questions asked once, answers kept, late ones dropped.

use super::*;
use crate::{
    session::{Command, Event},
    views::{
        OpenedTrace,
        distribution::tests::{manifest, stats},
    },
};

fn opened() -> Session {
    let mut manifest = manifest();
    manifest.sites.push(stats().site);
    let json = serde_json::json!({
        "trace_digest": "", "manifest": manifest, "engine": "", "device": "", "driver": "", "versions": "",
        "time": "", "seed": 0, "confidence": 0.95, "problems": [],
    });
    let meta = serde_json::from_value(json).unwrap();
    let mut session = Session::default();
    let trace = OpenedTrace { path: "one".to_owned(), name: "m".to_owned(), meta };
    session.event(Event::TraceOpened { trace: Box::new(trace) });
    session
}

fn answer(trace: &str, other: Option<&str>, outcome: Result<(), &str>) -> Event {
    let outcome = outcome.map(|()| Box::new(Inspection::of(&stats(), &manifest()))).map_err(str::to_owned);
    Event::SiteInspected { trace: trace.to_owned(), other: other.map(str::to_owned), site: SiteId::new("a"), outcome }
}

#[test]
fn a_site_is_asked_for_once_and_kept() {
    let (mut session, site) = (opened(), SiteId::new("a"));
    let ask = Command::InspectSite { site: site.clone() };
    let effects = session.command(ask.clone()).unwrap();
    assert_eq!(effects, [Effect::Inspect { trace: "one".to_owned(), site: site.clone() }]);
    assert_eq!(session.inspections.of(&site), Some(&Looked::Waiting));
    assert_eq!(session.command(ask.clone()).unwrap(), []);
    session.event(answer("one", None, Err("not today")));
    assert_eq!(session.inspections.of(&site), Some(&Looked::Failed("not today".to_owned())));
    assert_eq!(session.command(ask.clone()).unwrap().len(), 1, "a failure can be tried again");
    session.event(answer("one", None, Ok(())));
    assert!(matches!(session.inspections.of(&site), Some(Looked::Found(_))));
    assert_eq!(session.command(ask).unwrap(), []);
    let unknown = Command::InspectSite { site: SiteId::new("b") };
    assert_eq!(session.command(unknown).unwrap_err().to_string(), "unknown site 'b'");
}

#[test]
fn other_traces_stand_beside_and_late_answers_change_nothing() {
    let (mut session, site) = (opened(), SiteId::new("a"));
    let effects = session.command(Command::InspectOther { path: "two".to_owned(), site: site.clone() }).unwrap();
    let (trace, path) = ("one".to_owned(), "two".to_owned());
    assert_eq!(effects, [Effect::InspectOther { trace, path, site: site.clone() }]);
    session.event(answer("one", Some("two"), Ok(())));
    assert_eq!(session.inspections.of(&site), None);
    assert!(matches!(session.inspections.in_other("two", &site), Some(Looked::Found(_))));
    assert_eq!(session.inspections.others_of(&site).count(), 1);
    session.event(answer("zero", None, Ok(())));
    assert_eq!(session.inspections.of(&site), None, "it is of the trace that was open before");
}
