//! Takes effects, carries them out on files that lie in memory: what a page without a server can do. Files come by
//! name on a [`MemoryFiles`], or by address from [`Outside`]; what is written goes out as a download. Work that takes a
//! while waits for one frame, which says what is under way; a trace's digest is read beside the frames. What needs an
//! engine is refused in one line.

mod digest;
mod memory_files;

pub use memory_files::{MOST_BYTES, MemoryFiles};

use std::{collections::VecDeque, sync::Arc};

use loka_core::{
    engine::EngineStatus,
    model::{Results, SiteId},
    plan::Plan,
    runtime::{Executor, Report},
    session::{ENGINES, Effect, Event},
    tables,
    trace::Trace,
};

use super::{
    Wake,
    exporting::{self, PlanDates, PlanFiles},
    identify::identify_bytes,
    inspect, reading,
};
use crate::{clock::now_ms, signing};
use digest::Reading;

const NO_ENGINE: &str = "a page on its own has no engine; probe with the loka program and open its results here";

/// What it takes would make every page larger.
const NO_COMPARISON: &str =
    "a page on its own does not hold whole traces against each other; loka diff does, and the window";

const NO_FOLDER: &str = "a page on its own has no folder with a run's checkpoints; the window has, and loka serve";

/// An address, and what is there or a line without the address.
pub type Fetched = (String, Result<Arc<[u8]>, String>);

/// What a page has of its browser.
pub trait Outside {
    /// Gives a person a file under that name.
    fn save(&self, name: &str, bytes: Vec<u8>) -> Result<(), String>;

    /// Begins to fetch what is at an address.
    fn fetch(&self, address: &str);

    /// The next address that was fetched, or a line without the address.
    fn fetched(&self) -> Option<Fetched>;

    /// What is on its way.
    fn busy(&self) -> Option<String>;
}

/// True of what can be fetched.
pub fn is_address(path: &str) -> bool {
    path.starts_with("https://") || path.starts_with("http://")
}

/// Where there are neither threads nor files.
pub struct PageExecutor {
    memory: MemoryFiles,
    outside: Box<dyn Outside>,
    wake: Wake,
    work: VecDeque<Effect>,
    /// The open trace's digest: read when there is no other work.
    reading: Option<Reading>,
    clock: fn() -> f64,
    dates: PlanDates,
    /// Effects that wait for what is at an address.
    awaited: Vec<(String, Effect)>,
    answers: VecDeque<Event>,
    /// The open trace.
    trace: Option<Trace>,
    /// A frame was drawn since the work that is next was announced.
    announced: bool,
}

/// Less is read within a frame.
const NOTICEABLE_BYTES: usize = 4 << 20;
const NOTICEABLE_ROWS: usize = 100_000;

impl PageExecutor {
    /// `wake`: another frame is wanted.
    pub fn new(memory: MemoryFiles, outside: Box<dyn Outside>, wake: Wake) -> Self {
        Self {
            memory,
            outside,
            wake,
            work: VecDeque::new(),
            reading: None,
            clock: now_ms,
            dates: PlanDates::default(),
            awaited: Vec::new(),
            answers: VecDeque::new(),
            trace: None,
            announced: false,
        }
    }

    /// What a person reads while the work that is next is done; `None`: it takes no time.
    fn label(&self) -> Option<String> {
        match self.work.front()? {
            Effect::LoadTrace { path }
            | Effect::LoadResults { path }
            | Effect::LoadPlan { path }
            | Effect::CompareResults { path }
                if self.is_large(path) =>
            {
                Some(format!("Opening {path}"))
            }
            Effect::ReadSeries { path } if self.is_large(path) => Some("Reading series".to_owned()),
            Effect::WriteResults { path, results } if results.rows.len() > NOTICEABLE_ROWS => {
                Some(format!("Writing {path}"))
            }
            _ => None,
        }
    }

    fn is_large(&self, path: &str) -> bool {
        self.memory.get(path).is_some_and(|bytes| bytes.len() > NOTICEABLE_BYTES)
    }

    fn carry_out(&mut self, effect: Effect) {
        let Some(path) = file_of(&effect) else { return self.without_file(effect) };
        if let Some(bytes) = self.memory.get(path) {
            return self.with_file(effect, bytes);
        }
        if !is_address(path) {
            let line = format!("not in this page: drop the file here, or open it by its address: {path}");
            return self.answers.push_back(refusal(effect, line));
        }
        let path = path.to_owned();
        if !self.awaited.iter().any(|(address, _)| *address == path) {
            self.outside.fetch(&path);
        }
        self.awaited.push((path, effect));
    }

