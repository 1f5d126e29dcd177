//! One draw's operands through every way that was asked for, and the errors of their outputs.

use std::collections::BTreeMap;

use loka_kernels::probing::{ErrorSums, HISTOGRAM_BINS, TailSource};

use crate::{
    engine::{Backend, Drawn, EngineError},
    model::{Format, Gemm, GemmNumerics, GemmShape, OperandCast, kernel},
    numerics::{DrawStats, TensorRange, flushed_share},
};

use super::{
    CudaError,
    cast::{Cast, PaddedCodes},
    external::{External, ExternalError},
    loss::{DeviceLoss, LOSS_BYTES},
    lt::Addresses,
    product::{Compute, Product, Type},
    stream::Buffer,
    stream_context::{StreamContext, Tensor},
    tail::DeviceTail,
};

/// FP64 copies of operands are made a stretch of the reduced dimension at a time, of so many elements.
pub(super) const WIDE_ELEMENTS: usize = 1 << 25;

// One numerics' place among a draw's results.
const BLOCK_AT: usize = 64;
/// Elements of the left operand that are not zero, and those that its cast made zero.
const FLUSHED_AT: usize = 80;
const LOSS_AT: usize = 96;
const HISTOGRAM_AT: usize = 128;
const SLOT: usize = (HISTOGRAM_AT + 4 * HISTOGRAM_BINS).next_multiple_of(128);

const _: () = assert!(size_of::<ErrorSums>() <= BLOCK_AT && LOSS_AT + LOSS_BYTES <= HISTOGRAM_AT);

/// The right operand of fprop or dgrad in every form that was asked for.
pub(super) struct Right {
    pub gemm: Gemm,
    pub draw: u64,
    pub source: Tensor,
    pub casts: BTreeMap<OperandCast, Cast>,
    pub wide: Option<Buffer<f64>>,
}

/// The left operand of one draw, and what is known of the rest of the tensor that it is a part of.
pub(super) struct Left {
    pub source: Tensor,
    pub whole: TensorRange,
}

/// A right operand in every cast form.
pub(super) trait RightOperand {
    fn rows(&self) -> usize;
    fn cast(&mut self, lane: &StreamContext, cast: OperandCast) -> Result<&Cast, CudaError>;
    /// All of it in FP64, when it is small enough to be kept.
    fn wide(&mut self, lane: &StreamContext) -> Result<Option<&Buffer<f64>>, CudaError>;
    /// `[rows, reduced]`, FP32.
    fn source(&self) -> &Tensor;
}

impl RightOperand for Right {
    fn rows(&self) -> usize {
        self.source.rows
    }

    fn cast(&mut self, lane: &StreamContext, cast: OperandCast) -> Result<&Cast, CudaError> {
        match self.casts.entry(cast) {
            std::collections::btree_map::Entry::Occupied(done) => Ok(done.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                Ok(place.insert(lane.cast(&self.source, cast, TensorRange::default())?))
            }
        }
    }

    fn wide(&mut self, lane: &StreamContext) -> Result<Option<&Buffer<f64>>, CudaError> {
        if self.source.rows * self.source.cols > WIDE_ELEMENTS {
            return Ok(None);
        }
        if self.wide.is_none() {
            let wide = lane.stream.alloc(self.source.rows * self.source.cols)?;
            lane.to_f64(&self.source, 0, self.source.cols, &wide)?;
            self.wide = Some(wide);
        }
        Ok(self.wide.as_ref())
    }

    fn source(&self) -> &Tensor {
        &self.source
    }
}

/// wgrad's right operand: input columns, new in each draw.
pub(super) struct RightColumns {
    pub right: Right,
    /// Of x beside these columns.
    pub whole: TensorRange,
}

impl RightOperand for RightColumns {
    fn rows(&self) -> usize {
        self.right.source.rows
    }

