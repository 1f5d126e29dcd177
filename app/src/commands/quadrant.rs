//! The quadrant and the frontier: thresholds by key, colours, zoom, the box, points; a policy from a curve.

use egui::Key;
use loka_core::{
    session::Command,
    views::{ErrorAxis, GroupBy, nudged_speedup, readable, speedup_at},
};

use super::{
    Doing, Scope, no_rows, no_site, no_trace,
    table::{NO_KEY, actions, key},
};
use crate::state::{ColorBy, ThresholdLine, frontier_policy, step_frontier, step_point};

actions! {
    /// The quadrant and the frontier.
    QuadrantAction {
        RaiseError: "Raise the error threshold", "Move the policy's error line up by a small step", NO_KEY;
        LowerError: "Lower the error threshold", "Move the policy's error line down by a small step", NO_KEY;
        RaiseSpeedup: "Raise the speed-up threshold", "Ask for a little more speed-up before low precision counts as fast", NO_KEY;
        LowerSpeedup: "Lower the speed-up threshold", "Ask for a little less speed-up before low precision counts as fast", NO_KEY;
        LetFastestIn: "Let the fastest kernel in", "Lower the speed-up threshold to just under the fastest kernel in low precision", NO_KEY;
        ColorByVerdict: "Colour points by verdict", "Colour the quadrant's points as their shapes", NO_KEY;
        ColorByLibrary: "Colour points by library", "Colour the quadrant's points by the kernel's library; shapes stay with the verdict", NO_KEY;
        ColorByRecipe: "Colour points by recipe", "Colour the quadrant's points by the kernel's recipe; shapes stay with the verdict", NO_KEY;
        ColorByModule: "Colour points by module", "Colour the quadrant's points by the site's module; shapes stay with the verdict", NO_KEY;
        ToggleArrows: "Arrows from before the mods", "Draw where each point of the quadrant was without the mods in force", NO_KEY;
        NextPoint: "Next point", "Select the selected site's next faster point in the quadrant", key(Key::Period);
        PreviousPoint: "Previous point", "Select the selected site's next slower point in the quadrant", key(Key::Comma);
        ZoomIn: "Zoom into the quadrant", "Show half of each axis, around the middle", NO_KEY;
        ZoomOut: "Zoom out of the quadrant", "Show twice of each axis", NO_KEY;
        ResetZoom: "Show all points", "Fit the quadrant's axes to its points and lines again", NO_KEY;
        ListUnplaced: "List what has no place", "Name every kernel that the quadrant cannot place, with the reason", NO_KEY;
        SwitchCost: "Switch the frontier's cost", "Show the frontier over the worst error or over the summed loss cost", NO_KEY;
        NextFrontier: "Next frontier point", "Go to the next faster point of the frontier's curve", NO_KEY;
        PreviousFrontier: "Previous frontier point", "Go to the next slower point of the frontier's curve", NO_KEY;
        NextCurve: "Next frontier curve", "Go to the curve of the next policy", NO_KEY;
        Adopt: "Adopt the frontier point", "Make the policy of that point the one in force; undo takes it back", NO_KEY;
    }
}

impl ColorBy {
    pub const ALL: [Self; 4] =
        [Self::Verdict, Self::Group(GroupBy::Library), Self::Group(GroupBy::Recipe), Self::Group(GroupBy::Module)];

    pub fn action(self) -> QuadrantAction {
        match self {
            Self::Verdict => QuadrantAction::ColorByVerdict,
            Self::Group(GroupBy::Library) => QuadrantAction::ColorByLibrary,
            Self::Group(GroupBy::Recipe) => QuadrantAction::ColorByRecipe,
            Self::Group(GroupBy::Module) => QuadrantAction::ColorByModule,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::Group(GroupBy::Library) => "library",
            Self::Group(GroupBy::Recipe) => "recipe",
            Self::Group(GroupBy::Module) => "module",
        }
    }

    fn of(action: QuadrantAction) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.action() == action)
    }
}

