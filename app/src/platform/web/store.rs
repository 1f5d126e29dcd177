//! Settings in the browser's storage for this page's origin.

use super::dom::{text_of, window};
use crate::platform::Store;

const KEY: &str = "loka.settings";
const ASIDE: &str = "loka.settings.broken";

/// Has nothing of its own: a page has one storage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageStore;

fn storage() -> Result<web_sys::Storage, String> {
    let none = || "this browser lets the page store nothing".to_owned();
    let storage = window().and_then(|window| window.local_storage());
    storage.ok().flatten().ok_or_else(none)
}

impl Store for PageStore {
    fn load(&self) -> Result<Option<String>, String> {
        storage()?.get_item(KEY).map_err(|error| text_of(&error))
    }

    fn save(&self, text: &str) -> Result<(), String> {
        storage()?.set_item(KEY, text).map_err(|error| text_of(&error))
    }

    fn set_aside(&self) -> Result<String, String> {
        let storage = storage()?;
        let text = storage.get_item(KEY).map_err(|error| text_of(&error))?.unwrap_or_default();
        storage.set_item(ASIDE, &text).map_err(|error| text_of(&error))?;
        storage.remove_item(KEY).map_err(|error| text_of(&error))?;
        Ok(format!("{ASIDE} in this page's storage"))
    }
}
