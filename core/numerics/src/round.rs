//! Rounding FP32 onto a narrower format's grid, in FP32: what a cast there and back does.
//!
//! The functions are branch-free so that loops over them vectorise; [`divide`] runs them with the
//! widest vectors of the machine.

use crate::Format;

use super::vectorized::vectorized;

/// To E4M3's grid: nearest even, saturating at 448 (infinity too), NaN stays.
#[inline(always)]
pub fn e4m3(value: f32) -> f32 {
    // Below 2^-6 the grid is uniform with step 2^-9: adding 1.5 * 2^14 leaves exactly that step.
    narrow(value, 20, 2f32.powi(-6), 24576.0, 448.0)
}

/// To E5M2's grid: nearest even, saturating at 57344 (infinity too), NaN stays.
#[inline(always)]
pub fn e5m2(value: f32) -> f32 {
    narrow(value, 21, 2f32.powi(-14), 192.0, 57344.0)
}

/// `shift`: FP32 mantissa bits that go. `magic`: 1.5 * 2^23 * (smallest subnormal).
#[inline(always)]
fn narrow(value: f32, shift: u32, min_normal: f32, magic: f32, max: f32) -> f32 {
    let magnitude = f32::from_bits(value.to_bits() & 0x7FFF_FFFF);
    let normal = round_mantissa(magnitude, shift);
    let subnormal = (magnitude + magic) - magic;
    let rounded = if magnitude < min_normal { subnormal } else { normal };
    let saturated = if rounded > max { max } else { rounded };
    // A NaN compares false everywhere above, but rounding its mantissa may have carried it away.
    let kept = if value.is_nan() { f32::NAN } else { saturated };
    f32::from_bits(kept.to_bits() & 0x7FFF_FFFF | value.to_bits() & 0x8000_0000)
}

/// Drops `shift` mantissa bits, nearest even. A carry runs into the exponent, as it should.
#[inline(always)]
fn round_mantissa(value: f32, shift: u32) -> f32 {
    let bits = value.to_bits();
    let half = (1u32 << (shift - 1)) - 1;
    let even = (bits >> shift) & 1;
    f32::from_bits(bits.wrapping_add(half + even) & !((1u32 << shift) - 1))
}

/// To BF16's grid, nearest even; overflow becomes infinity as in hardware, NaN stays.
#[inline(always)]
pub fn bf16(value: f32) -> f32 {
    if value.is_nan() { value } else { round_mantissa(value, 16) }
}

/// To TF32's grid (10 mantissa bits), nearest even; NaN stays.
#[inline(always)]
pub fn tf32(value: f32) -> f32 {
    if value.is_nan() { value } else { round_mantissa(value, 13) }
}

/// One value onto the grid of `format`.
pub fn value(format: Format, value: f32) -> f32 {
    match format {
        Format::F32 => value,
        Format::Tf32 => tf32(value),
        Format::Bf16 => bf16(value),
        Format::E4m3 => e4m3(value),
        Format::E5m2 => e5m2(value),
    }
}

/// Divides by `scale` and rounds onto the grid of `format`.
pub fn divide(format: Format, from: &[f32], scale: f32, to: &mut [f32]) {
    vectorized!((format: Format = format, from: &'a [f32] = from, scale: f32 = scale, to: &'a mut [f32] = to) -> () {
        match format {
            Format::F32 => divide_with(from, scale, to, |value| value),
            Format::Tf32 => divide_with(from, scale, to, tf32),
            Format::Bf16 => divide_with(from, scale, to, bf16),
            Format::E4m3 => divide_with(from, scale, to, e4m3),
            Format::E5m2 => divide_with(from, scale, to, e5m2),
        }
    });
}

/// Multiplies by `factor`, a power of two, and rounds onto the grid of `format`: infinity saturates there, which the
/// correction of [`divide`] would turn into NaN.
pub fn multiply(format: Format, from: &[f32], factor: f32, to: &mut [f32]) {
    vectorized!((format: Format = format, from: &'a [f32] = from, factor: f32 = factor, to: &'a mut [f32] = to) -> () {
        match format {
            Format::F32 => multiply_with(from, factor, to, |value| value),
            Format::Tf32 => multiply_with(from, factor, to, tf32),
            Format::Bf16 => multiply_with(from, factor, to, bf16),
            Format::E4m3 => multiply_with(from, factor, to, e4m3),
            Format::E5m2 => multiply_with(from, factor, to, e5m2),
        }
    });
}

