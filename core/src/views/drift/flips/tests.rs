//! The derived error against a real GEMM, and where it crosses the bound.

use super::*;
use crate::{
    dispatch::testing::row,
    model::{Format, Matrix, Safety, kernel},
    numerics::{Epilogue, Panels, Panels64, Side, cast_panels, gemm, gemm_f64, rng::Rng},
    views::{
        distribution::{Histogram, Origin, tests as fixture},
        drift::{CastLoss, DriftPoint},
    },
};

fn heavy(rows: usize, cols: usize, name: &[u8]) -> Matrix {
    let mut normals = vec![0f32; 2 * rows * cols];
    Rng::new(8, &[name]).fill_normal(&mut normals);
    Matrix { rows, cols, data: normals.chunks_exact(2).map(|pair| pair[0] * pair[1].exp()).collect() }
}

/// Relative L2 of the tensorwise GEMM when the left operand's scale follows `amax`.
fn measured(x: &Matrix, w: &Matrix, amax: f32) -> f64 {
    let numerics = kernel("te/current").unwrap().numerics(Gemm::Fprop);
    let (left, right) = (Panels::pack(Side::Left, x), Panels::pack(Side::Right, w));
    let mut out = vec![0f32; x.rows * w.rows];
    let (a, b) = (cast_panels(&left, numerics.a, Some(amax)), cast_panels(&right, numerics.b, None));
    gemm(&a, &b, numerics.accumulation, Epilogue::StoreBf16, &mut out);
    let mut exact = vec![0f64; out.len()];
    gemm_f64(&Panels64::from(&left), &Panels64::from(&right), &mut exact);
    let error: f64 = out.iter().zip(&exact).map(|(o, e)| (f64::from(*o) - e).powi(2)).sum();
    (error / exact.iter().map(|e| e * e).sum::<f64>()).sqrt()
}

#[test]
fn the_derived_error_agrees_with_running_the_gemm() {
    let (x, w) = (heavy(96, 512, b"x"), heavy(128, 512, b"w"));
    let (x_amax, w_amax) = (crate::numerics::amax(&x.data), crate::numerics::amax(&w.data));
    let loss = |matrix: &Matrix, own: f32, amax: f32| {
        let histogram = Histogram::count(&matrix.data, Origin::Recorded);
        CastLoss::at(&histogram, Some(f64::from(own)), Format::E4m3, f64::from(amax)).noise
    };
    let weight = loss(&w, w_amax, w_amax);
    let now = measured(&x, &w, x_amax);
    for times in [1.0f32, 3.0, 10.0, 100.0, 1000.0, 10_000.0] {
        let factor = ((loss(&x, x_amax, times * x_amax) + weight) / (loss(&x, x_amax, x_amax) + weight)).sqrt();
        let (derived, real) = (now * factor, measured(&x, &w, times * x_amax));
        assert!(
            (derived / real - 1.0).abs() < MODEL_ERROR - 1.0,
            "{times} x the amax: derived {derived:.4}, measured {real:.4}"
        );
    }
    assert!(measured(&x, &w, 10_000.0 * x_amax) > 5.0 * now, "the test would not see a model without effect");
}

fn inspection(noises: &[f64]) -> Inspection {
    let mut inspection = Inspection::of(&fixture::stats(), &fixture::manifest());
    let loss = |noise| CastLoss { amax: 1.0, underflow: 0.0, subnormal: 0.0, noise, body_noise: noise };
    for drift in &mut inspection.drifts {
        drift.probed = Some(loss(1.0));
        let point = |(at, noise): (usize, &f64)| {
            let step = 10 * at as i64;
            DriftPoint { first_step: step, last_step: step + 9, low: loss(1.0), high: loss(*noise) }
        };
        drift.points = Ok(noises.iter().enumerate().map(point).collect());
    }
    inspection
}

#[test]
fn flips_are_runs_of_steps_beyond_the_bound() {
    let policy = Policy::paper();
    let fprop = row("a", Gemm::Fprop, "te/current", 0.15, Some(1.2), 0.0);
    // Noise x 4: the error doubles, .15 to .30.
    let drifts = kernel_drifts(&inspection(&[1.0, 4.0, 9.0, 1.0, 4.0]), [&fprop], &policy, 0.5);
    assert_eq!((drifts.len(), drifts[0].safety), (1, Safety::Safe));
    let spans: Vec<_> = drifts[0].flips.iter().map(|flip| (flip.first_step, flip.last_step, flip.to)).collect();
    assert_eq!(spans, [(10, 29, Safety::Unsafe), (40, 49, Safety::Unsafe)]);
    assert!((drifts[0].flips[0].error.value - 0.45).abs() < 1e-9, "the worst of the run");
    let errors = drifts[0].errors.as_ref().unwrap();
    assert!((errors[1].low.value - 0.15).abs() < 1e-12 && (errors[1].high.value - 0.30).abs() < 1e-12);
    // .15 to .201 is beyond the bound, but not by more than the model may err.
    let near = kernel_drifts(&inspection(&[1.0, 1.8]), [&fprop], &policy, 0.5);
    assert!(near[0].errors.as_ref().unwrap()[1].high.value > 0.2 && near[0].flips.is_empty());
}

