//! What is open, which engine, which policy, how the run stands, and the menus. Wide windows show it in two
//! lines; narrow ones put what is adjusted seldom into menus, and wrap the rest.

use egui::{Align, Button, ComboBox, Layout, ProgressBar, RichText, ScrollArea, Ui};
use loka_core::{
    dispatch::Policy,
    model::Manifest,
    review::Role,
    session::{Command, FileKind, Run},
};

use super::{
    engines::engines_ui,
    menus::{file_menu_ui, view_menu_ui},
};
use crate::{
    commands::{Action, RunAction, WindowAction},
    theme::{Term, explained, number, shorten, term_ui},
    views::{Scene, recent_file_ui},
};

/// Below this width the policy is a menu and the engine stands in the second line.
const NARROW: f32 = 860.0;
/// Room that the right end of the first line keeps.
const RIGHT: f32 = 150.0;
const NARROW_RIGHT: f32 = 104.0;
/// Points a character takes, for names that must fit.
const LETTER: f32 = 7.0;

pub fn top_bar_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let narrow = ui.available_width() < NARROW;
    ui.horizontal(|ui| {
        let right = if narrow { NARROW_RIGHT } else { RIGHT };
        title_ui(ui, scene, narrow, right);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            scene.button_named_ui(ui, Action::Window(WindowAction::Sheet), "?");
            let text = if narrow { "Ctrl+K" } else { "Actions  Ctrl+K" };
            let palette = Action::Window(WindowAction::Palette);
            let button = ui.add(Button::new(text)).on_hover_text(palette.hint(ui.ctx()));
            button.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, "Find an action"));
            if button.clicked() {
                scene.act(palette);
            }
        });
    });
    if scene.session.trace.is_some() {
        let controls_ui = |ui: &mut Ui| {
            if narrow {
                engines_ui(ui, scene);
                policy_menu_ui(ui, scene);
            } else {
                policy_ui(ui, scene);
                ui.separator();
            }
            super::baseline_menu_ui(ui, scene);
            ui.separator();
            run_ui(ui, scene);
        };
        if Scene::is_low(ui) {
            ScrollArea::horizontal().id_salt("controls").show(ui, |ui| ui.horizontal(controls_ui));
        } else {
            ui.horizontal_wrapped(controls_ui);
        }
    } else if narrow {
        ui.horizontal_wrapped(|ui| engines_ui(ui, scene));
    }
}

/// The name, the menus, the trace, and where there is room the engine.
fn title_ui(ui: &mut Ui, scene: &mut Scene<'_>, narrow: bool, right: f32) {
    if !narrow {
        ui.label(RichText::new("LoKA").heading().strong().color(scene.theme.text));
    }
    file_menu_ui(ui, scene);
    view_menu_ui(ui, scene);
    trace_ui(ui, scene, narrow, right);
    if !narrow {
        engines_ui(ui, scene);
    }
}

fn trace_ui(ui: &mut Ui, scene: &mut Scene<'_>, narrow: bool, right: f32) {
    let session = scene.session;
    let Some(trace) = &session.trace else { return };
    let manifest = trace.manifest();
    let step = number::count(manifest.run.step);
    let mut about = format!("step {step} · {} sites", number::count(manifest.sites.len() as u64));
    let flops = flops_note(manifest);
    if let Ok(coverage) = manifest.flop_coverage() {
        about += &format!(", {} of FLOPs", coverage.percent(coverage.sites));
    }
    let (loss, value) = (&manifest.loss.name, number::plain(manifest.loss.value));
    let hover = format!("{}\n{about} · {loss} {value}\n{}\n{flops}", trace.name, trace.path);
    // The engine and the numbers have their places: the name takes what is left.
    let taken = if narrow { 0.0 } else { LETTER * about.chars().count() as f32 + 260.0 };
    let most = ((ui.available_width() - right - taken) / LETTER).clamp(8.0, 48.0) as usize;
    ui.separator();
    let name = shorten(&one_line(&trace.name), most);
    switcher_ui(ui, scene, &name, &hover);
    if !narrow {
        ui.label(RichText::new(about).color(scene.theme.weak)).on_hover_text(&hover);
        ui.separator();
    }
}

