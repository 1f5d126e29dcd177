//! Takes a runtime and measured times of whole sites, gives what Dispatch goes by there: which kernels the runtime can
//! run, and what a site takes by any three of them.

use std::{collections::HashMap, sync::Arc};

use crate::model::{
    APPLY_RUNS_BLOCKS, Gemm, GemmShape, KernelId, ResultRow, ResultsMeta, Runtime, SiteTime, SiteTimes, StepPace,
    baseline_kernel,
};

use super::{Group, Policy, chain::SavedByCodes};

/// Where a plan will run, with the site times of that runtime.
#[derive(Clone, Debug)]
pub struct Target {
    runtime: Runtime,
    runs_blocks: bool,
    tables: HashMap<GemmShape, Arc<SiteTable>>,
    /// Of the recorded run.
    pace: Option<StepPace>,
}

impl Default for Target {
    fn default() -> Self {
        Self::new(Runtime::default(), None)
    }
}

impl Target {
    pub fn new(runtime: Runtime, times: Option<&SiteTimes>) -> Self {
        let mut by_shape: HashMap<GemmShape, Vec<&SiteTime>> = HashMap::new();
        for row in times.into_iter().flat_map(|times| &times.rows).filter(|row| row.runtime == runtime) {
            by_shape.entry(row.shape).or_default().push(row);
        }
        let table = |(shape, rows): (GemmShape, Vec<&SiteTime>)| Some((shape, Arc::new(SiteTable::new(&rows)?)));
        // The tests of blocks and chains ask for what Dispatch does once `loka.apply` runs them.
        let runs_blocks = APPLY_RUNS_BLOCKS || cfg!(test);
        Self { runtime, runs_blocks, tables: by_shape.into_iter().filter_map(table).collect(), pace: None }
    }

    /// Of these results, with the pace of the run that was recorded.
    pub(crate) fn of(meta: &ResultsMeta, runtime: Runtime) -> Self {
        Self { pace: meta.manifest.run.pace(), ..Self::new(runtime, meta.site_times.as_ref()) }
    }

    /// What a step took as recorded, where its kernels are launched one by one.
    pub(crate) fn launched_pace(&self) -> Option<StepPace> {
        self.pace.filter(|_| self.runtime == Runtime::Launched)
    }

    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// What sites of that shape take; `None`: none was timed.
    pub(crate) fn table(&self, shape: GemmShape) -> Option<&Arc<SiteTable>> {
        self.tables.get(&shape)
    }

    /// The same of a group's site, where it is of use: measured times are against BF16, a policy of another baseline has
    /// none.
    pub(crate) fn table_of(&self, group: &Group, policy: &Policy) -> Option<&Arc<SiteTable>> {
        let site = group.site;
        let shape = GemmShape { m: site.m, k: site.k, n: site.n };
        // Whole sites are timed with all GEMMs that the runtime has: one that lacks some takes less.
        let whole = Gemm::ALL.into_iter().all(|gemm| site.runs(gemm) || !self.runtime.runs(gemm));
        self.table(shape).filter(|_| whole && policy.baseline == baseline_kernel())
    }

    /// What it saves a reader that its x arrives as codes from the site that feeds it and so many readers in all: of what
    /// was timed each has a part, since they would share one cast.
    pub(crate) fn saved_by_codes(
        &self,
        (reader, feeder): (&Group, &Group),
        num_readers: usize,
        policy: &Policy,
    ) -> SavedByCodes {
        if self.table_of(reader, policy).is_none() {
            return SavedByCodes::Modelled;
        }
        let all = self.table_of(feeder, policy).and_then(|table| table.saved_by_codes_us);
        SavedByCodes::Timed(all.map(|us| us / num_readers.max(1) as f64))
    }

    /// True where what the kernel takes at sites of that shape was measured.
    pub fn times(&self, row: &ResultRow) -> bool {
        self.table(row.shape).is_some_and(|table| table.has(row.gemm, &row.kernel))
    }

    /// Why Dispatch does not choose that kernel by itself; `None` where it may. Not asked of the policy's baseline.
    pub(crate) fn bars(&self, row: &ResultRow) -> Option<Barred> {
        let entry = row.kernel.known()?;
        if entry.high_precision() {
            return Some(Barred::HighPrecision);
        }
        if let Some(reason) = entry.not_applied_given(row.gemm, self.runtime, self.runs_blocks) {
            return Some(Barred::NotApplied(reason));
        }
        match self.table(row.shape) {
            Some(table) => (!table.has(row.gemm, &row.kernel)).then_some(Barred::NotTimed),
            None => entry.needs_site_time(self.runtime).then_some(Barred::NeverLaunched),
        }
    }
}

/// Why a kernel is left out, however safe and fast it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barred {
    NotApplied(&'static str),
    /// A linear without FP8 stays as the model runs it: another library's BF16, or TF32, would be promised and never run.
    HighPrecision,
    /// Other kernels of that shape were timed at the site, this one was not.
    NotTimed,
    /// What it takes in a CUDA graph says nothing of a launched step.
    NeverLaunched,
    /// How it stands against BF16 is known of one GPU, and what BF16 takes of another.
    OtherGpu,
    /// A library that not everyone has, and that was not tried here.
    NotHere,
    /// No plan can put a kernel at this site: [`crate::model::Site::fixed`] says why.
    Fixed,
}

