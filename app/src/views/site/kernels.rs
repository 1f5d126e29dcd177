//! Every kernel of one GEMM: error with interval, draws, latency with its source and its two parts,
//! speed-up, verdict. One line a kernel, or two where there is little room.

use egui::{Align2, Button, Color32, FontId, Painter, Rect, RichText, Sense, Ui, pos2, vec2};
use loka_core::{
    model::{LatencySource, Metric, Site},
    review::Role,
    views::{Cell, Column, GemmView, KernelColumn, KernelLine, KernelStanding, SiteView},
};

use super::micros;
use crate::{
    theme::{
        Glyph, Term, explained, number, paint_glyph, paint_source, shorten, source_word, verdict_word, with_terms,
    },
    views::Scene,
};

const LINE: f32 = 20.0;
/// Below this width numbers stand under the name.
const ROOMY: f32 = 440.0;
/// Room for a quotient, or that there is none.
const VERSUS: f32 = 86.0;

/// Right edges of the columns, from the right end.
struct KernelColumns {
    tall: bool,
    speedup: f32,
    /// Its right edge and width.
    bar: Option<(f32, f32)>,
    mark: f32,
    latency: f32,
    draws: f32,
    half: f32,
    error: f32,
    /// Its error over the baseline's; `None`: there is none.
    versus: Option<f32>,
}

impl KernelColumns {
    fn of(width: f32, versus: bool) -> Self {
        let beside = if versus { VERSUS } else { 0.0 };
        let tall = width < ROOMY + beside;
        let room = if tall { width - 318.0 - beside } else { width - ROOMY - 40.0 - beside };
        let bar = (room > 24.0).then_some((84.0, room.min(if tall { 100.0 } else { 70.0 })));
        let mark = 82.0 + bar.map_or(0.0, |(_, width)| width + 6.0);
        let latency = mark + 12.0;
        let draws = latency + 46.0;
        let half = draws + 38.0;
        let error = half + 42.0;
        let versus = versus.then_some(error + 58.0);
        Self { tall, speedup: 42.0, bar, mark, latency, draws, half, error, versus }
    }

    /// Where numbers begin to take the name's room.
    fn first(&self) -> f32 {
        self.versus.unwrap_or(self.error)
    }

    fn height(&self) -> f32 {
        if self.tall { 2.0 * LINE - 4.0 } else { LINE }
    }
}

pub fn kernels_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, view: &SiteView, seen: &GemmView) {
    if seen.kernels.is_empty() {
        if view.problem.is_none() {
            ui.label(RichText::new("Not probed yet").color(scene.theme.weak));
        }
        return;
    }
    let columns = KernelColumns::of(ui.available_width(), scene.derived.versus().is_some());
    header_ui(ui, scene, &columns);
    ui.spacing_mut().item_spacing.y = 0.0;
    let longest = seen.kernels.iter().filter_map(|line| line.latency_us).fold(0.0, f64::max);
    for at in seen.sorted(scene.view.site_view.sort, scene.view.site_view.reversed) {
        row_ui(ui, scene, site, seen, &seen.kernels[at], (&columns, longest));
    }
    ui.spacing_mut().item_spacing.y = 4.0;
}

fn header_ui(ui: &mut Ui, scene: &mut Scene<'_>, columns: &KernelColumns) {
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 18.0), Sense::hover());
    ui.painter().hline(rect.x_range(), rect.bottom(), egui::Stroke::new(1.0, scene.theme.line));
    // With the name above it there is no room for the whole of it.
    let metric = if columns.tall { short(scene.view.metric) } else { scene.view.metric.label() };
    let titles = [
        (KernelColumn::Error, shorten(metric, 12), columns.error, 64.0),
        (KernelColumn::Draws, "draws".to_owned(), columns.draws, 34.0),
        (KernelColumn::Latency, "µs".to_owned(), columns.latency, 30.0),
        (KernelColumn::Speedup, "× BF16".to_owned(), columns.speedup, 38.0),
    ];
    let end = rect.right() - columns.first() - 62.0;
    if let Some(edge) = columns.versus {
        let at = pos2(rect.right() - edge, rect.center().y);
        let text = "vs baseline";
        ui.painter().text(at, Align2::RIGHT_CENTER, text, FontId::proportional(11.0), scene.theme.weak);
    }
    let name =
        Rect::from_min_max(pos2(rect.left() + 18.0, rect.top()), pos2(end.max(rect.left() + 60.0), rect.bottom()));
    title_ui(ui, scene, name, (KernelColumn::Kernel, "kernel"), Align2::LEFT_CENTER);
    for (column, text, edge, width) in titles {
        let right = rect.right() - edge;
        let place = Rect::from_min_max(pos2(right - width, rect.top()), pos2(right, rect.bottom()));
        title_ui(ui, scene, place, (column, &text), Align2::RIGHT_CENTER);
    }
}

