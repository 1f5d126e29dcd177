//! Takes one site's statistics; gives an operand's values as a matrix, real ones where the trace has some.

use crate::{
    model::Matrix,
    numerics::rng::Rng,
    stats::{MatrixNormalSampler, RowSampler, SamplerKind},
    trace::{Distribution, SiteStats, WeightStats},
};

use super::operand::{Operand, Origin};

/// Rows drawn where the trace keeps none: as many as an engine draws for a few of its draws.
const SAMPLED_ROWS: usize = 192;

/// `[rows, depth]`, as the GEMM that the operand leads reads it.
pub(super) struct Values {
    pub matrix: Matrix,
    pub origin: Origin,
}

impl Values {
    /// `Err`: why there are none.
    pub fn of(stats: &SiteStats, probs: &[f64], operand: Operand) -> Result<Self, String> {
        match operand {
            Operand::Weight => weight(stats),
            Operand::Input => rows("input", stats, probs, &stats.input, stats.heldout_input.as_ref()),
            Operand::GradOutput => {
                let reason = "the trace has no output gradients at this site";
                let gradients = stats.grad_output.as_ref().ok_or(reason)?;
                rows("grad_output", stats, probs, gradients, stats.heldout_grad_output.as_ref())
            }
        }
    }
}

fn rows(
    what: &'static str,
    stats: &SiteStats,
    probs: &[f64],
    distribution: &Distribution,
    heldout: Option<&Matrix>,
) -> Result<Values, String> {
    if let Some(rows) = heldout.filter(|rows| rows.rows > 0) {
        return Ok(Values { matrix: rows.clone(), origin: Origin::HeldOut });
    }
    let sampler = RowSampler::new(what, distribution, probs, SamplerKind::Copula).map_err(|e| e.to_string())?;
    let mut rng = Rng::new(0, &[stats.site.id.as_str().as_bytes(), what.as_bytes(), b"inspect"]);
    Ok(Values { matrix: sampler.rows(SAMPLED_ROWS, &mut rng), origin: Origin::Sampled })
}

fn weight(stats: &SiteStats) -> Result<Values, String> {
    let (n, k) = (stats.site.n, stats.site.k);
    let (data, origin) = match &stats.weight {
        WeightStats::Snapshot(weight) => (weight.clone(), Origin::Snapshot),
        WeightStats::MatrixNormal { mean, row_cov, col_cov } => {
            let sampler = MatrixNormalSampler::new((n, k), mean, row_cov, col_cov);
            let sampler = sampler.map_err(|error| format!("the weight cannot be sampled: {error}"))?;
            let mut rng = Rng::new(0, &[stats.site.id.as_str().as_bytes(), b"weight", b"inspect"]);
            (sampler.draw(&mut rng), Origin::Sampled)
        }
    };
    Ok(Values { matrix: Matrix { rows: n, cols: k, data }, origin })
}
