//! The present against a baseline: takes a snapshot with the plan of now, gives for each GEMM what the baseline runs, what it
//! saves and how much more is saved now, and in one sentence what changed. Where the baseline has nothing to say there
//! is nothing, never a zero.

use crate::{
    dispatch::{Target, parallel},
    format::number::{counted_as, trimmed},
    model::{Gemm, KernelId, Metric, ResultRow},
    plan::{Decided, Got},
    views::{Baseline, PlanView, Snapshot},
};

use super::{FrontierAxis, plan::Saved};

/// What stands where the baseline has no such site, GEMM or row.
pub const NOT_IN_BASELINE: &str = "not in the baseline";

/// Sums of the same microseconds in another order differ by less.
pub const SAME_US: f64 = 1e-6;

/// One GEMM that is in the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct VersusLine {
    /// What the baseline runs.
    pub kernel: KernelId,
    /// Another kernel is chosen now.
    pub moved: bool,
    /// What the baseline's kernel saves against BF16, by the baseline's rows.
    pub saved_us: Option<f64>,
    /// How much more is saved now; below 0: less. `None`: a time is not known now or there.
    pub delta_us: Option<f64>,
}

/// Everything that is compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Versus {
    pub name: String,
    /// Values are divided by the same kernel's in the baseline; otherwise by those of what it runs.
    pub by_kernel: bool,
    /// In forward order, three a site; `None`: not in the baseline.
    lines: Vec<Option<VersusLine>>,
    /// Over all GEMMs whose times are known in both.
    pub saved_us: f64,
    pub num_moved: usize,
    /// GEMMs that are not in the baseline.
    pub num_missing: usize,
    /// GEMMs of both without a time in one of them: in no sum.
    pub num_without_time: usize,
    /// The baseline as a point of the frontier: its speed-up, then by axis what it costs.
    pub speedup: Option<f64>,
    costs: [Option<f64>; 3],
    /// How much more the plan of now costs; `None` where either is not known or the two are not of the same GEMMs.
    pub loss_cost: Option<f64>,
}

impl Versus {
    pub(super) fn of(snapshot: &Snapshot, plan: &PlanView) -> Option<Self> {
        let baseline = snapshot.baseline.as_deref()?;
        let (decided, then) = (plan.decided.as_ref()?, baseline.plan.decided()?);
        let totals = baseline.plan.totals();
        let mut found = Self { name: baseline.name.clone(), by_kernel: baseline.by_kernel, ..Self::default() };
        found.lines = lines(snapshot, plan, (baseline, &then));
        found.saved_us = found.lines.iter().flatten().filter_map(|line| line.delta_us).sum();
        found.num_moved = found.lines.iter().flatten().filter(|line| line.moved).count();
        found.num_missing = found.lines.iter().filter(|line| line.is_none()).count();
        found.num_without_time = found.lines.iter().flatten().filter(|line| line.delta_us.is_none()).count();
        found.speedup = totals.speedup;
        found.costs = FrontierAxis::ALL.map(|axis| match axis {
            FrontierAxis::LossCost => totals.loss_cost_hi,
            FrontierAxis::WorstError => baseline.plan.worst(snapshot.document.policy.metric),
            FrontierAxis::WorstNoise => baseline.plan.worst(Metric::NoiseShare),
        });
        let both = decided.totals.loss_cost.zip(totals.loss_cost);
        found.loss_cost = both.filter(|_| found.num_missing == 0).map(|(now, then)| now - then);
        Some(found)
    }

    /// `None`: not in the baseline.
    pub fn line(&self, at: usize, gemm: Gemm) -> Option<&VersusLine> {
        self.lines.get(3 * at + gemm as usize)?.as_ref()
    }

    /// What the baseline costs on that axis; as the frontier counts it, a loss cost by its upper end.
    pub fn cost(&self, axis: FrontierAxis) -> Option<f64> {
        self.costs[axis as usize].filter(|cost| *cost > 0.0)
    }

