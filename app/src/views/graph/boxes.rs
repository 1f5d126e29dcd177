//! The boxes in sight and the brackets over them.

use egui::{
    Align2, Color32, FontId, Id, Painter, Rect, Response, Role, Sense, Shape, Stroke, StrokeKind, Ui, WidgetInfo, pos2,
    vec2,
};
use loka_core::{
    model::{Gemm, Quadrant},
    views::{BandCounts, Bracket, GraphItem, GraphItemKind},
};

use super::{BRACKET, NAME, Strip, pointer, words};
use crate::{
    gpu::hatch,
    theme::{Glyph, SMALL, paint_glyph, shorten, text_on},
    views::Scene,
};

/// From these widths on a band has the GEMM's letters, and the kernel that the plan runs.
const WITH_LETTERS: f32 = 60.0;
const WITH_KERNEL: f32 = 128.0;
/// From this width on casts that are shared are drawn.
const WITH_TIES: f32 = 52.0;
/// How wide a character of a small name is, about.
const CHARACTER: f32 = 6.0;

/// What a GEMM that stays in high precision has as its ground, so that its shape is seen.
pub fn pale(painter: &Painter, rect: Rect, color: Color32) {
    painter.rect_filled(rect, 2.0, color.gamma_multiply(0.16));
    painter.rect_stroke(rect, 2.0, Stroke::new(1.0, color.gamma_multiply(0.7)), StrokeKind::Inside);
}

/// Two bands read one cast.
pub fn tie(painter: &Painter, x: f32, (from, to): (f32, f32), color: Color32) {
    painter.line_segment([pos2(x, from), pos2(x, to)], Stroke::new(1.3, color));
    for y in [from, to] {
        painter.circle_filled(pos2(x, y), 2.0, color);
    }
}

pub fn diamond(painter: &Painter, center: egui::Pos2, color: Color32) {
    let points = [(0.0, -4.0), (4.0, 0.0), (0.0, 4.0), (-4.0, 0.0)].map(|(x, y)| center + vec2(x, y));
    painter.add(Shape::convex_polygon(points.to_vec(), color, Stroke::NONE));
}

pub fn boxes_ui(ui: &Ui, scene: &mut Scene<'_>, strip: &Strip, rect: Rect, visible: std::ops::Range<usize>) {
    for at in visible {
        let place = box_rect(strip, rect, at);
        let item = strip.items.all[at];
        let selected = strip.selected == Some(at);
        // One stop for Tab, as in the heatmap: the selected box. The others are reached by the arrows.
        let (id, sense) = match selected {
            true => (Id::unique("graph box"), Sense::click()),
            false => (ui.scope_id().with(("graph box", item.from)), Sense::CLICK),
        };
        let response = ui.interact(place, id, sense);
        let label = words::spoken(scene, strip, at);
        response.widget_info(|| WidgetInfo::selected(Role::Button, true, selected, &label));
        paint(ui, scene, strip, at, place, &response);
        pointer::box_clicked(ui, scene, &item, &response);
        if selected && response.has_focus() {
            pointer::keys(ui, scene, &item, id);
        }
        response.on_hover_ui(|ui| _ = ui.label(words::told(scene, strip, at)));
    }
}

pub fn box_rect(strip: &Strip, rect: Rect, at: usize) -> Rect {
    let (left, right) = (rect.left() + strip.layout.left(at), rect.left() + strip.layout.right(at));
    let top = rect.top() + strip.brackets;
    Rect::from_min_max(pos2(left, top), pos2(right, top + strip.box_height()))
}

fn paint(ui: &Ui, scene: &Scene<'_>, strip: &Strip, at: usize, place: Rect, response: &Response) {
    let (theme, item, painter) = (&scene.theme, &strip.items.all[at], ui.painter());
    if item.num_sites() > 1 {
        // A stack: there is more behind it.
        let behind = place.translate(vec2(3.0, -2.0)).with_max_x(place.right() + 3.0);
        painter.rect(behind, 4.0, theme.panel, Stroke::new(1.0, theme.line), StrokeKind::Inside);
    }
    let several = scene.view.selection.len() > 1 && is_selected(scene, item);
    painter.rect_filled(place, 4.0, theme.raised);
    name_ui(painter, scene, strip, item, place);
    for gemm in Gemm::ALL {
        let band = band_rect(strip, place, gemm);
        band_ui(painter, scene, item, gemm, band);
    }
    if let (GraphItemKind::Site, true) = (item.kind, place.width() >= WITH_TIES) {
        ties_ui(painter, scene, strip, item, place);
    }
    let stroke = match strip.selected == Some(at) {
        true => Stroke::new(if response.has_focus() { 3.0 } else { 2.0 }, theme.accent),
        false if several => Stroke::new(1.5, theme.accent),
        false if response.hovered() => Stroke::new(1.0, theme.text),
        false => Stroke::new(1.0, theme.line),
    };
    painter.rect_stroke(place, 4.0, stroke, StrokeKind::Outside);
}

