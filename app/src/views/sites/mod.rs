//! Every site with what low precision offers its three GEMMs, in the tree of its modules; a filter, an order,
//! several at once; the counts below.

mod bulk;
mod filter;
mod menu;

pub use bulk::bulk_ui;
pub use menu::extend_to;

use egui::{Align2, FontId, Rect, RichText, ScrollArea, Sense, Shape, Stroke, Ui, pos2, vec2};
use loka_core::{
    model::{Quadrant, SiteId},
    views::{Line, LineKind, Lines, SiteVerdict},
};

use filter::filter_ui;
use menu::{folder_menu_ui, site_menu_ui};

use crate::{
    theme::{Glyph, ROW, number, paint_glyph, shorten, verdict_word},
    views::Scene,
};

/// Room for three shapes: names are cut alike in every row.
const SHAPES: f32 = 49.0;
/// A level's indent; no level stands further in than the deepest.
const INDENT: f32 = 12.0;
const DEEPEST: u16 = 8;

/// The best that low precision offers a GEMM, and how it is said.
const STANDINGS: [(Quadrant, &str); 4] = [
    (Quadrant::SafeFast, "safe & fast"),
    (Quadrant::SafeSlow, "safe, not fast"),
    (Quadrant::Uncertain, "uncertain"),
    (Quadrant::UnsafeFast, "unsafe"),
];

pub fn sites_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    scene.view.refresh_lines(scene.session, scene.derived);
    filter_ui(ui, scene);
    scene.view.refresh_lines(scene.session, scene.derived);
    let lines = scene.view.sites.lines();
    let footer = 20.0 * STANDINGS.len() as f32 + 44.0;
    let height = (ui.available_height() - footer).max(3.0 * ROW);
    scene.view.sites.page = (height / ROW) as usize;
    let mut area = ScrollArea::vertical().id_salt("sites").auto_shrink([false, false]).max_height(height);
    if std::mem::take(&mut scene.view.reveal) {
        area = revealed(area, height, scene, &lines);
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    area.show_rows(ui, ROW, lines.all.len(), |ui, visible| {
        for line in &lines.all[visible.start.min(lines.all.len())..visible.end.min(lines.all.len())] {
            match line.kind {
                LineKind::Site => site_ui(ui, scene, line, &lines),
                LineKind::Folder { .. } => folder_ui(ui, scene, line, &lines),
            }
        }
    });
    if lines.all.is_empty() {
        ui.label(RichText::new("No site passes the filter").small().color(scene.theme.weak));
    }
    ui.spacing_mut().item_spacing.y = 4.0;
    summary_ui(ui, scene);
}

/// Scrolled so that the selected site is in the middle.
fn revealed(area: ScrollArea, height: f32, scene: &Scene<'_>, lines: &Lines) -> ScrollArea {
    let site = scene.view.site.as_ref().and_then(|site| scene.session.index().at(site));
    match site.and_then(|site| lines.line_of(site)) {
        Some(at) if lines.all.len() as f32 * ROW > height => {
            area.vertical_scroll_offset((at as f32 * ROW - height / 2.0).max(0.0))
        }
        _ => area,
    }
}

pub(super) fn indent(line: &Line) -> f32 {
    INDENT * f32::from(line.depth.min(DEEPEST))
}

/// A folder's mark, pointing down when it is open.
pub(super) fn triangle(ui: &Ui, center: egui::Pos2, open: bool, color: egui::Color32) {
    let points = if open {
        [vec2(-4.0, -2.0), vec2(4.0, -2.0), vec2(0.0, 3.5)]
    } else {
        [vec2(-2.0, -4.0), vec2(3.5, 0.0), vec2(-2.0, 4.0)]
    };
    ui.painter().add(Shape::convex_polygon(points.map(|of| center + of).to_vec(), color, Stroke::NONE));
}

/// A name without letters still needs a place to be read.
pub(super) fn shown_name(name: &str) -> &str {
    if name.trim().is_empty() { "(no name)" } else { name }
}

fn folder_ui(ui: &mut Ui, scene: &mut Scene<'_>, line: &Line, lines: &Lines) {
    let LineKind::Folder { folder, open } = line.kind else { return };
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let ids = scene.session.index().ids();
    let (label, path) = (shown_name(line.label(ids)), line.path(ids));
    let count = number::count(line.num_sites() as u64);
    let state = if open { "open" } else { "closed" };
    response.widget_info(|| {
        let spoken = format!("{path}, {count} sites, {state}");
        egui::WidgetInfo::selected(egui::Role::Button, true, open, spoken)
    });
    let theme = scene.theme;
    if response.hovered() {
        ui.painter().rect_filled(rect, 4.0, theme.accent.gamma_multiply(0.10));
    }
    let left = rect.left() + indent(line);
    triangle(ui, pos2(left + 8.0, rect.center().y), open, theme.weak);
    let max = ((rect.right() - left - 60.0) / 6.3).max(5.0) as usize;
    let font = FontId::proportional(13.0);
    ui.painter().text(pos2(left + 18.0, rect.center().y), Align2::LEFT_CENTER, shorten(label, max), font, theme.text);
    let at = pos2(rect.right() - 6.0, rect.center().y);
    ui.painter().text(at, Align2::RIGHT_CENTER, &count, FontId::proportional(11.0), theme.weak);
    if response.clicked() {
        if ui.input(|input| input.modifiers.command) {
            menu::select_all_in(scene, line, lines);
        } else {
            scene.view.sites.toggle(folder);
        }
    }
    response.context_menu(|ui| folder_menu_ui(ui, scene, line, lines));
    response.on_hover_ui(|ui| {
        ui.label(format!("{path}\n{count} sites. Click to {}.", if open { "close" } else { "open" }));
    });
}

