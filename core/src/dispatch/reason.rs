//! Takes verdicts and numbers, gives the sentence that a person reads beside a choice.

use std::fmt::{self, Write as _};

use crate::{
    format::{Short, Times, WithInterval, short},
    model::{Estimate, Fixed, Gemm, Metric, ResultRow, Runtime, Safety, Speed},
};

use super::{
    Bound, Group, Policy, PolicyGroup, Together,
    chain::ChainLink,
    joint::Triple,
    judged::Verdict,
    sharing::partners,
    site_table::Timed,
    target::{Barred, how},
};

/// "MERE .14 (.12 to .16) <= .2".
struct Against(Bound, Option<Estimate>);

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bound, estimate) = *self;
        let label = bound.metric.label();
        let Some(estimate) = estimate else { return write!(f, "{label} not known") };
        let sign = match (bound.safety(Some(estimate)), bound.metric.larger_is_better()) {
            (Safety::Safe, false) => "<=",
            (Safety::Safe, true) => ">=",
            (Safety::Unsafe, false) => ">",
            (Safety::Unsafe, true) => "<",
            (Safety::Uncertain, _) => "around",
        };
        write!(f, "{label} {} {sign} {}", WithInterval(estimate), Short(bound.limit))
    }
}

impl Verdict<'_> {
    /// What decided, with the row's value; a figure that means nothing is told as such.
    fn against(&self) -> Told<'_> {
        match self.out_of_range {
            true => Told::OutOfRange(self.row),
            false => Told::Against(Against(self.bound, self.estimate())),
        }
    }
}

enum Told<'a> {
    Against(Against),
    OutOfRange(&'a ResultRow),
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Against(against) => against.fmt(f),
            Self::OutOfRange(row) => f.write_str(&out_of_range(row)),
        }
    }
}

/// How an override breaks the policy.
pub(super) fn broken(verdict: &Verdict) -> String {
    verdict.against().to_string()
}

/// Why a loss cost is no figure to go by.
pub(crate) fn out_of_range(row: &ResultRow) -> String {
    let cost = row.error.as_ref().and_then(|error| error.loss_cost).map_or(f64::NAN, |cost| cost.value);
    let (kernel, cost) = (row.kernel.as_str(), Short(cost));
    format!(
        "the loss cost of {kernel} would be {cost}, more than a tenth of the loss, where the estimate means nothing"
    )
}

/// "Loss cost 56.9 (50 to 60) outside its range": in place of what a figure is held against.
pub(crate) fn against_out_of_range(cost: Estimate) -> String {
    format!("{} {} outside its range", Metric::LossCost.label(), WithInterval(cost))
}

pub(crate) fn against(bound: Bound, estimate: Option<Estimate>) -> String {
    Against(bound, estimate).to_string()
}

/// With the scale that the kernel cannot run without, where it has one.
pub(super) fn with_scale(reason: String, row: Option<&ResultRow>) -> String {
    match row.and_then(|row| Some((row.gemm, row.static_scale?))) {
        Some((gemm, known)) => {
            let operand = if gemm == Gemm::Fprop { "x" } else { "dy" };
            format!("{reason}; scale of {operand} {known}")
        }
        None => reason,
    }
}

/// In one allocation: most sentences are shorter than this.
fn sentence(parts: fmt::Arguments<'_>) -> String {
    let mut text = String::with_capacity(112);
    // Writing to a String cannot fail.
    let _ = text.write_fmt(parts);
    text
}

pub(super) fn fastest(chosen: &Verdict, num_safe_and_fast: usize) -> String {
    let (against, times) = (chosen.against(), Times(chosen.row.speedup()));
    match num_safe_and_fast {
        1 => sentence(format_args!("the only one that is safe and fast: {against}, {times}")),
        count => sentence(format_args!("fastest of {count} that are safe: {against}, {times}")),
    }
}

/// Of a kernel that the GEMM would not have got by itself.
pub(super) fn alone(chosen: &Verdict) -> String {
    let (against, times) = (chosen.against(), Times(chosen.row.speedup()));
    sentence(format_args!("{against}, {times} alone"))
}

