//! Takes values or a histogram, and a cast; gives the shares that come out as zero, as subnormal numbers, or
//! cut off at the largest value.

use serde::{Deserialize, Serialize};

use crate::{
    model::{Granularity, Matrix, OperandCast},
    numerics::{CastPanels, Panels, Scales as CastScales, Side, cast::BLOCK, cast_losses, cast_panels},
};

use super::{histogram::Histogram, limits::Limits, operand::Origin};

/// Of all values, those that are zero to begin with included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Zero before the cast: nothing is lost there.
    pub zeros: f64,
    /// Not zero before the cast, zero after it.
    pub underflow: f64,
    pub subnormal: f64,
    /// Would round to more than the largest value (BF16 then becomes infinite).
    pub saturated: f64,
    /// A limit fell inside a bin of the histogram.
    pub approximate: bool,
    pub num_values: u64,
    pub origin: Origin,
}

impl Shares {
    /// Of the histogram under one scale for all values.
    pub(crate) fn of_histogram(histogram: &Histogram, limits: &Limits, scale: f64, amax: Option<f64>) -> Self {
        let (underflow, a) = histogram.up_to(limits.zero_to * scale, amax);
        let (below_normal, b) = histogram.up_to(limits.normal_from * scale, amax);
        let (kept, c) = histogram.up_to(limits.saturates_from * scale, amax);
        let all: f64 = histogram.shares.iter().sum();
        Self {
            zeros: histogram.zeros,
            underflow,
            subnormal: below_normal - underflow,
            saturated: (all - kept).max(0.0),
            approximate: a || b || c,
            num_values: histogram.num_values,
            origin: histogram.origin,
        }
    }
}

/// An operand's values, packed once and cast in every form.
pub(super) struct Casts {
    source: Panels,
    rows: usize,
    depth: usize,
    origin: Origin,
    memory: CastPanels,
}

/// What one form does to the values.
pub(super) struct CastOutcome {
    pub shares: Shares,
    /// One a group that holds a value other than zero, ascending; none for formats without a scale.
    pub scales: Vec<f32>,
    pub num_empty_groups: usize,
}

impl Casts {
    pub fn new(values: &Matrix, origin: Origin) -> Self {
        let source = Panels::pack(Side::Left, values);
        let memory = CastPanels::empty(&source);
        Self { source, rows: values.rows, depth: values.cols, origin, memory }
    }

    /// `tensor_amax`: of the whole tensor, of which the values may be a part.
    pub fn run(&mut self, cast: OperandCast, tensor_amax: Option<f32>) -> CastOutcome {
        self.memory = cast_panels(&self.source, cast, tensor_amax);
        let shares = self.shares(cast);
        let (scales, num_empty_groups) = self.group_scales(cast.granularity);
        CastOutcome { shares, scales, num_empty_groups }
    }

    fn shares(&self, cast: OperandCast) -> Shares {
        let limits = Limits::of(cast.format);
        let (largest, normal) = (limits.largest as f32, limits.smallest_normal as f32);
        let lost = cast_losses(&self.source, &self.memory, cast.format, largest, normal);
        let num_values = (self.rows * self.depth) as u64;
        let share = |count: u64| count as f64 / num_values.max(1) as f64;
        Shares {
            zeros: share(lost.zeros),
            underflow: share(lost.underflow),
            subnormal: share(lost.subnormal),
            saturated: share(lost.saturated),
            approximate: false,
            num_values,
            origin: self.origin,
        }
    }

