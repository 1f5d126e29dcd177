//! The open results file while it is open: takes what happened to it on disk, gives a line and, where its rows
//! could be newer, an offer to read it again. Rows never change by themselves.

use serde::{Deserialize, Serialize};

use super::{Command, NoticeAction, NoticeKind, Session};

/// What happened to a file that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// It grew or was replaced, and has been quiet since.
    Changed,
    Gone,
}

impl Session {
    pub(super) fn file_changed(&mut self, path: &str, change: FileChange) {
        if self.results_file.as_deref() != Some(path) {
            return;
        }
        let reload = Command::OpenResults { path: path.to_owned() };
        // Of several changes the last one counts.
        self.notices.withdraw(|offer| *offer == reload);
        match change {
            FileChange::Changed => {
                let action = NoticeAction { text: "Reload".to_owned(), command: reload };
                self.notices.offer(NoticeKind::Info, format!("The results file changed on disk: {path}"), action);
            }
            FileChange::Gone => {
                let text = format!("The results file is gone; its rows are kept here until you save them: {path}");
                self.notices.tell(NoticeKind::Warning, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::{results, row},
        model::Gemm,
        session::Event,
    };

    fn opened() -> Session {
        let rows = vec![row("a", Gemm::Fprop, "te/current", 0.1, None, 0.0)];
        let mut session = Session::default();
        let results = Box::new(results(&["a"], rows).into());
        session.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results });
        session
    }

    fn changed(session: &mut Session, path: &str, change: FileChange) {
        session.event(Event::FileChanged { path: path.to_owned(), change });
    }

    #[test]
    fn a_change_is_offered_once() {
        let mut session = opened();
        let before = session.rows().count();
        changed(&mut session, "r.parquet", FileChange::Changed);
        changed(&mut session, "r.parquet", FileChange::Changed);
        assert_eq!(session.notices.len(), 1);
        let action = session.notices[0].action.clone().unwrap();
        assert_eq!(action.command, Command::OpenResults { path: "r.parquet".to_owned() });
        assert_eq!(session.rows().count(), before);
    }

    #[test]
    fn a_file_that_is_gone_keeps_its_rows() {
        let mut session = opened();
        changed(&mut session, "r.parquet", FileChange::Gone);
        assert!(session.has_rows() && session.notices[0].text.contains("is gone"));
    }

    #[test]
    fn another_file_is_nothing_to_us() {
        let mut session = opened();
        changed(&mut session, "other.parquet", FileChange::Gone);
        assert!(session.notices.is_empty());
    }
}
