//! Takes the first bytes of a file, gives what it looks like: whoever passes a checkpoint for a trace is told so, and not
//! how many bytes a header claims that was never one.

use std::fmt;

/// Bytes of a file's beginning that tell what it is.
pub const HEAD_BYTES: usize = 512;

/// What each program writes first, in words for "it is …".
const KNOWN: [(&[u8], &str); 20] = [
    (b"PK\x03\x04", "a ZIP archive, as PyTorch checkpoints are"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"ARROW1", "an Arrow file"),
    (b"GGUF", "a GGUF model"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"\x80\x02", "a Python pickle, as old PyTorch checkpoints are"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
];

/// What a file looks like. Displays in words for "it is …".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMagic {
    Empty,
    Trace,
    /// Without a trace's manifest in its head.
    Safetensors,
    Parquet,
    Plan,
    SiteTimes,
    Key,
    Json,
    Text,
    /// Another program's.
    Other(&'static str),
}

impl fmt::Display for FileMagic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "empty",
            Self::Trace => "a LoKA trace",
            Self::Safetensors => "a safetensors file without a trace",
            Self::Parquet => "a Parquet file",
            Self::Plan => "a LoKA plan",
            Self::SiteTimes => "a table of site times",
            Self::Key => "a LoKA key",
            Self::Json => "JSON",
            Self::Text => "a text file",
            Self::Other(what) => what,
        })
    }
}

impl FileMagic {
    /// By the first [`HEAD_BYTES`] bytes; `None`: nothing that is known.
    pub fn of(head: &[u8]) -> Option<Self> {
        let head = &head[..head.len().min(HEAD_BYTES)];
        if head.is_empty() {
            return Some(Self::Empty);
        }
        if is_safetensors(head) {
            let has = |key: &[u8]| head.windows(key.len()).any(|window| window == key);
            return Some(if has(b"\"loka.trace\"") { Self::Trace } else { Self::Safetensors });
        }
        if head.starts_with(b"PAR1") {
            return Some(Self::Parquet);
        }
        let known = KNOWN.iter().find(|(magic, _)| head.starts_with(magic));
        known.map(|(_, what)| Self::Other(what)).or_else(|| of_text(head))
    }
}

/// Eight bytes of length, then a JSON object.
fn is_safetensors(head: &[u8]) -> bool {
    let Some((length, rest)) = head.split_first_chunk::<8>() else { return false };
    let length = u64::from_le_bytes(*length);
    (2..1 << 32).contains(&length) && rest.first() == Some(&b'{')
}

/// The head as text, where it is; it may end in the middle of a character.
fn head_as_text(head: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let odd = |character: char| character.is_control() && !matches!(character, '\n' | '\r' | '\t');
    (!text.contains(odd)).then_some(text)
}

fn of_text(head: &[u8]) -> Option<FileMagic> {
    let text = head_as_text(head)?.trim_start_matches('\u{feff}').trim_start();
    if !text.starts_with(['{', '[']) {
        return Some(FileMagic::Text);
    }
    let ours = [
        ("\"loka-plan\"", FileMagic::Plan),
        ("\"loka-site-times\"", FileMagic::SiteTimes),
        ("\"loka-key\"", FileMagic::Key),
    ];
    let own = ours.into_iter().find(|(format, _)| text.starts_with('{') && text.contains(format));
    Some(own.map_or(FileMagic::Json, |(_, what)| what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn safetensors(json: &str) -> Vec<u8> {
        [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat()
    }

    #[test]
    fn files_of_other_programs_are_named() {
        let trace = safetensors(r#"{"__metadata__":{"loka.trace":"{}"}}"#);
        let weights = safetensors(r#"{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#);
        let cases: [(&[u8], Option<&str>); 17] = [
            (b"", Some("empty")),
            (&trace, Some("a LoKA trace")),
            (&weights, Some("a safetensors file without a trace")),
            (b"PAR1\x15\x04", Some("a Parquet file")),
            (b"PK\x03\x04\x00\x00\x08", Some("a ZIP archive, as PyTorch checkpoints are")),
            (b"\x89HDF\r\n\x1a\n", Some("an HDF5 file")),
            (b"\x1f\x8b\x08\x00", Some("a gzip archive")),
            (b"\x28\xb5\x2f\xfd\x04", Some("a Zstandard archive")),
            (b"SQLite format 3\x00\x10", Some("an SQLite database")),
            (b"\x7fELF\x02\x01", Some("a program")),
            (b"\x80\x02\x8a\nl\xfc", Some("a Python pickle, as old PyTorch checkpoints are")),
            (b" {\"format\": \"loka-plan\"", Some("a LoKA plan")),
            (b"{\"a\": 1}", Some("JSON")),
            (b"[1, 2]", Some("JSON")),
            (b"site,m,k,n\n", Some("a text file")),
            (b"\x00\x01\x02\x03", None),
            (b"\x01\xe1\xf5\x05\x00\x00\x00\x00", None),
        ];
        for (head, what) in cases {
            assert_eq!(FileMagic::of(head).map(|is| is.to_string()).as_deref(), what, "{head:?}");
        }
    }

    #[test]
    fn a_head_that_ends_within_a_letter_is_text() {
        let text = "{\"format\": \"loka-plan\", \"é".as_bytes();
        assert_eq!(FileMagic::of(&text[..text.len() - 1]), Some(FileMagic::Plan));
    }
}
