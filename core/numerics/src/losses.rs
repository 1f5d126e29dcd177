//! Takes values and what a cast made of them; counts those that it lost, and values by their power of two.

use crate::{
    Format,
    cast::{BLOCK, CastPanels, Scales},
    panels::Panels,
    round,
};

/// Values of an operand by what became of them; the rest was rounded and no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CastLosses {
    /// Zero before the cast: nothing is lost there.
    pub zeros: u64,
    /// Not zero before the cast, zero after it.
    pub underflow: u64,
    pub subnormal: u64,
    /// Would round to more than the largest value.
    pub saturated: u64,
}

/// `cast` is what `source` became in `format`, whose largest value and smallest normal one are given. Rows that only fill
/// the last panel do not count.
pub fn cast_losses(
    source: &Panels,
    cast: &CastPanels,
    format: Format,
    largest: f32,
    smallest_normal: f32,
) -> CastLosses {
    let mut losses = CastLosses::default();
    for ((first, exact), (_, stored)) in source.iter().zip(cast.panels.iter()) {
        let lanes = source.width.min(source.rows - first);
        for depth in 0..source.depth {
            let at = depth * source.width;
            let pairs = exact[at..at + lanes].iter().zip(&stored[at..at + lanes]);
            for (lane, (x, stored)) in pairs.enumerate() {
                let q = stored.abs();
                if *x == 0.0 {
                    losses.zeros += 1;
                } else if q == 0.0 {
                    losses.underflow += 1;
                } else if q < smallest_normal {
                    losses.subnormal += 1;
                } else if q >= largest {
                    let scale = match &cast.scales {
                        Scales::None => 1.0,
                        Scales::Tensor(scale) => *scale,
                        Scales::Row(scales) => scales[first + lane],
                        Scales::Block(scales) => scales[depth / BLOCK * source.padded_rows() + first + lane],
                    };
                    losses.saturated += u64::from(is_cut(x / scale, format, largest));
                }
            }
        }
    }
    losses
}

/// Whether a value at the format's end was rounded there, or cut off. At half the size the grid has the same steps and
/// does not end yet.
fn is_cut(value: f32, format: Format, largest: f32) -> bool {
    value.is_finite() && 2.0 * round::value(format, value / 2.0).abs() > largest
}

/// 2^-40 to 2^40: the bins of a trace.
pub const FIRST_EXPONENT: i32 = -40;
pub const NUM_EXPONENTS: usize = 80;

/// Zeros, `2^(FIRST_EXPONENT + i) <= |x| < 2^(FIRST_EXPONENT + i + 1)` with what lies beyond in the outermost, and what is
/// not finite: counted as a recorder counts.
pub fn count_exponents(values: &[f32]) -> [u64; NUM_EXPONENTS + 2] {
    let mut bins = [0u64; NUM_EXPONENTS + 2];
    for value in values {
        let bin = match *value {
            0.0 => 0,
            value if !value.is_finite() => NUM_EXPONENTS + 1,
            value => 1 + (exponent(value) - FIRST_EXPONENT).clamp(0, NUM_EXPONENTS as i32 - 1) as usize,
        };
        bins[bin] += 1;
    }
    bins
}

/// floor(log2|x|), exactly.
fn exponent(value: f32) -> i32 {
    let bits = value.to_bits() & 0x7FFF_FFFF;
    if bits >= 0x80_0000 { (bits >> 23) as i32 - 127 } else { 31 - bits.leading_zeros() as i32 - 149 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Granularity, Matrix, OperandCast, Side, TensorRange, cast_panels};

    #[test]
    fn the_power_of_two_is_exact() {
        assert_eq!((exponent(1e-45), exponent(2f32.powi(-126)), exponent(0.75)), (-149, -126, -1));
        let bins = count_exponents(&[0.0, -1.0, 1.5, f32::NAN, 1e-30, 1e30]);
        assert_eq!((bins[0], bins[41], bins[81], bins[1], bins[80]), (1, 2, 1, 1, 1));
    }

    /// E4M3 by a scale of 1: 2^-10 goes to zero, 2^-9 is subnormal, 448 and 460 round to the largest, 470 is cut off.
    #[test]
    fn every_loss_is_of_one_kind() {
        let values = [0.0, 9.765_625e-4, 1.953_125e-3, 1.0, 448.0, 460.0, -470.0];
        let source = Panels::pack(Side::Left, &Matrix { rows: 1, cols: values.len(), data: values.to_vec() });
        let whole = TensorRange { amax: None, static_scale: Some(1.0) };
        let cast = cast_panels(&source, OperandCast::scaled(Format::E4m3, Granularity::Static), whole);
        let losses = cast_losses(&source, &cast, Format::E4m3, 448.0, 2f32.powi(-6));
        assert_eq!(losses, CastLosses { zeros: 1, underflow: 1, subnormal: 1, saturated: 1 });
    }
}
