//! Files that were opened, the latest first.

use loka_core::session::FileKind;
use serde::{Deserialize, Serialize};

/// Files that are remembered.
const KEPT: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentFile {
    pub path: String,
    pub kind: FileKind,
    /// Why it cannot be opened now, once that was looked up.
    #[serde(skip)]
    pub problem: Option<String>,
}

impl RecentFile {
    /// The name alone; the whole path is for the tooltip.
    pub fn name(&self) -> &str {
        let path = self.path.trim_end_matches(['/', '\\']);
        path.rsplit(['/', '\\']).next().filter(|name| !name.is_empty()).unwrap_or(&self.path)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recent(Vec<RecentFile>);

impl Recent {
    pub fn files(&self) -> &[RecentFile] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// It was opened just now.
    pub fn add(&mut self, path: &str, kind: FileKind) {
        self.remove(path);
        self.0.insert(0, RecentFile { path: path.to_owned(), kind, problem: None });
        self.0.truncate(KEPT);
    }

    pub fn remove(&mut self, path: &str) {
        self.0.retain(|file| file.path != path);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// As it was looked up: files that are not named are there.
    pub fn mark(&mut self, missing: &[(String, String)]) {
        for file in &mut self.0 {
            file.problem = missing.iter().find(|(path, _)| *path == file.path).map(|(_, reason)| reason.clone());
        }
    }

    /// No more than are kept, however long the stored list is.
    #[must_use]
    pub(super) fn cut(mut self) -> Self {
        self.0.truncate(KEPT);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_is_first_and_none_is_there_twice() {
        let mut recent = Recent::default();
        for at in 0..KEPT + 3 {
            recent.add(&format!("/t/{at}.trace.safetensors"), FileKind::Trace);
        }
        recent.add("/t/9.trace.safetensors", FileKind::Trace);
        assert_eq!((recent.files().len(), recent.files()[0].name()), (KEPT, "9.trace.safetensors"));
        assert_eq!(recent.files().iter().filter(|file| file.path == "/t/9.trace.safetensors").count(), 1);
        recent.remove("/t/9.trace.safetensors");
        assert_eq!(recent.files().len(), KEPT - 1);
    }

    #[test]
    fn missing_files_have_a_reason_until_they_are_back() {
        let mut recent = Recent::default();
        recent.add("/t/a", FileKind::Trace);
        recent.mark(&[("/t/a".to_owned(), "no such file or folder".to_owned())]);
        assert_eq!(recent.files()[0].problem.as_deref(), Some("no such file or folder"));
        recent.mark(&[]);
        assert_eq!(recent.files()[0].problem, None);
    }
}
