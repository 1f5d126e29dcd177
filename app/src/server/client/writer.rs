//! Takes what is for one client and the frames of its session, gives them to the socket in the client's own pace. A
//! client that is too far behind gets the session instead of the steps.

use std::sync::Arc;

use axum::extract::ws::Message;
use bytes::Bytes;
use futures_util::{FutureExt, SinkExt};
use loka_core::session::{
    Event,
    shared::{Author, ToClient, encode},
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, Interval, interval_at, timeout},
};

use super::{CloseReason, End, Sink, close_code};
use crate::server::{
    idle, limits,
    outbox::{Entered, Out},
    shared_session::{SessionEnd, Subscription},
};

pub struct Writer {
    sink: Sink,
    out: mpsc::Receiver<Out>,
    place: Option<WriterPlace>,
    pings: Interval,
}

/// The session that is followed.
struct WriterPlace {
    subscription: Subscription,
    me: Author,
    /// The last step that was sent; `None`: the whole session comes first.
    cursor: Option<u64>,
    /// What else could be opened.
    files: Arc<[String]>,
    newest: watch::Receiver<u64>,
    present: watch::Receiver<Bytes>,
    ended: watch::Receiver<Option<SessionEnd>>,
}

enum Woken {
    Out(Out),
    Steps,
    Present(Bytes),
    Over(SessionEnd),
    Ping,
    Gone,
}

impl Writer {
    pub fn new(sink: Sink, out: mpsc::Receiver<Out>) -> Self {
        Self { sink, out, place: None, pings: interval_at(Instant::now() + limits::PING_EVERY, limits::PING_EVERY) }
    }

    pub fn into_sink(self) -> Sink {
        self.sink
    }

    pub async fn run(&mut self) -> End {
        loop {
            if let Err(end) = self.catch_up().await {
                return end;
            }
            let woken = self.woken().await;
            let done = match woken {
                Woken::Out(out) => self.take(out).await,
                Woken::Steps => Ok(()),
                Woken::Present(present) => self.send(Message::Binary(present)).await,
                Woken::Over(ended) => self.session_over(ended).await,
                Woken::Ping => self.ping().await,
                Woken::Gone => Err(End::Gone),
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    async fn woken(&mut self) -> Woken {
        let (newest, present, ended) = match &mut self.place {
            Some(place) => (Some(&mut place.newest), Some(&mut place.present), Some(&mut place.ended)),
            None => (None, None, None),
        };
        tokio::select! {
            biased;
            out = self.out.recv() => out.map_or(Woken::Gone, Woken::Out),
            ended = changed(ended) => ended.map_or(Woken::Gone, Woken::Over),
            _ = changed(newest) => Woken::Steps,
            present = changed(present) => Woken::Present(present),
            _ = self.pings.tick() => Woken::Ping,
        }
    }

    /// Everything that its session has, with what is for this client alone in between.
    async fn catch_up(&mut self) -> Result<(), End> {
        while let Some(place) = &mut self.place {
            let Some(cursor) = place.cursor else {
                self.send_whole().await?;
                continue;
            };
            match place.subscription.shared.after(cursor) {
                None => place.cursor = None,
                Some(frames) if frames.is_empty() => return Ok(()),
                Some(frames) => {
                    for (last, frame) in frames {
                        self.send(Message::Binary(frame)).await?;
                        if let Some(place) = &mut self.place {
                            place.cursor = Some(last);
                        }
                    }
                }
            }
            self.take_waiting().await?;
        }
        Ok(())
    }

    /// Between the parts of what takes long.
    async fn take_waiting(&mut self) -> Result<(), End> {
        // Who is not pinged for too long seems to be gone, however busy we keep it.
        if self.pings.tick().now_or_never().is_some() {
            self.ping().await?;
        }
        while let Ok(out) = self.out.try_recv() {
            self.take(out).await?;
        }
        Ok(())
    }

    async fn send_whole(&mut self) -> Result<(), End> {
        let Some(place) = &mut self.place else { return Ok(()) };
        let shared = place.subscription.shared.clone();
        let Ok(coded) = shared.coded().await else {
            // Why it is over is told by itself.
            let ended = changed(Some(&mut place.ended)).await;
            return self.session_over(ended.unwrap_or(SessionEnd::Closed)).await;
        };
        for part in &coded.parts {
            self.send(Message::Binary(part.clone())).await?;
            self.take_waiting().await?;
            // It may have gone to another session meanwhile.
            if self.place.as_ref().is_none_or(|place| place.subscription.shared.id != shared.id) {
                return Ok(());
            }
        }
        if let Some(place) = &mut self.place {
            place.cursor = Some(coded.seq);
        }
        Ok(())
    }

    async fn take(&mut self, out: Out) -> Result<(), End> {
        match out {
            Out::Message(message) => self.send(Message::Binary(message)).await,
            Out::Leave(messages) => {
                self.place = None;
                for message in messages {
                    self.send(Message::Binary(message)).await?;
                }
                Ok(())
            }
            Out::Enter(entered) => {
                let Entered { subscription, me, welcome, cursor, files } = *entered;
                let (newest, mut present, mut ended) =
                    (subscription.shared.newest(), subscription.shared.present(), subscription.shared.ended());
                present.mark_changed();
                if subscription.shared.has_ended() {
                    ended.mark_changed();
                }
                self.place = Some(WriterPlace { subscription, me, cursor, files, newest, present, ended });
                self.send(Message::Binary(welcome)).await
            }
        }
    }

    async fn session_over(&mut self, ended: SessionEnd) -> Result<(), End> {
        match ended {
            SessionEnd::Refused(message) => {
                let line = encode(&ToClient::Answer(Box::new(Event::OpenFailed { message })));
                let place = self.place.take().map(|place| (place.me, place.files.to_vec()));
                let (me, files) = place.unwrap_or_else(|| (Author::program(), Vec::new()));
                let mut messages = idle(&me, files);
                messages.push(line.into());
                self.take(Out::Leave(messages)).await
            }
            SessionEnd::Broken(reason) => Err(CloseReason::new(close_code::ERROR, true, reason).into()),
            SessionEnd::Closed => Err(CloseReason::new(close_code::AGAIN, true, "this session was closed").into()),
        }
    }

    async fn ping(&mut self) -> Result<(), End> {
        self.send(Message::Binary(encode(&ToClient::Alive).into())).await?;
        self.send(Message::Ping(Bytes::new())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), End> {
        match timeout(limits::SEND_TIMEOUT, self.sink.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            // Nothing can be said to who does not read.
            Err(_) => Err(End::Gone),
        }
    }
}

/// The next value; never, where there is nothing to wait for.
async fn changed<T: Clone>(of: Option<&mut watch::Receiver<T>>) -> T {
    if let Some(receiver) = of
        && receiver.changed().await.is_ok()
    {
        return receiver.borrow_and_update().clone();
    }
    std::future::pending().await
}
