//! One prepared site on the GPU: a draw of each of its GEMMs, at its real size, through every asked numerics.
//!
//! A draw samples the operands in FP32, multiplies them once in FP64 (FP32 converted, summed by the FP64
//! tensor cores: not a stand-in for FP64 but FP64), then casts and multiplies them by every numerics on the
//! tensor cores and reduces the errors. All sums of a draw come back in one copy.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    engine::{Backend, Drawn, Engine as _, EngineError, SiteEngine, SiteJob},
    model::{Gemm, GemmShape, Granularity, Kernel, Site},
    mods::modified_tail,
    numerics::{TensorRange, cast::BLOCK, rng::Rng},
};

use super::{
    CudaEngine, CudaError,
    budget::BudgetShare,
    external::External,
    loss::DeviceLoss,
    measure::{Extras, Left, Right, RightColumns, WIDE_ELEMENTS, run_all},
    product::Product,
    sources::{CHOSEN, Input, JOINT, Joint, RowSource, some_columns},
    stream::Stream,
    stream_context::{StreamContext, Tensor},
    tail::DeviceTail,
    weights::Weights,
};

/// Most elements of an operand or output of one draw. Beyond, a draw takes part of the batch's rows: they
/// are exchangeable, so that a part of them is unbiased.
const MOST_ELEMENTS: usize = 1 << 26;

pub(super) struct CudaSite {
    job: SiteJob,
    lane: StreamContext,
    input: Input,
    gradients: Option<RowSource>,
    joint: Option<Joint>,
    loss: Option<DeviceLoss>,
    tail: Option<DeviceTail>,
    weights: Weights,
    right: Option<Right>,
    external: Option<Arc<External>>,
    /// Last, so that all memory is free when the next site may have it.
    _share: BudgetShare,
}

impl CudaSite {
    pub fn new(engine: &CudaEngine, job: SiteJob) -> Result<Self, EngineError> {
        let share = engine.memory.take(bytes_wanted(&job));
        let mut lane = StreamContext::new(Stream::new(&engine.device)?, engine.kernels.clone(), engine.lt.clone())?;
        let stats = job.stats.clone();
        let gradients = stats
            .grad_output
            .as_ref()
            .map(|distribution| RowSource::new(&lane, "grad_output", distribution, &job.quantile_probs, job.sampler));
        let tail = modified_tail(&stats, &job.mods);
        Ok(Self {
            gradients: gradients.transpose()?,
            input: Input::new(&mut lane, &job)?,
            joint: None,
            loss: match &stats.grad_output {
                Some(gradients) => DeviceLoss::new(&lane, gradients)?,
                None => None,
            },
            tail: if tail.has_operations() { Some(DeviceTail::new(&lane, &tail)?) } else { None },
            weights: Weights::new(&lane, &stats)?,
            right: None,
            external: engine.external(),
            lane,
            job,
            _share: share,
        })
    }

    fn rng(&self, gemm: Gemm, draw: u64, what: &[u8]) -> Rng {
        let site = self.job.stats.site.id.as_str().as_bytes();
        Rng::new(self.job.seed, &[site, gemm.as_str().as_bytes(), &draw.to_le_bytes(), what])
    }

    /// Rows of one fprop or dgrad draw.
    fn rows_of_draw(&self) -> usize {
        let site = &self.job.stats.site;
        let most = (MOST_ELEMENTS / site.k.max(site.n).max(1)).max(16);
        if site.m > most {
            return most / 16 * 16;
        }
        // Any rows are a fair part of the batch; these suit every kernel.
        match site.m {
            odd if odd.is_multiple_of(16) || odd < 16 => odd,
            odd if odd < BLOCK => odd / 16 * 16,
            odd => odd / BLOCK * BLOCK,
        }
    }

    /// What is known of the left operand of fprop or dgrad beside the rows that are drawn.
    fn whole(&self, gemm: Gemm, rest_amax: f32) -> TensorRange {
        TensorRange { amax: Some(rest_amax), static_scale: self.job.scales.of(gemm).ok().map(|known| known.scale) }
    }

    /// The same of wgrad's right operand.
    fn whole_of_input(&self, rest_amax: f32) -> TensorRange {
        let known = self.job.scales.of_right(Gemm::Wgrad).ok();
        TensorRange { amax: Some(rest_amax), static_scale: known.map(|known| known.scale) }
    }

    /// fprop and dgrad: rows against the weight.
    fn draw_rows(&mut self, gemm: Gemm, ways: &[Backend], draw: u64) -> Result<Vec<Drawn>, EngineError> {
        let m = self.job.stats.site.m;
        let rows = self.rows_of_draw();
        let mut rng = self.rng(gemm, draw, b"rows");
        let (source, rest_amax) = if gemm == Gemm::Fprop {
            (self.input.draw(&mut self.lane, rows, &mut rng)?, self.input.amax_of(m - rows, &mut rng))
        } else {
            let gradients = self.gradients.as_ref().ok_or(EngineError::NoGradients)?;
            (gradients.draw(&mut self.lane, rows, &mut rng)?, gradients.amax_of(m - rows, &mut rng))
        };
        self.rows_against_weight(gemm, ways, &Left { source, whole: self.whole(gemm, rest_amax) }, draw)
    }

