//! Files that a page was handed, by name: takes their bytes, gives them to whoever opens one. They stay until the
//! page is left, so that a file can be opened again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Of one file: a page has 4 GB for everything, and what is made of a file needs room beside it.
pub const MOST_BYTES: u64 = 1 << 30;
/// Of all files together.
const MOST_TOGETHER: u64 = 2 << 30;

/// Clones share their files.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles(Arc<Mutex<BTreeMap<String, Arc<[u8]>>>>);

impl MemoryFiles {
    /// A newer file of the same name takes the place of the older. The error is one line.
    pub fn put(&self, name: &str, bytes: Arc<[u8]>) -> Result<(), String> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others: u64 = files.iter().filter(|(of, _)| *of != name).map(|(_, bytes)| bytes.len() as u64).sum();
        if let Some(line) = refused(bytes.len() as u64, others) {
            return Err(format!("{line}: {name}"));
        }
        files.insert(name.to_owned(), bytes);
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<Arc<[u8]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// Why so many bytes are not taken; `None`: they are.
fn refused(size: u64, others: u64) -> Option<String> {
    let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
    if size > MOST_BYTES {
        let (size, most) = (gib(size), gib(MOST_BYTES));
        return Some(format!("{size:.1} GiB is more than a page can hold ({most} GiB): open it with the loka program"));
    }
    (size + others > MOST_TOGETHER)
        .then(|| format!("this page holds {:.1} GiB of files: load it again to make room", gib(others)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_newest_file() {
        let memory = MemoryFiles::default();
        memory.clone().put("a", Arc::from(*b"one")).unwrap();
        memory.put("a", Arc::from(*b"two")).unwrap();
        assert_eq!(memory.get("a").as_deref(), Some(b"two".as_slice()));
        assert!(memory.get("b").is_none());
    }

    #[test]
    fn what_does_not_fit_is_a_line() {
        let too_large = refused(MOST_BYTES + MOST_BYTES / 2, 0).unwrap();
        assert_eq!(too_large, "1.5 GiB is more than a page can hold (1 GiB): open it with the loka program");
        let full = refused(MOST_BYTES, MOST_BYTES + 1).unwrap();
        assert_eq!(full, "this page holds 1.0 GiB of files: load it again to make room");
        assert_eq!(refused(MOST_BYTES, MOST_BYTES), None);
    }
}
