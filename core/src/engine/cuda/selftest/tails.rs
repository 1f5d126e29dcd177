//! What follows a linear, row by row: each operation and whole tails against the CPU's.

use loka_kernels::probing::{TAIL_MAX_FEATURES, TailSource};

use crate::{
    model::Matrix,
    mods::Tail,
    numerics::{Step, round},
};

use super::{
    super::{
        CudaError,
        stream_context::{StreamContext, Tensor},
        tail::DeviceTail,
    },
    CheckOutcome, POISONS, Suite, ensure,
    guarded::{Guarded, same_floats},
    inputs::{bf16_bits, normals},
};

/// Outputs are of order 1. Sums run in another order, and tanh and GELU's exponential are another library's.
const TOLERANCE: f32 = 2e-6;

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    // The longest row that this device's shared memory holds.
    let room = suite.engine.device.shared_bytes.saturating_sub(1024) / 4;
    let longest = room.min(TAIL_MAX_FEATURES) as usize;
    for features in [1, 7, 48, 300, 4096, longest] {
        for (name, steps) in tails(features) {
            for source in [TailSource::F32, TailSource::F64, TailSource::Bf16] {
                if source != TailSource::F32 && features != 300 {
                    continue;
                }
                let tail = Tail { features, steps: steps.clone(), ended_by: None };
                let rows = if features > 4096 { 3 } else { 37 };
                let name = format!("tail_rows [{rows}, {features}] {name}, from {source:?}");
                suite.check(name, |lane| tail_rows(lane, &tail, rows, source))?;
            }
        }
    }
    Ok(())
}

fn tails(features: usize) -> Vec<(&'static str, Vec<Step>)> {
    let vector = |name: &str| normals(features, name);
    let (eps, gamma, beta) = (1e-5, Some(vector("gamma")), Some(vector("beta")));
    let bias = || Step::Bias(vector("bias"));
    vec![
        ("bias", vec![bias()]),
        ("layer norm", vec![Step::LayerNorm { eps, gamma: None, beta: None }]),
        ("affine layer norm", vec![Step::LayerNorm { eps, gamma: gamma.clone(), beta: beta.clone() }]),
        ("RMS norm", vec![Step::RmsNorm { eps, gamma: None }]),
        ("RMS norm with gain", vec![Step::RmsNorm { eps, gamma: gamma.clone() }]),
        ("block norm by 4", vec![Step::BlockNorm { eps, block: 4 }]),
        ("block norm by 256", vec![Step::BlockNorm { eps, block: 256 }]),
        ("swish", vec![Step::Swish]),
        ("hard swish", vec![Step::HardSwish]),
        ("ReLU", vec![Step::Relu]),
        ("sigmoid", vec![Step::Sigmoid]),
        ("tanh", vec![Step::Tanh]),
        ("GELU", vec![Step::Gelu]),
        ("bias, layer norm, swish", vec![bias(), Step::LayerNorm { eps, gamma, beta }, Step::Swish]),
        ("block norm, hard swish", vec![Step::BlockNorm { eps, block: 16 }, Step::HardSwish]),
    ]
}

fn tail_rows(lane: &StreamContext, tail: &Tail, rows: usize, source: TailSource) -> CheckOutcome {
    let features = tail.features;
    // A mean that is not zero, values on both sides of every activation's bends.
    let values: Vec<f64> =
        normals(rows * features, "tail").iter().map(|value| f64::from(*value) * 2.000_000_3 + 0.4).collect();
    let narrow = |value: &f64| if source == TailSource::Bf16 { round::bf16(*value as f32) } else { *value as f32 };
    let mut wanted = Matrix { rows, cols: features, data: values.iter().map(narrow).collect() };
    let start = wanted.data.clone();
    tail.apply(&mut wanted);
    let device_tail = DeviceTail::new(lane, tail)?;
    for poison in POISONS {
        let from = match source {
            TailSource::F32 => Guarded::holding(lane, &start, 0, poison)?,
            TailSource::F64 => Guarded::holding(lane, &values, 0, poison)?,
            TailSource::Bf16 => Guarded::holding(lane, &bf16_bits(&start), 0, poison)?,
        };
        // One row more than is asked for: it must stay as it is.
        let to = Tensor { data: lane.stream.alloc((rows + 1) * features)?, rows, cols: features };
        lane.stream.fill(&to.data, poison)?;
        device_tail.apply(lane, (from.address(), source), &to)?;
        let mut found = lane.stream.download(&to.data)?;
        let guard = found.split_off(rows * features);
        same_floats("row behind", &guard, &vec![f32::from_ne_bytes([poison; 4]); features])?;
        close(&found, &wanted.data)?;
    }
    if source == TailSource::F32 {
        let rows = lane.upload(rows, features, &start)?;
        device_tail.apply_in_place(lane, &rows)?;
        close(&lane.stream.download(&rows.data)?, &wanted.data)?;
    }
    Ok(())
}

fn close(ours: &[f32], wanted: &[f32]) -> CheckOutcome {
    let off = |(a, b): (&f32, &f32)| (a - b).abs() / b.abs().max(1.0);
    let worst = ours.iter().zip(wanted).map(off).enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((at, off)) = worst else { return Ok(()) };
    ensure(off <= TOLERANCE, || format!("output {at} is {}, not {}", ours[at], wanted[at]))
}
