//! What an output error costs in loss, exactly: `1/2 E[(g . dy)^2]` over the recorded second moment of the
//! output gradient, without the random vectors that the CPU engine takes for large covariances.

use crate::{
    engine::EngineError,
    numerics::linalg::cholesky_jittered,
    trace::{Covariance, Distribution},
};

use super::{
    CudaError,
    lt::Addresses,
    product::{Compute, Product, ProductOperand, Type},
    sources::f32s,
    stream::Buffer,
    stream_context::{StreamContext, Tensor},
};

/// Sigma_g + mean mean^T, as `root root^T + diag(weights) + mean mean^T`.
pub(super) struct DeviceLoss {
    mean: Buffer<f32>,
    /// `[features, rank]`
    root: Option<Tensor>,
    /// Variances of the part outside the factor.
    weights: Option<Buffer<f32>>,
}

/// Bytes of the sums that `measure` leaves: of the root's part, of the weights', of the mean's.
pub(super) const LOSS_BYTES: usize = 24;

impl DeviceLoss {
    /// `None` where the covariance cannot be factored.
    pub fn new(lane: &StreamContext, gradients: &Distribution) -> Result<Option<Self>, EngineError> {
        let features = gradients.mean.len();
        let (root, rank, weights) = match &gradients.cov {
            Covariance::Full(full) => match cholesky_jittered(full, features) {
                Ok(lower) => (f32s(&lower), features, None),
                Err(_) => return Ok(None),
            },
            Covariance::Factor { factor, rank, diag } => {
                (f32s(factor), *rank, Some(diag.iter().map(|d| d.max(0.0) as f32).collect::<Vec<_>>()))
            }
        };
        Ok(Some(Self {
            mean: lane.stream.upload(&f32s(&gradients.mean))?,
            root: (rank > 0).then(|| lane.upload(features, rank, &root)).transpose()?,
            weights: weights.map(|weights| lane.stream.upload(&weights)).transpose()?,
        }))
    }

    /// Three FP64 at `sums`. TF32 is enough: it is off by 1e-3 of a cost that is known to some percent.
    pub fn measure(&self, lane: &mut StreamContext, difference: &Tensor, sums: u64) -> Result<(), CudaError> {
        if let Some(root) = &self.root {
            let projected = lane.tensor(difference.rows, root.cols)?;
            let plain = Product::plain(difference.rows, root.cols, root.rows, Type::F32, Compute::Tf32);
            let at = Addresses::unscaled(difference.data.address(), root.data.address(), projected.data.address());
            // [features, rank] is [reduced, cols] as it lies.
            lane.product(Product { b: ProductOperand::plain(Type::F32).transposed(), ..plain }, at)?;
            lane.sum_squares(&projected, sums)?;
        }
        lane.loss_rows(difference, self.weights.as_ref(), &self.mean, sums + 8)
    }

    /// The mean cost of a row.
    pub fn cost(sums: [f64; 3], rows: usize) -> f64 {
        0.5 * sums.iter().sum::<f64>() / rows.max(1) as f64
    }
}
