//! Algorithms that were the fastest of those tried, kept on disk for the next start.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{driver::Device, lt::Lt};

const FILE: &str = "algorithms.json";

/// What a file holds: the choices of one device with one version of cuBLASLt. Another device's are
/// forgotten: an algorithm is an index into tables that differ between versions.
#[derive(Default, Serialize, Deserialize)]
struct Known {
    of: String,
    algorithms: BTreeMap<String, [u64; 8]>,
}

/// Chosen algorithms by product.
pub(super) struct Remembered {
    file: Option<PathBuf>,
    known: Mutex<Known>,
}

impl Remembered {
    /// `cache`: the folder; `None`: nothing outlives the process. A file that cannot be read is as none.
    pub fn open(cache: Option<PathBuf>, device: &Device, lt: &Lt) -> Self {
        Self::read(cache.map(|cache| cache.join(FILE)), format!("{}, cuBLASLt {}", device.name, lt.version))
    }

    fn read(file: Option<PathBuf>, of: String) -> Self {
        let read = |file: &Path| serde_json::from_slice::<Known>(&std::fs::read(file).ok()?).ok();
        let known = file.as_deref().and_then(read).filter(|known| known.of == of);
        Self { file, known: Mutex::new(known.unwrap_or(Known { of, algorithms: BTreeMap::new() })) }
    }

    pub fn get(&self, product: &str) -> Option<[u64; 8]> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).algorithms.get(product).copied()
    }

    pub fn put(&self, product: &str, algorithm: [u64; 8]) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).algorithms.insert(product.to_owned(), algorithm);
    }

    /// Writes the file. A read-only or full disk costs the next start some milliseconds a shape, no more.
    pub fn save(&self) {
        let Some(file) = &self.file else { return };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        drop(write(file, &known));
    }
}

fn write(file: &Path, known: &Known) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut temporary, known)?;
    temporary.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_outlive_the_process_but_not_the_device() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cache").join(FILE);
        let first = Remembered::read(Some(file.clone()), "one GPU".to_owned());
        first.put("a product", [7; 8]);
        first.save();
        assert_eq!(Remembered::read(Some(file.clone()), "one GPU".to_owned()).get("a product"), Some([7; 8]));
        assert_eq!(Remembered::read(Some(file.clone()), "another".to_owned()).get("a product"), None);
        std::fs::write(&file, b"{torn").unwrap();
        assert_eq!(Remembered::read(Some(file), "one GPU".to_owned()).get("a product"), None);
    }
}
