//! The policy's numbers as fields that can be dragged or typed; one drag is one step of undo.

use egui::{DragValue, Id, RichText, Ui};
use loka_core::{review::Role, session::Command};

use super::Scene;
use crate::theme::{Term, number, term_ui, with_terms};

impl Scene<'_> {
    pub fn thresholds_ui(&mut self, ui: &mut Ui) {
        let policy = self.session.document.policy.clone();
        let metric = policy.metric.label();
        let label =
            if policy.loss_budget.is_some() { format!("backward {metric} ≤") } else { format!("{metric} ≤") };
        if let Some((value, gesture)) =
            self.field_ui(ui, (&label, Term::of_metric(policy.metric)), policy.max_error, 0.002, "")
        {
            self.send(Command::SetMaxError { value, gesture });
        }
        if let Some((value, gesture)) =
            self.field_ui(ui, ("speed-up >", Term::SpeedMargin), policy.min_speedup, 0.005, "×")
        {
            self.send(Command::SetMinSpeedup { value, gesture });
        }
    }

    fn field_ui(
        &mut self,
        ui: &mut Ui,
        (label, term): (&str, Term),
        value: f64,
        speed: f64,
        suffix: &str,
    ) -> Option<(f64, Option<u64>)> {
        let label = term_ui(ui, RichText::new(label).color(self.theme.weak), term);
        let kept = Id::unique("typed over").with(ui.next_auto_id());
        let shown = typed_over(ui, kept, value);
        let mut changed = shown;
        let field = DragValue::new(&mut changed)
            .speed(speed)
            .range(0.0..=1e6)
            .suffix(suffix)
            .custom_formatter(|value, _| number::trimmed(value))
            .custom_parser(|text| text.trim_end_matches('×').trim().parse().ok());
        let refused = self.not_allowed(Role::Owner);
        let response = ui.add_enabled(refused.is_none(), field).labelled_by(label.id);
        let response = response.on_hover_text(with_terms("Drag sideways, or click to type", [term]));
        let response = response.on_disabled_hover_text(refused.unwrap_or_default());
        if response.has_focus() && changed != shown {
            // It follows each character.
            ui.data_mut(|data| data.insert_temp(kept, (changed, true)));
        }
        // The gesture's number lives from the press to the release.
        let id = Id::unique("gesture").with(response.id);
        if response.drag_started() {
            let gesture = self.view.next_gesture();
            ui.data_mut(|data| data.insert_temp(id, gesture));
        }
        let gesture = if response.dragged() { ui.data(|data| data.get_temp::<u64>(id)) } else { None };
        (response.changed() && changed != shown).then_some((changed, gesture))
    }
}

/// The value of the next widget: while somebody types in it, the one that they type over. egui drops what is typed when
/// the value changes meanwhile, as it does when another window drags it, or a server answers an earlier drag late.
fn typed_over(ui: &Ui, kept: Id, value: f64) -> f64 {
    let has_focus = ui.memory(|memory| memory.has_focus(ui.next_auto_id()));
    ui.data_mut(|data| {
        let before: Option<(f64, bool)> = data.get_temp(kept);
        // Once more where the focus has just gone: then the field takes what was typed.
        let Some((value, _)) = before.filter(|(_, had_focus)| has_focus || *had_focus) else {
            if has_focus {
                data.insert_temp(kept, (value, true));
            } else {
                data.remove::<(f64, bool)>(kept);
            }
            return value;
        };
        data.insert_temp(kept, (value, has_focus));
        value
    })
}