    fn with_file(&mut self, effect: Effect, bytes: Arc<[u8]>) {
        let event = match effect {
            Effect::LoadTrace { path } => match Trace::from_bytes(&path, bytes) {
                Ok(trace) => {
                    let opened = Box::new(reading::opened(&path, &trace));
                    self.trace = Some(trace.clone());
                    // That of another trace is for nobody.
                    self.reading = Some(Reading::new(path, trace));
                    Event::TraceOpened { trace: opened }
                }
                Err(error) => Event::OpenFailed { message: error.to_string() },
            },
            Effect::LoadResults { path } => match tables::results_by_site_from_bytes(&path, bytes) {
                Ok(results) => Event::ResultsOpened { path, results: Box::new(results) },
                Err(error) => Event::OpenFailed { message: error.to_string() },
            },
            Effect::CompareResults { path } => match tables::results_from_bytes(&path, bytes) {
                Ok(results) => Event::ResultsCompared { path, results: Box::new(results) },
                Err(error) => Event::OpenFailed { message: error.to_string() },
            },
            Effect::LoadPlan { path } => match plan_of(&bytes) {
                Ok(plan) => Event::PlanOpened { path, plan: Box::new(plan) },
                Err(reason) => Event::OpenFailed { message: format!("{reason}: {path}") },
            },
            Effect::Sign { path, statement } => {
                let text = std::str::from_utf8(&bytes).map_err(|_| "not text".to_owned());
                let signed = text.and_then(signing::key_of).map_err(|reason| format!("{reason}: {path}"));
                Event::Signed { approval: signed.and_then(|key| signing::signed(statement, &key)).map(Box::new) }
            }
            Effect::Identify { path } => {
                let kind = identify_bytes(name_of(&path), &bytes);
                Event::Identified { path, kind }
            }
            Effect::InspectOther { trace, path, site } => {
                let read = |name: &str| Trace::from_bytes(name, bytes).map_err(|error| error.to_string());
                inspect::answer(trace, self.trace.clone(), Some(path), site, read)
            }
            other => return self.without_file(other),
        };
        self.answers.push_back(event);
    }

    fn without_file(&mut self, effect: Effect) {
        let event = match effect {
            Effect::ReadSeries { path } => {
                let none = "these results came without their trace: open the trace to see its series";
                let table = self.trace.as_ref().map(|trace| Box::new(reading::series_of(trace)));
                Event::SeriesRead { path, table: table.ok_or_else(|| none.to_owned()) }
            }
            Effect::Inspect { trace, site } => self.inspect(trace, site),
            Effect::WriteResults { path, results } => self.write_results(&path, &results),
            Effect::WritePlan { path, plan } => self.write_of_plan(&path, *plan, |plan| {
                Ok(PlanFiles { files: vec![(String::new(), plan.to_json().into_bytes())], what: "Plan".to_owned() })
            }),
            Effect::WriteExport { path, plan, target } => {
                self.write_of_plan(&path, *plan, |plan| exporting::for_framework(plan, target))
            }
            Effect::WriteReport { path, plan, results, keys } => {
                self.write_of_plan(&path, *plan, |plan| Ok(exporting::as_report(plan, &results, keys.as_deref())))
            }
            Effect::FindEngines => {
                let engines = ENGINES.map(|name| EngineStatus::missing(name, NO_ENGINE.to_owned(), Vec::new()));
                Event::EnginesFound { engines: engines.to_vec() }
            }
            Effect::CompareTrace { trace, path } => {
                Event::TraceCompared { trace, path, outcome: Err(NO_COMPARISON.to_owned()) }
            }
            Effect::ReadCheckpoints { trace, .. } => {
                Event::CheckpointsRead { trace, outcome: Err(NO_FOLDER.to_owned()) }
            }
            Effect::Measure { run, .. } => Event::MeasureFinished { run, problem: Some(NO_ENGINE.to_owned()) },
            Effect::Probe { .. } => Event::OpenFailed { message: NO_ENGINE.to_owned() },
            // Nothing runs, and nothing changes behind a page's back.
            _ => return,
        };
        self.answers.push_back(event);
    }

    fn inspect(&self, trace: String, site: SiteId) -> Event {
        inspect::answer(trace, self.trace.clone(), None, site, |path| Err(format!("not in this page: {path}")))
    }

