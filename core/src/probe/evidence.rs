//! Takes draws of one GEMM in one way, gives what they show of its errors, with intervals.

use crate::{
    engine::Drawn,
    model::{Accumulation, ErrorSummary, Estimate, Fidelity, Gemm, Kernel, NoiseShare, StepErrors},
    numerics::{
        DrawStats,
        interval::{MereDraw, Ratio, mean, mere, ratio, root_ratio},
        relative_histogram_quantile,
    },
    stats::{GradientNoise, SquareOverShare},
};

/// What one way has shown at one GEMM.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    total: DrawStats,
    pub mere: Vec<MereDraw>,
    rel_l2: Vec<Ratio>,
    /// Error times reference over the reference's square.
    slope: Vec<Ratio>,
    /// Of dgrad and wgrad: the error's square over what its share of the noise is relative to.
    noise: Vec<Ratio>,
    block: Vec<Ratio>,
    loss_cost: Vec<f64>,
    /// What a drawn row's loss cost is multiplied by to be an example's (`stats::loss_cost_factor`).
    pub loss_cost_factor: Option<f64>,
    /// Of wgrad: the share of noise that its casts alone have, by the same.
    pub least_noise: Option<f64>,
    flushed: Vec<f64>,
    pub fidelity: Option<Fidelity>,
    pub settled: bool,
    /// Why a library gave nothing more.
    pub refused: Option<String>,
}

impl Evidence {
    pub fn take_drawn(&mut self, drawn: Drawn, against: &Against) {
        match drawn {
            Ok(draw) => self.take(&draw, against),
            // Asked again it would refuse again.
            Err(reason) => (self.refused, self.settled) = (Some(reason), true),
        }
    }

    fn take(&mut self, draw: &DrawStats, against: &Against) {
        let elements = draw.elements.max(1) as f64;
        self.mere
            .push(MereDraw { body: draw.sum_relative_body / elements, tail_share: draw.tail_count as f64 / elements });
        self.rel_l2.push(Ratio { numerator: draw.sum_error_squares, denominator: draw.sum_ref_squares });
        self.slope.push(Ratio { numerator: draw.sum_error_ref, denominator: draw.sum_ref_squares });
        self.noise.extend(against.share(draw));
        if let Some((numerator, denominator)) = draw.block {
            self.block.push(Ratio { numerator, denominator });
        }
        let factor = self.loss_cost_factor.unwrap_or(1.0) / against.loss_weight;
        self.loss_cost.extend(draw.loss_cost.map(|cost| cost * factor));
        self.flushed.extend(draw.flushed);
        self.total.add(draw);
    }

    pub fn mean_flushed(&self) -> Option<f64> {
        let count = self.flushed.len();
        (count > 0).then(|| self.flushed.iter().sum::<f64>() / count as f64)
    }

    pub fn summary(&self, outputs: f64, confidence: f64) -> Option<ErrorSummary> {
        if self.mere.is_empty() {
            return None;
        }
        let rel_l2 = root_ratio(&self.rel_l2, confidence);
        Some(ErrorSummary {
            draws: self.mere.len() as u64,
            zeros_skipped: self.total.zeros,
            mere: mere(&self.mere, outputs, confidence),
            rel_l2,
            sqnr_db: -20.0 * rel_l2.value.log10(),
            median_rel: relative_histogram_quantile(&self.total.histogram, 0.5),
            max_abs: self.total.max_abs,
            block_rel_l2: (!self.block.is_empty()).then(|| root_ratio(&self.block, confidence)),
            loss_cost: (!self.loss_cost.is_empty()).then(|| mean(&self.loss_cost, confidence)),
            // Of BF16's, which may still be drawn: `rows` charges it.
            loss_excess: None,
            noise: None,
            bias: ratio(&self.slope, confidence),
        })
    }

    /// What the error adds to the gradient's own noise.
    pub fn noise_share(&self, known: &Noise, gemm: Gemm, confidence: f64) -> Option<NoiseShare> {
        let share = ratio(&self.noise, confidence).filter(|_| !self.noise.is_empty())?;
        // A mean of squares.
        let share = Estimate { lo: share.lo.max(0.0), ..share }.at_least(self.least_noise.unwrap_or(0.0));
        let by_step = known.by_step.filter(|_| gemm == Gemm::Wgrad).zip(self.least_noise);
        let steps = by_step.and_then(|(by_step, of_casts)| by_step.errors(of_casts));
        Some(NoiseShare { share, basis: known.of_batch?.basis, steps })
    }
}

/// What the trace knows of the weight gradient's noise.
#[derive(Default)]
pub(super) struct Noise {
    pub of_batch: Option<GradientNoise>,
    pub by_step: Option<SquareOverShare>,
}

impl Noise {
    /// What the kernel's accumulation was seen to cut off the weight's gradient; `None`: nothing, or not recorded.
    pub fn cut(&self, kernel: &Kernel, gemm: Gemm) -> Option<StepErrors> {
        let is_fast = gemm == Gemm::Wgrad && kernel.numerics(gemm).accumulation == Accumulation::Fast;
        self.by_step.filter(|_| is_fast)?.cut()
    }
}

/// What a draw's error is held against: as noise, and as what it costs.
pub(super) struct Against {
    pub gemm: Gemm,
    /// Outputs of a row.
    pub cols: usize,
    pub noise: Option<GradientNoise>,
    /// How many times a log loss the gradients are of.
    pub loss_weight: f64,
}

impl Against {
    /// `None`: of fprop, or without gradients.
    fn share(&self, draw: &DrawStats) -> Option<Ratio> {
        let (noise, numerator) = (self.noise?, draw.sum_error_squares);
        let denominator = match self.gemm {
            Gemm::Fprop => return None,
            // Rows of the batch differ from one another by E|dx|^2 - |E dx|^2.
            Gemm::Dgrad => {
                let rows = (draw.elements + draw.zeros) as f64 / self.cols.max(1) as f64;
                draw.sum_ref_squares - rows * noise.dx_mean2
            }
            Gemm::Wgrad => draw.product_energy? / noise.energy_over_noise?,
        };
        Some(Ratio { numerator, denominator })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kernel;

    #[test]
    fn only_fast_accumulation_of_a_weight_gradient_cuts() {
        let cut = StepErrors { first: 0.05, last: 0.03 };
        let noise = Noise { of_batch: None, by_step: Some(SquareOverShare::with_cut(Some(cut))) };
        let of = |name, gemm| noise.cut(kernel(name).unwrap(), gemm);
        assert_eq!(of("cublaslt/fp8-delayed+fast", Gemm::Wgrad), Some(cut));
        assert_eq!(of("cublaslt/fp8-delayed+fast", Gemm::Dgrad), None);
        assert_eq!((of("cublaslt/fp8-delayed", Gemm::Wgrad), of("cublaslt/bf16", Gemm::Wgrad)), (None, None));
        let old = Noise { of_batch: None, by_step: Some(SquareOverShare::with_cut(None)) };
        assert_eq!(old.cut(kernel("cublaslt/fp8-delayed+fast").unwrap(), Gemm::Wgrad), None);
        let drawn = Estimate { value: -0.004, lo: -0.006, hi: -0.002 };
        assert_eq!(drawn.at_most(-cut.last), Estimate { value: -0.03, lo: -0.03, hi: -0.03 });
        assert_eq!(drawn.at_most(-0.003), drawn);
    }
}
