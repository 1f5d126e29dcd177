//! The file dialog of the desktop: its portal, or zenity.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake},
    thread::Thread,
    time::{Duration, Instant},
};

use crate::platform::{Ask, Picked, Picker};

/// Why there is no dialog, and the way around.
const NO_DIALOG: &str = "This desktop has no file dialog: install xdg-desktop-portal or zenity, or type the path.";

/// No person closes a dialog that fast.
const AT_ONCE: Duration = Duration::from_millis(250);

/// The dialog of the desktop.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemPicker;

impl Picker for SystemPicker {
    fn begin(&self, ask: &Ask) -> Box<dyn FnOnce() -> Picked + Send> {
        let mut dialog = rfd::AsyncFileDialog::new().set_title(&ask.title);
        if !ask.folder.is_empty() {
            dialog = dialog.set_directory(&ask.folder);
        }
        let text = |file: rfd::FileHandle| file.path().to_string_lossy().into_owned();
        if ask.save {
            let picked = dialog.set_file_name(&ask.name).save_file();
            return Box::new(move || told(|| wait(picked).map(|file| vec![text(file)])));
        }
        let picked = dialog
            .add_filter("Traces, results, plans", &["safetensors", "parquet", "json"])
            .add_filter("All files", &["*"])
            .pick_files();
        Box::new(move || told(|| wait(picked).map(|files| files.into_iter().map(text).collect())))
    }

    fn problem(&self) -> Option<String> {
        (!has_bus() && !has_zenity()).then(|| NO_DIALOG.to_owned())
    }
}

/// Nothing, at once, with nothing that could have shown a dialog: there was none.
fn told(pick: impl FnOnce() -> Option<Vec<String>>) -> Picked {
    let start = Instant::now();
    match pick() {
        None if cfg!(target_os = "linux") && start.elapsed() < AT_ONCE && !has_zenity() => Err(NO_DIALOG.to_owned()),
        picked => Ok(picked.unwrap_or_default()),
    }
}

/// The portal is called over the session's bus.
fn has_bus() -> bool {
    let named = std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some_and(|address| !address.is_empty());
    let usual = std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|folder| {
        let folder = std::path::PathBuf::from(folder);
        folder.join("bus").exists()
    });
    !cfg!(target_os = "linux") || named || usual
}

fn has_zenity() -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join("zenity").is_file())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a dialog on this thread, asleep.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_another_thread_answers() {
        let (sender, receiver) = std::sync::mpsc::channel::<std::task::Waker>();
        let answered = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = answered.clone();
        std::thread::spawn(move || {
            let waker = receiver.recv().unwrap();
            answered.store(true, std::sync::atomic::Ordering::SeqCst);
            waker.wake();
        });
        wait(std::future::poll_fn(move |context| {
            if seen.load(std::sync::atomic::Ordering::SeqCst) {
                return Poll::Ready(());
            }
            drop(sender.send(context.waker().clone()));
            Poll::Pending
        }));
    }
}