    /// Without the rows that only fill the last panel, and without groups of zeros: their scale is a floor.
    fn group_scales(&self, granularity: Granularity) -> (Vec<f32>, usize) {
        // Rows of a 128x128 block share one scale: one of them stands for all.
        let every = if granularity == Granularity::Block128x128 { BLOCK } else { 1 };
        let mut scales: Vec<f32> = match &self.memory.scales {
            CastScales::None => return (Vec::new(), 0),
            CastScales::Tensor(scale) => vec![*scale],
            CastScales::Row(scales) => scales[..self.rows].to_vec(),
            CastScales::Block(scales) => {
                let stretches = scales.chunks_exact(self.source.padded_rows().max(1));
                stretches.flat_map(|rows| rows[..self.rows].iter().copied().step_by(every)).collect()
            }
        };
        let groups = scales.len();
        scales.retain(|scale| *scale > crate::numerics::cast::SCALE_FLOOR && scale.is_finite());
        scales.sort_by(f32::total_cmp);
        let num_empty = groups - scales.len();
        (scales, num_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Format;

    fn run(values: &[f32], cast: OperandCast, amax: Option<f32>) -> CastOutcome {
        let matrix = Matrix { rows: 1, cols: values.len(), data: values.to_vec() };
        Casts::new(&matrix, Origin::HeldOut).run(cast, amax)
    }

    #[test]
    fn every_kind_of_loss_is_told_apart() {
        let values = [0.0, 2f32.powi(-10), 2f32.powi(-9), 2f32.powi(-6), 448.0, 464.0, 464.1, 1e9];
        let shares = run(&values, OperandCast::unscaled(Format::E4m3), None).shares;
        let eighths = [shares.zeros, shares.underflow, shares.subnormal, shares.saturated].map(|share| share * 8.0);
        assert_eq!(eighths, [1.0, 1.0, 1.0, 2.0], "464 is a tie that rounds to 448");
        let shares = run(&[57344.0, 61439.0, 61440.0, 1.0], OperandCast::unscaled(Format::E5m2), None).shares;
        assert_eq!(shares.saturated, 0.25, "61440 is a tie that rounds away from 57344");
        let shares = run(&[f32::MAX, 1.0], OperandCast::unscaled(Format::Bf16), None).shares;
        assert_eq!(shares.saturated, 0.5, "the largest FP32 becomes infinite in BF16");
    }

    #[test]
    fn a_scale_from_the_amax_saturates_nothing() {
        let values: Vec<f32> = (1..500).map(|i| 1.37f32.powi(i % 40) * (1.0 + i as f32 / 600.0)).collect();
        for granularity in [Granularity::Tensor, Granularity::Row, Granularity::Block1x128] {
            let outcome = run(&values, OperandCast::scaled(Format::E4m3, granularity), None);
            assert_eq!(outcome.shares.saturated, 0.0, "{granularity:?}");
        }
    }

    #[test]
    fn the_tensor_scale_is_the_whole_tensors() {
        let cast = OperandCast::scaled(Format::E4m3, Granularity::Tensor);
        assert_eq!(run(&[1.0], cast, Some(896.0)).scales, [2.0]);
        assert_eq!(run(&[2f32.powi(-9)], cast, Some(896.0)).shares.underflow, 1.0);
        assert_eq!(run(&[2f32.powi(-9)], cast, None).shares.underflow, 0.0);
    }

    #[test]
    fn groups_are_counted_without_padding_and_without_zeros() {
        let mut matrix = Matrix::zeros(130, 200);
        matrix.data[5] = 448.0;
        matrix.data[129 * 200 + 199] = 896.0;
        let mut casts = Casts::new(&matrix, Origin::Snapshot);
        let mut scales = |granularity| {
            let outcome = casts.run(OperandCast::scaled(Format::E4m3, granularity), None);
            (outcome.scales, outcome.num_empty_groups)
        };
        assert_eq!(scales(Granularity::Row), (vec![1.0, 2.0], 128));
        assert_eq!(scales(Granularity::Block1x128), (vec![1.0, 2.0], 258));
        assert_eq!(scales(Granularity::Block128x128), (vec![1.0, 2.0], 2));
        assert_eq!(scales(Granularity::None), (vec![], 0));
    }

    #[test]
    fn a_histogram_agrees_with_the_casts_to_a_split_bin() {
        let values: Vec<f32> = (0..40_000).map(|i| (i as f32 - 20_000.0) / 20_000.0).collect();
        let histogram = Histogram::count(&values, Origin::Recorded);
        let cast = OperandCast::scaled(Format::E4m3, Granularity::Tensor);
        // So wide a scale that a good part of the values is lost.
        let exact = run(&values, cast, Some(40.0)).shares;
        let approximate = Shares::of_histogram(&histogram, &Limits::of(Format::E4m3), 40.0 / 448.0, Some(1.0));
        assert!(approximate.approximate && approximate.underflow > 5e-5);
        assert!((exact.underflow - approximate.underflow).abs() < 1e-4, "{exact:?} {approximate:?}");
        assert!((exact.subnormal - approximate.subnormal).abs() < 1e-4, "{exact:?} {approximate:?}");
    }
}
