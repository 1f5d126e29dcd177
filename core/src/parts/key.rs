//! What the rows of a part depend on, and the name that it has for that.

use std::{fmt, ops::Range, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::model::{canonical_json, sha256_of};

use super::fault::PartFault;

/// Parts of one run at most: more than that are more files than sites.
const MOST_PARTS: usize = 100_000;

/// Which of how many, from 1. Displays and parses as `3/40`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartOf {
    pub part: usize,
    pub of: usize,
}

impl fmt::Display for PartOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

impl FromStr for PartOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        let Some((part, of)) = numbers else { return Err("a part is PART/PARTS, such as 3/40".to_owned()) };
        if !(1..=MOST_PARTS).contains(&of) {
            return Err(format!("there may be 1 to {MOST_PARTS} parts, not {of}"));
        }
        if !(1..=of).contains(&part) {
            return Err(format!("parts are counted from 1: of {of} there is no part {part}"));
        }
        Ok(Self { part, of })
    }
}

/// What all parts of one run have in common, and how such a run is called.
pub trait SplitRun: Clone + PartialEq + Serialize {
    /// The subcommand that makes a part.
    const COMMAND: &'static str;
    /// What the names of its parts begin with, and end with.
    const PREFIX: &'static str;
    const ENDING: &'static str;
    /// What is split.
    const PIECES: &'static str;

    /// How many parts the run is split into.
    fn of(&self) -> usize;

    /// The first thing that differs, as (what, here, there).
    fn difference(&self, other: &Self) -> Option<(&'static str, String, String)>;
}

/// What all parts of a probe have in common: whatever else changes a row is the part's own range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunKey {
    /// The trace's digest.
    pub trace: String,
    /// In the catalogue's order.
    pub kernels: Vec<String>,
    /// The passes over the sites: without mods, and with them; or one with a set of its own for each site, as the digest
    /// of [`crate::model::SiteMods`] (`sha256:...`).
    pub mods: Vec<String>,
    /// Patterns of sites, as they were given.
    pub sites: Vec<String>,
    /// As if a step had so many.
    pub rows: Option<u64>,
    /// [`crate::probe::NUMERICS_VERSION`].
    pub numerics: u32,
    pub seed: u64,
    pub min_draws: u64,
    pub max_draws: u64,
    pub confidence: f64,
    pub sampler: String,
    /// Digests of the files that latencies come from, and of tables of site times; none: what ships with LoKA.
    pub latencies: Vec<String>,
    pub engine: String,
    pub device: String,
    /// Of LoKA and of the libraries that ran.
    pub versions: String,
    /// How many parts the run is split into.
    pub of: usize,
}

impl SplitRun for RunKey {
    const COMMAND: &'static str = "probe";
    const PREFIX: &'static str = "part-";
    const ENDING: &'static str = ".results.parquet";
    const PIECES: &'static str = "sites";

    fn of(&self) -> usize {
        self.of
    }

    fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let listed = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let all = |names: &[String]| if names.is_empty() { "all".to_owned() } else { names.join(", ") };
        let passes = |run: &Self| listed(&run.mods.iter().filter(|mods| !mods.is_empty()).cloned().collect::<Vec<_>>());
        let rows = |run: &Self| run.rows.map_or("as recorded".to_owned(), |rows| rows.to_string());
        // Where a list is long the first name that one lacks says more than both.
        let kernels = |run: &Self, other: &Self| {
            let alone = run.kernels.iter().find(|kernel| !other.kernels.contains(kernel));
            alone.map_or_else(|| format!("{} kernels", run.kernels.len()), |kernel| format!("{kernel} too"))
        };
        type Said = fn(&RunKey) -> String;
        let plain: [(&'static str, Said); 10] = [
            ("trace", |run| run.trace.clone()),
            ("numerics version", |run| run.numerics.to_string()),
            ("seed", |run| run.seed.to_string()),
            ("engine", |run| run.engine.clone()),
            ("device", |run| run.device.clone()),
            ("versions", |run| run.versions.clone()),
            ("draws", |run| format!("{} to {}", run.min_draws, run.max_draws)),
            ("confidence", |run| run.confidence.to_string()),
            ("sampler", |run| run.sampler.clone()),
            ("number of parts", |run| run.of.to_string()),
        ];
        let mut found = plain.into_iter().map(|(what, said)| (what, said(self), said(other))).collect::<Vec<_>>();
        found.push(("mods", passes(self), passes(other)));
        found.push(("sites", all(&self.sites), all(&other.sites)));
        found.push(("rows", rows(self), rows(other)));
        found.push(("latencies", listed(&self.latencies), listed(&other.latencies)));
        if self.kernels != other.kernels {
            found.push(("kernels", kernels(self, other), kernels(other, self)));
        }
        found.into_iter().find(|(what, here, there)| here != there || *what == "kernels")
    }
}

/// One part of one run: of a probe, or of a bench ([`super::BenchKey`]). It names the part's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartKey<R = RunKey> {
    pub run: R,
    /// From 1.
    pub part: usize,
    /// The first of its sites in forward order, or of its shapes as they were given, from 0, and the one after its last.
    pub first: usize,
    pub end: usize,
}

