//! The menus of the top bar: files, and what the window shows. Every line is an action of the table.

use egui::{Button, Ui};
use loka_core::export::Target;

use crate::{
    commands::{Action, FileAction, WindowAction, shortcut_text},
    layout::Pane,
    theme::{Ground, number},
    views::{Scene, recent_file_ui},
};

pub fn file_menu_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.menu_button("File", |ui| {
        for of in [FileAction::Open, FileAction::Browse] {
            item_ui(ui, scene, Action::File(of));
        }
        ui.menu_button("Open recent", |ui| recent_ui(ui, scene));
        ui.separator();
        for of in [FileAction::SaveResults, FileAction::ExportPlan] {
            item_ui(ui, scene, Action::File(of));
        }
        ui.menu_button("Export plan for", |ui| frameworks_ui(ui, scene));
        for of in [FileAction::ExportReport, FileAction::SavePng, FileAction::SaveSvg] {
            item_ui(ui, scene, Action::File(of));
        }
        ui.separator();
        for of in [FileAction::CopyCell, FileAction::CopyRow, FileAction::CopyTable, FileAction::CopyLink] {
            item_ui(ui, scene, Action::File(of));
        }
    })
    .response
    .on_hover_text("Open, save, export, copy");
}

pub fn view_menu_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.menu_button("View", |ui| {
        for pane in Pane::ALL {
            pane_ui(ui, scene, pane);
        }
        item_ui(ui, scene, Action::Window(WindowAction::ResetLayout));
        item_ui(ui, scene, Action::Window(WindowAction::CopyLayout));
        item_ui(ui, scene, Action::Window(WindowAction::CopySteps));
        ui.separator();
        ui.horizontal(|ui| ground_ui(ui, scene));
        ui.horizontal(|ui| text_size_ui(ui, scene));
        ui.separator();
        for of in [WindowAction::Palette, WindowAction::Sheet, WindowAction::Tour] {
            item_ui(ui, scene, Action::Window(of));
        }
    })
    .response
    .on_hover_text("Views, dark or light, text size, the tour");
}

/// A line a framework.
fn frameworks_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    for target in Target::ALL {
        item_named_ui(ui, scene, Action::ExportTo(target), &format!("{}…", target.title()));
    }
}

/// A line of a menu with its key; greyed with the reason when it would do nothing.
pub(super) fn item_ui(ui: &mut Ui, scene: &mut Scene<'_>, action: Action) {
    item_named_ui(ui, scene, action, &action.text());
}

/// The same under a shorter text, where the menu says the rest.
fn item_named_ui(ui: &mut Ui, scene: &mut Scene<'_>, action: Action, text: &str) {
    let problem = action.problem(scene.scope());
    let keys = action.shortcut().map(|shortcut| shortcut_text(ui.ctx(), &shortcut)).unwrap_or_default();
    let button = Button::new(text).shortcut_text(keys);
    let response = ui.add_enabled(problem.is_none(), button).on_hover_text(action.tooltip());
    let why = problem.map_or_else(String::new, |problem| format!("{}\nNot now: {problem}", action.tooltip()));
    if response.on_disabled_hover_text(why).clicked() {
        scene.act(action);
        ui.close();
    }
}

fn pane_ui(ui: &mut Ui, scene: &mut Scene<'_>, pane: Pane) {
    let mut open = scene.view.layout.is_open(pane);
    let hint = Action::Show(pane).hint(ui.ctx());
    if ui.checkbox(&mut open, pane.title()).on_hover_text(hint).changed() {
        if open {
            scene.act(Action::Show(pane));
        } else {
            scene.view.layout.close(pane);
        }
    }
}

fn ground_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.label("Ground");
    for (ground, text) in [(Ground::System, "System"), (Ground::Dark, "Dark"), (Ground::Light, "Light")] {
        ui.selectable_value(&mut scene.view.ground, ground, text).on_hover_text(match ground {
            Ground::System => "As the system has it, also when it changes",
            Ground::Dark | Ground::Light => "This one, whatever the system has",
        });
    }
}

fn text_size_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.label("Text size");
    scene.button_named_ui(ui, Action::Window(WindowAction::SmallerText), "Smaller");
    ui.label(number::percent(f64::from(scene.view.text_size)));
    scene.button_named_ui(ui, Action::Window(WindowAction::LargerText), "Larger");
}

/// Files that were opened, each with a way to forget it.
fn recent_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let files = scene.view.recent.files().to_vec();
    if files.is_empty() {
        ui.label("No file was opened yet");
        return;
    }
    for file in &files {
        recent_file_ui(ui, scene, file);
    }
    ui.separator();
    item_ui(ui, scene, Action::File(FileAction::ForgetRecent));
}
