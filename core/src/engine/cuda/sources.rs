//! Inputs and output gradients drawn on the device, by the samplers of `stats`.

use crate::{
    engine::{EngineError, Feeder, SiteJob},
    mods::{Tail, modified_tail},
    numerics::{CopulaMap, rng::Rng},
    stats::{AmaxTable, ColumnSampler, Root, SamplerKind, copula_of},
    trace::Distribution,
};

use super::{
    CudaError,
    lt::Addresses,
    product::{Compute, Product, Type},
    stream::Buffer,
    stream_context::{DeviceCopula, StreamContext, Tensor},
    tail::DeviceTail,
    weights::Weights,
};

/// Rows start at whole chunks of the generator, as on the CPU.
const CHUNK: usize = 64;

/// Input and output gradient together: up to this size all features are drawn jointly by one factor;
/// beyond it each draw chooses some features and factors their covariance alone.
pub(super) const JOINT: usize = 1536;

/// Elements of such a draw over all rows of the batch.
const JOINT_ELEMENTS: usize = 1 << 27;

/// Features of input and of output gradient that such a draw chooses.
pub(super) const CHOSEN: usize = 128;

pub(super) fn f32s(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

pub(super) fn upload_copula(lane: &StreamContext, map: &CopulaMap) -> Result<DeviceCopula, CudaError> {
    let parts = map.parts();
    Ok(DeviceCopula {
        scores: lane.stream.upload(parts.scores)?,
        inverse_deviation: lane.stream.upload(parts.inverse_deviation)?,
        first: lane.stream.upload(parts.first)?,
        slopes: lane.stream.upload(parts.slopes)?,
        amax: parts.amax,
    })
}

/// `out[m, features] (+)= normals[m, rank] root[features, rank]^T`, in FP32.
fn times_root(
    lane: &mut StreamContext,
    normals: &Tensor,
    root: &Tensor,
    out: &Tensor,
    accumulate: bool,
) -> Result<(), CudaError> {
    let plain = Product::plain(out.rows, out.cols, root.cols, Type::F32, Compute::F32);
    let at = Addresses::unscaled(normals.data.address(), root.data.address(), out.data.address());
    lane.product(Product { accumulate, ..plain }, at)
}

pub(super) fn normals(lane: &StreamContext, rows: usize, cols: usize, rng: &mut Rng) -> Result<Tensor, CudaError> {
    let normals = lane.tensor(rows, cols)?;
    lane.fill_normal(&normals.data, rng.reserve_normals(rows * cols))?;
    Ok(normals)
}

/// Deviations become values: through each feature's quantiles, or plus the mean.
pub(super) struct Finish {
    mean: Buffer<f32>,
    copula: Option<DeviceCopula>,
}

impl Finish {
    fn new(lane: &StreamContext, mean: &[f32], copula: Option<&CopulaMap>) -> Result<Self, CudaError> {
        let copula = copula.map(|map| upload_copula(lane, map)).transpose()?;
        Ok(Self { mean: lane.stream.upload(mean)?, copula })
    }

    fn apply(&self, lane: &StreamContext, rows: &Tensor) -> Result<(), CudaError> {
        match &self.copula {
            Some(map) => lane.copula_map(rows, map),
            None => lane.add_mean(rows, &self.mean),
        }
    }
}

/// Rows of one recorded distribution.
pub(super) struct RowSource {
    features: usize,
    root: Tensor,
    noise: Option<Buffer<f32>>,
    finish: Finish,
    /// Of the rows of a batch that were not drawn.
    amax: AmaxTable,
}

impl RowSource {
    pub fn new(
        lane: &StreamContext,
        what: &'static str,
        distribution: &Distribution,
        probs: &[f64],
        kind: SamplerKind,
    ) -> Result<Self, EngineError> {
        let features = distribution.mean.len();
        let Root { root, rank, noise } = Root::of(what, distribution)?;
        let copula = match kind {
            SamplerKind::Copula => copula_of(distribution, probs),
            SamplerKind::Gaussian => None,
        };
        Ok(Self {
            features,
            root: lane.upload(features, rank, &root)?,
            noise: noise.map(|noise| lane.stream.upload(&noise)).transpose()?,
            finish: Finish::new(lane, &f32s(&distribution.mean), copula.as_ref())?,
            amax: AmaxTable::new(distribution, copula.as_ref()),
        })
    }

    /// `[rows, features]`
    pub fn draw(&self, lane: &mut StreamContext, rows: usize, rng: &mut Rng) -> Result<Tensor, CudaError> {
        let out = if self.root.cols > 0 {
            let normals = normals(lane, rows, self.root.cols, rng)?;
            let out = lane.tensor(rows, self.features)?;
            times_root(lane, &normals, &self.root, &out, false)?;
            out
        } else {
            Tensor { data: lane.stream.zeros(rows * self.features)?, rows, cols: self.features }
        };
        if let Some(deviations) = &self.noise {
            let stride = self.features.next_multiple_of(CHUNK);
            let noise = normals(lane, rows, stride, rng)?;
            lane.add_scaled_noise(&out, &noise.data, stride, deviations)?;
        }
        self.finish.apply(lane, &out)?;
        Ok(out)
    }

    /// A typical amax of `rows` rows.
    pub fn amax_of(&self, rows: usize, rng: &mut Rng) -> f32 {
        self.amax.draw(rows as f64, rng)
    }
}

/// What a site reads: its recorded input, or rows pushed through the modified blocks that feed it.
pub(super) struct Input {
    first: RowSource,
    blocks: Vec<Block>,
}

/// An upstream linear with its modified tail, in high precision.
struct Block {
    weight: Tensor,
    tail: DeviceTail,
}

impl Input {
    pub fn new(lane: &mut StreamContext, job: &SiteJob) -> Result<Self, EngineError> {
        let first = job.upstream.first().map_or(&job.stats, |feeder| &feeder.stats);
        let source = RowSource::new(lane, "input", &first.input, &job.quantile_probs, job.sampler)?;
        let blocks = job.upstream.iter().map(|feeder| Block::new(lane, feeder, job.seed)).collect::<Result<_, _>>()?;
        Ok(Self { first: source, blocks })
    }

    /// True when the rows are the recorded ones.
    pub fn recorded(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn draw(&self, lane: &mut StreamContext, rows: usize, rng: &mut Rng) -> Result<Tensor, CudaError> {
        let mut drawn = self.first.draw(lane, rows, rng)?;
        for block in &self.blocks {
            drawn = block.push(lane, &drawn)?;
        }
        Ok(drawn)
    }

    /// A typical amax of `rows` recorded rows; behind modified blocks 0: what was drawn must do.
    pub fn amax_of(&self, rows: usize, rng: &mut Rng) -> f32 {
        if self.recorded() { self.first.amax_of(rows, rng) } else { 0.0 }
    }
}

impl Block {
    fn new(lane: &mut StreamContext, Feeder { stats, mods }: &Feeder, seed: u64) -> Result<Self, EngineError> {
        let mut rng = Rng::new(seed, &[stats.site.id.as_str().as_bytes(), b"weight"]);
        let tail: Tail = modified_tail(stats, mods);
        Ok(Self { weight: Weights::new(lane, stats)?.draw(lane, &mut rng)?, tail: DeviceTail::new(lane, &tail)? })
    }

    fn push(&self, lane: &mut StreamContext, rows: &Tensor) -> Result<Tensor, CudaError> {
        let out = lane.tensor(rows.rows, self.weight.rows)?;
        times_root(lane, rows, &self.weight, &out, false)?;
        self.tail.apply_in_place(lane, &out)?;
        Ok(out)
    }
}

/// Input and output gradient of the same rows, for the weight gradient.
pub(super) enum Joint {
    /// All features by one factor: x = z1 L11^T, dy = z1 L21^T + z2 L22^T.
    Whole { inputs: Tensor, shared: Tensor, grads: Tensor, finish_x: Box<Finish>, finish_dy: Box<Finish> },
    /// Too many features: each draw chooses some.
    Chosen,
}

/// One draw of columns over all rows of the batch.
pub(super) struct SourceColumns {
    /// `[m, inputs]`
    pub x: Tensor,
    /// `[m, grads]`
    pub dy: Tensor,
    /// Share of all features that were drawn, of input and output gradient.
    pub shares: (f64, f64),
}

impl Joint {
    pub fn new(lane: &StreamContext, job: &SiteJob, grad_output: &Distribution) -> Result<Self, EngineError> {
        let (m, k, n) = (job.stats.site.m, job.stats.site.k, job.stats.site.n);
        if k + n > JOINT || m.saturating_mul(k + n) > JOINT_ELEMENTS {
            return Ok(Self::Chosen);
        }
        let sampler = ColumnSampler::new(&job.stats, grad_output, &job.quantile_probs, job.sampler);
        let all = |count: usize| (0..count).collect::<Vec<usize>>();
        let parts = Parts::of(&sampler.root(&all(k), &all(n))?, k, n);
        let (x_map, dy_map) = sampler.copulas();
        Ok(Self::Whole {
            inputs: lane.upload(k, k, &parts.inputs)?,
            shared: lane.upload(n, k, &parts.shared)?,
            grads: lane.upload(n, n, &parts.grads)?,
            finish_x: Box::new(Finish::new(lane, &f32s(&job.stats.input.mean), x_map)?),
            finish_dy: Box::new(Finish::new(lane, &f32s(&grad_output.mean), dy_map)?),
        })
    }

    pub fn draw(
        &self,
        lane: &mut StreamContext,
        job: &SiteJob,
        grad_output: &Distribution,
        rng: &mut Rng,
    ) -> Result<SourceColumns, EngineError> {
        let m = job.stats.site.m;
        match self {
            Self::Whole { inputs, shared, grads, finish_x, finish_dy } => {
                let linked = job.stats.cross_cov.is_some();
                let (x, dy) = draw_pair(lane, m, [inputs, shared, grads], linked, rng)?;
                finish_x.apply(lane, &x)?;
                finish_dy.apply(lane, &dy)?;
                Ok(SourceColumns { x, dy, shares: (1.0, 1.0) })
            }
            Self::Chosen => draw_chosen(lane, job, grad_output, rng),
        }
    }
}

/// The blocks of a joint Cholesky factor.
struct Parts {
    inputs: Vec<f32>,
    shared: Vec<f32>,
    grads: Vec<f32>,
}

impl Parts {
    fn of(lower: &[f64], inputs: usize, grads: usize) -> Self {
        let size = inputs + grads;
        let part = |rows: std::ops::Range<usize>, cols: std::ops::Range<usize>| {
            rows.flat_map(|row| lower[row * size..][cols.clone()].iter().map(|value| *value as f32)).collect()
        };
        Self {
            inputs: part(0..inputs, 0..inputs),
            shared: part(inputs..size, 0..inputs),
            grads: part(inputs..size, inputs..size),
        }
    }
}

fn draw_pair(
    lane: &mut StreamContext,
    rows: usize,
    [inputs, shared, grads]: [&Tensor; 3],
    linked: bool,
    rng: &mut Rng,
) -> Result<(Tensor, Tensor), CudaError> {
    let (first, second) = (normals(lane, rows, inputs.rows, rng)?, normals(lane, rows, grads.rows, rng)?);
    let (x, dy) = (lane.tensor(rows, inputs.rows)?, lane.tensor(rows, grads.rows)?);
    times_root(lane, &first, inputs, &x, false)?;
    times_root(lane, &second, grads, &dy, false)?;
    if linked {
        times_root(lane, &first, shared, &dy, true)?;
    }
    Ok((x, dy))
}

fn draw_chosen(
    lane: &mut StreamContext,
    job: &SiteJob,
    grad_output: &Distribution,
    rng: &mut Rng,
) -> Result<SourceColumns, EngineError> {
    let site = &job.stats.site;
    let (inputs, grads) = (rng.subset(CHOSEN, site.k), rng.subset(CHOSEN, site.n));
    let sampler = ColumnSampler::new(&job.stats, grad_output, &job.quantile_probs, job.sampler);
    let parts = Parts::of(&sampler.root(&inputs, &grads)?, inputs.len(), grads.len());
    let roots = [
        &lane.upload(inputs.len(), inputs.len(), &parts.inputs)?,
        &lane.upload(grads.len(), inputs.len(), &parts.shared)?,
        &lane.upload(grads.len(), grads.len(), &parts.grads)?,
    ];
    let (x, dy) = draw_pair(lane, site.m, roots, job.stats.cross_cov.is_some(), rng)?;
    let (x_map, dy_map) = sampler.copulas();
    let finish = |rows: &Tensor, chosen: &[usize], mean: &[f64], map: Option<&CopulaMap>| {
        let mean: Vec<f32> = chosen.iter().map(|feature| mean[*feature] as f32).collect();
        Finish::new(lane, &mean, map.map(|map| map.restricted(chosen)).as_ref())?.apply(lane, rows)
    };
    finish(&x, &inputs, &job.stats.input.mean, x_map)?;
    finish(&dy, &grads, &grad_output.mean, dy_map)?;
    let share = |chosen: usize, of: usize| chosen as f64 / of as f64;
    Ok(SourceColumns { x, dy, shares: (share(inputs.len(), site.k), share(grads.len(), site.n)) })
}

/// `count` of `of` columns of rows that are there, chosen anew in each draw.
pub(super) fn some_columns(lane: &StreamContext, rows: Tensor, rng: &mut Rng) -> Result<(Tensor, f64), CudaError> {
    if rows.cols <= JOINT {
        return Ok((rows, 1.0));
    }
    let chosen: Vec<u32> = rng.subset(CHOSEN, rows.cols).into_iter().map(|feature| feature as u32).collect();
    let share = chosen.len() as f64 / rows.cols as f64;
    let indices = lane.stream.upload(&chosen)?;
    Ok((lane.gather_columns(&rows, &indices)?, share))
}
