//! One stream with all that work on it needs: our kernels with typed arguments, cuBLASLt plans, scratch.
//!
//! Matrices are row-major. Nothing here waits for the device, apart from uploads and downloads.

use std::{collections::HashMap, sync::Arc};

use loka_kernels::probing::{self, ErrorSums, TailSource, TailSteps};

use crate::numerics::rng::Normals;

use super::{
    CudaError,
    arguments::Arguments,
    cast::{Cast, code_format, scale_mode},
    lt::{Addresses, Lt, Plan, WORKSPACE_BYTES},
    ops::Kernels,
    product::Product,
    stream::{Buffer, Stream},
};

/// FP32 `[rows, cols]` on the device.
pub(super) struct Tensor {
    pub data: Buffer<f32>,
    pub rows: usize,
    pub cols: usize,
}

impl Tensor {
    pub fn rows_u32(&self) -> u32 {
        self.rows as u32
    }

    pub fn cols_u32(&self) -> u32 {
        self.cols as u32
    }

    pub fn count(&self) -> u64 {
        self.rows as u64 * self.cols as u64
    }
}

/// A stream and what belongs to it.
pub(super) struct StreamContext {
    pub stream: Arc<Stream>,
    pub kernels: Arc<Kernels>,
    pub lt: Arc<Lt>,
    pub workspace: Buffer<u8>,
    partials: Buffer<u8>,
    counter: Buffer<u32>,
    plans: HashMap<Product, Plan>,
}

impl StreamContext {
    pub fn new(stream: Arc<Stream>, kernels: Arc<Kernels>, lt: Arc<Lt>) -> Result<Self, CudaError> {
        Ok(Self {
            workspace: stream.alloc(WORKSPACE_BYTES)?,
            partials: stream.alloc(probing::MOST_PARTIALS_BYTES as usize)?,
            counter: stream.zeros(1)?,
            plans: HashMap::new(),
            stream,
            kernels,
            lt,
        })
    }

    pub fn tensor(&self, rows: usize, cols: usize) -> Result<Tensor, CudaError> {
        Ok(Tensor { data: self.stream.alloc(rows * cols)?, rows, cols })
    }

    pub fn upload(&self, rows: usize, cols: usize, data: &[f32]) -> Result<Tensor, CudaError> {
        assert_eq!(data.len(), rows * cols, "a matrix of another size");
        Ok(Tensor { data: self.stream.upload(data)?, rows, cols })
    }

    pub fn launch(
        &self,
        entry: &'static str,
        grid: loka_kernels::LaunchGrid,
        arguments: &Arguments,
    ) -> Result<(), CudaError> {
        self.stream.launch(self.kernels.get(entry)?, grid, arguments)
    }

    /// A product by the library's first choice, which is the same in every run.
    pub fn product(&mut self, product: Product, at: Addresses) -> Result<(), CudaError> {
        let plan = match self.plans.entry(product) {
            std::collections::hash_map::Entry::Occupied(plan) => plan.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => place.insert(Plan::new(&self.lt, product, 1)?),
        };
        plan.run(&self.stream, at, 0, &self.workspace)
    }

    /// Standard normals, the same numbers as on the CPU.
    pub fn fill_normal(&self, to: &Buffer<f32>, normals: Normals) -> Result<(), CudaError> {
        let count = to.len() as u64;
        let arguments = Arguments::new()
            .buffer(to)
            .value(count)
            .value(normals.first_block)
            .value(normals.stream)
            .value(normals.key[0])
            .value(normals.key[1]);
        self.launch("fill_normal", probing::fill_normal(count), &arguments)
    }

    fn rows_kernel(
        &self,
        entry: &'static str,
        values: &Tensor,
        rest: impl FnOnce(Arguments) -> Arguments,
    ) -> Result<(), CudaError> {
        let grid = probing::rows_of(values.rows_u32(), values.cols_u32());
        self.launch(entry, grid, &rest(Arguments::new().buffer(&values.data)))
    }

    pub fn add_mean(&self, values: &Tensor, mean: &Buffer<f32>) -> Result<(), CudaError> {
        self.rows_kernel("add_mean", values, |a| a.buffer(mean).value(values.rows_u32()).value(values.cols_u32()))
    }

