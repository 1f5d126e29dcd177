//! The copula's map of one recorded distribution.

use crate::{numerics::CopulaMap, trace::Distribution};

/// Deviations from the mean to values. `None` without at least two recorded quantiles.
pub fn copula_of(distribution: &Distribution, probs: &[f64]) -> Option<CopulaMap> {
    let variances = distribution.cov.variances(distribution.mean.len());
    CopulaMap::new(&variances, distribution.quantiles.as_ref()?, probs, distribution.amax)
}
