//! Takes a site's choices, gives what each of its GEMMs saves: by its own row, and as its part of what the site saves.

use crate::{
    dispatch::{Target, own_us, shared_casts},
    model::{Gemm, KernelId, ResultRow},
    views::{Baseline, PlanView, Snapshot},
};

/// By GEMM, in microseconds against the baseline; `None`: no time is known.
#[derive(Clone, Copy, Debug)]
pub(in crate::views) struct Saved {
    /// A shared cast is both readers' doing: half is credited to each. Codes are credited to who reads them, their store to who
    /// stores them.
    pub alone: [Option<f64>; 3],
    /// The same, and where sites like this one were timed as a whole a part of what that comes to beyond: by the time that each
    /// GEMM in low precision takes in the baseline. They add up to what the site saves.
    pub credited: [Option<f64>; 3],
}

impl Saved {
    pub fn at(snapshot: &Snapshot, plan: &PlanView, at: usize) -> Self {
        let choices = Gemm::ALL.map(|gemm| plan.pick_at(at, gemm).map(|choice| &choice.kernel));
        let row = |gemm, kernel: &KernelId| snapshot.row(at, gemm, kernel);
        let chosen = ChosenKernels::of(row, choices, &snapshot.document.policy.baseline);
        let timed_us = plan.decided.as_ref().and_then(|decided| decided.timed_saved_us(at));
        chosen.saved(timed_us, plan.chain_at(at).map_or(0.0, |chain| chain.saved_us))
    }

    /// What a baseline's choices save. `target`: where sites are timed now. Rows of another run are held against these alone: what a
    /// site took there as a whole is not known here.
    pub fn of_baseline(
        (snapshot, target): (&Snapshot, &Target),
        (baseline, at): (&Baseline, usize),
        choices: [&KernelId; 3],
        chain_us: f64,
    ) -> Self {
        let policy = baseline.plan.policy();
        let row = |gemm, kernel: &KernelId| baseline.row(at, gemm, kernel);
        let chosen = ChosenKernels::of(row, choices.map(Some), &policy.baseline);
        let site = snapshot.sites().get(at).filter(|_| !baseline.by_kernel);
        let timed_us = site.and_then(|site| target.saved_us(site, policy, chosen.low(), chosen.references));
        chosen.saved(timed_us, chain_us)
    }
}

/// Of one site.
struct ChosenKernels<'a> {
    rows: [Option<&'a ResultRow>; 3],
    /// It is the baseline.
    is_high: [bool; 3],
    /// What the baseline takes.
    references: [Option<f64>; 3],
}

impl<'a> ChosenKernels<'a> {
    fn of(
        row: impl Fn(Gemm, &KernelId) -> Option<&'a ResultRow>,
        choices: [Option<&KernelId>; 3],
        baseline: &KernelId,
    ) -> Self {
        let reference = |gemm| row(gemm, baseline)?.latency.latency_us.filter(|us| *us > 0.0 && us.is_finite());
        Self {
            rows: Gemm::ALL.map(|gemm| row(gemm, choices[gemm as usize]?)),
            is_high: choices.map(|choice| choice == Some(baseline)),
            references: Gemm::ALL.map(reference),
        }
    }

    fn low(&self) -> [Option<&'a ResultRow>; 3] {
        [0, 1, 2].map(|at| self.rows[at].filter(|_| !self.is_high[at]))
    }

    fn saved(&self, timed_us: Option<f64>, chain_us: f64) -> Saved {
        let mut alone = [0, 1, 2].map(|at| {
            let reference = self.references[at]?;
            let own = if self.is_high[at] { reference } else { own_us(self.rows[at]?, reference)? };
            Some(reference - own)
        });
        for cast in shared_casts(self.rows, self.references) {
            for gemm in cast.gemms {
                alone[gemm as usize] = alone[gemm as usize].map(|us| us + cast.saved_us / 2.0);
            }
        }
        let mut credited = timed_us.map_or(alone, |us| self.credited(alone, us));
        let fprop = Gemm::Fprop as usize;
        for saved in [&mut alone, &mut credited] {
            saved[fprop] = saved[fprop].map(|us| us + chain_us);
        }
        Saved { alone, credited }
    }

    fn credited(&self, alone: [Option<f64>; 3], timed_us: f64) -> [Option<f64>; 3] {
        let low = self.low();
        let is_low = |at: &usize| low[*at].is_some();
        let known = (0..3).filter(is_low).all(|at| self.references[at].is_some());
        let weight = |at: usize| self.references[at].filter(|_| known).unwrap_or(1.0);
        let weights: f64 = (0..3).filter(is_low).map(weight).sum();
        let rest = timed_us - alone.iter().flatten().sum::<f64>();
        [0, 1, 2].map(|at| match is_low(&at) {
            true => Some(alone[at].unwrap_or(0.0) + rest * weight(at) / weights),
            false => alone[at],
        })
    }
}
