//! Takes what somebody asked for, gives it as a person reads it in a trail: one line, in the past, with what people
//! wrote in it made harmless.
//!
//! The words are for people alone: a journal is read back by the JSON of its commands, so that these may change.

use super::{BaselineOf, Command, counted};
use crate::{
    dispatch::{Policy, PolicyGroup},
    model::{Gemm, SiteId, visible},
    review::{Approval, ReviewState},
};

/// Names in a list, after which the rest is counted.
const NAMES: usize = 3;

/// One line of words; the command's JSON has the whole of it.
pub fn said(command: &Command) -> String {
    // Reasons, names and paths come from anybody, and the trail is read in terminals.
    visible(&match command {
        Command::OpenTrace { path } => format!("opened trace {path}"),
        Command::OpenResults { path } => format!("opened results {path}"),
        Command::OpenPlan { path } => format!("opened plan {path} to compare with"),
        Command::ClosePlan => "closed the plan that was compared with".to_owned(),
        Command::SetBaseline { of: BaselineOf::Now } => "kept the plan as it stood, to compare with".to_owned(),
        Command::SetBaseline { of: BaselineOf::Submitted } => "compared with the submitted version".to_owned(),
        Command::SetBaseline { of: BaselineOf::Mods { mods } } => {
            format!("compared with the model {}", super::comparing::with_mods(mods))
        }
        Command::SetRuntime { runtime } => format!("set the runtime to {runtime}"),
        Command::SetPolicy { policy } => format!("set policy {}", policy_said(policy)),
        Command::SetMaxError { value, .. } => format!("set max error to {}", exact(*value)),
        Command::SetMinSpeedup { value, .. } => format!("set min speed-up to {}", exact(*value)),
        Command::ToggleMod { kind } => format!("switched {} at all sites", kind.label()),
        Command::SetMod { kind, on, sites } => {
            let on = if *on { "on" } else { "off" };
            format!("switched {} {on} at {}", kind.label(), listed(sites.iter().map(ToString::to_string)))
        }
        Command::SetOverride { site, gemm, kernel, reason } => {
            format!("override {site} {gemm}: {kernel}{}", because(reason))
        }
        Command::SetOverrides { at, kernel, reason } => {
            format!("override {}: {kernel}{}", listed(at.iter().map(place)), because(reason))
        }
        Command::ClearOverride { site, gemm } => format!("cleared the override of {site} {gemm}"),
        Command::ClearOverrides { at } => format!("cleared the overrides of {}", listed(at.iter().map(place))),
        Command::Undo => "undid the last decision".to_owned(),
        Command::Redo => "decided again what was undone".to_owned(),
        command => of_a_review(command).unwrap_or_else(|| of_a_run(command)),
    })
}

/// `None`: it is no command of a review. An approval is told in full: by this line it is known who signed what.
fn of_a_review(command: &Command) -> Option<String> {
    Some(match command {
        Command::Mark { site, state, .. } => {
            let site = site_said(site.as_ref());
            match state {
                ReviewState::Open => format!("took the mark off {site}"),
                state => format!("marked {site}: {}", state.as_str()),
            }
        }
        Command::Comment { site, gemm, reply_to, text } => {
            let gemm = gemm.map_or(String::new(), |gemm| format!(" {gemm}"));
            let answer = reply_to.map_or(String::new(), |id| format!(" (answer to comment {id})"));
            format!("commented on {}{gemm}{answer}: {text}", site_said(site.as_ref()))
        }
        Command::Resolve { comment, resolved: true } => format!("closed the thread of comment {comment}"),
        Command::Resolve { comment, resolved: false } => format!("opened the thread of comment {comment} again"),
        Command::Look { site, .. } => format!("looked at {site}"),
        Command::RequestApproval { note } => format!("put the plan up for approval{}", because(note)),
        Command::WithdrawRequest => "withdrew the plan that was up for approval".to_owned(),
        Command::Approve { approval } => {
            let Approval { digest, name, role, key, note, .. } = &**approval;
            format!("approved {digest} as {name}, {role}, with {key}{}", because(note))
        }
        _ => return None,
    })
}

/// Everything else: files, engines, runs. What a window does for itself has words as well, though no journal keeps it.
fn of_a_run(command: &Command) -> String {
    match command {
        Command::SelectEngine { name } => format!("took engine {name}"),
        Command::ProbeMore { site, max_draws } => format!("probed {site} again, with up to {max_draws} draws"),
        Command::ProbeSites { sites, max_draws } => {
            format!("probed {} again, with up to {max_draws} draws", counted(sites.len(), "site"))
        }
        Command::Sign { path, note } => format!("had the plan signed with the key in {path}{}", because(note)),
        Command::SaveResults { path } => format!("saved the results to {path}"),
        Command::ExportPlan { path } => format!("exported the plan to {path}"),
        Command::ExportTo { path, target } => format!("exported the plan for {target} to {path}"),
        Command::ExportReport { path } => format!("wrote the report to {path}"),
        Command::InspectSite { site } => format!("inspected {site}"),
        Command::InspectOther { path, site } => format!("inspected {site} of {path}"),
        Command::CompareTrace { path } => format!("compared with the trace {path}"),
        Command::ReadCheckpoints { .. } => "read the run's checkpoints".to_owned(),
        Command::Identify { path } => format!("asked what {path} is"),
        Command::DismissNotice { id } => format!("dismissed notice {id}"),
        Command::FindEngines => "looked for engines".to_owned(),
        Command::MeasureSpeeds => "timed every site's GEMMs".to_owned(),
        Command::StartProbe => "started the probe".to_owned(),
        Command::CancelProbe => "cancelled the probe".to_owned(),
        Command::PauseProbe { paused: true } => "paused the probe".to_owned(),
        Command::PauseProbe { paused: false } => "let the probe go on".to_owned(),
        Command::ReadSeries => "read the recorded series".to_owned(),
        Command::DismissNotices => "dismissed all notices".to_owned(),
        Command::ClearLog => "cleared the log".to_owned(),
        // What has no words yet is said as it is written.
        other => serde_json::to_string(other).unwrap_or_default(),
    }
}

