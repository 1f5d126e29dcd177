//! Settings in a file of the user's configuration folder.

use std::path::PathBuf;

use etcetera::base_strategy::{BaseStrategy, choose_native_strategy};

use crate::{files, platform::Store};

/// A file, written whole or not at all.
#[derive(Clone, Debug)]
pub struct FileStore {
    path: PathBuf,
}

impl FileStore {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// In the user's configuration folder; `None` without a home.
    pub fn of_user() -> Option<Self> {
        let folder = choose_native_strategy().ok()?.config_dir();
        Some(Self::at(folder.join("loka").join("settings.json")))
    }
}

impl Store for FileStore {
    fn load(&self) -> Result<Option<String>, String> {
        if !self.path.exists() {
            return Ok(None);
        }
        // What is no text is broken, and goes the way of all that is.
        let bytes = files::read(&self.path, files::SMALL).map_err(|error| error.to_string())?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn save(&self, text: &str) -> Result<(), String> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|error| format!("{}: {}", files::reason(&error), folder.display()))?;
        }
        files::write_atomically(&self.path, text.as_bytes()).map_err(|error| format!("{error:#}"))
    }

    fn set_aside(&self) -> Result<String, String> {
        let aside = self.path.with_extension("broken.json");
        let moved = std::fs::rename(&self.path, &aside);
        moved.map_err(|error| format!("{}: {}", files::reason(&error), aside.display()))?;
        Ok(aside.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_and_goes_aside() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::at(folder.path().join("new/settings.json"));
        assert_eq!(store.load(), Ok(None));
        store.save("{}").unwrap();
        assert_eq!(store.load(), Ok(Some("{}".to_owned())));
        let aside = store.set_aside().unwrap();
        assert_eq!((store.load(), std::fs::read_to_string(aside).unwrap().as_str()), (Ok(None), "{}"));
    }

    #[test]
    fn a_folder_that_cannot_be_is_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let line = FileStore::at(file.join("settings.json")).save("{}").unwrap_err();
        assert!(!line.contains('\n') && line.contains("file"), "{line}");
    }
}
