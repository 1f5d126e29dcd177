//! Takes records of one run, gives what a reader asks first: the best kernel of each GEMM, geometric means,
//! and whether a second run says the same.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::{Gemm, GemmShape, Kernel, KernelId, KernelRecord, baseline_kernel, kernel};

use super::quantile::{geomean, quantile_of};

/// Two runs agree when nine in ten medians moved by no more (gpu.md's reproducibility).
pub const REPEATS_WITHIN: f64 = 0.03;

/// Speed-ups over BF16 of the same run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Speedups {
    /// Both operands cast: training.
    pub both: Option<f64>,
    /// The weight already cast: inference.
    pub cached: Option<f64>,
    /// The bare GEMM.
    pub gemm: Option<f64>,
}

/// A kernel with its speed-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Winner {
    pub kernel: KernelId,
    pub speedup: f64,
}

/// One GEMM at one shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GemmSummary {
    pub gemm: Gemm,
    pub shape: GemmShape,
    pub baseline_us: f64,
    /// The fastest native kernel in each sense, BF16 a candidate: never below 1.
    pub best_both: Winner,
    pub best_cached: Winner,
    pub best_gemm: Winner,
}

/// Geometric means over shapes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Means {
    pub gemm: Gemm,
    /// `None`: the best native kernel of each shape.
    pub kernel: Option<KernelId>,
    /// Shapes with a latency.
    pub shapes: usize,
    pub speedups: Speedups,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub gemms: Vec<GemmSummary>,
    pub means: Vec<Means>,
}

type At = (Gemm, GemmShape);

fn speedups(record: &KernelRecord, baseline: &KernelRecord) -> Speedups {
    // A kernel with the tail inside is compared with BF16 and the tail by itself behind it.
    let tail_us = record.tail_us.unwrap_or(0.0);
    let over = |of: fn(&KernelRecord) -> Option<f64>| match (of(baseline), of(record)) {
        (Some(base), Some(us)) if us > 0.0 && base > 0.0 => Some((base + tail_us) / us),
        _ => None,
    };
    Speedups { both: over(|r| r.latency_us), cached: over(|r| r.latency_cached_us), gemm: over(|r| r.gemm_us) }
}

/// Of native kernels; shapes in order of appearance.
pub fn summarise(records: &[KernelRecord]) -> Summary {
    let base_id = baseline_kernel();
    let bases: BTreeMap<At, &KernelRecord> =
        records.iter().filter(|r| r.kernel == base_id && r.supported).map(|r| ((r.gemm, r.shape), r)).collect();
    let mut compared: BTreeMap<At, Vec<(&KernelId, Speedups)>> = BTreeMap::new();
    let mut order: Vec<At> = Vec::new();
    for record in records.iter().filter(|record| record.supported) {
        let at = (record.gemm, record.shape);
        let Some(base) = bases.get(&at) else { continue };
        if !order.contains(&at) {
            order.push(at);
        }
        compared.entry(at).or_default().push((&record.kernel, speedups(record, base)));
    }
    let gemms = order.iter().filter_map(|at| gemm_summary(*at, bases[at], &compared[at])).collect::<Vec<_>>();
    let means = Gemm::ALL.into_iter().flat_map(|gemm| means(gemm, &gemms, &order, &compared)).collect();
    Summary { gemms, means }
}

fn gemm_summary((gemm, shape): At, base: &KernelRecord, all: &[(&KernelId, Speedups)]) -> Option<GemmSummary> {
    // BF16 is itself 1.0, and stays where nothing native is faster.
    let best = |of: fn(&Speedups) -> Option<f64>| {
        let stay = Winner { kernel: base.kernel.clone(), speedup: 1.0 };
        // One with the tail inside does more than a GEMM.
        let is_gemm = |kernel: &Kernel| kernel.is_native() && !kernel.has_tail();
        all.iter().filter(|(id, _)| kernel(id.as_str()).is_some_and(is_gemm)).fold(
            stay,
            |best, (id, speedups)| match of(speedups) {
                Some(speedup) if speedup > best.speedup => Winner { kernel: (*id).clone(), speedup },
                _ => best,
            },
        )
    };
    Some(GemmSummary {
        gemm,
        shape,
        baseline_us: base.latency_us?,
        best_both: best(|speedups| speedups.both),
        best_cached: best(|speedups| speedups.cached),
        best_gemm: best(|speedups| speedups.gemm),
    })
}

