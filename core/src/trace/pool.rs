//! Takes the same site's statistics from several shards; gives the statistics of all their rows.
//!
//! Chan's rule for any number of shards at once: with `n_i` rows, means `m_i` and covariances `C_i`,
//! `n C' = sum (n_i - 1) C_i + n_i (m_i - m)(m_i - m)^T`, `n = sum n_i - 1`. At once and not in pairs,
//! so that factored covariances are cut back to their rank one time only.

use std::sync::Arc;

use crate::numerics::{cut_to_rank, linalg::add_scaled};

use super::{
    error::TraceCause,
    site_stats::{Covariance, Distribution, GradientMoments, Magnitudes},
};

/// How much each shard counts.
struct PoolShares {
    counts: Vec<f64>,
    total: f64,
}

impl PoolShares {
    fn new<'a>(parts: impl Iterator<Item = &'a Distribution>) -> Self {
        let counts: Vec<f64> = parts.map(|part| part.count as f64).collect();
        Self { total: counts.iter().sum(), counts }
    }

    /// Of shard `i`'s own covariance.
    fn within(&self, i: usize) -> f64 {
        (self.counts[i] - 1.0) / (self.total - 1.0)
    }

    /// Of the square of how far shard `i`'s mean is from the common one.
    fn between(&self, i: usize) -> f64 {
        self.counts[i] / (self.total - 1.0)
    }

    fn average<'a>(&self, parts: impl Iterator<Item = &'a [f64]>) -> Vec<f64> {
        let mut out = Vec::new();
        for (part, count) in parts.zip(&self.counts) {
            out.resize(part.len(), 0.0);
            add_scaled(&mut out, part, count / self.total);
        }
        out
    }
}

/// All parts of one site and of the same number of features; at least one.
pub(super) fn distribution(parts: &[&Distribution]) -> Result<Distribution, TraceCause> {
    let shares = PoolShares::new(parts.iter().copied());
    let mean = shares.average(parts.iter().map(|part| part.mean.as_slice()));
    let cov = covariance(parts, &mean, &shares)?;
    let all_finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
    let finite = match &cov {
        Covariance::Full(values) => all_finite(values),
        Covariance::Factor { factor, diag, .. } => all_finite(factor) && all_finite(diag),
    };
    if !finite || !all_finite(&mean) {
        return Err(TraceCause::MergeOverflow("a covariance"));
    }
    Ok(Distribution {
        count: sum(parts.iter().map(|part| part.count)).ok_or(TraceCause::MergeOverflow("a count"))?,
        mean,
        cov,
        quantiles: quantiles(parts, &shares),
        hist: hist(parts.iter().map(|part| part.hist.as_deref()))?,
        amax: amax(parts.iter().map(|part| part.amax)),
    })
}

/// Bins add; `None` where a shard has none, whose rows would be missing from the sum.
pub(super) fn hist<'a>(parts: impl Iterator<Item = Option<&'a [u64]>>) -> Result<Option<Vec<u64>>, TraceCause> {
    let Some(parts) = parts.collect::<Option<Vec<&[u64]>>>() else { return Ok(None) };
    let bins = parts.iter().map(|part| part.len()).min().unwrap_or(0);
    let bin = |i: usize| sum(parts.iter().map(|part| part[i])).ok_or(TraceCause::MergeOverflow("a histogram"));
    (0..bins).map(bin).collect::<Result<_, _>>().map(Some)
}

/// The largest; `None` where a shard has none, which may have held it.
pub(super) fn amax(mut parts: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    parts.try_fold(0.0, |largest: f64, part| part.map(|part| largest.max(part)))
}

/// Within what I64 holds, since the file stores it as that.
fn sum(mut counts: impl Iterator<Item = u64>) -> Option<u64> {
    let total = counts.try_fold(0_u64, u64::checked_add)?;
    i64::try_from(total).is_ok().then_some(total)
}

/// Averages, weighted by count: not the quantiles of the union, but between those of the shards.
fn quantiles(parts: &[&Distribution], shares: &PoolShares) -> Option<Vec<f32>> {
    let parts = parts.iter().map(|part| part.quantiles.as_deref()).collect::<Option<Vec<&[f32]>>>()?;
    let mut out = vec![0.0; parts.iter().map(|part| part.len()).min()?];
    for (part, count) in parts.iter().zip(&shares.counts) {
        for (out, value) in out.iter_mut().zip(*part) {
            *out += f64::from(*value) * (count / shares.total);
        }
    }
    Some(out.into_iter().map(|value| value as f32).collect())
}

/// `[n, k]` of each shard with its gradient's and its input's distribution: Chan's rule with the two
/// means. The gradients' counts weigh: the covariance is over the rows that have one.
pub(super) fn cross_cov(parts: &[(&[f32], &Distribution, &Distribution)]) -> Vec<f32> {
    let shares = PoolShares::new(parts.iter().map(|(_, grad, _)| *grad));
    let grad_mean = shares.average(parts.iter().map(|(_, grad, _)| grad.mean.as_slice()));
    let input_mean = shares.average(parts.iter().map(|(_, _, input)| input.mean.as_slice()));
    let k = input_mean.len();
    let mut out = vec![0.0_f64; grad_mean.len() * k];
    for (i, (cross, grad, input)) in parts.iter().enumerate() {
        let (within, between) = (shares.within(i), shares.between(i));
        let away: Vec<f64> = difference(&input.mean, &input_mean);
        for (row, (out, cross)) in out.chunks_exact_mut(k).zip(cross.chunks_exact(k)).enumerate() {
            let grad_away = between * (grad.mean[row] - grad_mean[row]);
            for ((out, cross), away) in out.iter_mut().zip(cross).zip(&away) {
                *out += within * f64::from(*cross) + grad_away * away;
            }
        }
    }
    out.into_iter().map(|value| value as f32).collect()
}

