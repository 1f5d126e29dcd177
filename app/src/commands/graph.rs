//! The graph: along the chain, along feeds, folds, zoom.

use egui::Key;
use loka_core::session::Command;

use super::{
    Doing, Scope, no_site, no_trace,
    table::{NO_KEY, actions, shift},
};
use crate::state::{fed_box, step_along_feed, step_graph};

actions! {
    /// The graph of the forward chain.
    GraphAction {
        Next: "Next box of the graph", "Select the site that runs after the selected one, or the module that is folded there", NO_KEY;
        Previous: "Previous box of the graph", "Select the site that runs before the selected one", NO_KEY;
        First: "First box of the graph", "Select the site that the model runs first", NO_KEY;
        Last: "Last box of the graph", "Select the site that the model runs last", NO_KEY;
        FollowFeed: "Go to what reads this output", "Follow a feed forwards: select the site that reads the selected one's output", NO_KEY;
        FollowBack: "Go to what feeds this site", "Follow a feed backwards: select the site whose output the selected one reads", NO_KEY;
        Turn: "Fold or open in the graph", "Open the folded module of the selected site in the graph, or fold the one it is in", shift(Key::H);
        FoldAll: "Fold all modules in the graph", "Show the outermost modules as one box each", NO_KEY;
        OpenAll: "Open all modules in the graph", "Show every site as a box of its own", NO_KEY;
        ZoomIn: "Zoom into the graph", "Wider boxes, around the middle; with the pointer: Ctrl and the wheel", NO_KEY;
        ZoomOut: "Zoom out of the graph", "Narrower boxes, down to where all fit or can be hit", NO_KEY;
        ResetZoom: "Reset the graph's zoom", "As many boxes in sight as can be hit", NO_KEY;
    }
}

impl GraphAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let said = |problem: bool, text: &str| problem.then(|| text.to_owned());
        let graph = &scope.view.graph;
        let at = scope.view.site.as_ref().and_then(|site| scope.session.index().at(site)).map(|at| at as u32);
        let drawn = || no_trace(scope).or_else(|| said(graph.shown().is_none(), "open the graph first"));
        match self {
            Self::Next | Self::Previous | Self::First | Self::Last => drawn(),
            Self::FollowFeed | Self::FollowBack => drawn().or_else(|| no_site(scope)).or_else(|| {
                let back = self == Self::FollowBack;
                let none = fed_box(scope.view, scope.session, back).is_none();
                said(none, if back { "no recorded feed leads here" } else { "no recorded feed leads on from here" })
            }),
            Self::Turn => drawn().or_else(|| no_site(scope)).or_else(|| {
                let module = at.and_then(|at| graph.folded(at).or_else(|| graph.opened(at)));
                said(module.is_none(), "this site is in no module with others")
            }),
            Self::FoldAll | Self::OpenAll | Self::ZoomIn | Self::ZoomOut => drawn(),
            Self::ResetZoom => said(graph.zoom == 1.0, "nothing is zoomed"),
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        const FAR: isize = isize::MAX / 2;
        let (view, session) = (&mut *doing.view, doing.session);
        let middle = view.graph.width / 2.0;
        match self {
            Self::Next => step_graph(view, session, 1),
            Self::Previous => step_graph(view, session, -1),
            Self::First => step_graph(view, session, -FAR),
            Self::Last => step_graph(view, session, FAR),
            Self::FollowFeed => step_along_feed(view, session, false),
            Self::FollowBack => step_along_feed(view, session, true),
            Self::Turn => {
                let at = view.site.as_ref().and_then(|site| session.index().at(site)).map(|at| at as u32);
                if let Some(folder) = at.and_then(|at| view.graph.folded(at).or_else(|| view.graph.opened(at))) {
                    view.graph.turn(folder);
                }
            }
            Self::FoldAll => view.graph.turn_all(true),
            Self::OpenAll => view.graph.turn_all(false),
            Self::ZoomIn => view.graph.zoom_by(1.5, middle),
            Self::ZoomOut => view.graph.zoom_by(1.0 / 1.5, middle),
            Self::ResetZoom => view.graph.reset_zoom(),
        }
        None
    }
}
