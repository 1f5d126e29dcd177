//! What the frontier says: of a curve, of a point, of what adopting it changes.

use loka_core::{
    dispatch::Policy,
    model::Metric,
    views::{Curve, CurvePoint, FrontierAxis},
};

use crate::{theme::number, views::Scene};

pub(super) fn about(curve: &Curve) -> String {
    let policy = &curve.policy;
    let kept = format!("The policy's other numbers stay: more than {}", number::times(policy.min_speedup));
    match policy.loss_budget {
        Some(_) => format!(
            "The optimiser's plans as the loss budget grows, along the most efficient steps\n{kept}, and dgrad and wgrad \
             {}",
            bound(policy)
        ),
        None => format!("Every GEMM on its own, as the largest {} grows\n{kept}", policy.metric.label()),
    }
}

/// "MERE ≤ .2".
fn bound(policy: &Policy) -> String {
    format!("{} {} {}", policy.metric.label(), policy.metric.sign(), number::trimmed(policy.max_error))
}

fn budget(share: Option<f64>) -> String {
    share.map_or_else(
        || "no loss budget".to_owned(),
        |share| format!("loss budget {} of the loss", small_percent(share)),
    )
}

/// Budgets are far below a percent.
fn small_percent(share: f64) -> String {
    format!("{} %", number::trimmed(100.0 * share))
}

/// What stands at a point, and what a click there would change.
pub(super) fn point(scene: &Scene<'_>, curve: &Curve, at: usize) -> String {
    let (Some(point), Some(policy)) = (curve.points.get(at), curve.policy_at(at)) else { return String::new() };
    let mut text = format!("{}\n{}", threshold(curve, point), totals(scene, curve, point));
    let changes = changes(&scene.session.document.policy, &policy);
    text += "\n\n";
    text += &if changes.is_empty() {
        "This is the policy in force".to_owned()
    } else {
        format!("Click to adopt: {}", changes.join(", "))
    };
    if !scene.session.document.overrides.is_empty() {
        let count = scene.session.document.overrides.len();
        text += &format!("\nOverrides stay ({count}): the plan may differ from the curve by them");
    }
    text
}

fn threshold(curve: &Curve, point: &CurvePoint) -> String {
    let name = &curve.policy.name;
    if curve.policy.loss_budget.is_some() {
        return format!("{name} · {}", budget(Some(point.threshold)));
    }
    format!("{name} · {}", bound(&Policy { max_error: point.threshold, ..curve.policy.clone() }))
}

fn totals(scene: &Scene<'_>, curve: &Curve, point: &CurvePoint) -> String {
    let of = &point.totals;
    let mut text = number::times(of.speedup);
    if let Some(now) = scene.derived.now {
        text += &format!(" (now {})", number::times(now.speedup.value));
    }
    if of.loss_cost_hi > 0.0 {
        text += &format!("\nLoss cost {}, at most {}", number::plain(of.loss_cost), number::plain(of.loss_cost_hi));
    }
    if of.num_cost_unknown > 0 {
        text += &format!("\nAnd {} forward GEMMs whose loss cost nobody knows", of.num_cost_unknown);
    }
    let own = scene.session.document.policy.metric;
    if let Some(worst) = of.worst_noise.filter(|_| own != Metric::NoiseShare) {
        text += &format!("\nWorst noise share {}", number::plain(worst));
    }
    if let Some(worst) = of.worst_error {
        let metric = scene.session.document.policy.metric.label();
        text += &format!("\nWorst {metric} {}", number::plain(worst));
    }
    let all = scene.derived.plan.decided.as_ref().map_or(0, |decided| decided.totals.num_gemms);
    let (num, all, baseline) = (of.num_low_precision, number::count(all as u64), &curve.policy.baseline);
    text += &format!("\n{num} of {all} GEMMs leave {baseline}");
    text
}

/// Every number of the policy that would be another.
pub(super) fn changes(from: &Policy, to: &Policy) -> Vec<String> {
    let mut changes = Vec::new();
    let mut change = |differs: bool, from: String, to: String| {
        if differs {
            changes.push(format!("{from} → {to}"));
        }
    };
    change(from.name != to.name, format!("policy {}", from.name), to.name.clone());
    change((from.metric, from.max_error) != (to.metric, to.max_error), bound(from), bound(to));
    let times = |policy: &Policy| number::times(policy.min_speedup);
    change(from.min_speedup != to.min_speedup, format!("speed-up > {}", times(from)), times(to));
    change(from.loss_budget != to.loss_budget, budget(from.loss_budget), budget(to.loss_budget));
    change(from.baseline != to.baseline, format!("baseline {}", from.baseline), to.baseline.to_string());
    let confidence = |policy: &Policy| number::percent(policy.confidence);
    change(from.confidence != to.confidence, format!("confidence {}", confidence(from)), confidence(to));
    changes
}

pub(super) fn now(scene: &Scene<'_>) -> String {
    let Some(now) = scene.derived.now else { return "No plan yet".to_owned() };
    let ends = [now.speedup.lo, now.speedup.hi].map(number::times);
    let mut text = format!("The plan of now, overrides included\n{}", number::times(now.speedup.value));
    if now.speedup.lo < now.speedup.hi {
        text += &format!(" ({} to {}: every kernel at the slow or the fast end of its latency)", ends[0], ends[1]);
    }
    if let Some(cost) = now.cost(FrontierAxis::LossCost) {
        text += &format!("\nLoss cost {}, at most {}", number::plain(cost.value), number::plain(cost.hi));
    }
    if let Some(worst) = now.worst_error {
        let metric = scene.session.document.policy.metric.label();
        text += &format!("\nWorst {metric} {}", number::sentence(worst));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_said_exactly() {
        let paper = Policy::paper();
        assert!(changes(&paper, &paper).is_empty());
        let wider = Policy { max_error: 0.31, ..paper.clone() };
        assert_eq!(changes(&paper, &wider), ["MERE ≤ .2 → MERE ≤ .31"]);
        let budget = changes(&paper, &Policy::loss_budget());
        assert_eq!(
            budget,
            [
                "policy paper → loss-budget",
                "MERE ≤ .2 → Relative L2 ≤ .05",
                "speed-up > 1.05× → 1.00×",
                "no loss budget → loss budget .02 % of the loss"
            ]
        );
    }
}
