//! What fills the middle of the window. Every view takes a [`Scene`]: the session to read, what was
//! derived from it, the view state to change, and a list to put requests on.

mod brush;
mod chart;
pub mod distribution;
pub mod drift;
mod empty;
mod frontier;
mod graph;
mod heatmap;
mod log;
mod mods;
mod plan;
mod quadrant;
mod recent;
mod review;
mod site;
mod sites;
mod steps;
mod thresholds;

pub use distribution::distribution_ui;
pub use drift::drift_ui;
pub use empty::{empty_ui, no_rows};
pub use log::log_text;
pub use recent::recent_file_ui;
pub use sites::bulk_ui;

use loka_core::{
    review::Role,
    session::{Command, Session, shared::Author},
};

use crate::{
    commands::{Action, Finder, Request, Scope, not_allowed},
    layout::Pane,
    link::ConnectionState,
    state::{Derived, ViewState},
    theme::Theme,
};

/// Everything that drawing needs. The session is read only: changes go through `requests`.
pub struct Scene<'a> {
    pub session: &'a Session,
    pub derived: &'a Derived,
    pub view: &'a mut ViewState,
    /// The palette, the sheet, and what was done before.
    pub finder: &'a mut Finder,
    pub theme: Theme,
    /// Who is at the window.
    pub me: &'a Author,
    /// The pane that has the keys.
    pub active_pane: Pane,
    pub requests: &'a mut Vec<Request>,
    /// What the window is drawn into, where our own shaders can draw; `None`: everything by egui's painter.
    pub gpu: Option<eframe::wgpu::TextureFormat>,
    /// This frame is written as vectors: shapes only, no shader.
    pub vector: bool,
    /// Where the session is, and who else looks at it.
    pub connection: &'a ConnectionState,
    /// What the link is doing besides a probe.
    pub busy: Option<&'a str>,
    /// Files to offer on the empty screen.
    pub suggestions: &'a [String],
}

impl Scene<'_> {
    pub fn scope(&self) -> Scope<'_> {
        Scope { session: self.session, me: self.me, view: self.view, derived: self.derived }
    }

    /// A low window, as one at twice the text size: bars take one line each, and the views the rest.
    pub fn is_low(ui: &egui::Ui) -> bool {
        ui.ctx().content_rect().height() < 600.0
    }

    /// Why nothing that takes that role can be done at this window; `None`: it can.
    pub fn not_allowed(&self, needs: Role) -> Option<String> {
        not_allowed(self.me, needs)
    }

    pub fn act(&mut self, action: Action) {
        self.requests.push(Request::Act(action));
    }

    /// Opens files, whatever kind they are.
    pub fn open(&mut self, paths: Vec<String>) {
        self.requests.push(Request::Open(paths));
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
        let problem = action.problem(self.scope());
        let hint = action.hint(ui.ctx());
        let why = problem.as_ref().map_or_else(String::new, |problem| format!("{hint}\nNot now: {problem}"));
        let response =
            ui.add_enabled(problem.is_none(), egui::Button::new(text)).on_hover_text(hint).on_disabled_hover_text(why);
        if response.clicked() {
            self.act(action);
        }
    }
}

/// Draws the view of a pane.
pub fn pane_ui(ui: &mut egui::Ui, scene: &mut Scene<'_>, pane: Pane) {
    match pane {
        Pane::Sites => sites::sites_ui(ui, scene),
        Pane::Heatmap => heatmap::heatmap_ui(ui, scene),
        Pane::Quadrant => quadrant::quadrant_ui(ui, scene),
        Pane::Frontier => frontier::frontier_ui(ui, scene),
        Pane::Graph => graph::graph_ui(ui, scene),
        Pane::Site => site::site_ui(ui, scene),
        Pane::Distribution => distribution::distribution_ui(ui, scene),
        Pane::Drift => drift::drift_ui(ui, scene),
        Pane::Mods => mods::mods_ui(ui, scene),
        Pane::Plan => plan::plan_ui(ui, scene),
        Pane::Review => review::review_ui(ui, scene),
        Pane::Log => log::log_ui(ui, scene),
    }
}
