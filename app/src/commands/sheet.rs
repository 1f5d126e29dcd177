//! Shows every key, from the table of actions.

use egui::{Context, Grid, Id, Modal, RichText};

use super::{Action, shortcut_text};
use crate::theme::Theme;

/// Returns true when it is to be closed.
pub fn sheet_ui(ctx: &Context, theme: &Theme) -> bool {
    let modal = Modal::new(Id::unique("sheet")).show(ctx, |ui| {
        ui.heading("Shortcuts");
        ui.add_space(8.0);
        Grid::new("keys").num_columns(2).spacing([24.0, 4.0]).show(ui, |ui| {
            for action in Action::all() {
                let Some(shortcut) = action.shortcut() else { continue };
                ui.label(RichText::new(shortcut_text(ctx, &shortcut)).monospace().color(theme.accent));
                ui.label(action.text()).on_hover_text(action.tooltip());
                ui.end_row();
            }
        });
        ui.add_space(8.0);
        ui.button("Close").clicked()
    });
    modal.inner || modal.should_close()
}
