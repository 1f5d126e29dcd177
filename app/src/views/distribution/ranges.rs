//! Takes the forms of an operand; draws for each the magnitudes that it represents, under the histogram's axis,
//! and beside them the shares of values that it loses.

use egui::{Align2, FontId, Painter, Rect, Role, Sense, Shape, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2};
use loka_core::views::distribution::{ScaledRange, Scales, Shares};

use super::{
    ShownOperand,
    axis::{Axis, TABLE, has_table},
};
use crate::{
    theme::{Term, number, term_at},
    views::Scene,
};

const LINE: f32 = 20.0;

pub(super) fn ranges_ui(
    ui: &mut Ui,
    scene: &Scene<'_>,
    axis: Axis,
    main: ShownOperand<'_>,
    beside: Option<ShownOperand<'_>>,
    all: bool,
) {
    heading_ui(ui, scene);
    let ranges = &main.operand.ranges;
    // A site that no kernel can run would have no bars at all: then the references stand.
    let any_used = ranges.iter().any(|range| !range.is_reference());
    let wanted = |range: &&ScaledRange| all || !any_used || !range.is_reference();
    let before = ui.spacing().item_spacing.y;
    ui.spacing_mut().item_spacing.y = 0.0;
    for range in ranges.iter().filter(wanted) {
        row_ui(ui, scene, axis, RangeLine { range, shown: main, dashed: false, named: true });
        let other = beside.and_then(|shown| {
            let range = shown.operand.ranges.iter().find(|of| of.cast == range.cast)?;
            Some(RangeLine { range, shown, dashed: true, named: false })
        });
        if let Some(line) = other {
            row_ui(ui, scene, axis, line);
        }
    }
    ui.spacing_mut().item_spacing.y = before;
    legend_ui(ui, scene, main);
}

/// One bar with its numbers.
#[derive(Clone, Copy)]
struct RangeLine<'a> {
    range: &'a ScaledRange,
    shown: ShownOperand<'a>,
    dashed: bool,
    named: bool,
}

fn heading_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let (row, _) = ui.allocate_exact_size(vec2(ui.available_width(), 16.0), Sense::hover());
    let (painter, weak, font) = (ui.painter(), scene.theme.weak, FontId::proportional(11.0));
    let head = |at, align, text: &str, term| {
        let drawn = painter.text(at, align, text, font.clone(), weak);
        term_at(ui, drawn, ui.scope_id().with(("head", text)), text, term);
    };
    head(row.left_center(), Align2::LEFT_CENTER, "Format · one scale a", Term::Fp8);
    if has_table(row.width()) {
        let heads = [("to zero", Term::Flushed), ("subnormal", Term::Subnormal), ("saturated", Term::Saturation)];
        for (x, (text, term)) in columns(row).into_iter().zip(heads) {
            head(pos2(x, row.center().y), Align2::RIGHT_CENTER, text, term);
        }
    }
    painter.hline(row.x_range(), row.bottom(), Stroke::new(1.0, scene.theme.line));
}

/// Right edges of the table's columns.
fn columns(row: Rect) -> [f32; 3] {
    [0.36, 0.68, 1.0].map(|share| row.right() - TABLE + TABLE * share)
}

fn row_ui(ui: &mut Ui, scene: &Scene<'_>, axis: Axis, line: RangeLine<'_>) {
    let size = vec2(ui.available_width(), LINE);
    let (row, response) = ui.allocate_exact_size(size, Sense::focusable_noninteractive());
    if !ui.is_rect_visible(row) {
        return;
    }
    let (painter, theme) = (ui.painter(), &scene.theme);
    if response.hovered() || response.has_focus() {
        painter.rect_filled(row, 2.0, theme.accent.gamma_multiply(0.10));
    }
    let ink = if line.range.is_reference() || line.dashed { theme.weak } else { theme.text };
    let font = FontId::proportional(12.0);
    let name =
        if line.named { line.range.label() } else { format!("   {}", scene.derived.short_name(line.shown.site, 15)) };
    painter.text(row.left_center(), Align2::LEFT_CENTER, name, font, ink);
    match &line.range.scales {
        Ok(scales) => bar(painter, scene, axis, Axis::part(row), scales, line.dashed),
        Err(reason) => {
            let at = Axis::part(row).left_center();
            painter.text(at, Align2::LEFT_CENTER, reason, FontId::proportional(11.0), theme.weak);
        }
    }
    if has_table(row.width()) {
        shares(painter, scene, row, &line.range.shares);
    }
    let text = told(line);
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, text.replace('\n', ", ")));
    response.on_hover_text(text);
}

