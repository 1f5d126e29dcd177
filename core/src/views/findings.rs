//! What a reviewer should know of a plan, worth most first: takes a snapshot, its plan and what was derived of both, gives
//! sentences with the GEMMs that they speak of, what each is worth, and what would do something about it.
//!
//! Worth is the time that would be saved a step if it came as hoped for, alone: two findings may speak of one GEMM.

use serde::Serialize;

use crate::{
    dispatch::{Bound, ChoiceSource, JudgedRow, JudgedRows, PassedOver, Pick, Policy, bound_of, own_us, parallel},
    format::{
        number::{count, counted},
        short,
    },
    model::{Gemm, KernelId, Metric, ResultRow, Safety, Site, padded_in_bf16},
    views::{PlanLine, PlanTable, PlanView, Snapshot, draws_to_ask},
};

use super::{changed::Changed, standings::low};

/// Unsafe by no more than this is worth a look at the threshold.
const NEAR: f64 = 1.25;
/// A cast that makes more than this share zero loses what a layer was given.
const FLUSHED: f64 = 0.05;
/// What is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A faster kernel's interval straddles its bound.
    Undecided,
    /// A faster kernel is just beyond its bound.
    NearThreshold,
    /// Faster forward kernels that the loss budget does not reach for.
    BeyondBudget,
    /// A kernel set by hand is slower than the policy's own choice.
    SlowOverride,
    /// Unsafe in the policy's metric, and small in relative L2.
    MetricsDisagree,
    /// The fastest kernel's cast makes values zero that another keeps.
    Flushed,
    /// The bare GEMM pays, its casts eat it.
    Casts,
    /// Widths that BF16 is slow at are padded.
    Padded,
    /// No kernel in low precision has a time.
    Untimed,
}

/// What does something about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Probe that site with so many draws.
    Draw {
        site: usize,
        draws: u64,
    },
    /// The policy's largest error.
    Threshold {
        max_error: f64,
    },
    /// See what a larger budget buys.
    Frontier,
    /// Leave these to the policy.
    ClearOverrides,
    Measure,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub kind: FindingKind,
    pub text: String,
    /// Site number and GEMM, in forward order.
    pub gemms: Vec<(usize, Gemm)>,
    /// A step; `None`: it is about quality, or no time is known.
    pub saves_us: Option<f64>,
    /// What it would cost in loss, where that is known.
    pub loss_cost: Option<f64>,
    pub remedy: Option<Remedy>,
}

/// A kernel that would be faster at a GEMM than what the plan has there.
struct Faster {
    at: usize,
    gemm: Gemm,
    judged: JudgedRow,
    bound: Bound,
    worth: FasterWorth,
}

/// What of it stands as long as its site is decided as it was.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FasterWorth {
    /// Its row's place among those of its GEMM.
    place: usize,
    gain_us: f64,
    /// In relative L2 it is small, whatever the policy's metric.
    is_small: bool,
    /// In units of the loss, the upper end; `None`: nobody knows.
    loss_cost: Option<f64>,
}

/// What may be worth a word at one GEMM.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Worth {
    untimed: bool,
    faster: Option<FasterWorth>,
    /// What it would save if casts cost nothing.
    casts_us: Option<f64>,
    /// What the policy's own choice would save beyond the one by hand.
    by_hand_us: Option<f64>,
}

impl Worth {
    /// Parallel to the table's lines. `last`: of the same rows, and where something else was decided since.
    pub(super) fn of_all(
        rows: (&Snapshot, &JudgedRows),
        plan: &PlanView,
        table: &PlanTable,
        last: Option<(&[Self], &Changed)>,
    ) -> Vec<Self> {
        let of = |at: usize| Self::of(rows, plan, &table.lines[at]);
        match last.filter(|(last, _)| last.len() == table.lines.len()) {
            None => parallel::map(table.lines.len(), of),
            Some((last, changed)) => {
                let mut all = last.to_vec();
                changed.sites().flat_map(|at| 3 * at..3 * at + 3).for_each(|place| all[place] = of(place));
                all
            }
        }
    }

