//! E4M3 (fn) and E5M2, bit for bit: encode with saturation, round to nearest even; decode.
//!
//! | | E4M3 (fn) | E5M2 |
//! |---|---|---|
//! | largest | 448 | 57344 |
//! | smallest normal | 2^-6 | 2^-14 |
//! | smallest subnormal | 2^-9 | 2^-16 |
//! | infinity | none | yes (never produced: casts saturate) |
//!
//! Source: "FP8 Formats for Deep Learning" (arXiv 2209.05433) and PTX `cvt.rn.satfinite`.

use crate::Format;

use super::round;

pub const E4M3_MAX: f32 = 448.0;
pub const E5M2_MAX: f32 = 57344.0;

/// The largest finite value of a format, and so the numerator of its scale.
pub fn format_max(format: Format) -> f32 {
    match format {
        Format::E4m3 => E4M3_MAX,
        Format::E5m2 => E5M2_MAX,
        Format::Bf16 => f32::from_bits(0x7F7F_0000),
        Format::Tf32 => f32::from_bits(0x7F7F_E000),
        Format::F32 => f32::MAX,
    }
}

/// E4M3 code of `value`: nearest even, beyond 448 saturates (infinity too), NaN becomes 0x7F or 0xFF.
pub fn e4m3_encode(value: f32) -> u8 {
    encode(round::e4m3(value), 3, -6, 0x7F)
}

/// E5M2 code of `value`: nearest even, beyond 57344 saturates (infinity too), NaN becomes 0x7F or 0xFF.
pub fn e5m2_encode(value: f32) -> u8 {
    encode(round::e5m2(value), 2, -14, 0x7F)
}

/// `rounded` already lies on the format's grid: split it into sign, exponent and mantissa.
fn encode(rounded: f32, mantissa_bits: u32, min_exponent: i32, nan: u8) -> u8 {
    let bits = rounded.to_bits();
    let sign = ((bits >> 24) & 0x80) as u8;
    if rounded.is_nan() {
        return sign | nan;
    }
    let magnitude = f64::from(rounded.abs());
    let exponent = ((bits >> 23) & 0xFF) as i32 - 127;
    let code = if exponent < min_exponent {
        // Subnormal or zero: a count of the smallest step.
        (magnitude / 2f64.powi(min_exponent - mantissa_bits as i32)) as u8
    } else {
        let mantissa = (bits & 0x7F_FFFF) >> (23 - mantissa_bits);
        (((exponent - min_exponent + 1) as u32) << mantissa_bits | mantissa) as u8
    };
    sign | code
}

/// The value of an E4M3 code.
pub fn e4m3_decode(code: u8) -> f32 {
    if code & 0x7F == 0x7F {
        return f32::NAN.copysign(if code & 0x80 == 0 { 1.0 } else { -1.0 });
    }
    decode(code, 3, -6)
}

/// The value of an E5M2 code.
pub fn e5m2_decode(code: u8) -> f32 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    match code & 0x7F {
        0x7C => f32::INFINITY * sign,
        0x7D..=0x7F => f32::NAN.copysign(sign),
        _ => decode(code, 2, -14),
    }
}

fn decode(code: u8, mantissa_bits: u32, min_exponent: i32) -> f32 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(code & 0x7F) >> mantissa_bits;
    let mantissa = f32::from(code & ((1 << mantissa_bits) - 1));
    let steps = (1 << mantissa_bits) as f32;
    let value = if exponent == 0 {
        mantissa / steps * 2f32.powi(min_exponent)
    } else {
        (1.0 + mantissa / steps) * 2f32.powi(exponent + min_exponent - 1)
    };
    sign * value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_round_trip() {
        for code in 0..=255u8 {
            let value = e4m3_decode(code);
            if value.is_nan() {
                assert_eq!(e4m3_encode(value), code);
            } else {
                assert_eq!(e4m3_encode(value), code, "{value}");
            }
            let value = e5m2_decode(code);
            if value.is_finite() {
                assert_eq!(e5m2_encode(value), code, "{value}");
            }
        }
    }

    #[test]
    fn hand_computed_cases() {
        assert_eq!(e4m3_decode(0x7E), 448.0);
        assert_eq!(e4m3_decode(0x01), 2f32.powi(-9));
        assert_eq!(e4m3_decode(0x08), 2f32.powi(-6));
        assert_eq!(e5m2_decode(0x7B), 57344.0);
        assert_eq!(e5m2_decode(0x01), 2f32.powi(-16));
        // 17 lies between 16 and 18, halfway: to the even mantissa.
        assert_eq!(e4m3_decode(e4m3_encode(17.0)), 16.0);
        assert_eq!(e4m3_decode(e4m3_encode(19.0)), 20.0);
        assert_eq!(e4m3_encode(f32::INFINITY), 0x7E);
        assert_eq!(e4m3_encode(-1e9), 0xFE);
        assert_eq!(e5m2_encode(f32::INFINITY), 0x7B);
        assert_eq!(e4m3_encode(f32::NAN) & 0x7F, 0x7F);
        assert_eq!(e4m3_encode(-0.0), 0x80);
    }
}
