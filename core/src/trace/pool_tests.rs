//! Pooled shards against the statistics of all their rows, computed directly.

use super::*;
use crate::numerics::symmetric_eigen;

/// Sums of a few noises: features that are correlated, with means that drift from shard to shard.
fn rows(count: usize, k: usize, shift: f64, seed: u64) -> Vec<Vec<f64>> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    let row = |next: &mut dyn FnMut() -> f64| {
        let common = [next(), next()];
        (0..k).map(|j| shift + common[j % 2] * (1.0 + j as f64) + 0.1 * next()).collect()
    };
    (0..count).map(|_| row(&mut next)).collect()
}

fn of_rows(rows: &[Vec<f64>]) -> Distribution {
    let (n, k) = (rows.len() as f64, rows[0].len());
    let mean: Vec<f64> = (0..k).map(|j| rows.iter().map(|row| row[j]).sum::<f64>() / n).collect();
    let mut cov = vec![0.0; k * k];
    for row in rows {
        for i in 0..k {
            for j in 0..k {
                cov[i * k + j] += (row[i] - mean[i]) * (row[j] - mean[j]) / (n - 1.0);
            }
        }
    }
    Distribution { count: rows.len() as u64, mean, cov: Covariance::Full(cov), quantiles: None, hist: None, amax: None }
}

fn dense(cov: &Covariance, k: usize) -> Vec<f64> {
    match cov {
        Covariance::Full(values) => values.clone(),
        Covariance::Factor { factor, rank, diag } => {
            let entry = |i: usize, j: usize| -> f64 {
                let dot: f64 = (0..*rank).map(|c| factor[i * rank + c] * factor[j * rank + c]).sum();
                dot + if i == j { diag[i] } else { 0.0 }
            };
            (0..k * k).map(|at| entry(at / k, at % k)).collect()
        }
    }
}

/// `full` cut to `rank` with the rest on the diagonal.
fn factored(full: &Distribution, rank: usize) -> Distribution {
    let k = full.mean.len();
    let dense = dense(&full.cov, k);
    let (values, vectors) = symmetric_eigen(dense.clone(), k);
    let mut factor = vec![0.0; k * rank];
    for c in 0..rank {
        let from = k - 1 - c;
        for i in 0..k {
            factor[i * rank + c] = vectors[i * k + from] * values[from].max(0.0).sqrt();
        }
    }
    let kept = |i: usize| -> f64 { (0..rank).map(|c| factor[i * rank + c].powi(2)).sum() };
    let diag = (0..k).map(|i| (dense[i * k + i] - kept(i)).max(0.0)).collect();
    Distribution { cov: Covariance::Factor { factor, rank, diag }, ..full.clone() }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
}

const K: usize = 6;

fn shards() -> (Vec<Distribution>, Distribution) {
    let parts: Vec<Vec<Vec<f64>>> = (0..5).map(|i| rows(7 + 20 * i, K, i as f64, i as u64 + 1)).collect();
    (parts.iter().map(|rows| of_rows(rows)).collect(), of_rows(&parts.concat()))
}