    fn of((snapshot, judged): (&Snapshot, &JudgedRows), plan: &PlanView, line: &PlanLine) -> Self {
        let (at, gemm) = (line.at, line.gemm);
        let Some(choice) = plan.pick_at(at, gemm).filter(|_| snapshot.sites()[at].runs(gemm)) else {
            return Self::default();
        };
        let is_high = !choice.kernel.is_low_precision();
        let mut low = judged.low(at, gemm).peekable();
        let untimed = is_high && low.peek().is_some() && low.all(|row| row.speedup.is_none());
        let mut worth = Self { untimed, ..Self::default() };
        let by_hand = choice.source == ChoiceSource::Override;
        let eaten = is_high && choice.passed_over.is_empty();
        // Most GEMMs have nothing to tell: they are not asked for the baseline's time.
        if !by_hand && !eaten && choice.passed_over.is_empty() {
            return worth;
        }
        let Some(reference_us) = judged.reference_us(at, gemm) else { return worth };
        let saved_us = line.alone_us.unwrap_or(0.0);
        if by_hand {
            worth.by_hand_us = slower_by_hand((snapshot, judged), (at, gemm), saved_us, reference_us);
        } else {
            worth.faster = passed_over((snapshot, judged), (at, gemm), choice, saved_us, reference_us);
            worth.casts_us = judged.bare_share(at, gemm).filter(|_| eaten).map(|share| reference_us * share);
        }
        worth
    }
}

impl FasterWorth {
    /// `None`: it is not faster.
    fn of(row: &ResultRow, place: usize, loss: f64, (saved_us, reference_us): (f64, f64)) -> Option<Self> {
        let gain_us = reference_us - own_us(row, reference_us)? - saved_us;
        let limit = Policy::rel_l2().max_error;
        let is_small = || row.metric(Metric::RelL2).is_some_and(|error| error.hi <= limit);
        let loss_cost = || row.charged_loss_cost(loss).map(|cost| cost.hi.max(0.0));
        (gain_us > 0.0).then(|| Self { place, gain_us, is_small: is_small(), loss_cost: loss_cost() })
    }
}

impl Faster {
    fn of((snapshot, judged): (&Snapshot, &JudgedRows), (at, gemm): (usize, Gemm), worth: FasterWorth) -> Option<Self> {
        let policy = &snapshot.document.policy;
        let judged = *judged.at(at, gemm).get(worth.place)?;
        let own = bound_of(policy, &snapshot.sites()[at].id, gemm, snapshot.loss());
        Some(Self { at, gemm, judged, bound: judged.bound(policy, gemm, own), worth })
    }
}

impl Finding {
    /// What saves most first; those without a time by what they cost, then in the order of their kinds.
    pub(super) fn all(
        rows: (&Snapshot, &JudgedRows),
        plan: &PlanView,
        table: &PlanTable,
        worth: &[Worth],
    ) -> Vec<Self> {
        let snapshot = rows.0;
        let mut faster: Vec<Faster> = Vec::new();
        let (mut casts, mut untimed, mut by_hand) = (Vec::new(), Vec::new(), Vec::new());
        for (line, worth) in table.lines.iter().zip(worth) {
            let place = (line.at, line.gemm);
            untimed.extend(worth.untimed.then_some(place));
            faster.extend(worth.faster.and_then(|of| Faster::of(rows, place, of)));
            casts.extend(worth.casts_us.map(|us| (place, us)));
            by_hand.extend(worth.by_hand_us.map(|us| (place, us)));
        }
        let mut found: Vec<Self> = [
            undecided(snapshot, &faster),
            near(snapshot, &faster),
            budget(snapshot, &faster),
            disagree(snapshot, &faster),
            slow_overrides(&by_hand),
            eaten(&casts),
            flushed(rows, plan),
            padded(snapshot),
            not_timed(untimed),
        ]
        .into_iter()
        .flatten()
        .collect();
        let worth = |of: &Self| (of.saves_us.unwrap_or(f64::NEG_INFINITY), of.loss_cost.unwrap_or(0.0));
        found.sort_by(|a, b| worth(b).0.total_cmp(&worth(a).0).then(worth(b).1.total_cmp(&worth(a).1)));
        found
    }
}

