//! Takes a grid, gives the heatmap as SVG: in blocks of rows that fit on a sheet, one path a class of colour, and the
//! legend with the policy's threshold on it.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::{
    dispatch::ChoiceSource,
    format::{
        NAME, WithInterval, line,
        number::{counted_as, times},
        short, shorten,
    },
    model::{Gemm, LatencySource},
    plan::Plan,
    views::{Mark, Scale, ShownColumn, verdict_word},
};

use super::{
    colour::{STEPS, class},
    entries::{Entry, find},
    grid::{Row, Sheet},
};

const WIDTH: usize = 900;
/// Of the longest name, and the room for each.
const CHARACTERS: usize = 32;
const LETTER: usize = 7;
const GAP: usize = 8;
const HIGH: usize = 15;
const HEAD: usize = 106;
/// Rows of a block: with its head it is not cut between two sheets.
const BLOCK: usize = 45;
/// At most, under the legend's bar.
const TICKS: usize = 7;
/// Cells that are told in words, too, when they are pointed at.
const MOST_TITLES: usize = 2_500;

pub fn heatmap(plan: &Plan, sheet: &Sheet, entries: &[Entry]) -> Markup {
    let Some(scale) = sheet.grid.shown_range().map(|range| Scale::new(sheet.metric, range)) else {
        return html! { p { "No error is known." } };
    };
    let names = names_width(sheet);
    let picture = HeatmapPicture { plan, sheet, entries, scale, names, cell: cell_width(names, sheet.columns.len()) };
    html! {
        (legend(sheet, scale))
        @for (at, rows) in sheet.rows.chunks(BLOCK).enumerate() {
            figure class="heat" { (picture.block(at * BLOCK, rows)) }
        }
    }
}

/// As wide as the longest name needs.
fn names_width(sheet: &Sheet) -> usize {
    let longest = sheet.rows.iter().map(|row| row.label.chars().count()).max().unwrap_or_default();
    LETTER * longest.min(CHARACTERS)
}

fn cell_width(names: usize, columns: usize) -> usize {
    ((WIDTH - names - 2 * GAP) / columns.max(1)).clamp(4, 34)
}

struct HeatmapPicture<'a> {
    plan: &'a Plan,
    sheet: &'a Sheet,
    entries: &'a [Entry],
    scale: Scale,
    names: usize,
    cell: usize,
}

