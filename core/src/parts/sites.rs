//! A bench of whole sites that is split: what its times depend on, a part of it with its seal as JSON, and parts
//! joined. The same as of a bench of kernels ([`super::BenchKey`]), but that a part's rows are a table of site times.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::{
    KernelId, Runtime, SITE_TIMES_PART_FORMAT, SiteTime, SiteTimes, SiteTimesError, canonical_json, sha256_of,
};

use super::{
    fault::PartFault,
    key::{PartKey, SplitRun},
    part::Sealed,
    whole::{MergeError, in_order},
};

const VERSION: u64 = 1;

/// What all parts of a bench of sites have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SitesKey {
    /// [`super::shapes_digest`] of the whole list.
    pub shapes: String,
    /// Rows are of all that are [timed together](Runtime::timed_together) with it.
    pub runtime: Runtime,
    /// What every shape is timed by, in order: of fprop, dgrad and wgrad.
    pub kernels: Vec<[KernelId; 3]>,
    /// Of each site.
    pub samples: u64,
    pub device: String,
    /// Times of two drivers are two sources.
    pub driver: String,
    /// Of LoKA, PyTorch and CUDA.
    pub versions: String,
    /// How many parts the run is split into.
    pub of: usize,
}

impl SplitRun for SitesKey {
    const COMMAND: &'static str = "bench --sites";
    const PREFIX: &'static str = "sites-";
    const ENDING: &'static str = ".sites.json";
    const PIECES: &'static str = "shapes";

    fn of(&self) -> usize {
        self.of
    }

    fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        // Some twenty threes: the first that one lacks says more than all.
        let kernels = |run: &Self, other: &Self| {
            let alone = run.kernels.iter().find(|kernels| !other.kernels.contains(kernels));
            alone.map_or_else(
                || format!("{} sets", run.kernels.len()),
                |[fprop, dgrad, wgrad]| format!("{fprop}, {dgrad}, {wgrad} too"),
            )
        };
        type Said = fn(&SitesKey) -> String;
        let all: [(&'static str, Said); 7] = [
            ("device", |run| run.device.clone()),
            ("driver", |run| run.driver.clone()),
            ("versions", |run| run.versions.clone()),
            ("runtime", |run| run.runtime.as_str().to_owned()),
            ("list of shapes", |run| run.shapes.clone()),
            ("number of samples", |run| run.samples.to_string()),
            ("number of parts", |run| run.of.to_string()),
        ];
        let mut found = all.into_iter().map(|(what, said)| (what, said(self), said(other)));
        let differs =
            || (self.kernels != other.kernels).then(|| ("kernels", kernels(self, other), kernels(other, self)));
        found.find(|(_, here, there)| here != there).or_else(differs)
    }
}

/// A part as a file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct SitesPart {
    pub key: PartKey<SitesKey>,
    pub times: SiteTimes,
}

