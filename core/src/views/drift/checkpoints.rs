//! Takes what a plan runs in FP8 and the rows of a run's checkpoints; gives each one's verdicts of the chosen kernels, and
//! which of them flipped from one checkpoint to the next.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    dispatch::{Policy, judge},
    model::{Gemm, KernelId, ResultRow, Safety, Site, SiteId, SiteMods, bounded_list},
    views::{PlanView, Snapshot},
};

/// One GEMM that a plan runs below high precision. By numbers: a window sends 300,000 of them to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowedGemm {
    /// In the open trace's forward order.
    pub site: u32,
    pub gemm: Gemm,
    /// Its place in [`Followed::kernels`].
    pub kernel: u16,
}

/// What is followed over the checkpoints: the plan as it stands, judged by its policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    pub policy: Policy,
    pub mods: SiteMods,
    pub kernels: Vec<KernelId>,
    #[serde(deserialize_with = "bounded")]
    pub gemms: Vec<FollowedGemm>,
}

/// Every GEMM of 100,000 sites.
const NAMED: usize = 300_000;

fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<FollowedGemm>, D::Error> {
    bounded_list(deserializer, NAMED)
}

/// By GEMM, in the order of [`Followed::gemms`]; `None`: there is no row of the chosen kernel.
pub type Verdicts = Vec<Option<Safety>>;

impl Followed {
    pub fn of(snapshot: &Snapshot, plan: &PlanView) -> Self {
        let document = &snapshot.document;
        let (policy, mods) = (document.policy.clone(), document.mods.clone());
        let mut followed = Self { policy, mods, kernels: Vec::new(), gemms: Vec::new() };
        for at in 0..snapshot.sites().len() {
            for gemm in Gemm::ALL {
                let Some(chosen) = plan.pick_at(at, gemm).map(|choice| &choice.kernel) else { continue };
                if chosen.is_low_precision() {
                    let kernel = followed.place_of(chosen);
                    followed.gemms.push(FollowedGemm { site: at as u32, gemm, kernel });
                }
            }
        }
        followed
    }

    fn place_of(&mut self, kernel: &KernelId) -> u16 {
        let known = self.kernels.iter().position(|known| known == kernel);
        let at = known.unwrap_or_else(|| {
            self.kernels.push(kernel.clone());
            self.kernels.len() - 1
        });
        at as u16
    }

    /// Those of the open trace, by the rows that are shown.
    pub fn verdicts_here(&self, snapshot: &Snapshot) -> Verdicts {
        let verdict = |of: &FollowedGemm| {
            let kernel = self.kernels.get(usize::from(of.kernel))?;
            let row = snapshot.row(of.site as usize, of.gemm, kernel)?;
            Some(judge(row, &self.policy, snapshot.loss()).0)
        };
        self.gemms.iter().map(verdict).collect()
    }

    /// `sites`: those of the open trace, in forward order. `loss`: that of the rows' own trace.
    pub fn verdicts<'a>(&self, sites: &[Site], rows: impl IntoIterator<Item = &'a ResultRow>, loss: f64) -> Verdicts {
        let key = |of: &FollowedGemm| {
            let (site, kernel) = (sites.get(of.site as usize)?, self.kernels.get(usize::from(of.kernel))?);
            Some((&site.id, of.gemm, kernel))
        };
        let places = self.gemms.iter().enumerate().filter_map(|(at, of)| key(of).map(|key| (key, at)));
        let at: BTreeMap<(&SiteId, Gemm, &KernelId), usize> = places.collect();
        let mut verdicts = vec![None; self.gemms.len()];
        for row in rows {
            if let Some(at) = at.get(&(&row.site, row.gemm, &row.kernel))
                && row.mods == *self.mods.of(&row.site)
            {
                verdicts[*at] = Some(judge(row, &self.policy, loss).0);
            }
        }
        verdicts
    }
}

/// A snapshot of the open trace's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Of its trace, as a session names it.
    pub path: String,
    pub step: u64,
    /// `Err`: why there are none, in one line.
    pub verdicts: Result<Verdicts, String>,
}

/// How many of the followed GEMMs are what at a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    pub safe: usize,
    pub uncertain: usize,
    pub unsafe_: usize,
    /// Without a row.
    pub missing: usize,
}

impl VerdictCounts {
    /// With those that have no row.
    pub fn all(&self) -> usize {
        self.safe + self.uncertain + self.unsafe_ + self.missing
    }

    pub fn of(verdicts: &[Option<Safety>]) -> Self {
        let count = |of: Option<Safety>| verdicts.iter().filter(|verdict| **verdict == of).count();
        Self {
            safe: count(Some(Safety::Safe)),
            uncertain: count(Some(Safety::Uncertain)),
            unsafe_: count(Some(Safety::Unsafe)),
            missing: count(None),
        }
    }
}

/// A followed GEMM, by its place, whose verdict is another than at the checkpoint before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafetyFlip {
    pub at: usize,
    pub from: Safety,
    pub to: Safety,
}