    fn write_results(&self, path: &str, results: &Results) -> Event {
        let name = name_of(path);
        let bytes = tables::results_to_bytes(results).map_err(|error| error.to_string());
        self.written(name, "Results", bytes)
    }

    /// What becomes of the plan once it has its date: a download a file.
    fn write_of_plan(
        &self,
        path: &str,
        mut plan: Plan,
        make: impl FnOnce(&Plan) -> Result<PlanFiles, String>,
    ) -> Event {
        self.dates.stamp(&mut plan);
        let name = name_of(path);
        let written = make(&plan).and_then(|made| {
            let mut files = made.files.into_iter();
            files.try_for_each(|(suffix, bytes)| self.outside.save(&format!("{name}{suffix}"), bytes))?;
            Ok(made.what)
        });
        written_as(name, written)
    }

    fn written(&self, name: &str, what: &str, bytes: Result<Vec<u8>, String>) -> Event {
        let saved = bytes.and_then(|bytes| self.outside.save(name, bytes));
        written_as(name, saved.map(|()| what.to_owned()))
    }

    fn take_fetched(&mut self) {
        while let Some((address, outcome)) = self.outside.fetched() {
            let outcome = outcome.map_err(|reason| format!("{reason}: {address}"));
            let outcome = outcome.and_then(|bytes| self.memory.put(&address, bytes));
            let (ready, others) = std::mem::take(&mut self.awaited).into_iter().partition(|(of, _)| *of == address);
            self.awaited = others;
            let ready: Vec<(String, Effect)> = ready;
            for (_, effect) in ready {
                match &outcome {
                    Ok(()) => self.work.push_back(effect),
                    Err(line) => self.answers.push_back(refusal(effect, line.clone())),
                }
            }
        }
    }
}

impl PageExecutor {
    fn next_event(&mut self) -> Option<Event> {
        self.take_fetched();
        loop {
            if let Some(event) = self.answers.pop_front() {
                return Some(event);
            }
            if self.label().is_some() && !std::mem::replace(&mut self.announced, true) {
                (self.wake)();
                return None;
            }
            self.announced = false;
            match self.work.pop_front() {
                Some(effect) => self.carry_out(effect),
                None => return self.read_on(),
            }
        }
    }

    /// A piece of the digest, when there is nothing else to do.
    fn read_on(&mut self) -> Option<Event> {
        let event = self.reading.as_mut()?.read(self.clock);
        if event.is_some() {
            self.reading = None;
        } else {
            (self.wake)();
        }
        event
    }
}

impl Executor for PageExecutor {
    fn run(&mut self, effect: Effect) {
        self.work.push_back(effect);
    }

    fn poll(&mut self) -> Option<Report> {
        self.next_event().map(Report::from)
    }

    fn busy(&self) -> Option<String> {
        let reading = || self.reading.as_ref().filter(|of| self.is_large(of.path())).map(Reading::label);
        self.label().or_else(|| self.outside.busy()).or_else(reading)
    }
}

/// What was given out under that name, or why nothing was.
fn written_as(name: &str, what: Result<String, String>) -> Event {
    match what {
        Ok(what) => Event::Written { path: name.to_owned(), what },
        Err(reason) => Event::WriteFailed { message: format!("{reason}: {name}") },
    }
}

/// The file that an effect reads.
fn file_of(effect: &Effect) -> Option<&str> {
    match effect {
        Effect::LoadTrace { path }
        | Effect::LoadResults { path }
        | Effect::LoadPlan { path }
        | Effect::CompareResults { path }
        | Effect::Identify { path }
        | Effect::Sign { path, .. }
        | Effect::InspectOther { path, .. } => Some(path),
        _ => None,
    }
}

/// What is said where that file is not to be had.
fn refusal(effect: Effect, message: String) -> Event {
    match effect {
        Effect::Identify { path } => Event::Identified { path, kind: Err(message) },
        Effect::InspectOther { trace, path, site } => {
            Event::SiteInspected { trace, other: Some(path), site, outcome: Err(message) }
        }
        Effect::Sign { .. } => Event::Signed { approval: Err(message) },
        _ => Event::OpenFailed { message },
    }
}

fn plan_of(bytes: &[u8]) -> Result<Plan, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not text".to_owned())?;
    Plan::from_json(text).map_err(|error| error.to_string())
}

/// The last part of a path or an address: a download has no folder.
pub(crate) fn name_of(path: &str) -> &str {
    let path = if is_address(path) { path.split(['?', '#']).next().unwrap_or(path) } else { path };
    path.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or("loka")
}

#[cfg(test)]
mod tests;
