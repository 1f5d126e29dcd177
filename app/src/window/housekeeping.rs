//! What a window has to do beside its session: settings, recent files, the system's dialogs, the log's clock.

use loka_core::session::FileKind;

use crate::{
    commands::{Action, Finder, WindowAction},
    panels::Fading,
    platform::{BackgroundTasks, Here, Picker, Platform as _, TaskResult},
    settings::{Settings, SettingsStore},
    state::{Clock, Dialog, ViewState},
};

/// Actions that are remembered.
const REMEMBERED: usize = 16;

pub(crate) struct Housekeeping {
    pub background: BackgroundTasks,
    pub picker: Option<Box<dyn Picker>>,
    pub clock: Clock,
    pub(super) settings_store: SettingsStore,
    pub(super) fading: Fading,
    /// What the system's dialog was asked.
    pub(super) asked: Option<Dialog>,
    /// Without the zoom of the text.
    pub(super) window: Option<[f32; 2]>,
}

impl Housekeeping {
    pub fn new(background: BackgroundTasks) -> Self {
        Self {
            background,
            picker: None,
            clock: || None,
            settings_store: SettingsStore::default(),
            fading: Fading::default(),
            asked: None,
            window: None,
        }
    }

    /// What is remembered becomes what is seen.
    pub fn take_up(&mut self, view: &mut ViewState, settings_store: SettingsStore, settings: Settings) {
        view.layout = settings.layout.unwrap_or_default();
        view.ground = settings.ground;
        view.text_size = settings.text_size.unwrap_or(1.0);
        view.recent = settings.recent;
        view.tour.seen = settings.tour_seen;
        (self.settings_store, self.window) = (settings_store, settings.window);
    }

    /// Files on a slow disk are looked for beside the frame.
    pub fn look_for_recent(&self, view: &ViewState) {
        let paths: Vec<String> = view.recent.files().iter().map(|file| file.path.clone()).collect();
        if !paths.is_empty() {
            self.background.run("loka-recent", move || Some(TaskResult::Missing(Here::missing(paths))));
        }
    }

    /// What was done last comes first in the palette; moving about is not what anyone looks for there.
    pub fn note(&self, finder: &mut Finder, action: Action) {
        let moves = [WindowAction::Palette, WindowAction::Back].map(Action::Window);
        if matches!(action, Action::Select(_)) || moves.contains(&action) {
            return;
        }
        finder.recent.retain(|known| *known != action);
        finder.recent.insert(0, action);
        finder.recent.truncate(REMEMBERED);
    }

    /// A file is open: it is offered the next time.
    pub fn remember_opened(&mut self, view: &mut ViewState, path: String, kind: FileKind) {
        view.recent.add(&Here::absolute(path), kind);
    }

    pub fn close(&mut self, view: &ViewState) {
        let settings = settings_of(view, self.window);
        self.settings_store.close(&settings);
    }
}

pub(super) fn settings_of(view: &ViewState, window: Option<[f32; 2]>) -> Settings {
    Settings {
        layout: Some(view.layout.clone()),
        ground: view.ground,
        text_size: (view.text_size != 1.0).then_some(view.text_size),
        recent: view.recent.clone(),
        window,
        tour_seen: view.tour.seen,
    }
}
