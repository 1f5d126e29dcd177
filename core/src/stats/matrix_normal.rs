//! Weights as a matrix normal MN(mean, U, V), vec(W) ~ N(vec(mean), V (x) U) (LoKA §III-A): the
//! online flip-flop update, and sampling.

use std::borrow::Cow;

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

    pub fn sampler(&self) -> Result<MatrixNormalSampler, NotPositiveDefinite> {
        let full = |covariance: &[f64]| Covariance::Full(covariance.to_vec());
        MatrixNormalSampler::new((self.rows, self.cols), &self.mean, &full(&self.row_cov), &full(&self.col_cov))
    }
}

/// R of a covariance R R^T.
#[derive(Clone, Debug)]
pub enum CovarianceRoot {
    /// `[size, size]`, lower triangular.
    Lower(Vec<f64>),
    /// `[size]`: a matrix of 134 MB at 4,096 features has nothing else to say.
    Diagonal(Vec<f64>),
}

impl CovarianceRoot {
    fn of(covariance: &Covariance, size: usize) -> Result<Self, NotPositiveDefinite> {
        match covariance {
            Covariance::Factor { rank: 0, diag, .. } => {
                Ok(Self::Diagonal(diag.iter().map(|variance| variance.sqrt()).collect()))
            }
            _ => Ok(Self::Lower(cholesky_jittered(&covariance.to_full(size), size)?)),
        }
    }

    /// `[size, size]`
    pub fn to_full(&self) -> Cow<'_, [f64]> {
        match self {
            Self::Lower(lower) => Cow::Borrowed(lower),
            Self::Diagonal(diagonal) => {
                let size = diagonal.len();
                let mut full = vec![0.0; size * size];
                diagonal.iter().enumerate().for_each(|(i, value)| full[i * size + i] = *value);
                Cow::Owned(full)
            }
        }
    }
}

/// `mean + R_U Z R_V^T`, `[rows, cols]` row-major.
#[derive(Clone, Debug)]
pub struct MatrixNormalSampler {
    pub mean: Vec<f64>,
    pub rows: CovarianceRoot,
    pub cols: CovarianceRoot,
    shape: (usize, usize),
}

impl MatrixNormalSampler {
    /// Of what a trace recorded: `mean` and `shape` are `[n, k]`.
    pub fn new(
        shape: (usize, usize),
        mean: &[f64],
        row_cov: &Covariance,
        col_cov: &Covariance,
    ) -> Result<Self, NotPositiveDefinite> {
        let (rows, cols) = (CovarianceRoot::of(row_cov, shape.0)?, CovarianceRoot::of(col_cov, shape.1)?);
        Ok(Self { mean: mean.to_vec(), rows, cols, shape })
    }

    pub fn draw(&self, rng: &mut Rng) -> Vec<f32> {
        let (rows, cols) = self.shape;
        let mut normals = vec![0f32; rows * cols];
        rng.fill_normal(&mut normals);
        if let (CovarianceRoot::Diagonal(by_row), CovarianceRoot::Diagonal(by_col)) = (&self.rows, &self.cols) {
            for (i, row) in normals.chunks_exact_mut(cols).enumerate() {
                for ((value, mean), by_col) in row.iter_mut().zip(&self.mean[i * cols..]).zip(by_col) {
                    *value = (mean + by_row[i] * f64::from(*value) * by_col) as f32;
                }
            }
            return normals;
        }
        let normals: Vec<f64> = normals.into_iter().map(f64::from).collect();
        // (Z R_V^T)[i, j] = sum_c Z[i, c] R_V[j, c]; then R_U from the left, through the transpose.
        let right = times_transposed(&normals, &self.cols.to_full(), cols);
        let right = transpose(&right, cols);
        let both = times_transposed(&self.rows.to_full(), &right, rows);
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
    fn diagonal_covariances_draw_what_full_ones_of_the_same_values_draw() {
        let mean = [1.0, -2.0, 3.0, 0.5, 0.0, 4.0];
        let (u, v) = ([0.25, 4.0], [1.0, 9.0, 0.0]);
        let diagonal = |diag: &[f64]| Covariance::Factor { factor: Vec::new(), rank: 0, diag: diag.to_vec() };
        let full = |diag: &[f64]| Covariance::Full(CovarianceRoot::Diagonal(diag.to_vec()).to_full().into_owned());
        let draw = |rows, cols| {
            let sampler = MatrixNormalSampler::new((2, 3), &mean, &rows, &cols).unwrap();
            sampler.draw(&mut Rng::new(3, &[b"diagonal"]))
        };
        let (ours, whole) = (draw(diagonal(&u), diagonal(&v)), draw(full(&u), full(&v)));
        for (ours, whole) in ours.iter().zip(&whole) {
            // A variance of zero is lifted where there is a factorization.
            assert!((ours - whole).abs() < 1e-3, "{ours} {whole}");
        }
        assert_eq!((ours[2], ours[5]), (3.0, 4.0), "no variance: the mean itself");
        let mixed = draw(diagonal(&u), full(&v));
        assert!(mixed.iter().zip(&whole).all(|(ours, whole)| (ours - whole).abs() < 1e-3));
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