fn short(metric: Metric) -> &'static str {
    match metric {
        Metric::RelL2 => "rel L2",
        Metric::MedianRel => "median",
        Metric::MaxAbs => "max",
        Metric::BlockRelL2 => "block",
        Metric::LossCost => "loss",
        Metric::NoiseShare => "noise",
        Metric::SqnrDb => "dB",
        Metric::Mere | Metric::Bias => metric.label(),
    }
}

fn title_ui(ui: &mut Ui, scene: &mut Scene<'_>, place: Rect, (column, text): (KernelColumn, &str), align: Align2) {
    let response = ui.interact(place, ui.scope_id().with(("sort kernels", column)), Sense::click());
    let label = format!("Sort kernels by {text}");
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &label));
    let state = &scene.view.site_view;
    let sorted = state.sort == column;
    let arrow = match (sorted && column != KernelColumn::Kernel, state.reversed) {
        (false, _) => "",
        (true, false) => " ↑",
        (true, true) => " ↓",
    };
    let color = if response.hovered() || response.has_focus() || !arrow.is_empty() {
        scene.theme.text
    } else {
        scene.theme.weak
    };
    let at = if align == Align2::LEFT_CENTER { place.left_center() } else { place.right_center() };
    ui.painter().text(at, align, format!("{text}{arrow}"), FontId::proportional(11.0), color);
    let about = format!("{}\nClick to sort by it", column.term(scene.view.metric).text());
    if explained(response, &about).clicked() {
        scene.view.site_view.sort_by(column);
    }
}

fn row_ui(
    ui: &mut Ui,
    scene: &mut Scene<'_>,
    site: &Site,
    seen: &GemmView,
    line: &KernelLine,
    (columns, longest): (&KernelColumns, f64),
) {
    let able = line.unsupported.is_none();
    let height = if able { columns.height() } else { LINE };
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::click());
    let column = Column { gemm: seen.gemm, kernel: line.kernel.clone() };
    let selected = scene.view.column.as_ref() == Some(&column);
    let label = spoken(scene, line) + &versus_words(scene, site, &column);
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, selected, &label));
    ground_ui(ui, scene, rect, selected, response.hovered() || response.has_focus(), line);
    let first = if columns.tall && able { rect.top() + LINE / 2.0 } else { rect.center().y };
    name_ui(ui.painter(), scene, rect, first, line, columns);
    match &line.unsupported {
        Some(reason) => {
            let used = line.kernel.as_str().chars().count() as f32 * 6.2 + 30.0;
            let room = ((rect.width() - used) / 5.6).max(8.0) as usize;
            let at = pos2(rect.right() - 6.0, first);
            let font = FontId::proportional(11.0);
            ui.painter().text(at, Align2::RIGHT_CENTER, shorten(reason, room), font, scene.theme.weak);
        }
        None => {
            let second = if columns.tall { rect.bottom() - LINE / 2.0 + 1.0 } else { first };
            numbers_ui(ui.painter(), scene, rect, second, line, (columns, longest));
            versus_ui(
                ui.painter(),
                scene,
                (rect, second),
                columns,
                &scene.derived.cell(&site.id, &column, scene.view.metric, false),
            );
            if !line.is_taken() {
                use_ui(ui, scene, pos2(rect.right() - 18.0, first), site, &column);
            }
        }
    }
    if response.clicked() {
        scene.view.select(site.id.clone(), Some(column));
    }
    let terms = Term::of_kernel(line.kernel.as_str());
    explained(response, &with_terms(&label, terms));
}

