//! Every choice as a table: filtered, sorted, only what is visible laid out.

use egui::{Align2, Button, Color32, FontId, Painter, Rect, RichText, ScrollArea, Sense, Ui, pos2, vec2};
use loka_core::{
    dispatch::Choice,
    views::{Column, Flags, NOT_IN_BASELINE, PlanColumn, PlanLine, SAME_US},
};

use super::groups;
use crate::{
    state::PlanFilter,
    theme::{Glyph, ROW, Term, explained, number, paint_glyph, shorten, term_at, with_terms},
    views::Scene,
};

/// Below this width a choice is its place, its kernel and the time it saves.
const DETAILED: f32 = 560.0;

/// Room for an error in four digits and its margin.
const ERROR: f32 = 118.0;

/// Room for a difference, or that there is none.
const VERSUS: f32 = 92.0;

/// Left edges, from the left, and what of them fits.
struct ChoiceColumns {
    site: f32,
    gemm: f32,
    kernel: f32,
    saved: f32,
    /// More or less than the baseline saves; `None`: there is none.
    versus: Option<f32>,
    share: f32,
    error: f32,
    /// There is room for the share and the error.
    detailed: bool,
    /// `None`: no room for reasons.
    reason: Option<f32>,
}

impl ChoiceColumns {
    fn of(width: f32, versus: bool) -> Self {
        let beside = if versus { VERSUS } else { 0.0 };
        let detailed = width >= DETAILED + beside;
        let numbers = beside + if detailed { 66.0 + 50.0 + ERROR } else { 66.0 };
        let names = if width > 980.0 { 430.0 } else { (width - numbers - 12.0).clamp(120.0, 430.0) };
        let (gemm, kernel) = (names * 0.42, names * 0.42 + 48.0);
        let saved = names + 62.0;
        let share = saved + beside + 50.0;
        let error = share + ERROR;
        let reason = (detailed && width > error + 90.0).then_some(error + 14.0);
        let versus = versus.then_some(saved + beside);
        Self { site: 18.0, gemm, kernel, saved, versus, share, error, detailed, reason }
    }
}

pub fn choices_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let order = scene.view.plan.order(scene.derived);
    keeps_ui(ui, scene, order.counts);
    if let Some(by) = scene.view.plan.group_by {
        return groups::groups_ui(ui, scene, by);
    }
    let columns = ChoiceColumns::of(ui.available_width(), scene.derived.versus().is_some());
    header_ui(ui, scene, &columns);
    if order.places.is_empty() {
        ui.label(
            RichText::new(format!("None: {}", scene.view.plan.keep.about().to_lowercase())).color(scene.theme.weak),
        );
        return;
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    let area = ScrollArea::vertical().id_salt("choices").auto_shrink([false, false]);
    area.show_rows(ui, ROW, order.places.len(), |ui, visible| {
        for place in &order.places[visible] {
            let line = scene.derived.table.lines.get(*place as usize).copied();
            let choice = line.and_then(|line| scene.derived.choice_at(line.at, line.gemm).cloned());
            if let (Some(line), Some(choice)) = (line, choice) {
                row_ui(ui, scene, &line, &choice, &columns);
            }
        }
    });
    ui.spacing_mut().item_spacing.y = 4.0;
}

fn keeps_ui(ui: &mut Ui, scene: &mut Scene<'_>, counts: [usize; 5]) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        ui.label(RichText::new("Show").color(scene.theme.weak));
        for (keep, count) in PlanFilter::ALL.into_iter().zip(counts) {
            let shown = scene.view.plan.keep == keep;
            let text = RichText::new(format!("{} {}", keep.text(), number::count(count as u64))).small();
            let response = ui.add(Button::selectable(shown, text));
            let label = format!("Show choices: {}", keep.text().to_lowercase());
            response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, shown, &label));
            if response.on_hover_text(keep.about()).clicked() {
                (scene.view.plan.keep, scene.view.plan.group_by) = (keep, None);
            }
        }
        groups::by_ui(ui, scene);
    });
}

