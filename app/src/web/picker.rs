//! The browser's own dialog for files. What a person picks comes by the page's desk; where a download goes is the
//! browser's question.

use super::desk::file_input;
use crate::picker::{Ask, Picked, Picker};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PagePicker;

impl Picker for PagePicker {
    fn begin(&self, ask: &Ask) -> Box<dyn FnOnce() -> Picked + Send> {
        if ask.save {
            let name = ask.name.clone();
            return Box::new(move || Ok(vec![name]));
        }
        let shown = file_input().map(|input| input.click());
        let shown = shown.map_err(|error| format!("This page shows no file dialog: {}", super::text_of(&error)));
        Box::new(move || shown.map(|()| Vec::new()))
    }

    fn problem(&self) -> Option<String> {
        None
    }
}
