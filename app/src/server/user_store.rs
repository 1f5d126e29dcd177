//! The file with the list of people while a server runs: takes its path, gives who is on it now, and says when that
//! changes.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{sync::watch, time::sleep};

use super::{
    limits,
    people::{People, User},
    token::TokenDigest,
};
use crate::files;

/// The list in a file; the line that refuses it ends with its name.
pub fn read(path: &Path) -> Result<People, String> {
    // Whoever writes to it comes in as anybody.
    let bytes = files::read_private(path, limits::PEOPLE_BYTES, 0o077, |mode| {
        format!("others can read or write this list of people (its mode is {mode:03o}, chmod 600): {}", path.display())
    });
    let bytes = bytes.map_err(|error| error.to_string())?;
    let failed = |line: &str| format!("{line}: {}", path.display());
    let text = String::from_utf8(bytes).map_err(|_| failed("not text"))?;
    People::from_json(&text).map_err(|line| failed(&line))
}

pub fn write(path: &Path, people: &People) -> anyhow::Result<()> {
    files::write_privately(path, people.to_json().as_bytes())
}

/// The list as it is now.
#[derive(Debug)]
pub struct UserStore {
    path: PathBuf,
    now: watch::Sender<Arc<People>>,
}

impl UserStore {
    pub fn open(path: &Path) -> Result<Self, String> {
        let people = read(path)?;
        if people.users().is_empty() {
            return Err(format!("nobody is on the list of people (see `loka user add`): {}", path.display()));
        }
        // The process goes to the served folder.
        let path = std::path::absolute(path).map_err(|error| format!("{error}: {}", path.display()))?;
        Ok(Self { path, now: watch::Sender::new(Arc::new(people)) })
    }

    pub fn of_token(&self, token: &TokenDigest) -> Option<User> {
        self.now.borrow().of_token(token).cloned()
    }

    pub fn user_handle(&self, token: TokenDigest) -> UserHandle {
        UserHandle { token, people: self.now.subscribe() }
    }

    /// Takes up what is changed in the file, until the end of the server. A list that cannot be read changes nothing:
    /// who runs the server is told, once.
    pub async fn keep_up(self: Arc<Self>) {
        let mut told = None;
        loop {
            sleep(limits::PEOPLE_EVERY).await;
            let path = self.path.clone();
            let Ok(found) = tokio::task::spawn_blocking(move || read(&path)).await else { continue };
            let problem = self.take(found).err();
            if let Some(line) = problem.as_ref().filter(|line| told.as_ref() != Some(*line)) {
                // Nobody may read it.
                drop(writeln!(std::io::stderr(), "loka: the list of people is as it was before: {line}"));
            }
            told = problem;
        }
    }

    fn take(&self, found: Result<People, String>) -> Result<(), String> {
        let found = found?;
        self.now.send_if_modified(|now| {
            let changed = **now != found;
            if changed {
                *now = Arc::new(found);
            }
            changed
        });
        Ok(())
    }
}

/// What a connection shows of who it is: what its person may do can change, and end, while it lasts.
#[derive(Clone, Debug)]
pub struct UserHandle {
    token: TokenDigest,
    people: watch::Receiver<Arc<People>>,
}

impl UserHandle {
    /// `None`: the token counts no more.
    pub fn user(&self) -> Option<User> {
        self.people.borrow().of_token(&self.token).cloned()
    }

    /// Returns when the list is another.
    pub async fn changed(&mut self) {
        if self.people.changed().await.is_err() {
            // The server ends, and says so itself.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use loka_core::review::Role;

    use super::*;
    use crate::server::Token;

    #[test]
    fn what_is_changed_in_the_file_is_taken_up_and_what_is_broken_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.json");
        let (anna, bo) = (Token::random().unwrap(), Token::random().unwrap());
        let mut people = People::default();
        write(&path, &people).unwrap();
        assert!(UserStore::open(&path).unwrap_err().starts_with("nobody is on the list of people"));
        people.add("Anna", Role::Viewer, anna.digest()).unwrap();
        people.add("Bo", Role::Owner, bo.digest()).unwrap();
        write(&path, &people).unwrap();
        let user_store = UserStore::open(&path).unwrap();
        let user_handle = user_store.user_handle(anna.digest());
        assert_eq!(user_handle.user().map(|user| user.role), Some(Role::Viewer));
        people.set_role("Anna", Role::Reviewer).unwrap();
        write(&path, &people).unwrap();
        user_store.take(read(&path)).unwrap();
        assert_eq!(user_handle.user().map(|user| user.role), Some(Role::Reviewer));
        assert!(user_handle.people.has_changed().unwrap());
        std::fs::write(&path, "{").unwrap();
        assert!(user_store.take(read(&path)).is_err());
        assert!(user_handle.user().is_some(), "a slip throws nobody out");
        people.remove("Anna").unwrap();
        write(&path, &people).unwrap();
        user_store.take(read(&path)).unwrap();
        assert_eq!((user_handle.user(), user_store.of_token(&anna.digest())), (None, None));
        assert!(user_store.of_token(&bo.digest()).is_some());
    }

    #[test]
    #[cfg(unix)]
    fn a_list_that_others_can_read_or_write_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.json");
        write(&path, &People::default()).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        for open in [0o640, 0o604, 0o620, 0o602, 0o644, 0o610] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(open)).unwrap();
            let line = read(&path).unwrap_err();
            assert!(line.starts_with("others can read or write this list of people"), "{open:o}: {line}");
            assert!(line.ends_with("users.json"), "{line}");
        }
        assert!(read(&folder.path().join("none")).unwrap_err().starts_with("no such file or folder: "));
        assert!(read(folder.path()).is_err());
    }
}
