//! A site in a word: the best that low precision offers its GEMMs, and which site to look at first.

use crate::{
    dispatch::JudgedRows,
    model::{Gemm, Quadrant, SiteId},
    views::Snapshot,
};

use super::{ReviewStanding, Standings, changed::Changed};

/// A site's verdict for the list: the best that low precision offers over its GEMMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteVerdict {
    /// GEMMs with a kernel that is safe and fast, safe but not fast, uncertain, and none.
    pub num_safe_fast: usize,
    pub num_safe: usize,
    pub num_uncertain: usize,
    pub num_unsafe: usize,
    pub num_overrides: usize,
    /// By GEMM; `None`: it does not run, or nothing is known of it yet.
    pub gemms: [Option<Quadrant>; 3],
    /// GEMMs that run.
    pub num_gemms: usize,
}

impl SiteVerdict {
    /// GEMMs that have been judged at all.
    pub fn num_known(&self) -> usize {
        self.num_safe_fast + self.num_safe + self.num_uncertain + self.num_unsafe
    }

    /// In the order of the trace's sites. `last`: of the same rows, and where they are judged otherwise since.
    pub(super) fn of_all(snapshot: &Snapshot, standings: &Standings, last: Option<(&[Self], &Changed)>) -> Vec<Self> {
        let mut all = match last {
            None => (0..snapshot.sites().len()).map(|at| Self::of(snapshot, standings, at)).collect(),
            Some((last, changed)) => {
                let mut all = last.to_vec();
                all.iter_mut().for_each(|verdict| verdict.num_overrides = 0);
                changed.sites().for_each(|at| all[at] = Self::of(snapshot, standings, at));
                all
            }
        };
        for (site, _) in snapshot.document.overrides.keys() {
            if let Some(verdict) = snapshot.index.at(site).and_then(|at| all.get_mut(at)) {
                verdict.num_overrides += 1;
            }
        }
        all
    }

    fn of(snapshot: &Snapshot, standings: &Standings, at: usize) -> Self {
        let mut verdict = Self::default();
        for gemm in Gemm::ALL.into_iter().filter(|gemm| snapshot.sites()[at].runs(*gemm)) {
            let best = standings.best(at, gemm, |_| true);
            verdict.num_gemms += 1;
            verdict.gemms[gemm as usize] = best
                .map(ReviewStanding::quadrant)
                .or_else(|| standings.is_unsupported(at, gemm).then_some(Quadrant::Unsupported));
            match best {
                Some(ReviewStanding::SafeFast) => verdict.num_safe_fast += 1,
                Some(ReviewStanding::Safe) => verdict.num_safe += 1,
                Some(ReviewStanding::Uncertain) => verdict.num_uncertain += 1,
                Some(ReviewStanding::UnsafeSlow | ReviewStanding::UnsafeFast) => verdict.num_unsafe += 1,
                None => {}
            }
        }
        verdict
    }
}

/// The site and GEMM to look at first: the one that errs most in the policy's metric even in its best
/// low-precision kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    pub site: SiteId,
    pub gemm: Gemm,
}

impl Worst {
    /// `None` before the first rows.
    pub(super) fn of(snapshot: &Snapshot, judged: &JudgedRows) -> Option<Self> {
        let metric = snapshot.document.policy.metric;
        let mut worst: Option<(f64, usize, Gemm)> = None;
        for at in 0..snapshot.sites().len() {
            for gemm in Gemm::ALL {
                let errors = judged.low(at, gemm).filter_map(|row| row.badness(metric));
                let Some(best) = errors.min_by(f64::total_cmp) else { continue };
                if worst.as_ref().is_none_or(|(known, ..)| best > *known) {
                    worst = Some((best, at, gemm));
                }
            }
        }
        worst.map(|(_, at, gemm)| Self { site: snapshot.sites()[at].id.clone(), gemm })
    }
}
