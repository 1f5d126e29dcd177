//! Takes a session and what is looked at, gives what a program waits for and compares: no times, no folders.

use loka_core::{
    session::{NoticeKind, Session},
    views::Versus,
};
use serde_json::{Value, json};

use crate::{
    executor::name_of,
    link::ConnectionState,
    state::{Derived, ViewState},
};

pub(crate) fn state_of(session: &Session, view: &ViewState, derived: &Derived, connection: &ConnectionState) -> Value {
    let running = session.is_running() || session.is_measuring();
    let problems = session.notices.iter().filter(|notice| notice.kind != NoticeKind::Info);
    let problems: Vec<&String> = problems.map(|notice| &notice.text).collect();
    json!({
        "trace": session.trace.as_ref().map(|trace| name_of(&trace.path)),
        "engine": session.shown_origin().engine,
        // Every site has what the document asks for, and it is drawn.
        "complete": session.has_rows() && !running && !session.lacks_rows() && !derived.is_behind(),
        "document": session.document,
        "compared": session.other_plan.as_ref().map(|(path, plan)| json!([name_of(path), plan.name()])),
        "versus": derived.versus().map(Versus::headline),
        "site": view.site,
        "kernel": view.column.as_ref().map(|column| json!([column.gemm, column.kernel])),
        "selected": view.selected_sites(),
        "is_brushed": !view.brush.is_empty(),
        "review": review_of(session),
        "filter": view.filter,
        "metric": view.metric.label(),
        "view": view.layout.active().title(),
        "problems": problems,
        "speedup": derived.plan.decided.as_ref().and_then(|decided| decided.totals.speedup),
        "standing": connection_word(connection),
    })
}

/// Who holds what, how much was said, and the submitted version.
fn review_of(session: &Session) -> Value {
    let reviewing = &session.reviewing;
    let marks = reviewing.review.marks().map(|mark| json!([mark.site, mark.by, mark.state]));
    let release = reviewing.release.as_ref().map(|release| {
        let approvals: Vec<&String> = release.approvals.iter().map(|approval| &approval.name).collect();
        json!({"number": release.number, "changed": release.changed.is_some(), "approvals": approvals})
    });
    let said: Vec<&String> = reviewing.review.comments.iter().map(|comment| &comment.text).collect();
    json!({"marks": marks.collect::<Vec<_>>(), "comments": said, "release": release})
}

fn connection_word(connection: &ConnectionState) -> &'static str {
    match connection {
        ConnectionState::Here => "here",
        ConnectionState::Joining { .. } => "joining",
        ConnectionState::Joined { .. } => "joined",
        ConnectionState::Away { .. } => "away",
    }
}
