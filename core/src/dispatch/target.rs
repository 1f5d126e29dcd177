//! Takes a runtime and measured times of whole sites, gives what Dispatch goes by there: which kernels the runtime can
//! run, and the table of times of each shape ([`super::site_table`]).

use std::{collections::HashMap, sync::Arc};

use crate::model::{
    APPLY_RUNS_BLOCKS, Gemm, GemmShape, ResultRow, ResultsMeta, Runtime, Site, SiteTime, SiteTimes, StepPace,
    baseline_kernel,
};

use super::{
    Group, Policy,
    chain::SavedByCodes,
    site_table::{SiteTable, Timed},
};

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

    /// The same of a site, where it is of use: measured times are against BF16, a policy of another baseline has none.
    pub(crate) fn table_of(&self, site: &Site, policy: &Policy) -> Option<&Arc<SiteTable>> {
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
        if self.table_of(reader.site, policy).is_none() {
            return SavedByCodes::Modelled;
        }
        let all = self.table_of(feeder.site, policy).and_then(|table| table.saved_by_codes_us);
        SavedByCodes::Timed(all.map(|us| us / num_readers.max(1) as f64))
    }

    /// What the site saves by kernels with these rows, in microseconds, where sites like it were timed. `None` among the rows: BF16.
    pub(crate) fn saved_us(
        &self,
        site: &Site,
        policy: &Policy,
        rows: [Option<&ResultRow>; 3],
        references: [Option<f64>; 3],
    ) -> Option<f64> {
        let table = self.table_of(site, policy)?;
        let parts = Gemm::ALL.map(|gemm| table.part(gemm, rows[gemm as usize], references[gemm as usize]));
        table.timed(&parts).map(Timed::saved_us)
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

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
