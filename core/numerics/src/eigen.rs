//! Takes a symmetric matrix; gives all its eigenvalues and vectors. Householder tridiagonalization
//! and implicit QL (EISPACK's `tred2` and `tql2`, after Bowdler, Martin, Reinsch and Wilkinson,
//! 1968), for the Gram matrices of a few hundred columns that a merge of factored covariances needs.

use super::linalg::add_scaled;

/// Gives the eigenvalues, ascending, and the vectors: entry `i * n + j` is entry `i` of the vector of
/// value `j`. `matrix` is `[n, n]`, symmetric; both triangles are read.
pub fn symmetric_eigen(matrix: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>) {
    if n == 0 {
        return (Vec::new(), Vec::new());
    }
    let mut work = Scratch { n, d: matrix[(n - 1) * n..].to_vec(), e: vec![0.0; n], v: matrix };
    for i in (1..n).rev() {
        work.reflect(i);
    }
    work.accumulate();
    work.e.rotate_left(1);
    work.e[n - 1] = 0.0;
    work.diagonalize();
    work.sorted()
}

/// The best `G' G'^T` of that rank for `G G^T` (through the eigenvectors of the small `G^T G`); the
/// diagonal of what is dropped is added to `diag`.
pub fn cut_to_rank(columns: Vec<Vec<f64>>, rank: usize, diag: &mut [f64]) -> Vec<Vec<f64>> {
    let num = columns.len();
    if num <= rank {
        return columns;
    }
    let mut gram = vec![0.0; num * num];
    for i in 0..num {
        for j in 0..=i {
            let dot: f64 = columns[i].iter().zip(&columns[j]).map(|(a, b)| a * b).sum();
            gram[i * num + j] = dot;
            gram[j * num + i] = dot;
        }
    }
    let (_, vectors) = symmetric_eigen(gram, num);
    // Eigenvalues ascend: the last ones are kept.
    let kept: Vec<Vec<f64>> = (num - rank..num).rev().map(|c| combine(&columns, &vectors, c)).collect();
    for (row, diag) in diag.iter_mut().enumerate() {
        let square = |columns: &[Vec<f64>]| -> f64 { columns.iter().map(|column| column[row] * column[row]).sum() };
        *diag += (square(&columns) - square(&kept)).max(0.0);
    }
    kept
}

/// `G v` for eigenvector `c`.
fn combine(columns: &[Vec<f64>], vectors: &[f64], c: usize) -> Vec<f64> {
    let mut out = vec![0.0; columns.first().map_or(0, Vec::len)];
    for (i, column) in columns.iter().enumerate() {
        add_scaled(&mut out, column, vectors[i * columns.len() + c]);
    }
    out
}

/// `v`: the matrix, then the transformation, row-major. `d`: the diagonal. `e`: beside the diagonal.
struct Scratch {
    n: usize,
    v: Vec<f64>,
    d: Vec<f64>,
    e: Vec<f64>,
}

impl Scratch {
    /// One Householder step: row `i` becomes zero left of the subdiagonal.
    fn reflect(&mut self, i: usize) {
        let n = self.n;
        // Scaled, or squares of small entries would underflow.
        let scale: f64 = self.d[..i].iter().map(|x| x.abs()).sum();
        if scale == 0.0 {
            self.e[i] = self.d[i - 1];
            for j in 0..i {
                self.d[j] = self.v[(i - 1) * n + j];
                self.v[i * n + j] = 0.0;
                self.v[j * n + i] = 0.0;
            }
            self.d[i] = 0.0;
            return;
        }
        self.d[..i].iter_mut().for_each(|x| *x /= scale);
        let mut h: f64 = self.d[..i].iter().map(|x| x * x).sum();
        let f = self.d[i - 1];
        let g = if f > 0.0 { -h.sqrt() } else { h.sqrt() };
        self.e[i] = scale * g;
        h -= f * g;
        self.d[i - 1] = f - g;
        self.similarity(i, h);
        self.d[i] = h;
    }

    /// Applies the reflection to the leading `i` rows and columns, whose lower triangle is kept.
    fn similarity(&mut self, i: usize, h: f64) {
        let n = self.n;
        let Self { v, d, e, .. } = self;
        e[..i].fill(0.0);
        for j in 0..i {
            let f = d[j];
            v[j * n + i] = f;
            let mut g = e[j] + v[j * n + j] * f;
            for k in j + 1..i {
                g += v[k * n + j] * d[k];
                e[k] += v[k * n + j] * f;
            }
            e[j] = g;
        }
        e[..i].iter_mut().for_each(|x| *x /= h);
        let f: f64 = e[..i].iter().zip(&d[..i]).map(|(e, d)| e * d).sum();
        let hh = f / (h + h);
        for (e, d) in e[..i].iter_mut().zip(&d[..i]) {
            *e -= hh * d;
        }
        for j in 0..i {
            let (f, g) = (d[j], e[j]);
            for k in j..i {
                v[k * n + j] -= f * e[k] + g * d[k];
            }
            d[j] = v[(i - 1) * n + j];
            v[i * n + j] = 0.0;
        }
    }

