//! Takes requests character by character, as an attacker's would be, gives what comes back.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use super::{PATIENCE, Server};

impl Server {
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends these bytes, gives all that comes back until the connection ends.
    pub fn raw(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        Answer::read(stream)
    }

    /// `GET` with these headers beside the right host.
    pub fn get(&self, path: &str, headers: &[&str]) -> Answer {
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let address = &self.address;
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n"))
    }

    /// The answer to an attempt at a WebSocket; the connection is left when it succeeds.
    pub fn upgrade(&self, headers: &[&str]) -> Answer {
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let request = format!(
            "GET /live HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n",
            self.address
        );
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        Answer::read_head(stream)
    }

    /// What a browser keeps that opened a link with this at its end (`?token=…`): `name=value`.
    pub fn cookie(&self, query: &str) -> String {
        let answer = self.get(&format!("/{query}"), &[]);
        let cookie = answer.header("set-cookie").unwrap_or_else(|| panic!("no cookie: {answer:?}"));
        cookie.split(';').next().unwrap_or_default().to_owned()
    }

    pub fn origin(&self) -> String {
        format!("Origin: http://{}", self.address)
    }

    /// The head of a `PUT` of the page's, with the headers that end in `more`.
    pub fn put_head(&self, name: &str, more: &str) -> String {
        let (address, origin) = (&self.address, self.origin());
        format!("PUT /files/{name} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{origin}\r\n{more}\r\n")
    }

    /// Sends a file as the page does. `more`: further headers, each with its end.
    pub fn put(&self, name: &str, bytes: &[u8], more: &str) -> Answer {
        let mut stream = self.connect();
        let head = self.put_head(name, &format!("Content-Length: {}\r\n{more}", bytes.len()));
        stream.write_all(head.as_bytes()).unwrap();
        // Refused, it may not be read to its end.
        drop(stream.write_all(bytes));
        Answer::read(stream)
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn read(mut stream: impl std::io::Read) -> Self {
        let mut bytes = Vec::new();
        // A reset after the answer is the end of it.
        drop(stream.read_to_end(&mut bytes));
        Self::of(&bytes)
    }

    fn read_head(mut stream: TcpStream) -> Self {
        let (mut bytes, mut byte) = (Vec::new(), [0]);
        while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
            bytes.push(byte[0]);
        }
        Self::of(&bytes)
    }

    fn of(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Self { status, head, body: bytes[end..].to_vec() }
    }

    /// The values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
