//! Every user action once: text, tooltip, shortcut. Menus, buttons, shortcuts, the palette and the
//! sheet all read this table.

mod palette;
mod perform;
mod sheet;

pub use palette::{Outcome, palette_ui};
pub use perform::{is_enabled, perform, why_disabled};
pub use sheet::sheet_ui;

use egui::{Key, KeyboardShortcut, Modifiers};
use loka_core::{
    dispatch::Policy,
    model::{Metric, ModKind},
    session::{ENGINES, engine_title},
};

/// Something a person can ask of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Open,
    SaveResults,
    ExportPlan,
    Undo,
    Redo,
    RunOrCancel,
    ShowEngines,
    /// By its place in [`ENGINES`].
    UseEngine(usize),
    MeasureSpeeds,
    ToggleMod(ModKind),
    UsePolicy(usize),
    Override,
    ClearOverride,
    NextSite,
    PreviousSite,
    NextColumn,
    PreviousColumn,
    CycleGemm,
    CycleMetric,
    ShowMetric(Metric),
    ToggleRelative,
    Filter,
    CopySite,
    ShowHeatmap,
    ShowQuadrant,
    SwitchTheme,
    Palette,
    Sheet,
    Back,
}

/// Asked for by a panel: an action of the table, or a command with its own data.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Act(Action),
    Do(loka_core::session::Command),
}

impl Action {
    /// In the order of the palette and the sheet.
    pub fn all() -> Vec<Self> {
        use Action::{
            Back, ClearOverride, CopySite, CycleGemm, CycleMetric, ExportPlan, Filter, MeasureSpeeds, NextColumn,
            NextSite, Open, Override, Palette, PreviousColumn, PreviousSite, Redo, RunOrCancel, SaveResults, Sheet,
            ShowEngines, ShowHeatmap, ShowQuadrant, SwitchTheme, ToggleRelative, Undo,
        };
        let mut all = vec![Open, SaveResults, ExportPlan, Undo, Redo, RunOrCancel, ShowEngines];
        all.extend((0..ENGINES.len()).map(Self::UseEngine));
        all.push(MeasureSpeeds);
        all.extend(ModKind::ALL.map(Self::ToggleMod));
        all.extend((0..Policy::BUILTIN.len()).map(Self::UsePolicy));
        all.extend([
            Override,
            ClearOverride,
            NextSite,
            PreviousSite,
            NextColumn,
            PreviousColumn,
            CycleGemm,
            CycleMetric,
        ]);
        all.extend(Metric::ALL.map(Self::ShowMetric));
        all.extend([ToggleRelative, Filter, CopySite, ShowHeatmap, ShowQuadrant, SwitchTheme, Palette, Sheet, Back]);
        all
    }

    pub fn text(self) -> String {
        match self {
            Self::Open => "Open…",
            Self::SaveResults => "Save results…",
            Self::ExportPlan => "Export plan…",
            Self::Undo => "Undo",
            Self::Redo => "Redo",
            Self::RunOrCancel => "Run or cancel the probe",
            Self::ShowEngines => "Show engines",
            Self::UseEngine(at) => return format!("Use the {} engine", engine_at(at)),
            Self::MeasureSpeeds => "Measure speeds",
            Self::ToggleMod(kind) => return format!("Toggle {}", mod_name(kind)),
            Self::UsePolicy(at) => return format!("Use policy {}", Policy::BUILTIN.get(at).unwrap_or(&"")),
            Self::Override => "Override kernel",
            Self::ClearOverride => "Clear override",
            Self::NextSite => "Next site",
            Self::PreviousSite => "Previous site",
            Self::NextColumn => "Next kernel",
            Self::PreviousColumn => "Previous kernel",
            Self::CycleGemm => "Cycle GEMM",
            Self::CycleMetric => "Cycle metric",
            Self::ShowMetric(metric) => return format!("Show {}", metric.label()),
            Self::ToggleRelative => "Relative to BF16",
            Self::Filter => "Filter sites",
            Self::CopySite => "Copy name",
            Self::ShowHeatmap => "Show heatmap",
            Self::ShowQuadrant => "Show quadrant",
            Self::SwitchTheme => "Switch between dark and light",
            Self::Palette => "Find an action",
            Self::Sheet => "Show shortcuts",
            Self::Back => "Back",
        }
        .to_owned()
    }