/// The fastest kernel that error alone keeps out.
fn passed_over(
    (snapshot, judged): (&Snapshot, &JudgedRows),
    (at, gemm): (usize, Gemm),
    choice: &Pick,
    saved_us: f64,
    reference_us: f64,
) -> Option<FasterWorth> {
    let wanted = choice.passed_over.iter().filter(|(kernel, why)| {
        kernel.is_low_precision() && matches!(why, PassedOver::Unsafe | PassedOver::Uncertain | PassedOver::Budget)
    });
    let of = |kernel: &KernelId| {
        let place = snapshot.place_of(at, gemm, kernel)?;
        let row = snapshot.rows_of(at, gemm).get(place)?;
        let safety = judged.at(at, gemm).get(place)?.safety;
        Some((safety, FasterWorth::of(row, place, snapshot.loss(), (saved_us, reference_us))?))
    };
    let all = wanted.filter_map(|(kernel, _)| of(kernel));
    // What might be safe counts before what is not, however fast.
    let best = all.max_by(|(a, of_a), (b, of_b)| b.cmp(a).then(of_a.gain_us.total_cmp(&of_b.gain_us)));
    best.map(|(_, worth)| worth)
}

/// What the policy's fastest safe kernel would save beyond the one set by hand.
fn slower_by_hand(
    (snapshot, judged): (&Snapshot, &JudgedRows),
    (at, gemm): (usize, Gemm),
    saved_us: f64,
    reference_us: f64,
) -> Option<f64> {
    let rows = snapshot.rows_of(at, gemm).iter().zip(judged.at(at, gemm));
    let safe = rows.filter(|(_, judged)| judged.is_low() && judged.safety == Safety::Safe);
    let best = safe.filter_map(|(row, _)| Some(reference_us - own_us(row, reference_us)?)).fold(0.0, f64::max);
    (best - saved_us > 0.01 * reference_us).then_some(best - saved_us)
}

fn places(of: &[&Faster]) -> Vec<(usize, Gemm)> {
    of.iter().map(|of| (of.at, of.gemm)).collect()
}

fn sum(of: &[&Faster]) -> Option<f64> {
    Some(of.iter().map(|of| of.worth.gain_us).sum())
}

/// One finding of those that `keep` keeps; `None`: it keeps none.
fn of(faster: &[Faster], keep: impl Fn(&Faster) -> bool) -> Option<Vec<&Faster>> {
    let kept: Vec<&Faster> = faster.iter().filter(|of| keep(of)).collect();
    (!kept.is_empty()).then_some(kept)
}

fn undecided(snapshot: &Snapshot, faster: &[Faster]) -> Option<Finding> {
    let means_something = |of: &Faster| of.bound.metric != Metric::LossCost || !of.judged.out_of_range;
    let kept = of(faster, |of| of.judged.safety == Safety::Uncertain && means_something(of))?;
    let most = kept.iter().max_by(|a, b| a.worth.gain_us.total_cmp(&b.worth.gain_us))?;
    let draws = draws_to_ask(low(snapshot.rows_of(most.at, most.gemm)), most.bound, snapshot.loss());
    let (count, site) = (kept.len(), &snapshot.sites()[most.at].id);
    let text = format!(
        "{} {} a faster kernel whose interval straddles its bound: more draws decide. Most of it is at {site} {}.",
        counted(count, "GEMM"),
        if count == 1 { "has" } else { "have" },
        most.gemm
    );
    Some(Finding {
        kind: FindingKind::Undecided,
        text,
        gemms: places(&kept),
        saves_us: sum(&kept),
        loss_cost: None,
        remedy: draws.map(|draws| Remedy::Draw { site: most.at, draws }),
    })
}

