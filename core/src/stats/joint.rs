//! A few features over all rows of a batch: what the weight gradient reduces over.
//!
//! Input and output gradient of the same rows are drawn jointly where the trace has their
//! cross-covariance. Any subset of a Gaussian's features is Gaussian with that part of the
//! covariance, so columns can be chosen first and only those be drawn.

use crate::{
    model::{Accumulation, Matrix},
    numerics::{
        CastPanels, CopulaMap, Epilogue, Panels, Scales, Side, gemm,
        linalg::{cholesky, cholesky_jittered},
        rng::Rng,
    },
    trace::{Distribution, SiteStats},
};

use super::{SampleError, SamplerKind, copula_of, rows::normal_panels};

/// Draws chosen columns of input and output gradient.
#[derive(Clone, Debug)]
pub struct ColumnSampler<'a> {
    input: &'a Distribution,
    grad_output: &'a Distribution,
    /// `[n, k]`
    cross_cov: Option<&'a [f32]>,
    input_copula: Option<CopulaMap>,
    grad_copula: Option<CopulaMap>,
}

impl<'a> ColumnSampler<'a> {
    pub fn new(stats: &'a SiteStats, grad_output: &'a Distribution, probs: &[f64], kind: SamplerKind) -> Self {
        let copula = |distribution| match kind {
            SamplerKind::Copula => copula_of(distribution, probs),
            SamplerKind::Gaussian => None,
        };
        Self {
            input: &stats.input,
            grad_output,
            cross_cov: stats.cross_cov.as_deref(),
            input_copula: copula(&stats.input),
            grad_copula: copula(grad_output),
        }
    }

    /// The maps of input and output gradient, where the sampler is a copula.
    pub fn copulas(&self) -> (Option<&CopulaMap>, Option<&CopulaMap>) {
        (self.input_copula.as_ref(), self.grad_copula.as_ref())
    }

    /// `count` rows of the chosen features: input `[count, |inputs|]` and output gradient
    /// `[count, |grads|]`, of the same examples.
    pub fn columns(
        &self,
        inputs: &[usize],
        grads: &[usize],
        count: usize,
        rng: &mut Rng,
    ) -> Result<(Matrix, Matrix), SampleError> {
        let size = inputs.len() + grads.len();
        let lower = self.root(inputs, grads)?;
        let part = |rows: std::ops::Range<usize>, cols: std::ops::Range<usize>| {
            let data = rows.clone().flat_map(|row| lower[row * size..][cols.clone()].iter().map(|v| *v as f32));
            let matrix = Matrix { rows: rows.len(), cols: cols.len(), data: data.collect() };
            CastPanels { panels: Panels::pack(Side::Right, &matrix), scales: Scales::None }
        };
        let times = |normals: &CastPanels, root: CastPanels| {
            let mut rows = Matrix::zeros(count, root.panels.rows);
            gemm(normals, &root, Accumulation::Fp32, Epilogue::Store, &mut rows.data);
            rows
        };
        // x = z1 L11^T, dy = z1 L21^T + z2 L22^T: the zero half of the factor is never multiplied.
        let first = normal_panels(Side::Left, count, inputs.len(), rng);
        let second = normal_panels(Side::Left, count, grads.len(), rng);
        let (split, end) = (inputs.len(), size);
        let mut x = times(&first, part(0..split, 0..split));
        let mut dy = times(&second, part(split..end, split..end));
        if self.cross_cov.is_some() {
            let shared = times(&first, part(split..end, 0..split));
            dy.data.iter_mut().zip(&shared.data).for_each(|(value, shared)| *value += shared);
        }
        finish(&mut x, inputs, self.input, self.input_copula.as_ref());
        finish(&mut dy, grads, self.grad_output, self.grad_copula.as_ref());
        Ok((x, dy))
    }

    /// Cholesky factor of the chosen features' joint covariance. A cross-covariance recorded in BF16
    /// beside factored covariances may not fit them: it is shrunk until the whole is positive definite.
    ///
    /// `[inputs + grads]` squared, row-major: x = z1 L11^T, dy = z1 L21^T + z2 L22^T.
    pub fn root(&self, inputs: &[usize], grads: &[usize]) -> Result<Vec<f64>, SampleError> {
        let k = self.input.mean.len();
        let n = self.grad_output.mean.len();
        let size = inputs.len() + grads.len();
        let mut covariance = vec![0.0; size * size];
        for (row, i) in inputs.iter().enumerate() {
            for (col, j) in inputs.iter().enumerate() {
                covariance[row * size + col] = self.input.cov.entry(k, *i, *j);
            }
        }
        for (row, i) in grads.iter().enumerate() {
            for (col, j) in grads.iter().enumerate() {
                covariance[(inputs.len() + row) * size + inputs.len() + col] = self.grad_output.cov.entry(n, *i, *j);
            }
        }
        equilibrate_then(covariance, size, |scaled, deviations| {
            if let Some(cross) = self.cross_cov {
                for shrink in [1.0, 0.95, 0.8, 0.5] {
                    for (row, i) in grads.iter().enumerate() {
                        for (col, j) in inputs.iter().enumerate() {
                            let at = inputs.len() + row;
                            let scale = deviations[at] * deviations[col];
                            let value = if scale > 0.0 { f64::from(cross[i * k + j]) / scale } else { 0.0 };
                            scaled[at * size + col] = shrink * value;
                        }
                    }
                    if let Ok(lower) = cholesky(scaled, size) {
                        return Ok(lower);
                    }
                }
                for row in inputs.len()..size {
                    scaled[row * size..row * size + inputs.len()].fill(0.0);
                }
            }
            cholesky_jittered(scaled, size).map_err(|source| SampleError { what: "input with grad_output", source })
        })
    }
}

/// Deviations become values: through the quantiles, or plus the mean.
fn finish(rows: &mut Matrix, features: &[usize], from: &Distribution, copula: Option<&CopulaMap>) {
    match copula {
        Some(copula) => copula.restricted(features).map_rows(&mut rows.data),
        None => {
            let mean: Vec<f32> = features.iter().map(|feature| from.mean[*feature] as f32).collect();
            for row in rows.data.chunks_exact_mut(mean.len().max(1)) {
                row.iter_mut().zip(&mean).for_each(|(value, mean)| *value += mean);
            }
        }
    }
}

/// Factors a covariance as correlation: inputs are near 1 and gradients near 1e-5, and a jitter fit
/// for one would drown the other.
fn equilibrate_then(
    mut covariance: Vec<f64>,
    size: usize,
    factor: impl FnOnce(&mut [f64], &[f64]) -> Result<Vec<f64>, SampleError>,
) -> Result<Vec<f64>, SampleError> {
    let deviations: Vec<f64> = (0..size).map(|i| covariance[i * size + i].max(0.0).sqrt()).collect();
    for i in 0..size {
        for j in 0..size {
            let scale = deviations[i] * deviations[j];
            let value = if scale > 0.0 { covariance[i * size + j] / scale } else { 0.0 };
            // A feature that never varies keeps a unit diagonal here and a deviation of zero below.
            covariance[i * size + j] = if i == j { 1.0 } else { value };
        }
    }
    let mut lower = factor(&mut covariance, &deviations)?;
    for (row, deviation) in lower.chunks_exact_mut(size).zip(&deviations) {
        row.iter_mut().for_each(|value| *value *= deviation);
    }
    Ok(lower)
}