    pub fn tooltip(self) -> String {
        match self {
            Self::Open => "Open a trace, a folder of shards, or results",
            Self::SaveResults => "Write every row, with its circumstances, to a Parquet file",
            Self::ExportPlan => "Write the chosen kernels as a plan that loka check accepts",
            Self::Undo => "Take back the last change of policy, mods or overrides",
            Self::Redo => "Make the change again that was taken back",
            Self::RunOrCancel => "Probe the trace under the mods in force, or stop the probe and keep its rows",
            Self::ShowEngines => "List engines with their devices, drivers and libraries, and choose one",
            Self::UseEngine(_) => "Probe with this engine; rows of the other are kept apart and come back with it",
            Self::MeasureSpeeds => {
                "Time every site's GEMMs on the GPU; measured latencies replace recorded and modelled ones"
            }
            Self::ToggleMod(_) => "Probe the model as it would be with this change; it must be trained with it",
            Self::UsePolicy(at) => policy_about(at),
            Self::Override => "Choose the selected kernel by hand, with a reason that the plan keeps",
            Self::ClearOverride => "Leave the selected GEMM to the policy again",
            Self::NextSite | Self::PreviousSite => "Move the selection down or up the list of sites",
            Self::NextColumn | Self::PreviousColumn => "Move the selection along the kernels of all GEMMs",
            Self::CycleGemm => "Show all GEMMs, then fprop, dgrad or wgrad alone",
            Self::CycleMetric => "Colour the heatmap by the next metric",
            Self::ShowMetric(_) => "Colour the heatmap by this metric",
            Self::ToggleRelative => "Divide every value by BF16's at the same GEMM",
            Self::Filter => "Show only sites whose name has these letters",
            Self::CopySite => "Copy the selected site's whole name",
            Self::ShowHeatmap => "Sites against kernels, coloured by a metric",
            Self::ShowQuadrant => "Error against speed-up, with the policy's lines",
            Self::SwitchTheme => "Change the ground and the colour scales with it",
            Self::Palette => "Find any action by its name",
            Self::Sheet => "Show every key",
            Self::Back => "Close what is open on top, or leave the field",
        }
        .to_owned()
    }

    pub fn shortcut(self) -> Option<KeyboardShortcut> {
        let plain = |key| Some(KeyboardShortcut::new(Modifiers::NONE, key));
        let command = |key| Some(KeyboardShortcut::new(Modifiers::COMMAND, key));
        match self {
            Self::Open => command(Key::O),
            Self::ExportPlan => command(Key::E),
            Self::SaveResults => command(Key::S),
            Self::Undo => command(Key::Z),
            Self::Redo => Some(KeyboardShortcut::new(Modifiers::COMMAND | Modifiers::SHIFT, Key::Z)),
            Self::RunOrCancel => plain(Key::Space),
            Self::ShowEngines => plain(Key::E),
            Self::MeasureSpeeds => plain(Key::T),
            Self::Override => plain(Key::O),
            Self::NextSite => plain(Key::ArrowDown),
            Self::PreviousSite => plain(Key::ArrowUp),
            Self::NextColumn => plain(Key::ArrowRight),
            Self::PreviousColumn => plain(Key::ArrowLeft),
            Self::CycleGemm => plain(Key::G),
            Self::CycleMetric => plain(Key::M),
            Self::ToggleRelative => plain(Key::R),
            Self::Filter => plain(Key::F),
            Self::ShowHeatmap => plain(Key::Num1),
            Self::ShowQuadrant => plain(Key::Num2),
            Self::SwitchTheme => plain(Key::L),
            Self::Palette => command(Key::K),
            Self::Sheet => plain(Key::Questionmark),
            Self::Back => plain(Key::Escape),
            Self::UseEngine(_)
            | Self::ToggleMod(_)
            | Self::UsePolicy(_)
            | Self::ShowMetric(_)
            | Self::ClearOverride
            | Self::CopySite => None,
        }
    }

