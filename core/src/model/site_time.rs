//! Measured times of whole sites: the three GEMMs of a linear together, as a compiled model runs them.

use serde::{Deserialize, Serialize};

use super::{GemmShape, KernelId, Runtime};

/// A median with its spread, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub us: f64,
    pub p10_us: f64,
    pub p90_us: f64,
}

impl Spread {
    pub fn is_sound(self) -> bool {
        let Self { us, p10_us, p90_us } = self;
        us.is_finite() && p10_us > 0.0 && p10_us <= us && us <= p90_us && p90_us.is_finite()
    }
}

/// One site by three kernels, with what makes its input and what reads its output; and the same in BF16, interleaved in
/// the same run. What counts is the difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteTime {
    pub shape: GemmShape,
    pub runtime: Runtime,
    /// Of fprop, dgrad and wgrad.
    pub kernels: [KernelId; 3],
    /// `None`: it could not be timed.
    #[serde(default)]
    pub site: Option<Spread>,
    #[serde(default)]
    pub bf16: Option<Spread>,
    /// The same as `site` where the output goes on as codes that the next linear reads: of kernels that can store them.
    #[serde(default)]
    pub codes: Option<Spread>,
    pub samples: u64,
    /// Why it was not timed.
    #[serde(default)]
    pub reason: Option<String>,
}

impl SiteTime {
    /// (BF16, by these kernels).
    pub fn medians_us(&self) -> Option<(f64, f64)> {
        Some((self.bf16.filter(|of| of.is_sound())?.us, self.site.filter(|of| of.is_sound())?.us))
    }

    /// What the next linear need not cast, as a share of the time in BF16: never less than nothing.
    pub fn share_saved_by_codes(&self) -> Option<f64> {
        let (bf16_us, us) = self.medians_us()?;
        Some(((us - self.codes.filter(|of| of.is_sound())?.us) / bf16_us).max(0.0))
    }
}

/// A table of them: `*.sites.json`, and `site_times` in the metadata of results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteTimes {
    pub device: String,
    pub driver: String,
    pub versions: String,
    /// RFC 3339, UTC.
    pub recorded_at: String,
    pub rows: Vec<SiteTime>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteTimesError {
    #[error("not a table of site times: {0}")]
    Json(String),
    #[error("not a table of site times: format is {0}, not \"{SITE_TIMES_FORMAT}\"")]
    Format(String),
    #[error("it is a part of a bench --sites: loka merge joins all of them")]
    Part,
    #[error("site times of version {0} are not known (this program reads {SITE_TIMES_VERSION})")]
    Version(String),
    #[error("site times of another device: {found}, not {wanted}")]
    Device { found: String, wanted: String },
    #[error("site times, row {row}: {problem}")]
    Row { row: usize, problem: String },
}

pub const SITE_TIMES_FORMAT: &str = "loka-site-times";
pub const SITE_TIMES_VERSION: u64 = 1;
/// Of `loka bench --sites --part`: a table of some of the shapes.
pub const SITE_TIMES_PART_FORMAT: &str = "loka-site-times-part";

impl SiteTimes {
    /// Reads a `*.sites.json`.
    pub fn from_json(text: &str) -> Result<Self, SiteTimesError> {
        let json = |error: serde_json::Error| SiteTimesError::Json(error.to_string());
        let mut value: serde_json::Value = serde_json::from_str(text).map_err(json)?;
        let mut take = |key: &str| value.as_object_mut().and_then(|map| map.remove(key)).unwrap_or_default();
        let (format, version) = (take("format"), take("version"));
        if format == SITE_TIMES_PART_FORMAT {
            return Err(SiteTimesError::Part);
        }
        if format != SITE_TIMES_FORMAT {
            return Err(SiteTimesError::Format(format.to_string()));
        }
        if version != SITE_TIMES_VERSION {
            return Err(SiteTimesError::Version(version.to_string()));
        }
        let times: Self = serde_json::from_value(value).map_err(json)?;
        times.validate()?;
        Ok(times)
    }

    /// A row a line, for people and for version control.
    pub fn to_json(&self) -> String {
        let rows: Vec<String> = self.rows.iter().map(|row| format!("    {}", line(row))).collect();
        let (device, driver, versions) = (line(&self.device), line(&self.driver), line(&self.versions));
        format!(
            "{{\n  \"format\": \"{SITE_TIMES_FORMAT}\",\n  \"version\": {SITE_TIMES_VERSION},\n  \"device\": {device},\n  \
             \"driver\": {driver},\n  \"versions\": {versions},\n  \"recorded_at\": {},\n  \"rows\": [\n{}\n  ]\n}}\n",
            line(&self.recorded_at),
            rows.join(",\n")
        )
    }

