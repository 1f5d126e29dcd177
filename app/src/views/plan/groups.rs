//! The choices in groups: a line a group with its sums; a click selects its sites.

use std::collections::BTreeSet;

use egui::{Align2, ComboBox, FontId, RichText, ScrollArea, Sense, Ui, pos2, vec2};
use loka_core::{
    model::SiteId,
    views::{PlanGroup, PlanGroupBy},
};

use crate::{
    theme::{ROW, Term, number, shorten, term_at},
    views::Scene,
};

/// Room for one number.
const NUMBER: f32 = 84.0;
const HEADS: [(&str, Term); 3] = [("GEMMs", Term::Gemm), ("in FP8", Term::LowPrecision), ("saved µs", Term::Saved)];

/// What choices are grouped by.
pub(super) fn by_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let now = scene.view.plan.group_by;
    let text = now.map_or("One by one", PlanGroupBy::label);
    let combo = ComboBox::from_id_salt("plan groups").selected_text(RichText::new(text).small()).width(90.0);
    let shown = combo.show_ui(ui, |ui| {
        ui.selectable_value(&mut scene.view.plan.group_by, None, "One by one");
        for by in PlanGroupBy::ALL {
            ui.selectable_value(&mut scene.view.plan.group_by, Some(by), by.label());
        }
    });
    shown.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Group choices by"));
    shown.response.on_hover_text("Choices in groups, with sums");
}

pub(super) fn groups_ui(ui: &mut Ui, scene: &mut Scene<'_>, by: PlanGroupBy) {
    let groups = scene.view.plan.groups(scene.derived, by);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 18.0), Sense::hover());
    let (font, color) = (FontId::proportional(11.0), scene.theme.weak);
    ui.painter().hline(rect.x_range(), rect.bottom(), egui::Stroke::new(1.0, scene.theme.line));
    ui.painter().text(rect.left_center(), Align2::LEFT_CENTER, by.label().to_lowercase(), font.clone(), color);
    for (at, (head, term)) in HEADS.into_iter().enumerate() {
        let place = pos2(column(rect.right(), at), rect.center().y);
        let drawn = ui.painter().text(place, Align2::RIGHT_CENTER, head, font.clone(), color);
        term_at(ui, drawn, ui.scope_id().with(("head", head)), head, term);
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    let area = ScrollArea::vertical().id_salt("plan groups").auto_shrink([false, false]);
    area.show_rows(ui, ROW, groups.len(), |ui, visible| {
        for group in &groups[visible] {
            group_ui(ui, scene, group);
        }
    });
    ui.spacing_mut().item_spacing.y = 4.0;
}

/// The right edge of a number.
fn column(right: f32, at: usize) -> f32 {
    right - 8.0 - NUMBER * (2.0 - at as f32)
}

fn group_ui(ui: &mut Ui, scene: &mut Scene<'_>, group: &PlanGroup) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let name = if group.name.is_empty() { "(the model itself)" } else { &group.name };
    let count = |value: usize| number::count(value as u64);
    let numbers = [count(group.gemms.len()), count(group.num_low), number::micros(group.saved_us)];
    let said = format!("{name}: {} GEMMs, {} in FP8, {} µs saved", numbers[0], numbers[1], numbers[2]);
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &said));
    if response.hovered() || response.has_focus() {
        ui.painter().rect_filled(rect, 4.0, scene.theme.accent.gamma_multiply(0.10));
    }
    let room = ((rect.width() - 3.0 * NUMBER - 12.0) / 6.3).max(5.0) as usize;
    let font = FontId::proportional(13.0);
    let place = pos2(rect.left() + 4.0, rect.center().y);
    ui.painter().text(place, Align2::LEFT_CENTER, shorten(name, room), font, scene.theme.text);
    for (at, number) in numbers.iter().enumerate() {
        let place = pos2(column(rect.right(), at), rect.center().y);
        ui.painter().text(place, Align2::RIGHT_CENTER, number, FontId::monospace(12.0), scene.theme.text);
    }
    let untimed = match group.num_untimed {
        0 => String::new(),
        num => format!("\n{} without a time are not in the sum", count(num)),
    };
    if response.on_hover_text(format!("{said}{untimed}\nClick to select its sites")).clicked() {
        let ids = scene.session.index().ids();
        let named: BTreeSet<SiteId> = group.gemms.iter().filter_map(|(at, _)| ids.get(*at).cloned()).collect();
        if let Some(first) = named.first().cloned() {
            scene.view.select(first, None);
            scene.view.selection = named;
            scene.view.reveal = true;
        }
    }
}
