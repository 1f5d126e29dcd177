//! Takes a job for a target that runs the forward GEMM alone, gives the scheme of each module and what that loses.

use crate::{
    export::{
        LossKind,
        job::{Job, Site, numeric_losses},
        loss::Losses,
        resolution::LEFT,
        scheme::{Scheme, Wanted},
    },
    model::Gemm,
};

/// What a target can do with a linear.
pub struct Abilities<'a> {
    pub schemes: &'a [Scheme],
    /// A scheme that sums fast or not whatever the file says; `None`: whoever loads the file decides.
    pub fast: Option<fn(Scheme) -> bool>,
    /// Schemes whose activation scales come from a calibration, not from each batch.
    pub calibrated: &'a [Scheme],
}

pub struct Schemes {
    /// Beside each module.
    pub of: Vec<Scheme>,
    pub losses: Losses,
}

impl Schemes {
    pub fn new(job: &Job<'_>, can: &Abilities<'_>) -> Self {
        let (mut of, mut losses) = (vec![Scheme::High; job.modules.len()], Losses::default());
        for (at, _, site) in job.linears() {
            if let Some(site) = site {
                of[at] = scheme(site, can, &mut losses);
            }
        }
        Self { of, losses }
    }

    pub fn settings(&self) -> Vec<String> {
        self.of.iter().map(|scheme| setting(*scheme)).collect()
    }

    /// Numbers of the modules with this scheme.
    pub fn with(&self, wanted: Scheme) -> impl Iterator<Item = usize> {
        self.of.iter().enumerate().filter(move |(_, scheme)| **scheme == wanted).map(|(at, _)| at)
    }
}

pub fn setting(scheme: Scheme) -> String {
    if scheme.is_fp8() { scheme.as_str().to_owned() } else { LEFT.to_owned() }
}

fn scheme(site: &Site<'_>, can: &Abilities<'_>, losses: &mut Losses) -> Scheme {
    let planned = site.planned;
    if [Gemm::Dgrad, Gemm::Wgrad].iter().any(|gemm| planned.choice(*gemm).kernel != planned.fprop.kernel) {
        let text = "the file is for inference: dgrad's and wgrad's kernels, where they are not fprop's, are not in it";
        losses.add(LossKind::Backward, text, site.name());
    }
    let wanted = site.gemm(Gemm::Fprop);
    let scheme = wanted.scheme.nearest(can.schemes);
    let fast = can.fast.map_or(wanted.fast, |fast| fast(scheme));
    numeric_losses(losses, site.name(), wanted, Wanted { scheme, power_of_two: false, fast, ..wanted });
    // A scale that the plan knows beforehand is as good as calibrated.
    if can.calibrated.contains(&scheme) && wanted.scheme != Scheme::Delayed {
        let text = "activations have scales from a calibration, in the plan from each batch";
        losses.add(LossKind::Scales, text, site.name());
    }
    scheme
}
