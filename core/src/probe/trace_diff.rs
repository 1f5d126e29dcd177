//! Takes two traces, of a good and a bad run or of two steps of one, gives what changed at each site, the most first:
//! where did it go wrong?

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{
    engine::{Control, Engine},
    model::{Gemm, Kernel, KernelId, Metric, ResultRow, SiteId, baseline_kernel, kernel},
    numerics::CopulaMap,
    stats::{copula_of, saturation_at, static_scale},
    trace::{Distribution, SiteStats},
};

use super::{ProbeConfig, ProbeEvent, SiteSource, probe};

/// Below a factor of 2 a value counts as unchanged.
const CHANGED: f64 = 1.0;

/// Saturation below this is none: a static scale allows it (one step in a thousand).
const NO_SATURATION: f64 = 1e-3;

/// Whose noise shares and loss costs are compared where nobody says: one scale a tensor, so that an outlier anywhere shows.
pub const WATCHED: &str = "cublaslt/fp8-tensorwise";

/// What is held side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Symptom {
    /// Largest magnitude of x that was recorded.
    InputAmax,
    GradAmax,
    /// P that a step saturates with the static scale that suits the first trace.
    InputSaturation,
    GradSaturation,
    DgradNoiseShare,
    WgradNoiseShare,
    LossCost,
}

impl Symptom {
    /// Those that rows tell, not the statistics alone.
    const OF_ROWS: [Self; 3] = [Self::DgradNoiseShare, Self::WgradNoiseShare, Self::LossCost];

    pub fn label(self) -> &'static str {
        match self {
            Self::InputAmax => "amax of x",
            Self::GradAmax => "amax of dy",
            Self::InputSaturation => "saturation of x",
            Self::GradSaturation => "saturation of dy",
            Self::DgradNoiseShare => "noise share of dgrad",
            Self::WgradNoiseShare => "noise share of wgrad",
            Self::LossCost => "loss cost",
        }
    }

    /// Below it a value is as good as none, and a factor says nothing.
    fn floor(self) -> f64 {
        match self {
            Self::InputSaturation | Self::GradSaturation => NO_SATURATION,
            Self::DgradNoiseShare | Self::WgradNoiseShare => 1e-6,
            Self::InputAmax | Self::GradAmax | Self::LossCost => f64::MIN_POSITIVE,
        }
    }
}

/// One symptom in both traces.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    pub symptom: Symptom,
    pub before: f64,
    pub after: f64,
}

impl Shift {
    /// Powers of two between the two; the sign is that of the change.
    pub fn octaves(&self) -> f64 {
        let floor = self.symptom.floor();
        // Not `f64::max`, which would drop a NaN.
        let held = |value: f64| if value < floor { floor } else { value };
        let octaves = (held(self.after) / held(self.before)).log2();
        // A value that is no number any more is as far as it gets.
        if octaves.is_nan() { f64::INFINITY } else { octaves }
    }

    /// Twofold or more.
    pub fn is_changed(&self) -> bool {
        self.octaves().abs() >= CHANGED
    }

    pub fn is_of_rows(&self) -> bool {
        Symptom::OF_ROWS.contains(&self.symptom)
    }
}

/// One site in both traces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteShift {
    pub site: SiteId,
    /// The largest change first.
    pub shifts: Vec<Shift>,
}

impl SiteShift {
    pub fn octaves(&self) -> f64 {
        self.shifts.first().map_or(0.0, |shift| shift.octaves().abs())
    }
}

/// What rows of a watched kernel say of each site.
pub type SiteErrors = BTreeMap<(SiteId, Symptom), f64>;

/// Two traces site by site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceDiff {
    /// The largest change first.
    pub sites: Vec<SiteShift>,
    /// Sites of one trace alone.
    pub added: Vec<SiteId>,
    pub removed: Vec<SiteId>,
    /// Sites that cannot be read, and why.
    pub problems: BTreeMap<SiteId, String>,
}

