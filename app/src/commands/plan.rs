//! The plan: comparing, sorting, filtering.

use egui::Key;
use loka_core::{
    model::{ModKind, ModSet},
    session::{BaselineOf, Command},
    views::PlanColumn,
};

use super::{
    Doing, Scope, no_rows,
    table::{NO_KEY, actions, key},
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
        KeepBaseline: "Compare with the plan as it stands", "Keep the plan of now: what you change from here on is shown as the difference from it", NO_KEY;
        CompareSubmitted: "Compare with the submitted version", "Show what differs from the version that was submitted for approval", NO_KEY;
        WithoutMods: "Compare with the model without mods", "Show what differs from the model as it was recorded", NO_KEY;
        WithNoBias: "Compare with no bias", "Show what differs from the model with no bias everywhere", NO_KEY;
        WithBlockNorm: "Compare with BlockNorm", "Show what differs from the model with BlockNorm everywhere", NO_KEY;
        WithHardSwish: "Compare with hard swish", "Show what differs from the model with hard swish everywhere", NO_KEY;
        ToggleBaseline: "Differences from the baseline", "Let the views show what differs from the baseline, or the values themselves; Esc leaves, too", key(Key::B);
        CloseComparison: "Close the comparison", "Forget the baseline: the other plan or results", NO_KEY;
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
            Self::ToggleBaseline => none.then(|| "there is no baseline: compare with something first".to_owned()),
            Self::CompareSubmitted => {
                let none = scope.session.reviewing.release.is_none();
                no_rows(scope).or_else(|| none.then(|| "no version was submitted for approval".to_owned()))
            }
            _ => no_rows(scope),
        }
    }

    /// What changes the baseline for everybody who looks at the session.
    pub(super) fn is_owners(self) -> bool {
        self.baseline().is_some() || matches!(self, Self::Compare | Self::CompareResults | Self::CloseComparison)
    }

    /// What it compares with, of what the session knows itself.
    fn baseline(self) -> Option<BaselineOf> {
        let mods = |kinds: &[ModKind]| Some(BaselineOf::Mods { mods: ModSet(kinds.iter().copied().collect()) });
        match self {
            Self::KeepBaseline => Some(BaselineOf::Now),
            Self::CompareSubmitted => Some(BaselineOf::Submitted),
            Self::WithoutMods => mods(&[]),
            Self::WithNoBias => mods(&[ModKind::NoBias]),
            Self::WithBlockNorm => mods(&[ModKind::BlockNorm]),
            Self::WithHardSwish => mods(&[ModKind::HardSwish]),
            _ => None,
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        let view = &mut *doing.view;
        if let Some(of) = self.baseline() {
            return Some(Command::SetBaseline { of });
        }
        if !matches!(self, Self::CloseComparison | Self::ToggleBaseline) {
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
            Self::ToggleBaseline => view.versus = !view.versus,
            Self::Sort => {
                let against = doing.derived.versus().is_some();
                let columns = PlanColumn::ALL.into_iter().filter(|of| against || *of != PlanColumn::Versus);
                view.plan.sort_by(next(&columns.collect::<Vec<_>>(), view.plan.sort));
            }
            Self::Reverse => view.plan.reversed = !view.plan.reversed,
            Self::Filter => view.plan.keep = next(&PlanFilter::ALL, view.plan.keep),
            // A command of the session, above.
            Self::KeepBaseline
            | Self::CompareSubmitted
            | Self::WithoutMods
            | Self::WithNoBias
            | Self::WithBlockNorm
            | Self::WithHardSwish => {}
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