fn means(
    gemm: Gemm,
    gemms: &[GemmSummary],
    order: &[At],
    compared: &BTreeMap<At, Vec<(&KernelId, Speedups)>>,
) -> Vec<Means> {
    let here: Vec<&GemmSummary> = gemms.iter().filter(|summary| summary.gemm == gemm).collect();
    if here.is_empty() {
        return Vec::new();
    }
    let mean = |of: fn(&GemmSummary) -> f64| geomean(&here.iter().map(|summary| of(summary)).collect::<Vec<_>>());
    let best = Speedups {
        both: mean(|s| s.best_both.speedup),
        cached: mean(|s| s.best_cached.speedup),
        gemm: mean(|s| s.best_gemm.speedup),
    };
    let mut by_kernel: BTreeMap<&KernelId, Vec<Speedups>> = BTreeMap::new();
    for (id, speedups) in order.iter().filter(|at| at.0 == gemm).flat_map(|at| &compared[at]) {
        by_kernel.entry(id).or_default().push(*speedups);
    }
    let first = Means { gemm, kernel: None, shapes: here.len(), speedups: best };
    let each = by_kernel.into_iter().map(|(id, all)| {
        let mean = |of: fn(&Speedups) -> Option<f64>| geomean(&all.iter().filter_map(of).collect::<Vec<_>>());
        let speedups = Speedups { both: mean(|s| s.both), cached: mean(|s| s.cached), gemm: mean(|s| s.gemm) };
        Means { gemm, kernel: Some(id.clone()), shapes: all.iter().filter(|s| s.both.is_some()).count(), speedups }
    });
    std::iter::once(first).chain(each).collect()
}

/// How far medians moved between two runs, as shares: .03 is 3 %.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    /// Kernels at GEMMs that both runs timed.
    pub compared: usize,
    pub p50: f64,
    pub p90: f64,
    pub worst: f64,
    /// Geometric mean of new / old: a run that is slower throughout.
    pub ratio: f64,
    /// The two runs were on devices or with drivers or versions that differ.
    pub other_circumstances: bool,
    pub passes: bool,
}

/// `None`: the two have no timed kernel, GEMM and shape in common.
pub fn moved(new: &[KernelRecord], old: &[KernelRecord]) -> Option<Moved> {
    let keyed = |r: &KernelRecord| ((r.kernel.clone(), r.gemm, r.shape), r.latency_us.filter(|us| *us > 0.0));
    let before: BTreeMap<_, Option<f64>> = old.iter().map(keyed).collect();
    let ratios: Vec<f64> = new
        .iter()
        .filter_map(|record| {
            let (key, us) = keyed(record);
            Some(us? / (*before.get(&key)?)?)
        })
        .collect();
    let off: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect();
    let p90 = quantile_of(&off, 0.9)?;
    let circumstances = |records: &[KernelRecord]| {
        records.first().map(|first| (first.device.clone(), first.driver.clone(), first.versions.clone()))
    };
    Some(Moved {
        compared: ratios.len(),
        p50: quantile_of(&off, 0.5)?,
        p90,
        worst: quantile_of(&off, 1.0)?,
        ratio: geomean(&ratios)?,
        other_circumstances: circumstances(new) != circumstances(old),
        passes: p90 <= REPEATS_WITHIN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::KernelDb;

    fn graphs() -> Vec<KernelRecord> {
        let name = "h200-cublaslt-cuda-graphs";
        KernelDb::builtin().into_iter().find(|database| database.name == name).unwrap().records
    }

    #[test]
    fn the_recorded_database_says_what_the_docs_say() {
        let summary = summarise(&graphs());
        assert_eq!(summary.gemms.len(), 27);
        let first = &summary.gemms[0];
        assert_eq!((first.shape, first.best_both.speedup), (GemmShape { m: 2048, k: 256, n: 768 }, 1.0));
        assert_eq!(first.best_both.kernel, baseline_kernel());
        assert!(summary.gemms.iter().all(|gemm| gemm.best_cached.speedup >= 1.0));
        let rowwise = summary
            .means
            .iter()
            .find(|means| means.kernel.as_ref().is_some_and(|kernel| kernel.as_str() == "cublaslt/fp8-rowwise+fast"));
        let rowwise = rowwise.unwrap();
        // docs/reference/numerics.md: a one-pass rowwise cast + GEMM .99x with both operands cast, 1.19x with the weight
        // cached.
        assert!((rowwise.speedups.both.unwrap() - 0.99).abs() < 0.01, "{rowwise:?}");
        assert!((rowwise.speedups.cached.unwrap() - 1.19).abs() < 0.01, "{rowwise:?}");
        let best = summary.means.iter().find(|means| means.kernel.is_none()).unwrap();
        assert!(best.speedups.both > rowwise.speedups.both);
    }

    #[test]
    fn a_run_repeats_or_does_not() {
        let old = graphs();
        let scaled = |factor: f64, every: usize| -> Vec<KernelRecord> {
            let factor = |i: usize| if i.is_multiple_of(every) { factor } else { 1.0 };
            let slower = |(i, r): (usize, &KernelRecord)| KernelRecord {
                latency_us: r.latency_us.map(|us| us * factor(i)),
                ..r.clone()
            };
            old.iter().enumerate().map(slower).collect()
        };
        let same = moved(&old, &old).unwrap();
        assert_eq!((same.compared, same.p90, same.passes, same.other_circumstances), (54, 0.0, true, false));
        assert!(moved(&scaled(1.02, 1), &old).unwrap().passes);
        let slower = moved(&scaled(1.04, 1), &old).unwrap();
        assert!(!slower.passes && (slower.p90 - 0.04).abs() < 1e-9 && (slower.ratio - 1.04).abs() < 1e-9);
        let outliers = moved(&scaled(1.5, 20), &old).unwrap();
        assert!(outliers.passes && outliers.worst > 0.49, "one in twenty may move: {outliers:?}");
        assert_eq!(moved(&[], &old), None);
    }
}
