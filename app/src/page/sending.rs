//! Takes a file of a person's, sends it to the server that gave the page; gives the line that says why it was not
//! taken. The browser reads the file piece by piece: however large, the page does not hold it.

use js_sys::{Promise, encode_uri_component};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};
use wasm_bindgen_futures::JsFuture;
use web_sys::{File, ProgressEvent, XmlHttpRequest};

use super::{dom::text_of, first_line};

/// Where the server takes files.
const FILES: &str = "/files/";

/// `say` is told how many bytes went, of how many.
pub(super) async fn send(file: &File, say: impl Fn(f64, f64) + 'static) -> Result<(), String> {
    let failed = |error: JsValue| format!("the browser could not send it ({})", text_of(&error));
    let request = sent(file, say).await.map_err(failed)?;
    match request.status().map_err(failed)? {
        200 | 201 => Ok(()),
        0 => Err("it was not sent: the server went away, or the browser could not read it".to_owned()),
        status => {
            // What is no text is a proxy's, which has bounds of its own.
            let kind = request.get_response_header("content-type").ok().flatten().unwrap_or_default();
            let said = request.response_text().ok().flatten().filter(|_| kind.starts_with("text/plain"));
            let line = first_line(said.as_deref().unwrap_or_default()).trim_end_matches('.');
            Err(if line.is_empty() { format!("the server answered {status}") } else { line.to_owned() })
        }
    }
}

/// The request, once it has ended, well or not. Not fetch, which does not say how far it is.
async fn sent(file: &File, say: impl Fn(f64, f64) + 'static) -> Result<XmlHttpRequest, JsValue> {
    let request = XmlHttpRequest::new()?;
    request.open("PUT", &format!("{FILES}{}", encode_uri_component(&file.name())))?;
    let moved = Closure::<dyn Fn(ProgressEvent)>::new(move |event: ProgressEvent| say(event.loaded(), event.total()));
    request.upload()?.set_onprogress(Some(moved.as_ref().unchecked_ref()));
    let ended = Promise::new(&mut |resolve, _| request.set_onloadend(Some(&resolve)));
    request.send_with_opt_blob(Some(file))?;
    JsFuture::from(ended).await?;
    request.upload()?.set_onprogress(None);
    Ok(request)
}
