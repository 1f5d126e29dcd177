//! Every site with what low precision offers its three GEMMs, in the tree of its modules; a filter, an order,
//! several at once; the counts below.

mod bulk;
mod filter;
mod menu;

pub use bulk::bulk_ui;
pub use menu::extend_to;

use egui::{Align2, FontId, Rect, RichText, ScrollArea, Sense, Shape, Stroke, Ui, pos2, vec2};
use loka_core::{
    model::{Gemm, Quadrant, SiteId},
    views::{Line, LineKind, Lines, SiteVerdict, Sort},
};

use filter::{filter_ui, has_term, turn_term};
use menu::{folder_menu_ui, site_menu_ui};

use crate::{
    theme::{Glyph, ROW, Term, explained, number, paint_glyph, shorten, term_at, with_terms},
    views::Scene,
};

/// Room for three shapes: names are cut alike in every row. A column a GEMM.
const COLUMN: f32 = 17.0;
const SHAPES: f32 = 3.0 * COLUMN + 4.0;
/// And for the figure that sites are sorted by.
const VALUE: f32 = 46.0;
/// Over the columns.
const HEADS: f32 = 15.0;
/// A level's indent; no level stands further in than the deepest.
const INDENT: f32 = 12.0;
const DEEPEST: u16 = 8;

/// The best that low precision offers a GEMM, how it is said, and the term that filters for it.
const STANDINGS: [(Quadrant, &str, &str); 6] = [
    (Quadrant::SafeFast, "safe & fast", "verdict:fast"),
    (Quadrant::SafeSlow, "safe, not fast", "verdict:slow"),
    (Quadrant::Uncertain, "uncertain", "verdict:uncertain"),
    (Quadrant::UnsafeFast, "unsafe & fast", "verdict:unsafe-fast"),
    (Quadrant::UnsafeSlow, "unsafe, not fast", "verdict:unsafe-slow"),
    (Quadrant::Unsupported, "unsupported", "verdict:unsupported"),
];

const PAYS_WITH_ITS_SITE: &str = ". Those in the plan are no faster by themselves: their site gains by them as a whole";

pub fn sites_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    scene.view.refresh_lines(scene.session, scene.derived);
    filter_ui(ui, scene);
    scene.view.refresh_lines(scene.session, scene.derived);
    let lines = scene.view.sites.lines();
    let sums = sums(scene);
    let footer = 18.0 * (sums.by_standing.iter().filter(|count| **count > 0).count() + 1) as f32 + 36.0;
    let height = (ui.available_height() - footer - HEADS).max(3.0 * ROW);
    heads_ui(ui, scene);
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
    summary_ui(ui, scene, sums);
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

/// A name without characters still needs a place to be read.
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
    let shapes = shapes_ui(ui, scene, rect, line.site as usize, problem.is_some());
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
        let told = problem.unwrap_or_else(|| words(scene.derived.verdict(line.site as usize)));
        ui.label(format!("{id}\n{told}"));
    });
}

fn problem_of(scene: &Scene<'_>, id: &SiteId) -> Option<String> {
    let problems = &scene.session.trace.as_ref()?.meta.problems;
    problems.iter().find(|(site, _)| site == id).map(|(_, reason)| format!("Cannot be used: {reason}"))
}

/// Where the shape of a GEMM stands, from the right edge.
fn column_x(right: f32, gemm: usize) -> f32 {
    right - 4.0 - COLUMN * (2.5 - gemm as f32)
}

/// What the three columns are.
fn heads_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), HEADS), Sense::hover());
    let font = FontId::proportional(10.0);
    for (at, (gemm, head)) in Gemm::ALL.into_iter().zip(["fp", "dg", "wg"]).enumerate() {
        let place = pos2(column_x(rect.right(), at), rect.center().y);
        let drawn = ui.painter().text(place, Align2::CENTER_CENTER, head, font.clone(), scene.theme.weak);
        term_at(ui, drawn, ui.scope_id().with(("head", head)), gemm.as_str(), Term::of_gemm(gemm));
    }
    if let Some(head) = value_head(scene.view.sites.order.sort) {
        let place = pos2(rect.right() - SHAPES - 4.0, rect.center().y);
        let drawn = ui.painter().text(place, Align2::RIGHT_CENTER, head, font, scene.theme.weak);
        term_at(ui, drawn, ui.scope_id().with("sorted by"), head, scene.view.sites.order.sort.term());
    }
    response.on_hover_text("fprop, dgrad, wgrad: the best that low precision offers each");
}

fn value_head(sort: Sort) -> Option<&'static str> {
    match sort {
        Sort::WorstError => Some("error"),
        Sort::Gain => Some("×BF16"),
        Sort::LossCost => Some("loss"),
        Sort::Forward | Sort::Name | Sort::Verdict => None,
    }
}

/// The figure that the order goes by.
fn value_of(scene: &Scene<'_>, site: usize) -> Option<String> {
    let rank = scene.derived.standings.rank(site);
    let text = |value: f32, how: fn(f64) -> String| {
        if value.is_finite() { how(f64::from(value)) } else { "–".to_owned() }
    };
    match scene.view.sites.order.sort {
        // Of decibels the rank is the negative: larger is worse throughout.
        Sort::WorstError if scene.session.document.policy.metric.larger_is_better() => {
            Some(text(-rank.error, number::plain))
        }
        Sort::WorstError => Some(text(rank.error, number::plain)),
        Sort::Gain => Some(text(rank.gain, number::times)),
        Sort::LossCost => Some(text(rank.loss_cost, number::plain)),
        Sort::Forward | Sort::Name | Sort::Verdict => None,
    }
}

