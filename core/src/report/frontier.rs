//! Takes a plan and its results, gives the frontier as SVG: what every threshold of a policy buys in time and costs in
//! loss, a curve a policy, and where the plan stands.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::{
    dispatch::{Candidates, Curve, CurvePoint, FrontierAxis, policies_beside},
    format::{NAME, line, number::times, short},
    model::Results,
    plan::Plan,
    views::Scale,
};

use super::quadrant::TICKS;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 8.0;
const FIELD: [f64; 2] = [WIDTH - LEFT - 12.0, 340.0];
/// Room below the least cost for what costs nothing: a logarithm has no zero.
const FLOOR: f64 = 26.0;

pub fn frontier(plan: &Plan, results: &Results) -> Markup {
    let candidates = Candidates::at(results, &plan.site_mods(), plan.runtime);
    let (loss, shown) = (results.meta.manifest.loss.value, plan.policy.metric);
    let curves = policies_beside(&plan.policy).into_iter().map(|policy| Curve::new(policy, &candidates, loss, shown));
    let curves: Vec<Curve> = curves.filter(|curve| !curve.points.is_empty()).collect();
    let Some(chart) = Chart::of(plan, &curves) else {
        let lets_in = curves.iter().flat_map(|curve| &curve.points).any(|point| point.totals.num_low_precision > 0);
        let why = match (curves.is_empty(), lets_in) {
            (true, _) => "No kernel has both a latency and a cost.",
            (false, false) => "No threshold of any policy lets a GEMM into low precision here.",
            (false, true) => "No threshold costs any loss beyond BF16's, as far as is known.",
        };
        return html! { p { (why) } };
    };
    chart.ui(plan, &curves)
}

struct Chart {
    axis: FrontierAxis,
    label: String,
    speed: Scale,
    cost: Scale,
}

impl Chart {
    /// By loss cost, or by the worst error where no loss cost is known. `None`: nothing costs anything.
    fn of(plan: &Plan, curves: &[Curve]) -> Option<Self> {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let range = |axis: FrontierAxis| {
            let costs = points().filter_map(|point| axis.cost(&point.totals));
            costs.fold(None, |range: Option<(f64, f64)>, cost| {
                Some(range.map_or((cost, cost), |(lo, hi)| (lo.min(cost), hi.max(cost))))
            })
        };
        let (axis, costs) = FrontierAxis::ALL.into_iter().find_map(|axis| Some((axis, range(axis)?)))?;
        let speeds = points().map(|point| point.totals.speedup).chain(plan.totals.speedup);
        let speeds = speeds.fold((1.0, 1.0), |(lo, hi): (f64, f64), speed| (lo.min(speed), hi.max(speed)));
        Some(Self {
            axis,
            label: axis.label(plan.policy.metric),
            speed: Scale::ratio(speeds).widened(0.06),
            cost: Scale::new(axis.metric(plan.policy.metric), costs).widened(0.06),
        })
    }