    fn cast(&mut self, lane: &StreamContext, cast: OperandCast) -> Result<&Cast, CudaError> {
        let (Right { source, casts, .. }, whole) = (&mut self.right, self.whole);
        match casts.entry(cast) {
            std::collections::btree_map::Entry::Occupied(done) => Ok(done.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => Ok(place.insert(lane.cast(source, cast, whole)?)),
        }
    }

    fn wide(&mut self, _: &StreamContext) -> Result<Option<&Buffer<f64>>, CudaError> {
        Ok(None)
    }

    fn source(&self) -> &Tensor {
        &self.right.source
    }
}

/// What is measured beside the output's error (fprop alone), and who runs libraries' kernels.
pub(super) struct Extras<'a> {
    pub loss: Option<&'a DeviceLoss>,
    pub tail: Option<&'a DeviceTail>,
    pub external: Option<&'a External>,
    pub gemm: Gemm,
}

/// The product in FP64.
fn reference(lane: &mut StreamContext, left: &Tensor, right: &mut dyn RightOperand) -> Result<Buffer<f64>, CudaError> {
    let (rows, cols, reduced) = (left.rows, right.rows(), left.cols);
    let out = lane.stream.alloc(rows * cols)?;
    let width = (WIDE_ELEMENTS / rows.max(cols)).clamp(1, reduced.max(1));
    let whole = width >= reduced;
    let a = lane.stream.alloc(rows * width)?;
    let b = lane.stream.alloc(cols * width)?;
    for first in (0..reduced).step_by(width) {
        let part = width.min(reduced - first);
        lane.to_f64(left, first, part, &a)?;
        let kept = if whole { right.wide(lane)?.map(Buffer::address) } else { None };
        let b_address = match kept {
            Some(address) => address,
            None => {
                lane.to_f64(right.source(), first, part, &b)?;
                b.address()
            }
        };
        let plain = Product::plain(rows, cols, part, Type::F64, Compute::F64);
        let at = Addresses::unscaled(a.address(), b_address, out.address());
        lane.product(Product { accumulate: first > 0, ..plain }, at)?;
    }
    Ok(out)
}

/// Every way on one draw's operands.
pub(super) fn run_all(
    lane: &mut StreamContext,
    left: &Left,
    right: &mut dyn RightOperand,
    ways: &[Backend],
    extras: &Extras<'_>,
) -> Result<Vec<Drawn>, EngineError> {
    let (rows, cols) = (left.source.rows, right.rows());
    let exact = reference(lane, &left.source, right)?;
    let results = lane.stream.zeros::<u8>(ways.len() * SLOT)?;
    let measure = Measure {
        difference: extras.loss.map(|_| lane.tensor(rows, cols)).transpose()?,
        block: extras.tail.map(|tail| BlockReference::new(lane, tail, &exact, rows, cols)).transpose()?,
        exact,
        loss: extras.loss,
    };
    let mut form: Option<Cast> = None;
    let mut refused: BTreeMap<usize, String> = BTreeMap::new();
    for (index, way) in ways.iter().enumerate() {
        let slot = results.address() + (index * SLOT) as u64;
        match way {
            Backend::Numerics(numerics) => native(lane, left, right, *numerics, &mut form, &measure, slot)?,
            Backend::Library(name) => {
                if let Err(reason) = library(lane, left, right, name, extras, &measure, slot)? {
                    refused.insert(index, reason);
                }
            }
        }
    }
    let bytes = lane.stream.download(&results)?;
    let sums = bytes.chunks_exact(SLOT).zip(ways).map(|(slot, way)| stats_of(slot, *way, rows, extras)).enumerate();
    Ok(sums.map(|(index, sums)| refused.remove(&index).map_or(Ok(sums), Err)).collect())
}

/// What an output is held against.
struct Measure<'a> {
    exact: Buffer<f64>,
    difference: Option<Tensor>,
    loss: Option<&'a DeviceLoss>,
    block: Option<BlockReference<'a>>,
}