/// A shape a GEMM, each in its column; left of them what was set by hand and what the order goes by. Gives the width they
/// take.
fn shapes_ui(ui: &Ui, scene: &Scene<'_>, rect: Rect, site: usize, broken: bool) -> f32 {
    let theme = &scene.theme;
    let verdict = scene.derived.verdict(site);
    let center = |gemm: usize| pos2(column_x(rect.right(), gemm), rect.center().y);
    let paint = |gemm: usize, quadrant| {
        let glyph = Glyph { radius: 4.0, ..Glyph::new(quadrant) };
        paint_glyph(ui.painter(), center(gemm), glyph, theme.verdict(quadrant));
    };
    for (gemm, quadrant) in verdict.gemms.into_iter().enumerate() {
        match quadrant {
            Some(quadrant) => paint(gemm, quadrant),
            None if broken => paint(gemm, Quadrant::Unsupported),
            None => {}
        }
    }
    let mut x = rect.right() - SHAPES;
    let mut label = |text: &str, font: FontId, color, room: f32| {
        ui.painter().text(pos2(x - 4.0, rect.center().y), Align2::RIGHT_CENTER, text, font, color);
        x -= room;
    };
    if let Some(value) = value_of(scene, site) {
        label(&value, FontId::monospace(11.0), theme.weak, VALUE);
    }
    if verdict.num_overrides > 0 {
        label("set", FontId::proportional(10.0), theme.accent, 22.0);
    }
    rect.right() - x
}

fn words(verdict: SiteVerdict) -> String {
    let word = |quadrant| STANDINGS.iter().find(|(of, ..)| *of == quadrant).map_or("", |(_, word, _)| word);
    let known = Gemm::ALL.into_iter().zip(verdict.gemms);
    let parts: Vec<String> =
        known.filter_map(|(gemm, of)| of.map(|quadrant| format!("{gemm} {}", word(quadrant)))).collect();
    let overrides = match verdict.num_overrides {
        0 => String::new(),
        count => format!(", {count} overridden"),
    };
    if parts.is_empty() { "not probed yet".to_owned() } else { format!("{}{overrides}", parts.join(", ")) }
}

/// What the legend counts.
#[derive(Default)]
struct Sums {
    /// GEMMs by standing; the last: not known yet. They add up to all that run.
    by_standing: [usize; STANDINGS.len() + 1],
    /// Of those that are safe and by themselves not fast: the plan runs them in low precision all the same.
    slow_in_plan: usize,
}

fn sums(scene: &Scene<'_>) -> Sums {
    let mut sums = Sums::default();
    for (site, verdict) in scene.derived.verdicts.iter().enumerate() {
        let mut waiting = verdict.num_gemms;
        for (gemm, quadrant) in Gemm::ALL.into_iter().zip(verdict.gemms) {
            let Some(quadrant) = quadrant else { continue };
            let at = STANDINGS.iter().position(|(of, ..)| *of == quadrant);
            sums.by_standing[at.unwrap_or(STANDINGS.len())] += 1;
            waiting -= 1;
            let runs_low = || scene.derived.plan.pick_at(site, gemm).is_some_and(|pick| pick.kernel.is_low_precision());
            sums.slow_in_plan += usize::from(quadrant == Quadrant::SafeSlow && runs_low());
        }
        sums.by_standing[STANDINGS.len()] += waiting;
    }
    sums
}

/// The shapes with how many there are; a click leaves the sites that have one.
fn summary_ui(ui: &mut Ui, scene: &mut Scene<'_>, Sums { by_standing: sums, slow_in_plan }: Sums) {
    ui.separator();
    let all = number::counted(sums.iter().sum(), "GEMM");
    let head = RichText::new(format!("{all}, by best FP8 kernel")).small().color(scene.theme.weak);
    ui.add(egui::Label::new(head).truncate());
    ui.spacing_mut().item_spacing.y = 0.0;
    for ((quadrant, word, term), sum) in STANDINGS.iter().zip(sums).filter(|(_, sum)| *sum > 0) {
        let on = has_term(&scene.view.filter, term);
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 18.0), Sense::click());
        let said = format!("Show {} {word}", number::counted(sum, "GEMM"));
        response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, on, &said));
        let theme = &scene.theme;
        if on || response.hovered() || response.has_focus() {
            ui.painter().rect_filled(rect, 4.0, theme.accent.gamma_multiply(if on { 0.25 } else { 0.10 }));
        }
        let glyph = Glyph { radius: 4.0, ..Glyph::new(*quadrant) };
        let center = pos2(rect.left() + 6.0, rect.center().y);
        paint_glyph(ui.painter(), center, glyph, theme.verdict(*quadrant));
        let planned = if *quadrant == Quadrant::SafeSlow { slow_in_plan } else { 0 };
        let (also, why) = match planned {
            0 => (String::new(), ""),
            num => (format!(", {} in the plan", number::count(num as u64)), PAYS_WITH_ITS_SITE),
        };
        let text = format!("{} {word}{also}", number::count(sum as u64));
        let place = center + vec2(10.0, 0.0);
        ui.painter().text(place, Align2::LEFT_CENTER, text, FontId::proportional(11.0), theme.text);
        let hint = if on { "Show all sites again" } else { "Show the sites that have one" };
        if explained(response, &with_terms(&format!("{hint}{why}"), [Term::of_verdict(*quadrant)])).clicked() {
            turn_term(&mut scene.view.filter, term);
        }
    }
    if sums[STANDINGS.len()] > 0 {
        let text = format!("{} not probed yet", number::count(sums[STANDINGS.len()] as u64));
        ui.label(RichText::new(text).small().color(scene.theme.weak));
    }
}