/// Without a site it is the plan as a whole that was marked or commented on.
fn site_said(site: Option<&SiteId>) -> String {
    site.map_or("the plan".to_owned(), ToString::to_string)
}

fn place((site, gemm): &(SiteId, Gemm)) -> String {
    format!("{site} {gemm}")
}

/// Reasons and notes may be left out.
fn because(reason: &str) -> String {
    if reason.trim().is_empty() { String::new() } else { format!(" ({reason})") }
}

/// One command may name every site of a trace, and its line stays one that can be read.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMES);
    let first: Vec<String> = names.take(NAMES).collect();
    if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
}

/// Every bound of it, with every digit.
pub fn policy_said(policy: &Policy) -> String {
    // Every field by name: a bound that is added to policies and not said here does not compile.
    let Policy { name, metric, max_error, min_speedup, confidence, loss_budget, max_bias, baseline, approval, groups } =
        policy;
    let bound = metric.at_most();
    let budget = loss_budget.map_or(String::new(), |share| format!(", loss budget {}", exact(share)));
    let bias = max_bias.map_or(String::new(), |most| format!(", bias at most {}", exact(most)));
    let asks = approval.as_ref().map_or(String::new(), |rule| format!(", {rule}"));
    let of_group = |group: &PolicyGroup| format!(", {} {bound} {}", group.sites, exact(group.max_error));
    let groups: String = groups.iter().map(of_group).collect();
    let (max_error, min_speedup) = (exact(*max_error), exact(*min_speedup));
    let confidence = exact(*confidence);
    format!(
        "{name}: {metric} {bound} {max_error}{groups}, more than {min_speedup}x, confidence {confidence}{budget}{bias}, \
         baseline {baseline}{asks}"
    )
}

/// Every digit that it has: a trail does not round.
fn exact(value: f64) -> String {
    let text = value.to_string();
    text.strip_prefix("0.").map_or(text.clone(), |digits| format!(".{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{KernelId, ModKind, Moment},
        review::{ApprovalRule, Role, SecretKey, Statement},
    };

    fn site(name: &str) -> SiteId {
        SiteId::new(name)
    }

    #[test]
    fn decisions_in_words() {
        let kernel = KernelId::new("cublaslt/bf16");
        let over = |num: usize| Command::SetOverrides {
            at: (0..num).map(|at| (site(&format!("s{at}")), Gemm::Fprop)).collect(),
            kernel: kernel.clone(),
            reason: String::new(),
        };
        let policy = Policy { approval: Some(ApprovalRule::of(2)), ..Policy::loss_budget() };
        for (command, words) in [
            (Command::SetMaxError { value: 0.25, gesture: Some(3) }, "set max error to .25"),
            (Command::SetMaxError { value: 0.1 + 0.2, gesture: None }, "set max error to .30000000000000004"),
            (Command::SetMinSpeedup { value: 1.05, gesture: None }, "set min speed-up to 1.05"),
            (
                Command::SetOverride {
                    site: site("net.top.2"),
                    gemm: Gemm::Fprop,
                    kernel: kernel.clone(),
                    reason: "it diverged".to_owned(),
                },
                "override net.top.2 fprop: cublaslt/bf16 (it diverged)",
            ),
            (over(2), "override s0 fprop, s1 fprop: cublaslt/bf16"),
            (over(5), "override s0 fprop, s1 fprop, s2 fprop and 2 more: cublaslt/bf16"),
            (Command::SetMod { kind: ModKind::NoBias, on: false, sites: vec![site("a")] }, "switched No bias off at a"),
            (
                Command::SetPolicy { policy },
                "set policy loss-budget: rel_l2 at most .05, more than 1x, confidence .95, loss budget .0002, \
                 bias at most .01, baseline cublaslt/bf16, 2 approvals by an approver or an owner, not by an author",
            ),
            (Command::PauseProbe { paused: false }, "let the probe go on"),
        ] {
            assert_eq!(said(&command), words);
        }
    }

    #[test]
    fn a_review_in_words_and_nothing_that_steers_a_terminal() {
        let text = "see\u{1b}[2J\nline \u{202e}two".to_owned();
        let gemm = Some(Gemm::Dgrad);
        let comment = Command::Comment { site: Some(site("net.top.2")), gemm, reply_to: Some(4), text };
        assert_eq!(
            said(&comment),
            "commented on net.top.2 dgrad (answer to comment 4): see\\u{1b}[2J\\nline \\u{202e}two"
        );
        let mark = |state| said(&Command::Mark { site: None, state, of: String::new() });
        assert_eq!(mark(ReviewState::NeedsWork), "marked the plan: needs work");
        assert_eq!(mark(ReviewState::Open), "took the mark off the plan");
        assert_eq!(said(&Command::RequestApproval { note: "v1".to_owned() }), "put the plan up for approval (v1)");
        let key = SecretKey::new("Anna", &[3; 32]).unwrap();
        let (digest, name) = ("sha256:aa".to_owned(), "Anna".to_owned());
        let (review_digest, note, role) = (String::new(), String::new(), Role::Approver);
        let approval = Approval::sign(Statement { digest, review_digest, name, role, at: Moment(0), note }, &key);
        let words = format!("approved sha256:aa as Anna, approver, with {}", key.public());
        assert_eq!(said(&Command::Approve { approval: Box::new(approval) }), words);
    }
}