/// The trace's name; where others were opened before, a menu of them: the last that was opened takes the place of the one
/// that was there, which waits in its journal as it was left.
fn switcher_ui(ui: &mut Ui, scene: &mut Scene<'_>, name: &str, hover: &str) {
    let now = scene.session.trace.as_ref().map_or("", |trace| trace.path.as_str());
    let others: Vec<_> = scene
        .view
        .recent
        .files()
        .iter()
        .filter(|file| file.kind == FileKind::Trace && file.path != now)
        .cloned()
        .collect();
    if others.is_empty() {
        ui.label(RichText::new(name).strong()).on_hover_text(hover);
        return;
    }
    let menu = ui.menu_button(RichText::new(format!("{name} ▾")).strong(), |ui| {
        for file in &others {
            recent_file_ui(ui, scene, file);
        }
    });
    let label = format!("Switch the trace: {name}");
    menu.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &label));
    menu.response.on_hover_text(format!("{hover}\nClick for the traces opened before"));
}

/// Places of a model that a tooltip names.
const PLACES: usize = 8;

/// What of the model's matrix products the sites are, and what the rest is.
fn flops_note(manifest: &Manifest) -> String {
    let coverage = match manifest.flop_coverage() {
        Ok(coverage) => coverage,
        Err(why) => return format!("The sites' share of the model's matmul FLOPs: {why}"),
    };
    let mut note = coverage.sentence();
    for line in coverage.missing().take(PLACES) {
        note += &format!("\n  {}", one_line(&line));
    }
    let more = coverage.unseen.len().saturating_sub(PLACES);
    if more > 0 { format!("{note}\n  and {more} more") } else { note }
}

fn one_line(name: &str) -> String {
    name.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

fn policy_menu_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let name = shorten(&scene.session.document.policy.name, 14);
    let menu = ui.menu_button(format!("{name} ▾"), |ui| {
        for at in 0..Policy::BUILTIN.len() {
            let action = Action::UsePolicy(at);
            let named = Policy::BUILTIN.get(at).copied().unwrap_or_default();
            let chosen = scene.session.document.policy.name == named;
            if ui.selectable_label(chosen, named).on_hover_text(action.tooltip()).clicked() {
                scene.act(action);
            }
        }
        ui.separator();
        scene.thresholds_ui(ui);
    });
    explained(menu.response, &Term::Policy.text());
}

fn policy_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let label = term_ui(ui, RichText::new("Policy").color(scene.theme.weak), Term::Policy);
    let name = scene.session.document.policy.name.clone();
    let combo = ComboBox::from_id_salt("policy").selected_text(&name).width(96.0).show_ui(ui, |ui| {
        for (at, known) in Policy::BUILTIN.iter().enumerate() {
            let action = Action::UsePolicy(at);
            if ui.selectable_label(name == *known, *known).on_hover_text(action.tooltip()).clicked() {
                scene.act(action);
            }
        }
    });
    explained(combo.response.labelled_by(label.id), &Term::Policy.text());
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
            scene.button_named_ui(ui, Action::Run(RunAction::RunOrPause), button);
        }
        None => scene.button_named_ui(ui, Action::Run(RunAction::RunOrPause), "Run probe"),
    }
    measuring_ui(ui, scene);
    memory_ui(ui, scene);
    super::connection_ui(ui, scene);
    if let Some(busy) = scene.busy {
        ui.add(egui::Label::new(RichText::new(shorten(busy, 48)).color(scene.theme.weak))).on_hover_text(busy);
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
    let refused = scene.not_allowed(Role::Owner);
    let stop = ui.add_enabled(refused.is_none(), Button::new("Stop timing"));
    let stop = stop.on_hover_text("Keep the latencies measured so far");
    if stop.on_disabled_hover_text(refused.unwrap_or_default()).clicked() {
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
    let width = if ui.available_width() < 240.0 { 64.0 } else { 120.0 };
    ui.add(ProgressBar::new(run.done as f32).desired_width(width).desired_height(8.0));
    let word = if run.paused { "paused at" } else { "probing" };
    let mut text = format!("{word} {}", number::percent(run.done));
    if let Some(left) = run.seconds_left().filter(|_| !run.paused) {
        text += &format!(" · {} left", number::seconds(left));
    }
    ui.label(text);
    if run.seconds > 0.5 && !run.paused {
        let rate = number::count((run.num_rows as f64 / run.seconds).round() as u64);
        ui.label(RichText::new(format!("{rate} rows/s")).color(scene.theme.weak));
    }
    let pause = if run.paused { "Resume" } else { "Pause" };
    scene.button_named_ui(ui, Action::Run(RunAction::RunOrPause), pause);
    scene.button_named_ui(ui, Action::Run(RunAction::Cancel), "Cancel");
}
