//! Quiet lines over the window: what was written, what went wrong. They take no focus, move nothing and are never more than a few;
//! Esc sends them away, and the log keeps them all.

use std::collections::BTreeMap;

use egui::{Align2, Area, Frame, Id, Rect, RichText, Ui, vec2};
use loka_core::session::{Command, Notice, NoticeKind};

use crate::{
    commands::{Action, WindowAction},
    layout::Pane,
    views::Scene,
};

/// Lines shown at once; the rest is in the log.
const SHOWN: usize = 3;
/// Seconds that good news stays.
const STAYS: f64 = 8.0;
/// Points, of a line and around all of them.
const WIDTH: f32 = 620.0;
const MARGIN: f32 = 10.0;
/// Characters of a line; the rest is in its tooltip.
const LONGEST: usize = 400;

/// When each line was first shown.
#[derive(Clone, Debug, Default)]
pub struct Fading(BTreeMap<u64, f64>);

impl Fading {
    /// Takes the time of now in seconds; gives the lines that have been read long enough, and the seconds until
    /// the next one has. What went wrong, and what offers something, waits to be dismissed.
    pub fn tick(&mut self, notices: &[Notice], now: f64) -> (Vec<u64>, Option<f64>) {
        self.0.retain(|id, _| notices.iter().any(|notice| notice.id == *id));
        let (mut over, mut next) = (Vec::new(), None::<f64>);
        let fades = |notice: &&Notice| notice.kind == NoticeKind::Info && notice.action.is_none();
        for notice in notices.iter().filter(fades) {
            let left = *self.0.entry(notice.id).or_insert(now) + STAYS - now;
            if left <= 0.0 {
                over.push(notice.id);
            } else {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        (over, next)
    }
}

/// What a newcomer may try: a line that is there from the start, until it is sent away.
pub fn hint_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let elsewhere = scene.session.has_rows() && !scene.session.engine_is_that_of_the_rows();
    let text = match elsewhere {
        // A mod would want rows of another machine.
        true => "Drag the threshold or choose another policy to see the plan change.",
        false => "Toggle a mod or drag the threshold to see the plan change.",
    };
    line_ui(ui, scene, None, text);
}

pub fn shows_hint(ui: &Ui, scene: &Scene<'_>) -> bool {
    let wanted = scene.view.hint && !Scene::is_low(ui);
    wanted && scene.session.trace.is_some() && !scene.derived.grid.columns.is_empty()
}

/// Over the lower edge of `room`, the newest on top: nothing moves for them.
pub fn notices_ui(ui: &Ui, scene: &mut Scene<'_>, room: Rect) {
    let session = scene.session;
    if session.notices.is_empty() {
        return;
    }
    let shown = shown(&session.notices, if Scene::is_low(ui) { 1 } else { SHOWN });
    let width = WIDTH.min(room.width() - 2.0 * MARGIN);
    let area = Area::new(Id::unique("notices")).pivot(Align2::CENTER_BOTTOM);
    area.fixed_pos(room.center_bottom() - vec2(0.0, MARGIN)).show(ui.ctx(), |ui| {
        for notice in shown.iter().rev() {
            Frame::popup(ui.style()).show(ui, |ui| {
                ui.set_width(width);
                line_ui(ui, scene, Some(notice), &notice.text);
            });
        }
        let more = session.notices.len() - shown.len();
        if more > 0 {
            Frame::popup(ui.style()).show(ui, |ui| {
                ui.horizontal(|ui| {
                    let text = if more == 1 { "1 more line".to_owned() } else { format!("{more} more lines") };
                    ui.label(RichText::new(text).small().color(scene.theme.weak));
                    scene.button_named_ui(ui, Action::Window(WindowAction::DismissAll), "Dismiss all");
                });
            });
        }
    });
}

/// The newest lines, those that went wrong before good news; in the order in which they came.
fn shown(notices: &[Notice], most: usize) -> Vec<&Notice> {
    let mut ranked: Vec<&Notice> = notices.iter().rev().collect();
    ranked.sort_by_key(|notice| notice.kind == NoticeKind::Info);
    ranked.truncate(most);
    ranked.sort_by_key(|notice| notice.id);
    ranked
}

fn line_ui(ui: &mut Ui, scene: &mut Scene<'_>, notice: Option<&Notice>, text: &str) {
    let (word, color) = match notice.map(|notice| notice.kind) {
        None => ("Try", scene.theme.accent),
        Some(NoticeKind::Info) => ("Done", scene.theme.accent),
        Some(NoticeKind::Warning) => ("Note", scene.theme.warning),
        Some(NoticeKind::Error) => ("Error", scene.theme.error),
    };
    ui.horizontal(|ui| {
        ui.label(RichText::new(word).color(color));
        let close = ui.small_button("×").on_hover_text("Dismiss this line");
        close.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, "Dismiss"));
        if let Some(action) = notice.and_then(|notice| notice.action.as_ref())
            && ui.button(&action.text).clicked()
        {
            scene.send(action.command.clone());
            dismiss(scene, notice);
        }
        if notice.is_some() && !scene.view.layout.is_on_screen(Pane::Log) && scene.session.trace.is_some() {
            let show = ui.small_button("Show log").on_hover_text(Action::Show(Pane::Log).hint(ui.ctx()));
            if show.clicked() {
                scene.act(Action::Show(Pane::Log));
            }
        }
        if notice.is_none() && !scene.view.tour.seen {
            scene.button_ui(ui, Action::Window(WindowAction::Tour));
        }
        let line: String = text.chars().take(LONGEST).map(|of| if of.is_control() { ' ' } else { of }).collect();
        ui.add(egui::Label::new(line).truncate().selectable(true)).on_hover_text(text);
        if close.clicked() {
            dismiss(scene, notice);
        }
    });
}

fn dismiss(scene: &mut Scene<'_>, notice: Option<&Notice>) {
    match notice {
        Some(notice) => scene.send(Command::DismissNotice { id: notice.id }),
        // Whoever sends the hint away has seen what it offers.
        None => (scene.view.hint, scene.view.tour.seen) = (false, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(id: u64, kind: NoticeKind) -> Notice {
        Notice { id, kind, text: id.to_string(), action: None }
    }

    #[test]
    fn good_news_fades_and_errors_stay() {
        let notices = [notice(1, NoticeKind::Info), notice(2, NoticeKind::Error)];
        let mut fading = Fading::default();
        assert_eq!(fading.tick(&notices, 10.0), (vec![], Some(STAYS)));
        assert_eq!(fading.tick(&notices, 17.0), (vec![], Some(1.0)));
        assert_eq!(fading.tick(&notices, 18.0), (vec![1], None));
        assert_eq!(fading.tick(&notices[1..], 99.0), (vec![], None), "nothing is left to wait for");
    }

    #[test]
    fn errors_are_seen_before_good_news() {
        let mut notices: Vec<Notice> = (1..=4).map(|id| notice(id, NoticeKind::Info)).collect();
        notices.insert(0, notice(0, NoticeKind::Error));
        let ids: Vec<u64> = shown(&notices, SHOWN).iter().map(|notice| notice.id).collect();
        assert_eq!(ids, [0, 3, 4]);
    }
}
