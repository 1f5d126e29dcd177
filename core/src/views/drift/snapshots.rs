//! Takes the same site in several traces of one run, and their results; gives what moved between them: amax,
//! reach of the features, histogram, bias norm, and verdicts that flipped.

use serde::{Deserialize, Serialize};

use crate::{
    dispatch::{Policy, judge},
    model::{Gemm, KernelId, ModSet, Quadrant, ResultRow, SiteId},
    views::distribution::{Inspection, Operand, OperandInspection},
};

/// One operand between two snapshots, later over earlier. `None`: one of the two does not have it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperandChange {
    pub from_step: u64,
    pub to_step: u64,
    pub operand: Operand,
    pub amax: Option<(f64, f64)>,
    /// Largest magnitude among the extreme quantiles of all features.
    pub largest_reach: Option<(f64, f64)>,
    /// The median feature's distance between its extreme quantiles.
    pub typical_spread: Option<(f64, f64)>,
    /// Powers of two by which values have moved on average, whichever way.
    pub octaves_moved: Option<f64>,
    /// The bias norm that each snapshot's series ends with; told with the input.
    pub bias_norm: Option<(f64, f64)>,
}

/// A kernel whose verdict is another in the later results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictFlip {
    pub site: SiteId,
    pub gemm: Gemm,
    pub kernel: KernelId,
    pub from: Quadrant,
    pub to: Quadrant,
}

/// Consecutive snapshots of one site, by step. `Err`: they are not of the same site or run, or there is no
/// second one.
pub fn snapshots(of: &[(u64, &Inspection)]) -> Result<Vec<OperandChange>, String> {
    let mut ordered: Vec<&(u64, &Inspection)> = of.iter().collect();
    ordered.sort_by_key(|(step, _)| *step);
    let [first, rest @ ..] = ordered.as_slice() else { return Err("there is no snapshot".to_owned()) };
    if rest.is_empty() {
        return Err("there is one snapshot only".to_owned());
    }
    if let Some((_, other)) = rest.iter().find(|(_, other)| other.site.id != first.1.site.id) {
        return Err(format!("{} is another site than {}", other.site.id, first.1.site.id));
    }
    if let Some((_, other)) = rest.iter().find(|(_, other)| other.run != first.1.run) {
        return Err(format!("run '{}' is another run than '{}'", other.run, first.1.run));
    }
    let pairs = ordered.windows(2);
    Ok(pairs.flat_map(|pair| Operand::ALL.map(|operand| change(pair[0], pair[1], operand))).collect())
}

fn change(
    (from_step, from): &(u64, &Inspection),
    (to_step, to): &(u64, &Inspection),
    operand: Operand,
) -> OperandChange {
    let (a, b) = (from.operand(operand), to.operand(operand));
    let amax = |side: Option<&OperandInspection>| side.and_then(|of| of.amax.as_ref().ok()).map(|(amax, _)| *amax);
    let features = |side: Option<&OperandInspection>| {
        side.and_then(|of| of.features.as_ref().ok()).map(|f| (f.largest_reach, f.typical_spread))
    };
    let (fa, fb) = (features(a), features(b));
    let histograms = a.and_then(|a| a.histogram.as_ref().ok()).zip(b.and_then(|b| b.histogram.as_ref().ok()));
    let norm = |of: &Inspection| of.series("bias_norm").and_then(|series| series.last);
    OperandChange {
        from_step: *from_step,
        to_step: *to_step,
        operand,
        amax: amax(a).zip(amax(b)),
        largest_reach: fa.zip(fb).map(|(a, b)| (a.0, b.0)),
        typical_spread: fa.zip(fb).map(|(a, b)| (a.1, b.1)),
        octaves_moved: histograms.and_then(|(a, b)| b.octaves_from(a)),
        bias_norm: norm(from).zip(norm(to)).filter(|_| operand == Operand::Input),
    }
}

/// Rows of two snapshots' results under the same mods, each judged with its own trace's loss. Rows that one
/// side lacks are not flips.
pub fn verdict_flips<'a>(
    from: (impl IntoIterator<Item = &'a ResultRow>, f64),
    to: (impl IntoIterator<Item = &'a ResultRow>, f64),
    mods: &ModSet,
    policy: &Policy,
) -> Vec<VerdictFlip> {
    let key = |row: &ResultRow| (row.site.clone(), row.gemm, row.kernel.clone());
    let before: std::collections::BTreeMap<_, Quadrant> = (from.0.into_iter())
        .filter(|row| row.mods == *mods)
        .map(|row| (key(row), judge(row, policy, from.1).2))
        .collect();
    let mut flips: Vec<VerdictFlip> = (to.0.into_iter())
        .filter(|row| row.mods == *mods)
        .filter_map(|row| {
            let key = key(row);
            let (from, to) = (*before.get(&key)?, judge(row, policy, to.1).2);
            let (site, gemm, kernel) = key;
            (from != to).then_some(VerdictFlip { site, gemm, kernel, from, to })
        })
        .collect();
    flips.sort_by(|a, b| (&a.site, a.gemm, &a.kernel).cmp(&(&b.site, b.gemm, &b.kernel)));
    flips
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dispatch::testing::row, trace::WeightStats, views::distribution::tests as fixture};

    #[test]
    fn what_moved_is_told_operand_by_operand() {
        let early = Inspection::of(&fixture::stats(), &fixture::manifest());
        let mut stats = fixture::stats();
        if let WeightStats::Snapshot(weight) = &mut stats.weight {
            weight.iter_mut().for_each(|value| *value *= 4.0);
        }
        stats.input.amax = Some(10.0);
        let late = Inspection::of(&stats, &fixture::manifest());
        // Given in any order.
        let changes = snapshots(&[(90, &late), (70, &early)]).unwrap();
        let of = |operand| changes.iter().find(|change| change.operand == operand).unwrap();
        assert_eq!((of(Operand::Input).from_step, of(Operand::Input).to_step), (70, 90));
        assert_eq!(of(Operand::Input).amax, Some((5.0, 10.0)));
        assert_eq!(of(Operand::Input).bias_norm, Some((2.0, 2.0)));
        assert!((of(Operand::Weight).octaves_moved.unwrap() - 2.0).abs() < 1e-9, "four times is two octaves");
        let (before, after) = of(Operand::Weight).typical_spread.unwrap();
        assert!((after / before - 4.0).abs() < 1e-5);
        assert_eq!(of(Operand::GradOutput).amax, None);
        let mut other = late.clone();
        other.run = "q".to_owned();
        assert_eq!(snapshots(&[(1, &early), (2, &other)]).unwrap_err(), "run 'q' is another run than 'r'");
        assert!(snapshots(&[(1, &early)]).is_err());
    }

    #[test]
    fn verdicts_that_changed_are_listed() {
        let at = |mere| {
            [
                row("s", Gemm::Fprop, "te/current", mere, Some(1.2), 0.0),
                row("s", Gemm::Fprop, "fbgemm/rowwise", 0.1, Some(1.2), 0.0),
            ]
        };
        let (early, late) = (at(0.1), at(0.4));
        let flips = verdict_flips((&early, 0.5), (&late, 0.5), &ModSet::none(), &Policy::paper());
        assert_eq!(flips.len(), 1);
        assert_eq!(
            (flips[0].kernel.as_str(), flips[0].from, flips[0].to),
            ("te/current", Quadrant::SafeFast, Quadrant::UnsafeFast)
        );
    }
}