/// Why a file is no part of a bench of sites.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SitesPartError {
    #[error("no part of a bench --sites: {0}")]
    Json(String),
    #[error("no part of a bench --sites: its format is {0}, not \"{SITE_TIMES_PART_FORMAT}\"")]
    Format(String),
    #[error("parts of version {0} are not known (this program reads {VERSION})")]
    Version(String),
    #[error(transparent)]
    Times(#[from] SiteTimesError),
    #[error(transparent)]
    Fault(#[from] PartFault),
}

impl SitesPart {
    /// Over the key and the times.
    fn seal(&self) -> String {
        sha256_of(canonical_json(&json!({"key": self.key, "times": self.times})).as_bytes())
    }

    /// A line each for the key and every row.
    pub fn to_json(&self) -> String {
        let sealed = Sealed { key: self.key.clone(), seal: self.seal() };
        // Plain data has a coding.
        let sealed = serde_json::to_string(&sealed).unwrap_or_default();
        format!(
            "{{\"format\": \"{SITE_TIMES_PART_FORMAT}\", \"version\": {VERSION}, \"part\": {sealed},\n\"times\": {}}}\n",
            self.times.to_json()
        )
    }

    /// Refuses one whose seal or rows do not fit its key. Its name is for the caller to compare.
    pub fn from_json(text: &str) -> Result<Self, SitesPartError> {
        let json = |error: serde_json::Error| SitesPartError::Json(error.to_string());
        let mut value: Value = serde_json::from_str(text).map_err(json)?;
        let mut take = |key: &str| value.as_object_mut().and_then(|map| map.remove(key)).unwrap_or_default();
        let [format, version, part, times] = ["format", "version", "part", "times"].map(&mut take);
        if format != SITE_TIMES_PART_FORMAT {
            return Err(SitesPartError::Format(format.to_string()));
        }
        if version != VERSION {
            return Err(SitesPartError::Version(version.to_string()));
        }
        let sealed: Sealed<SitesKey> = serde_json::from_value(part).map_err(json)?;
        let part = Self { key: sealed.key.clone(), times: SiteTimes::from_json(&times.to_string())? };
        if part.seal() != sealed.seal {
            return Err(PartFault::Seal.into());
        }
        part.check_rows()?;
        Ok(part)
    }

    pub fn check_name(&self, name: &str) -> Result<(), PartFault> {
        self.key.check_name(name)
    }

    /// Every shape by all kernels, each runtime, in order: what could not be timed has a row that says why.
    fn check_rows(&self) -> Result<(), PartFault> {
        let (run, times) = (&self.key.run, &self.times);
        let runtimes = run.runtime.timed_together();
        let per_shape = run.kernels.len().saturating_mul(runtimes.len());
        let num_shapes = self.key.end.saturating_sub(self.key.first);
        let said = |count: usize| count.to_string();
        let pairs = [
            ("device", times.device.clone(), run.device.clone()),
            ("driver", times.driver.clone(), run.driver.clone()),
            ("versions", times.versions.clone(), run.versions.clone()),
            ("number of rows", said(times.rows.len()), said(num_shapes.saturating_mul(per_shape))),
        ];
        if let Some((what, found, expected)) = pairs.into_iter().find(|(_, found, expected)| found != expected) {
            return Err(PartFault::Meta { what, found, expected });
        }
        for rows in times.rows.chunks(per_shape.max(1)) {
            let Some(SiteTime { shape, .. }) = rows.first() else { continue };
            let of = |row: &SiteTime| (row.shape, row.runtime, row.kernels.clone());
            let by = |kernels| {
                runtimes.iter().map(move |runtime: &Runtime| (*shape, *runtime, <[KernelId; 3]>::clone(kernels)))
            };
            let expected = run.kernels.iter().flat_map(by);
            if let Some((row, _)) = rows.iter().zip(expected).find(|(row, expected)| of(row) != *expected) {
                let ([fprop, dgrad, wgrad], shape) = (&row.kernels, row.shape);
                let found = format!("by {fprop}, {dgrad}, {wgrad}, {}", row.runtime.as_str());
                let of = format!("{} x {} x {}", shape.m, shape.k, shape.n);
                return Err(PartFault::Row { of, found, expected: "others".to_owned() });
            }
        }
        Ok(())
    }
}

/// The table of all parts of one bench, in the order in which one machine times them; the time is the last part's.
/// `parts`: each with the name that errors show, in any order.
pub fn merge_sites(parts: Vec<(String, SitesPart)>) -> Result<SiteTimes, MergeError> {
    let parts = in_order(parts, |part: &SitesPart| &part.key)?.into_iter().map(|(_, part)| part.times);
    parts
        .reduce(|mut whole, part| {
            whole.rows.extend(part.rows);
            SiteTimes { recorded_at: whole.recorded_at.max(part.recorded_at), ..whole }
        })
        .ok_or(MergeError::Nothing)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            key::{
                PartOf,
                tests::{Change, each_difference_is_told},
            },
            shapes_digest,
        },
        *,
    };
    use crate::model::{GemmShape, Spread};

    const SHAPES: [GemmShape; 3] =
        [GemmShape { m: 64, k: 32, n: 16 }, GemmShape { m: 8, k: 8, n: 8 }, GemmShape { m: 64, k: 64, n: 64 }];

    fn kernels() -> Vec<[KernelId; 3]> {
        let (fp8, bf16) = ("cublaslt/fp8-rowwise+fast", "cublaslt/bf16");
        [[fp8, bf16, bf16], [fp8, fp8, fp8]].map(|names| names.map(KernelId::new)).to_vec()
    }

    fn run(of: usize) -> SitesKey {
        SitesKey {
            shapes: shapes_digest(&SHAPES),
            runtime: Runtime::Launched,
            kernels: kernels(),
            samples: 31,
            device: "NVIDIA H200".to_owned(),
            driver: "CUDA 13.0".to_owned(),
            versions: "PyTorch 2.11".to_owned(),
            of,
        }
    }

    fn times(shapes: &[GemmShape], recorded_at: &str) -> SiteTimes {
        let run = run(1);
        let row = |shape: GemmShape, kernels: [KernelId; 3], runtime: Runtime| {
            let us = shape.m as f64 / 3.0;
            let spread = Some(Spread { us, p10_us: 0.9 * us, p90_us: 1.1 * us });
            SiteTime { shape, runtime, kernels, site: spread, bf16: spread, codes: None, samples: 31, reason: None }
        };
        let both = [Runtime::Launched, Runtime::Graph];
        let by = |shape: GemmShape| {
            kernels().into_iter().flat_map(move |kernels| both.map(|runtime| row(shape, kernels.clone(), runtime)))
        };
        let rows = shapes.iter().flat_map(|shape| by(*shape)).collect();
        let [device, driver, versions] = [&run.device, &run.driver, &run.versions].map(Clone::clone);
        SiteTimes { device, driver, versions, recorded_at: recorded_at.to_owned(), rows }
    }

    fn part(number: usize, range: std::ops::Range<usize>) -> (String, SitesPart) {
        let times = times(&SHAPES[range.clone()], &format!("2026-11-26T0{number}:00:00Z"));
        let key = PartKey::new(run(2), PartOf { part: number, of: 2 }, range);
        (key.file_name(), SitesPart { key, times })
    }

    #[test]
    fn parts_in_any_order_are_what_one_machine_times() {
        let (one, two) = (part(1, 0..2), part(2, 2..3));
        let expected = times(&SHAPES, "2026-11-26T02:00:00Z");
        assert_eq!(merge_sites(vec![two.clone(), one.clone()]), Ok(expected));
        let refusal = |parts| merge_sites(parts).unwrap_err().to_string();
        assert_eq!(refusal(vec![one.clone()]), "part 2 of 2 is missing: loka bench --sites --part 2/2 makes it");
        let mut other = two.clone();
        other.1.key.run.device = "NVIDIA H100".to_owned();
        let expected = format!("parts of two runs: the device is NVIDIA H100, but NVIDIA H200 in {}: {}", one.0, two.0);
        assert_eq!(refusal(vec![one, other]), expected);
    }

    #[test]
    fn whatever_differs_is_another_name_and_is_told() {
        let name = PartKey::new(run(40), PartOf { part: 7, of: 40 }, 3..9).file_name();
        assert!(name.starts_with("sites-07-of-40-") && PartKey::<SitesKey>::is_file_name(&name), "{name}");
        let changes: [(&str, Change<SitesKey>); 8] = [
            ("list of shapes", |run| run.shapes.push('1')),
            ("runtime", |run| run.runtime = Runtime::Graph),
            ("kernels", |run| drop(run.kernels.pop())),
            ("number of samples", |run| run.samples += 1),
            ("device", |run| run.device.push('x')),
            ("driver", |run| run.driver.push('x')),
            ("versions", |run| run.versions.push('x')),
            ("number of parts", |run| run.of += 1),
        ];
        each_difference_is_told(&run(40), &changes);
    }

    #[test]
    fn a_part_is_read_as_it_was_written_and_is_no_table() {
        let part = part(2, 2..3).1;
        let text = part.to_json();
        assert_eq!(SitesPart::from_json(&text), Ok(part.clone()));
        let line = SiteTimes::from_json(&text).unwrap_err().to_string();
        assert_eq!(line, "it is a part of a bench --sites: loka merge joins all of them");
        let line = SitesPart::from_json(&part.times.to_json()).unwrap_err().to_string();
        assert_eq!(line, "no part of a bench --sites: its format is \"loka-site-times\", not \"loka-site-times-part\"");
        // Whatever is cut off or written over: the part, or one line. Never other times.
        for length in (0..text.trim_end().len()).step_by(7) {
            assert!(!SitesPart::from_json(&text[..length]).unwrap_err().to_string().contains('\n'));
        }
        for place in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[place] ^= 1;
            let Ok(changed) = String::from_utf8(changed) else { continue };
            if let Ok(read) = SitesPart::from_json(&changed) {
                assert_eq!(read, part, "byte {place}");
            }
        }
    }

    #[test]
    fn a_part_that_lies_is_not_opened() {
        let line = |change: fn(&mut SitesPart)| {
            let mut other = part(2, 2..3).1;
            change(&mut other);
            SitesPart::from_json(&other.to_json()).unwrap_err().to_string()
        };
        assert_eq!(line(|part| part.key.end = 2), "its number of rows is 4, its key says 0");
        assert_eq!(line(|part| drop(part.times.rows.pop())), "its number of rows is 3, its key says 4");
        assert_eq!(line(|part| part.times.device.push('x')), "its device is NVIDIA H200x, its key says NVIDIA H200");
        assert_eq!(
            line(|part| part.times.rows.swap(0, 2)),
            "a row of 64 x 64 x 64 is by cublaslt/fp8-rowwise+fast, cublaslt/fp8-rowwise+fast, \
             cublaslt/fp8-rowwise+fast, launched, its key says others"
        );
        assert!(line(|part| part.times.rows[0].runtime = Runtime::Graph).contains("graph"));
    }
}
