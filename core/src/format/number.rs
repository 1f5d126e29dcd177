//! Takes numbers and their intervals, gives the text on screen: three significant digits at most, and
//! never one that the interval does not support.

use crate::model::Estimate;

/// With thousands separated: `8,192`.
pub fn count(value: impl TryInto<u64>) -> String {
    let digits = value.try_into().unwrap_or(u64::MAX).to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 site`, `1,200 sites`.
pub fn counted(number: usize, word: &str) -> String {
    counted_as(number, word, &format!("{word}s"))
}

/// The same of what does not take an s: `1 GEMM has`, `2 GEMMs have`.
pub fn counted_as(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// `1.19×`.
pub fn times(speedup: f64) -> String {
    format!("{speedup:.2}×")
}

/// A value without an interval, three significant digits: `.196`, `1.05`, `3.1e-7`, `12,300`.
pub fn plain(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "–".to_owned() } else { "∞".to_owned() };
    }
    if value == 0.0 { "0".to_owned() } else { digits(value, exponent(value) - 2) }
}

/// A round value, for axes and thresholds: `.2`, `1`, `1.05`.
pub fn trimmed(value: f64) -> String {
    let text = plain(value);
    if text.contains('e') {
        return text.replace(".00e", "e").replace("0e", "e");
    }
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The value as far as its interval supports it, and half the interval's width (`None`: exact).
pub fn with_interval(estimate: Estimate) -> (String, Option<String>) {
    let half = (estimate.hi - estimate.lo) / 2.0;
    if half.is_nan() || half <= 0.0 || !estimate.value.is_finite() {
        return (plain(estimate.value), None);
    }
    if !half.is_finite() {
        return (digits(estimate.value, exponent(estimate.value)), Some("∞".to_owned()));
    }
    // The last digit shown is where the interval begins to matter.
    let place = exponent(half).max(exponent(estimate.value) - 2);
    (digits(estimate.value, place.min(exponent(estimate.value))), Some(digits(half, exponent(half))))
}

/// `.14 ± .02 (.12 to .16)` for tooltips.
pub fn sentence(estimate: Estimate) -> String {
    match with_interval(estimate) {
        (value, Some(half)) => format!("{value} ± {half} ({} to {})", plain(estimate.lo), plain(estimate.hi)),
        (value, None) => value,
    }
}

/// Microseconds.
pub fn micros(value: f64) -> String {
    plain(value)
}

/// A part of a time, in one unit: `1,685 of 3,768 µs`, and where that has too many digits, `135 of 353 ms`.
pub fn micros_of(part: f64, whole: f64) -> String {
    if whole.abs() < 1e5 {
        return format!("{} of {} µs", micros(part), micros(whole));
    }
    format!("{} of {} ms", plain(part / 1e3), plain(whole / 1e3))
}

/// `6 s`, `2 min 5 s`.
pub fn seconds(value: f64) -> String {
    let whole = value.max(0.0).round() as u64;
    if whole < 60 { format!("{whole} s") } else { format!("{} min {} s", whole / 60, whole % 60) }
}

/// How long something is past: `just now`, `2 min ago`, `3 h ago`, `5 d ago`. Clocks of two machines differ: what is
/// said to come was just now.
pub fn ago(seconds: i64) -> String {
    match seconds {
        ..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// A share as a percentage: `37 %`.
pub fn percent(share: f64) -> String {
    let value = 100.0 * share;
    if value == 0.0 || value.abs() >= 0.95 {
        format!("{value:.0} %")
    } else {
        format!("{} %", digits(value, exponent(value)))
    }
}

/// Memory: `1.2 GB`, `640 MB`.
pub fn bytes(value: u64) -> String {
    if value < 1000 {
        return format!("{value} bytes");
    }
    let value = value as f64;
    let (scaled, unit) = match value {
        1e9.. => (value / 1e9, "GB"),
        1e6.. => (value / 1e6, "MB"),
        _ => (value / 1e3, "kB"),
    };
    if scaled < 10.0 { format!("{scaled:.1} {unit}") } else { format!("{scaled:.0} {unit}") }
}

/// Power of ten of the first digit.
fn exponent(value: f64) -> i32 {
    if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 }
}

/// `value` down to the digit of 10^`place`.
fn digits(value: f64, place: i32) -> String {
    let first = exponent(value);
    if value != 0.0 && !(-3..5).contains(&first) {
        let decimals = (first - place).clamp(0, 2) as usize;
        return format!("{value:.decimals$e}");
    }
    let decimals = (-place).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    if value.abs() >= 1000.0 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", count(value.abs().round() as u64));
    }
    match text.strip_prefix("0.") {
        Some(rest) => format!(".{rest}"),
        None => text.strip_prefix("-0.").map_or(text.clone(), |rest| format!("-.{rest}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_time_has_the_unit_of_the_whole() {
        assert_eq!(micros_of(1_685.0, 3_768.4), "1,685 of 3,768 µs");
        assert_eq!(micros_of(1_350.0, 353_000.0), "1.35 of 353 ms");
        assert_eq!(micros_of(0.0, 0.0), "0 of 0 µs");
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!((counted(1, "site"), counted(1200, "site")), ("1 site".to_owned(), "1,200 sites".to_owned()));
        assert_eq!(counted_as(2, "GEMM has", "GEMMs have"), "2 GEMMs have");
    }

    #[test]
    fn three_significant_digits() {
        for (value, text) in [
            (0.196_4, ".196"),
            (1.054, "1.05"),
            (12.34, "12.3"),
            (0.003_456, ".00346"),
            (3.14e-7, "3.14e-7"),
            (8192.0, "8,192"),
            (0.0, "0"),
            (-0.25, "-.250"),
            (f64::INFINITY, "∞"),
        ] {
            assert_eq!(plain(value), text);
        }
    }

    #[test]
    fn no_digit_beyond_the_interval() {
        for (estimate, value, half) in [
            (Estimate::new(0.1387, 0.1187, 0.1587), ".14", ".02"),
            (Estimate::new(0.006_12, 0.005_1, 0.007_1), ".006", ".001"),
            (Estimate::new(0.036_912, 0.036_891, 0.036_933), ".0369", "2e-5"),
            (Estimate::new(3.123e-7, 2.1e-7, 4.1e-7), "3e-7", "1e-7"),
            (Estimate::new(0.2, 0.0, 4.0), ".2", "2"),
        ] {
            assert_eq!(with_interval(estimate), (value.to_owned(), Some(half.to_owned())));
        }
        assert_eq!(with_interval(Estimate::exact(0.25)), (".250".to_owned(), None));
    }

    #[test]
    fn counts_seconds_and_shares() {
        assert_eq!((count(6000), count(999), count(1_234_567)), ("6,000".into(), "999".into(), "1,234,567".into()));
        assert_eq!((bytes(1_240_000_000), bytes(640_000_000)), ("1.2 GB".into(), "640 MB".into()));
        assert_eq!((seconds(5.6), seconds(125.0)), ("6 s".into(), "2 min 5 s".into()));
        assert_eq!((percent(0.37), percent(0.003)), ("37 %".into(), ".3 %".into()));
    }
}
