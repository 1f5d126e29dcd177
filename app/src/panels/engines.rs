//! The engines: which is in use, on what device, with which libraries; why one is missing and how to get
//! it. Choosing switches at once.

use egui::{Button, Frame, Margin, Popup, PopupCloseBehavior, RichText, Ui};
use loka_core::{
    engine::{DeviceMemory, EngineStatus, LibraryStatus},
    session::{ENGINES, engine_title},
};

use crate::{
    commands::{Action, RunAction},
    platform::{Here, Platform as _},
    theme::number,
    views::Scene,
};

const WIDTH: f32 = 520.0;
/// Where values begin, right of their names.
const NAMES: f32 = 76.0;
/// Whose nodes are somewhere else.
const CLUSTER: &str = ENGINES[2];
/// Height of one value's line.
const LINE: f32 = 16.0;

/// The button in the top bar with the list below it.
pub fn engines_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let engines = &scene.session.engines;
    let text = RichText::new(format!("Engine: {} ▾", name_of(scene)));
    let missing = engines.problem(&engines.chosen).is_some();
    let text = if missing { text.color(scene.theme.error) } else { text };
    let button = ui.add(Button::new(text)).on_hover_text(Action::Run(RunAction::ShowEngines).hint(ui.ctx()));
    button.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, "Engine"));
    if button.clicked() {
        scene.act(Action::Run(RunAction::ShowEngines));
    }
    let mut open = scene.view.engines;
    let popup = Popup::from_response(&button).open_bool(&mut open);
    let popup = popup.close_behavior(PopupCloseBehavior::CloseOnClickOutside).gap(4.0).accessible_name("Engines");
    let frame = Frame::popup(ui.style()).inner_margin(Margin::same(12));
    popup.frame(frame).width(width(ui)).show(|ui| list_ui(ui, scene));
    // The button's own click toggles it by its action.
    if !button.clicked() {
        scene.view.engines = open;
    }
    foreign_ui(ui, scene);
}

/// Narrow windows have less room.
fn width(ui: &Ui) -> f32 {
    WIDTH.min(ui.ctx().content_rect().width() - 40.0)
}

/// The engine in use in a few words: `CPU (emulated)`, `CUDA · NVIDIA H200`.
fn name_of(scene: &Scene<'_>) -> String {
    let engines = &scene.session.engines;
    let title = engine_title(&engines.chosen);
    match engines.chosen_status() {
        _ if engines.is_lost(&engines.chosen) => format!("{title} (lost)"),
        Some(EngineStatus { problem: Some(_), .. }) => "none".to_owned(),
        Some(status) if status.name != "cpu" => format!("{title} · {}", status.device),
        _ => format!("{title} (emulated)"),
    }
}

/// Says so when the rows on screen are not of the engine in use.
fn foreign_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let origin = scene.session.shown_origin();
    let here = scene.session.engines.chosen_status().is_some_and(|of| origin.is_of(of));
    if here || !scene.session.has_rows() {
        return;
    }
    let text = format!("rows of {}, {}", engine_title(&origin.engine), origin.device);
    let label = egui::Label::new(RichText::new(text).color(scene.theme.warning)).truncate();
    ui.add(label).on_hover_text("They came from a file. What is probed here is kept apart from them.");
}

fn list_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.set_width(width(ui));
    let listed = scene.session.engines.listed.clone();
    for (at, name) in ENGINES.into_iter().enumerate() {
        let Some(status) = listed.iter().find(|status| status.name == name) else { continue };
        if at > 0 {
            ui.separator();
        }
        engine_ui(ui, scene, at, status);
    }
    if scene.session.engines.looking {
        ui.separator();
        ui.horizontal(|ui| {
            ui.spinner();
            ui.label(RichText::new("Looking for devices and libraries").color(scene.theme.weak));
        });
    }
    ui.separator();
    measure_ui(ui, scene);
}

fn engine_ui(ui: &mut Ui, scene: &mut Scene<'_>, at: usize, status: &EngineStatus) {
    let theme = scene.theme;
    ui.horizontal(|ui| {
        ui.label(RichText::new(engine_title(&status.name)).strong());
        let (word, color) = state_of(scene, status);
        ui.label(RichText::new(word).color(color));
        let rows = scene.session.num_rows_of(&status.name);
        if rows > 0 {
            ui.label(RichText::new(format!("{} rows", number::count(rows as u64))).color(theme.weak));
        }
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| choose_ui(ui, scene, at, status));
    });
    if let Some(problem) = &status.problem {
        let color = if scene.session.engines.is_lost(&status.name) { theme.error } else { theme.warning };
        ui.label(RichText::new(sentence(problem)).color(color));
        if status.name == CLUSTER && !Here::IS_PAGE {
            scene.button_ui(ui, Action::Run(RunAction::FindEngines));
        }
    }
    pair_ui(ui, scene, "Device", &status.device);
    pair_ui(ui, scene, "Driver", &status.driver);
    for library in &status.libraries {
        library_ui(ui, scene, library);
    }
    if let Some(memory) = status.memory {
        pair_ui(ui, scene, "Memory", &memory_words(memory));
    }
    ui.label(RichText::new(about(scene, status)).small().color(theme.weak));
}

