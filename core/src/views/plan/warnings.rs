//! Takes a plan's warnings, gives them in groups: ten thousand alike are one line with a count.

use crate::{
    dispatch::{Warning, WarningKind},
    format::number::counted_as,
    model::{Gemm, LatencySource},
    mods::MUST_BE_TRAINED,
    views::{PlanView, Snapshot},
};

use super::PlanLine;

/// Warnings of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct WarningGroup {
    pub title: String,
    /// What to do about it, or why it matters.
    pub about: String,
    /// Whom it concerns, with the sentence; empty for the plan as a whole.
    pub at: Vec<(usize, Gemm, String)>,
}

impl WarningGroup {
    fn whole(title: String, about: &str) -> Self {
        Self { title, about: about.to_owned(), at: Vec::new() }
    }
}

/// Kinds that name what they are about: of one, of many, and what follows from it.
const NAMED: [(WarningKind, &str, &str, &str); 3] = [
    (
        WarningKind::BreaksPolicy,
        "override breaks the policy",
        "overrides break the policy",
        "loka check refuses a plan with any of them",
    ),
    (
        WarningKind::NotApplied,
        "override cannot be run",
        "overrides cannot be run",
        "loka.apply leaves these linears in high precision, and loka check refuses the plan",
    ),
    (
        WarningKind::LeavesBudget,
        "site leaves the loss budget",
        "sites leave the loss budget",
        "What an estimate says of its loss is beyond its range: its forward stays in high precision",
    ),
];

pub(super) fn grouped(snapshot: &Snapshot, plan: &PlanView, lines: &[PlanLine]) -> Vec<WarningGroup> {
    let mut groups = Vec::new();
    let warnings: Vec<&Warning> = plan.decided.iter().flat_map(|decided| &decided.warnings).collect();
    let unknown: Vec<&PlanLine> = lines.iter().filter(|line| line.saved_us.is_none()).collect();
    // How many have no latency is told with their names below.
    let told = unknown.len();
    let whole = warnings.iter().filter(|warning| match warning.kind {
        WarningKind::Plan | WarningKind::SlowHost => true,
        WarningKind::NoLatency => told == 0,
        WarningKind::BreaksPolicy | WarningKind::NotApplied | WarningKind::LeavesBudget => false,
    });
    groups.extend(whole.map(|warning| WarningGroup::whole(warning.text.clone(), "")));
    for (kind, one, many, about) in NAMED {
        let at = |warning: &&&Warning| {
            let line = &lines[warning.at?];
            Some((line.at, line.gemm, warning.text.clone()))
        };
        let mine: Vec<_> = warnings.iter().filter(|warning| warning.kind == kind).collect();
        if !mine.is_empty() {
            let (title, at) = (counted_as(mine.len(), one, many), mine.iter().filter_map(at).collect());
            groups.push(WarningGroup { title, about: about.to_owned(), at });
        }
    }
    if !unknown.is_empty() {
        let at = |line: &&PlanLine| (line.at, line.gemm, why_no_latency(snapshot, plan, line));
        groups.push(WarningGroup {
            title: counted_as(told, "GEMM has no latency", "GEMMs have no latency"),
            about: "They are in neither of the two sums: the speed-up is of the rest".to_owned(),
            at: unknown.iter().map(at).collect(),
        });
    }
    if plan.num_waiting_overrides > 0 {
        let title = counted_as(plan.num_waiting_overrides, "override waits for rows", "overrides wait for rows");
        groups.push(WarningGroup::whole(title, "Until they come the policy chooses there"));
    }
    if !snapshot.document.mods.is_empty() {
        let about = "A plan with mods is for that model, and not for the one that was recorded";
        groups.push(WarningGroup::whole(MUST_BE_TRAINED.trim_end_matches('.').to_owned(), about));
    }
    groups
}

fn why_no_latency(snapshot: &Snapshot, plan: &PlanView, line: &PlanLine) -> String {
    let problem = || {
        let id = &snapshot.sites()[line.at].id;
        let known = snapshot.trace.meta.problems.iter().find(|(site, _)| site == id);
        known.map_or_else(|| "not probed yet".to_owned(), |(_, reason)| reason.clone())
    };
    let Some(choice) = plan.pick_at(line.at, line.gemm) else { return problem() };
    let row = snapshot.row(line.at, line.gemm, &choice.kernel);
    match row {
        None => problem(),
        Some(row) if row.latency.source == LatencySource::None => format!("{}: {}", row.kernel, row.latency.note),
        Some(row) => format!("{}: the baseline's own time is not known", row.kernel),
    }
}