impl Barred {
    /// Where the speed is of another machine: what is faster there is not worth a word.
    pub(crate) fn is_elsewhere(self) -> bool {
        matches!(self, Self::OtherGpu | Self::NotHere)
    }

    /// After the kernel's name.
    pub(crate) fn why(self, runtime: Runtime) -> String {
        match self {
            Self::NotApplied(reason) => format!("cannot be applied: {reason}"),
            Self::HighPrecision => "is not put there: in high precision a linear stays as the model runs it".to_owned(),
            Self::NotTimed => format!("was not timed {} at sites of this shape", how(runtime)),
            Self::NeverLaunched => {
                "is left out: what it takes launched was never timed; loka bench --sites does, on the GPU \
                 that trains"
                    .to_owned()
            }
            Self::OtherGpu => {
                "is left out: its speed is of another GPU than BF16's; run loka bench --libraries on yours".to_owned()
            }
            Self::NotHere => {
                "is left out: its library was not tried here; loka probe --measure --libraries does, on the GPU that trains"
                    .to_owned()
            }
            Self::Fixed => "cannot take the module's place".to_owned(),
        }
    }
}

/// As an adverb.
pub(crate) fn how(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Launched => "launched",
        Runtime::Graph => "as a graph",
        Runtime::Inference => "in inference",
    }
}

/// A sum of differences has the errors of all of them. Of the fastest time that was measured at a site, the least that three
/// kernels are thought to take which were not timed together: in the tables that there are, mixtures gain some percent.
const BELIEVED: f64 = 0.9;

/// By one shape: what a site takes by any three kernels that were timed there.
///
/// Three that were timed together take what was measured. Others: BF16, and for each GEMM what its kernel alone
/// changed, and for two GEMMs of one kernel what they changed together beyond that (a cast that both read); never less
/// than [`BELIEVED`] of the fastest that was measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SiteTable {
    pub bf16_us: f64,
    /// By a kernel that stores codes, against its storing BF16 that the next linear casts.
    pub saved_by_codes_us: Option<f64>,
    /// Their places are their numbers, less 1: 0 is BF16.
    kernels: Vec<KernelId>,
    /// By the numbers of three kernels; NaN where it is not known.
    us: Vec<f64>,
}

/// Kernels by number, in the order of [`Gemm::ALL`].
pub(crate) type Numbers = [usize; 3];

impl SiteTable {
    /// `rows`: of one shape and runtime. `None`: none of them has a time.
    fn new(rows: &[&SiteTime]) -> Option<Self> {
        let timed: Vec<(&SiteTime, (f64, f64))> =
            rows.iter().filter_map(|row| Some((*row, row.medians_us()?))).collect();
        let mut bf16: Vec<f64> = timed.iter().map(|(_, (bf16, _))| *bf16).collect();
        bf16.sort_by(f64::total_cmp);
        // Each row's change is of the BF16 beside it, as a share: clocks differ between runs. What it is a share of is the
        // middle one.
        let bf16_us = *bf16.get(bf16.len() / 2)?;
        let mut kernels: Vec<KernelId> =
            timed.iter().flat_map(|(row, _)| row.kernels.iter().filter(|id| !is_bf16(id)).cloned()).collect();
        kernels.sort();
        kernels.dedup();
        let number = |id: &KernelId| kernels.binary_search(id).map_or(0, |at| at + 1);
        let deltas: HashMap<Numbers, f64> = timed
            .iter()
            .map(|(row, (bf16, us))| ([0, 1, 2].map(|at| number(&row.kernels[at])), (us / bf16 - 1.0) * bf16_us))
            .filter(|(numbers, _)| *numbers != [0; 3])
            .collect();
        let least = bf16_us + deltas.values().fold(0.0, |least: f64, delta| least.min(*delta));
        let shares = timed.iter().filter_map(|(row, _)| row.share_saved_by_codes());
        let saved_by_codes_us = shares.reduce(f64::max).map(|share| share * bf16_us);
        let all = kernels.len() + 1;
        let time = |numbers| match (deltas.get(&numbers), delta(&deltas, numbers)) {
            (Some(measured), _) => bf16_us + measured,
            (None, Some(sum)) => (bf16_us + sum).max(BELIEVED * least),
            (None, None) => f64::NAN,
        };
        let us = (0..all * all * all).map(|at| time([at / all / all, at / all % all, at % all])).collect();
        Some(Self { bf16_us, saved_by_codes_us, kernels, us })
    }

    /// The number of a kernel that was timed alone at that GEMM.
    pub(crate) fn number(&self, gemm: Gemm, id: &KernelId) -> Option<usize> {
        if is_bf16(id) {
            return Some(0);
        }
        let number = self.kernels.binary_search(id).ok()? + 1;
        let mut alone = [0; 3];
        alone[gemm as usize] = number;
        self.us(alone).map(|_| number)
    }