/// How far beyond its bound, which is in the policy's metric; 1: at it.
fn beyond(of: &Faster) -> Option<f64> {
    let error = of.bound.metric.on_scale(of.judged.error?);
    let end = of.bound.metric.worse_end(error);
    let ratio = if of.bound.metric.larger_is_better() { of.bound.limit / end } else { end / of.bound.limit };
    (ratio.is_finite() && ratio > 1.0).then_some(ratio)
}

fn near(snapshot: &Snapshot, faster: &[Faster]) -> Option<Finding> {
    let policy = &snapshot.document.policy;
    // A group's own bound, a bias's and a budget's are not what the threshold moves.
    let own = |of: &Faster| of.bound == Bound { metric: policy.metric, limit: policy.max_error };
    let kept = of(faster, |of| {
        of.judged.safety == Safety::Unsafe && own(of) && beyond(of).is_some_and(|ratio| ratio <= NEAR)
    })?;
    let most = kept.iter().filter_map(|of| beyond(of)).fold(1.0, f64::max);
    let max_error = if policy.metric.larger_is_better() { policy.max_error / most } else { policy.max_error * most };
    let max_error = readable_past(max_error, policy.metric.larger_is_better());
    let (count, sign) = (kept.len(), policy.metric.sign());
    let text = format!(
        "{} would be faster and {} beyond the threshold by at most {:.0} %: {} {sign} {} lets {} in.",
        counted(count, "GEMM"),
        if count == 1 { "is" } else { "are" },
        (100.0 * (most - 1.0)).max(1.0),
        policy.metric.label(),
        short(max_error),
        if count == 1 { "it" } else { "them" },
    );
    let remedy = Some(Remedy::Threshold { max_error });
    Some(Finding {
        kind: FindingKind::NearThreshold,
        text,
        gemms: places(&kept),
        saves_us: sum(&kept),
        loss_cost: None,
        remedy,
    })
}

/// Three digits, to the side that lets the value through.
fn readable_past(value: f64, down: bool) -> f64 {
    let place = value.abs().log10().floor() as i32 - 2;
    let steps = value / 10f64.powi(place);
    let steps = if down { (steps + 1e-9).floor() } else { (steps - 1e-9).ceil() };
    // Through text: 67 x 1e-3 is not .067.
    format!("{steps}e{place}").parse().unwrap_or(value)
}

fn budget(snapshot: &Snapshot, faster: &[Faster]) -> Option<Finding> {
    let budget = snapshot.document.policy.loss_budget? * snapshot.loss();
    let kept =
        of(faster, |of| of.gemm == Gemm::Fprop && of.bound.metric == Metric::LossCost && of.worth.loss_cost.is_some())?;
    let loss_cost: f64 = kept.iter().filter_map(|of| of.worth.loss_cost).sum();
    let times =
        if budget > 0.0 { format!(", {} times the whole budget", short(loss_cost / budget)) } else { String::new() };
    let text = format!(
        "{} would be faster forward, and the loss budget does not reach for all: together at most {} of loss{times}.",
        counted(kept.len(), "GEMM"),
        short(loss_cost)
    );
    Some(Finding {
        kind: FindingKind::BeyondBudget,
        text,
        gemms: places(&kept),
        saves_us: sum(&kept),
        loss_cost: Some(loss_cost),
        remedy: Some(Remedy::Frontier),
    })
}

