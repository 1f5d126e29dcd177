//! Printing: JSON lines or aligned tables on stdout, progress and errors on stderr. Names come from files: whatever is
//! in one, a line stays a line and steers no terminal.

use std::{
    fmt::Write as _,
    io::{IsTerminal, Write},
};

use anyhow::Context;
use loka_core::model::{visible, visible_json};
use serde::Serialize;

/// How a command ended when nothing was wrong with its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// A check did not pass.
    Failed,
}

impl Outcome {
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
        }
    }
}

/// One line on stderr.
pub fn complain(error: &anyhow::Error) {
    // Causes of causes on the same line.
    let text = format!("{error:#}").replace(['\n', '\r'], " ");
    let _ = writeln!(std::io::stderr(), "loka: {}", visible(&text));
}

/// How a part came to be: what it took, in seconds; `None`: it was there.
pub fn how_made(seconds: Option<f64>) -> String {
    seconds.map_or("there already".to_owned(), |seconds| format!("{seconds:.1} s"))
}

/// One line on stdout.
pub fn line(text: &str) {
    put(&visible(text));
}

/// A text on stdout that was made of lines: line breaks are its own, and no name's.
pub fn lines(text: &str) {
    text.lines().for_each(line);
}

/// A closed pipe (`| head`) ends quietly.
fn put(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

/// One JSON object on stdout.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    put(&visible_json(&serde_json::to_string(value).context("cannot write JSON")?));
    Ok(())
}

/// A note on stderr.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", visible(text));
}

/// A progress line that rewrites itself on a terminal and keeps quiet elsewhere.
pub fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{}", visible(text));
        let _ = stderr.flush();
    }
}

/// Ends a progress line.
pub fn progress_done() {
    progress("");
}

/// A table with aligned columns: text to the left, numbers to the right.
#[derive(Default)]
pub struct TextTable {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl TextTable {
    /// Headers; those that start with `>` are of columns of numbers.
    pub fn new(headers: &[&str]) -> Self {
        let right = headers.iter().map(|header| header.starts_with('>')).collect();
        let names = headers.iter().map(|header| header.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![names], right }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| visible(&cell)).collect());
    }

    pub fn print(&self) {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        for row in &self.rows {
            let mut text = String::new();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&self.right) {
                let pad = " ".repeat(width - cell.chars().count());
                let _ = if *right { write!(text, "{pad}{cell}  ") } else { write!(text, "{cell}{pad}  ") };
            }
            line(text.trim_end());
        }
    }
}

/// Three significant digits, no exponent between .0001 and 100,000.
pub fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if (-4..5).contains(&magnitude) {
        format!("{value:.*}", usize::try_from(2 - magnitude).unwrap_or(0))
    } else {
        format!("{value:.2e}")
    }
}
