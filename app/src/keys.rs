//! Keys on the disk: takes where they lie, gives them read with every check, or makes new ones. What is in a file of
//! them is `loka_core::review`'s.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use loka_core::review::{KeyRing, SecretKey};

use crate::files;

/// As the system calls whoever runs this.
pub fn user_name() -> Option<String> {
    let known = ["USER", "USERNAME", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    known.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Where the user's own key lies unless they say otherwise; `None` without a home.
#[cfg(feature = "gui")]
pub fn default_path() -> Option<PathBuf> {
    use etcetera::base_strategy::{BaseStrategy as _, choose_native_strategy};
    let folder = choose_native_strategy().ok()?.config_dir();
    Some(folder.join("loka").join("key.json"))
}

#[cfg(not(feature = "gui"))]
pub fn default_path() -> Option<PathBuf> {
    None
}

/// From the system's random source.
pub fn make(name: &str) -> anyhow::Result<SecretKey> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).context("the system gives no random numbers")?;
    Ok(SecretKey::new(name, &seed)?)
}

/// A secret key, which nobody but its owner may be able to read.
pub fn read(path: &Path) -> anyhow::Result<SecretKey> {
    let text = files::read_secret(path)?;
    SecretKey::from_json(&text).map_err(|error| anyhow::anyhow!("{error}: {}", path.display()))
}

/// A team's list.
pub fn read_ring(path: &Path) -> anyhow::Result<KeyRing> {
    let text = files::read_text(path)?;
    KeyRing::from_json(&text).map_err(|error| anyhow::anyhow!("{error}: {}", path.display()))
}

/// What is given, or the user's own.
pub fn path_or_default(given: Option<&Path>, option: &str) -> anyhow::Result<PathBuf> {
    let path = given.map(Path::to_owned).or_else(default_path);
    path.with_context(|| format!("this build knows no folder of the user's settings: say where the key is, {option}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_owners_alone_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.json");
        let key = make("Anna").unwrap();
        assert_ne!(key.public(), make("Anna").unwrap().public());
        files::write_secret(&path, key.to_json().as_bytes()).unwrap();
        assert_eq!(read(&path).unwrap().public(), key.public());
        let line = files::write_secret(&path, b"x").unwrap_err().to_string();
        assert_eq!(line, format!("there is a file already, it stays: {}", path.display()));
        assert_eq!(read(&path).unwrap().public(), key.public());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary is left");
        let nowhere = folder.path().join("no/key.json");
        assert!(files::write_secret(&nowhere, b"x").unwrap_err().to_string().starts_with("no such folder: "));
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_refused_with_what_to_run() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.json");
        files::write_secret(&path, make("Anna").unwrap().to_json().as_bytes()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let line = read(&path).unwrap_err().to_string();
            let expected = format!("others can get at this secret key (its mode is {mode:o}): chmod 600 ");
            assert_eq!(line, expected + &path.display().to_string());
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(read(&path).unwrap().name, "Anna");
    }
}
