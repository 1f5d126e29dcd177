//! A file that was opened before, as a line: opens it, or takes it off the list.

use egui::{Button, Ui};

use super::Scene;
use crate::{settings::RecentFile, theme::shorten};

/// Characters of a file's name.
const NAME: usize = 44;

pub fn recent_file_ui(ui: &mut Ui, scene: &mut Scene<'_>, file: &RecentFile) {
    ui.horizontal(|ui| {
        let forget = ui.small_button("×").on_hover_text("Take this file off the list");
        forget.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, format!("Forget {}", file.name())));
        if forget.clicked() {
            scene.view.recent.remove(&file.path);
        }
        let name = shorten(file.name(), NAME);
        let button = Button::new(name).right_text(egui::RichText::new(file.kind.word()).weak());
        let hover = file.problem.as_ref().map_or_else(|| file.path.clone(), |why| format!("{why}: {}", file.path));
        let response = ui.add_enabled(file.problem.is_none(), button);
        if response.on_hover_text(&hover).on_disabled_hover_text(&hover).clicked() {
            scene.open(vec![file.path.clone()]);
            ui.close();
        }
        if let Some(why) = &file.problem {
            ui.label(egui::RichText::new(why).small().color(scene.theme.weak));
        }
    });
}
