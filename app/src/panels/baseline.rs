//! The baseline: a menu of what the present can be compared with, and while the views show what differs, a line that says
//! from what, what changed, and how to leave.

use egui::{Align, Frame, Label, Layout, Margin, RichText, Ui, WidgetInfo};
use loka_core::session::{Command, FileKind};

use super::menus::item_ui;
use crate::{
    commands::{Action, PlanAction},
    theme::shorten,
    views::Scene,
};

/// Characters of a name in the line.
const NAME: usize = 44;

const OF_THE_SESSION: [PlanAction; 6] = [
    PlanAction::KeepBaseline,
    PlanAction::CompareSubmitted,
    PlanAction::WithoutMods,
    PlanAction::WithNoBias,
    PlanAction::WithBlockNorm,
    PlanAction::WithHardSwish,
];

/// In the top bar.
pub fn baseline_menu_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let on = scene.derived.versus().is_some();
    let text = RichText::new("Baseline ▾");
    let text = if on { text.color(scene.theme.accent).strong() } else { text };
    let menu = ui.menu_button(text, |ui| {
        for of in [PlanAction::ToggleBaseline, PlanAction::CloseComparison] {
            item_ui(ui, scene, Action::Plan(of));
        }
        ui.separator();
        for of in OF_THE_SESSION {
            item_ui(ui, scene, Action::Plan(of));
        }
        ui.separator();
        for of in [PlanAction::Compare, PlanAction::CompareResults] {
            item_ui(ui, scene, Action::Plan(of));
        }
        recent_ui(ui, scene);
    });
    menu.response.widget_info(|| WidgetInfo::labeled(egui::Role::Button, true, "Baseline"));
    menu.response.on_hover_text("What the views are compared with: another plan, results or mods");
}

/// Plans and results that were opened or written before.
fn recent_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let comparable = |kind: FileKind| matches!(kind, FileKind::Plan | FileKind::Results);
    let files: Vec<_> = scene.view.recent.files().iter().filter(|file| comparable(file.kind)).cloned().collect();
    if files.is_empty() {
        return;
    }
    ui.separator();
    let refused = scene.not_allowed(loka_core::review::Role::Owner);
    for file in files {
        let able = refused.is_none() && file.problem.is_none();
        let button = egui::Button::new(format!("Compare with {}", shorten(file.name(), NAME)));
        let response = ui.add_enabled(able, button).on_hover_text(&file.path);
        let why = refused.clone().or(file.problem.clone()).unwrap_or_default();
        if response.on_disabled_hover_text(why).clicked() {
            scene.send(Command::OpenPlan { path: file.path.clone() });
            ui.close();
        }
    }
}

/// Under the top bar, while the views show differences.
pub fn baseline_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some(versus) = scene.derived.versus() else { return };
    let (name, headline, left_out) = (versus.name.clone(), versus.headline(), versus.left_out());
    let hint = about(versus.by_kernel);
    let line = Frame::new().fill(scene.theme.raised).inner_margin(Margin::symmetric(12, 5));
    line.show(ui, |ui| {
        ui.set_min_width(ui.available_width());
        ui.horizontal(|ui| {
            // The way out first, from the right: it is there however narrow the window is.
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                scene.button_named_ui(ui, Action::Plan(PlanAction::ToggleBaseline), "Leave (Esc)");
                if ui.available_width() > 520.0 {
                    scene.button_named_ui(ui, Action::Plan(PlanAction::CloseComparison), "Forget it");
                }
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                    let weak = scene.theme.weak;
                    ui.label(RichText::new("Against").strong().color(scene.theme.accent)).on_hover_text(hint);
                    ui.label(RichText::new(shorten(&name, NAME)).strong()).on_hover_text(format!("{name}\n{hint}"));
                    let rest = left_out.map_or_else(String::new, |text| format!(" · {text}"));
                    let text = format!("{headline}{rest}");
                    ui.add(
                        Label::new(RichText::new(&text).color(if rest.is_empty() { scene.theme.text } else { weak }))
                            .truncate(),
                    )
                    .on_hover_text(&text);
                });
            });
        });
    });
}

fn about(by_kernel: bool) -> &'static str {
    match by_kernel {
        true => {
            "Heatmap and arrows compare each kernel with itself in the baseline; the plan, what is chosen with what was"
        }
        false => "Heatmap and arrows compare each kernel with what the baseline runs at that GEMM",
    }
}
