//! What an output error costs in loss: `1/2 E[(g . dy)^2] = 1/2 tr(Sigma_g Sigma_dy)`, second moments
//! not centred, g and dy independent (docs/reference/numerics.md).
//!
//! The recorded Sigma_g is written as a sum of outer products v v^T; then the cost of an error row is
//! half the sum of (v . dy)^2: one narrow GEMM. Low-rank factors and the mean enter exactly, a
//! diagonal or a large full covariance through random vectors with the right second moment, drawn
//! anew each draw, which leaves the estimate unbiased.

use crate::{
    model::{Accumulation, Matrix},
    numerics::{
        CastPanels, Epilogue, Panels, Scales, Side, gemm,
        linalg::{cholesky_jittered, sum_of_squares},
        rng::Rng,
    },
    trace::{Covariance, Distribution},
};

/// Random vectors that stand for a diagonal.
const DIAGONAL_VECTORS: usize = 8;

/// Full covariances up to this size enter exactly, larger ones through as many random vectors.
const EXACT: usize = 64;

/// The recorded second moment of the output gradient.
#[derive(Debug)]
pub(super) struct LossCost {
    features: usize,
    mean: Vec<f32>,
    /// `[vectors, features]`, exact part.
    exact: Vec<f32>,
    /// Standard deviations of the diagonal part.
    diagonal: Vec<f32>,
    /// Cholesky factor `[features, features]` of a large full covariance.
    root: Option<Vec<f32>>,
}

impl LossCost {
    pub fn new(gradients: &Distribution) -> Option<Self> {
        let features = gradients.mean.len();
        let mean = gradients.mean.iter().map(|v| *v as f32).collect();
        let (exact, diagonal, root) = match &gradients.cov {
            Covariance::Factor { factor, rank, diag } => {
                let columns = (0..*rank).flat_map(|c| (0..features).map(move |j| factor[j * rank + c] as f32));
                (columns.collect(), diag.iter().map(|d| d.max(0.0).sqrt() as f32).collect(), None)
            }
            Covariance::Full(full) => {
                let lower = cholesky_jittered(full, features).ok()?;
                if features <= EXACT {
                    let columns = (0..features).flat_map(|c| {
                        let lower = &lower;
                        (0..features).map(move |j| lower[j * features + c] as f32)
                    });
                    (columns.collect(), Vec::new(), None)
                } else {
                    (Vec::new(), Vec::new(), Some(lower.iter().map(|v| *v as f32).collect()))
                }
            }
        };
        Some(Self { features, mean, exact, diagonal, root })
    }

    /// The vectors of one draw as a right operand.
    pub fn vectors(&self, rng: &mut Rng) -> CastPanels {
        let mut data = self.mean.clone();
        data.extend_from_slice(&self.exact);
        if self.diagonal.iter().any(|deviation| *deviation > 0.0) {
            self.push_signs(&mut data, rng);
        }
        if let Some(root) = &self.root {
            self.push_normals(root, &mut data, rng);
        }
        let matrix = Matrix { rows: data.len() / self.features.max(1), cols: self.features, data };
        CastPanels { panels: Panels::pack(Side::Right, &matrix), scales: Scales::None }
    }

    fn push_signs(&self, data: &mut Vec<f32>, rng: &mut Rng) {
        let share = (DIAGONAL_VECTORS as f32).sqrt().recip();
        let mut normals = vec![0f32; self.features];
        for _ in 0..DIAGONAL_VECTORS {
            rng.fill_normal(&mut normals);
            data.extend(normals.iter().zip(&self.diagonal).map(|(normal, d)| share * d.copysign(*normal)));
        }
    }

    fn push_normals(&self, root: &[f32], data: &mut Vec<f32>, rng: &mut Rng) {
        let share = (EXACT as f32).sqrt().recip();
        let mut normals = vec![0f32; self.features];
        for _ in 0..EXACT {
            rng.fill_normal(&mut normals);
            data.extend((0..self.features).map(|j| {
                let row = &root[j * self.features..=j * self.features + j];
                share * row.iter().zip(&normals).map(|(l, z)| l * z).sum::<f32>()
            }));
        }
    }

    /// Mean over rows of half the sum of (v . dy)^2. `difference`: `[rows, features]`.
    pub fn of(&self, vectors: &CastPanels, difference: &Matrix) -> f64 {
        let left = CastPanels { panels: Panels::pack(Side::Left, difference), scales: Scales::None };
        let mut products = vec![0f32; difference.rows * vectors.panels.rows];
        gemm(&left, vectors, Accumulation::Fp32, Epilogue::Store, &mut products);
        0.5 * sum_of_squares(&products) / difference.rows.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(cov: Covariance) -> f64 {
        let gradients = Distribution { count: 9, mean: vec![1.0, 0.0], cov, quantiles: None, hist: None, amax: None };
        let loss = LossCost::new(&gradients).unwrap();
        let difference = Matrix { rows: 1, cols: 2, data: vec![2.0, 1.0] };
        let mut rng = Rng::new(1, &[b"loss"]);
        let costs = (0..4000).map(|_| loss.of(&loss.vectors(&mut rng), &difference));
        costs.sum::<f64>() / 4000.0
    }

    #[test]
    fn against_the_trace_formula() {
        // Sigma_g = [[3, 1], [1, 2]] + mu mu^T = [[4, 1], [1, 2]]; dy = (2, 1): 1/2 (16 + 4 + 2) = 11.
        assert!((cost(Covariance::Full(vec![3.0, 1.0, 1.0, 2.0])) - 11.0).abs() < 1e-5);
        let factored = Covariance::Factor { factor: vec![1.0, 1.0], rank: 1, diag: vec![2.0, 1.0] };
        assert!((cost(factored) - 11.0).abs() < 0.15);
    }
}
