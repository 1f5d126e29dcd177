//! Takes a format; gives where its values begin and end, and the same under a scale, in units of x.

use serde::{Deserialize, Serialize};

use crate::{model::Format, numerics::fp8::format_max};

/// Magnitudes of the stored value, before it is multiplied by its scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    pub smallest_subnormal: f64,
    pub smallest_normal: f64,
    pub largest: f64,
    /// At and below half of the smallest subnormal nearest-even gives zero.
    pub zero_to: f64,
    /// From here on rounding gives a normal number.
    pub normal_from: f64,
    /// Beyond this rounding would give more than the largest value.
    pub saturates_from: f64,
    /// Stored bits of the mantissa.
    pub mantissa_bits: i32,
}

impl Limits {
    pub fn of(format: Format) -> Self {
        let (mantissa_bits, min_exponent) = match format {
            Format::E4m3 => (3, -6),
            Format::E5m2 => (2, -14),
            Format::Bf16 => (7, -126),
            Format::Tf32 => (10, -126),
            Format::F32 => (23, -126),
        };
        let smallest_normal = 2f64.powi(min_exponent);
        let smallest_subnormal = 2f64.powi(min_exponent - mantissa_bits);
        let largest = f64::from(format_max(format));
        // Half a step of the largest value's binade.
        let half_step = 2f64.powi(largest.log2().floor() as i32 - mantissa_bits - 1);
        Self {
            smallest_subnormal,
            smallest_normal,
            largest,
            zero_to: smallest_subnormal / 2.0,
            normal_from: smallest_normal - smallest_subnormal / 2.0,
            saturates_from: largest + half_step,
            mantissa_bits,
        }
    }

    /// Distance of neighbouring values around a stored magnitude.
    pub(crate) fn step_at(&self, stored: f64) -> f64 {
        let binade = stored.max(self.smallest_normal).log2().floor() as i32;
        2f64.powi(binade - self.mantissa_bits)
    }

    /// On the axis of x, under `scale`.
    pub fn reach(&self, scale: f64) -> Reach {
        Reach {
            scale,
            zero_log2: (self.zero_to * scale).log2(),
            normal_log2: (self.smallest_normal * scale).log2(),
            largest_log2: (self.largest * scale).log2(),
        }
    }
}

/// What one scale lets a format hold: powers of two of |x|.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reach {
    pub scale: f64,
    /// At and below this everything becomes zero.
    pub zero_log2: f64,
    /// Below this precision falls: subnormal numbers.
    pub normal_log2: f64,
    pub largest_log2: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::round;

    #[test]
    fn limits_are_where_the_casts_turn() {
        for format in [Format::E4m3, Format::E5m2] {
            let limits = Limits::of(format);
            let cast = |value: f64| f64::from(round::value(format, value as f32));
            assert_eq!((cast(limits.zero_to), cast(limits.zero_to * 1.001)), (0.0, limits.smallest_subnormal));
            assert_eq!(cast(limits.normal_from * 1.001), limits.smallest_normal);
            assert!(cast(limits.normal_from * 0.999) < limits.smallest_normal);
            assert_eq!(cast(limits.largest), limits.largest);
            // At half the size the grid has the same steps and goes on beyond.
            assert_eq!(2.0 * cast(limits.saturates_from * 0.499), limits.largest);
            assert!(2.0 * cast(limits.saturates_from * 0.501) > limits.largest);
        }
        assert_eq!(Limits::of(Format::E4m3).step_at(300.0), 32.0);
        assert_eq!(Limits::of(Format::E4m3).step_at(0.001), 2f64.powi(-9));
    }
}
