//! A site's weight on the device: the snapshot, or draws of the matrix normal.

use crate::{
    engine::EngineError,
    numerics::rng::Rng,
    stats::{MatrixNormalSampler, SampleError},
    trace::{SiteStats, WeightStats},
};

use super::{
    CudaError,
    lt::Addresses,
    product::{Compute, Product, ProductOperand, Type},
    sources::{f32s, normals},
    stream_context::{StreamContext, Tensor},
};

pub(super) enum Weights {
    Exact(Tensor),
    /// `mean + L_U Z L_V^T`
    Normal {
        mean: Tensor,
        lower_u: Tensor,
        lower_v: Tensor,
    },
}

impl Weights {
    pub fn new(lane: &StreamContext, stats: &SiteStats) -> Result<Self, EngineError> {
        let (n, k) = (stats.site.n, stats.site.k);
        Ok(match &stats.weight {
            WeightStats::Snapshot(weight) => Self::Exact(lane.upload(n, k, weight)?),
            WeightStats::MatrixNormal { mean, row_cov, col_cov } => {
                let sampler = MatrixNormalSampler::new((n, k), mean, row_cov, col_cov);
                let sampler = sampler.map_err(|source| SampleError { what: "weight", source })?;
                Self::Normal {
                    mean: lane.upload(n, k, &f32s(&sampler.mean))?,
                    lower_u: lane.upload(n, n, &f32s(&sampler.rows.to_full()))?,
                    lower_v: lane.upload(k, k, &f32s(&sampler.cols.to_full()))?,
                }
            }
        })
    }

    /// True when every draw gives the same.
    pub fn is_exact(&self) -> bool {
        matches!(self, Self::Exact(_))
    }

    /// `[n, k]`
    pub fn draw(&self, lane: &mut StreamContext, rng: &mut Rng) -> Result<Tensor, CudaError> {
        match self {
            Self::Exact(weight) => {
                let copy = lane.tensor(weight.rows, weight.cols)?;
                lane.stream.copy(&weight.data, &copy.data)?;
                Ok(copy)
            }
            Self::Normal { mean, lower_u, lower_v } => {
                let (n, k) = (mean.rows, mean.cols);
                let normals = normals(lane, n, k, rng)?;
                let right = lane.tensor(n, k)?;
                let at = |a: &Tensor, b: &Tensor, out: &Tensor| {
                    Addresses::unscaled(a.data.address(), b.data.address(), out.data.address())
                };
                let plain = Product::plain(n, k, k, Type::F32, Compute::F32);
                lane.product(plain, at(&normals, lower_v, &right))?;
                let out = lane.tensor(n, k)?;
                lane.stream.copy(&mean.data, &out.data)?;
                // The right factor is [reduced, cols] as it lies.
                let b = ProductOperand::plain(Type::F32).transposed();
                let left = Product { b, accumulate: true, reduced: n, ..plain };
                lane.product(left, at(lower_u, &right, &out))?;
                Ok(out)
            }
        }
    }
}
