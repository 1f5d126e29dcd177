//! The browser's entry: the same window on a canvas, with a link that says it has no engine.

use eframe::WebRunner;
use wasm_bindgen::{JsCast as _, JsValue, prelude::wasm_bindgen};

use crate::{app::LokaApp, link::OfflineLink};

/// Called when the page has loaded this module. The page must have a canvas with the id `loka`.
#[wasm_bindgen(start)]
pub fn start() -> Result<(), JsValue> {
    let document = web_sys::window().and_then(|window| window.document());
    let canvas = document.and_then(|document| document.get_element_by_id("loka"));
    let canvas = canvas.ok_or_else(|| JsValue::from_str("the page has no element with the id 'loka'"))?;
    let canvas = canvas.dyn_into::<web_sys::HtmlCanvasElement>()?;
    wasm_bindgen_futures::spawn_local(async move {
        let create = |_: &eframe::CreationContext<'_>| {
            let app = LokaApp::new(Box::new(OfflineLink::default()));
            Ok(Box::new(app) as Box<dyn eframe::App>)
        };
        let started = WebRunner::new().start(canvas, eframe::WebOptions::default(), Box::new(create)).await;
        // Without WebGL there is nothing to draw on: the page itself says so.
        if let (Err(_), Some(document)) = (started, web_sys::window().and_then(|window| window.document()))
            && let Some(element) = document.get_element_by_id("loka-status")
        {
            element
                .set_text_content(Some("This browser has neither WebGPU nor WebGL, which the workbench draws with."));
        }
    });
    Ok(())
}