fn header_ui(ui: &mut Ui, scene: &mut Scene<'_>, columns: &ChoiceColumns) {
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 18.0), Sense::hover());
    ui.painter().hline(rect.x_range(), rect.bottom(), egui::Stroke::new(1.0, scene.theme.line));
    let titles = [
        (PlanColumn::Site, "site", columns.site, columns.gemm - 4.0, false),
        (PlanColumn::Kernel, "kernel", columns.kernel, columns.saved - 60.0, false),
        (PlanColumn::Saved, "saved µs", columns.saved - 56.0, columns.saved, true),
        (PlanColumn::Margin, "error, margin", columns.share + 8.0, columns.error, true),
    ];
    let shown = if columns.detailed { titles.len() } else { titles.len() - 1 };
    let versus = columns.versus.map(|edge| (PlanColumn::Versus, "vs baseline µs", edge - VERSUS + 4.0, edge, true));
    for (column, text, from, to, right) in titles.into_iter().take(shown).chain(versus) {
        let place = Rect::from_min_max(pos2(rect.left() + from, rect.top()), pos2(rect.left() + to, rect.bottom()));
        let response = ui.interact(place, ui.scope_id().with(("sort plan", column)), Sense::click());
        let label = format!("Sort the plan by {text}");
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &label));
        let sorted = scene.view.plan.sort == column;
        let arrow = if !sorted {
            ""
        } else if scene.view.plan.reversed {
            " ↑"
        } else {
            " ↓"
        };
        let color =
            if sorted || response.hovered() || response.has_focus() { scene.theme.text } else { scene.theme.weak };
        let (at, align) = if right {
            (place.right_center(), Align2::RIGHT_CENTER)
        } else {
            (place.left_center(), Align2::LEFT_CENTER)
        };
        ui.painter().text(at, align, format!("{text}{arrow}"), FontId::proportional(11.0), color);
        let about = with_terms("", titles_terms(column));
        if explained(response, &format!("{about}\nClick to sort; again to turn the order round")).clicked() {
            scene.view.plan.sort_by(column);
        }
    }
    let still = columns.detailed.then_some(("share", columns.share, Align2::RIGHT_CENTER, Term::SavedShare));
    let reason = columns.reason.map(|left| ("reason", left, Align2::LEFT_CENTER, Term::Reason));
    for (text, x, align, term) in still.into_iter().chain(reason) {
        let at = pos2(rect.left() + x, rect.center().y);
        let drawn = ui.painter().text(at, align, text, FontId::proportional(11.0), scene.theme.weak);
        term_at(ui, drawn, ui.scope_id().with(("head", text)), text, term);
    }
}

/// Where an error stands, its margin stands, too.
fn titles_terms(column: PlanColumn) -> impl Iterator<Item = Term> {
    let error = (column == PlanColumn::Margin).then_some(Term::Error);
    error.into_iter().chain([column.term()])
}

fn row_ui(ui: &mut Ui, scene: &mut Scene<'_>, line: &PlanLine, choice: &Choice, columns: &ChoiceColumns) {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let Some(id) = scene.session.index().ids().get(line.at).cloned() else { return };
    let column = Column { gemm: line.gemm, kernel: choice.kernel.clone() };
    let selected = scene.view.site.as_ref() == Some(&id) && scene.view.column.as_ref() == Some(&column);
    let saved = line
        .saved_us
        .map_or_else(|| "saves an unknown time".to_owned(), |us| format!("saves {} µs", number::micros(us)));
    let codes = code_words(line.flags).map_or_else(String::new, |words| format!(", {words}"));
    let versus = versus_words(scene, line).map_or_else(String::new, |words| format!("; {words}"));
    let label = format!("{id} {}: {}{codes}, {saved}{versus}", line.gemm, choice.kernel);
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, selected, &label));
    if selected || response.hovered() || response.has_focus() {
        let strength = if selected { 0.22 } else { 0.08 };
        ui.painter().rect_filled(rect, 3.0, scene.theme.accent.gamma_multiply(strength));
    }
    let name = scene.derived.short_name(&id, ((columns.gemm - columns.site - 6.0) / 6.4).max(6.0) as usize);
    paint_row(ui.painter(), scene, rect, &name, line, choice, columns);
    if response.clicked() {
        scene.view.select(id, Some(column));
    }
    response.on_hover_ui(|ui| {
        ui.label(format!("{label}\n{}{}", choice.reason, flag_words(line.flags)));
        if let Some(error) = line.error {
            let mark = if line.flags.has(Flags::OUT_OF_RANGE) { ", outside its range: it means nothing" } else { "" };
            ui.label(format!("{} {}{mark}", line.bound.metric.label(), number::sentence(error)));
        }
        if line.flags.has(Flags::LOW) {
            ui.label(Term::of_verdict(line.verdict).text());
        }
    });
}

/// Against the baseline: `37.5 µs more than the baseline by cublaslt/bf16`.
fn versus_words(scene: &Scene<'_>, line: &PlanLine) -> Option<String> {
    let versus = scene.derived.versus()?;
    let Some(then) = versus.line(line.at, line.gemm) else { return Some(NOT_IN_BASELINE.to_owned()) };
    let words = match then.delta_us {
        None => "no time is known in both".to_owned(),
        Some(us) if us.abs() < SAME_US => "as much as the baseline".to_owned(),
        Some(us) => {
            let word = if us > 0.0 { "more" } else { "less" };
            format!("{} µs {word} than the baseline", number::micros(us.abs()))
        }
    };
    Some(format!("{words}, by {}", then.kernel))
}

