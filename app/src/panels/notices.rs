//! Quiet lines: what was written, what went wrong. They wait to be dismissed and take no focus.

use egui::{RichText, Ui};
use loka_core::session::{Command, Notice, NoticeKind};

use crate::views::Scene;

/// Lines shown at once; the rest wait behind a count.
const SHOWN: usize = 3;

pub fn notices_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let notices = scene.session.notices.clone();
    if scene.view.hint && scene.session.trace.is_some() && !scene.derived.heatmap.columns.is_empty() {
        line_ui(ui, scene, None, "Toggle a mod or pull the threshold to see the plan change.");
    }
    let from = notices.len().saturating_sub(SHOWN);
    for notice in &notices[from..] {
        line_ui(ui, scene, Some(notice), &notice.text);
    }
    if from > 0 {
        ui.label(RichText::new(format!("{from} earlier lines")).small().color(scene.theme.weak));
    }
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
        }
        ui.add(egui::Label::new(text).truncate().selectable(true)).on_hover_text(text);
        if close.clicked() {
            match notice {
                Some(notice) => scene.send(Command::DismissNotice { id: notice.id }),
                None => scene.view.hint = false,
            }
        }
    });
}
