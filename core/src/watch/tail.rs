//! Student's t above a value. Draws are few: by the normal distribution a 5 sigma of sixteen draws would look 300 times
//! as rare as it is.

/// P(T > t) with so many degrees of freedom.
pub(super) fn t_upper(t: f64, degrees: f64) -> f64 {
    if t.is_nan() {
        return f64::NAN;
    }
    if t < 0.0 {
        return 1.0 - t_upper(-t, degrees);
    }
    if t.is_infinite() {
        return 0.0;
    }
    0.5 * incomplete_beta(degrees / (degrees + t * t), 0.5 * degrees, 0.5)
}

/// The regularised incomplete beta function, by its continued fraction (Lentz).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast on this side only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (a * x.ln() + b * (1.0 - x).ln() - ln_beta(a, b)).exp() / a;
    let tiny = 1e-300;
    let held = |value: f64| if value.abs() < tiny { tiny } else { value };
    let (mut c, mut d) = (1.0, 1.0 / held(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for step in 1..300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / held(1.0 + term * d);
            c = held(1.0 + term / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

fn ln_beta(a: f64, b: f64) -> f64 {
    ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b)
}

/// Stirling's series, of an argument moved up to where it is exact.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < 12.0 {
        product *= x;
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * square)) / square) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::special::t_two_sided;

    /// Exact where there is a formula: one degree of freedom and two.
    #[test]
    fn it_is_exact_where_there_is_a_formula() {
        for t in [0.0_f64, 0.3, 1.0, 2.5, 10.0, 1e3, 1e6] {
            let cauchy = 0.5 - t.atan() / std::f64::consts::PI;
            let two = 0.5 * (1.0 - t / (2.0 + t * t).sqrt());
            assert!((t_upper(t, 1.0) - cauchy).abs() < 1e-10, "{t}: {} {cauchy}", t_upper(t, 1.0));
            assert!((t_upper(t, 2.0) - two).abs() < 1e-10, "{t}: {} {two}", t_upper(t, 2.0));
            assert!((t_upper(-t, 2.0) - (1.0 - two)).abs() < 1e-10);
        }
        assert!(t_upper(f64::NAN, 3.0).is_nan() && t_upper(f64::INFINITY, 3.0) == 0.0);
    }

    /// The quantile that intervals are made by, turned around.
    #[test]
    fn it_is_the_quantile_turned_around() {
        for degrees in [3, 7, 15, 63] {
            for confidence in [0.5, 0.9, 0.95, 0.999, 0.999_999] {
                let upper = t_upper(t_two_sided(confidence, degrees), degrees as f64);
                let expected = 0.5 * (1.0 - confidence);
                assert!((upper / expected - 1.0).abs() < 2e-3, "{degrees} {confidence}: {upper} {expected}");
            }
        }
    }
}
