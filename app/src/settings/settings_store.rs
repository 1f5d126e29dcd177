//! Stores settings a moment after a change and at the end; says once when that fails, and goes on.

use std::sync::Arc;

use super::Settings;
use crate::platform::{BackgroundTasks, Store, TaskResult};

/// Seconds without a change before it is stored: a drag is one change.
const MOMENT: f64 = 1.0;

/// What is stored, and what waits to be.
#[derive(Default)]
pub struct SettingsStore {
    store: Option<Arc<dyn Store>>,
    /// As it was stored last, or handed to a thread that stores it.
    stored: String,
    /// What differs from it, and since when.
    waiting: Option<(String, f64)>,
    busy: bool,
    /// What was looked at last: most frames change nothing, and writing it as text each time is for nothing.
    seen: Option<Settings>,
    /// The person knows that nothing is stored.
    told: bool,
}

impl SettingsStore {
    /// Reads what a store has. The line says what could not be used, and where it is now.
    pub fn open(store: Arc<dyn Store>) -> (Self, Settings, Option<String>) {
        let text = match store.load() {
            Ok(text) => text.unwrap_or_default(),
            // What cannot be read may be whole: it must not be written over.
            Err(error) => {
                let line = format!("The settings cannot be read, and changes are not kept: {error}");
                return (Self::default(), Settings::default(), Some(line));
            }
        };
        if text.is_empty() {
            return (Self { store: Some(store), ..Self::default() }, Settings::default(), None);
        }
        let (settings, problem) = Settings::from_json(&text);
        let Some(problem) = problem else {
            return (Self { store: Some(store), stored: text, ..Self::default() }, settings, None);
        };
        match store.set_aside() {
            Ok(aside) => {
                let line = format!("The settings were partly unusable and are set aside ({problem}): {aside}");
                (Self { store: Some(store), ..Self::default() }, settings, Some(line))
            }
            Err(error) => {
                let line = format!("The settings are unusable ({problem}), and changes are not kept: {error}");
                (Self::default(), settings, Some(line))
            }
        }
    }

    /// Takes the settings of now; gives the seconds until it wants to look again.
    pub fn tick(&mut self, now: f64, settings: impl FnOnce() -> Settings, background: &BackgroundTasks) -> Option<f64> {
        let store = self.store.clone()?;
        let settings = settings();
        if self.waiting.is_none() && self.seen.as_ref() == Some(&settings) {
            return None;
        }
        let text = settings.to_json();
        self.seen = Some(settings);
        if text == self.stored {
            self.waiting = None;
            return None;
        }
        let since = match &self.waiting {
            Some((known, since)) if *known == text => *since,
            _ => now,
        };
        self.waiting = Some((text.clone(), since));
        let left = since + MOMENT - now;
        if left > 0.0 {
            return Some(left);
        }
        if self.busy {
            // Its report wakes the window.
            return None;
        }
        (self.busy, self.waiting, self.stored) = (true, None, text.clone());
        background.run("loka-settings", move || Some(TaskResult::Stored(store.save(&text))));
        None
    }

    /// A failure is a line once; the next change is tried again in silence.
    pub fn stored(&mut self, outcome: Result<(), String>) -> Option<String> {
        self.busy = false;
        match outcome {
            Ok(()) => {
                self.told = false;
                None
            }
            Err(error) => (!std::mem::replace(&mut self.told, true))
                .then(|| format!("Settings could not be stored; the window works on without: {error}")),
        }
    }

    /// The window closes: what waits is stored now.
    pub fn close(&mut self, settings: &Settings) {
        let text = settings.to_json();
        if let Some(store) = self.store.take()
            && text != self.stored
        {
            // Nobody is left to be told.
            drop(store.save(&text));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::theme::Ground;

    #[derive(Default)]
    struct MemoryStore {
        text: Mutex<Option<String>>,
        aside: Mutex<Option<String>>,
        full: bool,
    }

    impl Store for MemoryStore {
        fn load(&self) -> Result<Option<String>, String> {
            Ok(self.text.lock().unwrap().clone())
        }

        fn save(&self, text: &str) -> Result<(), String> {
            if self.full {
                return Err("the disk is full: settings.json".to_owned());
            }
            *self.text.lock().unwrap() = Some(text.to_owned());
            Ok(())
        }

        fn set_aside(&self) -> Result<String, String> {
            *self.aside.lock().unwrap() = self.text.lock().unwrap().take();
            Ok("settings.broken.json".to_owned())
        }
    }

    fn light() -> Settings {
        Settings { ground: Ground::Light, ..Settings::default() }
    }

    #[test]
    fn a_change_is_stored_a_moment_later() {
        let (store, background) = (Arc::new(MemoryStore::default()), BackgroundTasks::inline());
        let (mut settings_store, ..) = SettingsStore::open(store.clone());
        assert_eq!(settings_store.tick(0.0, light, &background), Some(MOMENT));
        assert!(store.text.lock().unwrap().is_none(), "not at once");
        assert_eq!(settings_store.tick(1.1, light, &background), None);
        let Some(TaskResult::Stored(outcome)) = background.poll() else { panic!("not stored") };
        assert_eq!(settings_store.stored(outcome), None);
        assert_eq!(store.text.lock().unwrap().as_deref(), Some(light().to_json().as_str()));
        assert_eq!(settings_store.tick(9.0, light, &background), None, "nothing changed");
        assert!(background.poll().is_none());
    }

    #[test]
    fn a_full_disk_is_told_once() {
        let (store, background) =
            (Arc::new(MemoryStore { full: true, ..MemoryStore::default() }), BackgroundTasks::inline());
        let (mut settings_store, ..) = SettingsStore::open(store);
        let mut told = 0;
        for (at, ground) in [(0.0, Ground::Light), (10.0, Ground::Dark)] {
            let settings = || Settings { ground, ..Settings::default() };
            settings_store.tick(at, settings, &background);
            settings_store.tick(at + 2.0, settings, &background);
            let Some(TaskResult::Stored(outcome)) = background.poll() else { panic!("not tried") };
            told += usize::from(settings_store.stored(outcome).is_some());
        }
        assert_eq!(told, 1);
    }

    #[test]
    fn broken_settings_are_set_aside_whole() {
        let store = Arc::new(MemoryStore { text: Mutex::new(Some("{broken".to_owned())), ..MemoryStore::default() });
        let (_, settings, line) = SettingsStore::open(store.clone());
        assert_eq!(settings.to_json(), Settings::default().to_json());
        assert!(line.unwrap().ends_with("settings.broken.json"));
        assert_eq!(store.aside.lock().unwrap().as_deref(), Some("{broken"));
    }

    #[test]
    fn closing_stores_what_waits() {
        let store = Arc::new(MemoryStore::default());
        let (mut settings_store, ..) = SettingsStore::open(store.clone());
        settings_store.close(&light());
        assert_eq!(store.text.lock().unwrap().as_deref(), Some(light().to_json().as_str()));
    }
}
