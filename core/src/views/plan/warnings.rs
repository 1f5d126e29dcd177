//! Takes a plan's warnings, gives them in groups: ten thousand alike are one line with a count.

use crate::{
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

pub(super) fn grouped(snapshot: &Snapshot, plan: &PlanView, lines: &[PlanLine]) -> Vec<WarningGroup> {
    let mut groups = Vec::new();
    let warnings = plan.decided.iter().flat_map(|decided| &decided.warnings);
    let (named, whole): (Vec<_>, Vec<_>) = warnings.partition(|warning| warning.at.is_some());
    let unknown: Vec<&PlanLine> = lines.iter().filter(|line| line.saved_us.is_none()).collect();
    // How many have no latency is told with their names below.
    let told = unknown.len();
    let whole = whole.into_iter().filter(|warning| told == 0 || !warning.text.contains("have no latency"));
    groups.extend(whole.map(|warning| WarningGroup::whole(warning.text.clone(), "")));
    if !named.is_empty() {
        let at = |warning: &&crate::dispatch::Warning| {
            let line = &lines[warning.at?];
            Some((line.at, line.gemm, warning.text.clone()))
        };
        groups.push(WarningGroup {
            title: counted_as(named.len(), "override breaks the policy", "overrides break the policy"),
            about: "loka check refuses a plan with any of them".to_owned(),
            at: named.iter().filter_map(at).collect(),
        });
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
    let Some(choice) = plan.choice_at(line.at, line.gemm) else { return problem() };
    let row = snapshot.row(line.at, line.gemm, &choice.kernel);
    match row {
        None => problem(),
        Some(row) if row.latency.source == LatencySource::None => format!("{}: {}", row.kernel, row.latency.note),
        Some(row) => format!("{}: the baseline's own time is not known", row.kernel),
    }
}