impl TraceDiff {
    /// The sites that changed twofold or more.
    pub fn changed(&self) -> &[SiteShift] {
        let changed = |site: &SiteShift| site.shifts.first().is_some_and(Shift::is_changed);
        &self.sites[..self.sites.partition_point(changed)]
    }

    /// Noise shares and loss costs too, of the sites that have them in both.
    pub fn add_errors(&mut self, [before, after]: [&SiteErrors; 2]) {
        for site in &mut self.sites {
            let of = |errors: &SiteErrors, symptom| errors.get(&(site.site.clone(), symptom)).copied();
            for symptom in Symptom::OF_ROWS {
                let both = of(before, symptom).zip(of(after, symptom));
                site.shifts.extend(both.map(|(before, after)| Shift { symptom, before, after }));
            }
        }
        self.sort();
    }

    /// Stable: sites that changed alike stay in forward order, the first cause first.
    fn sort(&mut self) {
        for site in &mut self.sites {
            site.shifts.sort_by(|a, b| b.octaves().abs().total_cmp(&a.octaves().abs()));
        }
        self.sites.sort_by(|a, b| b.octaves().total_cmp(&a.octaves()));
    }
}

/// By what was recorded alone: nothing is drawn.
pub fn diff_recorded([before, after]: [&dyn SiteSource; 2]) -> TraceDiff {
    let ids =
        |source: &dyn SiteSource| -> BTreeSet<SiteId> { source.sites().into_iter().map(|site| site.id).collect() };
    let (old, new) = (ids(before), ids(after));
    let mut diff = TraceDiff {
        added: new.difference(&old).cloned().collect(),
        removed: old.difference(&new).cloned().collect(),
        ..TraceDiff::default()
    };
    for site in before.sites().into_iter().map(|site| site.id).filter(|id| new.contains(id)) {
        match (before.stats(&site), after.stats(&site)) {
            (Ok(first), Ok(second)) => {
                let shifts = recorded(&first, &second, [before, after]);
                diff.sites.push(SiteShift { site, shifts });
            }
            (Err(problem), _) | (_, Err(problem)) => _ = diff.problems.insert(site, problem),
        }
    }
    diff.sort();
    diff
}

/// Of the model without mods. A loss cost that means nothing is none: no factor is made of it. `loss`: the rows' trace's.
pub fn errors_of<'a>(rows: impl IntoIterator<Item = &'a ResultRow>, watched: &KernelId, loss: f64) -> SiteErrors {
    let of = |row: &ResultRow| {
        let (symptom, metric) = match row.gemm {
            Gemm::Fprop => (Symptom::LossCost, Metric::LossCost),
            Gemm::Dgrad => (Symptom::DgradNoiseShare, Metric::NoiseShare),
            Gemm::Wgrad => (Symptom::WgradNoiseShare, Metric::NoiseShare),
        };
        let means_nothing = symptom == Symptom::LossCost && row.loss_cost_means_nothing(loss);
        Some(((row.site.clone(), symptom), row.metric(metric).filter(|_| !means_nothing)?.value))
    };
    watched_rows(rows, watched).filter_map(of).collect()
}

fn watched_rows<'a>(
    rows: impl IntoIterator<Item = &'a ResultRow>,
    watched: &KernelId,
) -> impl Iterator<Item = &'a ResultRow> {
    rows.into_iter().filter(move |row| row.kernel == *watched && row.mods.0.is_empty())
}

/// `watched`: the kernel whose noise shares and loss costs are compared, by draws on that engine. With the sites whose loss
/// cost is outside its range in one of the traces, and so not compared.
pub fn diff_traces(
    [before, after]: [&dyn SiteSource; 2],
    watched: &'static Kernel,
    engine: &dyn Engine,
    config: &ProbeConfig,
) -> (TraceDiff, BTreeSet<SiteId>) {
    let mut diff = diff_recorded([before, after]);
    let both: Vec<SiteId> = diff.sites.iter().map(|site| site.site.clone()).collect();
    let mut kernels = vec![watched];
    // What is charged of a loss cost is beyond BF16's.
    kernels.extend(kernel(baseline_kernel().as_str()).filter(|of| of.name != watched.name));
    let config = ProbeConfig { kernels, ..config.clone() };
    let [(before, mut out_of_range), (after, too)] =
        [before, after].map(|source| probed(source, &both, watched, engine, &config));
    diff.add_errors([&before, &after]);
    out_of_range.extend(too);
    (diff, out_of_range)
}

