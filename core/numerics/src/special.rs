//! Special functions that the samplers and intervals need, in FP64.

/// Error function complement, relative error below 1.2e-7 (Numerical Recipes' Chebyshev fit).
pub fn erfc(x: f64) -> f64 {
    let z = x.abs();
    let t = 1.0 / (1.0 + 0.5 * z);
    let coefficients = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ];
    let polynomial = coefficients.iter().fold(0.0, |p, c| p * t + c);
    let value = t * (-z * z + polynomial).exp();
    if x >= 0.0 { value } else { 2.0 - value }
}

/// e^x in FP32 without a branch, so that loops over it vectorise; relative error below 2e-7. Beyond
/// +-87 it stays at the end of FP32's normal range.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, so that n ln 2 is exact.
    let x = if x > 87.0 { 87.0 } else { x };
    let x = if x < -87.0 { -87.0 } else { x };
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
    let shifted = x * std::f32::consts::LOG2_E + 12_582_912.0;
    let n = shifted - 12_582_912.0;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4f32;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5] {
        p = p * r + c;
    }
    let mantissa = p * r * r + r + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(0x4B40_0000).wrapping_add(127) << 23;
    mantissa * f32::from_bits(exponent)
}

/// P(Z > z) of a standard normal.
pub fn normal_upper(z: f64) -> f64 {
    0.5 * erfc(z / std::f64::consts::SQRT_2)
}

/// The standard normal quantile (Wichura's AS 241 core with Acklam's coefficients, one Newton step).
pub fn normal_quantile(p: f64) -> f64 {
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if p >= 1.0 {
        return f64::INFINITY;
    }
    let first = acklam(p);
    let error = 0.5 * erfc(-first / std::f64::consts::SQRT_2) - p;
    let density = (-0.5 * first * first).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if density > 1e-12 { first - error / density } else { first }
}

#[expect(clippy::excessive_precision, reason = "the coefficients as published")]
fn acklam(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.383577518672690e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 5] =
        [-5.447609879822406e1, 1.615858368580409e2, -1.556989798598866e2, 6.680131188771972e1, -1.328068155288572e1];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 4] = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416];
    let tail = |q: f64| {
        let numerator = C.iter().fold(0.0, |s, c| s * q + c);
        numerator / (D.iter().fold(0.0, |s, d| s * q + d) * q + 1.0)
    };
    if p < 0.02425 {
        tail((-2.0 * p.ln()).sqrt())
    } else if p > 1.0 - 0.02425 {
        -tail((-2.0 * (1.0 - p).ln()).sqrt())
    } else {
        let q = p - 0.5;
        let r = q * q;
        A.iter().fold(0.0, |s, a| s * r + a) * q / (B.iter().fold(0.0, |s, b| s * r + b) * r + 1.0)
    }
}

/// Two-sided Student t quantile: |T| stays below it with probability `confidence`.
/// Hill's expansion (Algorithm 396); exact for 1 and 2 degrees of freedom.
pub fn t_two_sided(confidence: f64, degrees: usize) -> f64 {
    let p = 1.0 - confidence;
    let n = degrees.max(1) as f64;
    if degrees <= 1 {
        return 1.0 / (p * std::f64::consts::FRAC_PI_2).tan();
    }
    if degrees == 2 {
        return (2.0 / (p * (2.0 - p)) - 2.0).sqrt();
    }
    let a = 1.0 / (n - 0.5);
    let b = 48.0 / (a * a);
    let mut c = ((20_700.0 * a / b - 98.0) * a - 16.0) * a + 96.36;
    let d = ((94.5 / (b + c) - 3.0) / b + 1.0) * (a * std::f64::consts::FRAC_PI_2).sqrt() * n;
    let mut x = d * p;
    let mut y = x.powf(2.0 / n);
    if y > 0.05 + a {
        x = normal_quantile(p * 0.5);
        y = x * x;
        if degrees < 5 {
            c += 0.3 * (n - 4.5) * (x + 0.6);
        }
        c += (((0.05 * d * x - 5.0) * x - 7.0) * x - 2.0) * x + b;
        y = (((((0.4 * y + 6.3) * y + 36.0) * y + 94.5) / c - y - 3.0) / b + 1.0) * x;
        y = a * y * y;
        y = if y > 0.002 { y.exp() - 1.0 } else { 0.5 * y * y + y };
    } else {
        y = ((1.0 / (((n + 6.0) / (n * y) - 0.089 * d - 0.822) * (n + 2.0) * 3.0) + 0.5 / (n + 4.0)) * y - 1.0)
            * (n + 1.0)
            / (n + 2.0)
            + 1.0 / y;
    }
    (n * y).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close() {
        for i in -8700..=8700 {
            let x = i as f32 * 0.01;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) / exact - 1.0).abs() < 3e-7, "{x}: {} against {exact}", exp(x));
        }
        assert!(exp(-1e9) > 0.0 && exp(1e9).is_finite());
    }

    #[test]
    fn against_tables() {
        for (p, z) in [(0.5, 0.0), (0.975, 1.959964), (0.999, 3.090232), (1e-6, -4.753424)] {
            assert!((normal_quantile(p) - z).abs() < 1e-5, "{p}");
        }
        assert!((normal_upper(1.959964) - 0.025).abs() < 1e-7);
        for (degrees, t) in
            [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (7, 2.36462), (15, 2.13145), (49, 2.00958)]
        {
            let ours = t_two_sided(0.95, degrees);
            assert!((ours / t - 1.0).abs() < 2e-3, "{degrees}: {ours} against {t}");
        }
    }
}
