//! The browser's own dialog for files. What a person picks comes by the page's desk; where a download goes is the
//! browser's question.

use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::HtmlInputElement;

use super::dom::{document, text_of};
use crate::platform::{Ask, Picked, Picker};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PagePicker;

impl Picker for PagePicker {
    fn begin(&self, ask: &Ask) -> Box<dyn FnOnce() -> Picked + Send> {
        if ask.save {
            let name = ask.name.clone();
            return Box::new(move || Ok(vec![name]));
        }
        let shown = file_input().map(|input| input.click());
        let shown = shown.map_err(|error| format!("This page shows no file dialog: {}", text_of(&error)));
        Box::new(move || shown.map(|()| Vec::new()))
    }

    fn problem(&self) -> Option<String> {
        None
    }
}

/// The page's own field for files.
pub(crate) fn file_input() -> Result<HtmlInputElement, JsValue> {
    let input = document()?.get_element_by_id("loka-files").ok_or("the page has no field 'loka-files'")?;
    Ok(input.dyn_into()?)
}