/// Of a kernel at a site that was timed as a whole. `cost`: of loss at most, and the budget that it is under.
pub(super) fn as_timed(chosen: &Verdict, timed: Timed, (runtime, cost): (Runtime, Option<(f64, f64)>)) -> String {
    let (us, bf16_us, how) = (Short(timed.us), Short(timed.bf16_us), how(runtime));
    let source = if timed.modelled { "partly modelled" } else { "measured" };
    let site = sentence(format_args!("the site takes {us} us instead of {bf16_us} ({source}, {how})"));
    match cost {
        Some((cost, budget)) if budget > 0.0 => {
            let (cost, share) = (Short(cost), Short(100.0 * cost / budget));
            format!("{site}; at most {cost} of loss, {share} % of the budget")
        }
        _ => format!("{site}; {}", chosen.against()),
    }
}

/// Why a GEMM of such a site stays in BF16.
pub(super) fn slower_as_timed(verdicts: &[Verdict], (triple, runtime): (&Triple, Runtime)) -> String {
    let (bf16_us, how) = (Short(triple.timed.map_or(f64::NAN, |timed| timed.bf16_us)), how(runtime));
    let safe = verdicts.iter().filter(|of| of.supported && of.safety == Safety::Safe);
    let num_timed = safe.filter(|of| of.barred.is_none() && is_low(of)).count();
    if num_timed > 0 {
        return sentence(format_args!(
            "no safe kernel that was timed here earns its place: the site takes {bf16_us} us in BF16 (measured, {how})"
        ));
    }
    // Safety decides, as it does elsewhere.
    unsafe_or_barred((verdicts, runtime)).unwrap_or_else(|| "no other kernel was probed".to_owned())
}

pub(super) fn never_runs(runtime: Runtime) -> String {
    format!("high precision: {runtime} runs no backward GEMM")
}

/// Of a GEMM whose result training does not need.
pub(super) fn not_needed(gemm: Gemm) -> String {
    let gradient = if gemm == Gemm::Dgrad { "its input" } else { "its weight" };
    format!("high precision: never runs, training needs no gradient of {gradient}")
}

/// Of a site that a plan leaves as it is.
pub(super) fn stays_fixed(fixed: &Fixed) -> String {
    format!("high precision: {fixed}")
}

/// At the end of a sentence, of a site with a bound of its own.
pub(super) fn of_group(group: &PolicyGroup, policy: &Policy) -> String {
    format!("; by the policy's group {}, {} {}", group.sites, policy.metric.at_most(), Short(group.max_error))
}

/// At the end of a sentence, of a module that does not run once a step.
pub(super) fn called(calls: usize) -> String {
    format!("; {calls} calls a step")
}

/// Another library's BF16 is no alternative to BF16, nor is a recipe that leaves this GEMM in it.
fn is_low(verdict: &Verdict) -> bool {
    !verdict.row.kernel.known().is_some_and(|kernel| kernel.is_high_precision_at(verdict.row.gemm))
}

/// How a reason begins where shared casts, or codes that are handed on, decided.
const SHARES: &str = "shares the cast";
const ARRIVES: &str = "x arrives as codes";
const HANDS: &str = "hands its output on as codes";

/// What decided, as a plan's file says it: in the sentence alone.
pub(super) fn together(reason: &str) -> Option<Together> {
    let begins = |words: &str| reason.starts_with(words);
    match () {
        () if begins(SHARES) => Some(Together::Sharing),
        () if begins(ARRIVES) || begins(HANDS) => Some(Together::Chain),
        () => None,
    }
}

/// Which casts a GEMM has in common with which; where that decided, what the site gains by it. `None`: none.
pub(super) fn sharing(triple: &Triple, gemm: Gemm, decided: bool) -> Option<String> {
    let shared: Vec<String> = partners(&triple.costs, gemm)
        .into_iter()
        .map(|(operand, with)| format!("of {} with {with}", operand.symbol()))
        .collect();
    let gained = if decided {
        let (us, alone_us) = (short(triple.us), short(triple.alone_us));
        format!(": {us} us for the site's three GEMMs instead of {alone_us} (modelled)")
    } else {
        String::new()
    };
    (!shared.is_empty()).then(|| format!("{SHARES} {}{gained}", shared.join(" and ")))
}