#[inline(always)]
fn multiply_with(from: &[f32], factor: f32, to: &mut [f32], round: impl Fn(f32) -> f32) {
    from.iter().zip(to).for_each(|(value, to)| *to = round(*value * factor));
}

#[inline(always)]
fn divide_with(from: &[f32], scale: f32, to: &mut [f32], round: impl Fn(f32) -> f32) {
    let divisor = Divisor::new(scale);
    if scale == 1.0 {
        // Unscaled formats see infinities, which the correction below would turn into NaN.
        from.iter().zip(to).for_each(|(value, to)| *to = round(*value));
    } else if divisor.is_exact() {
        from.iter().zip(to).for_each(|(value, to)| *to = round(divisor.of(*value)));
    } else {
        from.iter().zip(to).for_each(|(value, to)| *to = round(*value / scale));
    }
}

/// Division by a constant without the divider: the quotient by the reciprocal, corrected once by its own
/// remainder, is the correctly rounded one (Markstein, IBM J. R&D 34, 1990) as long as nothing over- or
/// underflows. Where the remainder underflows the quotient is far below FP8's smallest step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    value: f32,
    reciprocal: f32,
}

impl Divisor {
    #[inline(always)]
    pub fn new(value: f32) -> Self {
        Self { value, reciprocal: 1.0 / value }
    }

    /// False for divisors that are not finite or whose reciprocal is not normal: divide then.
    #[inline(always)]
    pub fn is_exact(self) -> bool {
        // Without fused multiply-add in hardware (the browser) division is the faster way.
        cfg!(not(target_arch = "wasm32")) && self.value.is_finite() && self.value >= 1e-30 && self.reciprocal >= 1e-30
    }

    /// Infinity comes out as NaN: the operand's own amax is then infinite, and `is_exact` false.
    #[inline(always)]
    pub fn of(self, value: f32) -> f32 {
        let quotient = value * self.reciprocal;
        let remainder = (-quotient).mul_add(self.value, value);
        // Scales are positive; without this a negative zero would lose its sign in the remainder.
        remainder.mul_add(self.reciprocal, quotient).copysign(value)
    }
}

/// A whole slice onto the grid of `format`.
pub fn slice(format: Format, values: &[f32]) -> Vec<f32> {
    let mut rounded = vec![0f32; values.len()];
    divide(format, values, 1.0, &mut rounded);
    rounded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_values() {
        for round in [e4m3 as fn(f32) -> f32, e5m2, bf16, tf32] {
            assert!(round(f32::NAN).is_nan());
            assert_eq!(round(0.0).to_bits(), 0);
            assert_eq!(round(-0.0).to_bits(), 0x8000_0000);
            assert_eq!(round(1.0), 1.0);
            assert_eq!(round(-3.0), -3.0);
        }
        assert_eq!(e4m3(1e30), 448.0);
        assert_eq!(e4m3(f32::NEG_INFINITY), -448.0);
        assert_eq!(e4m3(464.0), 448.0);
        assert_eq!(e5m2(1e30), 57344.0);
        assert_eq!(bf16(f32::INFINITY), f32::INFINITY);
        // Half of the smallest subnormal rounds to even, which is zero; anything above goes up.
        assert_eq!(e4m3(2f32.powi(-10)), 0.0);
        assert_eq!(e4m3(2f32.powi(-10) * 1.001), 2f32.powi(-9));
    }

    #[test]
    fn the_fast_division_is_division() {
        let mut values = vec![0f32; 200_000];
        crate::rng::Rng::new(9, &[b"divide"]).fill_normal(&mut values);
        for (index, value) in values.iter().enumerate() {
            let scale = values[(index * 7 + 3) % values.len()].abs() * 10f32.powi(index as i32 % 20 - 10) + 1e-12;
            let divisor = Divisor::new(scale);
            assert!(divisor.is_exact());
            let value = value * scale * 2f32.powi(index as i32 % 12 - 4);
            assert_eq!(divisor.of(value), value / scale, "{value} / {scale}");
        }
        assert!(!Divisor::new(f32::INFINITY).is_exact() && !Divisor::new(f32::NAN).is_exact());
    }

    #[test]
    fn slices_agree_with_scalars() {
        let values: Vec<f32> = (0..1000).map(|i| (i as f32 - 500.0) * 0.37).collect();
        for format in [Format::F32, Format::Tf32, Format::Bf16, Format::E4m3, Format::E5m2] {
            for (r, v) in slice(format, &values).iter().zip(&values) {
                assert_eq!(*r, value(format, *v));
            }
        }
    }
}
