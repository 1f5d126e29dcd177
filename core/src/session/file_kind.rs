//! What a file is: takes its name, or its first bytes, gives one of ours or what it looks like.

use serde::{Deserialize, Serialize};

use crate::model::FileMagic;
pub use crate::model::HEAD_BYTES;

/// The files that a session reads, in the order in which they are opened together: rows and plans belong to
/// a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    Trace,
    Results,
    Plan,
    /// A person's own, to sign with.
    Key,
}

impl FileKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Results => "results",
            Self::Plan => "plan",
            Self::Key => "key",
        }
    }

    /// By the ending; `None`: the name says nothing.
    pub fn of_name(path: &str) -> Option<Self> {
        let name = path.to_lowercase();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        match () {
            () if ends(&[".trace.safetensors"]) => Some(Self::Trace),
            () if ends(&[".parquet"]) => Some(Self::Results),
            () if ends(&[".plan.json"]) => Some(Self::Plan),
            () if ends(&["key.json"]) => Some(Self::Key),
            () => None,
        }
    }

    /// By the first [`HEAD_BYTES`] bytes; the error says what it looks like instead.
    pub fn of_content(head: &[u8]) -> Result<Self, &'static str> {
        match FileMagic::of(head) {
            Some(FileMagic::Trace | FileMagic::Safetensors) => Ok(Self::Trace),
            Some(FileMagic::Parquet) => Ok(Self::Results),
            Some(FileMagic::Plan) => Ok(Self::Plan),
            Some(FileMagic::Key) => Ok(Self::Key),
            Some(FileMagic::Empty) => Err("an empty file"),
            Some(FileMagic::Json) => Err("JSON of another program"),
            Some(FileMagic::Text) => Err("a text file"),
            Some(FileMagic::SiteTimes) => Err("a table of site times: loka probe reads it (--sites-times)"),
            Some(FileMagic::Other(looks)) => Err(looks),
            None => Err("a binary file of another program"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_decide() {
        assert_eq!(FileKind::of_name("/a/Model.TRACE.safetensors"), Some(FileKind::Trace));
        assert_eq!(FileKind::of_name("r.results.parquet"), Some(FileKind::Results));
        assert_eq!(FileKind::of_name("p.plan.json"), Some(FileKind::Plan));
        assert_eq!(FileKind::of_name("anna.key.json"), Some(FileKind::Key));
        assert_eq!(FileKind::of_name("weights.safetensors"), None);
        assert_eq!(FileKind::of_name("plan.json"), None);
    }

    #[test]
    fn content_decides_where_the_name_does_not() {
        let mut trace = 40_u64.to_le_bytes().to_vec();
        trace.extend(b"{\"__metadata__\"");
        let cut = "{\"format\": \"loka-plan\", \"é".as_bytes();
        for (head, kind) in [
            (trace.as_slice(), Ok(FileKind::Trace)),
            (b"PAR1....", Ok(FileKind::Results)),
            (&cut[..cut.len() - 1], Ok(FileKind::Plan)),
            (b"%PDF-1.7", Err("a PDF document")),
            (b"{\"cells\": []}", Err("JSON of another program")),
            (b"dear diary", Err("a text file")),
            (b"\x00\x01\x02", Err("a binary file of another program")),
            (b"", Err("an empty file")),
        ] {
            assert_eq!(FileKind::of_content(head), kind, "{head:?}");
        }
    }

    #[test]
    fn a_trace_opens_before_its_rows_and_plans() {
        let mut kinds = [FileKind::Plan, FileKind::Results, FileKind::Trace];
        kinds.sort();
        assert_eq!(kinds, [FileKind::Trace, FileKind::Results, FileKind::Plan]);
    }
}
