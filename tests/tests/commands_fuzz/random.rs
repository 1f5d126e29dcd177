//! Gives random commands and events: most of them sensible, some of nothing that there is.

use loka_core::{
    dispatch::Policy,
    engine::{DeviceMemory, EngineStatus},
    export::Target,
    model::{Gemm, KernelId, Metric, ModKind, ModSet, ResultRow, SiteId, catalogue},
    session::{BaselineOf, Command, Event, MeasuredLatency},
};
use loka_tests::big;

use super::Fuzz;

impl Fuzz {
    fn site(&mut self) -> SiteId {
        if self.dice.once_in(15) {
            return SiteId::new("no.such.site");
        }
        self.dice.pick(&self.results.meta.manifest.sites).id.clone()
    }

    fn kernel(&mut self) -> KernelId {
        match self.dice.below(12) {
            0 => KernelId::new("no/such-kernel"),
            1 => self.dice.pick(catalogue()).id(),
            _ => self.dice.pick(&self.results.rows).kernel.clone(),
        }
    }

    fn gemms(&mut self) -> Vec<(SiteId, Gemm)> {
        (0..self.dice.below(6)).map(|_| (self.site(), *self.dice.pick(&Gemm::ALL))).collect()
    }

    fn policy(&mut self) -> Policy {
        let policy = Policy::builtin(self.dice.pick::<&str>(&Policy::BUILTIN)).unwrap();
        match self.dice.below(8) {
            0 => Policy { baseline: KernelId::new("te/current"), ..policy },
            1 => Policy { name: " ".to_owned(), ..policy },
            2 => Policy { confidence: 1.5, ..policy },
            3 => Policy { metric: *self.dice.pick(&Metric::ALL), ..policy },
            4 => Policy { baseline: KernelId::new("cublaslt/tf32"), ..policy },
            _ => policy,
        }
    }

    fn number(&mut self) -> f64 {
        *self.dice.pick(&[0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 1.1, 3.0, 1e9, -1.0, f64::NAN, f64::INFINITY])
    }

    fn gesture(&mut self) -> Option<u64> {
        (!self.dice.once_in(3)).then(|| self.dice.below(4) as u64)
    }

    pub fn random_command(&mut self) -> Command {
        let (kind, path) = (*self.dice.pick(&ModKind::ALL), "some/file".to_owned());
        let reason = "a \"reason\"\n".to_owned();
        match self.dice.below(35) {
            0 => Command::OpenTrace { path },
            1 => Command::OpenResults { path },
            2 => Command::FindEngines,
            3 => Command::SelectEngine { name: (*self.dice.pick(&["cpu", "cuda", "cluster", "abacus"])).to_owned() },
            4 => Command::MeasureSpeeds,
            5 => Command::StartProbe,
            6 => Command::CancelProbe,
            7 => Command::PauseProbe { paused: self.dice.once_in(2) },
            8 | 9 => Command::ToggleMod { kind },
            10 | 11 => {
                let sites = (0..self.dice.below(4)).map(|_| self.site()).collect();
                Command::SetMod { kind, on: self.dice.once_in(2), sites }
            }
            12 => Command::SetPolicy { policy: self.policy() },
            13 | 14 => Command::SetMaxError { value: self.number(), gesture: self.gesture() },
            15 => Command::SetMinSpeedup { value: self.number(), gesture: self.gesture() },
            16..=18 => {
                let (site, gemm) = (self.site(), *self.dice.pick(&Gemm::ALL));
                Command::SetOverride { site, gemm, kernel: self.kernel(), reason }
            }
            19 => Command::ClearOverride { site: self.site(), gemm: *self.dice.pick(&Gemm::ALL) },
            20 => Command::SetOverrides { at: self.gemms(), kernel: self.kernel(), reason },
            21 => Command::ClearOverrides { at: self.gemms() },
            22 => Command::OpenPlan { path },
            23 => Command::ClosePlan,
            24..=26 => Command::Undo,
            27 | 28 => Command::Redo,
            29 => Command::SaveResults { path },
            30 => Command::ExportPlan { path },
            31 => Command::ExportTo { path, target: *self.dice.pick(&Target::ALL) },
            32 => Command::ExportReport { path },
            33 => {
                let mods = ModSet([kind].into());
                let all = [BaselineOf::Now, BaselineOf::Submitted, BaselineOf::Mods { mods }];
                Command::SetBaseline { of: self.dice.pick(&all).clone() }
            }
            _ => Command::DismissNotice { id: self.session.notices.first().map_or(7, |notice| notice.id) },
        }
    }

