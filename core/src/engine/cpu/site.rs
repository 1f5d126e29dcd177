//! One prepared site: a draw of each of its GEMMs through every asked numerics.

use crate::{
    engine::{Backend, Drawn, EngineError, SiteEngine, SiteJob},
    model::{Format, Gemm, GemmNumerics, Matrix, OperandCast, StaticScale},
    mods::{Tail, modified_tail},
    numerics::{
        CastPanels, DrawStats, Epilogue, Panels, Panels64, Reference, Side, TensorRange, cast_into, cast_panels,
        flushed, gemm, gemm_f64, linalg::sum_of_squares, rng::Rng, squared_distance,
    },
    stats::ColumnSampler,
};

use super::{
    inputs::Rows,
    loss::LossCost,
    weights::{WeightOperand, Weights},
};

/// Rows of one fprop or dgrad draw: rows are exchangeable, so that a part of them is unbiased.
const ROWS: usize = 48;

/// Output features of one wgrad draw, a multiple of the register tile's rows, and input features; all
/// rows of the batch are always reduced.
const GRAD_COLUMNS: usize = 60;
const INPUT_COLUMNS: usize = 64;

pub(super) struct CpuSite {
    job: SiteJob,
    tail: Tail,
    input: Rows,
    gradients: Option<Rows>,
    loss: Option<LossCost>,
    weights: Weights,
    scratch: Scratch,
}

/// One operand of a GEMM, and what is known of the whole tensor that it is a part of.
struct SitePart {
    source: Panels,
    whole: TensorRange,
}

impl CpuSite {
    pub fn new(job: SiteJob) -> Result<Self, EngineError> {
        let stats = &job.stats;
        let gradients = stats
            .grad_output
            .as_ref()
            .map(|distribution| Rows::recorded("grad_output", distribution, &job.quantile_probs, job.sampler))
            .transpose()?;
        Ok(Self {
            tail: modified_tail(stats, &job.mods),
            input: Rows::input(&job)?,
            gradients,
            loss: stats.grad_output.as_ref().and_then(LossCost::new),
            weights: Weights::new(stats)?,
            scratch: Scratch::default(),
            job,
        })
    }

    fn rng(&self, gemm: Gemm, draw: u64, what: &[u8]) -> Rng {
        let site = self.job.stats.site.id.as_str().as_bytes();
        Rng::new(self.job.seed, &[site, gemm.as_str().as_bytes(), &draw.to_le_bytes(), what])
    }

    /// fprop and dgrad: rows against the weight.
    fn draw_rows(&mut self, gemm: Gemm, numerics: &[GemmNumerics], draw: u64) -> Result<Vec<DrawStats>, EngineError> {
        let m = self.job.stats.site.m;
        let mut rng = self.rng(gemm, draw, b"rows");
        let rows = if gemm == Gemm::Fprop { &self.input } else { self.gradients()? };
        let (rows, amax) = rows.draw(ROWS.min(m), m, &mut rng);
        Ok(self.rows_against_weight(gemm, numerics, &rows, amax, draw))
    }

    fn gradients(&self) -> Result<&Rows, EngineError> {
        self.gradients.as_ref().ok_or(EngineError::NoGradients)
    }

    fn rows_against_weight(
        &mut self,
        gemm: Gemm,
        numerics: &[GemmNumerics],
        rows: &Matrix,
        amax: f32,
        draw: u64,
    ) -> Vec<DrawStats> {
        let mut weight_rng = self.rng(gemm, draw, b"weight");
        let mut loss_rng = self.rng(gemm, draw, b"loss");
        let static_scale = self.job.scales.of(gemm).ok().map(|known| known.scale);
        let left =
            SitePart { source: Panels::pack(Side::Left, rows), whole: TensorRange { amax: Some(amax), static_scale } };
        let operand = self.weights.operand(gemm, draw, &mut weight_rng);
        let reference = reference_of(&left.source, &operand.reference, &mut self.scratch.left_wide);
        let extras = match (gemm, &self.loss) {
            (Gemm::Fprop, loss) => Extras {
                loss: loss.as_ref().map(|loss| (loss, loss.vectors(&mut loss_rng))),
                block: self.tail.has_operations().then(|| BlockReference::new(&self.tail, &reference)),
            },
            _ => Extras { loss: None, block: None },
        };
        run_all(&left, operand, &reference, numerics, &extras, &mut self.scratch)
    }

