//! What follows a linear, on the device.

use loka_kernels::probing::{TAIL_MAX_STEPS, TailOpcode, TailSource, TailStep, TailSteps};

use crate::{
    model::{NORM_BLOCK, OperandCast},
    mods::Tail,
    numerics::Step,
};

use super::{
    CudaError,
    stream::Buffer,
    stream_context::{StreamContext, Tensor},
};

/// A tail with its parameters uploaded.
pub(super) struct DeviceTail {
    steps: TailSteps,
    tail: Tail,
    /// The steps point into these.
    _parameters: Vec<Buffer<f32>>,
}

impl DeviceTail {
    pub fn new(lane: &StreamContext, tail: &Tail) -> Result<Self, CudaError> {
        let mut parameters = Vec::new();
        let steps = tail.steps.iter().map(|step| device_step(lane, step, &mut parameters));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        let too_many = || CudaError::Refused(format!("a tail of {} steps; {TAIL_MAX_STEPS} fit a launch", steps.len()));
        let steps = TailSteps::new(&steps).ok_or_else(too_many)?;
        Ok(Self { steps, tail: tail.clone(), _parameters: parameters })
    }

    /// How what comes out is cast for the next site.
    pub fn next_cast(&self, cast: OperandCast) -> (OperandCast, Option<f32>) {
        self.tail.next_cast(cast)
    }

    /// FP32 rows of the linear's outputs become rows of the block's.
    pub fn apply_in_place(&self, lane: &StreamContext, rows: &Tensor) -> Result<(), CudaError> {
        lane.tail((rows.data.address(), TailSource::F32), rows, self.steps)
    }

    pub fn apply(&self, lane: &StreamContext, source: (u64, TailSource), to: &Tensor) -> Result<(), CudaError> {
        lane.tail(source, to, self.steps)
    }
}

fn device_step(lane: &StreamContext, step: &Step, parameters: &mut Vec<Buffer<f32>>) -> Result<TailStep, CudaError> {
    let mut upload = |values: Option<&[f32]>| -> Result<u64, CudaError> {
        let Some(values) = values else { return Ok(0) };
        let buffer = lane.stream.upload(values)?;
        let address = buffer.address();
        parameters.push(buffer);
        Ok(address)
    };
    Ok(match step {
        Step::Bias(bias) => TailStep { beta: upload(Some(bias))?, ..TailStep::of(TailOpcode::Bias) },
        Step::LayerNorm { eps, gamma, beta } => TailStep {
            eps: *eps,
            gamma: upload(gamma.as_deref())?,
            beta: upload(beta.as_deref())?,
            ..TailStep::of(TailOpcode::LayerNorm)
        },
        Step::RmsNorm { eps, gamma } => {
            TailStep { eps: *eps, gamma: upload(gamma.as_deref())?, ..TailStep::of(TailOpcode::RmsNorm) }
        }
        Step::BlockNorm { eps, block } => {
            TailStep { eps: *eps, block: *block as u32, ..TailStep::of(TailOpcode::BlockNorm) }
        }
        Step::Swish => TailStep::of(TailOpcode::Swish),
        Step::HardSwish => TailStep::of(TailOpcode::HardSwish),
        Step::Relu => TailStep::of(TailOpcode::Relu),
        Step::Sigmoid => TailStep::of(TailOpcode::Sigmoid),
        Step::Tanh => TailStep::of(TailOpcode::Tanh),
        Step::Gelu => TailStep::of(TailOpcode::Gelu),
    })
}

/// BlockNorm and hard swish of a product's FP64 output, in FP32's arithmetic, as FP64 again.
pub(super) fn block_tail(lane: &StreamContext, product: &Buffer<f64>) -> Result<Buffer<f64>, CudaError> {
    let steps = vec![Step::BlockNorm { eps: f32::EPSILON, block: NORM_BLOCK }, Step::HardSwish];
    // Blocks know nothing of one another: each is a row.
    let tail = DeviceTail::new(lane, &Tail { features: NORM_BLOCK, steps, ended_by: None })?;
    let narrow = lane.tensor(product.len() / NORM_BLOCK, NORM_BLOCK)?;
    tail.apply(lane, (product.address(), TailSource::F64), &narrow)?;
    let wide = lane.stream.alloc(product.len())?;
    lane.flat_to_f64(&narrow, &wide)?;
    Ok(wide)
}