    fn has(&self, gemm: Gemm, id: &KernelId) -> bool {
        self.number(gemm, id).is_some()
    }

    pub(crate) fn us(&self, [fprop, dgrad, wgrad]: Numbers) -> Option<f64> {
        let all = self.kernels.len() + 1;
        self.us.get((fprop * all + dgrad) * all + wgrad).copied().filter(|us| us.is_finite())
    }
}

fn is_bf16(id: &KernelId) -> bool {
    id.recipe() == "bf16"
}

/// Against BF16.
fn delta(deltas: &HashMap<Numbers, f64>, numbers: Numbers) -> Option<f64> {
    let only = |kept: &[usize]| {
        let mut some = [0; 3];
        kept.iter().for_each(|at| some[*at] = numbers[*at]);
        some
    };
    let mut sum = 0.0;
    for at in (0..3).filter(|at| numbers[*at] != 0) {
        sum += deltas.get(&only(&[at]))?;
    }
    for [a, b] in [[0, 1], [0, 2], [1, 2]].into_iter().filter(|[a, b]| numbers[*a] != 0 && numbers[*a] == numbers[*b]) {
        if let Some(pair) = deltas.get(&only(&[a, b])) {
            sum += pair - deltas.get(&only(&[a]))? - deltas.get(&only(&[b]))?;
        }
    }
    Some(sum)
}

/// How three kernels stand against BF16 at a site whose times are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timed {
    pub bf16_us: f64,
    pub us: f64,
    /// An override was never timed there: its part is modelled.
    pub modelled: bool,
}

/// One GEMM of a site whose times are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub number: usize,
    /// Of a kernel that was not timed there, what it changes by its own row.
    pub modelled_us: Option<f64>,
    /// Of the site's time in BF16.
    pub share: f64,
    /// It was chosen, so it has to earn its place: not BF16, and not a person's wish.
    pub must_earn: bool,
}

impl SiteTable {
    /// A kernel at one GEMM. `row: None`: BF16.
    pub(crate) fn part(&self, gemm: Gemm, row: Option<&ResultRow>, reference_us: Option<f64>) -> Part {
        let Some(row) = row else { return Part::default() };
        match self.number(gemm, &row.kernel) {
            Some(number) => Part { number, ..Part::default() },
            None => {
                let own = reference_us.and_then(|us| Some(super::sharing::own_us(row, us)? - us));
                Part { modelled_us: Some(own.unwrap_or(0.0)), ..Part::default() }
            }
        }
    }

    /// `None`: never, of parts that are BF16 or were timed.
    pub(crate) fn timed(&self, parts: &[Part; 3]) -> Option<Timed> {
        let us = self.us(parts.map(|part| part.number))?;
        let modelled_us: f64 = parts.iter().filter_map(|part| part.modelled_us).sum();
        let modelled = parts.iter().any(|part| part.modelled_us.is_some());
        Some(Timed { bf16_us: self.bf16_us, us: us + modelled_us, modelled })
    }

    /// Of the parts that must earn their place those that do not: the smallest sets that save the site no more than
    /// the policy asks for of their share of BF16's time, or nothing.
    pub(crate) fn unearned(&self, parts: &[Part; 3], min_speedup: f64) -> [bool; 3] {
        let mut failed = [false; 3];
        let Some(all) = self.timed(parts) else { return parts.map(|part| part.must_earn) };
        let mut smallest = None;
        for set in super::sharing::SUBSETS {
            let within = |at: usize| set >> at & 1 == 1;
            if (0..3).any(|at| within(at) && !parts[at].must_earn) {
                continue;
            }
            if smallest.is_some_and(|size| set.count_ones() > size) {
                break;
            }
            let without = [0, 1, 2].map(|at| if within(at) { Part::default() } else { parts[at] });
            let share: f64 = (0..3).filter(|at| within(*at)).map(|at| parts[at].share).sum();
            let asked = (1.0 - 1.0 / min_speedup).max(0.0) * share * self.bf16_us;
            let earns = self.timed(&without).is_some_and(|without| without.us - all.us > asked);
            if !earns {
                smallest = Some(set.count_ones());
                (0..3).filter(|at| within(*at)).for_each(|at| failed[at] = true);
            }
        }
        failed
    }
}

/// Of a site's time in BF16, each GEMM's: as the baseline's rows have it, in equal parts where one is not known.
/// `runtime`: what runs no backward GEMM has one part.
pub(crate) fn shares(references: [Option<f64>; 3], runtime: Runtime) -> [f64; 3] {
    if runtime == Runtime::Inference {
        return [1.0, 0.0, 0.0];
    }
    match references {
        [Some(fprop), Some(dgrad), Some(wgrad)] => [fprop, dgrad, wgrad].map(|us| us / (fprop + dgrad + wgrad)),
        _ => [1.0 / 3.0; 3],
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
