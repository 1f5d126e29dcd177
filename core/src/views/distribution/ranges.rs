//! Takes an operand's values, amax and histogram; gives for every format and scaling the range of x that
//! can be represented and the shares that cannot.

use serde::{Deserialize, Serialize};

use crate::{
    model::{Format, Gemm, GemmShape, Granularity, KernelId, OperandCast, Site, catalogue},
    numerics::cast::scale_from_amax,
};

use super::{
    histogram::Histogram,
    limits::{Limits, Reach},
    operand::{Operand, Origin},
    shares::{CastOutcome, Casts, Shares},
    values::Values,
};

/// A kernel that casts the operand so, in that GEMM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Use {
    pub kernel: KernelId,
    pub gemm: Gemm,
}

/// The scales of one form, and what each lets the format hold. Groups are rows, blocks, or the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scales {
    pub smallest: Reach,
    pub median: Reach,
    pub largest: Reach,
    pub num_groups: usize,
    /// Groups of zeros alone, not counted above.
    pub num_empty_groups: usize,
    pub origin: Origin,
}

/// One format under one scaling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaledRange {
    pub cast: OperandCast,
    /// Kernels of the catalogue that do this to the operand at this site's shape; empty: for comparison.
    pub uses: Vec<Use>,
    pub scales: Result<Scales, String>,
    /// Of real values, or of drawn ones: see their origin.
    pub shares: Shares,
    /// Of everything that was recorded, where one scale is for all.
    pub of_histogram: Option<Shares>,
}

impl ScaledRange {
    /// `E4M3 · row`, `E4M3 · row, pow2`, `BF16`.
    pub fn label(&self) -> String {
        let format = self.cast.format.as_str();
        let scaling = match self.cast.granularity {
            Granularity::None if self.cast.format == Format::Bf16 => return format.to_owned(),
            Granularity::None => "no scale",
            Granularity::Tensor => "tensor",
            Granularity::Row => "row",
            Granularity::Block1x128 => "1 × 128",
            Granularity::Block128x128 => "128 × 128",
            Granularity::Static => "static",
        };
        let power = if self.cast.power_of_two { ", pow2" } else { "" };
        format!("{format} · {scaling}{power}")
    }

    /// True for what stands there to compare with: no kernel does it.
    pub fn is_reference(&self) -> bool {
        self.uses.is_empty()
    }
}

/// Every form, references first.
pub(super) fn all(
    site: &Site,
    operand: Operand,
    values: &Values,
    amax: &Result<(f64, Origin), String>,
    histogram: &Histogram,
) -> Vec<ScaledRange> {
    let mut casts = Casts::new(&values.matrix, values.origin);
    let tensor_amax = amax.as_ref().ok().map(|(amax, _)| *amax);
    let range = |(cast, uses): (OperandCast, Vec<Use>)| {
        let outcome = casts.run(cast, tensor_amax.map(|amax| amax as f32));
        let origin = match (cast.granularity, amax) {
            (Granularity::Tensor, Ok((_, origin))) => *origin,
            _ => values.origin,
        };
        let of_histogram = one_scale(cast, tensor_amax)
            .map(|scale| Shares::of_histogram(histogram, &Limits::of(cast.format), scale, tensor_amax));
        let scales = scales_of(cast, &outcome, origin);
        ScaledRange { cast, uses, scales, shares: outcome.shares, of_histogram }
    };
    forms(site, operand).into_iter().map(range).collect()
}

/// The scale of all values, where there is one.
fn one_scale(cast: OperandCast, amax: Option<f64>) -> Option<f64> {
    match cast.granularity {
        Granularity::None => Some(1.0),
        Granularity::Tensor => amax.map(|amax| f64::from(scale_from_amax(amax as f32, cast.format, cast.power_of_two))),
        _ => None,
    }
}

fn scales_of(cast: OperandCast, outcome: &CastOutcome, origin: Origin) -> Result<Scales, String> {
    let limits = Limits::of(cast.format);
    let reach = |scale: f32| limits.reach(f64::from(scale));
    if cast.granularity == Granularity::None {
        let one = reach(1.0);
        return Ok(Scales { smallest: one, median: one, largest: one, num_groups: 1, num_empty_groups: 0, origin });
    }
    let (Some(smallest), Some(largest)) = (outcome.scales.first(), outcome.scales.last()) else {
        return Err("every group is zero or not finite: there is no scale to show".to_owned());
    };
    Ok(Scales {
        smallest: reach(*smallest),
        median: reach(outcome.scales[outcome.scales.len() / 2]),
        largest: reach(*largest),
        num_groups: outcome.scales.len(),
        num_empty_groups: outcome.num_empty_groups,
        origin,
    })
}

