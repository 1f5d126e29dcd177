//! What a page's window does by the browser.

use super::{clipboard::copy_text, save};
use crate::platform::Platform;

/// The page.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Platform for Here {
    const IS_PAGE: bool = true;

    fn absolute(path: String) -> String {
        path
    }

    /// What was dropped on a page is gone with it: the page itself marks that.
    fn missing(_: Vec<String>) -> Vec<(String, String)> {
        Vec::new()
    }

    fn own_key_path() -> Option<String> {
        None
    }

    fn write_file(name: &str, bytes: &[u8]) -> Result<(), String> {
        save(name, bytes)
    }

    fn copy_text(ctx: &egui::Context, text: String) -> Result<(), String> {
        if !copy_text(&text)? {
            ctx.copy_text(text);
        }
        Ok(())
    }

    /// A page may not read what is there without asking the person.
    fn check_copied(_: &str) -> Result<(), String> {
        Ok(())
    }

    fn spawn(_: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
        work();
        Ok(())
    }
}
