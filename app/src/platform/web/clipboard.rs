//! Puts text on the clipboard, also where the browser has none for pages: over plain HTTP from another machine.

use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{HtmlDocument, HtmlTextAreaElement};

use super::dom::{document, window};

/// `Ok(false)`: egui may do it, this page has the clipboard.
pub(super) fn copy_text(text: &str) -> Result<bool, String> {
    let line = "the browser lets this page copy nothing: open it over HTTPS or from this machine";
    if window().is_ok_and(|window| window.is_secure_context()) {
        return Ok(false);
    }
    match copy_by_selection(text) {
        Ok(true) => Ok(true),
        Ok(false) | Err(_) => Err(line.to_owned()),
    }
}

/// The old way: a field that nobody sees, selected and copied.
fn copy_by_selection(text: &str) -> Result<bool, JsValue> {
    let document = document()?;
    let field: HtmlTextAreaElement = document.create_element("textarea")?.dyn_into()?;
    field.set_value(text);
    field.set_class_name("unseen");
    document.body().ok_or("the page has no body")?.append_child(&field)?;
    field.select();
    let copied = document.unchecked_ref::<HtmlDocument>().exec_command("copy");
    field.remove();
    copied
}