    fn rows_against_weight(
        &mut self,
        gemm: Gemm,
        ways: &[Backend],
        left: &Left,
        draw: u64,
    ) -> Result<Vec<Drawn>, EngineError> {
        let mut right = self.right_operand(gemm, draw)?;
        let forward = gemm == Gemm::Fprop;
        let extras = Extras {
            loss: self.loss.as_ref().filter(|_| forward),
            tail: self.tail.as_ref().filter(|_| forward),
            external: self.external.as_deref(),
            gemm,
        };
        let sums = run_all(&mut self.lane, left, &mut right, ways, &extras);
        self.right = Some(right);
        sums
    }

    /// The weight as the GEMM reads it: kept from draw to draw when it is exact.
    fn right_operand(&mut self, gemm: Gemm, draw: u64) -> Result<Right, EngineError> {
        let exact = self.weights.is_exact();
        if let Some(right) = self.right.take_if(|right| right.gemm == gemm && (exact || right.draw == draw)) {
            return Ok(right);
        }
        // The other direction's casts would only take memory.
        self.right = None;
        let mut rng = self.rng(gemm, draw, b"weight");
        let weight = self.weights.draw(&mut self.lane, &mut rng)?;
        // dgrad reduces over n: its operand's rows are the weight's columns.
        let source = if gemm == Gemm::Dgrad { self.lane.transpose(&weight)? } else { weight };
        Ok(Right { gemm, draw, source, casts: BTreeMap::new(), wide: None })
    }

    /// wgrad: output features against input features, over all rows of the batch.
    fn draw_columns(&mut self, ways: &[Backend], draw: u64) -> Result<Vec<Drawn>, EngineError> {
        self.right = None;
        let stats = self.job.stats.clone();
        let grad_output = stats.grad_output.as_ref().ok_or(EngineError::NoGradients)?;
        let gradients = self.gradients.as_ref().ok_or(EngineError::NoGradients)?;
        let mut rng = self.rng(Gemm::Wgrad, draw, b"columns");
        let m = stats.site.m;
        let (x, dy, shares) = if self.input.recorded() {
            if self.joint.is_none() {
                self.joint = Some(Joint::new(&self.lane, &self.job, grad_output)?);
            }
            let Some(joint) = &self.joint else { return Err(EngineError::NoGradients) };
            let columns = joint.draw(&mut self.lane, &self.job, grad_output, &mut rng)?;
            (columns.x, columns.dy, columns.shares)
        } else {
            let x = self.input.draw(&mut self.lane, m, &mut rng)?;
            let dy = gradients.draw(&mut self.lane, m, &mut rng)?;
            let (x, x_share) = some_columns(&self.lane, x, &mut rng)?;
            let (dy, dy_share) = some_columns(&self.lane, dy, &mut rng)?;
            (x, dy, (x_share, dy_share))
        };
        // The tensor's other columns set its scale too.
        let rest = |share: f64| (m as f64 * (1.0 - share)).round() as usize;
        let x_rest = self.input.amax_of(rest(shares.0), &mut rng);
        let dy_rest = gradients.amax_of(rest(shares.1), &mut rng);
        let energy = product_energy(&self.lane, &x, &dy)?;
        let (x, dy) = (padded(&self.lane, x)?, padded(&self.lane, dy)?);
        let left = Left { source: self.lane.transpose(&dy)?, whole: self.whole(Gemm::Wgrad, dy_rest) };
        let source = self.lane.transpose(&x)?;
        drop((x, dy));
        let mut right = RightColumns {
            right: Right { gemm: Gemm::Wgrad, draw, source, casts: BTreeMap::new(), wide: None },
            whole: self.whole_of_input(x_rest),
        };
        let extras = Extras { loss: None, tail: None, external: self.external.as_deref(), gemm: Gemm::Wgrad };
        let mut sums = run_all(&mut self.lane, &left, &mut right, ways, &extras)?;
        sums.iter_mut().flatten().for_each(|sums| sums.product_energy = Some(energy));
        Ok(sums)
    }
}

impl SiteEngine for CudaSite {
    fn draw(&mut self, gemm: Gemm, ways: &[Backend], draw: u64) -> Result<Vec<Drawn>, EngineError> {
        self.lane.stream.device.bind()?;
        match gemm {
            Gemm::Fprop | Gemm::Dgrad => self.draw_rows(gemm, ways, draw),
            Gemm::Wgrad => self.draw_columns(ways, draw),
        }
    }

