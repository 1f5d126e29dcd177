//! Takes numbers, gives them as the sentences beside a choice show them.

use std::fmt::{self, Write as _};

use crate::model::Estimate;

/// Three significant digits without padding: `.196`, `1.05`, `3.1e-7`.
pub fn short(value: f64) -> String {
    Short(value).to_string()
}

/// The parts of a sentence write themselves into it: 30,000 reasons are made at every change of a policy, and
/// a text a part was a third of the time.
pub(crate) struct Short(pub f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = *self;
        let size = value.abs();
        if size == 0.0 || !value.is_finite() {
            return write!(f, "{value}");
        }
        if !(1e-3..1e5).contains(&size) {
            return write!(f, "{value:.1e}");
        }
        let decimals = (2 - size.log10().floor() as i32).max(0) as usize;
        let mut digits = Digits::default();
        write!(digits, "{value:.decimals$}")?;
        let text = digits.as_str();
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
        match text.strip_prefix("0.").or_else(|| text.strip_prefix("-0.")) {
            Some(digits) => write!(f, "{}.{digits}", if value > 0.0 { "" } else { "-" }),
            None => f.write_str(text),
        }
    }
}

/// Room for the digits of one number.
#[derive(Default)]
struct Digits {
    bytes: [u8; 32],
    len: usize,
}

impl Digits {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl fmt::Write for Digits {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

pub(crate) struct WithInterval(pub Estimate);

impl fmt::Display for WithInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate { value, lo, hi } = self.0;
        if lo == hi {
            return Short(value).fmt(f);
        }
        write!(f, "{} ({} to {})", Short(value), Short(lo), Short(hi))
    }
}

pub(crate) struct Times(pub Option<f64>);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(speedup) => write!(f, "{speedup:.2}x"),
            None => f.write_str("no latency known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers() {
        let cases = [
            (0.2, ".2"),
            (0.196, ".196"),
            (0.0374, ".0374"),
            (1.05, "1.05"),
            (31.0, "31"),
            (1234.5, "1234"),
            (0.0, "0"),
            (3.14e-7, "3.1e-7"),
            (-0.25, "-.25"),
            (200.0, "200"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
