//! What comes into a page and goes out of it: files of a person and what lies at an address come in beside the
//! frames, with how far they are; downloads go out.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, sync::Arc};

use js_sys::{Reflect, Uint8Array};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};
use wasm_bindgen_futures::JsFuture;
use web_sys::{File, ReadableStreamDefaultReader, Response};

use loka_core::session::FileKind;

use super::sending::send;
use crate::{
    executor::{MOST_BYTES, Outside, Wake},
    platform::{
        dom::{text_of, window},
        file_input, save,
    },
};

type FileBytes = Result<Arc<[u8]>, String>;

const UNKNOWN: &str =
    "the server takes .trace.safetensors, .results.parquet and .plan.json: if it is one of these, name it so";

/// What became of a file that a person handed over.
pub(super) enum Received {
    /// The page has it.
    Here(Arc<[u8]>),
    /// The server that gave the page has it, under its name.
    Sent,
}

type Handed = Vec<(String, Result<Received, String>)>;

/// Clones are the same.
#[derive(Clone)]
pub(super) struct BrowserIo(Rc<RefCell<IoState>>);

struct IoState {
    wake: Wake,
    /// A server gave the page, which shows what lies there.
    served: bool,
    /// What is on its way, and a number for each.
    coming: Vec<(u64, String)>,
    next: u64,
    fetched: VecDeque<(String, FileBytes)>,
    /// Files that came together.
    taken: VecDeque<Handed>,
}

impl BrowserIo {
    pub fn new(wake: Wake, served: bool) -> Self {
        let (coming, fetched, taken) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self(Rc::new(RefCell::new(IoState { wake, served, coming, next: 0, fetched, taken })))
    }

    /// Reads files, or sends them to the server; they come together by [`Self::taken`].
    pub fn take(&self, files: Vec<File>) {
        let io = self.clone();
        wasm_bindgen_futures::spawn_local(async move {
            let mut all = Vec::new();
            for file in files {
                let name = file.name();
                let taken = io.take_one(&file).await.map_err(|reason| format!("{reason}: {name}"));
                all.push((name, taken));
            }
            io.0.borrow_mut().taken.push_back(all);
            io.wake();
        });
    }

    async fn take_one(&self, file: &File) -> Result<Received, String> {
        let (name, served) = (file.name(), self.0.borrow().served);
        match FileKind::of_name(&name) {
            Some(FileKind::Trace | FileKind::Results | FileKind::Plan) if served => {
                let ticket = self.announce(format!("Sending {name}"));
                let io = self.clone();
                let of = name.clone();
                let say = move |sent, all| {
                    io.say(ticket, progress("Sending", &of, sent, Some(all)));
                    io.wake();
                };
                let sent = send(file, say).await;
                self.done(ticket);
                sent.map(|()| Received::Sent)
            }
            None if served => Err(UNKNOWN.to_owned()),
            // A key signs here: it never leaves the page.
            _ => {
                let ticket = self.announce(format!("Reading {name}"));
                let bytes = bytes_of(file).await;
                self.done(ticket);
                bytes.map(Received::Here)
            }
        }
    }

    pub fn taken(&self) -> Option<Handed> {
        self.0.borrow_mut().taken.pop_front()
    }

    /// Takes what is chosen in the page's own field for files.
    pub fn listen_to_input(&self) -> Result<(), JsValue> {
        let input = file_input()?;
        let (io, field) = (self.clone(), input.clone());
        let chosen = Closure::<dyn Fn()>::new(move || {
            let list = field.files();
            let files = list.iter().flat_map(|list| (0..list.length()).filter_map(|at| list.get(at))).collect();
            io.take(files);
            // The same file can be chosen again.
            field.set_value("");
        });
        input.add_event_listener_with_callback("change", chosen.as_ref().unchecked_ref())?;
        // For as long as the page is there.
        chosen.forget();
        Ok(())
    }

    fn announce(&self, line: String) -> u64 {
        let mut papers = self.0.borrow_mut();
        papers.next += 1;
        let ticket = papers.next;
        papers.coming.push((ticket, line));
        drop(papers);
        self.wake();
        ticket
    }