    /// wgrad: chosen output features against chosen input features, over all rows of the batch.
    fn draw_columns(&mut self, numerics: &[GemmNumerics], draw: u64) -> Result<Vec<DrawStats>, EngineError> {
        let stats = self.job.stats.clone();
        let site = &stats.site;
        let grad_output = stats.grad_output.as_ref().ok_or(EngineError::NoGradients)?;
        let mut rng = self.rng(Gemm::Wgrad, draw, b"columns");
        let inputs = rng.subset(INPUT_COLUMNS, site.k);
        let grads = rng.subset(GRAD_COLUMNS, site.n);
        let sampler = ColumnSampler::new(&stats, grad_output, &self.job.quantile_probs, self.job.sampler);
        let (mut x, dy) = sampler.columns(&inputs, &grads, site.m, &mut rng)?;
        if let Rows::Batch { rows, .. } = &self.input {
            x = columns_of(rows, &inputs);
        }
        let rest = |rows: &Rows, chosen: usize, of: usize, rng: &mut Rng| {
            // The tensor's other columns set its scale too.
            let share = 1.0 - chosen as f64 / of as f64;
            rows.amax_of_batch((site.m as f64 * share).round() as usize, rng)
        };
        let x_amax = rest(&self.input, inputs.len(), site.k, &mut rng);
        let dy_amax = rest(self.gradients()?, grads.len(), site.n, &mut rng);
        let scale = |known: Result<StaticScale, String>| known.ok().map(|known| known.scale);
        let dy_whole = TensorRange { amax: Some(dy_amax), static_scale: scale(self.job.scales.of(Gemm::Wgrad)) };
        let x_whole = TensorRange { amax: Some(x_amax), static_scale: scale(self.job.scales.of_right(Gemm::Wgrad)) };
        let energy = product_energy(&x, &dy);
        let left = SitePart { source: Panels::pack_transposed(Side::Left, &dy), whole: dy_whole };
        let mut memory = self.scratch.right.take().unwrap_or_else(|| CastPanels::empty(&left.source));
        let mut right = RightColumns::new(&x, x_whole, &mut memory);
        let Scratch { left_wide, right_wide, .. } = &mut self.scratch;
        let reference = reference_of(&left.source, widened(&right.columns.source, right_wide), left_wide);
        let extras = Extras { loss: None, block: None };
        let mut sums = run_all(&left, &mut right, &reference, numerics, &extras, &mut self.scratch);
        self.scratch.right = Some(memory);
        sums.iter_mut().for_each(|sums| sums.product_energy = Some(energy));
        Ok(sums)
    }
}

impl SiteEngine for CpuSite {
    fn draw(&mut self, gemm: Gemm, ways: &[Backend], draw: u64) -> Result<Vec<Drawn>, EngineError> {
        let numerics = numerics_of(ways)?;
        let sums = match gemm {
            Gemm::Fprop | Gemm::Dgrad => self.draw_rows(gemm, &numerics, draw),
            Gemm::Wgrad => self.draw_columns(&numerics, draw),
        };
        Ok(sums?.into_iter().map(Ok).collect())
    }

    fn heldout(&mut self, gemm: Gemm, ways: &[Backend]) -> Option<(u64, Vec<Drawn>)> {
        let numerics = &numerics_of(ways).ok()?[..];
        let stats = self.job.stats.clone();
        // Behind a modified block the recorded rows are another model's.
        let (rows, from) = match gemm {
            Gemm::Fprop if self.job.upstream.is_empty() => (stats.heldout_input.as_ref()?, &self.input),
            Gemm::Dgrad => (stats.heldout_grad_output.as_ref()?, self.gradients.as_ref()?),
            _ => return None,
        };
        if rows.rows == 0 {
            return None;
        }
        let amax = from.amax_of_batch(stats.site.m, &mut self.rng(gemm, 0, b"heldout"));
        let sums = self.rows_against_weight(gemm, numerics, rows, amax, 0);
        Some((rows.rows as u64, sums.into_iter().map(Ok).collect()))
    }

    fn sampler(&self) -> String {
        match self.job.upstream.last() {
            Some(feeder) => format!("through {}", feeder.stats.site.id),
            None => self.job.sampler.available(&self.job.stats.input).as_str().to_owned(),
        }
    }
}

/// No library runs on a CPU.
fn numerics_of(ways: &[Backend]) -> Result<Vec<GemmNumerics>, EngineError> {
    let numerics = |way: &Backend| match way {
        Backend::Numerics(numerics) => Ok(*numerics),
        Backend::Library(name) => Err(EngineError::Unavailable(format!("{name} does not run on a CPU"))),
    };
    ways.iter().map(numerics).collect()
}

