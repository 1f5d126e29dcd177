//! Latencies of native kernels: casts and GEMM as one CUDA graph, on buffers that rotate through more memory
//! than the L2 holds, all kernels of a shape interleaved, every sample kept.
//!
//! Before a kernel is timed its output is compared with BF16's: a fast wrong kernel is worth nothing.

use std::collections::BTreeMap;

use crate::{
    engine::{KernelTiming, TimeOptions, Timing},
    model::{Gemm, GemmNumerics, GemmShape, Kernel, KernelId},
};

use super::{
    CudaEngine, CudaError,
    gemm::{OwnGemm, Runner},
    lane::Lane,
    lt::Plan,
    operands::{Operands, Prepared},
    stream::{Event, Graph, Stream},
};

/// Buffers together are so many times the L2, or data of one turn would still be there in the next.
const CACHE_FOLD: usize = 3;
const MOST_SETS: usize = 64;

/// Launches in one graph: capture and instantiation cost time, and nothing is gained beyond.
const MOST_LAUNCHES: usize = 1500;

/// Rounds before samples count: clocks ramp up, caches of descriptors fill.
const WARM_UP: usize = 3;

/// Rounds of the search for an algorithm.
const SEARCH_ROUNDS: usize = 5;

/// FP8 on random operands is .04 off BF16; what is this far off is wrong.
const WRONG: f64 = 0.12;

/// What one kernel does in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Gemm,
    Both,
    Cached,
}

impl Part {
    /// Launches before the GEMM.
    fn launches(self) -> usize {
        if self == Self::Gemm { 0 } else { 2 }
    }
}

/// Algorithms that are tried again behind the casts.
const AGAIN: usize = 4;

/// One kernel on its way through the timing.
struct Candidate {
    id: KernelId,
    prepared: Prepared,
    runner: Runner,
    /// The best algorithms of the bare GEMM, the first one first.
    ranked: Vec<usize>,
    graphs: BTreeMap<Part, (Graph, usize)>,
    samples: BTreeMap<Part, Vec<f64>>,
}

