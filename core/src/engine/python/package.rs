//! The Python side of the worker and of the cluster's driver, carried in this binary. Gives a folder that Python can import it from.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::ProcessError;

/// Every file of the Python package: (path, text). All of it: sites are timed as `loka.apply` runs them. Listed by
/// `build.rs`.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/python_files.rs"));

/// The package on disk, in a folder of its own: two versions of LoKA never share one. Removed on drop.
#[derive(Debug)]
pub struct Package {
    root: PathBuf,
    scratch: PathBuf,
    _folder: TempDir,
}

impl Package {
    pub fn write() -> Result<Self, ProcessError> {
        let failed = |error: io::Error| ProcessError::Start {
            cause: error.to_string(),
            python: std::env::temp_dir().display().to_string(),
        };
        let folder = tempfile::Builder::new().prefix("loka-worker-").tempdir().map_err(failed)?;
        let (root, scratch) = (folder.path().join("python"), folder.path().join("scratch"));
        fs::create_dir_all(&scratch).map_err(failed)?;
        for (path, text) in FILES {
            let path = root.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(failed)?;
            }
            fs::write(path, text).map_err(failed)?;
        }
        Ok(Self { root, scratch, _folder: folder })
    }

    /// What goes on Python's path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// For tensors that travel as files.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn python_files(folder: &Path, into: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                python_files(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "py" || extension == "json") {
                into.insert(path);
            }
        }
    }

    #[test]
    fn every_file_of_the_package_is_carried() {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
        let mut found = BTreeSet::new();
        python_files(&python.join("loka"), &mut found);
        let carried: BTreeSet<_> = FILES.iter().map(|(path, _)| python.join(path)).collect();
        assert_eq!(found, carried);
    }

    #[test]
    fn the_folder_goes_with_the_package() {
        let package = Package::write().unwrap();
        let root = package.root().to_owned();
        assert!(root.join("loka/worker/__main__.py").is_file() && package.scratch().is_dir());
        drop(package);
        assert!(!root.exists());
    }
}