fn ground_ui(ui: &Ui, scene: &Scene<'_>, rect: Rect, selected: bool, pointed: bool, line: &KernelLine) {
    let accent = scene.theme.accent;
    if selected || pointed {
        ui.painter().rect_filled(rect, 3.0, accent.gamma_multiply(if selected { 0.22 } else { 0.08 }));
    }
    if line.is_taken() {
        let bar = Rect::from_min_size(rect.min + vec2(0.0, 3.0), vec2(3.0, rect.height() - 6.0));
        ui.painter().rect_filled(bar, 1.0, accent);
    }
}

fn name_ui(painter: &Painter, scene: &Scene<'_>, rect: Rect, y: f32, line: &KernelLine, columns: &KernelColumns) {
    let theme = &scene.theme;
    let able = line.unsupported.is_none();
    if line.is_low || !able {
        let glyph = Glyph { radius: 4.0, ..Glyph::new(line.quadrant) };
        paint_glyph(painter, pos2(rect.left() + 10.0, y), glyph, theme.verdict(line.quadrant));
    }
    let mark = standing_word(line.standing);
    let room = if columns.tall || !able { rect.width() - 60.0 } else { rect.width() - columns.first() - 70.0 };
    let room = room - if mark.is_empty() { 0.0 } else { 6.0 * mark.len() as f32 };
    let name = shorten(line.kernel.as_str(), (room / 6.2).max(12.0) as usize);
    let color = match (line.is_taken(), able) {
        (true, _) => theme.accent,
        (false, true) => theme.text,
        (false, false) => theme.weak,
    };
    let at = pos2(rect.left() + 18.0, y);
    let drawn = painter.text(at, Align2::LEFT_CENTER, name, FontId::proportional(12.0), color);
    let at = pos2(drawn.right() + 6.0, y);
    painter.text(at, Align2::LEFT_CENTER, mark, FontId::proportional(10.0), theme.weak);
}

fn standing_word(standing: KernelStanding) -> &'static str {
    match standing {
        KernelStanding::Chosen => "chosen",
        KernelStanding::Overridden => "set",
        KernelStanding::RunnerUp(1) => "2nd",
        KernelStanding::RunnerUp(2) => "3rd",
        KernelStanding::RunnerUp(_) => "4th",
        KernelStanding::Other => "",
    }
}

fn numbers_ui(
    painter: &Painter,
    scene: &Scene<'_>,
    rect: Rect,
    y: f32,
    line: &KernelLine,
    (columns, longest): (&KernelColumns, f64),
) {
    let theme = &scene.theme;
    let right = |edge: f32, text: &str, color: Color32| {
        painter.text(pos2(rect.right() - edge, y), Align2::RIGHT_CENTER, text, FontId::monospace(12.0), color);
    };
    match line.error {
        Some(estimate) => {
            let (value, half) = number::with_interval(estimate);
            right(columns.error, &value, theme.text);
            right(columns.half, &half.map_or_else(String::new, |half| format!("±{half}")), theme.weak);
        }
        None if line.is_out_of_range => {
            let at = pos2(rect.right() - columns.half, y);
            painter.text(at, Align2::RIGHT_CENTER, "out of range", FontId::proportional(11.0), theme.weak);
        }
        None => right(columns.error, "–", theme.weak),
    }
    right(columns.draws, &line.draws.map_or_else(|| "–".to_owned(), number::count), theme.weak);
    right(columns.latency, &line.latency_us.map_or_else(|| "–".to_owned(), number::micros), theme.text);
    if line.source != LatencySource::None {
        paint_source(painter, pos2(rect.right() - columns.mark + 4.0, y), line.source, theme.weak);
    }
    if let (Some((edge, width)), Some(parts)) = (columns.bar, line.parts) {
        let left = rect.right() - edge - width + 8.0;
        let scale = if longest > 0.0 { (width - 8.0) / longest as f32 } else { 0.0 };
        let (gemm, casts) = (parts.gemm_us as f32 * scale, parts.casts_us as f32 * scale);
        let part = |from: f32, to: f32| Rect::from_min_max(pos2(left + from, y - 4.0), pos2(left + to, y + 4.0));
        painter.rect_filled(part(0.0, gemm), 0.0, theme.accent.gamma_multiply(0.85));
        // Casts are outlined, so that the two parts are not told by colour alone.
        let stroke = egui::Stroke::new(1.0, theme.weak);
        painter.rect_stroke(part(gemm, gemm + casts), 0.0, stroke, egui::StrokeKind::Inside);
    }
    right(columns.speedup, &line.speedup.map_or_else(|| "–".to_owned(), |speedup| format!("{speedup:.2}")), theme.text);
}