/// A right operand in every cast form.
trait RightOperand {
    fn in_form(&mut self, cast: OperandCast) -> &CastPanels;
}

impl RightOperand for WeightOperand {
    fn in_form(&mut self, cast: OperandCast) -> &CastPanels {
        self.cast(cast)
    }
}

/// wgrad's right operand: input columns, new in each draw.
struct RightColumns<'a> {
    columns: SitePart,
    form: Option<OperandCast>,
    memory: &'a mut CastPanels,
}

impl<'a> RightColumns<'a> {
    fn new(columns: &Matrix, whole: TensorRange, memory: &'a mut CastPanels) -> Self {
        let source = Panels::pack_transposed(Side::Right, columns);
        Self { columns: SitePart { source, whole }, form: None, memory }
    }
}

impl RightOperand for RightColumns<'_> {
    fn in_form(&mut self, cast: OperandCast) -> &CastPanels {
        if self.form != Some(cast) {
            cast_into(&self.columns.source, cast, self.columns.whole, self.memory);
            self.form = Some(cast);
        }
        self.memory
    }
}

/// What fprop measures beside the output's error.
struct Extras<'a> {
    loss: Option<(&'a LossCost, CastPanels)>,
    block: Option<BlockReference<'a>>,
}

/// The block's output in high precision, in the layout of the next GEMM's left operand.
struct BlockReference<'a> {
    tail: &'a Tail,
    panels: Panels,
}

impl<'a> BlockReference<'a> {
    fn new(tail: &'a Tail, reference: &Reference) -> Self {
        let cols = reference.cols;
        let data: Vec<f32> = reference.values.iter().map(|value| *value as f32).collect();
        let mut rows = Matrix { rows: data.len() / cols.max(1), cols, data };
        tail.apply(&mut rows);
        Self { tail, panels: Panels::pack(Side::Left, &rows) }
    }

    /// Squared error and squared reference after bias, tail and the cast for the next site. The next
    /// scale comes from the drawn rows, E4M3's relative step does not depend on it; a static one from the tail.
    fn measure(&self, output: &Matrix, cast: OperandCast) -> (f64, f64) {
        let mut rows = output.clone();
        self.tail.apply(&mut rows);
        let (cast, static_scale) = self.tail.next_cast(cast);
        let cast = cast_panels(&Panels::pack(Side::Left, &rows), cast, TensorRange { amax: None, static_scale });
        squared_distance(&cast, &self.panels)
    }
}

fn reference_of(left: &Panels, right: &Panels64, memory: &mut Option<Panels64>) -> Reference {
    let mut values = vec![0f64; left.rows * right.rows];
    gemm_f64(widened(left, memory), right, &mut values);
    Reference::new(right.rows, values)
}

/// Memory that draws use again and again: fresh pages would cost as much as the casts.
#[derive(Default)]
struct Scratch {
    left: Option<CastPanels>,
    right: Option<CastPanels>,
    left_wide: Option<Panels64>,
    right_wide: Option<Panels64>,
    output: Matrix,
    difference: Matrix,
}

fn widened<'a>(panels: &Panels, memory: &'a mut Option<Panels64>) -> &'a Panels64 {
    let wide = memory.get_or_insert_with(|| Panels64::empty(panels));
    wide.widen(panels);
    wide
}

/// Every numerics on one draw's operands.
fn run_all(
    left: &SitePart,
    right: &mut dyn RightOperand,
    reference: &Reference,
    numerics: &[GemmNumerics],
    extras: &Extras<'_>,
    scratch: &mut Scratch,
) -> Vec<DrawStats> {
    let Scratch { left: memory, output, difference, .. } = scratch;
    let a = memory.get_or_insert_with(|| CastPanels::empty(&left.source));
    let (mut form, mut lost) = (None, None);
    for matrix in [&mut *output, &mut *difference] {
        (matrix.rows, matrix.cols) = (left.source.rows, reference.cols);
        matrix.data.resize(matrix.rows * matrix.cols, 0.0);
    }
    let run = |numerics: &GemmNumerics| {
        if form != Some(numerics.a) {
            cast_into(&left.source, numerics.a, left.whole, a);
            form = Some(numerics.a);
            lost = flushed(a, numerics.a.format, &left.source);
        }
        let epilogue = if numerics.output == Format::Bf16 { Epilogue::StoreBf16 } else { Epilogue::Store };
        gemm(a, right.in_form(numerics.b), numerics.accumulation, epilogue, &mut output.data);
        let mut stats = DrawStats::measure(&output.data, reference, &mut difference.data);
        stats.flushed = lost;
        stats.loss_cost = extras.loss.as_ref().map(|(loss, vectors)| loss.of(vectors, difference));
        stats.block = extras.block.as_ref().map(|block| block.measure(output, numerics.a));
        stats
    };
    numerics.iter().map(run).collect()
}

