//! The system's file dialog: takes what is asked, gives the paths that a person picked. A frame never waits for
//! it.

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    pub title: String,
    /// One file to write; otherwise files to open.
    pub save: bool,
    /// Where it begins; empty: where the system likes.
    pub folder: String,
    /// A name to begin with.
    pub name: String,
}

/// Paths, none when the person thought better of it, or why there is no dialog.
pub type Picked = Result<Vec<String>, String>;

/// Shows file dialogs.
pub trait Picker {
    /// Begins on the thread that draws; what it gives is called on another and may wait there.
    fn begin(&self, ask: &Ask) -> Box<dyn FnOnce() -> Picked + Send>;

    /// Why it cannot, as far as that is known beforehand.
    fn problem(&self) -> Option<String>;
}
