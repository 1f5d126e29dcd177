//! Weights as a matrix normal MN(mean, U, V), vec(W) ~ N(vec(mean), V (x) U) (LoKA §III-A): the
//! online flip-flop update, and sampling.

use crate::{
    numerics::{
        linalg::{NotPositiveDefinite, cholesky, cholesky_jittered, solve_lower, times_transposed, transpose},
        rng::Rng,
    },
    trace::Covariance,
};

/// `mean` `[rows, cols]`; `row_cov` U `[rows, rows]`, `col_cov` V `[cols, cols]`; row-major, FP64.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixNormal {
    pub rows: usize,
    pub cols: usize,
    pub mean: Vec<f64>,
    pub row_cov: Vec<f64>,
    pub col_cov: Vec<f64>,
}

/// Relative to the mean diagonal of U: keeps both covariances invertible from the first update on.
const EPSILON: f64 = 1e-6;

impl MatrixNormal {
    /// Before any update: zero mean, identity covariances.
    pub fn new(rows: usize, cols: usize) -> Self {
        let identity = |n: usize| (0..n * n).map(|i| if i / n == i % n { 1.0 } else { 0.0 }).collect();
        Self { rows, cols, mean: vec![0.0; rows * cols], row_cov: identity(rows), col_cov: identity(cols) }
    }

    /// From what a trace recorded.
    pub fn from_parts(rows: usize, cols: usize, mean: &[f64], row_cov: &Covariance, col_cov: &Covariance) -> Self {
        Self { rows, cols, mean: mean.to_vec(), row_cov: row_cov.to_full(rows), col_cov: col_cov.to_full(cols) }
    }

    /// One step of the paper's exponential moving average with momentum in [0.9, 0.99]: whiten by the
    /// other side's Cholesky factor (solve, never invert), take the outer product, blend, symmetrise,
    /// regularise; then fix the scale that U and V could trade freely: tr(U) = rows.
    pub fn update(&mut self, weight: &[f64], momentum: f64) -> Result<(), NotPositiveDefinite> {
        let (m, n) = (self.rows, self.cols);
        for (mean, value) in self.mean.iter_mut().zip(weight) {
            *mean = momentum * *mean + (1.0 - momentum) * value;
        }
        let centred: Vec<f64> = weight.iter().zip(&self.mean).map(|(value, mean)| value - mean).collect();
        let epsilon = EPSILON * trace(&self.row_cov, m) / m as f64;

        let lower_v = cholesky(&lifted(&self.col_cov, n, epsilon), n)?;
        // W_c L_V^-T is the transpose of L_V^-1 W_c^T.
        let mut whitened = transpose(&centred, n);
        solve_lower(&lower_v, n, &mut whitened, m);
        let whitened = transpose(&whitened, m);
        let row_step = times_transposed(&whitened, &whitened, n);

        let lower_u = cholesky(&lifted(&self.row_cov, m, epsilon), m)?;
        let mut whitened = centred;
        solve_lower(&lower_u, m, &mut whitened, n);
        let columns = transpose(&whitened, n);
        let col_step = times_transposed(&columns, &columns, m);

        blend(&mut self.row_cov, &row_step, momentum, n as f64, m, epsilon);
        blend(&mut self.col_cov, &col_step, momentum, m as f64, n, epsilon);
        let scale = trace(&self.row_cov, m) / m as f64;
        self.row_cov.iter_mut().for_each(|value| *value /= scale);
        self.col_cov.iter_mut().for_each(|value| *value *= scale);
        Ok(())
    }

    /// `mean + L_U Z L_V^T`, `[rows, cols]` row-major.
    pub fn sampler(&self) -> Result<MatrixNormalSampler, NotPositiveDefinite> {
        Ok(MatrixNormalSampler {
            rows: self.rows,
            cols: self.cols,
            mean: self.mean.clone(),
            lower_u: cholesky_jittered(&self.row_cov, self.rows)?,
            lower_v: cholesky_jittered(&self.col_cov, self.cols)?,
        })
    }
}

