//! What the desktop's window does by the system: files, the clipboard, threads.

use std::{path::Path, thread::Builder};

use crate::{files, platform::Platform};

/// The desktop.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Platform for Here {
    const IS_PAGE: bool = false;

    fn absolute(path: String) -> String {
        std::path::absolute(&path).map_or(path, |path| path.to_string_lossy().into_owned())
    }

    fn missing(paths: Vec<String>) -> Vec<(String, String)> {
        let look = |path: String| match std::fs::metadata(&path) {
            Ok(_) => None,
            Err(error) => Some((path, files::reason(&error))),
        };
        paths.into_iter().filter_map(look).collect()
    }

    fn own_key_path() -> Option<String> {
        crate::keys::default_path().map(|path| path.to_string_lossy().into_owned())
    }

    fn write_file(path: &str, bytes: &[u8]) -> Result<(), String> {
        files::write_atomically(Path::new(path), bytes).map_err(|error| format!("{error:#}"))
    }

    fn copy_text(ctx: &egui::Context, text: String) -> Result<(), String> {
        ctx.copy_text(text);
        Ok(())
    }

    fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let spawned = Builder::new().name(name.to_owned()).spawn(work);
        spawned.map(drop).map_err(|error| format!("no thread could be started: {error}"))
    }
}