    /// Multiplies the reflections together into `v`.
    fn accumulate(&mut self) {
        let n = self.n;
        let Self { v, d, .. } = self;
        for i in 0..n - 1 {
            v[(n - 1) * n + i] = v[i * n + i];
            v[i * n + i] = 1.0;
            let h = d[i + 1];
            if h != 0.0 {
                for k in 0..=i {
                    d[k] = v[k * n + i + 1] / h;
                }
                for j in 0..=i {
                    let g: f64 = (0..=i).map(|k| v[k * n + i + 1] * v[k * n + j]).sum();
                    for k in 0..=i {
                        v[k * n + j] -= g * d[k];
                    }
                }
            }
            for k in 0..=i {
                v[k * n + i + 1] = 0.0;
            }
        }
        for j in 0..n {
            d[j] = v[(n - 1) * n + j];
            v[(n - 1) * n + j] = 0.0;
        }
        v[(n - 1) * n + n - 1] = 1.0;
    }

    /// QL with implicit shifts: each off-diagonal entry is driven to zero in turn.
    fn diagonalize(&mut self) {
        /// Three are usual. A matrix that is not finite never converges: its caller checks the result.
        const MOST_SWEEPS: usize = 60;
        let n = self.n;
        let mut shift = 0.0;
        let mut largest = 0.0_f64;
        for l in 0..n {
            largest = largest.max(self.d[l].abs() + self.e[l].abs());
            let negligible = f64::EPSILON * largest;
            let m = (l..n).find(|m| self.e[*m].abs() <= negligible).unwrap_or(n - 1);
            for _ in 0..MOST_SWEEPS {
                if m == l || self.e[l].abs() <= negligible {
                    break;
                }
                shift += self.sweep(l, m);
            }
            self.d[l] += shift;
            self.e[l] = 0.0;
        }
    }

    /// One implicit QL sweep over rows `l..=m`; gives the shift that was taken off the diagonal.
    fn sweep(&mut self, l: usize, m: usize) -> f64 {
        let n = self.n;
        let g = self.d[l];
        let mut p = (self.d[l + 1] - g) / (2.0 * self.e[l]);
        let r = if p < 0.0 { -p.hypot(1.0) } else { p.hypot(1.0) };
        self.d[l] = self.e[l] / (p + r);
        self.d[l + 1] = self.e[l] * (p + r);
        let next = self.d[l + 1];
        let h = g - self.d[l];
        self.d[l + 2..].iter_mut().for_each(|d| *d -= h);

        p = self.d[m];
        let (mut c, mut c2, mut c3) = (1.0, 1.0, 1.0);
        let (mut s, mut s2) = (0.0, 0.0);
        let el1 = self.e[l + 1];
        for i in (l..m).rev() {
            c3 = c2;
            c2 = c;
            s2 = s;
            let g = c * self.e[i];
            let h = c * p;
            let r = p.hypot(self.e[i]);
            self.e[i + 1] = s * r;
            s = self.e[i] / r;
            c = p / r;
            p = c * self.d[i] - s * g;
            self.d[i + 1] = h + s * (c * g + s * self.d[i]);
            for row in self.v.chunks_exact_mut(n) {
                let h = row[i + 1];
                row[i + 1] = s * row[i] + c * h;
                row[i] = c * row[i] - s * h;
            }
        }
        p = -s * s2 * c3 * el1 * self.e[l] / next;
        self.e[l] = s * p;
        self.d[l] = c * p;
        h
    }

    fn sorted(self) -> (Vec<f64>, Vec<f64>) {
        let n = self.n;
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| self.d[*a].total_cmp(&self.d[*b]));
        let mut vectors = vec![0.0; n * n];
        for (to, from) in order.iter().enumerate() {
            for i in 0..n {
                vectors[i * n + to] = self.v[i * n + from];
            }
        }
        (order.iter().map(|from| self.d[*from]).collect(), vectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries in (-1, 1), the same on every machine.
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        }
    }

    fn check(matrix: &[f64], n: usize) {
        let (values, vectors) = symmetric_eigen(matrix.to_vec(), n);
        let scale: f64 = matrix.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-300);
        assert!(values.windows(2).all(|pair| pair[0] <= pair[1]));
        for a in 0..n {
            for i in 0..n {
                let left: f64 = (0..n).map(|j| matrix[i * n + j] * vectors[j * n + a]).sum();
                assert!((left - values[a] * vectors[i * n + a]).abs() < 1e-12 * scale * n as f64);
            }
            for b in 0..n {
                let dot: f64 = (0..n).map(|i| vectors[i * n + a] * vectors[i * n + b]).sum();
                assert!((dot - f64::from(u8::from(a == b))).abs() < 1e-12 * n as f64, "{a} {b} {dot}");
            }
        }
    }

    #[test]
    fn diagonalizes_what_it_is_given() {
        for n in [1, 2, 3, 5, 20, 61] {
            let mut next = noise(n as u64);
            let mut matrix = vec![0.0; n * n];
            for i in 0..n {
                for j in 0..=i {
                    matrix[i * n + j] = next();
                    matrix[j * n + i] = matrix[i * n + j];
                }
            }
            check(&matrix, n);
        }
    }

    #[test]
    fn repeated_and_zero_eigenvalues() {
        check(&[0.0; 16], 4);
        check(&[2.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, -1.0], 3);
        check(&[1.0; 25], 5);
        let far: Vec<f64> = (0..16).map(|i| if i % 5 == 0 { 10_f64.powi(i * 3 - 20) } else { 1e-18 }).collect();
        check(&far, 4);
    }

    #[test]
    fn ends_on_what_is_not_finite() {
        assert_eq!(symmetric_eigen(vec![f64::NAN; 9], 3).0.len(), 3);
        assert!(symmetric_eigen(Vec::new(), 0).0.is_empty());
    }
}
