//! The browser's entry: the same window on a canvas. Takes the page's address and what is dropped on it, gives frames,
//! downloads and an address that holds what is seen. What goes wrong is a line on the page.

mod browser_io;
mod driven;
mod keys;
mod network;
mod page;
mod sending;
mod served;
mod touch;

use std::{cell::Cell, rc::Rc, sync::Arc};

use eframe::{
    WebOptions, WebRunner,
    wgpu::{Backend, DeviceLostReason},
};
use wasm_bindgen::{JsCast as _, JsValue, prelude::wasm_bindgen};
use web_sys::HtmlCanvasElement;

use crate::{
    clock::seconds_of_utc,
    executor::{MemoryFiles, PageExecutor, Wake},
    link::{InProcess, Link},
    platform::{PagePicker, PageStore, dom},
    window::LokaApp,
    window::url_sync::UrlSync,
};
use browser_io::BrowserIo;
use dom::{document, text_of, window};
use page::PageApp;

// Put there by app/web/start.js.
#[wasm_bindgen]
extern "C" {
    /// Covers the page with a line and what to do next.
    #[wasm_bindgen(js_namespace = loka)]
    fn fail(line: &str, next: &str);

    /// There is nothing to draw with, or no longer: a line why.
    #[wasm_bindgen(js_namespace = loka, js_name = cannotDraw)]
    fn cannot_draw(reason: &str);

    /// The page is at this point: it uncovers itself, and measures.
    #[wasm_bindgen(js_namespace = loka)]
    fn reached(point: &str);
}

const AGAIN: &str = "Load the page again: settings and address are kept. If it comes back, please report this line.";

/// Called by the page when it has loaded this module. The page must have a canvas with the id `loka`.
pub fn start() {
    // After this hook a panic ends the module; whoever looks at the page must know.
    std::panic::set_hook(Box::new(|info| {
        fail(&format!("The workbench met an error of its own and stopped: {}", first_line(&info.to_string())), AGAIN);
    }));
    if let Err(error) = begin() {
        fail(&format!("The workbench could not be started: {}", text_of(&error)), AGAIN);
    }
}

fn begin() -> Result<(), JsValue> {
    let canvas = document()?.get_element_by_id("loka").ok_or("the page has no canvas 'loka'")?;
    let canvas = canvas.dyn_into::<HtmlCanvasElement>()?;
    wasm_bindgen_futures::spawn_local(async move {
        let create = |context: &eframe::CreationContext<'_>| match open(context) {
            Ok(app) => Ok(Box::new(app) as Box<dyn eframe::App>),
            Err(error) => Err(text_of(&error).into()),
        };
        if let Err(error) = WebRunner::new().start(canvas, WebOptions::default(), Box::new(create)).await {
            cannot_draw(first_line(&text_of(&error)));
        }
    });
    Ok(())
}

fn open(context: &eframe::CreationContext<'_>) -> Result<PageApp, JsValue> {
    let ctx = context.egui_ctx.clone();
    let wake: Wake = Arc::new({
        let ctx = ctx.clone();
        move || ctx.request_repaint()
    });
    let served = served::is_served()?;
    let (memory, io) = (MemoryFiles::default(), BrowserIo::new(wake.clone(), served));
    let page = PageExecutor::new(memory.clone(), Box::new(io.clone()), wake.clone());
    let link: Box<dyn Link> =
        if served { served::link(Box::new(page), wake.clone())? } else { Box::new(InProcess::new(page)) };
    let mut app = LokaApp::new(link).with_wake(wake).with_picker(Box::new(PagePicker)).with_clock(seconds_of_utc);
    app = app.with_store(Arc::new(PageStore));
    if let Some(state) = &context.wgpu_render_state {
        app = app.with_gpu(state.target_format);
        tell_backend(&state.adapter.get_info())?;
        state.device.set_device_lost_callback(|reason, message| {
            if reason != DeviceLostReason::Destroyed {
                cannot_draw(&format!("the browser took the graphics device away: {}", first_line(&message)));
            }
        });
    }
    if let Some(drive) = driven::drive(&ctx)? {
        app = app.with_drive(drive);
    }
    app.open_all(asked_to_open()?);
    let over_chart = Rc::new(Cell::new(false));
    keys::install(&ctx, over_chart.clone())?;
    touch::install(&ctx)?;
    io.listen_to_input()?;
    let mut url_sync = UrlSync::default();
    url_sync.go(&window()?.location().hash()?);
    PageApp::new(app, io, memory, url_sync, over_chart, &ctx)
}

/// Which way the canvas is drawn: in the console, and on the page's root for tests.
fn tell_backend(about: &eframe::wgpu::AdapterInfo) -> Result<(), JsValue> {
    let way = if about.backend == Backend::BrowserWebGpu { "WebGPU" } else { "WebGL 2" };
    web_sys::console::info_1(&format!("LoKA draws with {way}: {}", about.name).into());
    let root = document()?.document_element().ok_or("the page has no root")?;
    root.set_attribute("data-loka-draws-with", way)
}

/// Every `?open=`, relative ones by the page's own address.
fn asked_to_open() -> Result<Vec<String>, JsValue> {
    let location = window()?.location();
    let (search, base) = (location.search()?, location.href()?);
    let asked = web_sys::UrlSearchParams::new_with_str(&search)?.get_all("open");
    let texts = asked.iter().filter_map(|value| JsValue::from(value).as_string());
    Ok(texts.map(|text| web_sys::Url::new_with_base(&text, &base).map_or(text, |url| url.href())).collect())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
