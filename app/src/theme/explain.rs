//! Takes a widget, or a word that was painted, and says what is meant: under the pointer, and when it gets the focus by
//! keys, since a tooltip of egui needs a pointer.

use egui::{Color32, CursorIcon, Id, Label, Rect, Response, RichText, Role, Sense, Stroke, StrokeKind, Ui, WidgetInfo};
use loka_core::format::Term;

/// The tooltip under the pointer, and beside a widget that a person reached by keys.
pub fn explained(response: Response, text: &str) -> Response {
    if !is_reached_by_keys(&response) {
        return response.on_hover_text(text);
    }
    egui::Tooltip::for_widget(&response).show(|ui| ui.label(text));
    response
}

/// A click gives the focus, too: who points sees tooltips anyway, and none that stays.
fn is_reached_by_keys(response: &Response) -> bool {
    let id = response.id.with("reached by keys");
    if !response.has_focus() {
        return false;
    }
    let points = response.ctx.input(|input| input.pointer.any_down() || input.pointer.any_released());
    // Asked before the lock below is held, which is egui's one lock.
    let gained = response.gained_focus();
    response.ctx.data_mut(|data| {
        let by_keys = data.get_temp_mut_or(id, true);
        *by_keys = (*by_keys || gained) && !points;
        *by_keys
    })
}

/// A text of which it is said what it means.
pub fn term_ui(ui: &mut Ui, text: RichText, term: Term) -> Response {
    explained_ui(ui, text, &term.text())
}

/// The first row of a small table: a text a column, each with what it means. Ends the row.
pub fn heads_ui<const N: usize>(ui: &mut Ui, color: Color32, heads: [(&str, Term); N]) {
    for (text, term) in heads {
        term_ui(ui, RichText::new(text).small().color(color), term);
    }
    ui.end_row();
}

/// The same with words of its own, which may name several terms.
pub fn explained_ui(ui: &mut Ui, text: RichText, about: &str) -> Response {
    let label = ui.add(Label::new(text).sense(Sense::focusable_noninteractive()));
    outlined(ui, &label, label.rect);
    explained(label, about).on_hover_cursor(CursorIcon::Help)
}

/// A word that was painted at that place.
pub fn term_at(ui: &Ui, place: Rect, id: Id, title: &str, term: Term) -> Response {
    let response = ui.interact(place, id, Sense::focusable_noninteractive());
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, title));
    outlined(ui, &response, place);
    explained(response, &term.text()).on_hover_cursor(CursorIcon::Help)
}

/// Where the keys are.
fn outlined(ui: &Ui, response: &Response, place: Rect) {
    if response.has_focus() {
        let color: Color32 = ui.visuals().selection.stroke.color;
        ui.painter().rect_stroke(place.expand(2.0), 2.0, Stroke::new(1.0, color), StrokeKind::Outside);
    }
}

/// A text with what the terms mean that it names.
pub fn with_terms(text: &str, terms: impl IntoIterator<Item = Term>) -> String {
    let mut lines = vec![text.to_owned()];
    lines.extend(terms.into_iter().map(Term::text));
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}
