//! What a file is: takes its name, or its first bytes, gives one of ours or what it looks like.

use serde::{Deserialize, Serialize};

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

/// Bytes of a file's beginning that tell what it is.
pub const HEAD_BYTES: usize = 512;

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
        if is_safetensors(head) {
            return Ok(Self::Trace);
        }
        if head.starts_with(b"PAR1") {
            return Ok(Self::Results);
        }
        if let Some((_, looks)) = KNOWN.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(looks);
        }
        let Some(text) = as_text(head) else { return Err("a binary file of another program") };
        let text = text.trim_start_matches('\u{feff}').trim_start();
        match () {
            () if head.is_empty() => Err("an empty file"),
            () if text.starts_with('{') && text.contains("loka-plan") => Ok(Self::Plan),
            () if text.starts_with('{') && text.contains("\"loka-key\"") => Ok(Self::Key),
            () if text.starts_with(['{', '[']) => Err("JSON of another program"),
            () => Err("a text file"),
        }
    }
}

/// First bytes of what is dropped by mistake.
const KNOWN: [(&[u8], &str); 12] = [
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"PK\x03\x04", "a ZIP archive, as PyTorch checkpoints are"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x80\x02", "a Python pickle"),
];

/// Eight bytes of length, then a JSON object.
fn is_safetensors(head: &[u8]) -> bool {
    let Some((length, rest)) = head.split_first_chunk::<8>() else { return false };
    let length = u64::from_le_bytes(*length);
    (2..1 << 32).contains(&length) && rest.first() == Some(&b'{')
}

/// The head may end in the middle of a letter.
fn as_text(head: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let odd = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t');
    (!text.contains(odd)).then_some(text)
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