impl Measure<'_> {
    /// All sums of one output into its slot. `cast`: of the left operand, which the next site's input gets too.
    fn take(
        &self,
        lane: &mut StreamContext,
        output: (u64, bool),
        cast: OperandCast,
        slot: u64,
    ) -> Result<(), CudaError> {
        let places = (slot, slot + HISTOGRAM_AT as u64);
        lane.error_metrics(output, &self.exact, self.difference.as_ref(), places)?;
        if let (Some(loss), Some(difference)) = (self.loss, &self.difference) {
            loss.measure(lane, difference, slot + LOSS_AT as u64)?;
        }
        match &self.block {
            Some(block) => block.measure(lane, output, cast, slot + BLOCK_AT as u64),
            None => Ok(()),
        }
    }
}

/// One numerics by cuBLASLt and our casts. `form`: the left operand as the numerics before had it cast.
fn native(
    lane: &mut StreamContext,
    left: &Left,
    right: &mut dyn RightOperand,
    numerics: GemmNumerics,
    form: &mut Option<Cast>,
    measure: &Measure<'_>,
    slot: u64,
) -> Result<(), CudaError> {
    let (rows, cols, reduced) = (left.source.rows, right.rows(), left.source.cols);
    if form.as_ref().is_none_or(|form| form.cast != numerics.a) {
        // Its memory is free before the next form takes as much.
        drop(form.take());
        *form = Some(lane.cast(&left.source, numerics.a, left.whole)?);
    }
    let Some(a) = form else { return Ok(()) };
    lane.count_flushed(&left.source, a, slot + FLUSHED_AT as u64)?;
    let b = right.cast(lane, numerics.b)?;
    let is_bf16 = numerics.output == Format::Bf16;
    // FP8 tensor cores take multiples of 16; the runtime pads, too (`Kernel::as_run`).
    let is_fp8 = matches!(numerics.a.format, Format::E4m3 | Format::E5m2);
    let wide = |size: usize| if is_fp8 { size.next_multiple_of(16) } else { size };
    let (wide_cols, wide_reduced) = (wide(cols), wide(reduced));
    let product = Product::of(numerics, rows, wide_cols, wide_reduced);
    let stream = &lane.stream;
    let wide_a = PaddedCodes::of(stream, a, product.a.scaling, (rows, reduced), (rows, wide_reduced))?;
    let wide_b = PaddedCodes::of(stream, b, product.b.scaling, (cols, reduced), (wide_cols, wide_reduced))?;
    let width = if is_bf16 { 2 } else { 4 };
    let output = stream.alloc::<u8>(rows * wide_cols * width)?;
    // Poison: what a kernel leaves unwritten must be seen.
    stream.fill(&output, 0xFF)?;
    let codes = |cast: &Cast, wide: &Option<PaddedCodes>, scaling| {
        let codes = wide.as_ref().map_or(cast.codes.address(), |wide| wide.codes.address());
        let scales = wide.as_ref().and_then(|wide| wide.scales.as_ref()).map(Buffer::address);
        (codes, scales.unwrap_or_else(|| cast.scales_address(scaling)))
    };
    let (a, a_scales) = codes(a, &wide_a, product.a.scaling);
    let (b, b_scales) = codes(b, &wide_b, product.b.scaling);
    lane.product(product, Addresses { a, b, out: output.address(), a_scales, b_scales })?;
    if wide_cols == cols {
        return measure.take(lane, (output.address(), is_bf16), numerics.a, slot);
    }
    let narrow = lane.stream.alloc::<u8>(rows * cols * width)?;
    lane.stream.copy_rows((&output, wide_cols * width), (&narrow, cols * width), (cols * width, rows))?;
    measure.take(lane, (narrow.address(), is_bf16), numerics.a, slot)
}

