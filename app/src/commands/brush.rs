//! What was brushed in the quadrant or the heatmap: grown by keys, and what is done with all of it.

use egui::Key;
use loka_core::{
    model::{Gemm, SiteId},
    review::{ReviewState, Role},
    session::Command,
};

use super::{
    Doing, Scope, no_rows,
    table::{NO_KEY, actions, shift},
};
use crate::{
    layout::Pane,
    state::{BulkForm, CopyWhat, Steps, brush_by_key},
};

/// More sites are not marked at once: each is a mark of its own, which others read.
const MOST_MARKS: usize = 500;

actions! {
    /// The brushed area.
    BrushAction {
        ExtendRight: "Extend the brushed area to the right", "Brush one more column, or a wider box; begins at the selected cell or point", shift(Key::ArrowRight);
        ExtendLeft: "Extend the brushed area to the left", "Brush one column less, or a narrower box; begins at the selected cell or point", shift(Key::ArrowLeft);
        ExtendDown: "Extend the brushed area down", "Move the area's edge down: Shift with the arrow does, too, while there is one", NO_KEY;
        ExtendUp: "Extend the brushed area up", "Move the area's edge up: Shift with the arrow does, too, while there is one", NO_KEY;
        Select: "Select the brushed sites", "Make the brushed sites the selection that actions on many are about", NO_KEY;
        Filter: "Filter to the brushed sites", "Show the brushed sites alone in the list and the heatmap", NO_KEY;
        Override: "Override the brushed GEMMs…", "Choose one kernel for every brushed GEMM, with one reason; one step of undo", NO_KEY;
        KeepHigh: "Keep the brushed GEMMs in BF16…", "Choose the policy's baseline for every brushed GEMM, with one reason; one step of undo", NO_KEY;
        Leave: "Leave the brushed GEMMs to the policy", "Take the choices by hand back: each runs its best allowed kernel again; one step of undo", NO_KEY;
        DrawMore: "Draw more at the brushed sites", "Probe the brushed sites again with more draws, so that uncertain verdicts may stand", NO_KEY;
        NeedsWork: "Mark the brushed sites as needing work", "Mark every brushed site for the review as one that has to change", NO_KEY;
        Copy: "Copy the brushed rows", "Copy every brushed kernel with its numbers, to paste into a spreadsheet", NO_KEY;
        Clear: "Leave the brushed area", "Forget the area; Esc does it, too", NO_KEY;
    }
}

impl BrushAction {
    pub(super) fn needs(self) -> Role {
        match self {
            Self::Override | Self::KeepHigh | Self::Leave | Self::DrawMore => Role::Owner,
            Self::NeedsWork => Role::Reviewer,
            _ => Role::Viewer,
        }
    }

    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let said = |problem: bool, text: &str| problem.then(|| text.to_owned());
        let none = || said(scope.view.brush.is_empty(), "drag over points or cells first");
        match self {
            Self::ExtendRight | Self::ExtendLeft | Self::ExtendDown | Self::ExtendUp => no_rows(scope).or_else(|| {
                let at_cell = scope.view.column.is_some() && scope.view.site.is_some();
                said(scope.view.brush.is_empty() && !at_cell, "select a cell or a point first")
            }),
            Self::Leave => none().or_else(|| said(by_hand(scope).is_empty(), "nothing is set by hand there")),
            Self::DrawMore => none().or_else(|| {
                let session = scope.session;
                said(session.is_running() || session.is_measuring(), "something runs: let it end, or cancel it")
            }),
            Self::NeedsWork => none().or_else(|| {
                let count = scope.view.brush.set.sites().len();
                (count > MOST_MARKS)
                    .then(|| format!("{count} sites are too many to mark at once: at most {MOST_MARKS}"))
            }),
            _ => none(),
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        doing.view.refresh_lines(doing.session, doing.derived);
        match self {
            Self::ExtendRight => grow(doing, Steps(1, 0)),
            Self::ExtendLeft => grow(doing, Steps(-1, 0)),
            Self::ExtendDown => grow(doing, Steps(0, 1)),
            Self::ExtendUp => grow(doing, Steps(0, -1)),
            Self::Select => select(doing),
            Self::Filter => {
                select(doing);
                "is:selected".clone_into(&mut doing.view.filter);
            }
            Self::Override => doing.view.sites.bulk = form(doing, false),
            Self::KeepHigh => doing.view.sites.bulk = form(doing, true),
            Self::Leave => {
                return Some(Command::ClearOverrides { at: by_hand(doing.scope()) });
            }
            Self::DrawMore => {
                let max_draws = doing.view.brush.totals(doing.derived)?.draws_to_ask?;
                return Some(Command::ProbeSites { sites: doing.view.brush.sites(doing.session), max_draws });
            }
            Self::NeedsWork => mark(doing),
            Self::Copy => doing.view.copy = Some(CopyWhat::Brushed),
            Self::Clear => doing.view.brush.forget(),
        }
        None
    }
}

/// Whichever of the two is in front goes on.
fn grow(doing: &mut Doing<'_>, steps: Steps) {
    if !matches!(doing.view.layout.active(), Pane::Quadrant) {
        doing.view.layout.show(Pane::Heatmap);
    }
    brush_by_key(doing.view, doing.derived, doing.session, steps);
}

/// GEMMs of the set, by name.
fn places(scope: Scope<'_>) -> Vec<(SiteId, Gemm)> {
    let ids = scope.session.index().ids();
    let gemms = scope.view.brush.set.gemms().into_iter();
    gemms.filter_map(|(at, gemm)| Some((ids.get(at as usize)?.clone(), gemm))).collect()
}

/// Of the few that are set by hand, not of the many that are brushed: it is asked in every frame.
fn by_hand(scope: Scope<'_>) -> Vec<(SiteId, Gemm)> {
    let (set, index) = (&scope.view.brush.set, scope.session.index());
    let within = |(site, gemm): &&(SiteId, Gemm)| index.at(site).is_some_and(|at| set.holds(at as u32, *gemm));
    scope.session.document.overrides.keys().filter(within).cloned().collect()
}

fn select(doing: &mut Doing<'_>) {
    let sites = doing.view.brush.sites(doing.session);
    let Some(first) = sites.first().cloned() else { return };
    let keeps = doing.view.site.as_ref().is_some_and(|site| sites.contains(site));
    doing.view.selection = sites.into_iter().collect();
    if !keeps {
        doing.view.select(first, None);
        doing.view.reveal = true;
    }
}

/// The kernel that is brushed where it is one, else the one inspected.
fn form(doing: &Doing<'_>, high: bool) -> Option<BulkForm> {
    let view = &*doing.view;
    let set = &view.brush.set;
    let first = set.rows().first().and_then(|row| set.kernel(row));
    let only = first.filter(|first| set.rows().iter().all(|row| set.kernel(row) == Some(*first)));
    let kernel = match high {
        true => doing.session.document.policy.baseline.clone(),
        false => only.or(view.column.as_ref().map(|column| &column.kernel)).or(first)?.clone(),
    };
    Some(BulkForm::at(places(doing.scope()), kernel))
}

fn mark(doing: &mut Doing<'_>) {
    doing.view.review.refresh(doing.session, doing.derived, &doing.me.name);
    for at in doing.view.brush.set.sites() {
        let Some(site) = doing.session.index().ids().get(at as usize).cloned() else { continue };
        if let Some(of) = doing.view.review.fingerprint(at as usize).map(str::to_owned) {
            doing.also.push(Command::Mark { site: Some(site), state: ReviewState::NeedsWork, of });
        }
    }
}
