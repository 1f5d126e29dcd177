//! Takes why nothing may be written, gives the lines that say so.

use std::fmt;

/// Lines of a difference that are shown.
const NUM_SHOWN: usize = 20;

/// Nothing is exported: the cause, and each difference a line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub cause: String,
    pub differences: Vec<String>,
}

impl Refusal {
    pub fn new(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), differences: Vec::new() }
    }

    pub fn with(cause: impl Into<String>, differences: Vec<String>) -> Self {
        Self { cause: cause.into(), differences }
    }

    /// The cause and the first differences, each one line.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.cause.clone()];
        lines.extend(self.differences.iter().take(NUM_SHOWN).map(|difference| format!("  {difference}")));
        let hidden = self.differences.len().saturating_sub(NUM_SHOWN);
        if hidden > 0 {
            lines.push(format!("  and {hidden} more"));
        }
        lines
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        match self.differences.first() {
            Some(first) => write!(f, ": {first}"),
            None => Ok(()),
        }
    }
}