    pub fn random_event(&mut self) -> Event {
        let current = self.session.run.as_ref().map_or(0, |run| run.id);
        let run = if self.dice.once_in(8) { current.saturating_sub(1) } else { current };
        let (name, seconds) = ((*self.dice.pick(&["cpu", "cuda"])).to_owned(), 1.5);
        let (path, message) = ("made-up.trace.safetensors".to_owned(), "it broke".to_owned());
        match self.dice.below(40) {
            0 => big::opened(&self.results),
            1 => Event::TraceDigest { path, digest: self.results.meta.trace_digest.clone() },
            2 => Event::ResultsOpened { path, results: Box::new(self.results.clone().into()) },
            3 => {
                let mut results = self.results.clone();
                results.meta.trace_digest = "sha256:another".to_owned();
                Event::ResultsOpened { path, results: Box::new(results.into()) }
            }
            4 => Event::PlanOpened { path, plan: Box::new(self.plan.clone()) },
            5 => Event::OpenFailed { message },
            6 | 7 => Event::EnginesFound { engines: self.engines() },
            8 => Event::EngineMemory { name, memory: DeviceMemory { total: 9, free: 4, peak: 5 } },
            9 if self.dice.once_in(6) => Event::EngineLost { name: "cuda".to_owned(), reason: message },
            10 => Event::Problem { run, site: self.site(), reason: message },
            11 => Event::Progress { run, done: self.dice.below(11) as f64 / 10.0, seconds },
            12..=14 => Event::ProbeFinished { run, cancelled: self.dice.once_in(4), seconds },
            15 | 16 => Event::Measured { run: self.measuring, latencies: self.latencies(), done: 0.5, seconds },
            17 => Event::MeasureFinished { run: self.measuring, problem: self.dice.once_in(2).then_some(message) },
            18 => Event::Written { path, what: "Plan".to_owned() },
            19 => Event::WriteFailed { message },
            20..=25 => match self.asked.clone() {
                Some((run, mods, sites, by)) => Event::ProbeStarted { run, mods, sites, by: Box::new(by) },
                None => Event::Progress { run, done: 0.0, seconds },
            },
            26 => Event::ResultsCompared { path, results: Box::new(self.results.clone()) },
            _ => Event::Rows { run, rows: self.probed() },
        }
    }

    fn engines(&mut self) -> Vec<EngineStatus> {
        let cpu = EngineStatus { device: big::DEVICE.to_owned(), ..EngineStatus::cpu() };
        let cuda = EngineStatus { name: "cuda".to_owned(), device: "NVIDIA H200".to_owned(), ..EngineStatus::cpu() };
        let missing = EngineStatus::missing("cuda", "no driver was found".to_owned(), Vec::new());
        vec![cpu, if self.dice.once_in(4) { missing } else { cuda }]
    }

    /// Some rows of the run under way, each another number than before.
    fn probed(&mut self) -> Vec<ResultRow> {
        let Some(run) = self.session.run.clone() else { return Vec::new() };
        let (engine, device) = (run.origin.engine, run.origin.device);
        let some = (0..self.dice.below(30)).map(|_| self.dice.pick(&self.results.rows).clone()).collect::<Vec<_>>();
        let changed = some.into_iter().map(|row| {
            let (mods, mut error) = (run.mods.of(&row.site).clone(), row.error);
            let times = 0.5 + self.dice.below(100) as f64 / 50.0;
            if let Some(error) = &mut error {
                error.mere.value *= times;
                (error.mere.lo, error.mere.hi) = (0.9 * error.mere.value, 1.1 * error.mere.value);
            }
            ResultRow { mods, error, engine: engine.clone(), device: device.clone(), ..row }
        });
        changed.collect()
    }

    fn latencies(&mut self) -> Vec<MeasuredLatency> {
        let rows: Vec<ResultRow> =
            (0..self.dice.below(5)).map(|_| self.dice.pick(&self.results.rows).clone()).collect();
        let timed = rows.into_iter().filter(|row| row.latency.latency_us.is_some());
        let of = |row: ResultRow| {
            let ResultRow { site, gemm, kernel, latency, .. } = row;
            MeasuredLatency { site, gemm, kernel, latency }
        };
        timed.map(of).collect()
    }
}