/// A library's kernel in the worker, on the operands as the model stores them. The inner error: it refused.
fn library(
    lane: &mut StreamContext,
    left: &Left,
    right: &dyn RightOperand,
    name: &str,
    extras: &Extras<'_>,
    measure: &Measure<'_>,
    slot: u64,
) -> Result<Result<(), String>, CudaError> {
    let (Some(external), Some(kernel)) = (extras.external, kernel(name)) else {
        return Ok(Err(format!("no library runs {name} here")));
    };
    let (a, b) = (&left.source, right.source());
    let (a_stored, b_stored) = match extras.gemm {
        Gemm::Fprop => (None, None),
        Gemm::Dgrad => (None, Some(lane.transpose(b)?)),
        Gemm::Wgrad => (Some(lane.transpose(a)?), Some(lane.transpose(b)?)),
    };
    let (a, b) = (a_stored.as_ref().unwrap_or(a), b_stored.as_ref().unwrap_or(b));
    let shape = match extras.gemm {
        Gemm::Fprop => GemmShape { m: a.rows, k: a.cols, n: b.rows },
        Gemm::Dgrad => GemmShape { m: a.rows, k: b.cols, n: a.cols },
        Gemm::Wgrad => GemmShape { m: a.rows, k: b.cols, n: a.cols },
    };
    let cast = kernel.numerics(extras.gemm).a;
    match external
        .run(lane, (kernel, extras.gemm), shape, [a, b], |lane, output| measure.take(lane, (output, true), cast, slot))
    {
        Ok(()) => Ok(Ok(())),
        Err(ExternalError::Library(reason)) => Ok(Err(reason)),
        Err(ExternalError::Cuda(error)) => Err(error),
    }
}

/// The block's output in high precision.
struct BlockReference<'a> {
    tail: &'a DeviceTail,
    exact: Tensor,
    output: Tensor,
}

impl<'a> BlockReference<'a> {
    fn new(
        lane: &StreamContext,
        tail: &'a DeviceTail,
        exact: &Buffer<f64>,
        rows: usize,
        cols: usize,
    ) -> Result<Self, CudaError> {
        let block = Self { tail, exact: lane.tensor(rows, cols)?, output: lane.tensor(rows, cols)? };
        tail.apply(lane, (exact.address(), TailSource::F64), &block.exact)?;
        Ok(block)
    }

    /// Squared error and squared reference after bias, tail and the cast for the next site.
    fn measure(
        &self,
        lane: &StreamContext,
        (output, is_bf16): (u64, bool),
        cast: OperandCast,
        sums: u64,
    ) -> Result<(), CudaError> {
        let kind = if is_bf16 { TailSource::Bf16 } else { TailSource::F32 };
        self.tail.apply(lane, (output, kind), &self.output)?;
        let (cast, static_scale) = self.tail.next_cast(cast);
        lane.block_distance(
            &lane.cast(&self.output, cast, TensorRange { amax: None, static_scale })?,
            &self.exact,
            sums,
        )
    }
}

fn stats_of(slot: &[u8], way: Backend, rows: usize, extras: &Extras<'_>) -> DrawStats {
    let f64_at = |at: usize| bytemuck::pod_read_unaligned::<f64>(&slot[at..at + 8]);
    let u64_at = |at: usize| bytemuck::pod_read_unaligned::<u64>(&slot[at..at + 8]);
    let histogram = slot[HISTOGRAM_AT..HISTOGRAM_AT + 4 * HISTOGRAM_BINS].chunks_exact(4);
    DrawStats {
        sum_error_squares: f64_at(0),
        sum_ref_squares: f64_at(8),
        sum_relative_body: f64_at(16),
        max_abs: f64_at(24),
        elements: u64_at(32),
        zeros: u64_at(40),
        tail_count: u64_at(48),
        sum_error_ref: f64_at(56),
        product_energy: None,
        histogram: histogram.map(bytemuck::pod_read_unaligned).collect(),
        // A library keeps its codes to itself.
        flushed: match way {
            Backend::Numerics(GemmNumerics { a: OperandCast { format: Format::E4m3 | Format::E5m2, .. }, .. }) => {
                Some(flushed_share(u64_at(FLUSHED_AT), u64_at(FLUSHED_AT + 8)))
            }
            _ => None,
        },
        block: extras.tail.map(|_| (f64_at(BLOCK_AT), f64_at(BLOCK_AT + 8))),
        loss_cost: extras
            .loss
            .map(|_| DeviceLoss::cost([f64_at(LOSS_AT), f64_at(LOSS_AT + 8), f64_at(LOSS_AT + 16)], rows)),
    }
}