#[test]
fn full_covariances_are_those_of_all_rows() {
    let (parts, whole) = shards();
    let pooled = distribution(&parts.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(pooled.count, whole.count);
    assert!(distance(&pooled.mean, &whole.mean) < 1e-14);
    let pooled = dense(&pooled.cov, K);
    assert!(distance(&pooled, &dense(&whole.cov, K)) < 1e-13);
    assert!((0..K * K).all(|at| pooled[at] == pooled[at % K * K + at / K]), "symmetric to the bit");
}

#[test]
fn factored_covariances_keep_every_variance_and_most_of_the_rest() {
    let (parts, whole) = shards();
    let parts: Vec<Distribution> = parts.iter().map(|part| factored(part, 3)).collect();
    let parts: Vec<&Distribution> = parts.iter().collect();
    let exact = {
        let full: Vec<Distribution> = parts
            .iter()
            .map(|part| Distribution { cov: Covariance::Full(dense(&part.cov, K)), ..(*part).clone() })
            .collect();
        dense(&distribution(&full.iter().collect::<Vec<_>>()).unwrap().cov, K)
    };
    let pooled = distribution(&parts).unwrap();
    assert!(matches!(&pooled.cov, Covariance::Factor { rank: 3, .. }));
    let pooled = dense(&pooled.cov, K);
    for i in 0..K {
        assert!((pooled[i * K + i] / exact[i * K + i] - 1.0).abs() < 1e-12);
    }
    // Two common causes and one drift of the mean: rank 3 holds all but the noise.
    assert!(distance(&pooled, &exact) < 2e-3, "{}", distance(&pooled, &exact));
    assert!(distance(&pooled, &dense(&whole.cov, K)) < 1e-2);
}

#[test]
fn batches_of_many_shards_lose_little() {
    let parts: Vec<Distribution> = (0..40).map(|i| factored(&of_rows(&rows(30, K, 0.0, i + 9)), 2)).collect();
    let pooled = dense(&distribution(&parts.iter().collect::<Vec<_>>()).unwrap().cov, K);
    let all: Vec<Vec<f64>> = (0..40).flat_map(|i| rows(30, K, 0.0, i + 9)).collect();
    let whole = dense(&of_rows(&all).cov, K);
    assert!(distance(&pooled, &whole) < 5e-3, "{}", distance(&pooled, &whole));
}

#[test]
fn rank_zero_is_a_diagonal() {
    let part = |mean: f64| Distribution {
        count: 2,
        mean: vec![mean],
        cov: Covariance::Factor { factor: vec![], rank: 0, diag: vec![1.0] },
        quantiles: None,
        hist: None,
        amax: None,
    };
    // Rows like -1/sqrt 2, 1/sqrt 2 around 0 and around 3: (1 + 1 + 2 * 1.5^2 * 2) / 3.
    let pooled = distribution(&[&part(0.0), &part(3.0)]).unwrap();
    assert!((dense(&pooled.cov, 1)[0] - 11.0 / 3.0).abs() < 1e-14);
    assert!(matches!(pooled.cov, Covariance::Factor { rank: 0, .. }));
}

#[test]
fn the_cross_covariance_is_that_of_all_rows() {
    let parts: Vec<Vec<Vec<f64>>> = (0..3).map(|i| rows(9 + i, 5, i as f64, i as u64)).collect();
    // Two features of each row play the gradient, three the input.
    let split = |all: &[Vec<f64>]| {
        let grad: Vec<Vec<f64>> = all.iter().map(|row| row[..2].to_vec()).collect();
        let input: Vec<Vec<f64>> = all.iter().map(|row| row[2..].to_vec()).collect();
        let cov = dense(&of_rows(all).cov, 5);
        let cross: Vec<f32> = (0..6).map(|at| cov[at / 3 * 5 + 2 + at % 3] as f32).collect();
        (cross, of_rows(&grad), of_rows(&input))
    };
    let each: Vec<_> = parts.iter().map(|rows| split(rows)).collect();
    let parts_of: Vec<_> = each.iter().map(|(cross, grad, input)| (cross.as_slice(), grad, input)).collect();
    let widened = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
    assert!(distance(&widened(cross_cov(&parts_of)), &widened(split(&parts.concat()).0)) < 1e-6);
}

#[test]
fn counts_bins_and_maxima() {
    let part = |count, bins: Option<Vec<u64>>, amax, q: &[f32]| Distribution {
        count,
        mean: vec![0.0],
        cov: Covariance::Full(vec![1.0]),
        quantiles: Some(q.to_vec()),
        hist: bins,
        amax,
    };
    let a = part(30, Some(vec![1, 2]), Some(3.0), &[-1.0, 1.0]);
    let b = part(10, Some(vec![5, 0]), Some(2.0), &[-3.0, 5.0]);
    let pooled = distribution(&[&a, &b]).unwrap();
    assert_eq!(pooled.hist, Some(vec![6, 2]));
    assert_eq!(pooled.amax, Some(3.0));
    assert_eq!(pooled.quantiles, Some(vec![-1.5, 2.0]));

    let none = distribution(&[&a, &part(10, None, None, &[0.0, 0.0])]).unwrap();
    assert_eq!((none.hist, none.amax), (None, None));
    let most = part(i64::MAX as u64, None, None, &[0.0, 0.0]);
    assert_eq!(distribution(&[&a, &most]).unwrap_err(), TraceCause::MergeOverflow("a count"));
}