/// A threshold moved by key: up its axis for positive steps.
pub fn nudge(scope: Scope<'_>, line: ThresholdLine, steps: f64, gesture: Option<u64>) -> Command {
    let policy = &scope.session.document.policy;
    match line {
        ThresholdLine::Error => {
            let value = ErrorAxis::of(policy.metric).nudged(policy.max_error, steps);
            Command::SetMaxError { value, gesture }
        }
        ThresholdLine::Speedup => Command::SetMinSpeedup { value: nudged_speedup(policy.min_speedup, steps), gesture },
    }
}

impl QuadrantAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let state = &scope.view.quadrant;
        let said = |problem: bool, text: &str| problem.then(|| text.to_owned());
        let by = ColorBy::of(self);
        match self {
            _ if by.is_some() => said(by == Some(state.color_by), "they are already"),
            Self::RaiseError | Self::LowerError | Self::RaiseSpeedup | Self::LowerSpeedup => no_trace(scope),
            Self::LetFastestIn => match fastest(scope) {
                None => Some("no kernel in low precision has a known speed".to_owned()),
                Some(value) => said(value >= scope.session.document.policy.min_speedup, "it is in already"),
            },
            Self::ToggleArrows => said(scope.session.document.mods.is_empty(), "no mod is on"),
            Self::NextPoint | Self::PreviousPoint => no_site(scope).or_else(|| no_rows(scope)),
            Self::ZoomIn | Self::ZoomOut => no_rows(scope),
            Self::ResetZoom => said(state.zoom.is_none(), "all points are in sight"),
            Self::ListUnplaced => said(scope.derived.quadrant.unplaced.is_empty(), "every kernel has its place"),
            Self::SwitchCost => no_trace(scope),
            Self::NextFrontier | Self::PreviousFrontier | Self::NextCurve => {
                said(scope.derived.frontier().curves.is_empty(), "open the frontier and wait for its curves")
            }
            Self::Adopt => match frontier_policy(scope.view, scope.derived) {
                None => Some("go to a point of the frontier first".to_owned()),
                Some(policy) => said(policy == scope.session.document.policy, "that is the policy in force"),
            },
            _ => None,
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        let scope = doing.scope();
        match self {
            Self::RaiseError => return Some(nudge(scope, ThresholdLine::Error, 1.0, None)),
            Self::LowerError => return Some(nudge(scope, ThresholdLine::Error, -1.0, None)),
            Self::RaiseSpeedup => return Some(nudge(scope, ThresholdLine::Speedup, 1.0, None)),
            Self::LowerSpeedup => return Some(nudge(scope, ThresholdLine::Speedup, -1.0, None)),
            Self::LetFastestIn => {
                return fastest(scope).map(|value| Command::SetMinSpeedup { value, gesture: None });
            }
            Self::Adopt => {
                return frontier_policy(scope.view, scope.derived).map(|policy| Command::SetPolicy { policy });
            }
            _ => {}
        }
        let state = &mut doing.view.quadrant;
        match self {
            Self::ToggleArrows => state.arrows = !state.arrows,
            Self::NextPoint => step_point(doing.view, doing.derived, doing.session, false, 1),
            Self::PreviousPoint => step_point(doing.view, doing.derived, doing.session, false, -1),
            Self::ZoomIn => state.zoom_by(2.0, None),
            Self::ZoomOut => state.zoom_by(0.5, None),
            Self::ResetZoom => state.zoom = None,
            Self::ListUnplaced => state.lists_unplaced = !state.lists_unplaced,
            Self::SwitchCost => doing.view.frontier.switch_cost(),
            Self::NextFrontier => step_frontier(doing.view, doing.derived, 1),
            Self::PreviousFrontier => step_frontier(doing.view, doing.derived, -1),
            Self::NextCurve => doing.view.frontier.next_curve(doing.derived.frontier()),
            _ => state.color_by = ColorBy::of(self).unwrap_or_default(),
        }
        None
    }
}

/// Just under the speed-up of the fastest kernel in low precision, as a threshold that a person can read.
fn fastest(scope: Scope<'_>) -> Option<f64> {
    let [_, [place, _]] = scope.derived.quadrant.bounds?;
    Some(readable(0.99 * speedup_at(f64::from(place))))
}