/// What a forward GEMM takes and hands on as codes.
pub(super) fn handed_on(link: &ChainLink, groups: &[[Group; 3]]) -> Option<String> {
    let name = |at: &usize| groups[*at][0].site.id.to_string();
    let how = if link.is_timed { "measured" } else { "modelled" };
    let arrives =
        link.from.map(|(from, us)| format!("{ARRIVES} from {}: no cast, {} us less ({how})", name(&from), Short(us)));
    let hands = link.store.as_ref().map(|store| {
        let (readers, scale) = (store.readers.iter().map(name).collect::<Vec<_>>().join(", "), Short(store.scale));
        match store.beside_us {
            Some(us) => format!("{HANDS} of scale {scale} to {readers}, beside BF16: {} us more (modelled)", Short(us)),
            None => format!("{HANDS} of scale {scale} to {readers}, and not in BF16"),
        }
    });
    match (arrives, hands) {
        (Some(arrives), Some(hands)) => Some(format!("{arrives}; {hands}")),
        (arrives, hands) => arrives.or(hands),
    }
}

/// Why a GEMM stays in high precision. `verdicts`: every row but the baseline's.
pub(super) fn stays_high(group: &Group, policy: &Policy, (verdicts, runtime): (&[Verdict], Runtime)) -> String {
    let safe = || {
        let running = verdicts.iter().filter(|of| of.supported && of.barred.is_none() && is_low(of));
        running.filter(|of| of.safety == Safety::Safe)
    };
    if group.rows.is_empty() {
        let why = group.problem.unwrap_or("the results have no rows for it");
        return format!("high precision: not probed, {why}");
    }
    let by_speed =
        |a: &&Verdict, b: &&Verdict| a.row.speedup().unwrap_or(0.0).total_cmp(&b.row.speedup().unwrap_or(0.0));
    if let Some(best) = safe().filter(|verdict| verdict.speed != Speed::Unknown).max_by(by_speed) {
        let (limit, times) = (Short(policy.min_speedup), Times(best.row.speedup()));
        let kernel = best.row.kernel.as_str();
        return sentence(format_args!("no safe kernel is faster than {limit}x; best is {kernel} at {times}"));
    }
    if let Some(first) = safe().next() {
        let note = &first.row.latency.note;
        let count = safe().count();
        return format!("no latency is known for the {count} that are safe ({}: {note})", first.row.kernel);
    }
    let text = unsafe_or_barred((verdicts, runtime));
    text.unwrap_or_else(|| "no other kernel was probed".to_owned())
}

/// Why none may be taken: a kernel that is safe and that the runtime bars, else the one that is nearest to safe, else
/// one that does not run.
fn unsafe_or_barred((verdicts, runtime): (&[Verdict], Runtime)) -> Option<String> {
    let running = || verdicts.iter().filter(|of| of.supported && is_low(of));
    let by_speed =
        |a: &&Verdict, b: &&Verdict| a.row.speedup().unwrap_or(0.0).total_cmp(&b.row.speedup().unwrap_or(0.0));
    // What bars a kernel on this GPU is told first.
    let here = |of: &&Verdict| !of.barred.is_some_and(Barred::is_elsewhere);
    let barred = running().filter(|of| of.safety == Safety::Safe && of.barred.is_some());
    let barred = barred.max_by(|a, b| here(a).cmp(&here(b)).then_with(|| by_speed(a, b)));
    if let Some((of, barred)) = barred.and_then(|of| Some((of, of.barred?))) {
        return Some(format!("{} {}", of.row.kernel, barred.why(runtime)));
    }
    if let Some(best) = running().min_by(|a, b| badness(a).total_cmp(&badness(b))) {
        let verdict = if best.safety == Safety::Uncertain { "none is certainly safe" } else { "none is safe" };
        let (kernel, against) = (best.row.kernel.as_str(), best.against());
        return Some(sentence(format_args!("{verdict}; best is {kernel}: {against}")));
    }
    // Of the one that asks least: what keeps that out keeps all out.
    let asks = |of: &&Verdict| of.row.kernel.known().map_or(usize::MAX, |kernel| kernel.multiple_of(of.row.gemm));
    verdicts.iter().filter(|of| is_low(of)).min_by_key(asks).map(|first| {
        let why = first.row.reason.as_deref().unwrap_or("no reason was given");
        format!("no low-precision kernel runs here ({}: {why})", first.row.kernel)
    })
}

