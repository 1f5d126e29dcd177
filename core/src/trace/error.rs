//! Takes what a check found and where; gives one line: the cause, then site and tensor, the file last.
//! Every text that a broken trace can cause is in this file.

use std::fmt;

use crate::model::{FileMagic, SiteId, visible_within};

/// A trace, or one of its sites, that cannot be used. Displays as one line, e.g.
/// `input.mean has shape [3], expected [4]: net.top.0/input.mean: broken.trace.safetensors`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct TraceError {
    fault: Fault,
    file: String,
}

impl TraceError {
    /// What is wrong, without the place.
    pub fn cause(&self) -> String {
        one_line(&self.fault.cause.to_string())
    }

    /// `site` or `site/tensor`, where the fault has one.
    pub fn place(&self) -> Option<&str> {
        self.fault.place.as_deref()
    }

    /// Whether all that is wrong is that another rank's file has the weights.
    pub fn lacks_weights(&self) -> bool {
        matches!(*self.fault.cause, TraceCause::WeightsElsewhere { .. })
    }

    /// The file as it was asked for: a path, or the name given with the bytes.
    pub fn file(&self) -> &str {
        &self.file
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.cause())?;
        if let Some(place) = &self.fault.place {
            write!(f, "{}: ", one_line(place))?;
        }
        f.write_str(&one_line(&self.file))
    }
}

/// What is wrong and where inside the file; becomes a [`TraceError`] where the file is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    /// Boxed: it is large, and every `Result` here would be.
    pub cause: Box<TraceCause>,
    pub place: Option<String>,
}

impl Fault {
    pub fn in_file(self, file: &str) -> TraceError {
        TraceError { fault: self, file: file.to_owned() }
    }

    pub fn at(cause: TraceCause, place: &str) -> Self {
        Self { cause: Box::new(cause), place: Some(place.to_owned()) }
    }

    pub fn at_site(cause: TraceCause, site: &SiteId) -> Self {
        Self::at(cause, site.as_str())
    }

    /// `tensor` without the site, e.g. `input.mean`.
    pub fn at_tensor(cause: TraceCause, site: &SiteId, tensor: &str) -> Self {
        Self { cause: Box::new(cause), place: Some(format!("{site}/{tensor}")) }
    }
}

impl From<TraceCause> for Fault {
    fn from(cause: TraceCause) -> Self {
        Self { cause: Box::new(cause), place: None }
    }
}

