//! What a program of this machine does otherwise than a page in a browser: the clock, files and downloads, the clipboard,
//! dialogs, settings, threads. Chosen here; nothing above asks for which of the two it was compiled.

#[cfg(feature = "gui")]
mod background;
#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(feature = "gui")]
mod picker;
#[cfg(feature = "gui")]
mod store;
#[cfg(target_arch = "wasm32")]
mod web;

#[cfg(feature = "gui")]
pub(crate) use background::{BackgroundTasks, TaskResult};
#[cfg(not(target_arch = "wasm32"))]
pub use native::*;
#[cfg(feature = "gui")]
pub use picker::{Ask, Picked, Picker};
#[cfg(feature = "gui")]
pub use store::Store;
#[cfg(target_arch = "wasm32")]
pub use web::*;

/// What the window needs of either. [`Here`] is the one that this was compiled for.
#[cfg(feature = "gui")]
pub trait Platform {
    /// The window is a canvas of a page: no paths, no threads, and shortcuts that the browser keeps for itself.
    const IS_PAGE: bool;

    /// A path that still leads there when the program is started elsewhere.
    fn absolute(path: String) -> String;

    /// Which of these files are missing, with the reason.
    fn missing(paths: Vec<String>) -> Vec<(String, String)>;

    /// Where a person's own key lies, if there is a place for it.
    fn own_key_path() -> Option<String>;

    /// Writes a file of that path, or gives it to the person as a download.
    fn write_file(path: &str, bytes: &[u8]) -> Result<(), String>;

    /// Puts text on the clipboard, or says why it cannot.
    fn copy_text(ctx: &egui::Context, text: String) -> Result<(), String>;

    /// Whether another program would get `text` now; else what it would get instead. Takes up to two seconds: for a
    /// background task, some time after [`Self::copy_text`], which hands over at the end of its frame.
    fn check_copied(text: &str) -> Result<(), String>;

    /// Runs `work` beside the frames where there are threads, else at once.
    fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String>;
}