/// In the column: with its sign, and a word where there is no number, which is told with it.
fn versus_text(scene: &Scene<'_>, line: &PlanLine) -> (String, Color32, bool) {
    let then = scene.derived.versus().and_then(|versus| versus.line(line.at, line.gemm));
    match then.map(|then| then.delta_us) {
        None => (NOT_IN_BASELINE.replace("the ", ""), scene.theme.weak, false),
        Some(None) => ("unknown".to_owned(), scene.theme.weak, false),
        Some(Some(us)) if us.abs() < SAME_US => ("0".to_owned(), scene.theme.weak, true),
        Some(Some(us)) => {
            let sign = if us > 0.0 { '+' } else { '−' };
            (format!("{sign}{}", number::micros(us.abs())), scene.theme.text, true)
        }
    }
}

/// What of the forward GEMM is codes instead of BF16.
fn code_words(flags: Flags) -> Option<&'static str> {
    match (flags.has(Flags::READS_CODES), flags.has(Flags::STORES_CODES)) {
        (true, true) => Some("codes in and out"),
        (true, false) => Some("codes in"),
        (false, true) => Some("codes out"),
        (false, false) => None,
    }
}

fn flag_words(flags: Flags) -> &'static str {
    match (flags.has(Flags::OVERRIDE), flags.has(Flags::CHANGED)) {
        (true, _) => "\nSet by hand",
        (false, true) => "\nAnother kernel than in what the plan is compared with",
        _ => "",
    }
}

fn paint_row(
    painter: &Painter,
    scene: &Scene<'_>,
    rect: Rect,
    name: &str,
    line: &PlanLine,
    choice: &Choice,
    columns: &ChoiceColumns,
) {
    let theme = &scene.theme;
    let y = rect.center().y;
    let text = |x: f32, align: Align2, text: &str, font: FontId, color: Color32| {
        painter.text(pos2(rect.left() + x, y), align, text, font, color)
    };
    let (body, small, digits) = (FontId::proportional(12.0), FontId::proportional(11.0), FontId::monospace(12.0));
    let low = line.flags.has(Flags::LOW);
    if low {
        let glyph = Glyph { radius: 4.0, ..Glyph::new(line.verdict) };
        paint_glyph(painter, pos2(rect.left() + 8.0, y), glyph, theme.verdict(line.verdict));
    }
    text(columns.site, Align2::LEFT_CENTER, name, body.clone(), theme.text);
    text(columns.gemm, Align2::LEFT_CENTER, line.gemm.as_str(), small.clone(), theme.weak);
    let room = ((columns.saved - columns.kernel - 58.0) / 6.2).max(8.0) as usize;
    let by_hand = line.flags.has(Flags::OVERRIDE);
    let codes = code_words(line.flags).map_or_else(String::new, |words| format!(" · {words}"));
    let room = room.saturating_sub(codes.chars().count()).max(8);
    let set = if by_hand { " · set" } else { "" };
    let kernel = format!("{}{codes}{set}", shorten(choice.kernel.as_str(), room));
    let ink = if by_hand {
        theme.accent
    } else if low {
        theme.text
    } else {
        theme.weak
    };
    text(columns.kernel, Align2::LEFT_CENTER, &kernel, body, ink);
    let saved = line.saved_us.map_or_else(|| "–".to_owned(), number::micros);
    text(columns.saved, Align2::RIGHT_CENTER, &saved, digits.clone(), if low { theme.text } else { theme.weak });
    if let Some(edge) = columns.versus {
        let (words, color, is_number) = versus_text(scene, line);
        let font = if is_number { digits.clone() } else { small.clone() };
        text(edge, Align2::RIGHT_CENTER, &words, font, color);
    }
    let share = line.share.filter(|share| *share != 0.0).map_or_else(String::new, number::percent);
    if !columns.detailed {
        return;
    }
    text(columns.share, Align2::RIGHT_CENTER, &share, small.clone(), theme.weak);
    if line.flags.has(Flags::OUT_OF_RANGE) {
        text(columns.error, Align2::RIGHT_CENTER, "out of range !", small.clone(), theme.warning);
    } else if let (Some(error), true) = (line.error, low) {
        let value = number::with_interval(error).0;
        text(columns.error - 52.0, Align2::RIGHT_CENTER, &value, digits, theme.text);
        let margin = line.margin.map_or_else(String::new, number::percent);
        let beyond = line.margin.is_some_and(|margin| margin < 0.0);
        let (margin, color) = if beyond { (format!("{margin} !"), theme.warning) } else { (margin, theme.weak) };
        text(columns.error, Align2::RIGHT_CENTER, &margin, small.clone(), color);
    }
    if let Some(left) = columns.reason {
        let room = ((rect.width() - left) / 5.6).max(8.0) as usize;
        let words: String = if choice.reason.chars().count() > room {
            choice.reason.chars().take(room - 1).chain(['…']).collect()
        } else {
            choice.reason.clone()
        };
        text(left, Align2::LEFT_CENTER, &words, small, theme.weak);
    }
}