#[test]
fn what_cannot_be_derived_says_why() {
    let policy = Policy::paper();
    let reason = |kernel: &str, policy: &Policy| {
        let row = row("a", Gemm::Fprop, kernel, 0.1, Some(1.2), 0.0);
        let drifts = kernel_drifts(&inspection(&[4.0]), [&row], policy, 0.5);
        drifts.into_iter().next().and_then(|drift| drift.errors.err())
    };
    assert!(reason("fbgemm/rowwise", &policy).unwrap().starts_with("a row's scale"));
    assert!(reason("deepgemm/blockwise", &policy).unwrap().starts_with("a block's scale"));
    assert_eq!(reason("te/current", &policy), None);
    // All the noise is in a few large values: MERE does not follow it, relative L2 does.
    let mut split = inspection(&[4.0]);
    for drift in &mut split.drifts {
        if let Ok(points) = &mut drift.points {
            points[0].high.body_noise = 1.0;
        }
    }
    let fprop = row("a", Gemm::Fprop, "te/current", 0.1, Some(1.2), 0.0);
    let of = |policy: &Policy| kernel_drifts(&split, [&fprop], policy, 0.5)[0].errors.clone();
    assert!(of(&policy).unwrap_err().starts_with("a hundredth") && of(&Policy::rel_l2()).is_ok());
    let block = Policy { metric: Metric::BlockRelL2, ..policy.clone() };
    assert!(reason("te/current", &block).is_some());
    let bf16 = row("a", Gemm::Fprop, "cublaslt/bf16", 0.1, Some(1.0), 0.0);
    assert!(kernel_drifts(&inspection(&[4.0]), [&bf16], &policy, 0.5).is_empty());
}

#[test]
fn metrics_follow_the_noise_each_in_its_own_way() {
    let at = |metric| scaled(Estimate::exact(10.0), metric, 2.0).value;
    assert_eq!((at(Metric::RelL2), at(Metric::LossCost)), (20.0, 40.0));
    assert!((at(Metric::SqnrDb) - (10.0 - 6.0206)).abs() < 1e-3);
}

/// Of a loss of .5 a loss cost is in range up to .05.
#[test]
fn a_loss_cost_outside_its_range_is_uncertain_and_never_a_figure() {
    let policy = Policy::loss_budget();
    let drift = |cost: f64, noises: &[f64]| {
        let fprop = row("a", Gemm::Fprop, "te/current", 0.1, Some(1.2), cost);
        kernel_drifts(&inspection(noises), [&fprop], &policy, 0.5).remove(0)
    };
    // The cost grows as the noise does: .02 to .04, and to .18.
    let grown = drift(0.02, &[1.0, 2.0, 9.0]);
    assert_eq!((grown.safety, grown.measured.unwrap().value), (Safety::Unsafe, 0.02));
    let spans: Vec<_> = grown.flips.iter().map(|flip| (flip.first_step, flip.last_step, flip.to)).collect();
    assert_eq!(spans, [(20, 29, Safety::Uncertain)]);
    let marked = [5, 15, 25].map(|step| grown.at(step).map(|(error, safety)| (grown.is_out_of_range(error), safety)));
    assert_eq!(marked, [(false, Safety::Unsafe), (false, Safety::Unsafe), (true, Safety::Uncertain)].map(Some));
    // What is charged is a quarter of the cost, and it is the cost that has a range.
    let mut fprop = row("a", Gemm::Fprop, "te/current", 0.1, Some(1.2), 0.02);
    fprop.error.as_mut().unwrap().loss_excess = Some(Estimate::exact(0.005));
    let charged = kernel_drifts(&inspection(&[2.0, 9.0]), [&fprop], &policy, 0.5).remove(0);
    let errors = charged.errors.as_ref().unwrap();
    assert!((errors[1].high.value - 0.045).abs() < 1e-12 && charged.is_out_of_range(errors[1].high));
    assert!(!charged.is_out_of_range(errors[0].high));
    // Of a figure that means nothing none is derived, and the verdict is as Dispatch has it.
    let measured = drift(0.06, &[0.01, 1.0]);
    assert_eq!((measured.safety, measured.measured, measured.flips.len()), (Safety::Uncertain, None, 0));
    assert!(measured.errors.unwrap_err().starts_with("the measured loss cost is more than a tenth of the loss"));
}