    /// `noise`: `[rows, stride]`.
    pub fn add_scaled_noise(
        &self,
        values: &Tensor,
        noise: &Buffer<f32>,
        stride: usize,
        deviations: &Buffer<f32>,
    ) -> Result<(), CudaError> {
        self.rows_kernel("add_scaled_noise", values, |a| {
            a.buffer(noise).buffer(deviations).value(values.rows_u32()).value(values.cols_u32()).value(stride as u32)
        })
    }

    pub fn copula_map(&self, values: &Tensor, map: &DeviceCopula) -> Result<(), CudaError> {
        self.rows_kernel("copula_map", values, |a| {
            a.buffer(&map.scores)
                .buffer(&map.inverse_deviation)
                .buffer(&map.first)
                .buffer(&map.slopes)
                .value(values.rows_u32())
                .value(values.cols_u32())
                .value(map.scores.len() as u32)
                .value(map.amax)
        })
    }

    pub fn transpose(&self, from: &Tensor) -> Result<Tensor, CudaError> {
        let to = self.tensor(from.cols, from.rows)?;
        let arguments =
            Arguments::new().buffer(&from.data).buffer(&to.data).value(from.rows_u32()).value(from.cols_u32());
        self.launch("transpose_f32", probing::transpose_f32(from.rows_u32(), from.cols_u32()), &arguments)?;
        Ok(to)
    }

    /// Chosen columns, `[rows, count]`.
    pub fn gather_columns(&self, from: &Tensor, indices: &Buffer<u32>) -> Result<Tensor, CudaError> {
        let to = self.tensor(from.rows, indices.len())?;
        let arguments = Arguments::new()
            .buffer(&from.data)
            .buffer(indices)
            .buffer(&to.data)
            .value(from.rows_u32())
            .value(from.cols_u32())
            .value(indices.len() as u32);
        self.launch("gather_columns", probing::rows_of(from.rows_u32(), indices.len() as u32), &arguments)?;
        Ok(to)
    }

    /// Columns `first..first + width` in FP64.
    pub fn to_f64(&self, from: &Tensor, first: usize, width: usize, to: &Buffer<f64>) -> Result<(), CudaError> {
        let arguments = Arguments::new()
            .buffer(&from.data)
            .buffer(to)
            .value(from.rows_u32())
            .value(from.cols_u32())
            .value(first as u32)
            .value(width as u32);
        self.launch("to_f64", probing::rows_of(from.rows_u32(), width as u32), &arguments)
    }

    pub fn round_bf16(&self, from: &Tensor) -> Result<Buffer<u16>, CudaError> {
        let codes = self.stream.alloc::<u16>(from.data.len())?;
        let arguments = Arguments::new().buffer(&from.data).buffer(&codes).value(from.count());
        self.launch("round_bf16", probing::elements(from.count()), &arguments)?;
        Ok(codes)
    }

    /// BF16 widened: a tail without steps, on rows of whatever length divides the count.
    pub fn bf16_to_f32(&self, from: &Buffer<u16>, to: &Tensor) -> Result<(), CudaError> {
        let count = from.len();
        let features = (1usize << count.trailing_zeros().min(12)).max(1);
        let none = TailSteps::new(&[]).ok_or_else(|| CudaError::Refused("no steps".to_owned()))?;
        let (rows, features) = ((count / features) as u32, features as u32);
        let Some(grid) = probing::tail_rows(rows, features) else {
            return Err(CudaError::Refused(format!("rows of {features} are too long")));
        };
        let arguments = Arguments::new()
            .buffer(from)
            .buffer(&to.data)
            .value(TailSource::Bf16 as u32)
            .value(features)
            .structure(none);
        self.launch("tail_rows", grid, &arguments)
    }

    /// All of a tensor in FP64, whatever its shape.
    pub fn flat_to_f64(&self, from: &Tensor, to: &Buffer<f64>) -> Result<(), CudaError> {
        let count = from.count() as u32;
        let arguments =
            Arguments::new().buffer(&from.data).buffer(to).value(1u32).value(count).value(0u32).value(count);
        self.launch("to_f64", probing::rows_of(1, count), &arguments)
    }

