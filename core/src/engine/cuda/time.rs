//! Latencies of native kernels: casts and GEMM as one CUDA graph, on buffers that rotate through more memory
//! than the L2 holds, all kernels of a shape interleaved, every sample kept.
//!
//! Before a kernel is timed its output is compared with BF16's: a fast wrong kernel is worth nothing.

use std::collections::BTreeMap;

use loka_kernels::gemm::STORE_H;

use crate::{
    engine::{KernelTiming, TimeOptions, Timing},
    model::{Gemm, GemmShape, Kernel, KernelId},
};

use super::{
    CudaEngine, CudaError,
    block::OwnBlock,
    gemm::OwnGemm,
    lt::Plan,
    operands::{Operands, Prepared},
    runner::{Reads, Runner},
    separate,
    static_gemm::StaticGemm,
    stream::{Event, Graph, Stream},
    stream_context::StreamContext,
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
pub(super) const WRONG: f64 = 0.12;

/// What one kernel does in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Both operands cast before.
    Gemm,
    Both,
    Cached,
    /// BF16's product with the tail by itself behind it: of a kernel that has the tail inside.
    Tail,
}

impl Part {
    /// In what form the left operand is there, to a kernel that casts it by itself.
    fn reads(self) -> Reads {
        if self == Self::Gemm { Reads::Codes } else { Reads::Bf16 }
    }

    /// Launches beside the GEMM.
    pub fn launches(self) -> usize {
        match self {
            Self::Gemm => 0,
            Self::Tail => 1,
            Self::Both | Self::Cached => 2,
        }
    }
}

/// Algorithms that are tried again behind the casts.
const AGAIN: usize = 4;

/// One kernel on its way through the timing.
pub(super) struct Candidate {
    pub id: KernelId,
    pub prepared: Prepared,
    pub runner: Runner,
    /// The best algorithms of the bare GEMM, the first one first.
    pub ranked: Vec<usize>,
    /// What each part was timed with.
    chosen: BTreeMap<Part, usize>,
    pub graphs: BTreeMap<Part, (Graph, usize)>,
    pub samples: BTreeMap<Part, Vec<f64>>,
}

