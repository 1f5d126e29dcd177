//! The served folder, and nothing outside of it: takes a name that a client sent, gives a path inside the folder or
//! the line that refuses it; takes nothing, gives what lies in the folder.
//!
//! A name is refused by its characters first, then by where it leads once every link is followed. Whoever can put a link
//! into the folder could swap it between that look and the reading. Clients cannot: all that they can do there is to
//! add a plain file under a name that nothing has (see `upload.rs`), so a name that leads somewhere goes on leading
//! there.

mod list;

use std::path::{Component, Path, PathBuf};

use loka_core::{model::visible_within, session::FileKind};

pub use list::Listing;

use super::{limits, one_line};
use crate::files;

/// Names are relative to this folder, with `/` between their parts on every system.
#[derive(Clone, Debug)]
pub struct ServedDir {
    /// Without links.
    root: PathBuf,
}

impl ServedDir {
    pub fn new(folder: &Path) -> Result<Self, String> {
        let missing = |error: std::io::Error| format!("{}: {}", files::reason(&error), folder.display());
        let root = folder.canonicalize().map_err(missing)?;
        if !root.is_dir() {
            return Err(format!("not a folder: {}", folder.display()));
        }
        std::fs::read_dir(&root).map_err(missing)?;
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file or folder of that name: it is there, inside, and of a kind that can be read. The path is without
    /// links. The line names what was asked for, never a path of this machine.
    pub fn path(&self, name: &str) -> Result<PathBuf, String> {
        let refuse = |why: &str| Err(format!("{why}: {}", visible_within(name, SHOWN)));
        if let Err(why) = check_characters(name) {
            return refuse(why);
        }
        let wanted = self.root.join(name);
        if wanted.components().any(|part| part == Component::ParentDir) {
            return refuse(OUTSIDE);
        }
        let path = match wanted.canonicalize() {
            Ok(path) => path,
            Err(error) => return refuse(&files::reason(&error)),
        };
        if !path.starts_with(&self.root) {
            return refuse(OUTSIDE);
        }
        match std::fs::metadata(&path) {
            Ok(about) if about.is_file() || about.is_dir() => Ok(path),
            Ok(_) => refuse("neither a file nor a folder"),
            Err(error) => refuse(&files::reason(&error)),
        }
    }

    /// Where that leads once links are followed; `None`: nowhere, or out of the folder.
    fn leads_inside(&self, path: &Path) -> Option<PathBuf> {
        path.canonicalize().ok().filter(|path| path.starts_with(&self.root))
    }

    /// Where a file that a client sends under that name would lie, and what the name says that it is. Whether the name
    /// is free is not looked at here.
    pub fn new_file(&self, name: &str) -> Result<(PathBuf, FileKind), String> {
        check_characters(name)?;
        if name.contains('/') {
            return Err("a new file lies in the served folder itself, and its name has no slash".to_owned());
        }
        if name.starts_with('.') {
            return Err("a hidden name".to_owned());
        }
        if name.len() > limits::UPLOAD_NAME_BYTES {
            return Err(format!("its name is longer than {} bytes", limits::UPLOAD_NAME_BYTES));
        }
        // Others see it in a list.
        if one_line::name(name, limits::UPLOAD_NAME_BYTES) != name {
            return Err("its name has characters or blanks that cannot be seen".to_owned());
        }
        let lower = name.to_lowercase();
        let kind = NEW.iter().find(|(shutdown, _)| lower.ends_with(shutdown) && lower.len() > shutdown.len());
        match kind {
            Some((_, kind)) => Ok((self.root.join(name), *kind)),
            None => Err(format!("a server takes {}, {} and {}", NEW[0].0, NEW[1].0, NEW[2].0)),
        }
    }

    /// The name of a path inside; `None`: it is not inside.
    pub fn name(&self, path: &Path) -> Option<String> {
        let inside = path.strip_prefix(&self.root).ok()?;
        let parts: Option<Vec<&str>> = inside.components().map(|part| part.as_os_str().to_str()).collect();
        let name = parts?.join("/");
        Some(if name.is_empty() { WHOLE.to_owned() } else { name })
    }

    /// The trace in a folder that has no other.
    pub fn only_trace(&self) -> Option<String> {
        let mut traces = self.list().entries.into_iter().filter(|entry| entry.kind == FileKind::Trace);
        let first = traces.next()?;
        traces.next().is_none().then_some(first.name)
    }

    /// Traces, results and plans in the folder.
    pub fn list(&self) -> Listing {
        list::list(self)
    }
}

/// The folder itself, where it is the shards of one trace.
pub const WHOLE: &str = ".";

/// Endings of what may be sent here: never a key, and nothing that the program itself reads besides.
const NEW: [(&str, FileKind); 3] =
    [(".trace.safetensors", FileKind::Trace), (".results.parquet", FileKind::Results), (".plan.json", FileKind::Plan)];

/// Characters of a name in a refusal.
const SHOWN: usize = 120;

const OUTSIDE: &str = "outside of the served folder";

/// What no name of a served file has, on any system that a client could have in mind.
fn check_characters(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > limits::NAME_BYTES {
        return Err("no name of a file");
    }
    if name.contains(char::is_control) {
        return Err("control characters in a name");
    }
    if name.contains('\\') {
        return Err("a backslash in a name");
    }
    let mut characters = name.chars();
    if name.starts_with('/') || (characters.next().is_some_and(char::is_alphabetic) && characters.next() == Some(':')) {
        return Err(OUTSIDE);
    }
    if name == WHOLE {
        return Ok(());
    }
    for part in name.split('/') {
        match part {
            ".." => return Err(OUTSIDE),
            "" | "." => return Err("no name of a file"),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