impl HeatmapPicture<'_> {
    fn left(&self, column: usize) -> usize {
        let gemm = self.sheet.columns.get(column).map_or(Gemm::Wgrad, |of| of.gemm);
        self.names + column * self.cell + gemm as usize * GAP
    }

    /// Where a GEMM's columns begin and end.
    fn span(&self, gemm: Gemm) -> (usize, usize) {
        let first = self.sheet.columns.partition_point(|of| of.gemm < gemm);
        let end = self.sheet.columns.partition_point(|of| of.gemm <= gemm);
        let from = self.names + first * self.cell + gemm as usize * GAP;
        (from, from + (end - first) * self.cell)
    }

    fn block(&self, first: usize, rows: &[Row]) -> Markup {
        let high = HEAD + rows.len() * HIGH + 4;
        let width = self.span(Gemm::Wgrad).1 + 2;
        let label = format!("Errors of {} by GEMM and kernel", counted_as(rows.len(), "row", "rows"));
        html! {
            svg viewBox=(format!("0 0 {} {high}", width.max(WIDTH / 2)))
                style=(format!("max-width:{}px", width.max(WIDTH / 2))) role="img" aria-label=(label) {
                (self.head())
                @for (at, row) in rows.iter().enumerate() {
                    text class="name" x=(self.names.saturating_sub(6)) y=(HEAD + at * HIGH + 11) text-anchor="end" {
                        (shorten(&row.label, CHARACTERS))
                        @if row.label.chars().count() > CHARACTERS { title { (row.label) } }
                    }
                }
                (self.cells(first, rows.len()))
                (self.titles(first, rows.len()))
            }
        }
    }

    fn head(&self) -> Markup {
        html! {
            @for gemm in Gemm::ALL {
                @let (from, to) = self.span(gemm);
                text class="gemm" x=(from) y="12" { (gemm.as_str()) }
                path class="rule" d=(format!("M{from} 17H{}", to.max(from + 1) - 1)) {}
            }
            @for (at, column) in self.sheet.columns.iter().enumerate() {
                @let x = self.left(at) + self.cell / 2 + 3;
                text class=(if self.cell < 13 { "kernel small" } else { "kernel" }) transform=(format!("translate({x} {}) rotate(-90)", HEAD - 4)) {
                    (column.recipe) @if column.is_closed() { title { (self.kernels(column)) } }
                }
            }
        }
    }

    fn cells(&self, first: usize, rows: usize) -> Markup {
        let mut paths = Paths::default();
        // From a plan alone all that is shown was chosen: dots would say nothing.
        let marks_chosen = self.entries.iter().any(|entry| entry.chosen.is_none());
        for row in 0..rows {
            for column in 0..self.sheet.columns.len() {
                let (value, mark, _) = self.sheet.cell(first + row, column);
                let class = class(self.scale.badness_at(self.scale.share(value.into())));
                let chosen = mark.has(Mark::CHOSEN) && (marks_chosen || mark.has(Mark::OVERRIDDEN));
                paths.add(mark, class, chosen, [self.left(column), HEAD + row * HIGH], self.cell - 1);
            }
        }
        html! {
            @for (class, path) in paths.classes.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
                path class=(format!("h{class}")) d=(path) {}
            }
            @for (class, path) in [("missing", &paths.missing), ("hatch", &paths.hatch), ("beyond-0", &paths.beyond),
                ("beyond-1", &paths.beyond),
                ("notch", &paths.notch), ("chosen-0", &paths.chosen), ("chosen-1", &paths.chosen),
                ("hand", &paths.by_hand)] {
                @if !path.is_empty() { path class=(class) d=(path) {} }
            }
        }
    }

    fn titles(&self, first: usize, rows: usize) -> Markup {
        let columns = self.sheet.columns.len();
        if self.sheet.rows.len() * columns > MOST_TITLES || self.sheet.folded() > 1 {
            return html! {};
        }
        html! {
            g class="tips" {
                @for row in 0..rows { @for at in 0..columns {
                    @if let (_, _, Some(site)) = self.sheet.cell(first + row, at) {
                        rect x=(self.left(at)) y=(HEAD + row * HIGH) width=(self.cell) height=(HIGH) {
                            title { (self.title(site, at)) }
                        }
                    }
                } }
            }
        }
    }

    /// All that share a column.
    fn kernels(&self, column: &ShownColumn) -> String {
        let names =
            column.kernels.iter().filter_map(|at| self.sheet.grid.columns.get(*at)).map(|of| of.kernel.as_str());
        format!("{}: they compute the same", names.collect::<Vec<_>>().join(", "))
    }

    fn title(&self, site: u32, column: usize) -> String {
        let column = self.sheet.kernel_at(site, column);
        let entry = column.and_then(|column| find(self.entries, site, column.gemm, &column.kernel));
        let Some(entry) = entry else { return String::new() };
        let site = line(self.plan.sites[entry.site as usize].site.as_str(), NAME);
        let error = entry.shown.map_or_else(
            || "no value".to_owned(),
            |error| format!("{} {}", self.sheet.metric.label(), WithInterval(error)),
        );
        let mut text =
            format!("{site} · {} · {}: {error}, {}", entry.gemm, entry.kernel(), verdict_word(entry.quadrant));
        if let Some(speedup) = entry.speedup {
            let _ = write!(text, ", {}", times(speedup));
            if entry.source != LatencySource::None {
                let _ = write!(text, " {}", entry.source.as_str());
            }
        }
        text.push_str(match entry.chosen {
            Some(ChoiceSource::Override) => ", chosen by hand",
            Some(ChoiceSource::Dispatch) => ", chosen",
            None => "",
        });
        text
    }
}

/// What is drawn alike, in one path each.
struct Paths {
    classes: Vec<String>,
    missing: String,
    hatch: String,
    beyond: String,
    notch: String,
    chosen: String,
    by_hand: String,
}

impl Default for Paths {
    fn default() -> Self {
        let none = String::new;
        let classes = vec![none(); STEPS];
        Self { classes, missing: none(), hatch: none(), beyond: none(), notch: none(), chosen: none(), by_hand: none() }
    }
}

