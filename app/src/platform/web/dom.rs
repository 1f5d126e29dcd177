//! The page as JavaScript has it.

use wasm_bindgen::JsValue;

pub(crate) fn window() -> Result<web_sys::Window, JsValue> {
    web_sys::window().ok_or_else(|| "there is no window".into())
}

pub(crate) fn document() -> Result<web_sys::Document, JsValue> {
    window()?.document().ok_or_else(|| "there is no document".into())
}

/// What JavaScript threw, as text.
pub(crate) fn text_of(error: &JsValue) -> String {
    let message = || js_sys::Reflect::get(error, &"message".into()).ok()?.as_string();
    error.as_string().or_else(message).unwrap_or_else(|| format!("{error:?}"))
}
