//! Takes a site's job; gives the static scales of x and dy, the same for every engine to the bit.

use crate::{
    model::{Gemm, Granularity, Kernel, OperandCast, StaticScale},
    mods::modified_tail,
    stats::{SamplerKind, copula_of, static_scale, static_scale_within},
    trace::Distribution,
};

use super::{EngineError, SiteJob};

/// The scales of x and dy, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticScales {
    x: Result<StaticScale, String>,
    dy: Result<StaticScale, String>,
}

impl Default for StaticScales {
    fn default() -> Self {
        let none = Err("no static scale was asked for".to_owned());
        Self { x: none.clone(), dy: none }
    }
}

impl StaticScales {
    /// Of the left operand of `gemm`.
    pub fn of(&self, gemm: Gemm) -> Result<StaticScale, String> {
        match gemm {
            Gemm::Fprop => self.x.clone(),
            Gemm::Dgrad | Gemm::Wgrad => self.dy.clone(),
        }
    }

    /// Of the right operand: wgrad's x. A weight has none, it is there to be measured.
    pub fn of_right(&self, gemm: Gemm) -> Result<StaticScale, String> {
        match gemm {
            Gemm::Fprop | Gemm::Dgrad => Err("a weight has no static scale".to_owned()),
            Gemm::Wgrad => self.x.clone(),
        }
    }

    /// Of the left operand, where the kernel has static scales and all that it needs are known.
    pub fn for_kernel(&self, kernel: &Kernel, gemm: Gemm) -> Option<Result<StaticScale, String>> {
        let is_static = |cast: OperandCast| cast.granularity == Granularity::Static;
        let numerics = kernel.numerics(gemm);
        is_static(numerics.a).then(|| {
            let left = self.of(gemm)?;
            if is_static(numerics.b) { self.of_right(gemm).map(|_| left) } else { Ok(left) }
        })
    }

    /// `input_bound`: the largest magnitude of x, where the block before the site is known to hold it.
    pub(super) fn new(job: &SiteJob, input_bound: Option<f64>) -> Self {
        let stats = &job.stats;
        let recorded = |what: &str, distribution: &Distribution| {
            let copula = match job.sampler {
                SamplerKind::Copula => copula_of(distribution, &job.quantile_probs),
                SamplerKind::Gaussian => None,
            };
            static_scale(distribution, copula.as_ref(), stats.site.m)
                .ok_or_else(|| format!("no power of two holds what was recorded of {what}"))
        };
        let dy = match &stats.grad_output {
            Some(distribution) => recorded("dy", distribution),
            None => Err(EngineError::NoGradients.to_string()),
        };
        let x = match (bound(job, input_bound), job.upstream.last()) {
            (Some(bound), _) => static_scale_within(bound).ok_or_else(|| format!("no power of two holds {bound}")),
            (None, None) => recorded("x", &stats.input),
            (None, Some(feeder)) => Err(format!(
                "x comes through the modified {}, which has no norm: how large it gets was not recorded",
                feeder.stats.site.id
            )),
        };
        Self { x, dy }
    }
}

fn bound(job: &SiteJob, input_bound: Option<f64>) -> Option<f64> {
    match job.upstream.last() {
        Some(feeder) => modified_tail(&feeder.stats, &feeder.mods).bound(),
        // A trace that recorded more than the bound is not of the model that its manifest tells of.
        None => input_bound.filter(|bound| job.stats.input.amax.is_none_or(|amax| amax <= bound * 1.01)),
    }
}

#[cfg(all(test, feature = "native"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::{path::Path, sync::Arc};

    use super::*;
    use crate::{
        engine::Feeder,
        model::{ModSet, TailOp},
        trace::{SiteStats, Trace},
    };

    /// Of a real trace: the job of its site number `at`.
    fn job(at: usize) -> SiteJob {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sample-traces/wukong-clicks.trace.safetensors");
        let trace = Trace::open(&path).unwrap();
        let site = trace.sites()[at].site.id.clone();
        SiteJob {
            stats: Arc::new(trace.site_stats(&site).unwrap()),
            upstream: Vec::new(),
            quantile_probs: trace.manifest().quantile_probs.clone().into(),
            mods: ModSet::none(),
            sampler: SamplerKind::Copula,
            seed: 0,
            scales: StaticScales::default(),
        }
    }

    #[test]
    fn recorded_operands_have_scales_that_hold_their_amax() {
        let job = job(0).with_scales(None);
        for (gemm, distribution) in
            [(Gemm::Fprop, &job.stats.input), (Gemm::Dgrad, job.stats.grad_output.as_ref().unwrap())]
        {
            let known = job.scales.of(gemm).unwrap();
            assert_eq!(known.scale.log2().fract(), 0.0);
            assert!(known.saturation <= 1e-3 && known.saturation >= 0.0);
            let amax = distribution.amax.unwrap();
            assert!(448.0 * f64::from(known.scale) >= amax, "{gemm}: {known:?} for {amax}");
        }
        assert_eq!(job.scales.of(Gemm::Wgrad), job.scales.of(Gemm::Dgrad));
        assert_eq!(job.scales.of_right(Gemm::Wgrad), job.scales.of(Gemm::Fprop));
        assert!(job.scales.of_right(Gemm::Dgrad).is_err());
        assert_eq!(job.scales, self::job(0).with_scales(None).scales, "the same each time");
    }

    #[test]
    fn a_bound_decides_unless_the_trace_contradicts_it() {
        let with = |bound| job(0).with_scales(Some(bound)).scales.of(Gemm::Fprop).unwrap();
        assert_eq!(with(1e4), StaticScale { scale: 32.0, saturation: 0.0 });
        assert_eq!(with(1e-6), job(0).with_scales(None).scales.of(Gemm::Fprop).unwrap());
    }

    #[test]
    fn behind_a_modified_block_the_bound_is_its_tails() {
        let ending_in = |op: &str| {
            let mut stats = SiteStats::clone(&job(0).stats);
            stats.site.tail = vec![TailOp::plain(op)];
            let feeder = Feeder { stats: Arc::new(stats), mods: ModSet::all() };
            SiteJob { upstream: vec![feeder], ..job(1) }.with_scales(None).scales.of(Gemm::Fprop)
        };
        let n = job(0).stats.site.n;
        assert_eq!(n % 256, 0, "blocks of 256");
        assert_eq!(ending_in("layer_norm"), Ok(StaticScale { scale: 0.0625, saturation: 0.0 }));
        assert!(ending_in("relu").unwrap_err().starts_with("x comes through the modified "));
    }
}
