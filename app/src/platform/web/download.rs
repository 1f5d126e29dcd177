//! Takes bytes and a name, gives a person the file as a download.

use js_sys::{Array, Uint8Array};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};
use web_sys::{Blob, BlobPropertyBag, HtmlAnchorElement, Url};

use super::dom::{document, text_of, window};

/// A download's object is let go of after so many milliseconds: by then the browser has it.
const LET_GO: i32 = 60_000;

/// Gives a person a file under that name, as a download.
pub(crate) fn save(name: &str, bytes: &[u8]) -> Result<(), String> {
    download(name, bytes).map_err(|error| format!("the browser took no download ({})", text_of(&error)))
}

fn download(name: &str, bytes: &[u8]) -> Result<(), JsValue> {
    let options = BlobPropertyBag::new();
    options.set_type("application/octet-stream");
    let parts = Array::of1(&Uint8Array::from(bytes));
    let blob = Blob::new_with_u8_array_sequence_and_options(&parts, &options)?;
    let address = Url::create_object_url_with_blob(&blob)?;
    let anchor: HtmlAnchorElement = document()?.create_element("a")?.dyn_into()?;
    anchor.set_href(&address);
    anchor.set_download(name);
    anchor.click();
    let let_go = Closure::once_into_js(move || drop(Url::revoke_object_url(&address)));
    window()?.set_timeout_with_callback_and_timeout_and_arguments_0(let_go.unchecked_ref(), LET_GO)?;
    Ok(())
}