/// The factored form, ready to draw from.
#[derive(Clone, Debug)]
pub struct MatrixNormalSampler {
    rows: usize,
    cols: usize,
    mean: Vec<f64>,
    lower_u: Vec<f64>,
    lower_v: Vec<f64>,
}

impl MatrixNormalSampler {
    /// Mean `[rows, cols]`, L_U `[rows, rows]` and L_V `[cols, cols]`.
    pub fn parts(&self) -> [&[f64]; 3] {
        [&self.mean, &self.lower_u, &self.lower_v]
    }

    pub fn draw(&self, rng: &mut Rng) -> Vec<f32> {
        let mut normals = vec![0f32; self.rows * self.cols];
        rng.fill_normal(&mut normals);
        let normals: Vec<f64> = normals.into_iter().map(f64::from).collect();
        // (Z L_V^T)[i, j] = sum_c Z[i, c] L_V[j, c]; then L_U from the left, through the transpose.
        let right = times_transposed(&normals, &self.lower_v, self.cols);
        let right = transpose(&right, self.cols);
        let both = times_transposed(&self.lower_u, &right, self.rows);
        both.iter().zip(&self.mean).map(|(value, mean)| (value + mean) as f32).collect()
    }
}

fn trace(matrix: &[f64], n: usize) -> f64 {
    (0..n).map(|i| matrix[i * n + i]).sum()
}

fn lifted(matrix: &[f64], n: usize, epsilon: f64) -> Vec<f64> {
    let mut lifted = matrix.to_vec();
    (0..n).for_each(|i| lifted[i * n + i] += epsilon);
    lifted
}

fn blend(covariance: &mut [f64], step: &[f64], momentum: f64, count: f64, n: usize, epsilon: f64) {
    for (value, step) in covariance.iter_mut().zip(step) {
        *value = momentum * *value + (1.0 - momentum) * step / count;
    }
    for i in 0..n {
        for j in 0..i {
            let mean = 0.5 * (covariance[i * n + j] + covariance[j * n + i]);
            (covariance[i * n + j], covariance[j * n + i]) = (mean, mean);
        }
        covariance[i * n + i] += epsilon;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_update_by_hand() {
        // 1 x 1: mean .1 * 2 = .2, centred 1.8; U' = V' = 3.24 / (1 + 1e-6); both blend to
        // .9 + .324 = 1.224; then U = 1 and V = 1.224^2.
        let mut normal = MatrixNormal::new(1, 1);
        normal.update(&[2.0], 0.9).unwrap();
        assert!((normal.mean[0] - 0.2).abs() < 1e-12);
        assert!((normal.row_cov[0] - 1.0).abs() < 1e-12);
        assert!((normal.col_cov[0] - 1.224f64.powi(2)).abs() < 1e-4, "{normal:?}");
    }

    #[test]
    fn updates_find_the_covariances_that_samples_came_from() {
        let truth = MatrixNormal {
            rows: 3,
            cols: 4,
            mean: (0..12).map(f64::from).collect(),
            row_cov: vec![1.6, 0.4, 0.0, 0.4, 0.8, -0.2, 0.0, -0.2, 0.6],
            col_cov: vec![2., 0.5, 0., 0., 0.5, 1., 0., 0., 0., 0., 0.5, 0.2, 0., 0., 0.2, 3.0],
        };
        let sampler = truth.sampler().unwrap();
        let mut rng = Rng::new(11, &[b"matrix normal"]);
        let mut learnt = MatrixNormal::new(3, 4);
        for _ in 0..6000 {
            let weight: Vec<f64> = sampler.draw(&mut rng).into_iter().map(f64::from).collect();
            learnt.update(&weight, 0.99).unwrap();
        }
        for (ours, truth) in learnt.row_cov.iter().zip(&truth.row_cov) {
            assert!((ours - truth).abs() < 0.25, "{learnt:?}");
        }
        for (ours, truth) in learnt.col_cov.iter().zip(&truth.col_cov) {
            assert!((ours - truth).abs() < 0.4, "{learnt:?}");
        }
    }
}