    /// What a kernel's row is compared with.
    pub fn base<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        at: usize,
        gemm: Gemm,
        kernel: &KernelId,
    ) -> Option<&'a ResultRow> {
        let kernel = if self.by_kernel { kernel } else { &self.line(at, gemm)?.kernel };
        snapshot.baseline.as_ref()?.row(at, gemm, kernel)
    }

    /// `Saves .42 ms more, 12 GEMMs moved, loss cost +3.1e-6`.
    pub fn headline(&self) -> String {
        let known = self.num_without_time + self.num_missing < self.lines.len();
        let ms = self.saved_us / 1e3;
        let saves = match (known, trimmed(ms.abs())) {
            (false, _) => "Times are not known in both".to_owned(),
            (true, _) if self.saved_us.abs() < SAME_US => "Saves as much".to_owned(),
            (true, text) => format!("Saves {text} ms {}", if ms > 0.0 { "more" } else { "less" }),
        };
        let moved = match self.num_moved {
            0 => "no GEMM moved".to_owned(),
            moved => counted_as(moved, "GEMM moved", "GEMMs moved"),
        };
        let loss = match self.loss_cost {
            None => String::new(),
            Some(cost) if cost.abs() < 1e-15 => ", same loss cost".to_owned(),
            Some(cost) => format!(", loss cost {}", signed(cost)),
        };
        format!("{saves}, {moved}{loss}")
    }

    /// What the sentence leaves out, for a line below it; `None`: nothing.
    pub fn left_out(&self) -> Option<String> {
        let missing = (self.num_missing > 0)
            .then(|| counted_as(self.num_missing, "GEMM is not in the baseline", "GEMMs are not in the baseline"));
        let untimed = (self.num_without_time > 0)
            .then(|| counted_as(self.num_without_time, "GEMM has no time in both", "GEMMs have no time in both"));
        let told: Vec<String> = missing.into_iter().chain(untimed).collect();
        (!told.is_empty()).then(|| told.join(", "))
    }
}

/// `+3.1e-6`, `−.42`, and 0 without a sign.
fn signed(value: f64) -> String {
    let text = trimmed(value.abs());
    if value > 0.0 { format!("+{text}") } else { format!("−{text}") }
}

fn lines(snapshot: &Snapshot, plan: &PlanView, (baseline, then): (&Baseline, &Decided)) -> Vec<Option<VersusLine>> {
    let ids = snapshot.index.ids();
    let (sites, chains) = (then.picks.as_chunks::<3>().0, &then.chains);
    let target = snapshot.target();
    let of_site = |place: usize| {
        let (then, site) = (&sites[place], sites[place][0].site);
        // Nearly always the same sites in the same order.
        let same = ids.get(place).is_some_and(|id| id == site);
        let at = if same { Some(place) } else { snapshot.index.at(site) };
        let chain_us = chains.get(site).map_or(0.0, |chain| chain.saved_us);
        at.map(|at| (at, lines_at((snapshot, &target), plan, baseline, at, (then, chain_us))))
    };
    let mut lines = vec![None; 3 * ids.len()];
    for (at, of_site) in parallel::map(sites.len(), of_site).into_iter().flatten() {
        for (gemm, line) in of_site.into_iter().enumerate().filter(|(_, line)| line.is_some()) {
            lines[3 * at + gemm] = line;
        }
    }
    lines
}

/// Of one site, in the order of [`Gemm::ALL`].
fn lines_at(
    (snapshot, target): (&Snapshot, &Target),
    plan: &PlanView,
    baseline: &Baseline,
    at: usize,
    (then, chain_us): (&[Got; 3], f64),
) -> [Option<VersusLine>; 3] {
    let choices = Gemm::ALL.map(|gemm| then[gemm as usize].kernel);
    let before = Saved::of_baseline((snapshot, target), (baseline, at), choices, chain_us).credited;
    let now = Saved::at(snapshot, plan, at);
    let now = if baseline.by_kernel { now.alone } else { now.credited };
    Gemm::ALL.map(|gemm| {
        let runs = snapshot.sites().get(at).is_some_and(|site| site.runs(gemm));
        // Results list every site of their trace, probed or not.
        let has_rows = !baseline.of_results || !baseline.rows_of(at, gemm).is_empty();
        let chosen = plan.pick_at(at, gemm).filter(|_| has_rows || !runs)?;
        let kernel = then[gemm as usize].kernel.clone();
        let (saved_us, now_us) = (before[gemm as usize], now[gemm as usize]);
        let delta_us = saved_us.zip(now_us).map(|(then, now)| now - then);
        Some(VersusLine {
            moved: kernel != chosen.kernel,
            kernel,
            saved_us,
            // What never runs saves nothing, now as then.
            delta_us: if runs { delta_us } else { Some(0.0) },
        })
    })
}

#[cfg(test)]
mod tests;