fn disagree(snapshot: &Snapshot, faster: &[Faster]) -> Option<Finding> {
    let policy = &snapshot.document.policy;
    let limit = Policy::rel_l2().max_error;
    let alike = |metric| matches!(metric, Metric::RelL2 | Metric::SqnrDb | Metric::LossCost);
    let kept = of(faster, |of| of.judged.safety == Safety::Unsafe && !alike(of.bound.metric) && of.worth.is_small)?;
    let metric = kept[0].bound.metric;
    let kept: Vec<&Faster> = kept.into_iter().filter(|of| of.bound.metric == metric).collect();
    let text = format!(
        "{} {} unsafe by {} and within {} by relative L2: the two disagree; {} asks for the first.",
        counted(kept.len(), "GEMM"),
        if kept.len() == 1 { "is" } else { "are" },
        metric.label(),
        short(limit),
        policy.name,
    );
    Some(Finding {
        kind: FindingKind::MetricsDisagree,
        text,
        gemms: places(&kept),
        saves_us: sum(&kept),
        loss_cost: None,
        remedy: None,
    })
}

fn slow_overrides(by_hand: &[((usize, Gemm), f64)]) -> Option<Finding> {
    let count = by_hand.len();
    let text = format!(
        "{} {} set by hand to a kernel slower than one that is safe there.",
        counted(count, "GEMM"),
        if count == 1 { "is" } else { "are" }
    );
    (count > 0).then(|| Finding {
        kind: FindingKind::SlowOverride,
        text,
        gemms: by_hand.iter().map(|(place, _)| *place).collect(),
        saves_us: Some(by_hand.iter().map(|(_, us)| us).sum()),
        loss_cost: None,
        remedy: Some(Remedy::ClearOverrides),
    })
}

fn eaten(casts: &[((usize, Gemm), f64)]) -> Option<Finding> {
    let count = casts.len();
    let text = format!(
        "{} would pay if casts cost nothing: shared with a neighbour, kept between steps, or in the epilogue before.",
        counted(count, "GEMM")
    );
    (count > 0).then(|| Finding {
        kind: FindingKind::Casts,
        text,
        gemms: casts.iter().map(|(place, _)| *place).collect(),
        saves_us: Some(casts.iter().map(|(_, us)| us).sum()),
        loss_cost: None,
        remedy: None,
    })
}

/// The GEMM whose kernel in the plan, or else whose fastest one, loses most values to zero where another keeps them.
fn flushed((snapshot, judged): (&Snapshot, &JudgedRows), plan: &PlanView) -> Option<Finding> {
    let mut found: Vec<(usize, Gemm, &ResultRow, &ResultRow)> = Vec::new();
    for at in 0..snapshot.sites().len() {
        for gemm in Gemm::ALL {
            // Of most GEMMs nobody knows it, and then there is nothing to compare.
            if !judged.knows_flushed(at, gemm) {
                continue;
            }
            let rows = snapshot.rows_of(at, gemm);
            let share = |row: &ResultRow| row.flushed.unwrap_or(0.0);
            let chosen = plan.pick_at(at, gemm).and_then(|choice| snapshot.row(at, gemm, &choice.kernel));
            let fastest = || {
                let timed = low(rows).filter_map(|row| Some((row.speedup()?, row)));
                timed.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row)| row)
            };
            let Some(row) = chosen.filter(|row| row.kernel.is_low_precision()).or_else(fastest) else { continue };
            let keeps = low(rows).filter(|row| row.flushed.is_some()).min_by(|a, b| share(a).total_cmp(&share(b)));
            if let Some(other) = keeps.filter(|other| share(row) > FLUSHED && share(other) < 0.5 * share(row)) {
                found.push((at, gemm, row, other));
            }
        }
    }
    let share = |row: &ResultRow| row.flushed.unwrap_or(0.0);
    let (at, gemm, row, other) = found.iter().max_by(|a, b| share(a.2).total_cmp(&share(b.2)))?;
    let text = format!(
        "{} {} values to zero in the cast: at {} {gemm} {} makes {:.0} % zero, {} {:.0} %.",
        counted(found.len(), "GEMM"),
        if found.len() == 1 { "loses" } else { "lose" },
        snapshot.sites()[*at].id,
        row.kernel,
        100.0 * share(row),
        other.kernel,
        100.0 * share(other),
    );
    Some(Finding {
        kind: FindingKind::Flushed,
        text,
        gemms: found.iter().map(|(at, gemm, ..)| (*at, *gemm)).collect(),
        saves_us: None,
        loss_cost: None,
        remedy: None,
    })
}