/// The median group's range: full precision solid, subnormal hatched; thin lines reach to the groups with the
/// smallest and the largest scale.
fn bar(painter: &Painter, scene: &Scene<'_>, axis: Axis, part: Rect, scales: &Scales, dashed: bool) {
    let color = if dashed { scene.theme.warning } else { scene.theme.accent };
    let x = |log2: f64| axis.x(part, log2);
    let y = part.center().y;
    let (median, half) = (scales.median, 5.0);
    let stroke = Stroke::new(1.0, color);
    painter.hline(x(scales.smallest.zero_log2)..=x(scales.largest.largest_log2), y, stroke);
    let cap = |log2: f64, reach: f32| {
        if axis.holds(log2) {
            painter.vline(x(log2), y - reach..=y + reach, stroke);
        }
    };
    if scales.num_groups > 1 {
        cap(scales.smallest.largest_log2, 3.0);
        cap(scales.largest.largest_log2, 3.0);
        cap(scales.smallest.zero_log2, 3.0);
    }
    let normal = Rect::from_min_max(pos2(x(median.normal_log2), y - half), pos2(x(median.largest_log2), y + half));
    let subnormal = Rect::from_min_max(pos2(x(median.zero_log2), y - half), pos2(x(median.normal_log2), y + half));
    let ground = scene.theme.canvas;
    painter.rect_filled(subnormal.union(normal), 0.0, ground);
    hatched(painter, subnormal, color);
    if dashed {
        let corners =
            [normal.left_top(), normal.right_top(), normal.right_bottom(), normal.left_bottom(), normal.left_top()];
        painter.extend(Shape::dashed_line(&corners, Stroke::new(1.3, color), 4.0, 2.0));
    } else {
        painter.rect(normal, 0.0, color.gamma_multiply(0.55), stroke, StrokeKind::Inside);
    }
}

fn hatched(painter: &Painter, rect: Rect, color: egui::Color32) {
    if rect.width() < 1.0 {
        return;
    }
    let painter = painter.with_clip_rect(rect.intersect(painter.clip_rect()));
    let mut x = rect.left() - rect.height();
    while x < rect.right() {
        let line = [pos2(x, rect.bottom()), pos2(x + rect.height(), rect.top())];
        painter.line_segment(line, Stroke::new(1.0, color));
        x += 4.0;
    }
    painter.rect_stroke(rect, 0.0, Stroke::new(1.0, color), StrokeKind::Inside);
}

fn shares(painter: &Painter, scene: &Scene<'_>, row: Rect, shares: &Shares) {
    let values = [shares.underflow, shares.subnormal, shares.saturated];
    for (at, (x, share)) in columns(row).into_iter().zip(values).enumerate() {
        // What is lost for good stands out from what loses precision.
        let ink = if share > 0.0 && at != 1 { scene.theme.text } else { scene.theme.weak };
        let at = pos2(x, row.center().y);
        painter.text(at, Align2::RIGHT_CENTER, share_text(share, shares), FontId::monospace(11.0), ink);
    }
}

/// `≈` before what a split bin made approximate; below one value in all there is nothing to tell.
fn share_text(share: f64, of: &Shares) -> String {
    let about = if of.approximate && share > 0.0 { "≈ " } else { "" };
    format!("{about}{}", number::percent(share))
}

fn told(line: RangeLine<'_>) -> String {
    let RangeLine { range, shown, .. } = line;
    let mut text = format!("{} · {} of {}", range.label(), shown.operand.operand.label().to_lowercase(), shown.site);
    match &range.scales {
        Ok(scales) => text.push_str(&told_scales(scales)),
        Err(reason) => text.push_str(&format!("\n{reason}")),
    }
    text.push_str(&told_shares(&range.shares));
    if let Some(all) = &range.of_histogram {
        text.push_str(&told_shares(all));
    }
    if range.uses.is_empty() {
        text.push_str("\nNo kernel of the catalogue does this here: for comparison");
    } else {
        let uses: Vec<String> = range.uses.iter().map(|of| format!("{} ({})", of.kernel, of.gemm)).collect();
        text.push_str(&format!("\nUsed by {}", uses.join(", ")));
    }
    text
}

fn told_scales(scales: &Scales) -> String {
    let reach = |name: &str, of: loka_core::views::distribution::Reach| {
        let power = |log2: f64| format!("2^{log2:.1}");
        let (zero, normal, largest) = (power(of.zero_log2), power(of.normal_log2), power(of.largest_log2));
        format!(
            "\n{name}scale {}: zero up to {zero}, subnormal up to {normal}, largest {largest}",
            number::plain(of.scale)
        )
    };
    if scales.num_groups == 1 {
        return reach("", scales.median);
    }
    let mut text = reach("median ", scales.median);
    text.push_str(&reach("smallest ", scales.smallest));
    text.push_str(&reach("largest ", scales.largest));
    let empty = match scales.num_empty_groups {
        0 => String::new(),
        empty => format!(", and {} of zeros alone", number::count(empty as u64)),
    };
    text.push_str(&format!("\n{} groups {}{empty}", number::count(scales.num_groups as u64), scales.origin.words()));
    text
}

fn told_shares(shares: &Shares) -> String {
    format!(
        "\n{} become zero, {} subnormal, {} saturate: {} values {}",
        share_text(shares.underflow, shares),
        share_text(shares.subnormal, shares),
        share_text(shares.saturated, shares),
        number::count(shares.num_values),
        shares.origin.words()
    )
}

fn legend_ui(ui: &mut Ui, scene: &Scene<'_>, main: ShownOperand<'_>) {
    let Some(shares) = main.operand.ranges.first().map(|range| range.shares) else { return };
    let transposed = match main.operand.operand {
        loka_core::views::distribution::Operand::Weight => "dgrad reads it by input features",
        _ => "wgrad reads it by features over the batch",
    };
    let text = format!(
        "Solid: normal numbers. Hatched: subnormal. Thin line: from the smallest to the largest scale. Shares of {} \
         values {}. A row is an {}; {transposed}: those scales are not shown.",
        number::count(shares.num_values),
        shares.origin.words(),
        main.operand.operand.row(),
    );
    ui.add_space(3.0);
    ui.label(egui::RichText::new(text).small().color(scene.theme.weak));
}