/// References, then what kernels do, by format and granularity, then the rest of format x granularity.
fn forms(site: &Site, operand: Operand) -> Vec<(OperandCast, Vec<Use>)> {
    let mut casts: Vec<OperandCast> = [Format::Bf16, Format::E4m3, Format::E5m2].map(OperandCast::unscaled).to_vec();
    for format in [Format::E4m3, Format::E5m2] {
        for granularity in [Granularity::Tensor, Granularity::Row, Granularity::Block1x128, Granularity::Block128x128] {
            casts.extend([OperandCast::scaled(format, granularity), OperandCast::scaled_pow2(format, granularity)]);
        }
    }
    let used = |cast: OperandCast| (cast, uses(site, operand, cast));
    let all = casts.into_iter().map(used);
    // A power-of-two scale that no kernel uses tells nothing that the plain one does not.
    all.filter(|(cast, uses)| !cast.power_of_two || !uses.is_empty()).collect()
}

fn uses(site: &Site, operand: Operand, cast: OperandCast) -> Vec<Use> {
    let shape = GemmShape { m: site.m, k: site.k, n: site.n };
    let mut found = Vec::new();
    for kernel in catalogue() {
        for gemm in Gemm::ALL {
            let numerics = kernel.numerics(gemm);
            let (form, along) = match (operand, gemm) {
                (Operand::Input, Gemm::Fprop) | (Operand::GradOutput, Gemm::Dgrad) => (numerics.a, true),
                (Operand::Weight, Gemm::Fprop) => (numerics.b, true),
                (Operand::Input, Gemm::Wgrad) | (Operand::Weight, Gemm::Dgrad) => (numerics.b, false),
                (Operand::GradOutput, Gemm::Wgrad) => (numerics.a, false),
                _ => continue,
            };
            // The other way round rows are other rows; a tensor or a square block stays what it is.
            let same = along || !matches!(form.granularity, Granularity::Row | Granularity::Block1x128);
            if form == cast && same && kernel.refuses(gemm, shape).is_none() {
                found.push(Use { kernel: kernel.id(), gemm });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SiteId;

    fn site(k: usize, n: usize) -> Site {
        let json = format!(r#"{{"id":"a","m":8192,"k":{k},"n":{n},"dtype":"f32"}}"#);
        Site { id: SiteId::new("a"), ..serde_json::from_str(&json).unwrap() }
    }

    fn used(operand: Operand, k: usize, n: usize) -> Vec<OperandCast> {
        let forms = forms(&site(k, n), operand).into_iter();
        forms.filter(|(cast, uses)| cast.format != Format::Bf16 && !uses.is_empty()).map(|(cast, _)| cast).collect()
    }

    #[test]
    fn bars_are_what_the_kernels_do() {
        let scaled = |granularity| OperandCast::scaled(Format::E4m3, granularity);
        let pow2 = |granularity| OperandCast::scaled_pow2(Format::E4m3, granularity);
        use Granularity::{Block1x128, Block128x128, Row, Tensor};
        let rows = [scaled(Row), pow2(Row), scaled(Block1x128), pow2(Block1x128)];
        assert_eq!(used(Operand::Input, 512, 256), [vec![scaled(Tensor)], rows.to_vec()].concat());
        let gradient = [rows.to_vec(), vec![OperandCast::scaled(Format::E5m2, Tensor)]].concat();
        assert_eq!(used(Operand::GradOutput, 512, 256), gradient);
        let weight = [scaled(Tensor), pow2(Tensor), scaled(Row), pow2(Row), scaled(Block128x128), pow2(Block128x128)];
        assert_eq!(used(Operand::Weight, 512, 256), weight);
    }

    #[test]
    fn a_shape_that_kernels_refuse_has_no_uses() {
        assert!(used(Operand::Input, 10, 1).is_empty());
        // Of blocks Transformer Engine's alone, which it fills up.
        let blocks =
            used(Operand::Input, 64, 64).into_iter().filter(|cast| cast.granularity == Granularity::Block1x128);
        assert_eq!(blocks.collect::<Vec<_>>(), [OperandCast::scaled_pow2(Format::E4m3, Granularity::Block1x128)]);
    }
}
