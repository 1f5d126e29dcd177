//! Where settings are kept: a file in the user's configuration folder, or a page's storage.

/// One text that outlives the window.
pub trait Store: Send + Sync {
    /// `None`: nothing was stored yet.
    fn load(&self) -> Result<Option<String>, String>;

    fn save(&self, text: &str) -> Result<(), String>;

    /// Keeps what is stored under another name; gives that name.
    fn set_aside(&self) -> Result<String, String>;
}