/// Times `kernels` at one GEMM. A kernel that cannot run has its reason; the others go on.
pub(super) fn time(
    engine: &CudaEngine,
    kernels: &[&'static Kernel],
    gemm: Gemm,
    shape: GemmShape,
    options: &TimeOptions,
) -> Result<Vec<KernelTiming>, CudaError> {
    let mut lane = Lane::new(Stream::new(&engine.device)?, engine.kernels.clone(), engine.lt.clone())?;
    let mut operands = Operands::new(&mut lane, gemm, shape, CACHE_FOLD * engine.device.l2_bytes, MOST_SETS)?;
    let (mut candidates, mut refused) = (Vec::new(), Vec::new());
    for kernel in kernels {
        match candidate(engine, &mut lane, &mut operands, kernel, options) {
            Ok(candidate) => candidates.push(candidate),
            Err(error) if error.is_sticky() => return Err(error),
            Err(error) => refused.push((kernel.id(), Err(error.to_string()))),
        }
    }
    for candidate in &mut candidates {
        capture(engine, &lane, &operands, candidate, options)?;
    }
    sample(&lane, &mut candidates, options)?;
    engine.algorithms.save();
    let timed = candidates.into_iter().map(|candidate| (candidate.id.clone(), Ok(candidate.timing())));
    Ok(timed.chain(refused).collect())
}

/// Casts its operands, finds its fastest algorithm, and checks what it computes.
fn candidate(
    engine: &CudaEngine,
    lane: &mut Lane,
    operands: &mut Operands,
    kernel: &Kernel,
    options: &TimeOptions,
) -> Result<Candidate, CudaError> {
    let (gemm, shape) = (operands.gemm, operands.shape);
    if let Some(reason) = kernel.refuses(gemm, shape) {
        return Err(CudaError::Refused(reason));
    }
    let numerics: GemmNumerics = kernel.numerics(gemm);
    let prepared = operands.prepare(lane, numerics)?;
    let mut runner = if kernel.is_own() {
        Runner::Own(OwnGemm::new(&engine.device, &engine.kernels, prepared.product)?)
    } else {
        Runner::Library(Plan::new(&engine.lt, prepared.product, options.algorithms.max(1))?)
    };
    for set in 0..operands.sets() {
        operands.cast_both(lane, &prepared, set)?;
    }
    let all: Vec<usize> = (0..runner.count()).collect();
    let ranked = fastest(engine, lane, operands, (&prepared, &mut runner), (Part::Gemm, &all), options)?;
    operands.poison(lane, 0)?;
    runner.run(&lane.stream, operands.addresses(&prepared, 0), ranked[0], &lane.workspace)?;
    let off = operands.distance_from_bf16(lane, &prepared, 0)?;
    if off.is_nan() || off > WRONG {
        return Err(CudaError::Refused(format!("its output is {off:.3} off BF16's (relative L2): not timed")));
    }
    let (graphs, samples) = (BTreeMap::new(), BTreeMap::new());
    Ok(Candidate { id: kernel.id(), prepared, runner, ranked, graphs, samples })
}

/// The index of the algorithm that makes `part` fastest; remembered from before, else timed now. With casts in
/// front, their codes are still in the L2 and another algorithm may win: the best of the bare GEMM try again.
fn fastest(
    engine: &CudaEngine,
    lane: &Lane,
    operands: &Operands,
    (prepared, runner): (&Prepared, &mut Runner),
    (part, among): (Part, &[usize]),
    options: &TimeOptions,
) -> Result<Vec<usize>, CudaError> {
    let name = format!("{part:?} {}", runner.name());
    if let Some(data) = engine.algorithms.get(&name)
        && let Some(index) = (0..runner.count()).find(|index| runner.identity(*index) == data)
    {
        return Ok(vec![index]);
    }
    let (first, last) = (lane.stream.event()?, lane.stream.event()?);
    let mut graphs = Vec::new();
    for index in among {
        let repeats = repeats(operands, prepared, options.sample_us / 3.0, part.launches());
        // An algorithm that cannot be captured or run is no candidate.
        if let Ok(graph) = sequence(lane, operands, prepared, runner, (part, *index, repeats)) {
            graphs.push((*index, graph, Vec::new()));
        }
    }
    for round in 0..=SEARCH_ROUNDS {
        for (_, graph, times) in &mut graphs {
            lane.stream.record(&first)?;
            graph.replay()?;
            lane.stream.record(&last)?;
            last.wait()?;
            if round > 0 {
                times.push(f64::from(last.ms_since(&first)?));
            }
        }
    }
    let mut ranked: Vec<(f64, usize)> = graphs.into_iter().map(|(index, _, times)| (median(times), index)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let best = ranked.first().ok_or_else(|| CudaError::NoAlgorithm(prepared.product.to_string()))?;
    engine.algorithms.put(&name, runner.identity(best.1));
    Ok(ranked.into_iter().map(|(_, index)| index).collect())
}

/// `repeats` times through all sets, as one graph.
fn sequence(
    lane: &Lane,
    operands: &Operands,
    prepared: &Prepared,
    runner: &mut Runner,
    (part, algorithm, repeats): (Part, usize, usize),
) -> Result<Graph, CudaError> {
    lane.stream.capture(|| {
        for _ in 0..repeats {
            for set in 0..operands.sets() {
                match part {
                    Part::Gemm => {}
                    Part::Both => operands.cast_both(lane, prepared, set)?,
                    Part::Cached => operands.cast_left(lane, prepared, set)?,
                }
                runner.run(&lane.stream, operands.addresses(prepared, set), algorithm, &lane.workspace)?;
            }
        }
        Ok(())
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::INFINITY)
}

/// How often to go through all sets for a sample of about `sample_us`.
fn repeats(operands: &Operands, prepared: &Prepared, sample_us: f64, launches: usize) -> usize {
    // The rates of a big GPU: on a smaller one a sample takes longer, which does no harm.
    let gemm = prepared.product.rows as f64 * prepared.product.cols as f64 * prepared.product.reduced as f64;
    let one_us = (2.0 * gemm / 800e6).max(operands.bytes_of_set() as f64 / 4e6).max(2.0) + 1.5 * launches as f64;
    let wanted = (sample_us / (one_us * operands.sets() as f64)).ceil() as usize;
    wanted.clamp(1, (MOST_LAUNCHES / (operands.sets() * (launches + 1))).max(1))
}

fn capture(
    engine: &CudaEngine,
    lane: &Lane,
    operands: &Operands,
    candidate: &mut Candidate,
    options: &TimeOptions,
) -> Result<(), CudaError> {
    let Candidate { prepared, runner, ranked, graphs, .. } = candidate;
    // Without casts the three are the same.
    let parts: &[Part] = match (prepared.casts(), prepared.has_weight()) {
        (false, _) => &[Part::Gemm],
        (true, false) => &[Part::Gemm, Part::Both],
        (true, true) => &[Part::Gemm, Part::Both, Part::Cached],
    };
    for part in parts {
        let algorithm = if *part == Part::Gemm {
            ranked[0]
        } else {
            let again = &ranked[..ranked.len().min(AGAIN)];
            fastest(engine, lane, operands, (prepared, runner), (*part, again), options)?[0]
        };
        let repeats = repeats(operands, prepared, options.sample_us, part.launches());
        let graph = sequence(lane, operands, prepared, runner, (*part, algorithm, repeats))?;
        graphs.insert(*part, (graph, repeats * operands.sets()));
    }
    Ok(())
}

/// Rounds over all kernels and parts; within a round nothing waits, so that the GPU never idles.
fn sample(lane: &Lane, candidates: &mut [Candidate], options: &TimeOptions) -> Result<(), CudaError> {
    let count: usize = candidates.iter().map(|candidate| candidate.graphs.len()).sum();
    let events = (0..2 * count).map(|_| lane.stream.event()).collect::<Result<Vec<Event>, _>>()?;
    for round in 0..WARM_UP + options.samples {
        let mut pair = events.chunks_exact(2);
        for (graph, _) in candidates.iter().flat_map(|candidate| candidate.graphs.values()) {
            let Some([first, last]) = pair.next() else { continue };
            lane.stream.record(first)?;
            graph.replay()?;
            lane.stream.record(last)?;
        }
        lane.stream.wait()?;
        if round < WARM_UP {
            continue;
        }
        let mut pair = events.chunks_exact(2);
        for Candidate { graphs, samples, .. } in candidates.iter_mut() {
            for (part, (_, runs)) in graphs.iter() {
                let Some([first, last]) = pair.next() else { continue };
                let us = f64::from(last.ms_since(first)?) * 1e3 / *runs as f64;
                samples.entry(*part).or_default().push(us);
            }
        }
    }
    Ok(())
}

impl Candidate {
    fn timing(mut self) -> Timing {
        let gemm_us = self.samples.remove(&Part::Gemm).unwrap_or_default();
        let latency_us = self.samples.remove(&Part::Both).unwrap_or_else(|| gemm_us.clone());
        let cached_us = self.samples.remove(&Part::Cached).unwrap_or_else(|| latency_us.clone());
        let note = format!("{}; {}", self.runner.note(self.ranked[0]), self.prepared.note());
        Timing { gemm_us, latency_us, cached_us, note }
    }
}