    /// The tooltip with its shortcut.
    pub fn hint(self, ctx: &egui::Context) -> String {
        match self.shortcut() {
            Some(shortcut) => format!("{} ({})", self.tooltip(), shortcut_text(ctx, &shortcut)),
            None => self.tooltip(),
        }
    }
}

pub fn shortcut_text(ctx: &egui::Context, shortcut: &KeyboardShortcut) -> String {
    match shortcut.logical_key {
        Key::ArrowDown => "↓".to_owned(),
        Key::ArrowUp => "↑".to_owned(),
        Key::ArrowLeft => "←".to_owned(),
        Key::ArrowRight => "→".to_owned(),
        Key::Questionmark => "?".to_owned(),
        Key::Escape => "Esc".to_owned(),
        _ => ctx.format_shortcut(shortcut),
    }
}

fn engine_at(at: usize) -> &'static str {
    ENGINES.get(at).map_or("", |name| engine_title(name))
}

fn mod_name(kind: ModKind) -> &'static str {
    match kind {
        ModKind::NoBias => "no bias",
        ModKind::BlockNorm => "BlockNorm",
        ModKind::HardSwish => "hard swish",
    }
}

fn policy_about(at: usize) -> &'static str {
    match Policy::BUILTIN.get(at) {
        Some(&"paper") => "MERE below .2 and more than 1.05×, every GEMM on its own (LoKA)",
        Some(&"rel-l2") => "Relative L2 below .05 and more than 1.05×, every GEMM on its own",
        _ => "The fastest plan whose loss cost stays within .02 % of the loss",
    }
}

/// The actions whose keys were pressed. With a text field in use only those with Ctrl and Esc count.
pub fn pressed(ctx: &egui::Context) -> Vec<Action> {
    let typing = ctx.egui_wants_keyboard_input();
    let mut bound: Vec<(Action, KeyboardShortcut)> =
        Action::all().into_iter().filter_map(|action| Some((action, action.shortcut()?))).collect();
    // Ctrl+Shift+Z must be asked for before Ctrl+Z, which would take it too.
    bound.sort_by_key(|(_, shortcut)| !shortcut.modifiers.shift);
    ctx.input_mut(|input| {
        let mut hit = |action: Action, shortcut: &KeyboardShortcut| {
            let allowed = !typing || shortcut.modifiers.command || action == Action::Back;
            // Ctrl+Z in a field is the field's own.
            let own = typing && matches!(action, Action::Undo | Action::Redo);
            let hit = allowed && !own && input.consume_shortcut(shortcut);
            // "?" comes with Shift on most keyboards.
            let shifted = KeyboardShortcut::new(Modifiers::SHIFT, shortcut.logical_key);
            hit || (action == Action::Sheet && allowed && input.consume_shortcut(&shifted))
        };
        bound.iter().filter(|(action, shortcut)| hit(*action, shortcut)).map(|(action, _)| *action).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_has_words_and_no_two_share_a_key() {
        let mut seen: Vec<(KeyboardShortcut, Action)> = Vec::new();
        for action in Action::all() {
            let (text, tooltip) = (action.text(), action.tooltip());
            assert!(!text.is_empty() && !tooltip.is_empty(), "{action:?}");
            assert!(!text.ends_with('.') && !tooltip.contains('!'), "{action:?}");
            let Some(shortcut) = action.shortcut() else { continue };
            let other = seen.iter().find(|(known, _)| *known == shortcut);
            assert!(other.is_none(), "{action:?} and {other:?} share a key");
            seen.push((shortcut, action));
        }
    }

    #[test]
    fn no_two_actions_have_the_same_text() {
        let mut texts: Vec<String> = Action::all().into_iter().map(Action::text).collect();
        texts.sort();
        let all = texts.len();
        texts.dedup();
        assert_eq!(texts.len(), all);
    }
}
