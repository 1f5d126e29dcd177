//! What a window does for itself beside a session that a server drives.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use super::*;
use crate::{
    dispatch::testing::{results, row},
    model::{Gemm, Moment},
    review::ApprovalRule,
    session::shared::{Author, SequencedSession},
};

fn anna(number: u64, at: i64) -> CommandContext {
    CommandContext { author: Author::new(7, "Anna"), number, at: Moment(at), ..CommandContext::default() }
}

/// A session with a version that is up for approval since the moment 1,000.
fn requested() -> SequencedSession {
    let mut ordered = SequencedSession::default();
    let results = Box::new(results(&["a"], vec![row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, None, 0.0)]).into());
    ordered.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results });
    let mut policy = ordered.session.document.policy.clone();
    policy.approval = Some(ApprovalRule::of(1));
    ordered.command(anna(1, 900), Command::SetPolicy { policy }).unwrap();
    ordered.command(anna(2, 1_000), Command::RequestApproval { note: String::new() }).unwrap();
    ordered
}

#[test]
fn a_signature_is_dated_by_the_windows_clock() {
    let mut replica = Replica::default();
    let saved = Box::new(requested().save());
    assert_eq!(replica.apply(LinkMessage::State(saved)), Applied::Replaced { same_trace: false });
    let sign = Command::Sign { path: "anna.key.json".to_owned(), note: String::new() };
    let effects = replica.private(&anna(0, 2_000), sign);
    let [Effect::Sign { statement, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((statement.at, statement.name.as_str()), (Moment(2_000), "Anna"));
}

#[test]
fn a_private_command_that_is_refused_is_a_line_here() {
    let mut replica = Replica::default();
    let effects = replica.private(&anna(0, 0), Command::ExportPlan { path: "p.plan.json".to_owned() });
    assert_eq!(effects, []);
    assert_eq!(replica.session().notices.len(), 1);
}