/// Smaller is nearer to safe; a row without an error comes last.
fn badness(verdict: &Verdict) -> f64 {
    let Some(estimate) = verdict.estimate() else { return f64::INFINITY };
    let metric = verdict.bound.metric;
    if metric.larger_is_better() {
        return -estimate.lo;
    }
    let end = metric.on_scale(estimate).hi;
    // Verdicts of one GEMM may be of two metrics: how often their limits they are can be compared.
    if verdict.bound.limit > 0.0 { end / verdict.bound.limit } else { end }
}

pub(super) fn within_budget(chosen: &Verdict, cost: f64, budget: f64) -> String {
    let share = if budget > 0.0 { 100.0 * cost / budget } else { 0.0 };
    let (times, cost, share) = (Times(chosen.row.speedup()), Short(cost), Short(share));
    sentence(format_args!(
        "least time within the loss budget: {times} for at most {cost} of loss, {share} % of the budget"
    ))
}

/// Why the optimiser leaves a forward GEMM in high precision. `loss`: the trace's.
pub(super) fn not_worth_it(
    group: &Group,
    (policy, loss): (&Policy, f64),
    (verdicts, runtime): (&[Verdict], Runtime),
) -> String {
    // Where BF16's own cost is a figure, what means nothing is each kernel's, and is told as that.
    let of_baseline = group.row(&policy.baseline).filter(|row| row.is_loss_cost_out_of_range(loss));
    if let Some(row) = of_baseline.filter(|_| verdicts.iter().any(|of| of.out_of_range))
        && verdicts.iter().all(|of| of.out_of_range || !of.supported || !is_low(of))
    {
        return format!("left out of the loss budget: {}", out_of_range(row));
    }
    let known = |of: &&Verdict| of.supported && of.barred.is_none() && of.speed == Speed::Fast;
    let fast: Vec<&Verdict> = verdicts.iter().filter(known).collect();
    let in_range = |of: &&&Verdict| !of.out_of_range && of.row.metric(Metric::LossCost).is_some();
    let affordable = fast.iter().find(in_range);
    if let (None, Some(of)) = (affordable, fast.iter().find(|of| of.out_of_range)) {
        return format!("{} is not taken: {}", of.row.kernel, out_of_range(of.row));
    }
    match (affordable, fast.first()) {
        (Some(verdict), _) => {
            let cost =
                verdict.row.metric(Metric::LossCost).map_or_else(String::new, |cost| WithInterval(cost).to_string());
            let (kernel, times) = (verdict.row.kernel.as_str(), Times(verdict.row.speedup()));
            sentence(format_args!(
                "the loss budget buys more elsewhere: {kernel} would cost {cost} of loss for {times}"
            ))
        }
        (None, Some(verdict)) => {
            format!("no loss cost is known here (the trace has no gradients), so {} is not taken", verdict.row.kernel)
        }
        (None, None) => stays_high(group, policy, (verdicts, runtime)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_read_as_they_were_judged() {
        let bound = Bound { metric: Metric::Mere, limit: 0.2 };
        assert_eq!(against(bound, Some(Estimate::new(0.14, 0.12, 0.16))), "MERE .14 (.12 to .16) <= .2");
        assert_eq!(against(bound, Some(Estimate::new(0.2, 0.18, 0.22))), "MERE .2 (.18 to .22) around .2");
        let decibels = Bound { metric: Metric::SqnrDb, limit: 30.0 };
        assert_eq!(against(decibels, Some(Estimate::exact(28.6))), "SQNR (dB) 28.6 < 30");
    }
}
