//! Takes a CSV of `m,k,n` or a trace's sites, gives the shapes to time, each once, in order of appearance.

use std::collections::BTreeSet;

use crate::model::{GemmShape, Site};

/// cuBLASLt counts rows and columns in 32 bits.
const LARGEST: u64 = i32::MAX as u64;

/// Why a CSV gives no shapes. The caller adds the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapesError {
    #[error("line {line}: {problem}")]
    Line { line: usize, problem: String },
    #[error("no shapes: every line is blank, a comment or the header m,k,n")]
    Empty,
}

/// Lines of `m,k,n`: x is m x k, y is m x n. A first line that names the columns, blank lines and `#`
/// comments are skipped.
pub fn parse_shapes(text: &str) -> Result<Vec<GemmShape>, ShapesError> {
    let mut shapes = Vec::new();
    let mut first = true;
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        let fields: Vec<&str> = content.split(',').map(str::trim).collect();
        let fault = |problem| ShapesError::Line { line: index + 1, problem };
        let header = std::mem::take(&mut first) && fields.iter().all(|field| is_name(field));
        if header {
            check_header(&fields).map_err(fault)?;
        } else {
            shapes.push(shape(&fields).map_err(fault)?);
        }
    }
    if shapes.is_empty() { Err(ShapesError::Empty) } else { Ok(each_once(shapes)) }
}

/// The shapes of a model's sites.
pub fn shapes_of(sites: &[Site]) -> Vec<GemmShape> {
    each_once(sites.iter().map(|site| GemmShape { m: site.m, k: site.k, n: site.n }))
}

fn each_once(shapes: impl IntoIterator<Item = GemmShape>) -> Vec<GemmShape> {
    let mut seen = BTreeSet::new();
    shapes.into_iter().filter(|shape| seen.insert(*shape)).collect()
}

fn is_name(field: &str) -> bool {
    field.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Columns in another order would be timed as other shapes, silently.
fn check_header(fields: &[&str]) -> Result<(), String> {
    let named = fields.iter().map(|field| field.to_ascii_lowercase());
    if named.eq(["m", "k", "n"]) { Ok(()) } else { Err(format!("the header is {}, not m,k,n", fields.join(","))) }
}

fn shape(fields: &[&str]) -> Result<GemmShape, String> {
    let [m, k, n] = fields else {
        let columns = if fields.len() == 1 { "column" } else { "columns" };
        return Err(format!("{} {columns}, it must have three: m,k,n", fields.len()));
    };
    Ok(GemmShape { m: size("m", m)?, k: size("k", k)?, n: size("n", n)? })
}

fn size(name: &str, text: &str) -> Result<usize, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{name} is '{text}', not a whole number"));
    }
    match text.parse::<u64>() {
        Ok(0) => Err(format!("{name} is 0, it must be at least 1")),
        Ok(size) if size <= LARGEST => {
            usize::try_from(size).map_err(|_| format!("{name} is {text}, it must be at most {LARGEST}"))
        }
        _ if text.starts_with('-') => Err(format!("{name} is {text}, it must be at least 1")),
        _ => Err(format!("{name} is {text}, it must be at most {LARGEST}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(m: usize, k: usize, n: usize) -> GemmShape {
        GemmShape { m, k, n }
    }

    #[test]
    fn shapes_come_in_order_and_once() {
        let text = "\u{feff} M, k ,n\r\n# LRM\r\n\r\n2048, 256,768 # first\r\n8,8,8\n2048,256,768\n";
        assert_eq!(parse_shapes(text), Ok(vec![of(2048, 256, 768), of(8, 8, 8)]));
        assert_eq!(parse_shapes("1,2,3"), Ok(vec![of(1, 2, 3)]));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, words) in [
            ("", "no shapes: every line is blank, a comment or the header m,k,n"),
            ("m,k,n\n# 1,2,3\n\n", "no shapes: every line is blank, a comment or the header m,k,n"),
            ("m,k,n\n\n1,2", "line 3: 2 columns, it must have three: m,k,n"),
            ("7", "line 1: 1 column, it must have three: m,k,n"),
            ("1,2,3,4", "line 1: 4 columns, it must have three: m,k,n"),
            ("1,0,3", "line 1: k is 0, it must be at least 1"),
            ("1,2,-3", "line 1: n is -3, it must be at least 1"),
            ("1,2,3\n12x,2,3", "line 2: m is '12x', not a whole number"),
            ("1.5,2,3", "line 1: m is '1.5', not a whole number"),
            ("1,,3", "line 1: k is '', not a whole number"),
            ("NaN,2,3", "line 1: m is 'NaN', not a whole number"),
            ("2147483648,1,1", "line 1: m is 2147483648, it must be at most 2147483647"),
            ("1,99999999999999999999999,1", "line 1: k is 99999999999999999999999, it must be at most 2147483647"),
            ("n,k,m\n1,2,3", "line 1: the header is n,k,m, not m,k,n"),
        ] {
            assert_eq!(parse_shapes(text).unwrap_err().to_string(), words, "{text:?}");
        }
    }
}
