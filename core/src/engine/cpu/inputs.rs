//! A site's input rows: drawn from what was recorded, or drawn upstream and pushed through the
//! modified blocks.

use crate::{
    engine::{EngineError, Feeder, SiteJob},
    model::{Accumulation, Matrix},
    mods::{Tail, modified_tail},
    numerics::{CastPanels, Epilogue, Panels, Scales, Side, gemm, rng::Rng},
    stats::{AmaxTable, MatrixNormalSampler, RowSampler, SampleError, SamplerKind},
    trace::{Distribution, SiteStats, WeightStats},
};

/// Rows pushed through the chain at a time.
const CHUNK: usize = 512;

/// Rows of one batch, with the amax that its tensorwise scale follows.
#[derive(Debug)]
pub(super) enum Rows {
    Recorded {
        sampler: Box<RowSampler>,
        amax: AmaxTable,
    },
    /// A whole batch `[m, features]` behind modified blocks, drawn once. Draws take their rows from it.
    Batch {
        rows: Matrix,
        amax: f32,
    },
}

impl Rows {
    pub fn recorded(
        what: &'static str,
        distribution: &Distribution,
        probs: &[f64],
        kind: SamplerKind,
    ) -> Result<Self, EngineError> {
        let sampler = Box::new(RowSampler::new(what, distribution, probs, kind)?);
        let amax = AmaxTable::new(distribution, sampler.copula());
        Ok(Self::Recorded { sampler, amax })
    }

    /// The input behind `job.upstream`, or the recorded one when that is empty.
    pub fn input(job: &SiteJob) -> Result<Self, EngineError> {
        let Some(first) = job.upstream.first() else {
            return Self::recorded("input", &job.stats.input, &job.quantile_probs, job.sampler);
        };
        let sampler = RowSampler::new("input", &first.stats.input, &job.quantile_probs, job.sampler)?;
        let blocks = job.upstream.iter().map(|feeder| Block::new(feeder, job.seed)).collect::<Result<Vec<_>, _>>()?;
        let m = job.stats.site.m;
        let mut rows = Matrix { rows: m, cols: job.stats.site.k, data: Vec::with_capacity(m * job.stats.site.k) };
        let mut rng = Rng::new(job.seed, &[first.stats.site.id.as_str().as_bytes(), b"batch"]);
        for start in (0..m).step_by(CHUNK) {
            let drawn = sampler.rows(CHUNK.min(m - start), &mut rng);
            let out = blocks.iter().fold(drawn, |rows, block| block.push(&rows));
            rows.data.extend_from_slice(&out.data);
        }
        let amax = crate::numerics::amax(&rows.data);
        Ok(Self::Batch { rows, amax })
    }

    /// `count` rows of a batch of `m`, and the amax of the whole batch.
    pub fn draw(&self, count: usize, m: usize, rng: &mut Rng) -> (Matrix, f32) {
        match self {
            Self::Recorded { sampler, amax } => {
                let rows = sampler.rows(count, rng);
                let rest = amax.draw(m.saturating_sub(count) as f64, rng);
                (rows, rest)
            }
            Self::Batch { rows, amax } => {
                let mut drawn = Matrix::zeros(count, rows.cols);
                for (to, from) in rng.subset(count, rows.rows).into_iter().enumerate() {
                    drawn.row_mut(to).copy_from_slice(rows.row(from));
                }
                (drawn, *amax)
            }
        }
    }

    /// A typical amax of `m` rows.
    pub fn amax_of_batch(&self, m: usize, rng: &mut Rng) -> f32 {
        match self {
            Self::Recorded { amax, .. } => amax.draw(m as f64, rng),
            Self::Batch { amax, .. } => *amax,
        }
    }
}

/// An upstream linear with its modified tail, in high precision.
struct Block {
    weight: CastPanels,
    tail: Tail,
}

impl Block {
    fn new(Feeder { stats, mods }: &Feeder, seed: u64) -> Result<Self, EngineError> {
        let mut rng = Rng::new(seed, &[stats.site.id.as_str().as_bytes(), b"weight"]);
        let weight = Matrix { rows: stats.site.n, cols: stats.site.k, data: draw_weight(stats, &mut rng)? };
        let weight = CastPanels { panels: Panels::pack(Side::Right, &weight), scales: Scales::None };
        Ok(Self { weight, tail: modified_tail(stats, mods) })
    }

    fn push(&self, rows: &Matrix) -> Matrix {
        let left = CastPanels { panels: Panels::pack(Side::Left, rows), scales: Scales::None };
        let mut out = Matrix::zeros(rows.rows, self.weight.panels.rows);
        gemm(&left, &self.weight, Accumulation::Fp32, Epilogue::Store, &mut out.data);
        self.tail.apply(&mut out);
        out
    }
}

/// The weight `[n, k]`: the snapshot, or one draw of the matrix normal.
pub(super) fn draw_weight(stats: &SiteStats, rng: &mut Rng) -> Result<Vec<f32>, EngineError> {
    match &stats.weight {
        WeightStats::Snapshot(weight) => Ok(weight.clone()),
        WeightStats::MatrixNormal { mean, row_cov, col_cov } => {
            let sampler = MatrixNormalSampler::new((stats.site.n, stats.site.k), mean, row_cov, col_cov);
            Ok(sampler.map_err(|source| SampleError { what: "weight", source })?.draw(rng))
        }
    }
}