    fn heldout(&mut self, gemm: Gemm, ways: &[Backend]) -> Option<(u64, Vec<Drawn>)> {
        let stats = self.job.stats.clone();
        let mut rng = self.rng(gemm, 0, b"heldout");
        // Behind a modified block the recorded rows are another model's.
        let (rows, rest_amax) = match gemm {
            Gemm::Fprop if self.input.recorded() => {
                (stats.heldout_input.as_ref()?, self.input.amax_of(stats.site.m, &mut rng))
            }
            Gemm::Dgrad => {
                (stats.heldout_grad_output.as_ref()?, self.gradients.as_ref()?.amax_of(stats.site.m, &mut rng))
            }
            _ => return None,
        };
        if rows.rows == 0 {
            return None;
        }
        // Fidelity is a comparison beside the result: where it fails, the draws that follow say why.
        self.lane.stream.device.bind().ok()?;
        let source = self.lane.upload(rows.rows, rows.cols, &rows.data).ok()?;
        let sums =
            self.rows_against_weight(gemm, ways, &Left { source, whole: self.whole(gemm, rest_amax) }, 0).ok()?;
        Some((rows.rows as u64, sums))
    }

    fn sampler(&self) -> String {
        match self.job.upstream.last() {
            Some(feeder) => format!("through {}", feeder.stats.site.id),
            None => self.job.sampler.available(&self.job.stats.input).as_str().to_owned(),
        }
    }
}

/// The sum over rows of |x|^2 |dy|^2, as if the two did not depend on each other: sampled rows hardly do in their lengths.
fn product_energy(lane: &StreamContext, x: &Tensor, dy: &Tensor) -> Result<f64, CudaError> {
    let sums = lane.stream.zeros::<f64>(2)?;
    lane.sum_squares(x, sums.address())?;
    lane.sum_squares(dy, sums.address() + 8)?;
    let sums = lane.stream.download(&sums)?;
    Ok(sums[0] * sums[1] / x.rows.max(1) as f64)
}

/// With rows of zeros to whole blocks of 128, which is what every kernel takes along the reduced dimension.
fn padded(lane: &StreamContext, from: Tensor) -> Result<Tensor, CudaError> {
    let rows = from.rows.next_multiple_of(BLOCK);
    if rows == from.rows {
        return Ok(from);
    }
    let to = Tensor { data: lane.stream.zeros(rows * from.cols)?, rows, cols: from.cols };
    lane.stream.copy(&from.data, &to.data)?;
    Ok(to)
}

/// Bytes that a site takes at most, roughly: operands and outputs in FP32, FP64 and as codes.
fn bytes_wanted(job: &SiteJob) -> u64 {
    let site = &job.stats.site;
    let rows = site.m.min((MOST_ELEMENTS / site.k.max(site.n).max(1)).max(16)) as u64;
    let (m, k, n) = (site.m as u64, site.k as u64, site.n as u64);
    let widest = k.max(n);
    let columns = if k + n <= JOINT as u64 { k + n } else { 2 * CHOSEN as u64 };
    let pushed = |site: &Site| 4 * (site.k as u64 + 2 * rows) * site.n as u64;
    let chain: u64 = job.upstream.iter().map(|feeder| pushed(&feeder.stats.site)).sum();
    (256 << 20) + 24 * k * n + 40 * rows * widest + 24 * m * columns + 16 * WIDE_ELEMENTS as u64 + chain
}

/// Whether cuBLASLt runs that GEMM at all; asked once for each. Our own kernels' errors are measured through it
/// too: they are of the numerics, whoever multiplies.
pub(super) fn supports(engine: &CudaEngine, kernel: &Kernel, gemm: Gemm, shape: GemmShape) -> Result<(), String> {
    if matches!(engine.way(kernel, gemm), Backend::Library(_)) {
        // The library's own word comes with the row.
        return Ok(());
    }
    let (rows, reduced, cols) = shape.rows_reduced_cols(gemm);
    let numerics = kernel.numerics(gemm);
    let in_blocks = numerics.a.granularity == Granularity::Block1x128;
    if let Some(size) = [rows, reduced, cols].into_iter().find(|size| in_blocks && !size.is_multiple_of(128)) {
        return Err(format!(
            "cuBLASLt, which stands in for the library here, takes whole blocks of 128, not {size} (--libraries)"
        ));
    }
    let product = Product::of(numerics, rows, cols, reduced);
    if kernel.casts_on_the_way() {
        super::static_gemm::static_sizes(&engine.device, Product::as_cast(numerics, rows, cols, reduced))?;
    } else if kernel.is_own() {
        super::gemm::suited(&engine.device, product)?;
    }
    engine.supported.get_or_ask(product, || {
        engine.device.bind()?;
        super::lt::Plan::new(&engine.lt, product, 1).map(|_| ())
    })
}

/// Answers to "does this product run?".
#[derive(Default)]
pub(super) struct Supported {
    known: std::sync::Mutex<std::collections::HashMap<Product, Result<(), String>>>,
}

impl Supported {
    fn get_or_ask(&self, product: Product, ask: impl FnOnce() -> Result<(), CudaError>) -> Result<(), String> {
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.entry(product).or_insert_with(|| ask().map_err(|error| error.to_string())).clone()
    }
}
