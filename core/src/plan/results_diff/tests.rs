//! What moved, what did not, and why.

use super::*;
use crate::{
    dispatch::testing::{results, row, unsupported},
    plan::Cause,
};

const FAST: &str = "cublaslt/fp8-rowwise+fast";
const OTHER: &str = "te/current";

fn fprop(kernel: &str, error: f64, speedup: f64) -> ResultRow {
    row("a", Gemm::Fprop, kernel, error, Some(speedup), 0.0)
}

fn compare(before: Vec<ResultRow>, after: Vec<ResultRow>) -> ResultsDiff {
    let (before, after) = (results(&["a"], before), results(&["a"], after));
    diff_results(&before, &after, &Policy::paper(), &SiteMods::default()).unwrap()
}

#[test]
fn results_do_not_differ_from_themselves() {
    let same = compare(vec![fprop(FAST, 0.1, 1.3)], vec![fprop(FAST, 0.1, 1.3)]);
    assert!(same.is_empty(), "{same:?}");
    assert_eq!((same.num_unchanged, same.choices.unchanged), (4, 3));
    // Within its interval nothing moved.
    let noise = compare(vec![fprop(FAST, 0.1, 1.3)], vec![fprop(FAST, 0.11, 1.3)]);
    assert!(noise.is_empty(), "{noise:?}");
}

#[test]
fn an_error_beyond_its_interval_flips_a_verdict_and_a_choice() {
    let found = compare(vec![fprop(FAST, 0.1, 1.3)], vec![fprop(FAST, 0.3, 1.3)]);
    let verdict = &found.rows[0];
    let Moved::Verdict { metric: Metric::Mere, before: Safety::Safe, after: Safety::Unsafe, .. } = verdict.moved else {
        panic!("{verdict:?}")
    };
    assert_eq!(verdict.reason, "MERE .3 (.27 to .33) > .2 instead of MERE .1 (.09 to .11) <= .2");
    let metrics: Vec<Metric> = found.rows[1..]
        .iter()
        .filter_map(|change| if let Moved::Error { metric, .. } = change.moved { Some(metric) } else { None })
        .collect();
    assert_eq!(metrics, [Metric::Mere, Metric::RelL2]);
    assert_eq!(found.rows[1].reason, "MERE .3 (.27 to .33) instead of .1 (.09 to .11)");
    let change = &found.choices.changes[0];
    assert_eq!((change.cause, change.after.as_str()), (Cause::Error, "cublaslt/bf16"));
    assert_eq!(found.num_near_ties(), 0);
}

#[test]
fn a_flip_within_the_intervals_is_a_near_tie() {
    // .18 (.162 to .198) is safe, .19 (.171 to .209) is not for certain.
    let found = compare(vec![fprop(FAST, 0.18, 1.3)], vec![fprop(FAST, 0.19, 1.3)]);
    assert_eq!(found.rows.len(), 1, "the error did not move: {:?}", found.rows);
    assert!(found.rows[0].near_tie && found.rows[0].reason.ends_with("(a near tie)"));
    let (before, after) =
        (results(&["a"], vec![fprop(FAST, 0.18, 1.3)]), results(&["a"], vec![fprop(FAST, 0.19, 1.3)]));
    let flips = flips(&before, &after, &Policy::paper(), &SiteMods::default());
    assert_eq!((flips.len(), flips[0].before, flips[0].after), (1, Safety::Safe, Safety::Uncertain));
    assert!(flips[0].near_tie && flips[0].row.kernel.as_str() == FAST);
}

#[test]
fn latencies_move_beyond_their_intervals() {
    let timed = |us: f64, ends: Option<(f64, f64)>| {
        let mut row = fprop(FAST, 0.1, 1.3);
        row.latency.latency_us = Some(us);
        (row.latency.latency_lo_us, row.latency.latency_hi_us) = (ends.map(|ends| ends.0), ends.map(|ends| ends.1));
        row
    };
    let moved = |was, is| {
        let found = compare(vec![was], vec![is]);
        found.rows.into_iter().find(|change| matches!(change.moved, Moved::Latency { .. }))
    };
    assert!(moved(timed(80.0, Some((78.0, 82.0))), timed(83.0, Some((81.0, 85.0)))).is_none());
    let slower = moved(timed(80.0, Some((78.0, 82.0))), timed(90.0, Some((88.0, 92.0)))).unwrap();
    assert!(!slower.near_tie);
    assert_eq!(slower.reason, "90 us (recorded) instead of 80 us (recorded), 1.12 times as long");
    let little = moved(timed(80.0, Some((79.9, 80.1))), timed(80.5, Some((80.4, 80.6)))).unwrap();
    assert!(little.near_tie, "beyond the noise, and of no matter");
    assert!(moved(timed(80.0, None), timed(81.0, None)).is_none());
    assert!(moved(timed(80.0, None), timed(84.0, Some((83.0, 85.0)))).is_some());
    let mut unknown = timed(80.0, None);
    unknown.latency = Latency::unknown("");
    assert_eq!(moved(unknown.clone(), timed(80.0, None)).unwrap().reason, "80 us (recorded), unknown before");
    assert_eq!(moved(timed(80.0, None), unknown).unwrap().reason, "unknown, 80 us (recorded) before");
    assert!(moved(timed(f64::NAN, None), timed(f64::NAN, None)).is_none());
    assert!(moved(timed(f64::NAN, None), timed(80.0, None)).is_some_and(|change| !change.near_tie));
}