fn site_ui(ui: &mut Ui, scene: &mut Scene<'_>, line: &Line, lines: &Lines) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let ids = scene.session.index().ids();
    let Some(id) = ids.get(line.site as usize) else { return };
    let verdict = scene.derived.verdict(line.site as usize);
    let problem = problem_of(scene, id);
    let selected = scene.view.is_selected(id);
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, selected, shown_name(id.as_str())));
    let theme = &scene.theme;
    if selected || response.hovered() {
        ui.painter().rect_filled(rect, 4.0, theme.accent.gamma_multiply(if selected { 0.25 } else { 0.10 }));
    }
    if scene.view.site.as_ref() == Some(id) {
        let bar = Rect::from_min_size(rect.min + vec2(0.0, 3.0), vec2(3.0, rect.height() - 6.0));
        ui.painter().rect_filled(bar, 1.0, theme.accent);
    }
    let shapes = shapes_ui(ui, scene, rect, verdict, problem.is_some());
    let left = rect.left() + indent(line) + if scene.view.sites.order.grouped { 18.0 } else { 6.0 };
    let max = ((rect.right() - left - shapes.max(SHAPES) - 4.0) / 6.3).max(5.0) as usize;
    let color = if problem.is_some() { theme.weak } else { theme.text };
    let name = match scene.view.sites.order.grouped {
        true => shorten(shown_name(line.label(ids)), max),
        false => scene.derived.short_name(id, max),
    };
    ui.painter().text(pos2(left, rect.center().y), Align2::LEFT_CENTER, name, FontId::proportional(13.0), color);
    if response.clicked() {
        menu::click(ui, scene, line, lines);
    }
    response.context_menu(|ui| site_menu_ui(ui, scene, id));
    response.on_hover_ui(|ui| {
        ui.label(format!("{id}\n{}", problem.unwrap_or_else(|| words(verdict))));
    });
}

fn problem_of(scene: &Scene<'_>, id: &SiteId) -> Option<String> {
    let problems = &scene.session.trace.as_ref()?.meta.problems;
    problems.iter().find(|(site, _)| site == id).map(|(_, reason)| format!("Cannot be used: {reason}"))
}

/// One shape a GEMM, right-aligned; gives the width they take.
fn shapes_ui(ui: &Ui, scene: &Scene<'_>, rect: Rect, verdict: SiteVerdict, broken: bool) -> f32 {
    let theme = &scene.theme;
    let counts = counts(verdict);
    let mut x = rect.right() - 10.0;
    let mut shape = |quadrant| {
        paint_glyph(
            ui.painter(),
            pos2(x, rect.center().y),
            Glyph { radius: 4.0, ..Glyph::new(quadrant) },
            theme.verdict(quadrant),
        );
        x -= 13.0;
    };
    if broken {
        shape(Quadrant::Unsupported);
    }
    for ((quadrant, _), count) in STANDINGS.iter().zip(counts).rev() {
        (0..count).for_each(|_| shape(*quadrant));
    }
    if verdict.num_overrides > 0 {
        let at = pos2(x + 4.0, rect.center().y);
        ui.painter().text(at, Align2::RIGHT_CENTER, "set", FontId::proportional(10.0), theme.accent);
        x -= 20.0;
    }
    rect.right() - x
}

fn counts(verdict: SiteVerdict) -> [usize; 4] {
    [verdict.num_safe_fast, verdict.num_safe, verdict.num_uncertain, verdict.num_unsafe]
}

fn words(verdict: SiteVerdict) -> String {
    let known = STANDINGS.iter().zip(counts(verdict)).filter(|(_, count)| *count > 0);
    let parts: Vec<String> = known.map(|((_, word), count)| format!("{count} {word}")).collect();
    let overrides = match verdict.num_overrides {
        0 => String::new(),
        count => format!(", {count} overridden"),
    };
    if parts.is_empty() { "not probed yet".to_owned() } else { format!("GEMMs: {}{overrides}", parts.join(", ")) }
}

fn summary_ui(ui: &mut Ui, scene: &Scene<'_>) {
    ui.separator();
    ui.label(RichText::new("GEMMs by their best FP8 kernel").small().color(scene.theme.weak));
    let mut sums = [0; 4];
    for verdict in scene.derived.verdicts.iter() {
        sums.iter_mut().zip(counts(*verdict)).for_each(|(sum, count)| *sum += count);
    }
    for ((quadrant, word), sum) in STANDINGS.iter().zip(sums) {
        ui.horizontal(|ui| {
            ui.spacing_mut().interact_size.y = 16.0;
            let (rect, _) = ui.allocate_exact_size(vec2(12.0, 16.0), Sense::hover());
            paint_glyph(
                ui.painter(),
                rect.center(),
                Glyph { radius: 4.0, ..Glyph::new(*quadrant) },
                scene.theme.verdict(*quadrant),
            );
            ui.label(RichText::new(format!("{} {word}", number::count(sum as u64))).small());
        })
        .response
        .on_hover_text(verdict_word(*quadrant));
    }
}
