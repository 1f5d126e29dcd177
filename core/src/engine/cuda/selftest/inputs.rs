//! Deterministic inputs of every kind that a cast may meet.

use crate::numerics::{rng::Rng, round};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Constant,
    /// Below what the smallest scale resolves.
    Tiny,
    /// Near the largest BF16.
    Huge,
    Subnormal,
    /// Of both signs.
    Zeros,
    OneNan,
    OneInfinity,
    /// Over 60 octaves.
    Mixed,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Normal,
        Self::Constant,
        Self::Tiny,
        Self::Huge,
        Self::Subnormal,
        Self::Zeros,
        Self::OneNan,
        Self::OneInfinity,
        Self::Mixed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Constant => "constant",
            Self::Tiny => "tiny",
            Self::Huge => "huge",
            Self::Subnormal => "subnormal",
            Self::Zeros => "zeros",
            Self::OneNan => "one NaN",
            Self::OneInfinity => "one infinity",
            Self::Mixed => "mixed magnitudes",
        }
    }

    /// `count` values.
    pub fn values(self, count: usize) -> Vec<f32> {
        let mut values = normals(count, self.name());
        if self != Self::Normal {
            values.iter_mut().enumerate().for_each(|(index, value)| *value = self.of_normal(*value, index));
        }
        let mut rng = Rng::new(7, &[b"place", self.name().as_bytes()]);
        let special = match self {
            Self::OneNan => f32::NAN,
            Self::OneInfinity => f32::NEG_INFINITY,
            _ => return values,
        };
        if count > 0 {
            values[rng.below(count)] = special;
        }
        values
    }

    fn of_normal(self, normal: f32, index: usize) -> f32 {
        match self {
            Self::Normal | Self::OneNan | Self::OneInfinity => normal,
            Self::Constant => 1.703_125,
            Self::Tiny => normal * 1e-13,
            // Below BF16's largest after rounding.
            Self::Huge => (f32::MAX * (0.99 - 0.1 * normal.abs().fract())).copysign(normal),
            Self::Subnormal => f32::from_bits(normal.to_bits() & 0x807F_FFFF),
            Self::Zeros => 0f32.copysign(normal),
            Self::Mixed => normal * 2f32.powi((index.wrapping_mul(2_654_435_761) >> 7) as i32 % 61 - 30),
        }
    }
}

/// Standard normals, others for every name.
pub(super) fn normals(count: usize, name: &str) -> Vec<f32> {
    let mut values = vec![0f32; count];
    Rng::new(3, &[b"selftest", name.as_bytes()]).fill_normal(&mut values);
    values
}

/// The bits of BF16, to nearest even.
pub(super) fn bf16_bits(values: &[f32]) -> Vec<u16> {
    values.iter().map(|value| (round::bf16(*value).to_bits() >> 16) as u16).collect()
}
