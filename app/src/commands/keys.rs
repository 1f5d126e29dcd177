//! Takes key presses, gives the actions that they are bound to; names keys as people read them.

use egui::{Key, KeyboardShortcut, Modifiers, text_selection::LabelSelectionState};

use super::{Action, FileAction, WindowAction, table::key};
use crate::layout::Pane;

/// The digits, in the order in which views stand.
pub(super) fn of_pane(pane: Pane) -> Option<KeyboardShortcut> {
    match pane {
        Pane::Heatmap => key(Key::Num1),
        Pane::Quadrant => key(Key::Num2),
        Pane::Frontier => key(Key::Num3),
        Pane::Plan => key(Key::Num4),
        Pane::Distribution => key(Key::Num5),
        Pane::Drift => key(Key::Num6),
        Pane::Mods => key(Key::Num7),
        Pane::Sites => key(Key::Num8),
        Pane::Site => key(Key::Enter),
        Pane::Log => key(Key::Num9),
    }
}

pub fn shortcut_text(ctx: &egui::Context, shortcut: &KeyboardShortcut) -> String {
    let bare = match shortcut.logical_key {
        Key::ArrowDown => "↓",
        Key::ArrowUp => "↑",
        Key::ArrowLeft => "←",
        Key::ArrowRight => "→",
        Key::Questionmark => "?",
        Key::Escape => "Esc",
        _ => return ctx.format_shortcut(shortcut),
    };
    match (shortcut.modifiers.command, shortcut.modifiers.shift) {
        (false, false) => bare.to_owned(),
        (false, true) => format!("Shift+{bare}"),
        (true, false) => format!("Ctrl+{bare}"),
        (true, true) => format!("Ctrl+Shift+{bare}"),
    }
}

/// A widget with the focus that moves by the arrows itself calls this in every frame: they do not move the
/// focus then.
pub fn take_arrows(ctx: &egui::Context, widget: egui::Id) {
    let filter = egui::EventFilter { horizontal_arrows: true, vertical_arrows: true, ..egui::EventFilter::default() };
    ctx.memory_mut(|memory| memory.set_focus_lock_filter(widget, filter));
}

/// The actions whose keys were pressed. With a text field in use only those with Ctrl and Esc count.
pub fn pressed(ctx: &egui::Context) -> Vec<Action> {
    let has = |found: fn(&egui::Event) -> bool| ctx.input(|input| input.events.iter().any(found));
    // Systems tell of Ctrl+C as what it means, not as a key.
    let copied = has(|event| matches!(event, egui::Event::Copy)) && !copies_text(ctx);
    let copied = copied.then_some(Action::File(FileAction::Copy));
    if !has(|event| matches!(event, egui::Event::Key { pressed: true, .. })) {
        return copied.into_iter().collect();
    }
    let mut actions = of_keys(ctx);
    actions.extend(copied.filter(|copy| !actions.contains(copy)));
    actions
}

/// A field or a selected text has something to copy itself.
fn copies_text(ctx: &egui::Context) -> bool {
    let selected = |state: &mut LabelSelectionState| state.has_selection();
    ctx.text_edit_focused() || ctx.with_plugin(selected).unwrap_or(false)
}

fn of_keys(ctx: &egui::Context) -> Vec<Action> {
    let typing = ctx.text_edit_focused();
    // Enter and Space press the button that has the focus; arrows move its slider, or the focus.
    let focused = ctx.memory(|memory| memory.focused()).is_some();
    let mut bound: Vec<(Action, KeyboardShortcut)> =
        Action::all().into_iter().filter_map(|action| Some((action, action.shortcut()?))).collect();
    // Ctrl+Shift+Z must be asked for before Ctrl+Z, which would take it too.
    bound.sort_by_key(|(_, shortcut)| !shortcut.modifiers.shift);
    ctx.input_mut(|input| {
        let mut hit = |action: Action, shortcut: &KeyboardShortcut| {
            let back = action == Action::Window(WindowAction::Back);
            let arrow =
                matches!(shortcut.logical_key, Key::ArrowUp | Key::ArrowDown | Key::ArrowLeft | Key::ArrowRight);
            let of_widget = focused && (arrow || matches!(shortcut.logical_key, Key::Enter | Key::Space));
            let allowed = !(typing || of_widget) || shortcut.modifiers.command || back;
            // Ctrl+Z, Ctrl+A and Ctrl+C in a field are the field's own.
            let of_field = matches!(shortcut.logical_key, Key::Z | Key::A | Key::C | Key::X | Key::V);
            let own = typing && shortcut.modifiers.command && of_field;
            let hit = allowed && !own && input.consume_shortcut(shortcut);
            // "?" comes with Shift on most keyboards.
            let shifted = KeyboardShortcut::new(Modifiers::SHIFT, shortcut.logical_key);
            let question = shortcut.logical_key == Key::Questionmark;
            hit || (question && allowed && input.consume_shortcut(&shifted))
        };
        bound.iter().filter(|(action, shortcut)| hit(*action, shortcut)).map(|(action, _)| *action).collect()
    })
}