fn is_selected(scene: &Scene<'_>, item: &GraphItem) -> bool {
    let ids = scene.session.index().ids();
    let own = ids.get(item.from as usize..item.to as usize).unwrap_or_default();
    own.iter().any(|id| scene.view.is_selected(id))
}

/// In the middle, or where that leaves too little on both sides, at its end.
fn cut(name: &str, most: usize) -> String {
    if most >= 9 {
        return shorten(name, most);
    }
    let mut text: String = name.chars().take(most - 1).collect();
    text.push('…');
    text
}

/// With what marks the box, at the right.
fn name_ui(painter: &Painter, scene: &Scene<'_>, strip: &Strip, item: &GraphItem, place: Rect) {
    let theme = &scene.theme;
    let mut right = place.right() - 3.0;
    let y = place.top() + NAME / 2.0;
    if item.num_mods > 0 {
        diamond(painter, pos2(right - 3.0, y), theme.accent);
        right -= 11.0;
    }
    if item.by_hand > 0 && right - place.left() > 14.0 {
        painter.circle_stroke(pos2(right - 3.0, y), 3.0, Stroke::new(1.5, theme.text));
        right -= 11.0;
    }
    let room = right - place.left() - 4.0;
    let ids = scene.session.index().ids();
    let count = if item.num_sites() > 1 { format!("  {}", item.num_sites()) } else { String::new() };
    let own = ((room / CHARACTER) as usize).saturating_sub(count.len());
    let name = item.label(ids);
    let text = if own >= name.chars().count() { name.to_owned() + &count } else { cut(name, own.max(2)) };
    let color = match item.num_broken {
        0 if strip.selected.is_some_and(|at| strip.items.all[at].from == item.from) => theme.accent,
        0 => theme.text,
        _ => theme.warning,
    };
    let clip = painter.with_clip_rect(painter.clip_rect().intersect(place.with_max_x(right)));
    clip.text(pos2(place.left() + 4.0, y), Align2::LEFT_CENTER, text, FontId::proportional(SMALL), color);
}

fn band_rect(strip: &Strip, place: Rect, gemm: Gemm) -> Rect {
    let top = place.top() + NAME + f32::from(gemm as u8) * strip.band;
    Rect::from_min_max(pos2(place.left(), top), pos2(place.right(), top + strip.band)).shrink2(vec2(3.0, 1.0))
}

fn band_ui(painter: &Painter, scene: &Scene<'_>, item: &GraphItem, gemm: Gemm, band: Rect) {
    let standing = item.gemms[gemm as usize];
    if standing.num() == 0 {
        // It never runs: there is nothing to stand anywhere.
        return;
    }
    let theme = &scene.theme;
    let Some(worst) = standing.worst() else {
        painter.rect_filled(band, 2.0, theme.line.gamma_multiply(0.5));
        return letters_ui(painter, scene, item, gemm, band, theme.weak);
    };
    let color = theme.verdict(worst);
    let low = standing.num_low > 0;
    let ink = match item.kind {
        GraphItemKind::Site if worst == Quadrant::Unsupported => {
            hatch(painter, band, theme.line);
            color
        }
        GraphItemKind::Site if low => {
            painter.rect_filled(band, 2.0, color);
            text_on(color)
        }
        GraphItemKind::Site => {
            pale(painter, band, color);
            color
        }
        GraphItemKind::Module(_) => {
            shares_ui(painter, scene, standing, band);
            color
        }
    };
    let glyph = Glyph { radius: (band.height() / 2.0 - 1.5).clamp(3.0, 4.5), ..Glyph::new(worst) };
    paint_glyph(painter, pos2(band.left() + 9.0, band.center().y), glyph, ink);
    letters_ui(painter, scene, item, gemm, band, if low && item.num_sites() == 1 { ink } else { theme.text });
}

/// A module's band: its sites by verdict, and below them how many run in FP8.
fn shares_ui(painter: &Painter, scene: &Scene<'_>, standing: BandCounts, band: Rect) {
    let theme = &scene.theme;
    let each = band.width() / standing.num().max(1) as f32;
    let mut left = band.left();
    for (rank, count) in standing.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let right = left + each * *count as f32;
        let part = Rect::from_min_max(pos2(left, band.top()), pos2(right, band.bottom()));
        let color = Quadrant::BEST_FIRST.get(rank).map_or(theme.line, |quadrant| theme.verdict(*quadrant));
        painter.rect_filled(part, 0.0, color.gamma_multiply(0.3));
        left = right;
    }
    let low = band.width() * standing.num_low as f32 / standing.num().max(1) as f32;
    let line = Rect::from_min_size(pos2(band.left(), band.bottom() - 3.0), vec2(low, 3.0));
    painter.rect_filled(line, 0.0, theme.verdict(Quadrant::SafeFast));
    painter.rect_stroke(band, 2.0, Stroke::new(1.0, theme.line), StrokeKind::Inside);
}

