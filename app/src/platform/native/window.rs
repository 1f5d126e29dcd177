//! What the desktop's window does by the system: files, the clipboard, threads.

use std::{path::Path, thread::Builder, time::Duration};

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

    /// By a connection of its own, as another program would ask: a window can believe that it owns the clipboard when
    /// nobody gets anything.
    fn check_copied(text: &str) -> Result<(), String> {
        // There only the window in front may ask, unless the compositor knows managers of clipboards.
        let cannot_ask = std::env::var_os("WAYLAND_DISPLAY").is_some_and(|name| !name.is_empty());
        let mut other = match arboard::Clipboard::new() {
            Ok(other) => other,
            Err(_) if cannot_ask => return Ok(()),
            Err(error) => return Err(format!("the system has no clipboard ({error})")),
        };
        let mut why = String::new();
        for _ in 0..20 {
            match other.get_text() {
                // Windows ends lines in its own way.
                Ok(found) if found == text || found.replace("\r\n", "\n") == text => return Ok(()),
                Ok(_) => why = "another program has put its own there".to_owned(),
                Err(error) => why = format!("other programs get nothing ({error})"),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        if cannot_ask { Ok(()) } else { Err(why) }
    }

    fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let spawned = Builder::new().name(name.to_owned()).spawn(work);
        spawned.map(drop).map_err(|error| format!("no thread could be started: {error}"))
    }
}
