//! Takes a few columns and a target, gives the non-negative coefficients of least squared error.

/// [`nnls`] of five columns, which the fit of a latency has: compiled here, where it is optimised.
pub fn nnls5(rows: &[([f64; 5], f64)]) -> [f64; 5] {
    nnls(rows)
}

/// Non-negative least squares over at most `N` columns, `N` small. The optimum is the unconstrained
/// one over the columns that it uses, so every subset is tried and the best non-negative kept:
/// exact, and shorter than an active-set walk. `rows`: the columns' values and the target.
fn nnls<const N: usize>(rows: &[([f64; N], f64)]) -> [f64; N] {
    let (gram, moment) = normal_equations(rows);
    let mut best = ([0.0; N], 0.0);
    for subset in 1..(1_u32 << N) {
        let columns: Vec<usize> = (0..N).filter(|column| subset & (1 << column) != 0).collect();
        let Some(solution) = solve(&gram, &moment, &columns) else { continue };
        if solution.iter().any(|value| *value < 0.0) {
            continue;
        }
        // At a least-squares solution the squared error falls by moment . x.
        let gain: f64 = (0..N).map(|column| solution[column] * moment[column]).sum();
        if gain > best.1 {
            best = (solution, gain);
        }
    }
    best.0
}

fn normal_equations<const N: usize>(rows: &[([f64; N], f64)]) -> ([[f64; N]; N], [f64; N]) {
    let mut gram = [[0.0; N]; N];
    let mut moment = [0.0; N];
    for (values, target) in rows {
        for i in 0..N {
            moment[i] += values[i] * target;
            for j in 0..N {
                gram[i][j] += values[i] * values[j];
            }
        }
    }
    (gram, moment)
}

/// Gaussian elimination with pivoting on the chosen columns; `None` when they are dependent.
fn solve<const N: usize>(gram: &[[f64; N]; N], moment: &[f64; N], columns: &[usize]) -> Option<[f64; N]> {
    let size = columns.len();
    // Columns are scaled to unit length: flop and bytes differ by orders of magnitude.
    let scale: Vec<f64> = columns.iter().map(|c| gram[*c][*c].sqrt()).collect();
    if scale.contains(&0.0) {
        return None;
    }
    let entry = |i: usize, j: usize| gram[columns[i]][columns[j]] / (scale[i] * scale[j]);
    let mut a: Vec<Vec<f64>> =
        (0..size).map(|i| (0..size).map(|j| entry(i, j)).chain([moment[columns[i]] / scale[i]]).collect()).collect();
    for step in 0..size {
        let pivot = (step..size).max_by(|i, j| a[*i][step].abs().total_cmp(&a[*j][step].abs()))?;
        a.swap(step, pivot);
        if a[step][step].abs() < 1e-12 {
            return None;
        }
        let lead = a[step].clone();
        for row in a.iter_mut().skip(step + 1) {
            let factor = row[step] / lead[step];
            for (value, above) in row.iter_mut().zip(&lead) {
                *value -= factor * above;
            }
        }
    }
    let mut solution = [0.0; N];
    for i in (0..size).rev() {
        let known: f64 = (i + 1..size).map(|j| a[i][j] * solution[columns[j]] * scale[j]).sum();
        solution[columns[i]] = (a[i][size] - known) / a[i][i] / scale[i];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovers_exact_coefficients() {
        let rows: Vec<_> =
            (0..9).map(|i| [1.0, f64::from(i), f64::from(i * i)]).map(|v| (v, 2.0 + 3.0 * v[2])).collect();
        let x = nnls(&rows);
        for (got, want) in x.into_iter().zip([2.0, 0.0, 3.0]) {
            assert!((got - want).abs() < 1e-9, "{x:?}");
        }
    }

    #[test]
    fn a_coefficient_that_wants_to_be_negative_is_zero() {
        let rows: Vec<_> = (0..9).map(f64::from).map(|i| ([1.0, i], 5.0 - 0.1 * i)).collect();
        let x = nnls(&rows);
        assert_eq!(x[1], 0.0);
        assert!((x[0] - 4.6).abs() < 1e-9);
    }

    #[test]
    fn no_random_non_negative_point_is_better() {
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as f64 / f64::from(1_u32 << 31) - 0.5
        };
        let rows: Vec<([f64; 4], f64)> = (0..12).map(|_| ([next(), next(), next(), next()], next())).collect();
        let error = |x: &[f64; 4]| -> f64 {
            rows.iter().map(|(v, y)| (v.iter().zip(x).map(|(a, b)| a * b).sum::<f64>() - y).powi(2)).sum()
        };
        let best = nnls(&rows);
        for _ in 0..2000 {
            let other = [next().abs(), next().abs(), next().abs(), next().abs()];
            assert!(error(&best) <= error(&other) + 1e-12);
        }
    }
}
