//! What is open, which engine, which policy, how the probe stands.

use egui::{Align, Button, ComboBox, Layout, ProgressBar, RichText, Ui};
use loka_core::{
    dispatch::Policy,
    session::{Command, Run},
};

use super::engines::engines_ui;
use crate::{commands::Action, theme::number, views::Scene};

pub fn top_bar_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal(|ui| {
        title_ui(ui, scene);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            scene.button_named_ui(ui, Action::Sheet, "?");
            let theme = if scene.view.dark { "Light" } else { "Dark" };
            scene.button_named_ui(ui, Action::SwitchTheme, theme);
            scene.button_named_ui(ui, Action::Palette, "Actions  Ctrl+K");
            scene.button_ui(ui, Action::Open);
        });
    });
    if scene.session.trace.is_some() {
        ui.horizontal(|ui| {
            policy_ui(ui, scene);
            ui.separator();
            run_ui(ui, scene);
        });
    }
}

fn title_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.label(RichText::new("LoKA").heading().strong().color(scene.theme.text));
    ui.add_space(4.0);
    if let Some(trace) = &scene.session.trace {
        let manifest = trace.manifest();
        ui.label(RichText::new(&trace.name).strong()).on_hover_text(&trace.path);
        let step = number::count(manifest.run.step);
        let loss = number::plain(manifest.loss.value);
        let about = format!("step {step} · {} sites", manifest.sites.len());
        ui.label(RichText::new(about).color(scene.theme.weak)).on_hover_text(format!("{} {loss}", manifest.loss.name));
        ui.separator();
    }
    engines_ui(ui, scene);
}

fn policy_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let label = ui.label(RichText::new("Policy").color(scene.theme.weak));
    let name = scene.session.document.policy.name.clone();
    let combo = ComboBox::from_id_salt("policy").selected_text(&name).width(96.0).show_ui(ui, |ui| {
        for (at, known) in Policy::BUILTIN.iter().enumerate() {
            let action = Action::UsePolicy(at);
            if ui.selectable_label(name == *known, *known).on_hover_text(action.tooltip()).clicked() {
                scene.act(action);
            }
        }
    });
    combo.response.labelled_by(label.id).on_hover_text("What a plan must keep to");
    scene.thresholds_ui(ui);
}

fn run_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let run = scene.session.run.clone();
    match run {
        Some(run) if run.running => running_ui(ui, scene, &run),
        Some(run) => {
            let (text, button) = if run.cancelled {
                (format!("cancelled at {}", number::percent(run.done)), "Run probe")
            } else {
                (format!("probed in {}", number::seconds(run.seconds)), "Run again")
            };
            let rows = number::count(run.num_rows as u64);
            ui.label(RichText::new(format!("{text} · {rows} rows")).color(scene.theme.weak));
            scene.button_named_ui(ui, Action::RunOrCancel, button);
        }
        None => scene.button_named_ui(ui, Action::RunOrCancel, "Run probe"),
    }
    measuring_ui(ui, scene);
    memory_ui(ui, scene);
    if let Some(busy) = scene.busy {
        ui.add(egui::Label::new(RichText::new(busy).color(scene.theme.weak)).truncate());
    }
}

/// How far the timing of kernels is, and a way to stop it.
fn measuring_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some(measuring) = scene.session.measuring.clone() else { return };
    ui.separator();
    ui.add(ProgressBar::new(measuring.done as f32).desired_width(80.0).desired_height(8.0));
    let mut text = format!("timing {}", number::percent(measuring.done));
    if measuring.done > 0.02 {
        let left = measuring.seconds * (1.0 - measuring.done) / measuring.done;
        text += &format!(" · {} left", number::seconds(left));
    }
    ui.label(text);
    if ui.add(Button::new("Stop timing")).on_hover_text("Keep the latencies measured so far").clicked() {
        scene.send(Command::CancelProbe);
    }
}

/// The device's memory while an engine works on it.
fn memory_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let busy = scene.session.is_running() || scene.session.is_measuring();
    let Some(memory) = scene.session.engines.chosen_status().and_then(|status| status.memory).filter(|_| busy) else {
        return;
    };
    ui.separator();
    ui.label(RichText::new("GPU memory").color(scene.theme.weak));
    let share = memory.peak as f32 / memory.total.max(1) as f32;
    ui.add(ProgressBar::new(share).desired_width(56.0).desired_height(8.0));
    let text = format!("{} / {}", number::bytes(memory.peak), number::bytes(memory.total));
    let free = number::bytes(memory.free);
    ui.label(text).on_hover_text(format!("The most that LoKA used at a time, of all; {free} are free now"));
}

fn running_ui(ui: &mut Ui, scene: &mut Scene<'_>, run: &Run) {
    let bar = ProgressBar::new(run.done as f32).desired_width(120.0).desired_height(8.0);
    ui.add(bar);
    let mut text = format!("probing {}", number::percent(run.done));
    if let Some(left) = run.seconds_left() {
        text += &format!(" · {} left", number::seconds(left));
    }
    ui.label(text);
    if run.seconds > 0.5 {
        let rate = number::count((run.num_rows as f64 / run.seconds).round() as u64);
        ui.label(RichText::new(format!("{rate} rows/s")).color(scene.theme.weak));
    }
    if ui.add(Button::new("Cancel")).on_hover_text(Action::RunOrCancel.hint(ui.ctx())).clicked() {
        scene.act(Action::RunOrCancel);
    }
}