fn state_of(scene: &Scene<'_>, status: &EngineStatus) -> (&'static str, egui::Color32) {
    let (engines, theme) = (&scene.session.engines, &scene.theme);
    if engines.is_lost(&status.name) {
        ("× lost", theme.error)
    } else if status.problem.is_some() {
        ("– missing", theme.warning)
    } else if engines.chosen == status.name {
        ("● in use", theme.accent)
    } else {
        ("○ ready", theme.weak)
    }
}

fn choose_ui(ui: &mut Ui, scene: &mut Scene<'_>, at: usize, status: &EngineStatus) {
    let origin = scene.session.shown_origin();
    let shown = origin.is_of(status);
    if scene.session.engines.chosen == status.name && shown {
        return;
    }
    let action = Action::UseEngine(at);
    let gone = status.problem.is_some() && scene.session.num_rows_of(&status.name) > 0;
    let text = if gone { format!("Show the {} rows", engine_title(&status.name)) } else { action.text() };
    scene.button_named_ui(ui, action, &text);
}

fn pair_ui(ui: &mut Ui, scene: &Scene<'_>, name: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    ui.horizontal(|ui| {
        ui.spacing_mut().interact_size.y = LINE;
        let left = ui.cursor().left();
        ui.label(RichText::new(name).color(scene.theme.weak));
        ui.add_space((left + NAMES - ui.cursor().left()).max(0.0));
        ui.add(egui::Label::new(value).truncate()).on_hover_text(value);
    });
}

fn library_ui(ui: &mut Ui, scene: &Scene<'_>, library: &LibraryStatus) {
    let value = match &library.problem {
        Some(problem) => problem.clone(),
        None if library.path.is_empty() => library.version.clone(),
        None => format!("{} · {}", library.version, library.path),
    };
    pair_ui(ui, scene, &library.name, &value);
}

/// `2.1 GB used at most · 120 GB free of 140 GB`.
fn memory_words(memory: DeviceMemory) -> String {
    let of = number::bytes;
    format!("{} used by LoKA at most · {} free of {}", of(memory.peak), of(memory.free), of(memory.total))
}

/// What an engine's numbers are, or how to get it.
fn about(scene: &Scene<'_>, status: &EngineStatus) -> &'static str {
    match (status.name.as_str(), &status.problem) {
        (name, Some(_)) if scene.session.engines.is_lost(name) => {
            "CUDA gives this process the same error from now on: start LoKA again to use it. Finished rows stay."
        }
        (_, Some(_)) if Here::IS_PAGE => "Run the loka program on your machine to use it.",
        (CLUSTER, Some(_)) => {
            "To get it: a Ray cluster, pip install 'loka[ray]' in the active Python, and traces where its nodes reach them."
        }
        (CLUSTER, None) => {
            "Its nodes make parts of the probe, which stay beside the trace; rows are those of their engine."
        }
        (_, Some(_)) => {
            "To get it: an NVIDIA GPU with FP8 (Ada, Hopper or newer) with its driver; cuBLASLt 12.9 or newer and NVRTC, from a CUDA toolkit or by pip install nvidia-cublas nvidia-cuda-nvrtc in the active Python. Then start LoKA again."
        }
        ("cpu", None) => {
            "Emulates every kernel: formats and scales are exact, accumulation follows the rule measured on an H200. It cannot time kernels: speeds are recorded or modelled."
        }
        (_, None) => "Runs the GEMMs on the tensor cores, accumulation included, and can time kernels.",
    }
}

/// A reason as a sentence's beginning.
fn sentence(reason: &str) -> String {
    let mut characters = reason.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

fn measure_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal(|ui| {
        scene.button_ui(ui, Action::Run(RunAction::MeasureSpeeds));
        let text = match scene.session.measure_problem() {
            Some(reason) => sentence(&reason),
            None => "Times every site's GEMMs here, casts included".to_owned(),
        };
        let label = egui::Label::new(RichText::new(&text).small().color(scene.theme.weak)).truncate();
        ui.add(label).on_hover_text(text);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_reasons_in_words() {
        let memory = DeviceMemory { total: 140_000_000_000, free: 120_000_000_000, peak: 2_100_000_000 };
        assert_eq!(memory_words(memory), "2.1 GB used by LoKA at most · 120 GB free of 140 GB");
        assert_eq!(sentence("no NVIDIA driver"), "No NVIDIA driver");
        assert_eq!(sentence(""), "");
    }
}
