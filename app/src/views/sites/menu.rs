//! What a click selects, and the menus of a site and of a folder.

use egui::Ui;
use loka_core::{
    model::SiteId,
    views::{Line, Lines},
};

use super::filter::{add_term, term_of_module};
use crate::{
    commands::{Action, SelectAction},
    views::Scene,
};

/// A click selects one; with Ctrl one more or one less; with Shift all from the last one on.
pub fn click(ui: &Ui, scene: &mut Scene<'_>, line: &Line, lines: &Lines) {
    let modifiers = ui.input(|input| input.modifiers);
    let Some(id) = scene.session.index().ids().get(line.site as usize).cloned() else { return };
    if modifiers.shift {
        extend_to(scene, id, lines);
    } else if modifiers.command {
        toggle(scene, id);
    } else {
        scene.view.selection.clear();
        scene.view.sites.anchor = Some(id.clone());
        scene.view.select(id, None);
    }
}

fn toggle(scene: &mut Scene<'_>, id: SiteId) {
    let view = &mut *scene.view;
    view.selection = view.selected_sites().into_iter().collect();
    if view.selection.len() > 1 && view.selection.remove(&id) {
        // The selection is in force while the selected site is one of it.
        if view.site.as_ref() == Some(&id)
            && let Some(other) = view.selection.first().cloned()
        {
            view.select(other, None);
        }
        return;
    }
    view.selection.insert(id.clone());
    view.sites.anchor = Some(id.clone());
    view.select(id, None);
}

/// From the anchor to `id`, as the lines stand.
pub fn extend_to(scene: &mut Scene<'_>, id: SiteId, lines: &Lines) {
    let index = scene.session.index();
    let line = |id: &SiteId| index.at(id).and_then(|site| lines.line_of(site));
    let anchor = scene.view.sites.anchor.clone().or_else(|| scene.view.site.clone()).unwrap_or_else(|| id.clone());
    if let (Some(from), Some(to)) = (line(&anchor), line(&id)) {
        let all = lines.between(from, to).filter_map(|site| index.ids().get(site as usize).cloned());
        scene.view.selection = all.collect();
        scene.view.sites.anchor = Some(anchor);
        scene.view.select(id, None);
    }
}

pub fn select_all_in(scene: &mut Scene<'_>, line: &Line, lines: &Lines) {
    let ids = scene.session.index().ids();
    let all: Vec<SiteId> = lines.sites(line).iter().filter_map(|site| ids.get(*site as usize).cloned()).collect();
    if let Some(first) = all.first().cloned() {
        scene.view.selection = all.into_iter().collect();
        scene.view.sites.anchor = Some(first.clone());
        scene.view.select(first, None);
    }
}

/// What can be done with the selected sites; a site that is not among them is selected first.
pub fn site_menu_ui(ui: &mut Ui, scene: &mut Scene<'_>, id: &SiteId) {
    if !scene.view.is_selected(id) {
        scene.view.selection.clear();
        scene.view.select(id.clone(), None);
    }
    ui.set_min_width(240.0);
    let several = scene.view.selected_sites().len() > 1;
    let copy = if several { SelectAction::CopyNames } else { SelectAction::CopySite };
    item_ui(ui, scene, copy);
    ui.separator();
    for action in [SelectAction::NoBiasHere, SelectAction::BlockNormHere, SelectAction::HardSwishHere] {
        item_ui(ui, scene, action);
    }
    ui.separator();
    for action in [SelectAction::OverrideHere, SelectAction::ClearOverridesHere] {
        item_ui(ui, scene, action);
    }
    ui.separator();
    item_ui(ui, scene, SelectAction::ToggleFolder);
    item_ui(ui, scene, SelectAction::SelectAll);
}

pub fn folder_menu_ui(ui: &mut Ui, scene: &mut Scene<'_>, line: &Line, lines: &Lines) {
    ui.set_min_width(200.0);
    if ui.button("Select all in it").clicked() {
        select_all_in(scene, line, lines);
        ui.close();
    }
    if ui.button("Show only this module").clicked() {
        let term = term_of_module(line.path(scene.session.index().ids()));
        add_term(&mut scene.view.filter, &term);
        ui.close();
    }
    if ui.button("Copy module name").clicked() {
        ui.copy_text(line.path(scene.session.index().ids()).to_owned());
        ui.close();
    }
    ui.separator();
    item_ui(ui, scene, SelectAction::CloseFolders);
    item_ui(ui, scene, SelectAction::OpenFolders);
}

fn item_ui(ui: &mut Ui, scene: &mut Scene<'_>, action: SelectAction) {
    scene.button_ui(ui, Action::Select(action));
}