    fn validate(&self) -> Result<(), SiteTimesError> {
        for (row, time) in self.rows.iter().enumerate() {
            let problem = |problem: &str| Err(SiteTimesError::Row { row, problem: problem.to_owned() });
            if [time.site, time.bf16, time.codes].into_iter().flatten().any(|of| !of.is_sound()) {
                return problem("its times are not p10 <= median <= p90, all above 0");
            }
            if time.site.is_some() != time.bf16.is_some() {
                return problem("it has one of its two times");
            }
            if time.codes.is_some() && time.site.is_none() {
                return problem("it has a time with codes and none without");
            }
            if time.site.is_none() && time.reason.is_none() {
                return problem("it has neither times nor a reason");
            }
            if let Some(unknown) = time.kernels.iter().find(|kernel| super::kernel(kernel.as_str()).is_none()) {
                return problem(&format!("unknown kernel '{unknown}'"));
            }
        }
        Ok(())
    }

    /// Both tables; of what both timed `newer` counts.
    ///
    /// # Errors
    /// They are of two devices.
    pub fn merged(self, newer: Self) -> Result<Self, SiteTimesError> {
        if self.rows.is_empty() {
            return Ok(newer);
        }
        if self.device != newer.device {
            return Err(SiteTimesError::Device { found: newer.device, wanted: self.device });
        }
        let key = |row: &SiteTime| (row.shape, row.runtime, row.kernels.clone());
        let again: std::collections::HashSet<_> = newer.rows.iter().map(key).collect();
        let kept = self.rows.into_iter().filter(|row| !again.contains(&key(row)));
        let rows = kept.chain(newer.rows).collect();
        Ok(Self { rows, ..newer })
    }

    pub fn num_timed(&self) -> usize {
        self.rows.iter().filter(|row| row.medians_us().is_some()).count()
    }
}

/// As JSON in one line. Plain data has a coding.
fn line<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(us: f64) -> SiteTime {
        let spread = |us: f64| Some(Spread { us, p10_us: 0.9 * us, p90_us: 1.1 * us });
        SiteTime {
            shape: GemmShape { m: 64, k: 32, n: 16 },
            runtime: Runtime::Launched,
            kernels: ["cublaslt/fp8-rowwise+fast", "cublaslt/bf16", "cublaslt/bf16"].map(KernelId::new),
            site: spread(us),
            bf16: spread(100.0),
            codes: None,
            samples: 15,
            reason: None,
        }
    }

    fn table(rows: Vec<SiteTime>) -> SiteTimes {
        let [device, driver, versions, recorded_at] =
            ["NVIDIA H200", "580", "PyTorch 2.11", "2026-11-22T00:00:00Z"].map(str::to_owned);
        SiteTimes { device, driver, versions, recorded_at, rows }
    }

    #[test]
    fn reads_what_it_wrote() {
        let failed = SiteTime { site: None, bf16: None, reason: Some("out of \"memory\"".to_owned()), ..row(1.0) };
        let block = SiteTime { codes: row(70.0).site, ..row(80.0) };
        for times in [table(vec![row(90.0), failed, block]), table(vec![])] {
            assert_eq!(SiteTimes::from_json(&times.to_json()), Ok(times));
        }
    }

    #[test]
    fn codes_save_the_next_linear_its_cast() {
        let with = |codes: Option<f64>| SiteTime { codes: codes.and_then(|us| row(us).site), ..row(80.0) };
        assert_eq!(with(Some(70.0)).share_saved_by_codes(), Some(0.1));
        assert_eq!(with(Some(85.0)).share_saved_by_codes(), Some(0.0), "noise");
        assert_eq!(with(None).share_saved_by_codes(), None);
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_line() {
        let said = |text: &str| SiteTimes::from_json(text).unwrap_err().to_string();
        assert!(said("{").starts_with("not a table of site times: "));
        assert_eq!(said("[]"), "not a table of site times: format is null, not \"loka-site-times\"");
        let text = table(vec![row(90.0)]).to_json();
        assert_eq!(
            said(&text.replace("\"version\": 1", "\"version\": 2")),
            "site times of version 2 are not known (this program reads 1)"
        );
        assert_eq!(
            said(&text.replace("cublaslt/fp8-rowwise+fast", "cublaslt/fp9")),
            "site times, row 0: unknown kernel 'cublaslt/fp9'"
        );
        assert_eq!(
            said(&text.replace("\"us\":90.0", "\"us\":-1")),
            "site times, row 0: its times are not p10 <= median <= p90, all above 0"
        );
        assert!(said(&text.replace("launched", "eager")).contains("unknown variant `eager`"));
    }

    #[test]
    fn newer_rows_take_the_place_of_older_ones_of_the_same_device() {
        let graph = SiteTime { runtime: Runtime::Graph, ..row(80.0) };
        let merged = table(vec![row(90.0), graph.clone()]).merged(table(vec![row(95.0)])).unwrap();
        assert_eq!(merged.rows, [graph, row(95.0)]);
        let other = SiteTimes { device: "NVIDIA H100".to_owned(), ..table(vec![row(1.0)]) };
        let error = merged.merged(other).unwrap_err().to_string();
        assert_eq!(error, "site times of another device: NVIDIA H100, not NVIDIA H200");
    }
}
