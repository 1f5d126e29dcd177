//! Laid-out text as text: every character stands where egui put it, whatever face the reader has, and can be
//! selected.

use egui::{
    Color32, FontFamily, FontId, Pos2,
    epaint::{
        TextShape,
        text::{Glyph, LayoutJob, PlacedRow},
    },
};

use super::{
    marks::turned,
    write::{Writer, color, escaped, number},
};

/// Characters that are drawn alike, one after the other.
struct TextRun {
    text: String,
    xs: Vec<String>,
    y: String,
    font: FontId,
    color: Color32,
}

pub(super) fn text(writer: &mut Writer, shape: &TextShape) {
    let turn = turned(shape.angle, shape.pos);
    let mut byte = 0;
    for row in &shape.galley.rows {
        for run in runs(shape, row, &mut byte) {
            put(writer, &run, &turn);
        }
        byte += usize::from(row.ends_with_newline);
    }
}

fn put(writer: &mut Writer, run: &TextRun, turn: &str) {
    if run.color.a() == 0 || run.text.trim().is_empty() {
        return;
    }
    let family = match &run.font.family {
        FontFamily::Monospace => "Hack, ui-monospace, monospace",
        FontFamily::Proportional | FontFamily::Name(_) => "Ubuntu, 'Segoe UI', Helvetica, sans-serif",
    };
    let size = number(run.font.size);
    let place = format!("x=\"{}\" y=\"{}\"", run.xs.join(" "), run.y);
    let face = format!("font-family=\"{family}\" font-size=\"{size}\"");
    let paint = color("fill", run.color);
    let text = escaped(&run.text);
    writer.put(&format!("<text {place} {face}{paint}{turn} xml:space=\"preserve\">{text}</text>"));
}

/// `byte`: where the row begins in the text of the layout, moved to its end.
fn runs(shape: &TextShape, row: &PlacedRow, byte: &mut usize) -> Vec<TextRun> {
    let mut runs: Vec<TextRun> = Vec::new();
    let mut whole = false;
    for glyph in &row.glyphs {
        let font = font_at(&shape.galley.job, *byte);
        *byte += glyph.chr.len_utf8();
        let at: Pos2 = shape.pos + row.pos.to_vec2() + glyph.pos.to_vec2();
        let (x, y) = (number(at.x), number(at.y));
        let color = color_of(shape, row, glyph);
        // Spaces have no colour of their own, and end no run.
        let fits = |run: &TextRun| {
            run.font == font && run.y == y && (run.color == color || glyph.chr.is_whitespace()) && !whole
        };
        if !runs.last().is_some_and(fits) {
            runs.push(TextRun { text: String::new(), xs: Vec::new(), y, font, color });
        }
        // A character of two UTF-16 units takes two places in the list of some readers: nothing follows it.
        whole = glyph.chr.len_utf16() > 1;
        if let Some(run) = runs.last_mut() {
            run.text.push(glyph.chr);
            run.xs.push(x);
        }
    }
    runs
}

/// An ellipsis at the end of a shortened text is not in it: it has the last font.
fn font_at(job: &LayoutJob, byte: usize) -> FontId {
    let of = job.sections.iter().find(|section| section.byte_range.end.0 > byte).or(job.sections.last());
    of.map(|section| section.format.font_id.clone()).unwrap_or_default()
}

fn color_of(shape: &TextShape, row: &PlacedRow, glyph: &Glyph) -> Color32 {
    let drawn = row.visuals.mesh.vertices.get(glyph.first_vertex as usize).map(|vertex| vertex.color);
    let own = drawn.filter(|color| *color != Color32::PLACEHOLDER).unwrap_or(shape.fallback_color);
    shape.override_text_color.unwrap_or(own).gamma_multiply(shape.opacity_factor)
}