/// What the statistics alone say.
fn recorded(before: &SiteStats, after: &SiteStats, sources: [&dyn SiteSource; 2]) -> Vec<Shift> {
    let mut shifts = Vec::new();
    let gradients = before.grad_output.as_ref().zip(after.grad_output.as_ref());
    let operands = [
        (Some((&before.input, &after.input)), Symptom::InputAmax, Symptom::InputSaturation),
        (gradients, Symptom::GradAmax, Symptom::GradSaturation),
    ];
    for (both, amax, saturation) in operands {
        let Some((old, new)) = both else { continue };
        if let Some((before, after)) = old.amax.zip(new.amax) {
            shifts.push(Shift { symptom: amax, before, after });
        }
        let copulas = [(old, sources[0]), (new, sources[1])].map(|(of, source)| copula(of, source));
        if let Some(known) = static_scale(old, copulas[0].as_ref(), before.site.m) {
            let now = saturation_at(new, copulas[1].as_ref(), after.site.m, known.scale);
            shifts.push(Shift { symptom: saturation, before: known.saturation, after: now });
        }
    }
    shifts
}

fn copula(of: &Distribution, source: &dyn SiteSource) -> Option<CopulaMap> {
    copula_of(of, &source.quantile_probs())
}

/// The watched kernel's errors at every site, and where its loss cost means nothing.
fn probed(
    source: &dyn SiteSource,
    sites: &[SiteId],
    watched: &Kernel,
    engine: &dyn Engine,
    config: &ProbeConfig,
) -> (SiteErrors, BTreeSet<SiteId>) {
    let (found, loss) = (Mutex::new((SiteErrors::new(), BTreeSet::new())), source.loss());
    let watched = watched.id();
    let sink = |event| {
        let ProbeEvent::Rows(rows) = event else { return };
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.0.append(&mut errors_of(&rows, &watched, loss));
        let means_nothing = watched_rows(&rows, &watched).filter(|row| row.loss_cost_means_nothing(loss));
        found.1.extend(means_nothing.map(|row| row.site.clone()));
    };
    probe(source, sites, engine, config, &Control::new(), &sink);
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[cfg(feature = "native")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        engine::CpuEngine,
        model::Site,
        trace::{Covariance, WeightStats},
    };

    /// Three sites of 16 features; the function is applied to each one's statistics. The loss is the number.
    struct Made(fn(&SiteId, &mut SiteStats), f64);

    impl SiteSource for Made {
        fn sites(&self) -> Vec<Site> {
            let site = |id: &str| json!({"id": id, "m": 64, "k": 16, "n": 16, "dtype": "f32"});
            ["a", "b", "c"].map(|id| serde_json::from_value(site(id)).unwrap()).to_vec()
        }

        fn quantile_probs(&self) -> Vec<f64> {
            Vec::new()
        }

        fn loss(&self) -> f64 {
            self.1
        }

        fn loss_weight(&self) -> f64 {
            1.0
        }

        fn stats(&self, site: &SiteId) -> Result<SiteStats, String> {
            let of = |variance: f64| Distribution {
                count: 1000,
                mean: vec![0.0; 16],
                cov: Covariance::Factor { factor: Vec::new(), rank: 0, diag: vec![variance; 16] },
                quantiles: None,
                hist: None,
                amax: Some(5.0 * variance.sqrt()),
            };
            let weight = (0..256).map(|at| ((at * 37 % 101) as f32 - 50.0) / 200.0).collect();
            let known = self.sites().into_iter().find(|known| known.id == *site).ok_or("no such site")?;
            let plain = SiteStats::new(known, of(1.0), WeightStats::Snapshot(weight));
            let mut stats = SiteStats { grad_output: Some(of(1e-4)), ..plain };
            (self.0)(site, &mut stats);
            Ok(stats)
        }
    }

    fn compared(change: fn(&SiteId, &mut SiteStats)) -> TraceDiff {
        compared_of(change, 0.0).0
    }

    fn compared_of(change: fn(&SiteId, &mut SiteStats), loss: f64) -> (TraceDiff, BTreeSet<SiteId>) {
        let watched = kernel("cublaslt/fp8-tensorwise").unwrap();
        let config = ProbeConfig { min_draws: 8, max_draws: 8, threads: 1, ..ProbeConfig::default() };
        diff_traces([&Made(|_, _| (), loss), &Made(change, loss)], watched, &CpuEngine, &config)
    }

    /// One input feature of b became 1,000 times as large.
    fn one_feature_of_b(site: &SiteId, stats: &mut SiteStats) {
        if site.as_str() == "b"
            && let Covariance::Factor { diag, .. } = &mut stats.input.cov
        {
            diag[3] = 1e6;
            stats.input.amax = Some(5000.0);
        }
    }

    #[test]
    fn the_site_that_went_wrong_comes_first() {
        let diff = compared(one_feature_of_b);
        assert_eq!(diff.sites[0].site.as_str(), "b");
        let shift = |symptom| *diff.sites[0].shifts.iter().find(|shift| shift.symptom == symptom).unwrap();
        assert_eq!(shift(Symptom::InputAmax).after, 5000.0);
        assert!(shift(Symptom::InputSaturation).after > 0.99, "{:?}", shift(Symptom::InputSaturation));
        assert!(shift(Symptom::LossCost).octaves() > 5.0, "{:?}", shift(Symptom::LossCost));
        assert!(diff.sites[0].shifts.is_sorted_by(|a, b| a.octaves().abs() >= b.octaves().abs()));
        assert_eq!(diff.changed(), &diff.sites[..1]);
        assert!(diff.sites[1].octaves() == 0.0 && diff.sites[2].octaves() == 0.0, "{:?}", &diff.sites[1..]);
    }

    /// Its cost is then larger than a tenth of a small loss: no factor is made of a figure that means nothing, and it is said.
    #[test]
    fn a_loss_cost_outside_its_range_ranks_nothing() {
        let cost = |diff: &TraceDiff, site: &str| {
            let found = diff.sites.iter().find(|found| found.site.as_str() == site).unwrap();
            found.shifts.iter().find(|shift| shift.symptom == Symptom::LossCost).copied()
        };
        let (known, none) = compared_of(one_feature_of_b, 0.0);
        let shift = cost(&known, "b").unwrap();
        assert!(none.is_empty() && shift.after > 4.0 * shift.before);
        // In range before, and no more.
        let (diff, out_of_range) = compared_of(one_feature_of_b, 20.0 * shift.before);
        assert_eq!(out_of_range, BTreeSet::from([SiteId::new("b")]));
        assert_eq!(cost(&diff, "b"), None);
        assert!(cost(&diff, "a").is_some());
        assert_eq!(diff.sites[0].site.as_str(), "b", "by what else moved");
    }

    #[test]
    fn two_traces_that_are_the_same_say_nothing() {
        let diff = compared(|_, _| ());
        assert!(diff.sites.iter().all(|site| site.octaves() == 0.0 && site.shifts.len() == 7));
        let order: Vec<&str> = diff.sites.iter().map(|site| site.site.as_str()).collect();
        assert_eq!(order, ["a", "b", "c"]);
    }

    #[test]
    fn what_is_no_number_is_the_largest_change() {
        let shift = Shift { symptom: Symptom::GradAmax, before: 1.0, after: f64::NAN };
        assert_eq!(shift.octaves(), f64::INFINITY);
        let quiet = Shift { symptom: Symptom::InputSaturation, before: 1e-9, after: 1e-4 };
        assert_eq!(quiet.octaves(), 0.0, "a static scale allows as much");
    }
}
