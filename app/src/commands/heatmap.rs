//! The heatmap: zoom, what folders show, what the columns are.

use egui::Key;
use loka_core::{
    session::{Command, SeriesState},
    views::ShownColumn,
};

use super::{
    Doing, Scope, no_trace,
    table::{NO_KEY, actions, key},
};
use crate::state::{Derived, NO_SERIES, ViewState, shown_at, shown_columns};

actions! {
    /// The heatmap: zoom, what folders show, what the columns are.
    HeatmapAction {
        ZoomIn: "Zoom into the heatmap", "Higher rows, around the middle; with the pointer: Ctrl and the wheel", key(Key::Plus);
        ZoomOut: "Zoom out of the heatmap", "Lower rows, down to all sites at once", key(Key::Minus);
        Wider: "Widen the heatmap's columns", "Room for numbers; with the pointer: Ctrl, Shift and the wheel", NO_KEY;
        Narrower: "Narrow the heatmap's columns", "Room for more columns", NO_KEY;
        ResetZoom: "Reset the heatmap's zoom", "Rows and columns as they fit; with the pointer: a double click", key(Key::Num0);
        ShowMedians: "Medians of modules", "Let a module show the median of its sites instead of the worst", NO_KEY;
        ByLibrary: "Heatmap columns by library", "A column a kernel, or one for all that compute the same", NO_KEY;
        OpenRecipe: "Open the selected column", "A column for each library that computes the same, or one again; with the pointer: a click on its name", NO_KEY;
        ShowSteps: "Steps as columns", "Show a recorded series over steps instead of kernels, or kernels again", NO_KEY;
    }
}

impl HeatmapAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let said = |problem: bool, text: &str| problem.then(|| text.to_owned());
        match (self, &scope.session.series) {
            (Self::ResetZoom, _) => said(!scope.view.heatmap.is_zoomed(), "nothing is zoomed"),
            (Self::OpenRecipe, _) => no_trace(scope).or_else(|| match selected(scope.view, scope.derived) {
                None => Some("no column is selected".to_owned()),
                Some(of) => said(of.num_alike < 2, "one library alone computes it"),
            }),
            (Self::ShowMedians, _) => said(!scope.view.sites.order.grouped, "sites stand in one list"),
            (Self::ShowSteps, SeriesState::Read(table)) => said(table.series.is_empty(), NO_SERIES),
            (Self::ShowSteps, SeriesState::Failed(reason)) => Some(reason.clone()),
            _ => no_trace(scope),
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        let num_lines = doing.view.sites.lines().all.len();
        let heatmap = &mut doing.view.heatmap;
        match self {
            Self::ZoomIn => heatmap.zoom_step(true, num_lines),
            Self::ZoomOut => heatmap.zoom_step(false, num_lines),
            Self::Wider => heatmap.widen(true),
            Self::Narrower => heatmap.widen(false),
            Self::ResetZoom => heatmap.reset_zoom(),
            Self::ByLibrary => heatmap.set_by_library(!heatmap.by_library),
            Self::OpenRecipe => {
                if let Some(of) = selected(doing.view, doing.derived) {
                    doing.view.heatmap.toggle_recipe(&of.recipe);
                }
            }
            Self::ShowMedians => heatmap.medians ^= true,
            Self::ShowSteps if heatmap.series.is_some() => heatmap.series = None,
            Self::ShowSteps => {
                heatmap.wants_series = true;
                if !matches!(doing.session.series, SeriesState::Read(_)) {
                    return Some(Command::ReadSeries);
                }
            }
        }
        None
    }
}

/// The column of the selected kernel.
fn selected(view: &ViewState, derived: &Derived) -> Option<ShownColumn> {
    let mut columns = shown_columns(view, derived);
    let at = shown_at(&columns, &derived.grid, view.column.as_ref()?)?;
    Some(columns.swap_remove(at))
}
