//! Takes files from the command line, opens the native window with the engine of this process and what was
//! remembered of the last one.

mod pipe;

use std::{path::PathBuf, sync::Arc};

use loka_core::session::shared::Author;

use crate::{
    clock::seconds_of_utc,
    executor::Wake,
    keys,
    layout::Layout,
    link::InProcess,
    platform::{FileStore, Store, SystemPicker, ThreadExecutor},
    settings::Settings,
    theme::Ground,
    window::{LokaApp, script::Script},
};

const SIZE: [f32; 2] = [1440.0, 900.0];
const LEAST: [f32; 2] = [400.0, 300.0];

/// How a window is opened.
#[derive(Default)]
pub struct WindowSetup {
    /// Width and height in points, in place of the remembered ones.
    pub size: Option<[f32; 2]>,
    pub ground: Option<Ground>,
    pub layout: Option<Layout>,
    /// What it does by itself.
    pub script: Script,
    /// A program asks on stdin what is on screen.
    pub driven: bool,
}

/// Whether a window can be shown to anybody.
pub fn has_display() -> bool {
    !cfg!(target_os = "linux") || ["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET"].iter().any(|name| !unset(name))
}

/// Returns when the window is closed. One that makes a picture has neither settings nor a journal, and what the rest of
/// `setup` says alone: the same picture on every machine.
pub fn open(paths: Vec<PathBuf>, setup: WindowSetup) -> anyhow::Result<()> {
    let WindowSetup { size, ground, layout, mut script, driven } = setup;
    let of_picture = script.makes_a_picture();
    let store = if of_picture { None } else { FileStore::of_user() };
    let store: Option<Arc<dyn Store>> = store.map(|store| Arc::new(store) as Arc<dyn Store>);
    let (end, size) = (script.end.clone(), size.unwrap_or_else(|| remembered_size(store.as_deref())));
    let viewport = egui::ViewportBuilder::default()
        .with_title("LoKA")
        .with_app_id("loka")
        .with_inner_size(size)
        .with_min_inner_size(LEAST);
    let options = eframe::NativeOptions { viewport, ..eframe::NativeOptions::default() };
    let create = move |context: &eframe::CreationContext<'_>| {
        let ctx = context.egui_ctx.clone();
        let wake: Wake = Arc::new(move || ctx.request_repaint());
        let executor = ThreadExecutor::new(wake.clone());
        let executor = if of_picture { executor } else { executor.with_journal() };
        let link = InProcess::new(executor).with_author_of(me);
        let mut app = LokaApp::new(Box::new(link)).with_wake(wake).with_suggestions(nearby());
        app = app.with_picker(Box::new(SystemPicker)).with_clock(seconds_of_utc);
        if let Some(store) = store {
            app = app.with_store(store);
        }
        if let Some(state) = &context.wgpu_render_state {
            app = app.with_gpu(state.target_format);
        }
        let view = app.view_mut();
        view.ground = ground.unwrap_or(if of_picture { Ground::Dark } else { view.ground });
        view.layout = layout.unwrap_or_else(|| view.layout.clone());
        view.hint &= !of_picture;
        script.opens = !paths.is_empty();
        app = app.with_script(script);
        if driven {
            app = app.with_drive(pipe::drive(&context.egui_ctx));
        }
        app.open_all(paths.iter().map(|path| path.to_string_lossy().into_owned()).collect());
        Ok(Box::new(app) as Box<dyn eframe::App>)
    };
    let opened = eframe::run_native("loka", options, Box::new(create));
    opened.map_err(|error| anyhow::anyhow!("the window could not be opened: {error}"))?;
    match end.take() {
        Some(end) => end.map_err(anyhow::Error::msg),
        None if of_picture => anyhow::bail!("the window was closed before there was a picture"),
        None => Ok(()),
    }
}

fn unset(name: &str) -> bool {
    std::env::var_os(name).is_none_or(|value| value.is_empty())
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