    /// Relative L2 distance of an output from a reference. Waits.
    pub fn distance(&self, output: (u64, bool), reference: &Buffer<f64>) -> Result<f64, CudaError> {
        let sums = self.stream.zeros::<f64>(size_of::<ErrorSums>() / 8)?;
        let histogram = self.stream.zeros::<u32>(probing::HISTOGRAM_BINS)?;
        self.error_metrics(output, reference, None, (sums.address(), histogram.address()))?;
        let sums = self.stream.download(&sums)?;
        Ok((sums[0] / sums[1]).sqrt())
    }

    /// Error sums of `count` outputs at `output` into `sums` (of `ErrorSums`), histogram into `histogram`
    /// (zeroed before); output - reference into `difference` if it is wanted.
    pub fn error_metrics(
        &self,
        (output, is_bf16): (u64, bool),
        reference: &Buffer<f64>,
        difference: Option<&Tensor>,
        (sums, histogram): (u64, u64),
    ) -> Result<(), CudaError> {
        let count = reference.len() as u64;
        let arguments = Arguments::new()
            .value(output)
            .buffer(reference)
            .maybe(difference.map(|tensor| &tensor.data))
            .value(histogram)
            .buffer(&self.partials)
            .buffer(&self.counter)
            .value(sums)
            .value(count)
            .value(u32::from(is_bf16));
        self.launch("error_metrics", probing::error_metrics(count), &arguments)
    }

    /// Applies a tail to rows of `features` values at `source`.
    pub fn tail(&self, (source, kind): (u64, TailSource), to: &Tensor, steps: TailSteps) -> Result<(), CudaError> {
        let grid = probing::tail_rows(to.rows_u32(), to.cols_u32())
            .filter(|grid| grid.shared_bytes + 1024 <= self.stream.device.shared_bytes)
            .ok_or_else(|| {
                CudaError::Refused(format!(
                    "a tail over {} features needs more shared memory than a block has",
                    to.cols
                ))
            })?;
        let arguments =
            Arguments::new().value(source).buffer(&to.data).value(kind as u32).value(to.cols_u32()).structure(steps);
        self.launch("tail_rows", grid, &arguments)
    }

    /// Squared distance of a cast operand from `exact`, and the latter's squared norm, into two FP64 at `sums`.
    pub fn block_distance(&self, cast: &Cast, exact: &Tensor, sums: u64) -> Result<(), CudaError> {
        let (rows, cols) = (exact.rows_u32(), exact.cols_u32());
        let arguments = Arguments::new()
            .value(cast.codes.address())
            .maybe(cast.scales.as_ref())
            .buffer(&exact.data)
            .buffer(&self.partials)
            .buffer(&self.counter)
            .value(sums)
            .value(rows)
            .value(cols)
            .value(scale_mode(cast.cast.granularity) as u32)
            .value(code_format(cast.cast.format) as u32);
        self.launch("block_distance", probing::block_distance(rows, cols), &arguments)
    }

    /// Sum of squares into one FP64 at `sum`.
    pub fn sum_squares(&self, values: &Tensor, sum: u64) -> Result<(), CudaError> {
        let arguments = Arguments::new()
            .buffer(&values.data)
            .buffer(&self.partials)
            .buffer(&self.counter)
            .value(sum)
            .value(values.count());
        self.launch("sum_squares", probing::sum_squares(values.count()), &arguments)
    }

    /// Weighted squares and squared products with the mean into two FP64 at `sums`.
    pub fn loss_rows(
        &self,
        difference: &Tensor,
        weights: Option<&Buffer<f32>>,
        mean: &Buffer<f32>,
        sums: u64,
    ) -> Result<(), CudaError> {
        let arguments = Arguments::new()
            .buffer(&difference.data)
            .maybe(weights)
            .buffer(mean)
            .buffer(&self.partials)
            .buffer(&self.counter)
            .value(sums)
            .value(difference.rows_u32())
            .value(difference.cols_u32());
        self.launch("loss_rows", probing::loss_rows(difference.rows_u32()), &arguments)
    }
}

/// A copula's map on the device.
pub(super) struct DeviceCopula {
    pub scores: Buffer<f32>,
    pub inverse_deviation: Buffer<f32>,
    pub first: Buffer<f32>,
    pub slopes: Buffer<f32>,
    pub amax: f32,
}
