//! The weight as right operand of fprop and dgrad, cast once for each recipe and kept.

use std::collections::BTreeMap;

use crate::{
    engine::EngineError,
    model::{Gemm, Matrix, OperandCast},
    numerics::{CastPanels, Panels, Panels64, Side, cast_panels, rng::Rng},
    stats::{MatrixNormalSampler, SampleError},
    trace::{SiteStats, WeightStats},
};

/// One direction's operand in every form that was asked for.
#[derive(Debug)]
pub(super) struct WeightOperand {
    source: Panels,
    pub reference: Panels64,
    casts: BTreeMap<OperandCast, CastPanels>,
}

impl WeightOperand {
    fn new(weight: &Matrix, gemm: Gemm) -> Self {
        // dgrad reduces over n: its operand's rows are the weight's columns.
        let source = match gemm {
            Gemm::Dgrad => Panels::pack_transposed(Side::Right, weight),
            _ => Panels::pack(Side::Right, weight),
        };
        Self { reference: Panels64::from(&source), source, casts: BTreeMap::new() }
    }

    pub fn cast(&mut self, cast: OperandCast) -> &CastPanels {
        let source = &self.source;
        self.casts.entry(cast).or_insert_with(|| cast_panels(source, cast, None))
    }
}

/// Exact weights are cast once a site; a matrix normal is drawn and cast anew for each draw.
#[derive(Debug)]
pub(super) struct Weights {
    shape: (usize, usize),
    kind: ValueKind,
    fprop: Option<WeightOperand>,
    dgrad: Option<WeightOperand>,
    drawn_for: Option<u64>,
}

#[derive(Debug)]
enum ValueKind {
    Exact(Matrix),
    Normal(MatrixNormalSampler),
}

impl Weights {
    pub fn new(stats: &SiteStats) -> Result<Self, EngineError> {
        let (n, k) = (stats.site.n, stats.site.k);
        let kind = match &stats.weight {
            WeightStats::Snapshot(weight) => ValueKind::Exact(Matrix { rows: n, cols: k, data: weight.clone() }),
            WeightStats::MatrixNormal { mean, row_cov, col_cov } => {
                let sampler = MatrixNormalSampler::new((n, k), mean, row_cov, col_cov);
                ValueKind::Normal(sampler.map_err(|source| SampleError { what: "weight", source })?)
            }
        };
        Ok(Self { shape: (n, k), kind, fprop: None, dgrad: None, drawn_for: None })
    }

    /// The operand of `gemm` for one draw. `rng` names the draw's own stream.
    pub fn operand(&mut self, gemm: Gemm, draw: u64, rng: &mut Rng) -> &mut WeightOperand {
        let drawn;
        let weight = match &self.kind {
            ValueKind::Exact(weight) => weight,
            ValueKind::Normal(sampler) => {
                if self.drawn_for != Some(draw) {
                    (self.fprop, self.dgrad, self.drawn_for) = (None, None, Some(draw));
                }
                drawn = Matrix { rows: self.shape.0, cols: self.shape.1, data: sampler.draw(rng) };
                &drawn
            }
        };
        let place = if gemm == Gemm::Dgrad { &mut self.dgrad } else { &mut self.fprop };
        place.get_or_insert_with(|| WeightOperand::new(weight, gemm))
    }
}