/// Times `kernels`, none of which refuses its sizes, at one GEMM. One that cannot run has its reason; the others go on.
pub(super) fn time(
    engine: &CudaEngine,
    kernels: &[&'static Kernel],
    gemm: Gemm,
    shape: GemmShape,
    options: &TimeOptions,
) -> Result<Vec<KernelTiming>, CudaError> {
    let mut lane = StreamContext::new(Stream::new(&engine.device)?, engine.kernels.clone(), engine.lt.clone())?;
    let mut operands = Operands::new(&mut lane, gemm, shape, CACHE_FOLD * engine.device.l2_bytes, MOST_SETS)?;
    let (mut candidates, mut refused) = (Vec::new(), Vec::new());
    for kernel in kernels {
        let found = candidate(engine, &mut lane, &mut operands, kernel, options);
        let ready = found.and_then(|mut candidate| {
            capture(engine, &mut lane, &mut operands, &mut candidate, options)?;
            Ok(candidate)
        });
        match ready {
            Ok(candidate) => candidates.push(candidate),
            Err(error) if error.is_sticky() => return Err(error),
            Err(error) => refused.push((kernel.id(), Err(error.to_string()))),
        }
    }
    match separate::capture(&mut lane, &mut operands, &mut candidates, options) {
        Ok(()) => {}
        Err(error) if error.is_sticky() => return Err(error),
        Err(error) => {
            let blocks = candidates.extract_if(.., |candidate| candidate.prepared.has_tail);
            refused.extend(blocks.map(|block| (block.id, Err(error.to_string()))));
        }
    }
    sample(&lane, &mut candidates, options)?;
    separate::tail_us(&mut candidates);
    engine.algorithms.save();
    let timed = candidates.into_iter().map(|candidate| (candidate.id.clone(), Ok(candidate.timing())));
    Ok(timed.chain(refused).collect())
}

/// Casts its operands, finds its fastest algorithm, and checks what it computes.
fn candidate(
    engine: &CudaEngine,
    lane: &mut StreamContext,
    operands: &mut Operands,
    kernel: &Kernel,
    options: &TimeOptions,
) -> Result<Candidate, CudaError> {
    let prepared = operands.prepare(lane, kernel)?;
    let mut runner = runner(engine, kernel, &prepared, options)?;
    for set in 0..operands.sets() {
        operands.cast_both(lane, &prepared, set)?;
        if runner.casts_left() {
            operands.cast_static(lane, &prepared, set)?;
        }
    }
    let all = runner.ways(Reads::Codes);
    let ranked = fastest(engine, lane, operands, (&prepared, &mut runner), (Part::Gemm, &all), options)?;
    check(lane, operands, (&prepared, &mut runner), ranked[0])?;
    let (chosen, graphs, samples) = Default::default();
    Ok(Candidate { id: kernel.id(), prepared, runner, ranked, chosen, graphs, samples })
}

fn runner(
    engine: &CudaEngine,
    kernel: &Kernel,
    prepared: &Prepared,
    options: &TimeOptions,
) -> Result<Runner, CudaError> {
    let (device, kernels, product) = (&engine.device, &engine.kernels, prepared.product);
    Ok(if kernel.has_tail() {
        Runner::Block(OwnBlock::new(device, kernels, product, STORE_H)?)
    } else if kernel.casts_on_the_way() {
        Runner::Static(StaticGemm::new(device, kernels, product)?)
    } else if kernel.is_own() {
        Runner::Own(OwnGemm::new(device, kernels, product)?)
    } else {
        Runner::Library(Plan::new(&engine.lt, product, options.algorithms.max(1))?)
    })
}

/// Refuses a way whose output is not what BF16's is, or not all there.
fn check(
    lane: &mut StreamContext,
    operands: &mut Operands,
    (prepared, runner): (&Prepared, &mut Runner),
    way: usize,
) -> Result<(), CudaError> {
    operands.poison(lane, 0)?;
    let own_cast = runner.casts_left() && runner.ways(Reads::Bf16).contains(&way);
    if own_cast {
        // What was cast before would hide that it casts nothing.
        operands.poison_left(lane, prepared, 0)?;
    }
    runner.run(&lane.stream, operands.places(prepared, 0), way, &lane.workspace)?;
    if own_cast {
        operands.cast_static(lane, prepared, 0)?;
    }
    let off = operands.distance_from_bf16(lane, prepared, 0)?;
    if off.is_nan() || off > WRONG {
        let what = runner.note(way);
        return Err(CudaError::Refused(format!(
            "the output of {what} is {off:.3} off BF16's (relative L2): not timed"
        )));
    }
    Ok(())
}

/// The index of the algorithm that makes `part` fastest; remembered from before, else timed now. With casts in
/// front, their codes are still in the L2 and another algorithm may win: the best of the bare GEMM try again.
fn fastest(
    engine: &CudaEngine,
    lane: &StreamContext,
    operands: &Operands,
    (prepared, runner): (&Prepared, &mut Runner),
    (part, among): (Part, &[usize]),
    options: &TimeOptions,
) -> Result<Vec<usize>, CudaError> {
    let name = format!("{part:?} {}", runner.name());
    if let Some(data) = engine.algorithms.get(&name)
        && let Some(index) = runner.ways(part.reads()).into_iter().find(|index| runner.identity(*index) == data)
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
    lane: &StreamContext,
    operands: &Operands,
    prepared: &Prepared,
    runner: &mut Runner,
    (part, algorithm, repeats): (Part, usize, usize),
) -> Result<Graph, CudaError> {
    lane.stream.capture(|| {
        for _ in 0..repeats {
            for set in 0..operands.sets() {
                match part {
                    Part::Gemm | Part::Tail => {}
                    Part::Both => operands.cast_both(lane, prepared, set)?,
                    Part::Cached => operands.cast_left(lane, prepared, set)?,
                }
                runner.run(&lane.stream, operands.places(prepared, set), algorithm, &lane.workspace)?;
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
pub(super) fn repeats(operands: &Operands, prepared: &Prepared, sample_us: f64, launches: usize) -> usize {
    // The rates of a big GPU: on a smaller one a sample takes longer, which does no harm.
    let gemm = prepared.product.rows as f64 * prepared.product.cols as f64 * prepared.product.reduced as f64;
    let one_us = (2.0 * gemm / 800e6).max(operands.bytes_of_set() as f64 / 4e6).max(2.0) + 1.5 * launches as f64;
    let wanted = (sample_us / (one_us * operands.sets() as f64)).ceil() as usize;
    wanted.clamp(1, (MOST_LAUNCHES / (operands.sets() * (launches + 1))).max(1))
}

fn capture(
    engine: &CudaEngine,
    lane: &mut StreamContext,
    operands: &mut Operands,
    candidate: &mut Candidate,
    options: &TimeOptions,
) -> Result<(), CudaError> {
    let Candidate { prepared, runner, ranked, chosen, graphs, .. } = candidate;
    // Without casts the three are the same.
    let parts: &[Part] = match (prepared.casts(), prepared.has_weight()) {
        (false, _) => &[Part::Gemm],
        (true, false) => &[Part::Gemm, Part::Both],
        (true, true) => &[Part::Gemm, Part::Both, Part::Cached],
    };
    for part in parts {
        let algorithm = if *part == Part::Gemm {
            ranked[0]
        } else if runner.casts_left() {
            let ways = runner.ways(Reads::Bf16);
            let way = fastest(engine, lane, operands, (prepared, runner), (*part, &ways), options)?[0];
            check(lane, operands, (prepared, runner), way)?;
            way
        } else {
            let again = &ranked[..ranked.len().min(AGAIN)];
            fastest(engine, lane, operands, (prepared, runner), (*part, again), options)?[0]
        };
        chosen.insert(*part, algorithm);
        let repeats = repeats(operands, prepared, options.sample_us, part.launches());
        let graph = sequence(lane, operands, prepared, runner, (*part, algorithm, repeats))?;
        graphs.insert(*part, (graph, repeats * operands.sets()));
    }
    Ok(())
}

/// Rounds over all kernels and parts; within a round nothing waits, so that the GPU never idles.
fn sample(lane: &StreamContext, candidates: &mut [Candidate], options: &TimeOptions) -> Result<(), CudaError> {
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
        let tail_us = self.samples.remove(&Part::Tail).unwrap_or_default();
        let cached_us = self.samples.remove(&Part::Cached).unwrap_or_else(|| latency_us.clone());
        let note = format!("{}; {}", self.ways(), self.prepared.note());
        Timing { gemm_us, latency_us, cached_us, tail_us, note }
    }

    /// For people: what ran, of each part where x arrives in more than one form.
    fn ways(&self) -> String {
        let bare = self.runner.note(self.ranked[0]);
        let of = |part| self.chosen.get(&part).map(|way| self.runner.note(*way));
        match (self.runner.casts_left(), of(Part::Cached), of(Part::Both)) {
            (true, Some(cached), Some(both)) if cached == both => format!("on codes {bare}; on BF16 {cached}"),
            (true, Some(cached), Some(both)) => {
                format!("on codes {bare}; on BF16 {cached}, behind the weight's cast {both}")
            }
            _ => bare,
        }
    }
}
