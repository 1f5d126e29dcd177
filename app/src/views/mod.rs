//! What fills the middle of the window. Every view takes a [`Scene`]: the session to read, what was
//! derived from it, the view state to change, and a list to put requests on.

mod cells;
mod derived;
mod empty;
mod heatmap;
mod legend;
mod quadrant;
mod state;
mod thresholds;

pub use derived::Derived;
pub use empty::empty_ui;
pub use heatmap::heatmap_ui;
pub use quadrant::quadrant_ui;
pub use state::{Dialog, DialogKind, Line, Tab, ViewState};

use loka_core::session::{Command, Session};

use crate::{
    commands::{Action, Request},
    theme::Theme,
};

/// Everything that drawing needs. The session is read only: changes go through `requests`.
pub struct Scene<'a> {
    pub session: &'a Session,
    pub derived: &'a Derived,
    pub view: &'a mut ViewState,
    pub theme: Theme,
    pub requests: &'a mut Vec<Request>,
    /// What the link is doing besides a probe.
    pub busy: Option<&'a str>,
    /// Files to offer on the empty screen.
    pub suggestions: &'a [String],
}

impl Scene<'_> {
    pub fn act(&mut self, action: Action) {
        self.requests.push(Request::Act(action));
    }

    pub fn send(&mut self, command: Command) {
        self.requests.push(Request::Do(command));
    }

    /// A button for an action of the table: its text, its tooltip with the key, greyed when it would do
    /// nothing.
    pub fn button_ui(&mut self, ui: &mut egui::Ui, action: Action) {
        self.button_named_ui(ui, action, &action.text());
    }

    /// The same under a shorter text, for narrow places.
    pub fn button_named_ui(&mut self, ui: &mut egui::Ui, action: Action, text: &str) {
        let enabled = crate::commands::is_enabled(action, self.session, self.view);
        let hint = action.hint(ui.ctx());
        let why = crate::commands::why_disabled(action, self.session).unwrap_or_else(|| hint.clone());
        let response = ui.add_enabled(enabled, egui::Button::new(text)).on_hover_text(hint).on_disabled_hover_text(why);
        if response.clicked() {
            self.act(action);
        }
    }
}