impl<R: SplitRun> PartKey<R> {
    pub fn new(run: R, part: PartOf, range: Range<usize>) -> Self {
        Self { run, part: part.part, first: range.start, end: range.end }
    }

    pub fn place(&self) -> PartOf {
        PartOf { part: self.part, of: self.run.of() }
    }

    /// SHA-256 of its canonical JSON, in hexadecimal digits.
    pub fn digest(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        sha256_of(canonical_json(&value).as_bytes()).trim_start_matches("sha256:").to_owned()
    }

    /// Sorts by number; two that would hold other rows have other names.
    pub fn file_name(&self) -> String {
        let PartOf { part, of } = self.place();
        let width = of.to_string().len();
        let short: String = self.digest().chars().take(32).collect();
        format!("{}{part:0width$}-of-{of}-{short}{}", R::PREFIX, R::ENDING)
    }

    /// What every such part's file name is like.
    pub fn is_file_name(name: &str) -> bool {
        name.starts_with(R::PREFIX) && name.contains("-of-") && name.ends_with(R::ENDING)
    }

    /// A file's name is what others look for it by.
    pub(super) fn check_name(&self, name: &str) -> Result<(), PartFault> {
        let expected = self.file_name();
        if name == expected { Ok(()) } else { Err(PartFault::Name { found: expected, expected: name.to_owned() }) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn run(of: usize) -> RunKey {
        RunKey {
            trace: "sha256:00".to_owned(),
            kernels: vec!["cublaslt/bf16".to_owned()],
            mods: vec![String::new()],
            sites: Vec::new(),
            rows: None,
            numerics: 1,
            seed: 0,
            min_draws: 4,
            max_draws: 4,
            confidence: 0.95,
            sampler: "copula".to_owned(),
            latencies: Vec::new(),
            engine: "cpu".to_owned(),
            device: "CPU".to_owned(),
            versions: "loka".to_owned(),
            of,
        }
    }

    #[test]
    fn a_part_is_read_as_it_is_written() {
        assert_eq!("3/40".parse::<PartOf>().map(|part| part.to_string()), Ok("3/40".to_owned()));
        for (text, problem) in [
            ("3", "a part is PART/PARTS, such as 3/40"),
            ("-1/4", "a part is PART/PARTS, such as 3/40"),
            ("0/4", "parts are counted from 1: of 4 there is no part 0"),
            ("5/4", "parts are counted from 1: of 4 there is no part 5"),
            ("1/0", "there may be 1 to 100000 parts, not 0"),
            ("1/100001", "there may be 1 to 100000 parts, not 100001"),
        ] {
            assert_eq!(text.parse::<PartOf>(), Err(problem.to_owned()));
        }
    }

    pub(crate) type Change<R> = fn(&mut R);

    /// Of every field of a run: in words, and by another name of its part.
    pub(crate) fn each_difference_is_told<R: SplitRun>(run: &R, changes: &[(&str, Change<R>)]) {
        let key = |run: &R| PartKey::new(run.clone(), PartOf { part: 7, of: 40 }, 3..9);
        let num_fields = serde_json::to_value(run).unwrap().as_object().unwrap().len();
        assert_eq!(changes.len(), num_fields, "each field once");
        assert_eq!(run.difference(run), None);
        for (what, change) in changes {
            let mut other = run.clone();
            change(&mut other);
            assert_eq!(run.difference(&other).map(|found| found.0), Some(*what));
            assert_ne!(key(&other).file_name(), key(run).file_name(), "{what}");
        }
    }

    /// A field that the name forgets would let the rows of one run stand for another's.
    #[test]
    fn whatever_differs_is_another_name_and_is_told() {
        let key = |run| PartKey::new(run, PartOf { part: 7, of: 40 }, 3..9);
        let whole = key(run(40));
        assert!(whole.file_name().starts_with("part-07-of-40-"), "{}", whole.file_name());
        assert!(PartKey::<RunKey>::is_file_name(&whole.file_name()));
        let changes: [(&str, Change<RunKey>); 16] = [
            ("trace", |run| run.trace.push('1')),
            ("kernels", |run| run.kernels.push("cublaslt/tf32".to_owned())),
            ("mods", |run| run.mods.push("no_bias".to_owned())),
            ("sites", |run| run.sites.push("a*".to_owned())),
            ("rows", |run| run.rows = Some(8)),
            ("numerics version", |run| run.numerics += 1),
            ("seed", |run| run.seed += 1),
            ("draws", |run| run.min_draws -= 1),
            ("draws", |run| run.max_draws += 1),
            ("confidence", |run| run.confidence = 0.9),
            ("sampler", |run| run.sampler.push('x')),
            ("latencies", |run| run.latencies.push("sha256:1".to_owned())),
            ("engine", |run| run.engine.push('x')),
            ("device", |run| run.device.push('x')),
            ("versions", |run| run.versions.push('x')),
            ("number of parts", |run| run.of += 1),
        ];
        each_difference_is_told(&run(40), &changes);
        let ranges = [(7, 3, 10), (7, 2, 9), (8, 3, 9)];
        for (part, first, end) in ranges {
            assert_ne!(PartKey { part, first, end, ..whole.clone() }.file_name(), whole.file_name());
        }
    }
}
