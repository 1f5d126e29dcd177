//! The plan: comparing, sorting, filtering.

use loka_core::{session::Command, views::PlanColumn};

use super::{
    Doing, Scope, no_rows,
    table::{NO_KEY, actions},
};
use crate::{
    layout::Pane,
    state::{Dialog, PlanFilter, PlanPart},
};

actions! {
    /// The plan: comparing, reading.
    PlanAction {
        Findings: "Show findings", "Why the plan is no faster: what to know of it, worth most first, each with what does something about it", NO_KEY;
        Compare: "Compare with a plan…", "Open another plan and show what differs, with the reason for each", NO_KEY;
        CompareResults: "Compare with results…", "Open other results of these sites: what they would plan, and which verdicts flipped", NO_KEY;
        CloseComparison: "Close the comparison", "Forget the other plan or results", NO_KEY;
        Sort: "Sort the plan by the next column", "Sort the choices by time saved, site, kernel, then margin", NO_KEY;
        Reverse: "Turn the plan's order round", "Show the choices from the other end", NO_KEY;
        Filter: "Filter the plan", "Show all choices, then overrides, warnings, uncertain or changed ones alone", NO_KEY;
    }
}

impl PlanAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let none = scope.session.other_plan.is_none();
        match self {
            Self::CloseComparison => none.then(|| "no other plan is open".to_owned()),
            _ => no_rows(scope),
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        let view = &mut *doing.view;
        if !matches!(self, Self::CloseComparison) {
            view.layout.show(Pane::Plan);
        }
        match self {
            Self::Findings => view.plan.part = PlanPart::Findings,
            Self::Compare => {
                view.plan.part = PlanPart::Differences;
                view.dialog = Some(Dialog::compare_plan(doing.session));
            }
            Self::CompareResults => {
                view.plan.part = PlanPart::Differences;
                view.dialog = Some(Dialog::compare_results(doing.session));
            }
            Self::CloseComparison => return Some(Command::ClosePlan),
            Self::Sort => view.plan.sort_by(next(&PlanColumn::ALL, view.plan.sort)),
            Self::Reverse => view.plan.reversed = !view.plan.reversed,
            Self::Filter => view.plan.keep = next(&PlanFilter::ALL, view.plan.keep),
        }
        if matches!(self, Self::Sort | Self::Reverse | Self::Filter) {
            view.plan.part = PlanPart::Choices;
        }
        None
    }
}

/// The one after `now`, round the end.
fn next<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let at = all.iter().position(|of| *of == now).unwrap_or(0);
    all[(at + 1) % all.len()]
}
