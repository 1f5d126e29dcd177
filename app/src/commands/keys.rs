//! Takes key presses, gives the actions that they are bound to; names keys as people read them.

use egui::{Event, Key, KeyboardShortcut, Modifiers, text_selection::LabelSelectionState};

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
        Pane::Review => key(Key::V),
        Pane::Graph => key(Key::H),
    }
}

/// Keys with Ctrl that a browser keeps for itself, or that a person needs of it: text size, tabs, windows, the address,
/// its tools. In a page the workbench has no action on them.
pub(super) fn is_browsers(shortcut: &KeyboardShortcut) -> bool {
    let KeyboardShortcut { modifiers, logical_key } = shortcut;
    if !modifiers.command {
        return modifiers.alt || modifiers.ctrl;
    }
    let tools = matches!(logical_key, Key::C | Key::I | Key::J | Key::O | Key::B | Key::K);
    let always = matches!(
        logical_key,
        Key::Plus
            | Key::Minus
            | Key::Equals
            | Key::Num0
            | Key::W
            | Key::T
            | Key::N
            | Key::R
            | Key::L
            | Key::Tab
            | Key::P
    );
    always || (modifiers.shift && tools)
}

/// Whose a key is, in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It does something here, and nothing besides.
    Workbench,
    /// It goes its way: to the field that is typed in, or to whatever has the focus.
    Field,
    /// The workbench never hears of it.
    Browser,
}

