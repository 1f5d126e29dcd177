//! Takes figures, gives them as a table or as JSON; the cost a site of two sizes side by side.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::json;

/// One thing that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    pub sites: usize,
    pub what: String,
    pub unit: String,
    pub median: f64,
    pub p95: f64,
    pub max: f64,
    pub samples: usize,
    /// What the p95 must not exceed.
    pub bar: Option<f64>,
}

impl Figure {
    pub fn of(what: &str, unit: &str, mut samples: Vec<f64>, bar: Option<f64>) -> Self {
        assert!(!samples.is_empty(), "{what} was not measured");
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| samples[((samples.len() - 1) as f64 * share).round() as usize];
        let (median, p95, max) = (at(0.5), at(0.95), at(1.0));
        let (what, unit, samples) = (what.to_owned(), unit.to_owned(), samples.len());
        Self { sites: 0, what, unit, median, p95, max, samples, bar }
    }

    pub fn one(what: &str, unit: &str, value: f64, bar: Option<f64>) -> Self {
        Self::of(what, unit, vec![value], bar)
    }

    fn verdict(&self) -> &'static str {
        match self.bar {
            Some(bar) if self.p95 <= bar => "met",
            Some(_) => "missed",
            None => "",
        }
    }
}

pub fn json(machine: &str, figures: &[Figure]) -> String {
    json!({"machine": machine, "figures": figures}).to_string()
}

/// Markdown, as docs/engineering/performance.md has it.
pub fn table(machine: &str, figures: &[Figure]) -> String {
    let mut text =
        format!("{machine}\n\n| sites | what | median | p95 | max | n | bar | |\n|---|---|---|---|---|---|---|---|\n");
    for figure in figures {
        let Figure { sites, what, unit, samples, .. } = figure;
        let (median, p95, max) = (short(figure.median), short(figure.p95), short(figure.max));
        let bar = figure.bar.map_or_else(String::new, short);
        let verdict = figure.verdict();
        let _ =
            writeln!(text, "| {sites} | {what}, {unit} | {median} | {p95} | {max} | {samples} | {bar} | {verdict} |");
    }
    text + &ratios(figures)
}

/// How the cost a site grows from the smallest to the next sizes.
fn ratios(figures: &[Figure]) -> String {
    let Some(small) = figures.first().map(|figure| figure.sites) else { return String::new() };
    let mut text = format!("\nCost a site over that at {small} sites (flat: 1):\n");
    for figure in figures.iter().filter(|figure| figure.sites != small && figure.unit == "ms") {
        let same = figures.iter().find(|of| of.sites == small && of.what == figure.what);
        if let Some(of) = same.filter(|of| of.median > 0.0) {
            let ratio = figure.median / figure.sites as f64 / (of.median / small as f64);
            let _ = writeln!(text, "- {} at {} sites: {}", figure.what, figure.sites, short(ratio));
        }
    }
    text
}

fn short(value: f64) -> String {
    loka_core::format::short(value)
}