impl Paths {
    fn add(&mut self, mark: Mark, class: usize, chosen: bool, [x, y]: [usize; 2], width: usize) {
        let high = HIGH - 1;
        let (right, middle) = (x + width, [x + width / 2, y + high / 2]);
        // Writing to a String cannot fail.
        if mark.has(Mark::VALUE) {
            let _ = write!(self.classes[class], "M{x} {y}h{width}v{high}h-{width}z");
        } else if mark.has(Mark::MISSING) {
            let _ = write!(self.missing, "M{x} {y}h{width}v{high}h-{width}z");
            let _ = write!(self.hatch, "M{x} {}L{right} {y}M{x} {}L{} {y}", y + high, middle[1], middle[0]);
            let _ = write!(self.hatch, "M{} {}L{right} {}", middle[0], y + high, middle[1]);
        }
        if mark.has(Mark::UNSAFE) {
            let _ = write!(self.beyond, "M{x}.5 {y}.5h{}v{}h-{}z", width - 1, high - 1, width - 1);
        }
        if mark.has(Mark::MODELLED) && width >= 6 {
            let _ = write!(self.notch, "M{right} {y}h-4l4 4z");
        }
        if chosen && mark.has(Mark::OVERRIDDEN) {
            let _ = write!(self.by_hand, "M{} {}l3.5 3.5l-3.5 3.5l-3.5 -3.5z", middle[0], middle[1] as f64 - 3.5);
        } else if chosen {
            let _ = write!(self.chosen, "M{} {}h0", middle[0], middle[1]);
        }
    }
}

fn legend(sheet: &Sheet, scale: Scale) -> Markup {
    const BAR: f64 = 260.0;
    let metric = sheet.metric;
    let ((lo, hi), bound) = (scale.ends(), sheet.grid.bound.filter(|bound| scale.has(*bound)));
    let x = |value: f64| 10.0 + (BAR * scale.share(value) * 10.0).round() / 10.0;
    let step = BAR / STEPS as f64;
    html! {
        div class="legend" {
            span { (metric.label().trim_end_matches(" (dB)")) " (" (metric.unit()) ")" }
            svg class="bar" viewBox="0 0 280 34" width="280" height="34" role="img"
                aria-label=(format!("From {} to {}", short(lo), short(hi))) {
                @for at in 0..STEPS {
                    @let class = class(scale.badness_at((at as f64 + 0.5) / STEPS as f64));
                    rect class=(format!("h{class}")) x=(format!("{:.1}", 10.0 + at as f64 * step)) y="6"
                        width=(format!("{:.1}", step + 0.3)) height="11" {}
                }
                @for tick in scale.ticks(TICKS) {
                    path class="rule" d=(format!("M{} 17v4", x(tick))) {}
                    text class="tick" x=(x(tick)) y="31" text-anchor="middle" { (short(tick)) }
                }
                @if let Some(bound) = bound {
                    path class="bound-0" d=(format!("M{} 2v18", x(bound))) {}
                    path class="bound-1" d=(format!("M{} 2v18", x(bound))) {}
                }
            }
            @if let Some(bound) = bound {
                (key(&html! { path class="bound-1" d="M7 0v14" {} }, &format!("threshold {}", short(bound))))
            }
            (key(&html! { path class="beyond-1" d="M1.5 1.5h11v11h-11z" {} }, if sheet.grid.bound.is_some() { "beyond it for certain" } else { "unsafe for certain" }))
            (key(&html! { path class="chosen-0" d="M7 7h0" {} path class="chosen-1" d="M7 7h0" {} }, "chosen"))
            (key(&html! { path class="hand" d="M7 3.5l3.5 3.5l-3.5 3.5l-3.5 -3.5z" {} }, "chosen by hand"))
            (key(&html! { (void()) path class="notch" d="M13 1h-5l5 5z" {} }, "latency modelled"))
            (key(&html! { (void()) path class="hatch" d="M1 13L13 1M1 7L7 1M7 13L13 7" {} }, "no value"))
        }
    }
}

fn void() -> Markup {
    html! { path class="missing" d="M1 1h12v12h-12z" {} }
}

fn key(shape: &Markup, text: &str) -> Markup {
    html! { span class="key" { svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true" { (shape) } (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::catalogue;
    #[test]
    fn columns_fit_the_page() {
        let names = LETTER * CHARACTERS;
        for columns in 1..=3 * catalogue().len() {
            assert!(names + 2 * GAP + columns * cell_width(names, columns) <= WIDTH, "{columns}");
        }
    }
}