/// `typing`: a text field has the focus.
pub fn owner_of(key: Key, modifiers: Modifiers, typing: bool) -> Owner {
    if !modifiers.command && !modifiers.ctrl && !modifiers.alt {
        let function = key.name().strip_prefix('F').is_some_and(|number| number.parse::<u8>().is_ok());
        return if function { Owner::Browser } else { Owner::Field };
    }
    let moves = matches!(
        key,
        Key::ArrowLeft
            | Key::ArrowRight
            | Key::ArrowUp
            | Key::ArrowDown
            | Key::Home
            | Key::End
            | Key::Backspace
            | Key::Delete
    );
    // Copying comes as an event of its own, a field has its own undo, and one of many lines is sent by Ctrl+Enter.
    let edits = modifiers.command && matches!(key, Key::A | Key::C | Key::V | Key::X | Key::Z | Key::Y | Key::Enter);
    if (typing && (moves || edits)) || (matches!(key, Key::C | Key::V | Key::X) && !modifiers.shift) {
        return Owner::Field;
    }
    let shortcut = KeyboardShortcut::new(modifiers, key);
    let hits =
        |of: KeyboardShortcut| of.logical_key == key && modifiers.matches_exact(of.modifiers) && !is_browsers(&of);
    let taken = Action::all().into_iter().filter_map(|action| action.entry_shortcut()).any(hits);
    if taken && !is_browsers(&shortcut) { Owner::Workbench } else { Owner::Browser }
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

/// A press that was taken out of a frame's events.
pub struct Pressed {
    pub action: Action,
    /// Where among the events it was.
    at: usize,
}

/// The next action whose key was pressed, in the order of the presses: a slow frame has several. With a text field in
/// use only those with Ctrl and Esc count.
pub fn next_pressed(ctx: &egui::Context) -> Option<Pressed> {
    let has_press = |event: &Event| matches!(event, Event::Key { pressed: true, .. } | Event::Copy);
    if !ctx.input(|input| input.events.iter().any(has_press)) {
        return None;
    }
    let copies = !copies_text(ctx);
    let bound = bound(ctx);
    let copy = Action::File(FileAction::Copy);
    let action_of = |event: &Event| match event {
        // Systems tell of Ctrl+C as what it means, not as a key.
        Event::Copy => copies.then_some(copy),
        Event::Key { key, pressed: true, modifiers, .. } => {
            let hit = |(_, of): &&(Action, KeyboardShortcut)| {
                // "?" comes with Shift on most keyboards.
                let question = *key == Key::Questionmark && modifiers.matches_logically(Modifiers::SHIFT);
                of.logical_key == *key && (modifiers.matches_logically(of.modifiers) || question)
            };
            bound.iter().find(hit).map(|(action, _)| *action)
        }
        _ => None,
    };
    ctx.input_mut(|input| {
        let mut events = input.events.iter().enumerate();
        let (at, action) = events.find_map(|(at, event)| Some((at, action_of(event)?)))?;
        input.events.remove(at);
        // The character of that key is no text.
        if matches!(input.events.get(at), Some(Event::Text(_))) {
            input.events.remove(at);
        }
        if action == copy {
            // Told both ways it is one copy.
            input.events.retain(|event| action_of(event) != Some(copy));
        }
        Some(Pressed { action, at })
    })
}

/// What the keys do now, those with Shift first: Ctrl+Shift+Z must be asked for before Ctrl+Z, which would take it too.
fn bound(ctx: &egui::Context) -> Vec<(Action, KeyboardShortcut)> {
    let typing = ctx.text_edit_focused();
    // Enter and Space press the button that has the focus; arrows move its slider, or the focus.
    let focused = ctx.memory(|memory| memory.focused()).is_some();
    let mut bound: Vec<(Action, KeyboardShortcut)> =
        Action::all().into_iter().filter_map(|action| Some((action, action.shortcut()?))).collect();
    bound.retain(|(action, shortcut)| {
        let arrow = matches!(shortcut.logical_key, Key::ArrowUp | Key::ArrowDown | Key::ArrowLeft | Key::ArrowRight);
        let of_widget = focused && (arrow || matches!(shortcut.logical_key, Key::Enter | Key::Space));
        let back = *action == Action::Window(WindowAction::Back);
        // Ctrl+Z, Ctrl+A and Ctrl+C in a field are the field's own.
        let of_field = matches!(shortcut.logical_key, Key::Z | Key::A | Key::C | Key::X | Key::V);
        let own = typing && shortcut.modifiers.command && of_field;
        (!(typing || of_widget) || shortcut.modifiers.command || back) && !own
    });
    bound.sort_by_key(|(_, shortcut)| !shortcut.modifiers.shift);
    bound
}

/// Keys and characters that wait for the next frame: a slow one has a click or a key that gives a field the keys, and what
/// was meant for that field, which takes it when it is drawn with the focus.
#[derive(Default)]
pub struct Held(Vec<Event>);

impl Held {
    /// At a frame's start: what was held comes first; what is behind a click waits.
    pub fn turn(&mut self, ctx: &egui::Context) {
        ctx.input_mut(|input| drop(input.events.splice(0..0, std::mem::take(&mut self.0))));
        let click = |event: &Event| matches!(event, Event::PointerButton { pressed: true, .. });
        if let Some(at) = ctx.input(|input| input.events.iter().position(click)) {
            self.hold(ctx, at);
        }
    }

    /// What came behind that press waits.
    pub fn hold_behind(&mut self, ctx: &egui::Context, press: &Pressed) {
        self.hold(ctx, press.at);
    }

    fn hold(&mut self, ctx: &egui::Context, from: usize) {
        let typed = |event: &mut Event| {
            let whole = matches!(event, Event::Copy | Event::Cut | Event::Paste(_) | Event::Ime(_));
            whole || matches!(event, Event::Key { .. } | Event::Text(_))
        };
        ctx.input_mut(|input| {
            let from = from.min(input.events.len());
            let mut held: Vec<Event> = input.events.extract_if(from.., typed).collect();
            held.append(&mut self.0);
            self.0 = held;
        });
        if !self.0.is_empty() {
            ctx.request_repaint();
        }
    }
}

/// Takes what `of` makes something of out of the frame's events, in their order: each press counts.
pub fn take_presses<T>(input: &mut egui::InputState, of: impl Fn(&Event) -> Option<T>) -> Vec<T> {
    let mut taken = Vec::new();
    input.events.retain(|event| of(event).map(|made| taken.push(made)).is_none());
    taken
}

/// A field or a selected text has something to copy itself.
fn copies_text(ctx: &egui::Context) -> bool {
    let selected = |state: &mut LabelSelectionState| state.has_selection();
    ctx.text_edit_focused() || ctx.with_plugin(selected).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTRL: Modifiers = Modifiers { ctrl: true, command: true, ..Modifiers::NONE };

    #[test]
    fn presses_of_a_slow_frame_count_each_and_in_their_order() {
        use crate::commands::{EditAction, SelectAction};
        let press = |key, modifiers| Event::Key { key, physical_key: None, pressed: true, repeat: false, modifiers };
        let shift = CTRL.plus(Modifiers::SHIFT);
        let presses =
            [(Key::Home, Modifiers::NONE), (Key::ArrowDown, Modifiers::NONE), (Key::ArrowDown, Modifiers::NONE)];
        let edits = [(Key::Z, shift), (Key::Z, CTRL), (Key::B, CTRL), (Key::Home, Modifiers::NONE)];
        let events: Vec<Event> = presses.into_iter().chain(edits).map(|(key, held)| press(key, held)).collect();
        let ctx = egui::Context::default();
        let mut found = Vec::new();
        let input = egui::RawInput { events, ..egui::RawInput::default() };
        let take = |ui: &mut egui::Ui| {
            found.extend(std::iter::from_fn(|| next_pressed(ui.ctx())).map(|pressed| pressed.action));
        };
        ctx.run_ui(input, take).textures_delta.clear();
        let select = [SelectAction::FirstSite, SelectAction::NextSite, SelectAction::NextSite].map(Action::Select);
        let edit = [EditAction::Redo, EditAction::Undo].map(Action::Edit);
        let last = Action::Select(SelectAction::FirstSite);
        assert_eq!(found, select.into_iter().chain(edit).chain([last]).collect::<Vec<_>>());
    }

    #[test]
    fn a_browser_keeps_what_it_owns() {
        let shift = CTRL.plus(Modifiers::SHIFT);
        for (key, modifiers) in [
            (Key::Plus, CTRL),
            (Key::Minus, CTRL),
            (Key::Num0, CTRL),
            (Key::W, CTRL),
            (Key::T, CTRL),
            (Key::N, CTRL),
            (Key::R, CTRL),
            (Key::L, CTRL),
            (Key::P, CTRL),
            (Key::F, CTRL),
            (Key::Tab, CTRL),
            (Key::C, shift),
            (Key::I, shift),
            (Key::O, shift),
            (Key::ArrowLeft, Modifiers::ALT),
            (Key::F5, Modifiers::NONE),
            (Key::F12, Modifiers::NONE),
        ] {
            assert_eq!(owner_of(key, modifiers, false), Owner::Browser, "{modifiers:?} {key:?}");
        }
    }

    #[test]
    fn the_workbench_has_its_own() {
        for key in [Key::K, Key::O, Key::S, Key::E, Key::Z] {
            assert_eq!(owner_of(key, CTRL, false), Owner::Workbench, "{key:?}");
        }
        assert_eq!(owner_of(Key::Z, CTRL, true), Owner::Field);
        assert_eq!(owner_of(Key::C, CTRL, false), Owner::Field);
        assert_eq!(owner_of(Key::Enter, CTRL, true), Owner::Field);
        assert_eq!(owner_of(Key::ArrowLeft, Modifiers::ALT, true), Owner::Field);
        assert_eq!(owner_of(Key::G, Modifiers::NONE, false), Owner::Field);
    }
}
