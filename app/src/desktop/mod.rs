//! Takes files from the command line, opens the native window with the engine of this process and what was
//! remembered of the last one.

mod pipe;

use std::{path::PathBuf, sync::Arc};

use loka_core::session::shared::Author;

use crate::{
    clock::seconds_of_utc,
    executor::Wake,
    keys,
    link::InProcess,
    platform::{FileStore, Store, SystemPicker, ThreadExecutor},
    settings::Settings,
    window::LokaApp,
};

const SIZE: [f32; 2] = [1440.0, 900.0];
const LEAST: [f32; 2] = [400.0, 300.0];

/// Returns when the window is closed. `driven`: a program asks on stdin what is on screen.
pub fn open(paths: Vec<PathBuf>, driven: bool) -> anyhow::Result<()> {
    let store: Option<Arc<dyn Store>> = FileStore::of_user().map(|store| Arc::new(store) as Arc<dyn Store>);
    let viewport = egui::ViewportBuilder::default()
        .with_title("LoKA")
        .with_app_id("loka")
        .with_inner_size(remembered_size(store.as_deref()))
        .with_min_inner_size(LEAST);
    let options = eframe::NativeOptions { viewport, ..eframe::NativeOptions::default() };
    let create = move |context: &eframe::CreationContext<'_>| {
        let ctx = context.egui_ctx.clone();
        let wake: Wake = Arc::new(move || ctx.request_repaint());
        let executor = ThreadExecutor::new(wake.clone()).with_journal();
        let link = InProcess::new(executor).with_author_of(me);
        let mut app = LokaApp::new(Box::new(link)).with_wake(wake).with_suggestions(nearby());
        app = app.with_picker(Box::new(SystemPicker)).with_clock(seconds_of_utc);
        if let Some(store) = store {
            app = app.with_store(store);
        }
        if let Some(state) = &context.wgpu_render_state {
            app = app.with_gpu(state.target_format);
        }
        if driven {
            app = app.with_drive(pipe::drive(&context.egui_ctx));
        }
        app.open_all(paths.iter().map(|path| path.to_string_lossy().into_owned()).collect());
        Ok(Box::new(app) as Box<dyn eframe::App>)
    };
    let opened = eframe::run_native("loka", options, Box::new(create));
    opened.map_err(|error| anyhow::anyhow!("the window could not be opened: {error}"))
}

/// The size is needed before there is a window; what is wrong with the settings is told in it.
fn remembered_size(store: Option<&dyn Store>) -> [f32; 2] {
    let text = store.and_then(|store| store.load().ok().flatten()).unwrap_or_default();
    let size = Settings::from_json(&text).0.window.unwrap_or(SIZE);
    [size[0].max(LEAST[0]), size[1].max(LEAST[1])]
}

/// Whose commands the journal keeps: as the person's own key calls them, which they sign with, else as the system does.
fn me() -> Author {
    let of_key = || keys::read(&keys::default_path()?).ok().map(|key| key.name);
    let name = of_key().or_else(keys::user_name);
    Author::new(1, name.as_deref().unwrap_or("the desktop"))
}

/// Traces in this folder and in `sample-traces`, for the empty screen.
fn nearby() -> Vec<String> {
    let of = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = [".", "sample-traces"].into_iter().flat_map(of).map(|entry| entry.path());
    let traces = paths.filter(|path| path.to_string_lossy().ends_with(".trace.safetensors"));
    let mut names: Vec<String> =
        traces.map(|path| path.to_string_lossy().trim_start_matches("./").to_owned()).collect();
    names.sort();
    names.truncate(8);
    names
}