/// What can be wrong. The strings named `tensor` have no site in them: the place says it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum TraceCause {
    // The path.
    #[error("no such file or folder")]
    NotFound,
    #[error("no permission")]
    Permission,
    #[error("{0}")]
    Io(String),
    #[cfg(feature = "native")]
    #[error("neither a file nor a folder")]
    NotAFile,
    #[cfg(feature = "native")]
    #[error("the folder has no *.trace.safetensors file")]
    EmptyFolder,

    // The safetensors container.
    #[error("the file has {0} bytes, a header needs 8 or more")]
    TooShort(usize),
    #[error("the header claims {0} bytes, over the limit of 100 MB")]
    HeaderTooLong(u64),
    #[error("the header ends at byte {end}, beyond the file's {len}")]
    HeaderBeyondFile { end: u64, len: usize },
    #[error("the header is not valid: {0}")]
    Header(String),
    #[error("{0} is listed twice")]
    TensorTwice(String),
    #[error("{tensor} has the shape {shape:?}, too large for any file")]
    ShapeOverflow { tensor: String, shape: Vec<u64> },
    #[error("{tensor} has the data offsets [{begin}, {end}]")]
    Offsets { tensor: String, begin: u64, end: u64 },
    #[error("{tensor} ends at byte {end} of the data, which has {len}: truncated")]
    Truncated { tensor: String, end: u64, len: usize },
    #[error("{tensor} takes {found} bytes, {dtype} {shape:?} needs {needed}")]
    Size { tensor: String, found: u64, dtype: String, shape: Vec<u64>, needed: u64 },
    #[error("{tensor} overlaps {other}")]
    Overlap { tensor: String, other: String },
    #[error("bytes {begin}..{end} of the data belong to no tensor")]
    Hole { begin: u64, end: u64 },

    #[error("not a LoKA trace: it is {0}")]
    AnotherFile(FileMagic),

    // The manifest.
    #[error("the metadata has no loka.trace: not a trace")]
    NoManifest,
    #[error("loka.trace is not valid: {0}")]
    Manifest(String),
    #[error("version is {0}, expected 1")]
    Version(String),
    #[error("quantile_probs are not ascending in (0, 1)")]
    QuantileProbs,
    #[error("loss.weight is {0}, expected a positive number")]
    LossWeight(f64),
    #[error("the site is listed twice")]
    SiteTwice,

    // One site's structure.
    #[error("{0}")]
    Unusable(String),
    #[error("{0} = 0")]
    ZeroSize(&'static str),
    #[error("m = {m}, k = {k}, n = {n} are too large")]
    SizeOverflow { m: usize, k: usize, n: usize },
    #[error("feeds the unknown site {0}")]
    FeedUnknown(SiteId),
    #[error("feeds {0}, which is not after it")]
    FeedBackwards(SiteId),
    #[error("feeds {to}, whose k is {k}, with n = {n}")]
    FeedSize { to: SiteId, k: usize, n: usize },
    #[error("{0} is missing")]
    Missing(String),
    #[error("{tensor} has dtype {found}, expected {expected}")]
    Dtype { tensor: String, found: String, expected: &'static str },
    #[error("{tensor} has shape {found:?}, expected {expected}")]
    Shape { tensor: String, found: Vec<usize>, expected: String },
    #[error("{0} and {1} are both present")]
    Both(String, String),

    // One site's data.
    #[error("{tensor} is {found}, expected at least 2")]
    Count { tensor: String, found: i64 },
    #[error("{tensor} is {value} at {index:?}, not finite")]
    NotFinite { tensor: String, value: f64, index: Vec<usize> },
    #[error("{tensor} is {value} at {index:?}, negative")]
    Negative { tensor: String, value: f64, index: Vec<usize> },
    #[error("{tensor} is not symmetric: {upper} at [{row}, {col}], {lower} at [{col}, {row}]")]
    Asymmetric { tensor: String, row: usize, col: usize, upper: f64, lower: f64 },
    #[error("{tensor} descends at {index:?}")]
    Descends { tensor: String, index: Vec<usize> },
    #[error("the trace has no site {0}")]
    NoSuchSite(SiteId),

    // Merging and writing.
    #[error("it has no weights: they are in {file}, rank {rank}'s; take both, or their folder")]
    WeightsElsewhere { file: String, rank: u64 },
    #[error("nothing to merge")]
    NothingToMerge,
    #[error("{what} is {found}, but {expected} in {other}")]
    Differs { what: String, found: String, expected: String, other: String },
    #[error("rank {rank} is in {other} too")]
    RankTwice { rank: u64, other: String },
    #[error("{0} does not fit its type after merging")]
    MergeOverflow(&'static str),
    #[error("{tensor} has {found} values, expected {expected}")]
    Length { tensor: String, found: usize, expected: usize },
}

impl TraceCause {
    /// The operating system's words differ between systems for what happens most: these do not.
    pub fn from_io(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Self::NotFound,
            std::io::ErrorKind::PermissionDenied => Self::Permission,
            _ => Self::Io(error.to_string()),
        }
    }
}

/// Names come from the file: a line break in one must not forge a second line of output, nor a
/// megabyte of one bury the message.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 400;
    visible_within(text, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_first_file_last() {
        let cause = TraceCause::Shape { tensor: "input.mean".into(), found: vec![3], expected: "[4]".into() };
        let error =
            Fault::at_tensor(cause, &SiteId::new("net.top.0"), "input.mean").in_file("broken.trace.safetensors");
        assert_eq!(
            error.to_string(),
            "input.mean has shape [3], expected [4]: net.top.0/input.mean: broken.trace.safetensors"
        );
        assert_eq!(Fault::from(TraceCause::NotFound).in_file("a").to_string(), "no such file or folder: a");
    }

    #[test]
    fn a_hostile_name_stays_on_one_line() {
        let error = Fault::at_site(TraceCause::ZeroSize("k"), &SiteId::new("a\nerror: b")).in_file("f");
        assert_eq!(error.to_string(), "k = 0: a\\nerror: b: f");
        assert!(one_line(&"x".repeat(100_000)).len() < 500);
    }
}