#[test]
fn kernels_come_and_go() {
    let gone = "this GPU has no FP8";
    let found = compare(
        vec![
            fprop(FAST, 0.1, 1.3),
            fprop("te/blockwise", 0.1, 1.0),
            unsupported("a", Gemm::Fprop, "fbgemm/rowwise", "x"),
        ],
        vec![unsupported("a", Gemm::Fprop, FAST, gone), fprop(OTHER, 0.1, 1.2), fprop("fbgemm/rowwise", 0.1, 1.0)],
    );
    let told: Vec<_> = found
        .rows
        .iter()
        .map(|change| match change.moved {
            Moved::Kernel { before, after } => (change.kernel.as_str(), before.as_str(), after.as_str()),
            _ => panic!("{change:?}"),
        })
        .collect();
    assert_eq!(
        told,
        [
            (FAST, "supported", "unsupported"),
            (OTHER, "absent", "supported"),
            ("fbgemm/rowwise", "unsupported", "supported"),
            ("te/blockwise", "supported", "absent"),
        ]
    );
    assert_eq!(found.rows[0].reason, format!("it does not run there: {gone}"));
    assert_eq!(found.rows[2].reason, "it runs there now; before: x");
}

#[test]
fn two_runs_are_compared_where_they_have_the_same_sites() {
    let before = results(&["a", "b"], vec![fprop(FAST, 0.1, 1.3)]);
    let mut after = results(&["a", "c"], vec![fprop(FAST, 0.3, 1.3), row("c", Gemm::Fprop, FAST, 0.1, Some(2.0), 0.0)]);
    after.meta.trace_digest = "sha256:11".to_owned();
    (after.meta.manifest.run.id, after.meta.manifest.run.step) = ("toy-1".to_owned(), 20);
    after.meta.driver = "570.1".to_owned();
    after.meta.manifest.sites[0].k = 48;
    let found = diff_results(&before, &after, &Policy::paper(), &SiteMods::default()).unwrap();
    assert_eq!(
        found.whole,
        [
            "another trace: sha256:11 instead of sha256:00",
            "another run: toy-1, step 20 instead of toy-0, step 10",
            "driver: 570.1 instead of none",
        ]
    );
    assert_eq!((found.added, found.removed), (vec![SiteId::new("c")], vec![SiteId::new("b")]));
    assert_eq!(found.shapes[&SiteId::new("a")].1.k, 48);
    assert!(found.rows.iter().all(|change| change.site.as_str() == "a") && !found.rows.is_empty());
}

#[test]
fn a_loss_budget_judges_each_by_its_own_loss() {
    let forward = |cost| row("a", Gemm::Fprop, FAST, 0.1, Some(1.3), cost);
    let before = results(&["a"], vec![forward(1.5e-4)]);
    let mut after = before.clone();
    after.meta.manifest.loss.value *= 4.0;
    let flips = flips(&before, &after, &Policy::loss_budget(), &SiteMods::default());
    assert_eq!((flips.len(), flips[0].before, flips[0].after), (1, Safety::Unsafe, Safety::Safe));
    assert_eq!(flips[0].bound.metric, Metric::LossCost);
}

#[test]
fn numbers_that_are_none_do_not_count_as_moved() {
    let mut odd = fprop(FAST, 0.1, 1.3);
    if let Some(error) = &mut odd.error {
        error.mere = Estimate::new(f64::NAN, f64::NAN, f64::NAN);
        error.rel_l2 = Estimate::new(0.1, f64::NEG_INFINITY, f64::INFINITY);
    }
    let found = compare(vec![fprop(FAST, 0.1, 1.3)], vec![odd]);
    assert!(found.rows.iter().all(|change| matches!(change.moved, Moved::Verdict { .. })), "{:?}", found.rows);
}

/// Beyond a tenth of the loss (.05) a loss cost is no figure: a verdict says so, and it has not moved.
#[test]
fn a_loss_cost_out_of_range_is_told_as_that() {
    let charged = |cost: f64, of_bf16: f64| {
        let mut made = results(&["a"], vec![row("a", Gemm::Fprop, FAST, 0.1, Some(1.3), cost)]);
        for row in made.rows.iter_mut().filter(|row| row.gemm == Gemm::Fprop && row.kernel.as_str() != FAST) {
            row.error.as_mut().unwrap().loss_cost = Some(Estimate::new(of_bf16, 0.9 * of_bf16, 1.1 * of_bf16));
        }
        crate::model::charge_excess(&mut made.rows);
        made
    };
    let compare = |before: &Results, after: &Results| {
        diff_results(before, after, &Policy::loss_budget(), &SiteMods::default()).unwrap()
    };
    let found = compare(&charged(9e-5, 1e-6), &charged(7.0, 0.2));
    let told: Vec<(&str, &str)> =
        found.rows.iter().map(|change| (change.kernel.as_str(), change.reason.as_str())).collect();
    let reason = "Loss cost 7 (6.3 to 7.7) outside its range instead of Loss cost 8.9e-5 (8.0e-5 to 9.8e-5) <= 1.0e-4";
    // BF16's charge of nothing is the same in both, whatever its own cost.
    assert_eq!(told, [(FAST, reason)]);
    assert!(!found.rows[0].near_tie);
    let Moved::Verdict { before: Safety::Safe, after: Safety::Uncertain, error: [Some(_), None], .. } =
        found.rows[0].moved
    else {
        panic!("{found:?}")
    };

    // Measured twice, on both sides of the range's end.
    let found = compare(&charged(0.049, 1e-6), &charged(0.051, 1e-6));
    let [change] = found.rows.as_slice() else { panic!("{found:?}") };
    assert!(change.near_tie && change.reason.ends_with("(a near tie)"), "{change:?}");
    // Two that mean nothing are no news, however far apart.
    assert!(compare(&charged(7.0, 0.2), &charged(70.0, 0.2)).is_empty());
}
