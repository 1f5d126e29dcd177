//! WebSockets of the browser: takes the page's own address, gives connections to the server that gave the page.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use js_sys::{ArrayBuffer, Uint8Array};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};
use web_sys::{BinaryType, MessageEvent, WebSocket};

use super::dom::{text_of, window};
use crate::{
    executor::Wake,
    link::{Network, Socket, SocketNews},
};

/// Where the server listens for windows.
const LIVE: &str = "/live";

pub(super) struct PageNetwork {
    wake: Wake,
}

impl PageNetwork {
    pub fn new(wake: Wake) -> Self {
        Self { wake }
    }

    fn address() -> Result<String, JsValue> {
        let location = window()?.location();
        let scheme = if location.protocol()? == "https:" { "wss" } else { "ws" };
        Ok(format!("{scheme}://{}{LIVE}", location.host()?))
    }
}

impl Network for PageNetwork {
    fn connect(&mut self) -> Result<Box<dyn Socket>, String> {
        let socket = Self::address().and_then(|address| PageSocket::open(&address, self.wake.clone()));
        socket.map(|socket| Box::new(socket) as Box<dyn Socket>).map_err(|error| text_of(&error))
    }

    fn now(&self) -> f64 {
        js_sys::Date::now() / 1_000.0
    }
}

type Queue = Rc<RefCell<VecDeque<SocketNews>>>;

/// Its closures live as long as it does: what the browser still has to say after that is for nobody.
struct PageSocket {
    socket: WebSocket,
    queue: Queue,
    _heard: [Closure<dyn Fn(JsValue)>; 3],
}

impl PageSocket {
    fn open(address: &str, wake: Wake) -> Result<Self, JsValue> {
        let socket = WebSocket::new(address)?;
        socket.set_binary_type(BinaryType::Arraybuffer);
        let queue = Queue::default();
        let hear = |news: fn(JsValue) -> Option<SocketNews>| {
            let (queue, wake) = (queue.clone(), wake.clone());
            Closure::<dyn Fn(JsValue)>::new(move |event| {
                queue.borrow_mut().extend(news(event));
                wake();
            })
        };
        let opened = hear(|_| Some(SocketNews::Opened));
        let closed = hear(|_| Some(SocketNews::Closed));
        let message = hear(|event| {
            let buffer = event.dyn_into::<MessageEvent>().ok()?.data().dyn_into::<ArrayBuffer>().ok()?;
            Some(SocketNews::Message(Uint8Array::new(&buffer).to_vec()))
        });
        socket.set_onopen(Some(opened.as_ref().unchecked_ref()));
        socket.set_onmessage(Some(message.as_ref().unchecked_ref()));
        // An error is always followed by the end.
        socket.set_onclose(Some(closed.as_ref().unchecked_ref()));
        Ok(Self { socket, queue, _heard: [opened, closed, message] })
    }
}

impl Socket for PageSocket {
    fn send(&mut self, bytes: &[u8]) {
        // Not open any longer: its end is on its way.
        drop(self.socket.send_with_u8_array(bytes));
    }

    fn poll(&mut self) -> Option<SocketNews> {
        self.queue.borrow_mut().pop_front()
    }
}

impl Drop for PageSocket {
    fn drop(&mut self) {
        self.socket.set_onopen(None);
        self.socket.set_onmessage(None);
        self.socket.set_onclose(None);
        drop(self.socket.close());
    }
}
