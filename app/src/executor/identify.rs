//! Takes a file whose name says nothing, looks at its first bytes, gives what kind it is or a line that says what it
//! looks like.

#[cfg(not(target_arch = "wasm32"))]
use std::{io::Read, path::Path};

use loka_core::session::{FileKind, HEAD_BYTES};

#[cfg(not(target_arch = "wasm32"))]
use crate::files;

/// A name as it fits in a line.
const NAME: usize = 80;

/// A file that lies in memory.
pub(super) fn identify_bytes(name: &str, bytes: &[u8]) -> Result<FileKind, String> {
    FileKind::of_content(&bytes[..bytes.len().min(HEAD_BYTES)]).map_err(|looks| not_ours(name, looks))
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn identify(path: &Path) -> Result<FileKind, String> {
    let missing = |error: &std::io::Error| format!("{}: {}", files::reason(error), path.display());
    if std::fs::metadata(path).map_err(|error| missing(&error))?.is_dir() {
        return of_folder(path);
    }
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let file = std::fs::File::open(path).map_err(|error| missing(&error))?;
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(|error| missing(&error))?;
    FileKind::of_content(&head).map_err(|looks| not_ours(&name_of(path), looks))
}

/// Shards of a trace lie together in a folder.
#[cfg(not(target_arch = "wasm32"))]
fn of_folder(path: &Path) -> Result<FileKind, String> {
    let entries = std::fs::read_dir(path).map_err(|error| format!("{}: {}", files::reason(&error), path.display()))?;
    let shard = |name: &str| name.ends_with(".safetensors");
    let has = entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(shard));
    if has { Ok(FileKind::Trace) } else { Err(not_ours(&name_of(path), "a folder without shards of a trace")) }
}

#[cfg(not(target_arch = "wasm32"))]
fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn not_ours(name: &str, looks: &str) -> String {
    // A name may hold anything; the line stays one line.
    let name: String = name.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect();
    let name = loka_core::format::shorten(&name, NAME);
    format!("{name} is no trace, results or plan: it looks like {looks}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_ours_are_a_line_each() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        for (path, line) in [
            (put("paper.pdf", b"%PDF-1.7"), "paper.pdf is no trace, results or plan: it looks like a PDF document"),
            (put("a\nb", b"hello"), "a\u{fffd}b is no trace, results or plan: it looks like a text file"),
            (folder.path().to_owned(), "it looks like a folder without shards of a trace"),
            (folder.path().join("nowhere"), "no such file or folder"),
        ] {
            let said = identify(&path).unwrap_err();
            assert!(said.contains(line) && !said.contains('\n'), "{said}");
        }
        assert_eq!(identify(&put("p.json", b"{\"format\": \"loka-plan\"}")), Ok(FileKind::Plan));
        put("part-0.safetensors", b"");
        assert_eq!(identify(folder.path()), Ok(FileKind::Trace));
    }
}
