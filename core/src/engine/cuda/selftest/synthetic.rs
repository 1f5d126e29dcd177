//! Small sites made up here, so that both engines can be held against each other without a trace.

use std::sync::Arc;

use crate::{
    engine::{SiteJob, StaticScales},
    model::{ModSet, Site, SiteId, TailOp},
    numerics::special::normal_quantile,
    stats::SamplerKind,
    trace::{Covariance, Distribution, SiteStats, WeightStats},
};

use super::inputs::normals;

const PROBS: [f64; 9] = [0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999];

/// Directions that features share.
const RANK: usize = 4;

/// What is different from one made-up site to another.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub name: &'static str,
    pub k: usize,
    pub n: usize,
    /// Full covariances and an exact weight; else factors and a matrix normal.
    pub full: bool,
    pub mods: ModSet,
    pub sampler: SamplerKind,
}

/// A factor `[features, RANK]` and the variances beside it.
struct ShapeOf {
    factor: Vec<f64>,
    diag: Vec<f64>,
}

impl ShapeOf {
    fn new(features: usize, scale: f64, name: &str) -> Self {
        let wide = |count: usize, what: &str| normals(count, &format!("{name} {what}")).into_iter().map(f64::from);
        Self {
            factor: wide(features * RANK, "factor").map(|value| 0.4 * scale * value).collect(),
            diag: wide(features, "variance").map(|value| scale * scale * (0.3 + 0.5 * value.abs())).collect(),
        }
    }

    fn covariance(&self, full: bool) -> Covariance {
        let covariance = Covariance::Factor { factor: self.factor.clone(), rank: RANK, diag: self.diag.clone() };
        if full { Covariance::Full(covariance.to_full(self.diag.len())) } else { covariance }
    }

    /// Tails heavier than a Gaussian's.
    fn distribution(&self, scale: f64, full: bool, name: &str) -> Distribution {
        let features = self.diag.len();
        let cov = self.covariance(full);
        let mean: Vec<f64> = normals(features, &format!("{name} mean"))
            .into_iter()
            .map(|value| 0.4 * scale * f64::from(value))
            .collect();
        let deviations = cov.variances(features).into_iter().map(f64::sqrt);
        let quantile = |mean: f64, deviation: f64, p: f64| {
            let score = normal_quantile(p);
            (mean + deviation * score * (1.0 + 0.05 * score * score)) as f32
        };
        let quantiles: Vec<f32> = mean
            .iter()
            .zip(deviations)
            .flat_map(|(mean, deviation)| PROBS.map(|p| quantile(*mean, deviation, p)))
            .collect();
        let amax = quantiles.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        Distribution {
            count: 100_000,
            mean,
            cov,
            quantiles: Some(quantiles),
            hist: None,
            amax: Some(1.6 * f64::from(amax)),
        }
    }
}

impl Recipe {
    pub fn job(&self) -> SiteJob {
        SiteJob {
            stats: Arc::new(self.stats()),
            upstream: Vec::new(),
            quantile_probs: Arc::from(PROBS),
            mods: self.mods.clone(),
            sampler: self.sampler,
            seed: 11,
            scales: StaticScales::default(),
        }
        .with_scales(None)
    }

    fn stats(&self) -> SiteStats {
        let Self { name, k, n, full, .. } = self;
        let (inputs, grads) = (ShapeOf::new(*k, 1.0, "input"), ShapeOf::new(*n, 1e-3, "gradient"));
        let vector = |what: &str| normals(*n, &format!("{name} {what}"));
        SiteStats {
            grad_output: Some(grads.distribution(1e-3, *full, "gradient")),
            cross_cov: Some(cross(&inputs, &grads)),
            bias: Some(vector("bias")),
            gamma: Some(vector("gamma").iter().map(|value| 1.0 + 0.2 * value).collect()),
            beta: Some(vector("beta").iter().map(|value| 0.2 * value).collect()),
            ..SiteStats::new(self.site(), inputs.distribution(1.0, *full, "input"), self.weight())
        }
    }

    fn site(&self) -> Site {
        Site {
            id: SiteId::new(self.name),
            class: "Linear".to_owned(),
            source: None,
            m: 512,
            k: self.k,
            n: self.n,
            dtype: "float32".to_owned(),
            calls: 1,
            forward: None,
            grads: Default::default(),
            bias: true,
            head: false,
            tail: vec![TailOp::plain("layer_norm"), TailOp::plain("swish")],
            feeds: Vec::new(),
            extra: Default::default(),
        }
    }

    fn weight(&self) -> WeightStats {
        let weight = normals(self.n * self.k, "weight");
        let scale = (self.k as f32).sqrt().recip();
        if self.full {
            return WeightStats::Snapshot(weight.iter().map(|value| scale * value).collect());
        }
        let unit = |features: usize, name: &str, scale: f64| ShapeOf::new(features, scale, name).covariance(false);
        WeightStats::MatrixNormal {
            mean: weight.iter().map(|value| f64::from(0.5 * scale * value)).collect(),
            row_cov: unit(self.n, "weight rows", 1.0),
            col_cov: unit(self.k, "weight columns", f64::from(scale)),
        }
    }
}

/// `[n, k]`: of what input and gradient share, a part.
fn cross(inputs: &ShapeOf, grads: &ShapeOf) -> Vec<f32> {
    let rows = |shape: &ShapeOf| shape.factor.chunks_exact(RANK).map(<[f64]>::to_vec).collect::<Vec<_>>();
    let (inputs, grads) = (rows(inputs), rows(grads));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    grads.iter().flat_map(|g| inputs.iter().map(move |x| (0.3 * dot(g, x)) as f32)).collect()
}