/// A checkpoint as the timeline shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelinePoint {
    pub path: String,
    pub step: u64,
    /// `Err`: why there are none, in one line.
    pub counts: Result<VerdictCounts, String>,
    /// Since the checkpoint before that has verdicts, the worst first.
    pub flips: Vec<SafetyFlip>,
}

/// The checkpoints in their order. `open`: path and verdicts of the open trace, whose rows are known here better than by a file.
pub fn timeline(checkpoints: &[Checkpoint], open: (&str, &[Option<Safety>])) -> Vec<TimelinePoint> {
    let mut before: Option<&[Option<Safety>]> = None;
    let mut points = Vec::new();
    for Checkpoint { path, step, verdicts } in checkpoints {
        let has_rows = open.1.iter().any(Option::is_some);
        let verdicts = if path == open.0 && has_rows { Ok(open.1) } else { verdicts.as_deref().map_err(Clone::clone) };
        let flips = verdicts.as_ref().ok().zip(before).map(|(now, before)| safety_flips(before, now));
        before = verdicts.as_ref().ok().copied().or(before);
        let counts = verdicts.map(VerdictCounts::of);
        points.push(TimelinePoint { path: path.clone(), step: *step, counts, flips: flips.unwrap_or_default() });
    }
    points
}

/// What flipped from one checkpoint to a later one, the worst first. Where either has no row nothing flips.
fn safety_flips(before: &[Option<Safety>], after: &[Option<Safety>]) -> Vec<SafetyFlip> {
    let pairs = before.iter().zip(after).enumerate();
    let mut flips: Vec<SafetyFlip> = pairs
        .filter_map(|(at, (from, to))| {
            let (from, to) = ((*from)?, (*to)?);
            (from != to).then_some(SafetyFlip { at, from, to })
        })
        .collect();
    flips.sort_by_key(|flip| (std::cmp::Reverse(flip.to), flip.at));
    flips
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::{results, row},
        model::{ModKind, ModSet},
    };

    fn followed() -> Followed {
        let gemms = (0..4).map(|site| FollowedGemm { site, gemm: Gemm::Fprop, kernel: 0 }).collect();
        let kernels = vec![KernelId::new("te/current")];
        Followed { policy: Policy::paper(), mods: SiteMods::none(), kernels, gemms }
    }

    #[test]
    fn verdicts_are_those_of_the_chosen_kernels_under_the_mods_in_force() {
        let of = |site, kernel, mere| row(site, Gemm::Fprop, kernel, mere, Some(1.2), 0.0);
        let mut modded = of("c", "te/current", 0.01);
        modded.mods = ModSet([ModKind::NoBias].into());
        let rows = [of("a", "te/current", 0.05), of("a", "fbgemm/rowwise", 0.9), of("b", "te/current", 0.9), modded];
        // A fourth site that the trace does not have comes from somebody's message alone.
        let sites = results(&["a", "b", "c"], Vec::new()).meta.manifest.sites;
        let verdicts = followed().verdicts(&sites, &rows, 0.5);
        assert_eq!(verdicts, [Some(Safety::Safe), Some(Safety::Unsafe), None, None]);
        let counts = VerdictCounts::of(&verdicts);
        assert_eq!((counts.safe, counts.uncertain, counts.unsafe_, counts.missing), (1, 0, 1, 2));
    }

    #[test]
    fn each_point_is_held_against_the_last_one_that_has_rows() {
        use Safety::{Safe, Unsafe};
        let at = |step: u64, verdicts| Checkpoint { path: format!("{step}"), step, verdicts };
        let all = [
            at(100, Ok(vec![Some(Safe), Some(Safe)])),
            at(200, Err("no results lie beside it".to_owned())),
            at(300, Ok(vec![Some(Unsafe), Some(Safe)])),
            at(400, Err("no results lie beside it".to_owned())),
        ];
        let points = timeline(&all, ("400", &[Some(Unsafe), Some(Unsafe)]));
        let flips: Vec<Vec<usize>> =
            points.iter().map(|point| point.flips.iter().map(|flip| flip.at).collect()).collect();
        assert_eq!(flips, [vec![], vec![], vec![0], vec![1]]);
        assert!(points[1].counts.is_err() && points[3].counts.is_ok());
        // Without rows of its own the open one is what its file says.
        assert!(timeline(&all, ("400", &[None, None]))[3].counts.is_err());
    }

    #[test]
    fn the_worst_flips_come_first_and_what_has_no_row_does_not_flip() {
        use Safety::{Safe, Uncertain, Unsafe};
        let before = [Some(Unsafe), Some(Safe), Some(Safe), None, Some(Safe)];
        let after = [Some(Safe), Some(Uncertain), Some(Unsafe), Some(Unsafe), Some(Safe)];
        let flips = safety_flips(&before, &after);
        assert_eq!(
            flips.iter().map(|flip| (flip.at, flip.to)).collect::<Vec<_>>(),
            [(2, Unsafe), (1, Uncertain), (0, Safe)]
        );
    }
}