/// The error over the baseline's.
fn versus_ui(painter: &Painter, scene: &Scene<'_>, (rect, y): (Rect, f32), columns: &KernelColumns, cell: &Cell) {
    let Some(edge) = columns.versus else { return };
    let (text, font, color) = match cell {
        Cell::Value { estimate, .. } => {
            (format!("{}×", number::with_interval(*estimate).0), FontId::monospace(12.0), scene.theme.text)
        }
        _ => ("not in it".to_owned(), FontId::proportional(11.0), scene.theme.weak),
    };
    painter.text(pos2(rect.right() - edge, y), Align2::RIGHT_CENTER, text, font, color);
}

fn versus_words(scene: &Scene<'_>, site: &Site, column: &Column) -> String {
    if scene.derived.versus().is_none() {
        return String::new();
    }
    match scene.derived.cell(&site.id, column, scene.view.metric, false) {
        Cell::Value { estimate, .. } => format!("\n{} × the baseline's error", number::sentence(estimate)),
        Cell::Missing { reason } => format!("\nAgainst the baseline: {reason}"),
        Cell::Waiting => String::new(),
    }
}

fn use_ui(ui: &mut Ui, scene: &mut Scene<'_>, center: egui::Pos2, site: &Site, column: &Column) {
    let place = Rect::from_center_size(center, vec2(34.0, LINE - 3.0));
    let button = Button::new(RichText::new("Use").small()).frame_when_inactive(false).min_size(vec2(0.0, LINE - 3.0));
    // A child of its own: putting it into the list would push the next row down.
    let layout = egui::Layout::centered_and_justified(egui::Direction::LeftToRight);
    let mut child = ui.new_child(egui::UiBuilder::new().max_rect(place).layout(layout).id_salt(column.kernel.as_str()));
    let refused = scene.not_allowed(Role::Owner);
    let response = child.add_enabled(refused.is_none(), button).on_disabled_hover_text(refused.unwrap_or_default());
    let label = format!("Use {} for {}", column.kernel, column.gemm);
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &label));
    if response.on_hover_text("Choose this kernel by hand").clicked() {
        scene.view.select(site.id.clone(), Some(column.clone()));
        scene.view.overriding = Some(column.clone());
        scene.view.focus_reason = true;
    }
}

/// The row in words, for the tooltip and for screen readers.
fn spoken(scene: &Scene<'_>, line: &KernelLine) -> String {
    let (kernel, about) = (&line.kernel, line.about);
    if let Some(reason) = &line.unsupported {
        return format!("{kernel}: {about}\nunsupported, {reason}");
    }
    let metric = scene.view.metric.label();
    let unknown = if line.is_out_of_range { "outside its range, where it means nothing" } else { "not known" };
    let error = line.error.map_or_else(|| unknown.to_owned(), number::sentence);
    let source = source_word(line.source);
    let speed =
        line.speedup.map_or_else(|| "speed-up unknown".to_owned(), |of| format!("{}, {source}", number::times(of)));
    let standing = match line.standing {
        KernelStanding::Chosen => ", chosen".to_owned(),
        KernelStanding::Overridden => ", set by hand".to_owned(),
        KernelStanding::RunnerUp(at) => format!(", runner-up {at}"),
        KernelStanding::Other => String::new(),
    };
    let mut text = format!("{kernel}: {about}\n{metric} {error}, {speed}\n{}{standing}", verdict_word(line.quadrant));
    if let (Some(all), Some((lo, hi))) = (line.latency_us, line.latency_range_us) {
        text += &format!("\n{} ({} to {})", micros(all), number::micros(lo), number::micros(hi));
    }
    if let Some(parts) = line.parts {
        let share = number::percent(parts.casts_us / (parts.casts_us + parts.gemm_us).max(f64::MIN_POSITIVE));
        text += &format!("\nGEMM {}, casts {} ({share})", micros(parts.gemm_us), micros(parts.casts_us));
    }
    text + &format!("\nLatency {}", line.note)
}
