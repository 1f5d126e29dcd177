//! Takes a file whose name says nothing, looks at its first bytes, gives what kind it is or a line that says what it
//! looks like.

use loka_core::session::{FileKind, HEAD_BYTES};

/// A name as it fits in a line.
const NAME: usize = 80;

/// A file that lies in memory.
pub(crate) fn identify_bytes(name: &str, bytes: &[u8]) -> Result<FileKind, String> {
    FileKind::of_content(&bytes[..bytes.len().min(HEAD_BYTES)]).map_err(|looks| not_ours(name, looks))
}

pub(crate) fn not_ours(name: &str, looks: &str) -> String {
    // A name may hold anything; the line stays one line.
    let name: String =
        name.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect();
    let name = loka_core::format::shorten(&name, NAME);
    format!("{name} is no trace, results or plan: it looks like {looks}")
}