/// The sum over rows of |x|^2 |dy|^2.
fn product_energy(x: &Matrix, dy: &Matrix) -> f64 {
    let rows = |of: &Matrix| of.data.chunks_exact(of.cols.max(1)).map(sum_of_squares).collect::<Vec<f64>>();
    rows(x).iter().zip(rows(dy)).map(|(x, dy)| x * dy).sum()
}

/// Chosen columns of `rows`.
fn columns_of(rows: &Matrix, features: &[usize]) -> Matrix {
    let data = rows.data.chunks_exact(rows.cols.max(1)).flat_map(|row| features.iter().map(|feature| row[*feature]));
    Matrix { rows: rows.rows, cols: features.len(), data: data.collect() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::model::kernel;

    fn columns(data: [[f32; 2]; 3]) -> Matrix {
        Matrix { rows: 3, cols: 2, data: data.as_flattened().to_vec() }
    }

    fn known(static_scale: f32) -> TensorRange {
        TensorRange { amax: Some(1e6), static_scale: Some(static_scale) }
    }

    /// By hand, of three examples. x by 2: 1000 saturates at 896, .001 is lost, 17 goes to 16. dy by 1/8: 60 saturates
    /// at 56, .0001 is lost, .3 goes to .3125. Sums have less than 14 bits; BF16 stores 895 as 896 and -251.375 as -251.
    #[test]
    fn wgrad_by_two_static_scales() {
        let x = columns([[3.0, 1000.0], [0.001, -0.5], [17.0, 2.0]]);
        let dy = columns([[1.0, -0.25], [2.0, 60.0], [0.0001, 0.3]]);
        let left = SitePart { source: Panels::pack_transposed(Side::Left, &dy), whole: known(0.125) };
        let mut memory = CastPanels::empty(&left.source);
        let mut right = RightColumns::new(&x, known(2.0), &mut memory);
        let reference = Reference::new(2, vec![1.0; 4]);
        let extras = Extras { loss: None, block: None };
        for name in ["cublaslt/fp8-delayed", "cublaslt/fp8-delayed+fast"] {
            let numerics = kernel(name).unwrap().numerics(Gemm::Wgrad);
            let mut scratch = Scratch::default();
            let stats = run_all(&left, &mut right, &reference, &[numerics], &extras, &mut scratch);
            assert_eq!(stats[0].flushed, Some(1.0 / 6.0), "one of dy's six");
            // [n, k]
            assert_eq!(scratch.output.data, [3.0, 896.0, 4.25, -251.0], "{name}");
        }
    }

    /// `rows` examples, the first 200 of them not zero.
    fn wgrad_of(rows: usize, name: &str) -> Vec<f32> {
        let columns = |seed: u32| {
            let mut matrix = Matrix::zeros(rows, 2);
            for (at, value) in matrix.data.iter_mut().take(400).enumerate() {
                *value = (((at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed)) >> 20) as f32 / 512.0 - 3.0;
            }
            matrix
        };
        let whole = TensorRange { amax: None, ..known(0.125) };
        let left = SitePart { source: Panels::pack_transposed(Side::Left, &columns(7)), whole };
        let mut memory = CastPanels::empty(&left.source);
        let mut right = RightColumns::new(&columns(99), whole, &mut memory);
        let extras = Extras { loss: None, block: None };
        let mut scratch = Scratch::default();
        let numerics = kernel(name).unwrap().numerics(Gemm::Wgrad);
        run_all(&left, &mut right, &Reference::new(2, vec![1.0; 4]), &[numerics], &extras, &mut scratch);
        scratch.output.data
    }

    #[test]
    fn rows_of_zeros_change_nothing() {
        for kernel in crate::model::catalogue() {
            assert_eq!(wgrad_of(200, kernel.name), wgrad_of(256, kernel.name), "{}", kernel.name);
        }
    }
}
