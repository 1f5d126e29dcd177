//! Takes a snapshot, sums its plan's choices anew from the rows: written apart from dispatch, from what its docs say.

use loka_core::{
    dispatch::{Chain, Pick},
    model::{Gemm, Granularity, Metric, OperandCast, ResultRow, kernel},
    views::{PlanView, Snapshot},
};

/// Libraries that read operands which others have cast.
const SHARING: [&str; 3] = ["cublaslt", "loka", "pytorch"];

/// What one cast into two layouts takes, over one into one.
const TWO_LAYOUTS: f64 = 1.2;

#[derive(Default)]
struct Sums {
    baseline_us: f64,
    planned_us: f64,
    handed_on_us: f64,
    loss_cost: f64,
    num_gemms: usize,
    num_without_latency: usize,
}

/// False where there is no plan to sum.
pub fn are_of_the_choices(snapshot: &Snapshot) -> bool {
    let view = PlanView::of(snapshot);
    let Some(decided) = &view.decided else {
        assert!(view.problem.is_some(), "no plan, and no reason");
        return false;
    };
    assert_eq!(decided.picks().count(), 3 * snapshot.sites().len());
    let mut sums = Sums::default();
    for at in 0..snapshot.sites().len() {
        let choices = Gemm::ALL.map(|gemm| view.pick_at(at, gemm).unwrap());
        sums.site(snapshot, at, choices);
        sums.chain(snapshot, at, choices[0], decided.chains.get(&at));
    }
    let totals = decided.totals;
    same(totals.baseline_us, sums.baseline_us);
    same(totals.handed_on_us, sums.handed_on_us);
    same(totals.planned_us, sums.planned_us - sums.handed_on_us);
    same(totals.loss_cost.unwrap_or(0.0), sums.loss_cost);
    assert_eq!((totals.num_gemms, totals.num_without_latency), (sums.num_gemms, sums.num_without_latency));
    match totals.speedup {
        Some(speedup) => same(speedup, sums.baseline_us / (sums.planned_us - sums.handed_on_us)),
        None => assert!(sums.planned_us <= 0.0),
    }
    true
}

#[track_caller]
fn same(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} is not {b}");
}

impl Sums {
    fn site(&mut self, snapshot: &Snapshot, at: usize, choices: [&Pick; 3]) {
        let baseline = &snapshot.document.policy.baseline;
        // By operand (x, W, dy) the casts that are done there.
        let mut casts: [Vec<(OperandCast, f64)>; 3] = Default::default();
        for (gemm, choice) in Gemm::ALL.into_iter().zip(choices) {
            self.num_gemms += 1;
            let row = snapshot.row(at, gemm, &choice.kernel);
            let low = row.filter(|_| choice.kernel != *baseline);
            let reference =
                snapshot.row(at, gemm, baseline).and_then(|row| row.latency.latency_us).filter(|us| *us > 0.0);
            let speedup = if choice.kernel == *baseline { Some(1.0) } else { low.and_then(ResultRow::speedup) };
            match reference.zip(speedup) {
                Some((reference, speedup)) => {
                    let us = low.map_or(reference, |row| own_us(row, reference, speedup));
                    self.baseline_us += reference;
                    self.planned_us += us;
                    low.into_iter().for_each(|row| cast(row, us, &mut casts));
                }
                None => self.num_without_latency += 1,
            }
            let cost = row.filter(|_| gemm == Gemm::Fprop).and_then(|row| row.metric(Metric::LossCost));
            self.loss_cost += cost.filter(|cost| cost.hi.is_finite()).map_or(0.0, |cost| cost.value);
        }
        for both in casts {
            if let [(format, a), (same, b)] = both[..]
                && format == same
            {
                self.planned_us -= (a + b - TWO_LAYOUTS * a.max(b)).max(0.0);
            }
        }
    }
}

impl Sums {
    /// A cast that is not needed, less a byte an element where codes are stored beside BF16.
    fn chain(&mut self, snapshot: &Snapshot, at: usize, fprop: &Pick, chain: Option<&Chain>) {
        let Some(chain) = chain else { return };
        let row = snapshot.row(at, Gemm::Fprop, &fprop.kernel).unwrap();
        if chain.reads_codes() {
            let reference = snapshot.row(at, Gemm::Fprop, &snapshot.document.policy.baseline).unwrap();
            let (latency, reference) = (&row.latency, reference.latency.latency_us.unwrap());
            let cast = latency.cached_us.unwrap() - latency.gemm_us.unwrap();
            let scaled = cast * (reference + tail_us(row)) / latency.baseline_us.unwrap();
            self.handed_on_us += scaled.min(0.99 * own_us(row, reference, row.speedup().unwrap()));
        }
        if chain.stores_codes() && chain.stores_bf16() {
            let site = &snapshot.sites()[at];
            self.handed_on_us -= (site.m * site.n) as f64 / 4.3e6;
        }
    }
}

/// A kernel with the site's tail in it was timed against BF16 and the tail: the tail is taken out, down to a hundredth.
fn own_us(row: &ResultRow, reference: f64, speedup: f64) -> f64 {
    match tail_us(row) {
        0.0 => reference / speedup,
        tail => ((reference + tail) / speedup - tail).max(0.01 * reference),
    }
}

fn tail_us(row: &ResultRow) -> f64 {
    if kernel(row.kernel.as_str()).unwrap().has_tail() { row.latency.tail_us.unwrap() } else { 0.0 }
}

/// One scale a tensor: such a cast can be shared. Its time is its operand's part of what the latency has beyond
/// the bare product.
fn cast(row: &ResultRow, us: f64, casts: &mut [Vec<(OperandCast, f64)>; 3]) {
    let times = row.latency.latency_us.zip(row.latency.gemm_us);
    let Some((latency, gemm)) = times.filter(|_| SHARING.contains(&row.kernel.library())) else { return };
    let beyond = (latency - gemm).max(0.0);
    let share = row.latency.cast_us.map_or(beyond, |us| us.clamp(0.0, beyond)) / latency;
    let (numerics, shape) = (kernel(row.kernel.as_str()).unwrap().numerics(row.gemm), row.shape);
    let (input, weight, gradient) = ((0, shape.m * shape.k), (1, shape.n * shape.k), (2, shape.m * shape.n));
    let operands = match row.gemm {
        Gemm::Fprop => [input, weight],
        Gemm::Dgrad => [gradient, weight],
        Gemm::Wgrad => [gradient, input],
    };
    let read = [numerics.a, numerics.b];
    let narrowed = |at: usize| if read[at].granularity == Granularity::None { 0 } else { operands[at].1 };
    let all = (narrowed(0) + narrowed(1)) as f64;
    for (cast, (operand, elements)) in read.into_iter().zip(operands) {
        if cast.granularity == Granularity::Tensor && share > 0.0 {
            casts[operand].push((cast, us * share * elements as f64 / all));
        }
    }
}