    fn say(&self, ticket: u64, line: String) {
        if let Some((_, of)) = self.0.borrow_mut().coming.iter_mut().find(|(known, _)| *known == ticket) {
            *of = line;
        }
    }

    fn done(&self, ticket: u64) {
        self.0.borrow_mut().coming.retain(|(known, _)| *known != ticket);
    }

    fn wake(&self) {
        let wake = self.0.borrow().wake.clone();
        wake();
    }
}

impl Outside for BrowserIo {
    fn save(&self, name: &str, bytes: Vec<u8>) -> Result<(), String> {
        save(name, &bytes)
    }

    fn fetch(&self, address: &str) {
        let (io, address) = (self.clone(), address.to_owned());
        wasm_bindgen_futures::spawn_local(async move {
            let ticket = io.announce(format!("Fetching {address}"));
            let outcome = fetched(&io, ticket, &address).await;
            io.done(ticket);
            io.0.borrow_mut().fetched.push_back((address, outcome));
            io.wake();
        });
    }

    fn fetched(&self) -> Option<(String, FileBytes)> {
        self.0.borrow_mut().fetched.pop_front()
    }

    fn busy(&self) -> Option<String> {
        self.0.borrow().coming.first().map(|(_, line)| line.clone())
    }
}

async fn bytes_of(file: &File) -> FileBytes {
    too_large(file.size())?;
    let buffer = JsFuture::from(file.array_buffer()).await;
    let buffer = buffer.map_err(|error| format!("the browser could not read it ({})", text_of(&error)))?;
    Ok(Uint8Array::new(&buffer).to_vec().into())
}

fn too_large(size: f64) -> Result<(), String> {
    if size <= MOST_BYTES as f64 {
        return Ok(());
    }
    let gib = |bytes: f64| bytes / f64::from(1_u32 << 30);
    let (size, most) = (gib(size), gib(MOST_BYTES as f64));
    Err(format!("{size:.1} GiB is more than a page can hold ({most} GiB): open it with the loka program"))
}

async fn fetched(io: &BrowserIo, ticket: u64, address: &str) -> FileBytes {
    let line = |error: &JsValue| text_of(error);
    let window = window().map_err(|error| line(&error))?;
    let response = JsFuture::from(window.fetch_with_str(address)).await.map_err(|_| {
        // Browsers keep the reason from the page, so both are named.
        "it cannot be fetched: nothing answers there, or its server lets no other page read it (CORS)".to_owned()
    })?;
    let response: Response = response.dyn_into().map_err(|error: JsValue| line(&error))?;
    if !response.ok() {
        return Err(format!("the server answered {} {}", response.status(), response.status_text())
            .trim_end()
            .to_owned());
    }
    let length = response.headers().get("content-length").ok().flatten().and_then(|text| text.parse::<f64>().ok());
    too_large(length.unwrap_or_default())?;
    let body = response.body().ok_or("the server answered with nothing")?;
    let reader: ReadableStreamDefaultReader = body.get_reader().unchecked_into();
    let mut bytes = Vec::new();
    loop {
        let chunk = JsFuture::from(reader.read()).await;
        let chunk = chunk.map_err(|error| format!("it broke off after {} bytes ({})", bytes.len(), line(&error)))?;
        let part = |name: &str| Reflect::get(chunk.as_ref(), &name.into()).unwrap_or(JsValue::UNDEFINED);
        if part("done").is_truthy() {
            return Ok(bytes.into());
        }
        let value: Uint8Array = part("value").unchecked_into();
        too_large(bytes.len() as f64 + f64::from(value.length()))?;
        let at = bytes.len();
        bytes.resize(at + value.length() as usize, 0);
        value.copy_to(&mut bytes[at..]);
        io.say(ticket, progress("Fetching", address, bytes.len() as f64, length));
    }
}

fn progress(doing: &str, what: &str, here: f64, length: Option<f64>) -> String {
    let here = here / 1e6;
    match length {
        // A compressed answer is longer than it says.
        Some(length) if length / 1e6 >= here => format!("{doing} {what}, {here:.1} of {:.1} MB", length / 1e6),
        _ => format!("{doing} {what}, {here:.1} MB"),
    }
}
