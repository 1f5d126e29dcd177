//! Takes what a report is of, gives Markdown for a pull request: short enough to be posted, and nothing that a person
//! or a file said is more than text in it.

mod escape;

use std::fmt::Write as _;

use super::{
    Source,
    decisions::{Group, folded, why_overridden},
    entries::entries,
    facts::{self, State},
    threads::{Thread, threads},
};
use crate::{
    format::number::{count, counted_as},
    plan::Plan,
};
use escape::{code, fenced};

/// A comment on a pull request has at most 65,536 characters.
const MOST: usize = 60_000;
/// Bytes that one list may take, so that the next ones have room.
const PART: usize = 14_000;
const MOST_GROUPS: usize = 40;

pub fn markdown(source: &Source<'_>) -> String {
    let plan = source.plan;
    let mut text = format!("## LoKA report: {}\n\n", code(&plan.name));
    status(&mut text, source);
    approvals(&mut text, source);
    warnings(&mut text, source);
    groups(&mut text, plan, "In low precision", &folded(plan, true, MOST_GROUPS));
    overrides(&mut text, plan);
    comments(&mut text, plan);
    groups(&mut text, plan, "In high precision", &folded(plan, false, MOST_GROUPS));
    let _ = write!(
        text,
        "Plan {}, results {}, trace {}",
        code(&plan.digest),
        code(&plan.results_digest),
        code(&plan.trace_digest)
    );
    let _ = writeln!(text, "; LoKA {}.", env!("CARGO_PKG_VERSION"));
    debug_assert!(text.len() <= MOST, "{} bytes", text.len());
    text
}

fn status(text: &mut String, source: &Source<'_>) {
    let status = facts::status(source);
    let shape = match status.state {
        State::Approved => "✅",
        State::Waiting => "⏳",
        State::Draft => "✏️",
        State::Unasked => "➖",
    };
    let said = match (&source.plan.draft, status.state) {
        (Some(why), State::Draft) => format!("Draft: {}", code(why)),
        _ => status.text,
    };
    let _ = writeln!(text, "{shape} **{said}**\n");
    for (name, value) in facts::totals(source.plan) {
        let _ = writeln!(text, "- {name}: **{value}**");
    }
    let _ = writeln!(text, "- Policy {}: {}\n", code(&source.plan.policy.name), facts::policy(source.plan));
}

fn approvals(text: &mut String, source: &Source<'_>) {
    let standing = &source.standing;
    if standing.approvals.is_empty() {
        return;
    }
    let keys = if standing.with_keys { "held against a list of keys" } else { "not held against a list of keys" };
    let _ = writeln!(
        text,
        "### Approvals\n\nSignatures were {keys}.\n\n| who | role | when | counts | note |\n|---|---|---|---|---|"
    );
    let rows = standing.approvals.iter().map(|counted| {
        let of = counted.approval;
        let counts =
            counted.problem.as_ref().map_or("yes".to_owned(), |problem| format!("no: {}", code(&problem.to_string())));
        let note = if of.note.trim().is_empty() { String::new() } else { code(&of.note) };
        format!("| {} | {} | {} | {counts} | {note} |\n", code(&of.name), counted.role.as_str(), of.at)
    });
    part(text, rows, standing.approvals.len());
}

/// As many rows as have room, and how many have not.
fn part(text: &mut String, rows: impl Iterator<Item = String>, all: usize) {
    let mut left = PART.min(MOST.saturating_sub(text.len() + 2_000));
    let mut shown = 0;
    for row in rows {
        if row.len() > left {
            break;
        }
        left -= row.len();
        text.push_str(&row);
        shown += 1;
    }
    text.push('\n');
    if shown < all {
        let _ = writeln!(text, "{} more are in the plan.\n", count(all - shown));
    }
}

fn warnings(text: &mut String, source: &Source<'_>) {
    let all = facts::warnings(source, &entries(source));
    if all.is_empty() {
        return;
    }
    text.push_str("### Warnings\n\n");
    let rows = all.iter().map(|of| {
        let fails = if of.fails { "**must not ship**: " } else { "" };
        // A finding of the whole plan may quote it.
        let title = if of.fails && of.at.is_empty() { code(&of.title) } else { of.title.clone() };
        let first: Vec<String> = of.at.iter().take(3).map(|at| format!("  - {}\n", code(at))).collect();
        format!("- {fails}{title}\n{}", first.concat())
    });
    part(text, rows, all.len());
}

fn groups(text: &mut String, plan: &Plan, title: &str, groups: &[Group]) {
    if groups.is_empty() {
        return;
    }
    let num: usize = groups.iter().map(|group| group.num_gemms).sum();
    let _ = writeln!(text, "### {title}: {}\n", counted_as(num, "GEMM", "GEMMs"));
    let _ = writeln!(
        text,
        "| where | GEMMs | kernel | worst {} | speed-up | why |\n|---|--:|---|--:|--:|---|",
        plan.policy.metric.label()
    );
    let rows = groups.iter().map(|of| {
        let why = if of.why.is_empty() { String::new() } else { code(&of.why) };
        let (place, kernel) = (code(&of.place), code(&of.kernel));
        format!("| {place} | {} | {kernel} | {} | {} | {why} |\n", count(of.num_gemms), of.error(), of.speed())
    });
    part(text, rows, groups.len());
}

fn overrides(text: &mut String, plan: &Plan) {
    let all = facts::overrides(plan);
    if all.is_empty() {
        return;
    }
    let _ = writeln!(text, "### Overrides: {}\n", count(all.len()));
    if let Some(authors) = facts::authors(plan) {
        let _ = writeln!(text, "Decided by {}.\n", code(&authors));
    }
    text.push_str("| site | GEMM | kernel | reason |\n|---|---|---|---|\n");
    let rows = all.iter().map(|(site, gemm, choice)| {
        let (site, kernel) = (code(site.as_str()), code(choice.kernel.as_str()));
        format!("| {site} | {gemm} | {kernel} | {} |\n", code(&why_overridden(choice)))
    });
    part(text, rows, all.len());
}

fn comments(text: &mut String, plan: &Plan) {
    let threads = threads(plan);
    let open: Vec<&Thread<'_>> = threads.iter().filter(|thread| thread.is_open()).collect();
    if threads.is_empty() {
        return;
    }
    let _ =
        writeln!(text, "### Comments: {} open, {} resolved\n", count(open.len()), count(threads.len() - open.len()));
    let rows = open.iter().map(|thread| {
        let mut shown = String::new();
        for comment in std::iter::once(&thread.first).chain(thread.replies.iter().take(5)) {
            let place =
                if comment.id == thread.first.id { format!("{}, ", code(&thread.place())) } else { String::new() };
            let _ = write!(shown, "{place}{} on {}:\n\n{}\n", code(&comment.by), comment.at, fenced(&comment.text));
        }
        if thread.replies.len() > 5 {
            let _ = writeln!(
                shown,
                "{} in the plan.\n",
                counted_as(thread.replies.len() - 5, "more reply is", "more replies are")
            );
        }
        shown
    });
    part(text, rows, open.len());
}
