//! Takes files from the command line, opens the native window with the engine of this process.

use std::{path::PathBuf, sync::Arc};

use crate::{app::LokaApp, link::LocalLink};

/// Returns when the window is closed.
pub fn open(paths: Vec<PathBuf>) -> anyhow::Result<()> {
    let viewport = egui::ViewportBuilder::default()
        .with_title("LoKA")
        .with_app_id("loka")
        .with_inner_size([1440.0, 900.0])
        .with_min_inner_size([960.0, 600.0]);
    let options = eframe::NativeOptions { viewport, ..eframe::NativeOptions::default() };
    let create = move |context: &eframe::CreationContext<'_>| {
        let ctx = context.egui_ctx.clone();
        let link = LocalLink::new(Arc::new(move || ctx.request_repaint()));
        let mut app = LokaApp::new(&context.egui_ctx, Box::new(link)).with_suggestions(nearby());
        // Results come after the trace that they are of, whatever their order on the command line.
        for path in &paths {
            app.open(path.to_string_lossy().into_owned());
        }
        Ok(Box::new(app) as Box<dyn eframe::App>)
    };
    let opened = eframe::run_native("loka", options, Box::new(create));
    opened.map_err(|error| anyhow::anyhow!("the window could not be opened: {error}"))
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