fn letters_ui(painter: &Painter, scene: &Scene<'_>, item: &GraphItem, gemm: Gemm, band: Rect, color: Color32) {
    let room = band.width() - 18.0;
    if room + 18.0 < WITH_LETTERS || band.height() < 10.0 {
        return;
    }
    let kernel = match item.kind {
        GraphItemKind::Site if band.width() >= WITH_KERNEL => {
            scene.derived.plan.pick_at(item.from as usize, gemm).map(|choice| choice.kernel.recipe().to_owned())
        }
        _ => None,
    };
    let standing = item.gemms[gemm as usize];
    let text = match (kernel, item.kind) {
        (Some(kernel), _) => format!("{gemm}  {}", kernel.trim_start_matches("fp8-")),
        (None, GraphItemKind::Module(_)) if band.width() >= WITH_KERNEL => {
            format!("{gemm}  {} of {} in FP8", standing.num_low, standing.num())
        }
        _ => gemm.to_string(),
    };
    let text = shorten(&text, (room / 5.6) as usize);
    let clip = painter.with_clip_rect(painter.clip_rect().intersect(band));
    clip.text(pos2(band.left() + 18.0, band.center().y), Align2::LEFT_CENTER, text, FontId::proportional(SMALL), color);
}

/// At the right end of the bands, clear of each other: x, W, dy.
fn ties_ui(painter: &Painter, scene: &Scene<'_>, strip: &Strip, item: &GraphItem, place: Rect) {
    let Some(site) = strip.graph.sites.get(item.from as usize) else { return };
    let readers = [[Gemm::Fprop, Gemm::Wgrad], [Gemm::Fprop, Gemm::Dgrad], [Gemm::Dgrad, Gemm::Wgrad]];
    for (at, [from, to]) in readers.into_iter().enumerate().filter(|(at, _)| site.shared[*at]) {
        let ends = (band_rect(strip, place, from).center().y, band_rect(strip, place, to).center().y);
        let x = place.right() - 9.0 - 5.0 * at as f32;
        let back = Rect::from_min_max(pos2(x - 2.5, ends.0), pos2(x + 2.5, ends.1));
        painter.rect_filled(back, 0.0, scene.theme.raised);
        tie(painter, x, ends, scene.theme.text);
    }
}

/// Over the boxes that they hold, as far as they are in sight.
pub fn brackets_ui(ui: &Ui, scene: &mut Scene<'_>, strip: &Strip, rect: Rect, visible: std::ops::Range<usize>) {
    let seen = |bracket: &&Bracket| (bracket.from as usize) < visible.end && (bracket.to as usize) > visible.start;
    let sight = ui.clip_rect();
    for bracket in strip.items.brackets.iter().filter(seen) {
        let left = rect.left() + strip.layout.left(bracket.from as usize);
        let right = rect.left() + strip.layout.right((bracket.to as usize).saturating_sub(1));
        let top = rect.top() + bracket.level as f32 * BRACKET;
        let place = Rect::from_min_max(pos2(left, top), pos2(right, top + BRACKET - 1.0));
        let place = place.intersect(sight.with_min_y(place.top()).with_max_y(place.bottom()));
        let label = words::bracket(scene, strip, bracket);
        let response = ui.interact(place, ui.scope_id().with(("bracket", bracket.folder, bracket.from)), Sense::CLICK);
        response.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Fold {label}")));
        let (theme, painter) = (&scene.theme, ui.painter());
        let color = if response.hovered() { theme.text } else { theme.weak };
        let y = place.bottom() - 2.0;
        painter.hline(left..=right, y, Stroke::new(1.0, color));
        for x in [left, right] {
            painter.vline(x, y..=y + 3.0, Stroke::new(1.0, color));
        }
        let room = ((place.width() - 18.0) / CHARACTER) as usize;
        let name = strip.items.bracket_label(scene.session.index().ids(), bracket);
        if room >= 2 {
            crate::views::sites::triangle(ui, pos2(place.left() + 6.0, place.top() + 5.0), true, color);
            let text = shorten(name, room);
            let at = pos2(place.left() + 13.0, place.top() + 5.0);
            painter.text(at, Align2::LEFT_CENTER, text, FontId::proportional(SMALL), color);
        }
        if response.clicked() {
            scene.view.graph.turn(bracket.folder);
        }
        response.on_hover_text(format!("{label}\nClick to fold it into one box"));
    }
}