/// Not what it saves: which of them PyTorch pads by itself differs from run to run.
fn padded(snapshot: &Snapshot) -> Option<Finding> {
    let is_padded = |site: &Site| padded_in_bf16(site.k, site.n).is_some();
    let found: Vec<(usize, &Site)> = snapshot.sites().iter().enumerate().filter(|(_, site)| is_padded(site)).collect();
    let work = |site: &Site| site.m as f64 * site.k as f64 * site.n as f64;
    let (_, largest) = found.iter().max_by(|(_, a), (_, b)| work(a).total_cmp(&work(b)))?;
    let (k, n) = padded_in_bf16(largest.k, largest.n)?;
    let (side, from, to) = if k == largest.k { ("n", largest.n, n) } else { ("k", largest.k, k) };
    let text = format!(
        "{} {} widths that are no multiples of 8, the largest {} ({side} = {}, padded to {}): loka.apply pads them, in BF16 too, and BF16 is timed so. \
         What PyTorch does not pad by itself takes up to five times as long: that is saved besides what the plan promises.",
        counted(found.len(), "linear"),
        if found.len() == 1 { "has" } else { "have" },
        largest.id,
        count(from),
        count(to),
    );
    let gemms = found
        .iter()
        .flat_map(|(at, site)| Gemm::ALL.into_iter().filter(|gemm| site.runs(*gemm)).map(|gemm| (*at, gemm)));
    Some(Finding {
        kind: FindingKind::Padded,
        text,
        gemms: gemms.collect(),
        saves_us: None,
        loss_cost: None,
        remedy: None,
    })
}

