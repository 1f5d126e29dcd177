//! Inspections of made-up sites: where every part comes from, and what is said of it.

use super::*;
use crate::{
    model::{Format, Granularity, Loss, Matrix, Model, OperandCast, Run, SiteId},
    numerics::rng::Rng,
    trace::{Covariance, OperandExtremes, RankExtremes, Series, TOP_OCTAVES, WeightStats},
};

pub(crate) fn manifest() -> Manifest {
    let extra = serde_json::Map::new;
    Manifest {
        version: 1,
        model: serde_json::from_str::<Model>(r#"{"name":"m"}"#).unwrap(),
        run: serde_json::from_str::<Run>(r#"{"id":"r","step":70}"#).unwrap(),
        loss: Loss { name: "l".to_owned(), value: 0.5, weight: None, extra: extra() },
        quantile_probs: vec![0.01, 0.5, 0.99],
        sites: Vec::new(),
        extra: extra(),
    }
}

fn normals(count: usize, name: &[u8]) -> Vec<f32> {
    let mut values = vec![0f32; count];
    Rng::new(3, &[name]).fill_normal(&mut values);
    values
}

fn diagonal(features: usize) -> Covariance {
    Covariance::Factor { factor: Vec::new(), rank: 0, diag: vec![1.0; features] }
}

fn distribution(features: usize) -> Distribution {
    let quantiles = (0..features).flat_map(|_| [-2.33f32, 0.0, 2.33]).collect();
    Distribution {
        count: 100,
        mean: vec![0.0; features],
        cov: diagonal(features),
        quantiles: Some(quantiles),
        hist: None,
        amax: Some(5.0),
    }
}

/// 64 -> 32, with held-out rows, without gradients.
pub(crate) fn stats() -> SiteStats {
    let json = r#"{"id":"a","m":256,"k":64,"n":32,"dtype":"f32"}"#;
    let site = Site { id: SiteId::new("a"), ..serde_json::from_str(json).unwrap() };
    let rows = Matrix { rows: 16, cols: 64, data: normals(16 * 64, b"rows") };
    let series =
        |name: &str, values: [f32; 2]| Series { name: name.into(), steps: vec![0, 10], values: values.to_vec() };
    SiteStats {
        site,
        input: distribution(64),
        grad_output: None,
        cross_cov: None,
        noise: None,
        weight: WeightStats::Snapshot(normals(32 * 64, b"weight").iter().map(|w| w * 0.1).collect()),
        weight_hist: None,
        weight_amax: Some(99.0),
        bias: None,
        gamma: None,
        beta: None,
        heldout_input: Some(rows),
        heldout_grad_output: None,
        series: vec![series("input_amax", [4.0, 5.0]), series("bias_norm", [1.0, 2.0])],
        ranks: None,
    }
}

fn range(inspected: &OperandInspection, cast: OperandCast) -> &ScaledRange {
    inspected.ranges.iter().find(|range| range.cast == cast).unwrap()
}

#[test]
fn every_part_says_what_it_is_of() {
    let inspection = Inspection::of(&stats(), &manifest());
    assert_eq!((inspection.run.as_str(), inspection.step), ("r", 70));
    let input = inspection.operand(Operand::Input).unwrap();
    assert_eq!(input.amax, Ok((5.0, Origin::Recorded)));
    assert_eq!(input.histogram.as_ref().unwrap().origin, Origin::HeldOut, "no histogram was recorded");
    assert_eq!(input.features.as_ref().unwrap().origin, Origin::Recorded);
    let weight = inspection.operand(Operand::Weight).unwrap();
    let largest = crate::numerics::amax(match &stats().weight {
        WeightStats::Snapshot(values) => values,
        WeightStats::MatrixNormal { .. } => unreachable!(),
    });
    assert_eq!(weight.amax, Ok((f64::from(largest), Origin::Snapshot)), "the weight that is probed, not its record");
    assert_eq!(weight.features.as_ref().unwrap().num_features, 32);
    let gradient = inspection.operand(Operand::GradOutput).unwrap();
    assert!(gradient.ranges.is_empty() && gradient.histogram.as_ref().unwrap_err().contains("no output gradients"));
}

#[test]
fn a_rank_that_stands_out_is_named_where_the_trace_has_ranks() {
    let mut stats = stats();
    let by_rank = |stats: &SiteStats, operand| {
        let inspection = Inspection::of(stats, &manifest());
        inspection.operand(operand).unwrap().by_rank.as_ref().map(ByRank::sentence)
    };
    assert_eq!(by_rank(&stats, Operand::Input), None, "of one rank");
    let input = OperandExtremes { amax: vec![1.0, 1.5, 30.0, 1.0], top: vec![0.125; 4 * TOP_OCTAVES] };
    stats.ranks = Some(RankExtremes { ranks: vec![0, 2, 5, 9], input, grad_output: None });
    let expected = "The median rank's amax is exceeded by rank 5: 24 times, 50 % of its values beyond it (of 4 ranks)";
    assert_eq!(by_rank(&stats, Operand::Input).as_deref(), Some(expected));
    assert_eq!((by_rank(&stats, Operand::Weight), by_rank(&stats, Operand::GradOutput)), (None, None));
}

#[test]
fn scales_are_the_tensors_or_the_groups() {
    let mut stats = stats();
    stats.input.amax = Some(500.0);
    let inspection = Inspection::of(&stats, &manifest());
    let input = inspection.operand(Operand::Input).unwrap();
    let tensor = range(input, OperandCast::scaled(Format::E4m3, Granularity::Tensor));
    let scales = tensor.scales.as_ref().unwrap();
    // The recorded amax, not that of the rows.
    assert_eq!((scales.smallest.scale, scales.num_groups), (f64::from(500f32 / 448.0), 1));
    assert!((scales.largest.largest_log2 - 500f64.log2()).abs() < 1e-6);
    assert!(tensor.of_histogram.is_some());
    let row = range(input, OperandCast::scaled(Format::E4m3, Granularity::Row));
    let scales = row.scales.as_ref().unwrap();
    assert_eq!(scales.num_groups, 16);
    assert!(scales.smallest.scale < scales.median.scale && scales.median.scale < scales.largest.scale);
    assert!(row.of_histogram.is_none(), "a histogram knows nothing of rows");
    assert!(row.shares.subnormal < tensor.shares.subnormal, "rows are scaled closer");
}

#[test]
fn what_was_not_recorded_is_drawn_and_said() {
    let mut stats = stats();
    stats.heldout_input = None;
    stats.weight = WeightStats::MatrixNormal { mean: vec![0.0; 32 * 64], row_cov: diagonal(32), col_cov: diagonal(64) };
    stats.weight_amax = None;
    let inspection = Inspection::of(&stats, &manifest());
    for operand in [Operand::Input, Operand::Weight] {
        let inspected = inspection.operand(operand).unwrap();
        let histogram = inspected.histogram.as_ref().unwrap();
        assert!(histogram.origin.is_derived(), "{operand}");
        // A standard normal: 68 % within one, so 32 % in the bins from 2^0 up.
        let beyond: f64 = histogram.shares[(-FIRST_EXPONENT) as usize..].iter().sum();
        assert!((beyond - 0.3173).abs() < 0.03, "{operand}: {beyond}");
    }
    assert_eq!(inspection, Inspection::of(&stats, &manifest()), "the same draw each time");
}

#[test]
fn it_travels_as_json() {
    let inspection = Inspection::of(&stats(), &manifest());
    let text = serde_json::to_string(&inspection).unwrap();
    assert_eq!(serde_json::from_str::<Inspection>(&text).unwrap(), inspection);
    assert!(text.len() < 200_000, "{} bytes", text.len());
}
