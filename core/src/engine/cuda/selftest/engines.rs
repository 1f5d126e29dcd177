//! The whole engine: the same draw gives the same bits, on any thread, and its rows agree with the CPU engine's
//! within their intervals.

use std::collections::BTreeMap;

use crate::{
    engine::{Backend, CpuEngine, Engine, EngineError, SiteJob},
    model::{Estimate, Gemm, GemmNumerics, GemmShape, Granularity, Kernel, Metric, ModSet, catalogue},
    numerics::{
        DrawStats,
        interval::{MereDraw, Ratio, mean, mere, root_ratio},
    },
    stats::SamplerKind,
};

use super::{super::CudaError, CheckOutcome, Problem, Suite, ensure, products::may_be_missing, synthetic::Recipe};

const DRAWS: u64 = 16;

/// Some five hundred pairs of intervals: none may miss by chance.
const CONFIDENCE: f64 = 0.999;

fn recipes() -> [Recipe; 5] {
    let plain = Recipe {
        name: "made-up, full covariance",
        k: 64,
        n: 48,
        full: true,
        mods: ModSet::none(),
        sampler: SamplerKind::Copula,
    };
    let factored = Recipe { name: "made-up, factors", full: false, ..plain.clone() };
    let modified =
        Recipe { name: "made-up, every mod", mods: ModSet::all(), sampler: SamplerKind::Gaussian, ..factored.clone() };
    // Whole blocks of 128, for the blockwise kernels.
    let wide = Recipe { name: "made-up, blocks", k: 256, n: 128, ..factored.clone() };
    // Codes are padded to multiples of 16, which no draw may show.
    let padded = Recipe { name: "made-up, odd widths", k: 69, n: 37, ..factored.clone() };
    [plain, factored, modified, wide, padded]
}

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    for recipe in recipes() {
        let job = recipe.job();
        repeatable(suite, recipe.name, &job)?;
        for gemm in Gemm::ALL {
            rows(suite, recipe.name, &job, gemm)?;
        }
    }
    Ok(())
}

fn shape_of(job: &SiteJob) -> GemmShape {
    let site = &job.stats.site;
    GemmShape { m: site.m, k: site.k, n: site.n }
}

/// What kernels need there, each once.
fn numerics_of(engine: &dyn Engine, gemm: Gemm, shape: GemmShape) -> Vec<GemmNumerics> {
    let runs = |kernel: &&Kernel| engine.supports(kernel, gemm, shape).is_ok();
    let all: std::collections::BTreeSet<_> =
        catalogue().iter().filter(runs).map(|kernel| kernel.numerics(gemm)).collect();
    all.into_iter().collect()
}

/// Draws of all three GEMMs as text that shows every bit.
fn bits(engine: &dyn Engine, job: &SiteJob) -> Result<Vec<String>, EngineError> {
    let mut site = engine.site(job.clone())?;
    let mut found = Vec::new();
    for draw in [0, 5] {
        for gemm in Gemm::ALL {
            let numerics = numerics_of(engine, gemm, shape_of(job));
            found.extend(site.draw(gemm, &ways(&numerics), draw)?.iter().map(|stats| format!("{stats:?}")));
        }
    }
    Ok(found)
}

fn repeatable(suite: &mut Suite<'_>, name: &str, job: &SiteJob) -> Result<(), CudaError> {
    let engine = suite.engine;
    let first = bits(engine, job);
    let again = |what: &str, second: Result<Vec<String>, EngineError>| -> CheckOutcome {
        let (first, second) = (first.clone()?, second?);
        let different = first.iter().zip(&second).filter(|(a, b)| a != b).count();
        ensure(first.len() == second.len() && different == 0, || {
            format!("{different} of {} draws differ {what}", first.len())
        })
    };
    suite.report(format!("draws of {name}: the same bits again"), again("the second time", bits(engine, job)))?;
    let both = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| bits(engine, job)));
        threads.map(|thread| thread.join())
    });
    let outcome = both.into_iter().try_for_each(|thread| match thread {
        Ok(second) => again("from two threads", second),
        Err(_) => Err(Problem::Wrong("a thread panicked".to_owned())),
    });
    suite.report(format!("draws of {name}: the same bits from two threads at a time"), outcome)
}

/// What draws have shown of one numerics.
#[derive(Default)]
struct Evidence {
    mere: Vec<MereDraw>,
    rel_l2: Vec<Ratio>,
    block: Vec<Ratio>,
    loss_cost: Vec<f64>,
}

