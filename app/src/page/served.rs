//! A page that a server gave: takes what the address says (`?trace=`, `?name=`), gives the link to the session
//! there.

use loka_core::{
    runtime::Executor,
    session::shared::{Author, NAME_LENGTH, SyncClient},
};
use wasm_bindgen::JsValue;

use super::{
    dom::{document, window},
    network::PageNetwork,
};
use crate::{
    executor::Wake,
    link::{Link, RemoteLink},
};

const NAME: &str = "loka.name";

/// The server says so in the page's head.
pub(super) fn is_served() -> Result<bool, JsValue> {
    Ok(document()?.query_selector("meta[name=loka-serve]")?.is_some())
}

pub(super) fn link(page: Box<dyn Executor>, wake: Wake) -> Result<Box<dyn Link>, JsValue> {
    let key = random()?;
    let author = Author::new(key, &name(key)?);
    let sync = SyncClient::new(author, env!("CARGO_PKG_VERSION"), asked("trace")?);
    Ok(Box::new(RemoteLink::new(Box::new(PageNetwork::new(wake)), page, sync)))
}

/// The address names the open trace, so that it can be passed on and loaded again.
pub(super) fn name_trace(trace: &str) -> Result<(), JsValue> {
    let url = web_sys::Url::new(&window()?.location().href()?)?;
    let search = url.search_params();
    if search.get("trace").as_deref() == Some(trace) {
        return Ok(());
    }
    search.set("trace", trace);
    window()?.history()?.replace_state_with_url(&JsValue::NULL, "", Some(&url.href()))
}

fn asked(key: &str) -> Result<Option<String>, JsValue> {
    let search = window()?.location().search()?;
    Ok(web_sys::UrlSearchParams::new_with_str(&search)?.get(key).filter(|value| !value.is_empty()))
}

/// As the address says, as it said last time, or as nobody in particular.
fn name(key: u64) -> Result<String, JsValue> {
    let storage = window()?.local_storage().ok().flatten();
    let known = storage.as_ref().and_then(|storage| storage.get_item(NAME).ok().flatten());
    let asked: Option<String> = asked("name")?.map(|name| name.chars().take(NAME_LENGTH).collect());
    if let (Some(storage), Some(name)) = (&storage, &asked) {
        // Asked for again when it cannot be stored.
        drop(storage.set_item(NAME, name));
    }
    Ok(asked.or(known).unwrap_or_else(|| format!("guest {:04x}", key & 0xffff)))
}

/// Not 0, which is the program's own.
fn random() -> Result<u64, JsValue> {
    let mut bytes = [0; 8];
    window()?.crypto()?.get_random_values_with_u8_array(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes).max(1))
}
