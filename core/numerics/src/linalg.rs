//! The little dense linear algebra that sampling needs, in FP64: Cholesky and triangular solves.

/// Why a factorisation failed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("not positive definite at row {row} (pivot {pivot:e})")]
pub struct NotPositiveDefinite {
    pub row: usize,
    pub pivot: f64,
}

/// Lower Cholesky factor of a symmetric `n` x `n` matrix (row-major; only the lower half is read).
pub fn cholesky(matrix: &[f64], n: usize) -> Result<Vec<f64>, NotPositiveDefinite> {
    let mut lower = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let sum = matrix[i * n + j] - dot(&lower[i * n..i * n + j], &lower[j * n..j * n + j]);
            if i == j {
                if sum.is_nan() || sum <= 0.0 {
                    return Err(NotPositiveDefinite { row: i, pivot: sum });
                }
                lower[i * n + i] = sum.sqrt();
            } else {
                lower[i * n + j] = sum / lower[j * n + j];
            }
        }
    }
    Ok(lower)
}

/// Cholesky of `matrix + jitter I`, with the smallest jitter that works among 0 and powers of ten of
/// the mean diagonal from 1e-12 up: a recorded covariance may miss being positive definite by rounding.
pub fn cholesky_jittered(matrix: &[f64], n: usize) -> Result<Vec<f64>, NotPositiveDefinite> {
    let mean_diagonal = (0..n).map(|i| matrix[i * n + i]).sum::<f64>() / n.max(1) as f64;
    let mut failure = match cholesky(matrix, n) {
        Ok(lower) => return Ok(lower),
        Err(failure) => failure,
    };
    for exponent in -12..=-2 {
        let jitter = mean_diagonal.max(f64::MIN_POSITIVE) * 10f64.powi(exponent);
        let mut lifted = matrix.to_vec();
        (0..n).for_each(|i| lifted[i * n + i] += jitter);
        match cholesky(&lifted, n) {
            Ok(lower) => return Ok(lower),
            Err(next) => failure = next,
        }
    }
    Err(failure)
}

/// `out += scale * values`.
pub fn add_scaled(out: &mut [f64], values: &[f64], scale: f64) {
    for (out, value) in out.iter_mut().zip(values) {
        *out += scale * value;
    }
}

/// In FP64, one after another.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum()
}

/// `left` `[n, rank]` times the transpose of `right` `[k, rank]`, `[n, k]`, each sum in FP32 from the first to the last.
pub fn product_of_factors(left: &[f32], right: &[f32], rank: usize, out: &mut [f32]) {
    let rank = rank.max(1);
    for (left, out) in left.chunks_exact(rank).zip(out.chunks_exact_mut((right.len() / rank).max(1))) {
        for (right, out) in right.chunks_exact(rank).zip(out) {
            *out = left.iter().zip(right).map(|(left, right)| left * right).sum();
        }
    }
}

/// Dot product with eight running sums, so that it vectorises.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a_chunks, a_rest) = a.as_chunks::<8>();
    let (b_chunks, b_rest) = b.as_chunks::<8>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

/// Solves `L X = B` in place; `b` is `[n, columns]`, row-major.
pub fn solve_lower(lower: &[f64], n: usize, b: &mut [f64], columns: usize) {
    for i in 0..n {
        let (above, rest) = b.split_at_mut(i * columns);
        let row = &mut rest[..columns];
        for (j, other) in above.chunks_exact(columns).enumerate() {
            let factor = lower[i * n + j];
            row.iter_mut().zip(other).for_each(|(value, other)| *value -= factor * other);
        }
        row.iter_mut().for_each(|value| *value /= lower[i * n + i]);
    }
}

/// `A B^T` for row-major `a` `[rows, depth]` and `b` `[cols, depth]`.
pub fn times_transposed(a: &[f64], b: &[f64], depth: usize) -> Vec<f64> {
    if depth == 0 {
        return Vec::new();
    }
    a.chunks_exact(depth).flat_map(|row| b.chunks_exact(depth).map(move |col| dot(row, col))).collect()
}

/// The transpose of a row-major `[rows, cols]` matrix.
pub fn transpose(a: &[f64], cols: usize) -> Vec<f64> {
    let rows = a.len() / cols.max(1);
    (0..cols).flat_map(|c| (0..rows).map(move |r| a[r * cols + c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cholesky_of_a_known_matrix() {
        let lower = cholesky(&[4.0, 0.0, 0.0, 12.0, 37.0, 0.0, -16.0, -43.0, 98.0], 3).unwrap();
        assert_eq!(lower, [2.0, 0.0, 0.0, 6.0, 1.0, 0.0, -8.0, 5.0, 3.0]);
        let mut b = vec![2.0, 7.0, 0.0];
        solve_lower(&lower, 3, &mut b, 1);
        assert_eq!(b, [1.0, 1.0, 1.0]);
    }

    #[test]
    fn singular_needs_jitter() {
        let ones = [1.0; 9];
        assert!(cholesky(&ones, 3).is_err());
        assert!(cholesky_jittered(&ones, 3).is_ok());
        assert!(cholesky_jittered(&[-1.0], 1).is_err());
    }
}