impl Evidence {
    fn take(&mut self, draw: &DrawStats) {
        let elements = draw.elements.max(1) as f64;
        let (body, tail_share) = (draw.sum_relative_body / elements, draw.tail_count as f64 / elements);
        self.mere.push(MereDraw { body, tail_share });
        self.rel_l2.push(Ratio { numerator: draw.sum_error_squares, denominator: draw.sum_ref_squares });
        self.block.extend(draw.block.map(|(numerator, denominator)| Ratio { numerator, denominator }));
        self.loss_cost.extend(draw.loss_cost);
    }

    fn estimates(&self, outputs: f64) -> Vec<(Metric, Estimate)> {
        let mut all = vec![
            (Metric::Mere, mere(&self.mere, outputs, CONFIDENCE)),
            (Metric::RelL2, root_ratio(&self.rel_l2, CONFIDENCE)),
        ];
        if !self.block.is_empty() {
            all.push((Metric::BlockRelL2, root_ratio(&self.block, CONFIDENCE)));
        }
        if !self.loss_cost.is_empty() {
            all.push((Metric::LossCost, mean(&self.loss_cost, CONFIDENCE)));
        }
        all
    }
}

type Shown = BTreeMap<GemmNumerics, Evidence>;

fn draws(engine: &dyn Engine, job: &SiteJob, gemm: Gemm, numerics: &[GemmNumerics]) -> Result<Shown, EngineError> {
    let mut site = engine.site(job.clone())?;
    let mut shown = Shown::new();
    for draw in 0..DRAWS {
        for (numerics, stats) in numerics.iter().zip(site.draw(gemm, &ways(numerics), draw)?) {
            let stats = stats.map_err(EngineError::Failed)?;
            shown.entry(*numerics).or_default().take(&stats);
        }
    }
    Ok(shown)
}

/// One check a kernel: all four metrics of one GEMM.
fn rows(suite: &mut Suite<'_>, name: &str, job: &SiteJob, gemm: Gemm) -> Result<(), CudaError> {
    let shape = shape_of(job);
    let numerics = numerics_of(suite.engine, gemm, shape);
    let both =
        draws(suite.engine, job, gemm, &numerics).and_then(|ours| Ok((ours, draws(&CpuEngine, job, gemm, &numerics)?)));
    let (out_rows, reduced, cols) = shape.rows_reduced_cols(gemm);
    let outputs = out_rows as f64 * cols as f64;
    for kernel in catalogue().iter().filter(|kernel| CpuEngine.supports(kernel, gemm, shape).is_ok()) {
        let of_kernel = kernel.numerics(gemm);
        // cuBLASLt stands in for libraries that take broken blocks, which it does not.
        let broken = of_kernel.a.granularity == Granularity::Block1x128
            && [out_rows, reduced, cols].iter().any(|size| !size.is_multiple_of(128));
        if let Err(reason) = suite.engine.supports(kernel, gemm, shape)
            && (broken || may_be_missing([out_rows, reduced, cols]))
        {
            suite.report(format!("{name}, {gemm}, {}: not on this GPU ({reason})", kernel.name), Ok(()))?;
            continue;
        }
        let outcome = match &both {
            Ok((cuda, cpu)) => agree(cuda.get(&of_kernel), cpu.get(&of_kernel), outputs),
            Err(error) => Err(Problem::Engine(error.clone())),
        };
        suite.report(format!("{name}, {gemm}, {}: CPU and CUDA rows agree", kernel.name), outcome)?;
    }
    Ok(())
}

fn agree(cuda: Option<&Evidence>, cpu: Option<&Evidence>, outputs: f64) -> CheckOutcome {
    let (Some(cuda), Some(cpu)) = (cuda, cpu) else {
        return Err(Problem::Wrong("the CUDA engine does not run what the CPU engine does".to_owned()));
    };
    let (cuda, cpu) = (cuda.estimates(outputs), cpu.estimates(outputs));
    ensure(cuda.len() == cpu.len(), || format!("{} metrics on CUDA, {} on the CPU", cuda.len(), cpu.len()))?;
    for ((metric, a), (_, b)) in cuda.iter().zip(&cpu) {
        ensure(a.lo <= b.hi && b.lo <= a.hi, || {
            format!(
                "{metric} is {:.4e} ({:.4e} to {:.4e}) on CUDA, {:.4e} ({:.4e} to {:.4e}) on the CPU",
                a.value, a.lo, a.hi, b.value, b.lo, b.hi
            )
        })?;
    }
    Ok(())
}

fn ways(numerics: &[GemmNumerics]) -> Vec<Backend> {
    numerics.iter().copied().map(Backend::Numerics).collect()
}
