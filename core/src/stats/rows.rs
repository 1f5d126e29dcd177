//! Whole rows of a feature vector: `x = mean + root z`, then each feature through its quantiles.

use crate::{
    model::{Accumulation, Matrix},
    numerics::{CastPanels, CopulaMap, Epilogue, Panels, Scales, Side, gemm, linalg::cholesky_jittered, rng::Rng},
    trace::{Covariance, Distribution},
};

use super::{SampleError, SamplerKind, copula_of};

/// A covariance as `root root^T + diag(noise^2)`.
#[derive(Clone, Debug)]
pub struct Root {
    /// `[features, rank]`: a Cholesky factor, or the recorded low-rank factor.
    pub root: Vec<f32>,
    pub rank: usize,
    /// Standard deviations of the part outside the factor.
    pub noise: Option<Vec<f32>>,
}

impl Root {
    pub fn of(what: &'static str, distribution: &Distribution) -> Result<Self, SampleError> {
        let features = distribution.mean.len();
        let (root, rank, noise) = match &distribution.cov {
            Covariance::Full(full) => {
                let lower = cholesky_jittered(full, features).map_err(|source| SampleError { what, source })?;
                (lower, features, None)
            }
            Covariance::Factor { factor, rank, diag } => {
                (factor.clone(), *rank, Some(diag.iter().map(|d| d.max(0.0).sqrt() as f32).collect()))
            }
        };
        Ok(Self { root: root.into_iter().map(|v| v as f32).collect(), rank, noise })
    }
}

/// Draws rows of one distribution. `root`: a Cholesky factor, or the low-rank factor with the
/// independent rest in `noise`.
#[derive(Clone, Debug)]
pub struct RowSampler {
    features: usize,
    mean: Vec<f32>,
    root: CastPanels,
    /// Standard deviations of the part outside the factor.
    noise: Option<Vec<f32>>,
    copula: Option<CopulaMap>,
}

impl RowSampler {
    pub fn new(
        what: &'static str,
        distribution: &Distribution,
        probs: &[f64],
        kind: SamplerKind,
    ) -> Result<Self, SampleError> {
        let features = distribution.mean.len();
        let Root { root, rank, noise } = Root::of(what, distribution)?;
        let root = Matrix { rows: features, cols: rank, data: root };
        let copula = match kind {
            SamplerKind::Copula => copula_of(distribution, probs),
            SamplerKind::Gaussian => None,
        };
        Ok(Self {
            features,
            mean: distribution.mean.iter().map(|v| *v as f32).collect(),
            root: CastPanels { panels: Panels::pack(Side::Right, &root), scales: Scales::None },
            noise,
            copula,
        })
    }

    /// The map that rows go through, where the sampler is a copula.
    pub fn copula(&self) -> Option<&CopulaMap> {
        self.copula.as_ref()
    }

    /// `[count, features]`
    pub fn rows(&self, count: usize, rng: &mut Rng) -> Matrix {
        let mut rows = Matrix::zeros(count, self.features);
        if self.root.panels.depth > 0 {
            let normals = normal_panels(Side::Left, count, self.root.panels.depth, rng);
            gemm(&normals, &self.root, Accumulation::Fp32, Epilogue::Store, &mut rows.data);
        }
        let mut noise = vec![0f32; if self.noise.is_some() { self.features } else { 0 }];
        for row in rows.data.chunks_exact_mut(self.features) {
            if let Some(deviations) = &self.noise {
                rng.fill_normal(&mut noise);
                for ((value, noise), deviation) in row.iter_mut().zip(&noise).zip(deviations) {
                    *value += noise * deviation;
                }
            }
            if self.copula.is_none() {
                row.iter_mut().zip(&self.mean).for_each(|(value, mean)| *value += mean);
            }
        }
        if let Some(copula) = &self.copula {
            copula.map_rows(&mut rows.data);
        }
        rows
    }
}

/// Independent standard normals, row by row: not in the GEMM's own layout, which is another on each kind of processor, and the
/// draws with it.
pub(super) fn normal_panels(side: Side, rows: usize, depth: usize, rng: &mut Rng) -> CastPanels {
    let mut normals = Matrix::zeros(rows, depth);
    rng.fill_normal(&mut normals.data);
    CastPanels { panels: Panels::pack(side, &normals), scales: Scales::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(rows: &Matrix) -> (Vec<f64>, Vec<f64>) {
        let (n, k) = (rows.rows as f64, rows.cols);
        let mean: Vec<f64> =
            (0..k).map(|j| (0..rows.rows).map(|i| f64::from(rows.row(i)[j])).sum::<f64>() / n).collect();
        let mut cov = vec![0.0; k * k];
        for row in rows.data.chunks_exact(k) {
            for i in 0..k {
                for j in 0..k {
                    cov[i * k + j] += (f64::from(row[i]) - mean[i]) * (f64::from(row[j]) - mean[j]) / n;
                }
            }
        }
        (mean, cov)
    }

    /// The GEMM's panels are 6 or 12 rows high, by the processor.
    #[test]
    fn a_row_is_the_same_on_any_processor() {
        let (rows, depth) = (13, 5);
        let mut expected = vec![0f32; rows * depth];
        Rng::new(1, &[b"rows"]).fill_normal(&mut expected);
        let normals = normal_panels(Side::Left, rows, depth, &mut Rng::new(1, &[b"rows"])).panels;
        for (row, expected) in expected.chunks_exact(depth).enumerate() {
            let panel = &normals.data[row / normals.width * normals.width * depth..];
            let found: Vec<f32> = (0..depth).map(|d| panel[d * normals.width + row % normals.width]).collect();
            assert_eq!(found, expected, "row {row}");
        }
    }

    #[test]
    fn both_forms_give_the_recorded_moments() {
        let full = vec![4.0, 1.2, 1.2, 1.0];
        let factored = Covariance::Factor { factor: vec![1.2, 1.0], rank: 1, diag: vec![4.0 - 1.44, 0.0] };
        for cov in [Covariance::Full(full.clone()), factored] {
            let distribution =
                Distribution { count: 10, mean: vec![3.0, -1.0], cov, quantiles: None, hist: None, amax: None };
            let sampler = RowSampler::new("input", &distribution, &[], SamplerKind::Copula).unwrap();
            let (mean, cov) = moments(&sampler.rows(60_000, &mut Rng::new(1, &[b"rows"])));
            assert!((mean[0] - 3.0).abs() < 0.03 && (mean[1] + 1.0).abs() < 0.02, "{mean:?}");
            for (ours, truth) in cov.iter().zip(&full) {
                assert!((ours - truth).abs() < 0.06, "{cov:?}");
            }
        }
    }
}
