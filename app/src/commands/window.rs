//! The window itself: panes, appearance, and the ways to find an action.

use egui::Key;
use loka_core::session::Command;

use super::{
    Doing, Scope,
    table::{NO_KEY, actions, ctrl, key},
};
use crate::{commands::Palette, state::CopyWhat, theme::Ground};

actions! {
    /// What changes the window and nothing in it.
    WindowAction {
        ClosePane: "Close this view", "Hide the view that has the keys; its number brings it back", key(Key::X);
        ClearLog: "Clear the log", "Forget the lines of the log; what happens from now on is written again", NO_KEY;
        DismissAll: "Dismiss all lines", "Take every line off the window; the log keeps them", NO_KEY;
        ResetLayout: "Reset the layout", "Put every view back where it stood", NO_KEY;
        CopyLayout: "Copy the layout", "How the views stand, as JSON: for loka open --layout", NO_KEY;
        CopySteps: "Copy the steps", "What was done here since the trace was opened, a line each: for loka open --steps", NO_KEY;
        FollowSystem: "Follow the system's dark or light", "Take the ground from the system, also when it changes", NO_KEY;
        SwitchTheme: "Switch between dark and light", "Change the ground and the colour scales with it", key(Key::L);
        LargerText: "Larger text", "Enlarge everything by a tenth", ctrl(Key::Plus);
        SmallerText: "Smaller text", "Shrink everything by a tenth", ctrl(Key::Minus);
        NormalText: "Normal text size", "Back to the size the system asks for", ctrl(Key::Num0);
        Palette: "Find an action", "Find any action by its name", ctrl(Key::K);
        Sheet: "Show shortcuts", "Show every key", key(Key::Questionmark);
        Tour: "Take the tour", "Five steps through the window, a sentence each; Esc leaves", NO_KEY;
        Back: "Back", "Close what is open on top, or leave the field", key(Key::Escape);
    }
}

impl WindowAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let view = scope.view;
        let said = |problem: bool, text: &str| problem.then(|| text.to_owned());
        match self {
            Self::ResetLayout => said(!view.layout.is_customised(), "every view stands where it stood"),
            Self::ClearLog => said(scope.session.log().entries().is_empty(), "the log is empty"),
            Self::DismissAll => said(scope.session.notices.is_empty(), "no line is shown"),
            Self::FollowSystem => said(view.ground == Ground::System, "it does already"),
            Self::LargerText => said(view.text_size >= MAX_TEXT, "it is as large as it gets"),
            Self::SmallerText => said(view.text_size <= MIN_TEXT, "it is as small as it gets"),
            Self::Tour | Self::CopyLayout | Self::CopySteps => super::no_trace(scope),
            Self::NormalText => said(view.text_size == 1.0, "it is already"),
            _ => None,
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        let view = &mut *doing.view;
        match self {
            Self::ClearLog => return Some(Command::ClearLog),
            Self::DismissAll => return Some(Command::DismissNotices),
            Self::ClosePane => view.layout.close(view.layout.active()),
            Self::ResetLayout => view.layout.reset(doing.ctx.content_rect().width()),
            Self::CopyLayout => view.copy = Some(CopyWhat::Layout),
            Self::CopySteps => view.copy = Some(CopyWhat::Steps),
            Self::FollowSystem => view.ground = Ground::System,
            Self::SwitchTheme => {
                let dark = doing.ctx.theme() == egui::Theme::Dark;
                view.ground = if dark { Ground::Light } else { Ground::Dark };
            }
            Self::LargerText => view.text_size = stepped(view.text_size, 1),
            Self::SmallerText => view.text_size = stepped(view.text_size, -1),
            Self::NormalText => view.text_size = 1.0,
            Self::Tour => view.tour.begin(),
            Self::Palette => doing.finder.palette = Some(Palette::default()),
            Self::Sheet => doing.finder.sheet = doing.finder.sheet.take().is_none().then(Default::default),
            Self::Back if doing.finder.close() => {}
            Self::Back if view.close_top(doing.ctx) => {}
            Self::Back if !doing.session.notices.is_empty() => return Some(Command::DismissNotices),
            Self::Back => view.leave(doing.ctx),
        }
        None
    }
}

const MIN_TEXT: f32 = 0.6;
const MAX_TEXT: f32 = 2.0;

/// In tenths, so that steps back lead back.
fn stepped(size: f32, tenths: i32) -> f32 {
    (((size * 10.0).round() as i32 + tenths) as f32 / 10.0).clamp(MIN_TEXT, MAX_TEXT)
}
