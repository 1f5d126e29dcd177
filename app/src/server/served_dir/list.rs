//! Takes the served folder, gives its traces, results and plans by name: sorted, bounded, and only what may be
//! opened.

use std::{
    fs::DirEntry,
    path::{Path, PathBuf},
};

use loka_core::{session::FileKind, trace::Trace, views::natural};

use super::{ServedDir, WHOLE, limits};

/// Something that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Relative to the folder, with `/`.
    pub name: String,
    pub kind: FileKind,
    /// Of all its shards.
    pub bytes: u64,
}

/// What is there; `complete`: nothing was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub entries: Vec<ListedFile>,
    pub complete: bool,
}

const TRACE: &str = ".trace.safetensors";
/// A run of that many ranks is still looked into.
const SHARDS: usize = 256;

/// Below `root`, without following links to folders: they could lead round in circles.
pub(super) fn list(served_dir: &ServedDir) -> Listing {
    let mut walk = Walk { served_dir, looked_at: 0, listing: Listing { entries: Vec::new(), complete: true } };
    walk.folder(&served_dir.root, "", limits::LISTED_DEPTH);
    let by_name = |a: &ListedFile, b: &ListedFile| natural(&a.name, &b.name).then_with(|| a.name.cmp(&b.name));
    walk.listing.entries.sort_by(|a, b| a.kind.cmp(&b.kind).then_with(|| by_name(a, b)));
    walk.listing
}

struct Walk<'a> {
    served_dir: &'a ServedDir,
    looked_at: usize,
    listing: Listing,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let mut found: Vec<DirEntry> = Vec::new();
        for entry in entries.flatten() {
            self.looked_at += 1;
            if self.looked_at > limits::LOOKED_AT {
                self.listing.complete = false;
                break;
            }
            found.push(entry);
        }
        found.sort_by_key(DirEntry::file_name);
        let shards = of_one_run(folder, &found);
        if let Some(bytes) = shards {
            let name = if prefix.is_empty() { WHOLE } else { prefix.trim_end_matches('/') };
            self.put(name.to_owned(), FileKind::Trace, bytes);
        }
        for entry in found {
            let Some(name) = entry.file_name().to_str().map(|name| format!("{prefix}{name}")) else { continue };
            // Hidden ones are nobody's traces; a name that could not be asked for is not offered.
            if entry.file_name().to_string_lossy().starts_with('.') || super::check_characters(&name).is_err() {
                continue;
            }
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                if depth > 0 {
                    self.folder(&entry.path(), &format!("{name}/"), depth - 1);
                }
            } else if let Some(of) = FileKind::of_name(&name)
                && !(of == FileKind::Trace && shards.is_some())
                && let Some(bytes) = size_of(self.served_dir, &entry)
            {
                self.put(name, of, bytes);
            }
        }
    }

    fn put(&mut self, name: String, kind: FileKind, bytes: u64) {
        if self.listing.entries.len() >= limits::LISTED {
            self.listing.complete = false;
            return;
        }
        self.listing.entries.push(ListedFile { name, kind, bytes });
    }
}

/// Of a regular file. A link is offered by its own name, unless it leads out: that could not be opened.
fn size_of(served_dir: &ServedDir, entry: &DirEntry) -> Option<u64> {
    let path =
        if entry.file_type().ok()?.is_symlink() { served_dir.leads_inside(&entry.path())? } else { entry.path() };
    let about = std::fs::metadata(path).ok()?;
    about.is_file().then_some(about.len())
}

/// Several traces that are the ranks of one run: they are opened as one. Their bytes.
fn of_one_run(folder: &Path, found: &[DirEntry]) -> Option<u64> {
    let is_trace = |entry: &&DirEntry| entry.file_name().to_string_lossy().ends_with(TRACE);
    let shards: Vec<PathBuf> = found.iter().filter(is_trace).map(DirEntry::path).take(SHARDS + 1).collect();
    if !(2..=SHARDS).contains(&shards.len()) {
        return None;
    }
    // Two tell runs apart, before hundreds are opened.
    let (first, second) = (Trace::open_shard(&shards[0]).ok()?, Trace::open_shard(&shards[1]).ok()?);
    let (a, b) = (&first.manifest().run, &second.manifest().run);
    if (&a.id, a.step) != (&b.id, b.step) {
        return None;
    }
    Trace::open(folder).ok()?;
    Some(shards.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|about| about.len()).sum())
}