fn not_timed(untimed: Vec<(usize, Gemm)>) -> Option<Finding> {
    let count = untimed.len();
    let text = format!(
        "{} {} no time in low precision: nobody knows what FP8 saves there.",
        counted(count, "GEMM"),
        if count == 1 { "has" } else { "have" }
    );
    (count > 0).then_some(Finding {
        kind: FindingKind::Untimed,
        text,
        gemms: untimed,
        saves_us: None,
        loss_cost: None,
        remedy: Some(Remedy::Measure),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::{results, row},
        model::{KernelId, Results, SiteId},
        session::{Command, Event, Session},
        views::{ViewQuery, Views},
    };

    const FAST: &str = "cublaslt/fp8-rowwise+fast";

    fn made() -> Results {
        let mut wavers = row("a", Gemm::Wgrad, FAST, 0.2, Some(2.0), 0.0);
        if let Some(error) = wavers.error.as_mut() {
            error.mere = crate::model::Estimate::new(0.2, 0.15, 0.25);
        }
        let mut zeros = row("b", Gemm::Wgrad, FAST, 0.1, Some(2.0), 0.0);
        zeros.flushed = Some(0.69);
        let mut keeps = row("b", Gemm::Wgrad, "cublaslt/fp8-rowwise", 0.1, Some(1.5), 0.0);
        keeps.flushed = Some(0.03);
        let rows = vec![
            wavers,
            row("a", Gemm::Fprop, FAST, 0.225, Some(4.0), 0.0),
            row("b", Gemm::Fprop, FAST, 0.9, Some(1.5), 0.0),
            row("b", Gemm::Dgrad, FAST, 0.1, None, 0.0),
            zeros,
            keeps,
        ];
        results(&["a", "b"], rows)
    }

    fn found(session: &Session) -> Vec<Finding> {
        let snapshot = session.snapshot().unwrap();
        let question = ViewQuery { metric: Metric::Mere, gemm: None, relative: false, versus: false };
        let views = Views::of(&snapshot, question, &Views::default());
        views.findings.to_vec()
    }

    fn opened() -> Session {
        let mut session = Session::by_paper();
        session.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results: Box::new(made().into()) });
        session
    }

    #[test]
    fn the_most_worth_is_first_and_each_speaks_of_its_gemms() {
        let found = found(&opened());
        let kinds: Vec<FindingKind> = found.iter().map(|of| of.kind).collect();
        let of = |kind| found.iter().find(|of| of.kind == kind).unwrap();
        assert_eq!(of(FindingKind::NearThreshold).gemms, [(0, Gemm::Fprop)], "{kinds:?}");
        assert_eq!(of(FindingKind::Undecided).gemms, [(0, Gemm::Wgrad)]);
        assert_eq!(of(FindingKind::Untimed).gemms, [(1, Gemm::Dgrad)]);
        assert_eq!(of(FindingKind::Flushed).gemms, [(1, Gemm::Wgrad)]);
        assert!(of(FindingKind::Flushed).text.contains("69 % zero, cublaslt/fp8-rowwise 3 %"));
        assert!(matches!(of(FindingKind::Undecided).remedy, Some(Remedy::Draw { site: 0, .. })));
        let worth: Vec<f64> = found.iter().filter_map(|of| of.saves_us).collect();
        assert!(worth.is_sorted_by(|a, b| a >= b), "{worth:?}");
    }

    #[test]
    fn widths_that_are_padded_are_found() {
        let found = |shapes: [(usize, usize); 2]| {
            let mut results = made();
            for (site, (k, n)) in results.meta.manifest.sites.iter_mut().zip(shapes) {
                (site.k, site.n) = (k, n);
            }
            let mut session = Session::by_paper();
            session.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results: Box::new(results.into()) });
            found(&session).into_iter().find(|of| of.kind == FindingKind::Padded)
        };
        assert_eq!(found([(3152, 512), (1001, 1)]), None, "a head of one output is left as it is");
        let of = found([(429, 512), (512, 1000)]).unwrap();
        assert!(of.gemms.iter().all(|(at, _)| *at == 0) && !of.gemms.is_empty());
        assert!(
            of.text.starts_with("1 linear has widths") && of.text.contains("(k = 429, padded to 432)"),
            "{}",
            of.text
        );
        let of = found([(429, 512), (512, 2001)]).unwrap();
        assert!(of.text.contains("(n = 2,001, padded to 2,008)"), "{}", of.text);
    }

    /// The remedy does what the text says: under the threshold that it names the GEMM runs in FP8.
    #[test]
    fn the_threshold_that_is_named_lets_the_gemm_in() {
        let mut session = opened();
        let near = found(&session).into_iter().find(|of| of.kind == FindingKind::NearThreshold).unwrap();
        let Some(Remedy::Threshold { max_error }) = near.remedy else { panic!("{:?}", near.remedy) };
        session.command(Command::SetMaxError { value: max_error, gesture: None }).unwrap();
        let plan = PlanView::of(&session.snapshot().unwrap());
        assert_eq!(plan.pick_at(0, Gemm::Fprop).unwrap().kernel, KernelId::new(FAST));
        assert!(found(&session).iter().all(|of| of.kind != FindingKind::NearThreshold));
    }

    #[test]
    fn an_override_that_costs_time_is_found() {
        let mut session = opened();
        let (site, kernel) = (SiteId::new("b"), KernelId::new("cublaslt/bf16"));
        session.command(Command::SetOverride { site, gemm: Gemm::Wgrad, kernel, reason: "r".to_owned() }).unwrap();
        let slow = found(&session).into_iter().find(|of| of.kind == FindingKind::SlowOverride).unwrap();
        assert_eq!((slow.gemms, slow.remedy), (vec![(1, Gemm::Wgrad)], Some(Remedy::ClearOverrides)));
        assert!(slow.saves_us.unwrap() > 0.0);
    }
}
