//! Takes points, gives the quadrant as SVG: error over speed-up, the policy's two lines, shapes by verdict.

use maud::{Markup, html};

use crate::{
    format::{number::count, short},
    model::{LatencySource, Quadrant},
    plan::Plan,
    views::verdict_word as word,
};

use super::{
    glyph::{Outlines, shape},
    points::Points,
};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 8.0;
/// At most, on either axis.
pub const TICKS: usize = 12;
/// Of the field that points stand in.
pub const FIELD: [f64; 2] = [WIDTH - LEFT - 12.0, 380.0];

pub fn quadrant(plan: &Plan, points: &Points) -> Markup {
    let high = TOP + FIELD[1] + 44.0;
    html! {
        (legend(points))
        figure {
            svg viewBox=(format!("0 0 {WIDTH} {high}")) style="max-width:1080px" role="img"
                aria-label=(format!("Error over speed-up of {} kernels at GEMMs", count(points.num_points))) {
                (axes(plan, points))
                (shapes(points))
                (bounds(plan, points))
            }
            figcaption { (caption(points)) }
        }
    }
}

fn x(points: &Points, speedup: f64) -> f64 {
    LEFT + FIELD[0] * points.speed.share(speedup)
}

fn y(points: &Points, error: f64) -> f64 {
    TOP + FIELD[1] * (1.0 - points.error.share(error))
}

fn axes(plan: &Plan, points: &Points) -> Markup {
    let (bottom, right) = (TOP + FIELD[1], LEFT + FIELD[0]);
    let metric = plan.policy.metric;
    let unit = if metric.is_log() { format!("{} (log)", metric.label()) } else { metric.label().to_owned() };
    html! {
        rect class="field" x=(LEFT) y=(TOP) width=(FIELD[0]) height=(FIELD[1]) {}
        @for tick in points.speed.ticks(TICKS) {
            @let at = x(points, tick);
            path class="grid" d=(format!("M{at:.1} {TOP}V{bottom}")) {}
            text class="tick" x=(format!("{at:.1}")) y=(bottom + 15.0) text-anchor="middle" { (short(tick)) }
        }
        @for tick in points.error.ticks(TICKS) {
            @let at = y(points, tick);
            path class="grid" d=(format!("M{LEFT} {at:.1}H{right}")) {}
            text class="tick" x=(LEFT - 6.0) y=(format!("{:.1}", at + 4.0)) text-anchor="end" { (short(tick)) }
        }
        text class="axis" x=(LEFT + FIELD[0] / 2.0) y=(bottom + 34.0) text-anchor="middle" {
            "Speed-up over BF16, casts included (log)"
        }
        text class="axis" transform=(format!("translate(13 {}) rotate(-90)", TOP + FIELD[1] / 2.0)) text-anchor="middle" { (unit) }
    }
}

/// The policy's lines, with their values at their ends, and what each corner is.
fn bounds(plan: &Plan, points: &Points) -> Markup {
    let policy = &plan.policy;
    let (bottom, right) = (TOP + FIELD[1], LEFT + FIELD[0]);
    let (across, up) = (x(points, policy.min_speedup.max(1e-3)), y(points, policy.max_error));
    let upwards = policy.metric.larger_is_better();
    let corners = [
        (Quadrant::SafeSlow, false, upwards),
        (Quadrant::SafeFast, true, upwards),
        (Quadrant::UnsafeSlow, false, !upwards),
        (Quadrant::UnsafeFast, true, !upwards),
    ];
    html! {
        path class="bound-0" d=(format!("M{across:.1} {TOP}V{bottom}M{LEFT} {up:.1}H{right}")) {}
        path class="bound-1" d=(format!("M{across:.1} {TOP}V{bottom}M{LEFT} {up:.1}H{right}")) {}
        text class="corner" x=(format!("{:.1}", LEFT + 6.0)) y=(format!("{:.1}", up - 5.0)) {
            (policy.metric.label()) " " (short(policy.max_error))
        }
        text class="corner" transform=(format!("translate({:.1} {}) rotate(-90)", across - 5.0, TOP + FIELD[1] / 2.0)) text-anchor="middle" {
            (short(policy.min_speedup)) "×"
        }
        @for (quadrant, fast, above) in corners {
            @let wide = if fast { right - across } else { across - LEFT };
            @let tall = if above { up - TOP } else { bottom - up };
            @if wide > 96.0 && tall > 30.0 {
                text class="corner" x=(if fast { right - 8.0 } else { LEFT + 8.0 })
                    y=(if above { TOP + 16.0 } else { bottom - 9.0 })
                    text-anchor=(if fast { "end" } else { "start" }) { (word(quadrant)) }
            }
        }
    }
}

fn shapes(points: &Points) -> Markup {
    let at = |at: i32| f64::from(at) / 10.0;
    let (from, up) = (|x: i32| LEFT + at(x), |y: i32| TOP + FIELD[1] - at(y));
    let whiskers: String = points
        .whiskers
        .iter()
        .map(|[x0, x1, y0, y1, x, y]| {
            format!("M{:.1} {:.1}H{:.1}M{:.1} {:.1}V{:.1}", from(*x0), up(*y), from(*x1), from(*x), up(*y0), up(*y1))
        })
        .collect();
    html! {
        @if !whiskers.is_empty() { path class="whisker" d=(whiskers) {} }
        @for (shape, places) in &points.shapes {
            @let outlines = {
                let mut outlines = Outlines::default();
                let size = if shape.chosen { 6.0 } else { 2.8 } * if points.merged { 0.6 } else { 1.0 };
                places.iter().for_each(|[x, y]| outlines.add(shape.verdict, [from(*x), up(*y)], size));
                outlines
            };
            g class=(match (shape.modelled, shape.chosen) {
                (true, true) => "pale taken",
                (true, false) => "pale",
                (false, true) => "taken",
                (false, false) => "known",
            }) { (outlines.ui(&format!("v{}", shape.verdict))) }
        }
    }
}

fn legend(points: &Points) -> Markup {
    html! {
        div class="legend" {
            @for quadrant in Quadrant::BEST_FIRST {
                @let (num, time) = (points.shares.num_points(quadrant), points.shares.time_share(quadrant));
                @if num > 0 || time.is_some_and(|share| share > 0.0) {
                    span class="key" {
                        (shape(quadrant)) (word(quadrant)) " · " (count(num))
                        @if let Some(share) = time { " · " (format!("{:.0}", 100.0 * share)) " % of the BF16 time" }
                    }
                }
            }
        }
    }
}

fn caption(points: &Points) -> String {
    let mut parts = Vec::new();
    let sources = points.num_by_source.iter().filter(|(source, _)| **source != LatencySource::None);
    let sources: Vec<String> = sources.map(|(source, num)| format!("{} {}", count(*num), source.as_str())).collect();
    if !sources.is_empty() {
        parts.push(format!("Latencies: {}; modelled ones are pale.", sources.join(", ")));
    }
    parts.push("Large shapes are what the plan runs.".to_owned());
    if points.merged {
        parts.push("What stands at one place is drawn once.".to_owned());
    }
    if points.num_unplaced > 0 {
        parts.push(format!("{} without an error or a latency have no place.", count(points.num_unplaced)));
    }
    parts.join(" ")
}
