//! The model as a tree of modules, with each mod's checkbox at every level: on, off, or on at some of its sites.

use egui::{Align2, FontId, RichText, ScrollArea, Sense, Ui, pos2, vec2};
use loka_core::{
    model::ModKind,
    review::Role,
    views::{Module, On},
};

use super::tri_ui;
use crate::{
    commands::{Action, ModsAction},
    state::set_mod,
    theme::{ROW, Term, number, shorten, term_at},
    views::Scene,
};

/// A mod's column.
const COLUMN: f32 = 86.0;

pub fn modules_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let standing = scene.derived.mods.clone();
    let shown = scene.view.mods.shown(&standing);
    header_ui(ui, scene);
    let height = (ui.available_height() - 40.0).clamp(8.0 * ROW, 16.0 * ROW);
    ui.spacing_mut().item_spacing.y = 0.0;
    ScrollArea::vertical().id_salt("modules").max_height(height).auto_shrink([false, true]).show_rows(
        ui,
        ROW,
        shown.len(),
        |ui, visible| {
            for at in &shown[visible] {
                module_ui(ui, scene, &standing.modules.0[*at], standing.modules.0[*at].is_site(*at));
            }
        },
    );
    ui.spacing_mut().item_spacing.y = 4.0;
    ui.horizontal_wrapped(|ui| {
        let module = scene.view.mods.module.clone();
        let text =
            module.map_or_else(|| "In the site's module:".to_owned(), |path| format!("In {}:", shorten(&path, 32)));
        ui.label(RichText::new(text).color(scene.theme.weak));
        for (action, _) in ModsAction::IN_MODULE {
            scene.button_ui(ui, Action::Mods(action));
        }
    });
}

fn header_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 18.0), Sense::hover());
    let font = FontId::proportional(11.0);
    let (painter, weak) = (ui.painter(), scene.theme.weak);
    let head = |at, text: &str, term| {
        let drawn = painter.text(at, Align2::LEFT_CENTER, text, font.clone(), weak);
        term_at(ui, drawn, ui.scope_id().with(("head", text)), text, term);
    };
    head(rect.left_center(), "module", Term::Module);
    for (at, kind) in ModKind::ALL.into_iter().enumerate() {
        let x = rect.right() - COLUMN * (3 - at) as f32;
        head(pos2(x, rect.center().y), kind.label(), Term::of_mod(kind));
    }
}

fn module_ui(ui: &mut Ui, scene: &mut Scene<'_>, module: &Module, is_site: bool) {
    ui.push_id(&module.path, |ui| {
        ui.horizontal(|ui| {
            ui.set_height(ROW);
            ui.spacing_mut().item_spacing.x = 0.0;
            let width = (ui.available_width() - 3.0 * COLUMN).max(80.0);
            name_ui(ui, scene, module, is_site, width);
            for (at, kind) in ModKind::ALL.into_iter().enumerate() {
                let (cell, _) = ui.allocate_exact_size(vec2(COLUMN, ROW), Sense::hover());
                let mut child = ui.new_child(egui::UiBuilder::new().max_rect(cell).id_salt(kind));
                cell_ui(&mut child, scene, module, (at, kind));
            }
        });
    });
}

fn name_ui(ui: &mut Ui, scene: &mut Scene<'_>, module: &Module, is_site: bool, width: f32) {
    let (rect, response) = ui.allocate_exact_size(vec2(width, ROW), Sense::click());
    let theme = &scene.theme;
    let is_module = scene.view.mods.module.as_deref() == Some(module.path.as_str());
    if response.hovered() || response.has_focus() || is_module {
        let strength = if is_module { 0.18 } else { 0.08 };
        ui.painter().rect_filled(rect, 3.0, theme.accent.gamma_multiply(strength));
    }
    let open = scene.view.mods.is_open(&module.path, module.depth);
    let label = match (is_site, open) {
        (true, _) => format!("Inspect {}", module.path),
        (false, true) => format!("Close {}", module.path),
        (false, false) => format!("Open {}", module.path),
    };
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, is_module, &label));
    let left = rect.left() + 4.0 + 12.0 * module.depth as f32;
    let sign = if is_site {
        ""
    } else if open {
        "▾"
    } else {
        "▸"
    };
    let font = FontId::proportional(12.0);
    ui.painter().text(pos2(left, rect.center().y), Align2::LEFT_CENTER, sign, font.clone(), theme.weak);
    let count = if is_site { String::new() } else { number::count(module.num_sites as u64) };
    let room = ((rect.right() - left - 16.0 - 7.0 * count.len() as f32) / 6.4).max(5.0) as usize;
    let name = shorten(&module.name, room);
    let drawn =
        ui.painter().text(pos2(left + 14.0, rect.center().y), Align2::LEFT_CENTER, name, font.clone(), theme.text);
    let at = pos2(drawn.right() + 6.0, rect.center().y);
    ui.painter().text(at, Align2::LEFT_CENTER, count, FontId::proportional(11.0), theme.weak);
    if response.on_hover_text(&module.path).clicked() {
        if is_site {
            scene.view.select(loka_core::model::SiteId::new(&module.path), None);
        } else {
            scene.view.mods.turn(&module.path);
            scene.view.mods.module = Some(module.path.clone());
        }
    }
}

fn cell_ui(ui: &mut Ui, scene: &mut Scene<'_>, module: &Module, (at, kind): (usize, ModKind)) {
    let on = On::of(module.num_on[at], module.num_sites);
    let able = module.num_able[at];
    let text = match (able, module.num_sites) {
        (0, _) => "no effect".to_owned(),
        (able, all) if able == all => String::new(),
        (1, _) => "1 site".to_owned(),
        (able, _) => format!("{able} sites"),
    };
    let label = format!("{} in {}", kind.label(), module.path);
    if tri_ui(ui, on, &text, &label, scene.not_allowed(Role::Owner)) {
        let ids = scene.session.index().ids().iter();
        let sites = ids.filter(|id| module.has(id.as_str())).cloned().collect();
        scene.send(set_mod(&scene.session.document.mods, kind, sites));
    }
}
