//! The tail of a block by a kernel of its own: takes the candidates of one timing, gives the one that has the tail inside
//! BF16's product with the separate tail behind it, which is what it is an alternative to.
//!
//! What the tail costs is the difference of that sequence and the bare product, sample by sample: z is still in the L2
//! and launches overlap, as in a model, so that a block does not win by what nobody pays.

use crate::{engine::TimeOptions, model::baseline_kernel};

use super::{
    CudaError,
    operands::Operands,
    stream_context::StreamContext,
    time::{Candidate, Part, WRONG, repeats},
};

/// Captures the sequence, for the one kernel that has the tail inside; without it there is nothing to do. An error says
/// why blocks cannot be timed.
pub(super) fn capture(
    lane: &mut StreamContext,
    operands: &mut Operands,
    candidates: &mut [Candidate],
    options: &TimeOptions,
) -> Result<(), CudaError> {
    let Some(block) = candidates.iter().position(|candidate| candidate.prepared.has_tail) else { return Ok(()) };
    let baseline = baseline_kernel();
    let Some(base) = candidates.iter_mut().find(|candidate| candidate.id == baseline) else {
        return Err(CudaError::Refused(format!("{baseline} with the tail behind it is not timed in the same run")));
    };
    check(lane, operands, base)?;
    let repeats = repeats(operands, &base.prepared, options.sample_us, Part::Tail.launches());
    let Candidate { prepared, runner, ranked, .. } = base;
    let graph = lane.stream.capture(|| {
        for _ in 0..repeats {
            for set in 0..operands.sets() {
                runner.run(&lane.stream, operands.places(prepared, set), ranked[0], &lane.workspace)?;
                operands.separate_tail(lane, set)?;
            }
        }
        Ok(())
    })?;
    candidates[block].graphs.insert(Part::Tail, (graph, repeats * operands.sets()));
    Ok(())
}

/// Refuses a tail that is not what it should be.
fn check(lane: &mut StreamContext, operands: &mut Operands, base: &mut Candidate) -> Result<(), CudaError> {
    operands.poison(lane, 0)?;
    let at = operands.places(&base.prepared, 0);
    base.runner.run(&lane.stream, at, base.ranked[0], &lane.workspace)?;
    operands.separate_tail(lane, 0)?;
    let off = operands.separate_tail_distance(lane, 0)?;
    if off.is_nan() || off > WRONG {
        return Err(CudaError::Refused(format!("the separate tail's output is {off:.3} off (relative L2): not timed")));
    }
    Ok(())
}

/// What the tail cost in each round.
pub(super) fn tail_us(candidates: &mut [Candidate]) {
    let baseline = baseline_kernel();
    let base = candidates.iter().find(|candidate| candidate.id == baseline);
    let Some(bare) = base.and_then(|base| base.samples.get(&Part::Gemm)).cloned() else { return };
    for candidate in candidates {
        if let Some(with_tail) = candidate.samples.get_mut(&Part::Tail) {
            with_tail.iter_mut().zip(&bare).for_each(|(us, bare)| *us = (*us - bare).max(0.0));
        }
    }
}
