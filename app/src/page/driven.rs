//! A page driven by a browser's driver: with `?drive` in the address, `loka.look()` asks for the next frame and gives the
//! one that was asked for as JSON, or nothing while it is not drawn.

use std::sync::{Arc, Mutex, PoisonError};

use js_sys::Reflect;
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};

use super::dom::window;
use crate::driving::Drive;

/// `None`: nobody drives this page.
pub(super) fn drive(ctx: &egui::Context) -> Result<Option<Drive>, JsValue> {
    let search = window()?.location().search()?;
    if !web_sys::UrlSearchParams::new_with_str(&search)?.has("drive") {
        return Ok(None);
    }
    let drive = Drive::default();
    let answer = Arc::new(Mutex::new(None::<String>));
    let told = answer.clone();
    drive.install(ctx, move |look| {
        *told.lock().unwrap_or_else(PoisonError::into_inner) = serde_json::to_string(&look).ok();
    });
    let (asked, ctx) = (drive.clone(), ctx.clone());
    let look = Closure::<dyn Fn() -> Option<String>>::new(move || {
        let seen = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if seen.is_none() {
            asked.ask();
            ctx.request_repaint();
        }
        seen
    });
    let page = Reflect::get(window()?.as_ref(), &"loka".into())?;
    Reflect::set(&page, &"look".into(), look.as_ref().unchecked_ref())?;
    // For as long as the page is there.
    look.forget();
    Ok(Some(drive))
}