    fn ui(&self, plan: &Plan, curves: &[Curve]) -> Markup {
        let high = TOP + FIELD[1] + 44.0;
        html! {
            div class="legend" {
                @for (at, curve) in curves.iter().enumerate() {
                    span class="key" {
                        svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true" {
                            path class=(format!("ring fill c{}", at % 4)) d=(mark(at, [7.0, 7.0])) {}
                        }
                        (line(&curve.name(), NAME))
                    }
                }
            }
            figure {
                svg viewBox=(format!("0 0 {WIDTH} {high}")) style="max-width:1080px" role="img"
                    aria-label=(format!("{} over speed-up of {} curves", self.label, curves.len())) {
                    (self.axes())
                    @for (at, curve) in curves.iter().enumerate() { (self.curve(at, curve)) }
                    (self.now(plan))
                }
                figcaption {
                    "Every point is a plan by one threshold of that policy, overrides aside. The ring is this plan."
                }
            }
        }
    }

    fn axes(&self) -> Markup {
        let (bottom, right) = (TOP + FIELD[1], LEFT + FIELD[0]);
        html! {
            rect class="field" x=(LEFT) y=(TOP) width=(FIELD[0]) height=(FIELD[1]) {}
            @for tick in self.speed.ticks(TICKS) {
                @let at = self.x(tick);
                path class="grid" d=(format!("M{at:.1} {TOP}V{bottom}")) {}
                text class="tick" x=(format!("{at:.1}")) y=(bottom + 15.0) text-anchor="middle" { (short(tick)) }
            }
            @for tick in self.cost.ticks(TICKS) {
                @let at = self.y(Some(tick));
                path class="grid" d=(format!("M{LEFT} {at:.1}H{right}")) {}
                text class="tick" x=(LEFT - 6.0) y=(format!("{:.1}", at + 4.0)) text-anchor="end" { (short(tick)) }
            }
            text class="tick" x=(LEFT - 6.0) y=(format!("{:.1}", self.y(None) + 4.0)) text-anchor="end" { "0" }
            text class="axis" x=(LEFT + FIELD[0] / 2.0) y=(bottom + 34.0) text-anchor="middle" {
                "Total speed-up over BF16 (log)"
            }
            text class="axis" transform=(format!("translate(13 {}) rotate(-90)", TOP + FIELD[1] / 2.0)) text-anchor="middle" {
                (self.label)
            }
        }
    }

    fn curve(&self, at: usize, curve: &Curve) -> Markup {
        let mut path = String::new();
        for (number, point) in curve.points.iter().enumerate() {
            let [x, y] = self.place(point);
            let step = if number == 0 { 'M' } else { 'L' };
            // Writing to a String cannot fail.
            let _ = write!(path, "{step}{x:.1} {y:.1}");
        }
        html! {
            g class=(format!("c{}", at % 4)) {
                path class="curve" d=(path) {}
                @for point in &curve.points {
                    path class="ring fill" d=(mark(at, self.place(point))) { title { (self.title(curve, point)) } }
                }
            }
        }
    }

    fn now(&self, plan: &Plan) -> Markup {
        let Some(speedup) = plan.totals.speedup else { return html! {} };
        let cost = match self.axis {
            FrontierAxis::LossCost => plan.totals.loss_cost_hi,
            // What a plan's worst error is, its table says.
            FrontierAxis::WorstError | FrontierAxis::WorstNoise => return html! {},
        };
        let [x, y] = [self.x(speedup), self.y(cost.filter(|cost| *cost > 0.0))];
        let cost = cost.map_or_else(String::new, |cost| format!(", loss cost at most {}", short(cost)));
        html! {
            circle class="now" cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r="5" {
                title { (line(&plan.name, NAME)) ": " (times(speedup)) (cost) }
            }
        }
    }

    fn title(&self, curve: &Curve, point: &CurvePoint) -> String {
        let threshold = match curve.policy.loss_budget {
            Some(_) => format!("budget {} % of the loss", short(100.0 * point.threshold)),
            None => format!("{} {}", curve.policy.metric.label(), short(point.threshold)),
        };
        let cost = self.axis.cost(&point.totals).map_or_else(|| "0".to_owned(), short);
        let num = point.totals.num_low_precision;
        format!("{threshold}: {}, {} {cost}, {num} GEMMs in low precision", times(point.totals.speedup), self.label)
    }

    fn place(&self, point: &CurvePoint) -> [f64; 2] {
        [self.x(point.totals.speedup), self.y(self.axis.cost(&point.totals))]
    }

    fn x(&self, speedup: f64) -> f64 {
        LEFT + FIELD[0] * self.speed.share(speedup)
    }

    fn y(&self, cost: Option<f64>) -> f64 {
        let above = FIELD[1] - FLOOR;
        cost.map_or(TOP + FIELD[1] - FLOOR / 2.0, |cost| TOP + above * (1.0 - self.cost.share(cost)))
    }
}

/// A shape of its own for each curve beside its colour, as in the workbench.
fn mark(curve: usize, [x, y]: [f64; 2]) -> String {
    match curve % 4 {
        0 => format!("M{:.1} {:.1}h5.8v5.8h-5.8z", x - 2.9, y - 2.9),
        1 => format!("M{x:.1} {:.1}l3.5 6.4h-7z", y - 3.8),
        2 => format!("M{:.1} {y:.1}a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0z", x - 3.2),
        _ => format!("M{x:.1} {:.1}l4.2 4.2l-4.2 4.2l-4.2 -4.2z", y - 4.2),
    }
}
