//! `loka selftest --gpu`. Takes the engine; gives one [`Check`] after the other: every kernel against the CPU,
//! every product against FP64, and the engine's draws against those of the CPU engine.
//!
//! Inputs are the same in every run. Outputs are poisoned with two different bytes and lie between guards, so that
//! an element left unwritten and one written out of bounds are both seen.

mod arrays;
mod blocks;
mod casts;
mod delayed;
mod engines;
mod gemms;
mod guarded;
mod inputs;
mod metrics;
mod models;
mod norms;
mod products;
mod quantize;
mod reference;
mod sampling;
mod statics;
mod synthetic;
mod tails;

use crate::engine::EngineError;

use super::{CudaEngine, CudaError, arguments::Arguments, stream::Stream, stream_context::StreamContext};

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The kernel, the shape, the kind of input.
    pub name: String,
    /// What was wrong; `None`: it passed.
    pub problem: Option<String>,
}

/// Which checks to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those of our own kernels alone.
    pub own_kernels: bool,
    /// Those whose name has this.
    pub only: Option<String>,
}

/// Runs the checks. An error that loses the GPU ends it: what was reported before stays good.
pub fn selftest(engine: &CudaEngine, wanted: &Wanted, sink: &mut dyn FnMut(Check)) -> Result<(), CudaError> {
    engine.device.bind()?;
    let lane = StreamContext::new(Stream::new(&engine.device)?, engine.kernels.clone(), engine.lt.clone())?;
    let mut suite = Suite { engine, lane, only: wanted.only.as_deref(), sink };
    casts::check(&mut suite)?;
    sampling::check(&mut suite)?;
    arrays::check(&mut suite)?;
    quantize::check(&mut suite)?;
    metrics::check(&mut suite)?;
    tails::check(&mut suite)?;
    norms::check(&mut suite)?;
    gemms::check(&mut suite)?;
    statics::check(&mut suite)?;
    blocks::check(&mut suite)?;
    if wanted.own_kernels {
        return Ok(());
    }
    products::check(&mut suite)?;
    delayed::check(&mut suite)?;
    models::check(&mut suite)?;
    engines::check(&mut suite)
}

/// What a check needs, and where its outcome goes.
struct Suite<'a> {
    engine: &'a CudaEngine,
    lane: StreamContext,
    only: Option<&'a str>,
    sink: &'a mut dyn FnMut(Check),
}

/// Why a check did not pass.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    Wrong(String),
    #[error(transparent)]
    Cuda(#[from] CudaError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

type CheckOutcome = Result<(), Problem>;

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> CheckOutcome {
    if holds { Ok(()) } else { Err(Problem::Wrong(problem())) }
}

impl Suite<'_> {
    fn check(&mut self, name: String, body: impl FnOnce(&mut StreamContext) -> CheckOutcome) -> Result<(), CudaError> {
        if !self.wants(&name) {
            return Ok(());
        }
        let outcome = body(&mut self.lane);
        self.report(name, outcome)
    }

    /// A check that finds out its name: one that measures something says what.
    fn measured(
        &mut self,
        name: String,
        body: impl FnOnce(&mut StreamContext) -> Result<String, Problem>,
    ) -> Result<(), CudaError> {
        if !self.wants(&name) {
            return Ok(());
        }
        match body(&mut self.lane) {
            Ok(found) => self.report(format!("{name}: {found}"), Ok(())),
            Err(problem) => self.report(name, Err(problem)),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_none_or(|only| name.contains(only))
    }

    fn report(&mut self, name: String, outcome: CheckOutcome) -> Result<(), CudaError> {
        (self.sink)(Check { name, problem: outcome.err().map(|problem| problem.to_string()) });
        // Nothing runs any more after an error that sticks, whoever met it.
        self.engine.device.lost().map_or(Ok(()), |error| Err(error.clone()))
    }
}

fn launch(
    lane: &StreamContext,
    entry: &'static str,
    grid: loka_kernels::LaunchGrid,
    arguments: &Arguments,
) -> Result<(), CudaError> {
    lane.stream.launch(lane.kernels.get(entry)?, grid, arguments)
}

/// The two bytes that outputs are poisoned with: what is never written differs from the right answer once at least.
const POISONS: [u8; 2] = [0x5A, 0xA5];
