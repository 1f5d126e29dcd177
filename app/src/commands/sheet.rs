//! Shows every key, from the table of actions, by area; a few characters narrow it.

use egui::{Context, Grid, Id, Modal, RichText, ScrollArea, TextEdit, Ui};

use super::{Action, shortcut_text};
use crate::theme::Theme;

/// What was typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    pub typed: String,
}

/// Returns true when it is to be closed.
pub fn sheet_ui(ctx: &Context, theme: &Theme, sheet: &mut Sheet) -> bool {
    let room = ctx.content_rect().size();
    let modal = Modal::new(Id::unique("sheet")).show(ctx, |ui| {
        ui.set_width(460.0_f32.min(room.x - 64.0));
        ui.horizontal(|ui| {
            ui.heading("Shortcuts");
            let hint = "Filter shortcuts";
            let field = TextEdit::singleline(&mut sheet.typed).hint_text(hint).desired_width(f32::INFINITY);
            let field = ui.add(field);
            field.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, true, hint));
        });
        ui.add_space(8.0);
        let list = ScrollArea::vertical().max_height((room.y - 150.0).max(66.0));
        list.show(ui, |ui| areas_ui(ui, theme, &sheet.typed));
        ui.add_space(8.0);
        ui.button("Close shortcuts").clicked()
    });
    modal.inner || modal.should_close()
}

fn areas_ui(ui: &mut Ui, theme: &Theme, typed: &str) {
    let found = found(ui.ctx(), typed);
    if found.is_empty() {
        ui.label(RichText::new("No shortcut matches").color(theme.weak));
    }
    for (at, (area, actions)) in found.into_iter().enumerate() {
        if at > 0 {
            ui.add_space(10.0);
        }
        ui.label(RichText::new(area).strong());
        Grid::new(area).num_columns(2).min_col_width(104.0).spacing([16.0, 4.0]).show(ui, |ui| {
            for (action, keys) in actions {
                ui.label(RichText::new(keys).monospace().color(theme.accent));
                ui.label(action.text()).on_hover_text(action.tooltip());
                ui.end_row();
            }
        });
    }
}

type Area = (&'static str, Vec<(Action, String)>);

/// Actions with a key, under their headings, in the order of the table.
fn found(ctx: &Context, typed: &str) -> Vec<Area> {
    let typed = typed.trim().to_lowercase();
    let mut areas: Vec<Area> = Vec::new();
    for action in Action::all() {
        let Some(shortcut) = action.shortcut() else { continue };
        let keys = shortcut_text(ctx, &shortcut);
        let area = action.area();
        if ![action.text().as_str(), &keys, area].iter().any(|text| text.to_lowercase().contains(&typed)) {
            continue;
        }
        match areas.iter_mut().find(|(known, _)| *known == area) {
            Some((_, actions)) => actions.push((action, keys)),
            None => areas.push((area, vec![(action, keys)])),
        }
    }
    areas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{EditAction, WindowAction};

    #[test]
    fn keys_stand_under_their_area_and_are_found() {
        let ctx = Context::default();
        let all = found(&ctx, "");
        let num: usize = all.iter().map(|(_, actions)| actions.len()).sum();
        assert_eq!(num, Action::all().into_iter().filter(|action| action.shortcut().is_some()).count());
        let undo = found(&ctx, "undo");
        assert_eq!(undo[0].1[0].0, Action::Edit(EditAction::Undo));
        assert!(found(&ctx, "esc").iter().any(|(_, of)| of[0].0 == Action::Window(WindowAction::Back)));
        assert!(found(&ctx, "zzz").is_empty());
    }
}
