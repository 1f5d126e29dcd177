//! The names at the left of the rows: folders with their mark, sites; several selected ones are marked too.

use egui::{Align2, FontId, Rect, Ui, pos2, vec2};
use loka_core::views::{LineKind, Lines};

use crate::{
    theme::{SMALL, shorten},
    views::{Scene, sites},
};

/// Rows lower than this have no room for characters.
pub const LEAST_ROW: f32 = 11.0;
const INDENT: f32 = 10.0;

/// `rect`: of the names in sight; `top`: of the first line of `visible`.
pub fn names_ui(
    ui: &Ui,
    scene: &Scene<'_>,
    rect: Rect,
    top: f32,
    row: f32,
    lines: &Lines,
    visible: std::ops::Range<usize>,
) {
    if row < LEAST_ROW {
        return;
    }
    let ids = scene.session.index().ids();
    let grouped = scene.view.sites.order.grouped;
    let font = FontId::proportional((SMALL + 1.0).min(row - 2.0));
    let painter = ui.painter().with_clip_rect(rect.intersect(ui.clip_rect()));
    for (at, line) in lines.all[visible.clone()].iter().enumerate() {
        let y = top + (at as f32 + 0.5) * row;
        let left = rect.left() + if grouped { sites::indent(line) * INDENT / 12.0 } else { 0.0 };
        let max = ((rect.right() - left - 22.0) / 6.2).max(4.0) as usize;
        let Some(id) = ids.get(line.site as usize) else { continue };
        let (name, color) = match line.kind {
            LineKind::Folder { open, .. } => {
                sites::triangle(ui, pos2(left + 6.0, y), open, scene.theme.weak);
                (shorten(sites::shown_name(line.label(ids)), max), scene.theme.weak)
            }
            LineKind::Site => {
                let name = match grouped {
                    true => shorten(sites::shown_name(line.label(ids)), max),
                    false => scene.derived.short_name(id, max),
                };
                if scene.view.is_selected(id) {
                    let bar = Rect::from_min_size(pos2(rect.left(), y - row / 2.0), vec2(rect.width() - 6.0, row));
                    painter.rect_filled(bar, 3.0, scene.theme.accent.gamma_multiply(0.18));
                }
                (name, if scene.view.site.as_ref() == Some(id) { scene.theme.accent } else { scene.theme.text })
            }
        };
        painter.text(pos2(left + 14.0, y), Align2::LEFT_CENTER, name, font.clone(), color);
    }
}
