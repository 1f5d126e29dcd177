//! Casts, savings and the rule for slow kernels, against numbers computed by hand.

use super::*;
use crate::{
    dispatch::testing::row,
    model::{Format, Latency},
};

const TENSORWISE: &str = "cublaslt/fp8-tensorwise+fast";

/// x has 12 elements, W 8, dy 24.
const SHAPE: GemmShape = GemmShape { m: 6, k: 2, n: 4 };

/// BF16 takes 100 us.
fn timed(gemm: Gemm, kernel: &str, latency_us: f64, gemm_us: f64) -> ResultRow {
    let base = row("s", gemm, kernel, 0.1, Some(100.0 / latency_us), 0.0);
    let latency = Latency { gemm_us: Some(gemm_us), ..base.latency };
    ResultRow { shape: SHAPE, latency, ..base }
}

fn cost(row: &ResultRow) -> Cost {
    Cost::of(row, 100.0).unwrap()
}

/// Casts: x 12 and W 8; dy 24 and W 8; dy 24 and x 12.
fn tensorwise() -> [Cost; 3] {
    [(Gemm::Fprop, 60.0), (Gemm::Dgrad, 72.0), (Gemm::Wgrad, 76.0)]
        .map(|(gemm, latency_us)| cost(&timed(gemm, TENSORWISE, latency_us, 40.0)))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// A site whose fprop and wgrad cast x in the given times.
fn sharing_x(us: [f64; 2], casts: [f64; 2]) -> [Cost; 3] {
    let format = OperandCast::scaled(Format::E4m3, Granularity::Tensor);
    let of = |at: usize| Cost { us: us[at], tail_us: 0.0, casts: [Some((format, casts[at])), None, None] };
    [of(0), Cost::alone(100.0), of(1)]
}

#[test]
fn casts_are_split_by_elements() {
    let [fprop, dgrad, wgrad] = tensorwise().map(|cost| cost.casts.map(|cast| cast.map_or(0.0, |(_, us)| us)));
    for (found, wanted) in [(fprop, [12.0, 8.0, 0.0]), (dgrad, [0.0, 8.0, 24.0]), (wgrad, [12.0, 0.0, 24.0])] {
        assert!(found.iter().zip(wanted).all(|(found, wanted)| near(*found, wanted)), "{found:?} {wanted:?}");
    }
    let formats = tensorwise().map(|cost| cost.casts.map(|cast| cast.map(|(cast, _)| cast.format)));
    assert_eq!(formats[1], [None, Some(Format::E4m3), Some(Format::E5m2)]);
}

#[test]
fn one_cast_for_two_saves_four_tenths() {
    let costs = tensorwise();
    let saved = Operand::ALL.map(|operand| saved_us(&costs, operand));
    // 2 x 12 - 1.2 x 12, 2 x 8 - 1.2 x 8, 2 x 24 - 1.2 x 24.
    assert!([9.6, 6.4, 19.2].into_iter().zip(saved).all(|(wanted, found)| near(wanted, found)), "{saved:?}");
    assert!(near(site_us(&costs), 208.0 - 35.2));
    assert!(near(speedup_in_place(&costs, Gemm::Fprop, 100.0), 100.0 / 44.0));
    let with = |gemm| partners(&costs, gemm);
    assert_eq!(with(Gemm::Fprop), [(Operand::Input, Gemm::Wgrad), (Operand::Weight, Gemm::Dgrad)]);
    assert_eq!(with(Gemm::Dgrad), [(Operand::Gradient, Gemm::Wgrad), (Operand::Weight, Gemm::Fprop)]);
}

#[test]
fn the_larger_of_two_casts_counts_and_sharing_never_costs() {
    assert!(near(saved_us(&sharing_x([60.0; 2], [12.0, 18.0]), Operand::Input), 30.0 - 21.6));
    assert_eq!(saved_us(&sharing_x([60.0; 2], [1.0, 18.0]), Operand::Input), 0.0);
}

#[test]
fn times_are_the_baselines_as_in_totals() {
    let row = timed(Gemm::Fprop, TENSORWISE, 60.0, 40.0);
    let doubled = Cost::of(&row, 200.0).unwrap();
    assert!(near(doubled.us, 120.0) && near(doubled.casts[0].unwrap().1, 24.0), "{doubled:?}");
    let mut unknown = row;
    unknown.latency.baseline_us = None;
    assert_eq!(Cost::of(&unknown, 200.0), None);
}

#[test]
fn other_granularities_and_libraries_share_nothing() {
    for kernel in ["cublaslt/bf16", "cublaslt/fp8-rowwise+fast", "cublaslt/fp8-blockwise", "te/current", "x/y"] {
        for gemm in Gemm::ALL {
            assert!(!cost(&timed(gemm, kernel, 60.0, 40.0)).can_share(), "{kernel} {gemm}");
        }
    }
    let [mut costs, eager] = [TENSORWISE, "pytorch/fp8-tensorwise+fast"]
        .map(|name| Gemm::ALL.map(|gemm| cost(&timed(gemm, name, 60.0, 40.0))));
    costs[0] = eager[0];
    assert!(saved_us(&costs, Operand::Input) > 0.0, "one runtime runs both");
    costs[0].casts[0] = Some((OperandCast::scaled_pow2(Format::E4m3, Granularity::Tensor), 12.0));
    assert_eq!(saved_us(&costs, Operand::Input), 0.0, "other scales are other codes");
    costs[0].casts[0] = Some((OperandCast::scaled(Format::E5m2, Granularity::Tensor), 12.0));
    assert_eq!(saved_us(&costs, Operand::Input), 0.0);
}

#[test]
fn casts_are_never_more_than_the_latency_has_beyond_the_gemm() {
    let mut row = timed(Gemm::Fprop, TENSORWISE, 60.0, 40.0);
    let all = |row: &ResultRow| cost(row).casts.iter().flatten().map(|(_, us)| us).sum::<f64>();
    row.latency.cast_us = Some(50.0);
    assert!(near(all(&row), 20.0));
    row.latency.cast_us = Some(15.0);
    assert!(near(all(&row), 15.0));
    row.latency.gemm_us = Some(70.0);
    assert!(!cost(&row).can_share());
    row.latency.gemm_us = None;
    assert!(!cost(&row).can_share());
}

#[test]
fn slow_kernels_must_be_worth_it_together() {
    let slow = [Some(100.0), None, Some(100.0)];
    // 8 are saved. Either going back alone would lose 7, more than the 4.8 asked; both together 6, less
    // than 9.5.
    let costs = sharing_x([101.0; 2], [10.0; 2]);
    assert!(near(gain_us(&costs, [Some(100.0), None, None]), 7.0));
    assert_eq!(unearned(&costs, slow, 1.05), [true, false, true]);
    assert_eq!(unearned(&costs, [Some(100.0), None, None], 1.05), [false; 3], "beside one that is there anyhow");
    assert_eq!(unearned(&costs, slow, 1.0), [false; 3]);
    // 16 are saved: 14 together.
    assert_eq!(unearned(&sharing_x([101.0; 2], [20.0; 2]), slow, 1.05), [false; 3]);
    // One that is to blame by itself is named alone: 104 - 8 saves 4.
    assert_eq!(unearned(&sharing_x([104.0, 90.0], [10.0; 2]), slow, 1.05), [true, false, false]);
}

/// What shares nothing is judged as by its own speed-up.
#[test]
fn the_rule_alone_is_the_least_speedup() {
    for (us, failed) in [(95.0, false), (95.3, true), (100.0, true)] {
        let costs = [Cost::alone(us), Cost::alone(100.0), Cost::alone(100.0)];
        assert_eq!(unearned(&costs, [Some(100.0), None, None], 1.05), [failed, false, false], "{us}");
    }
}
