//! Finds an action by a few of its letters.

use egui::{Align2, Context, Id, Key, Modal, Modifiers, RichText, Sense, TextEdit, Ui, vec2};

use super::{Action, shortcut_text};
use crate::theme::{ROW, Theme};

/// What the palette was left with.
pub enum Outcome {
    Open,
    Closed,
    Chosen(Action),
}

/// `typed` and `at` (the highlighted row) live in the view state. `enabled` greys what cannot be done.
pub fn palette_ui(
    ctx: &Context,
    theme: &Theme,
    typed: &mut String,
    at: &mut usize,
    enabled: &dyn Fn(Action) -> bool,
) -> Outcome {
    let (down, up, enter) = ctx.input_mut(|input| {
        let mut key = |key| input.consume_key(Modifiers::NONE, key);
        (key(Key::ArrowDown), key(Key::ArrowUp), key(Key::Enter))
    });
    let area = Modal::default_area(Id::unique("palette")).anchor(Align2::CENTER_TOP, vec2(0.0, 80.0));
    let modal = Modal::new(Id::unique("palette")).area(area).show(ctx, |ui| {
        ui.set_width(440.0);
        let field = TextEdit::singleline(typed).hint_text("Find an action").desired_width(f32::INFINITY);
        let field = ui.add(field);
        field.request_focus();
        if field.changed() {
            *at = 0;
        }
        let found: Vec<Action> = ranked(typed).into_iter().filter(|action| enabled(*action)).take(12).collect();
        if down {
            *at = (*at + 1).min(found.len().saturating_sub(1));
        }
        if up {
            *at = at.saturating_sub(1);
        }
        if found.is_empty() {
            ui.label(RichText::new("Nothing has these letters").color(theme.weak));
        }
        let mut chosen = enter.then(|| found.get(*at).copied()).flatten();
        for (row, action) in found.iter().enumerate() {
            if row_ui(ui, theme, *action, row == *at) {
                chosen = Some(*action);
            }
        }
        chosen
    });
    match modal.inner {
        Some(action) => Outcome::Chosen(action),
        None if modal.should_close() => Outcome::Closed,
        None => Outcome::Open,
    }
}

fn row_ui(ui: &mut Ui, theme: &Theme, action: Action, highlighted: bool) -> bool {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let text = action.text();
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &text));
    if highlighted || response.hovered() {
        ui.painter().rect_filled(rect, 4.0, theme.accent.gamma_multiply(0.25));
    }
    let font = egui::TextStyle::Body.resolve(ui.style());
    ui.painter().text(rect.left_center() + vec2(8.0, 0.0), Align2::LEFT_CENTER, &text, font, theme.text);
    if let Some(shortcut) = action.shortcut() {
        let font = egui::TextStyle::Small.resolve(ui.style());
        let keys = shortcut_text(ui.ctx(), &shortcut);
        ui.painter().text(rect.right_center() - vec2(8.0, 0.0), Align2::RIGHT_CENTER, keys, font, theme.weak);
    }
    response.on_hover_text(action.tooltip()).clicked()
}

/// Actions that have the typed letters in order, the tightest match first.
fn ranked(typed: &str) -> Vec<Action> {
    let all = Action::all().into_iter().filter(|action| *action != Action::Palette && *action != Action::Back);
    let mut scored: Vec<(usize, Action)> = all
        .filter_map(|action| Some((spread(&action.text().to_lowercase(), &typed.to_lowercase())?, action)))
        .collect();
    scored.sort_by_key(|(score, _)| *score);
    scored.into_iter().map(|(_, action)| action).collect()
}

/// How far apart the letters of `typed` lie in `text`; `None` when they are not all there in order.
fn spread(text: &str, typed: &str) -> Option<usize> {
    let mut score = 0;
    let mut rest = text.char_indices();
    let mut last = None;
    for letter in typed.chars().filter(|letter| !letter.is_whitespace()) {
        let (at, _) = rest.find(|(_, found)| *found == letter)?;
        score += last.map_or(at / 4, |last: usize| at - last - 1);
        last = Some(at);
    }
    Some(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_in_order_find_the_tightest_first() {
        assert_eq!(ranked("undo").first(), Some(&Action::Undo));
        assert_eq!(ranked("expl").first(), Some(&Action::ExportPlan));
        assert!(ranked("zzz").is_empty());
        assert!(ranked("").len() > 20);
    }
}
