//! One window on the other end of a WebSocket: takes the socket, attends to it until it leaves or has to.
//!
//! A reader and a writer that never wait for each other. Whatever a client does, floods, sends garbage, never reads,
//! it is its own place that it loses.

mod reader;
mod writer;

use std::{sync::Arc, time::Duration};

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use loka_core::session::shared::{ToClient, encode};
use tokio::time::timeout;

use self::{reader::Reader, writer::Writer};
use super::{limits, outbox::Outbox, session_registry::SessionRegistry, shutdown::Shutdown, user_store::UserHandle};

type Sink = SplitSink<WebSocket, Message>;
type Stream = SplitStream<WebSocket>;

/// Why a client has to go, as it is told.
#[derive(Debug)]
pub struct CloseReason {
    pub code: u16,
    pub reason: String,
    /// It is worth trying later.
    pub again: bool,
}

impl CloseReason {
    fn new(code: u16, again: bool, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), again }
    }

    fn protocol(reason: impl Into<String>) -> Self {
        Self::new(close_code::PROTOCOL, false, reason)
    }

    fn policy(reason: impl Into<String>) -> Self {
        Self::new(close_code::POLICY, true, reason)
    }

    pub fn ends() -> Self {
        Self::new(close_code::AWAY, true, "the server is being stopped")
    }

    /// By the list of people.
    fn gone() -> Self {
        Self::new(close_code::POLICY, false, "whoever runs this server took you off its list of people")
    }

    pub fn crowded(most: usize) -> Self {
        Self::new(close_code::AGAIN, true, format!("this server has the {most} windows that it takes"))
    }
}

/// How a conversation ends.
pub enum End {
    /// The client went away.
    Gone,
    Parting(CloseReason),
}

impl From<CloseReason> for End {
    fn from(parting: CloseReason) -> Self {
        Self::Parting(parting)
    }
}

/// From the first message to the last. `user`: who it is, where there is a list of people.
pub async fn attend(socket: WebSocket, registry: Arc<SessionRegistry>, user: Option<UserHandle>, shutdown: Shutdown) {
    let (sink, stream) = socket.split();
    let (outbox, out, full) = Outbox::new();
    let mut writer = Writer::new(sink, out);
    let mut reader = Reader::new(stream, registry, user, outbox);
    let end = tokio::select! {
        end = reader.run() => end,
        end = writer.run() => end,
        () = full.notified() => CloseReason::policy("this window asks and does not read the answers").into(),
        () = shutdown.began() => CloseReason::ends().into(),
    };
    if let End::Parting(parting) = end {
        let (sink, stream) = (writer.into_sink(), reader.into_stream());
        part(sink, stream, parting).await;
    }
}

/// For whom there is no place.
pub async fn turn_away(socket: WebSocket, parting: CloseReason) {
    let (sink, stream) = socket.split();
    part(sink, stream, parting).await;
}

/// How long a parting client may go on talking: what it had on its way would make the system reset the connection,
/// and with it what it was told.
const LISTENED_TO: Duration = Duration::from_secs(1);

async fn part(mut sink: Sink, mut stream: Stream, parting: CloseReason) {
    let CloseReason { code, reason, again } = parting;
    let told = Bytes::from(encode(&ToClient::Closing { reason: reason.clone(), again }));
    // A close frame holds 123 bytes.
    let short: String = reason.chars().take(60).collect();
    let frame = CloseFrame { code, reason: short.into() };
    let say = async {
        sink.send(Message::Binary(told)).await?;
        sink.send(Message::Close(Some(frame))).await
    };
    if let Ok(Ok(())) = timeout(limits::FAREWELL, say).await {
        let listen = async { while let Some(Ok(_)) = stream.next().await {} };
        drop(timeout(LISTENED_TO, listen).await);
    }
}
