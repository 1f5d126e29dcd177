//! Takes the key of a person's file and what is to be signed, gives the approval. The key stays in this process.

use loka_core::review::{Approval, SecretKey, Statement};

/// In the name of the key: a server that knows the person by another refuses it, and so does this.
pub fn signed(statement: Statement, key: &SecretKey) -> Result<Approval, String> {
    if key.name != statement.name {
        let (of, you) = (&key.name, &statement.name);
        return Err(format!("the key is {of}'s, and you are {you} here: sign with a key of that name (loka key new)"));
    }
    Ok(Approval::sign(statement, key))
}

/// A key as its file holds it.
pub fn key_of(text: &str) -> Result<SecretKey, String> {
    SecretKey::from_json(text).map_err(|error| error.to_string())
}

#[cfg(not(target_arch = "wasm32"))]
pub use native::{own_key_path, read_key};

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::path::{Path, PathBuf};

    use loka_core::review::SecretKey;

    use crate::files;

    /// Where `loka key new` puts a person's own; `None` without a home.
    #[cfg(feature = "gui")]
    pub fn own_key_path() -> Option<PathBuf> {
        use etcetera::base_strategy::{BaseStrategy, choose_native_strategy};
        let folder = choose_native_strategy().ok()?.config_dir();
        Some(folder.join("loka").join("key.json"))
    }

    /// Refuses a file that others can read: whoever has it signs as its owner.
    pub fn read_key(path: &Path) -> Result<SecretKey, String> {
        let failed = |error: std::io::Error| format!("{}: {}", files::reason(&error), path.display());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
            if mode & 0o077 != 0 {
                return Err(format!("others can read this key: run chmod 600 on it first: {}", path.display()));
            }
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        super::key_of(&text).map_err(|reason| format!("{reason}: {}", path.display()))
    }
}
