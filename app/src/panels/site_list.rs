//! Every site with what low precision offers its three GEMMs; a filter; the counts below.

use egui::{Align2, FontId, Id, Rect, RichText, ScrollArea, Sense, TextEdit, Ui, pos2, vec2};
use loka_core::{
    model::{Quadrant, SiteId},
    session::view::SiteVerdict,
};

use crate::{
    commands::Action,
    theme::{Glyph, ROW, number, paint_glyph, verdict_word},
    views::Scene,
};

/// Room for three shapes: names are cut alike in every row.
const SHAPES: f32 = 49.0;

/// The best that low precision offers a GEMM, and how it is said.
const STANDINGS: [(Quadrant, &str); 4] = [
    (Quadrant::SafeFast, "safe & fast"),
    (Quadrant::SafeSlow, "safe, not fast"),
    (Quadrant::Uncertain, "uncertain"),
    (Quadrant::UnsafeFast, "unsafe"),
];

pub fn site_list_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    filter_ui(ui, scene);
    let Some(trace) = &scene.session.trace else { return };
    let all = trace.manifest().sites.iter().map(|site| site.id.clone());
    let shown: Vec<SiteId> = all.filter(|id| scene.view.shows(id)).collect();
    let footer = 20.0 * STANDINGS.len() as f32 + 44.0;
    let mut area = ScrollArea::vertical().id_salt("sites").auto_shrink([false, false]);
    area = area.max_height((ui.available_height() - footer).max(3.0 * ROW));
    if std::mem::take(&mut scene.view.reveal) {
        area = revealed(area, ui, scene, &shown);
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    area.show_rows(ui, ROW, shown.len(), |ui, visible| {
        for id in &shown[visible] {
            row_ui(ui, scene, id);
        }
    });
    if shown.is_empty() {
        ui.label(RichText::new("No site has these letters").small().color(scene.theme.weak));
    }
    ui.spacing_mut().item_spacing.y = 4.0;
    summary_ui(ui, scene);
}

fn filter_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let field = TextEdit::singleline(&mut scene.view.filter).id(Id::unique("site filter")).desired_width(f32::INFINITY);
    let response = ui.add(field.hint_text("Filter sites"));
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, true, "Filter sites"));
    if std::mem::take(&mut scene.view.focus_filter) {
        response.request_focus();
    }
    response.on_hover_text(Action::Filter.hint(ui.ctx()));
}

/// Scrolled so that the selected site is in the middle.
fn revealed(area: ScrollArea, ui: &Ui, scene: &Scene<'_>, shown: &[SiteId]) -> ScrollArea {
    let at = scene.view.site.as_ref().and_then(|site| shown.iter().position(|id| id == site));
    match at {
        Some(at) if shown.len() as f32 * ROW > ui.available_height() => {
            area.vertical_scroll_offset((at as f32 * ROW - ui.available_height() / 2.0).max(0.0))
        }
        _ => area,
    }
}

fn row_ui(ui: &mut Ui, scene: &mut Scene<'_>, id: &SiteId) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let verdict = scene.derived.verdicts.get(id).copied().unwrap_or_default();
    let problem = problem_of(scene, id);
    let words = problem.clone().unwrap_or_else(|| words(verdict));
    let selected = scene.view.site.as_ref() == Some(id);
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, selected, id.as_str()));
    let theme = &scene.theme;
    if selected || response.hovered() {
        ui.painter().rect_filled(rect, 4.0, theme.accent.gamma_multiply(if selected { 0.25 } else { 0.10 }));
    }
    let shapes = shapes_ui(ui, scene, rect, verdict, problem.is_some());
    let max = ((rect.width() - shapes.max(SHAPES) - 10.0) / 6.3) as usize;
    let color = if problem.is_some() { theme.weak } else { theme.text };
    let at = rect.left_center() + vec2(6.0, 0.0);
    ui.painter().text(at, Align2::LEFT_CENTER, scene.derived.short_name(id, max), FontId::proportional(13.0), color);
    if response.clicked() {
        scene.view.select(id.clone(), None);
    }
    response.context_menu(|ui| {
        if ui.button(Action::CopySite.text()).clicked() {
            ui.copy_text(id.as_str().to_owned());
            ui.close();
        }
    });
    response.on_hover_text(format!("{id}\n{words}"));
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
    for verdict in scene.derived.verdicts.values() {
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