/// Means over units, weighted by how many there were; `None` where a shard has none.
pub(super) fn noise(
    parts: impl Iterator<Item = Option<GradientMoments>>,
) -> Result<Option<GradientMoments>, TraceCause> {
    let Some(parts) = parts.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let count = sum(parts.iter().map(|part| part.count)).ok_or(TraceCause::MergeOverflow("a count"))?;
    let mean = |of: fn(&GradientMoments) -> f64| {
        parts.iter().map(|part| of(part) * part.count as f64).sum::<f64>() / count.max(1) as f64
    };
    let by_example = parts.iter().all(|part| part.by_example);
    let (xg2, mean2) = (mean(|part| part.xg2), mean(|part| part.mean2));
    let known: Option<Vec<&Magnitudes>> = parts.iter().map(|part| part.magnitudes.as_deref()).collect();
    let magnitudes = known.filter(|known| !known.is_empty()).map(|known| {
        let mean = |of: fn(&Magnitudes) -> &[f64]| {
            let mut sums = vec![0.0; of(known[0]).len()];
            for (part, squares) in parts.iter().zip(&known) {
                let share = part.count as f64 / count.max(1) as f64;
                sums.iter_mut().zip(of(squares)).for_each(|(sum, square)| *sum += share * square);
            }
            sums
        };
        Arc::new(Magnitudes { input: mean(|of| &of.input), grad_output: mean(|of| &of.grad_output) })
    });
    Ok(Some(GradientMoments { count, xg2, mean2, by_example, magnitudes }))
}

fn covariance(parts: &[&Distribution], mean: &[f64], shares: &PoolShares) -> Result<Covariance, TraceCause> {
    let mut full = Vec::new();
    let mut factored = Vec::new();
    for part in parts {
        match &part.cov {
            Covariance::Full(values) => full.push((values.as_slice(), part.mean.as_slice())),
            Covariance::Factor { factor, rank, diag } => {
                factored.push(Factored { factor, rank: *rank, diag, mean: &part.mean });
            }
        }
    }
    match (full.is_empty(), factored.is_empty()) {
        (_, true) => Ok(Covariance::Full(full_covariance(&full, mean, shares))),
        (true, false) => Ok(factored_covariance(&factored, mean, shares)),
        (false, false) => Err(TraceCause::Unusable("one covariance is full, another factored: not merged".to_owned())),
    }
}

fn full_covariance(parts: &[(&[f64], &[f64])], mean: &[f64], shares: &PoolShares) -> Vec<f64> {
    let k = mean.len();
    let mut out = vec![0.0; k * k];
    for (i, (cov, part_mean)) in parts.iter().enumerate() {
        let (within, between) = (shares.within(i), shares.between(i));
        let away = difference(part_mean, mean);
        for (row, (out, cov)) in out.chunks_exact_mut(k).zip(cov.chunks_exact(k)).enumerate() {
            for (col, (out, cov)) in out.iter_mut().zip(cov).enumerate() {
                // The product of the two deviations first: the same either way round, to the bit.
                *out += within * cov + between * (away[row] * away[col]);
            }
        }
    }
    out
}

struct Factored<'a> {
    factor: &'a [f64],
    rank: usize,
    diag: &'a [f64],
    mean: &'a [f64],
}

/// The exact sum is factored too: all scaled factors side by side, and one column for each shard's
/// mean. It is cut to the rank of its widest part; what the cut loses on the diagonal goes to `diag`,
/// so that every variance is exact.
fn factored_covariance(parts: &[Factored<'_>], mean: &[f64], shares: &PoolShares) -> Covariance {
    let k = mean.len();
    let rank = parts.iter().map(|part| part.rank).max().unwrap_or(0);
    let mut diag = vec![0.0; k];
    let mut columns: Vec<Vec<f64>> = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        add_scaled(&mut diag, part.diag, shares.within(i));
        let scale = shares.within(i).sqrt();
        columns.extend((0..part.rank).map(|c| column(part.factor, part.rank, c, scale)));
        let scale = shares.between(i).sqrt();
        columns.push(difference(part.mean, mean).into_iter().map(|away| away * scale).collect());
        // The eigenproblem grows with the cube of the columns: many shards are taken in batches, with
        // twice the rank kept between them so that little is lost before the last cut.
        if columns.len() > 8 * rank + 8 {
            columns = cut_to_rank(columns, 2 * rank, &mut diag);
        }
    }
    let columns = cut_to_rank(columns, rank, &mut diag);
    let mut factor = vec![0.0; k * rank];
    for (c, column) in columns.iter().enumerate() {
        for (row, value) in column.iter().enumerate() {
            factor[row * rank + c] = *value;
        }
    }
    Covariance::Factor { factor, rank, diag }
}

fn column(factor: &[f64], rank: usize, c: usize, scale: f64) -> Vec<f64> {
    factor.iter().skip(c).step_by(rank).map(|value| value * scale).collect()
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
