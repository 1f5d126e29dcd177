//! The distribution and drift views' numbers against an independent computation in numpy and ml_dtypes
//! (tests/reference/distribution.py) at four sites of three sample traces: casts and scales to the bit,
//! shares along the series to a rounding.

use std::{collections::BTreeMap, fs};

use loka_core::{
    model::{Format, Granularity, SiteId},
    trace::Trace,
    views::distribution::{Inspection, Operand, ScaledRange},
};
use loka_tests::{here, root};
use serde_json::Value;

fn inspections() -> impl FnMut(&str, &str) -> Inspection {
    let mut traces: BTreeMap<String, Trace> = BTreeMap::new();
    move |name: &str, site: &str| {
        let open = || Trace::open(&root(&format!("sample-traces/{name}.trace.safetensors"))).unwrap();
        let trace = traces.entry(name.to_owned()).or_insert_with(open);
        Inspection::of(&trace.site_stats(&SiteId::new(site)).unwrap(), trace.manifest())
    }
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap()
}

/// Equal, but for the last bits of a sum.
#[track_caller]
fn same(ours: f64, numpy: f64, what: &str) {
    assert!((ours - numpy).abs() <= 1e-12 + 1e-9 * numpy.abs(), "{what}: {ours}, numpy {numpy}");
}

fn compare_cast(range: &ScaledRange, numpy: &Value, what: &str) {
    for (name, ours) in [
        ("underflow", range.shares.underflow),
        ("subnormal", range.shares.subnormal),
        ("saturated", range.shares.saturated),
    ] {
        same(ours, number(numpy, name), &format!("{what} {name}"));
    }
    let scales = range.scales.as_ref().unwrap();
    let expected = numpy["scales"].as_array().unwrap();
    for (at, ours) in [scales.smallest, scales.median, scales.largest].into_iter().enumerate() {
        assert_eq!(ours.scale, expected[at].as_f64().unwrap(), "{what}, scale {at}");
    }
}

#[test]
fn casts_scales_outliers_and_drift_agree_with_numpy() {
    let text = fs::read_to_string(here("reference/distribution.jsonl")).unwrap();
    let mut inspect = inspections();
    let (mut num_casts, mut num_points, mut lost) = (0, 0, 0);
    for line in text.lines() {
        let numpy: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| numpy[name].as_str().unwrap();
        let inspection = inspect(text("trace"), text("site"));
        let operand: Operand = serde_json::from_value(numpy["operand"].clone()).unwrap();
        let what = format!("{} {} {operand}", text("trace"), text("site"));
        let ours = inspection.operand(operand).unwrap();
        assert_eq!(ours.amax.as_ref().unwrap().0, number(&numpy, "amax"), "{what}");
        for expected in numpy["casts"].as_array().unwrap() {
            let format: Format = serde_json::from_value(expected["format"].clone()).unwrap();
            let granularity: Granularity = serde_json::from_value(expected["granularity"].clone()).unwrap();
            let of = |range: &&ScaledRange| {
                (range.cast.format, range.cast.granularity, range.cast.power_of_two) == (format, granularity, false)
            };
            let range = ours.ranges.iter().find(of).unwrap();
            compare_cast(range, expected, &format!("{what} {format:?} {granularity:?}"));
            lost += usize::from(range.shares.underflow > 0.0);
            num_casts += 1;
        }
        if let Some(expected) = numpy["outliers"].as_array() {
            let found = &ours.features.as_ref().unwrap().outliers;
            assert_eq!(found.len(), expected.len(), "{what}");
            for (ours, numpy) in found.iter().zip(expected) {
                assert_eq!(ours.feature as u64, numpy[0].as_u64().unwrap(), "{what}");
                same(ours.factor, numpy[1].as_f64().unwrap(), &what);
            }
        }
        num_points += compare_drift(&inspection, operand, &numpy, &what);
    }
    assert_eq!(num_casts, 12 * 10, "four sites, three operands, two formats, five scalings");
    assert!(lost > 20, "the reference must have losses to compare: {lost}");
    assert_eq!(num_points, 30, "all but the gradients of wukong-clicks, whose series is in another unit");
}

/// Steps compared: none where the series cannot be used.
fn compare_drift(inspection: &Inspection, operand: Operand, numpy: &Value, what: &str) -> usize {
    let drift = inspection.drifts.iter().find(|drift| drift.operand == operand).unwrap();
    let points = match &drift.points {
        Ok(points) => points,
        Err(reason) => {
            assert!(reason.contains("another unit"), "{what}: {reason}");
            return 0;
        }
    };
    let expected = numpy["drift"].as_array().unwrap();
    for expected in expected {
        let at = points[expected["at"].as_u64().unwrap() as usize].high;
        same(at.underflow, number(expected, "underflow"), &format!("{what} underflow along the series"));
        same(at.subnormal, number(expected, "subnormal"), &format!("{what} subnormal along the series"));
    }
    expected.len()
}
