//! Takes a client's messages, as if hostile, gives commands to its session and questions to whoever answers them.

use std::{sync::Arc, time::Instant};

use axum::extract::ws::Message;
use bytes::Bytes;
use futures_util::StreamExt;
use loka_core::session::{
    Event,
    shared::{
        Author, Hello, MAX_TO_SERVER, NAME_LENGTH, PROTOCOL, Person, Place, Question, ToClient, ToServer, Welcome,
        decode, encode,
    },
};
use tokio::{sync::Semaphore, time::timeout};

use super::{End, Entered, Out, Outbox, Parting, Stream};
use crate::serve::{
    asking,
    bucket::Bucket,
    hub::Hub,
    limits, lobby,
    room::{Over, Room, ToHost},
    version,
    vet::name,
};

pub struct Reader {
    stream: Stream,
    hub: Arc<Hub>,
    outbox: Outbox,
    window: u64,
    messages: Bucket,
    bytes: Bucket,
    author: Option<Author>,
    room: Option<Arc<Room>>,
    questions: Arc<Semaphore>,
}

impl Reader {
    pub fn new(stream: Stream, hub: Arc<Hub>, outbox: Outbox) -> Self {
        let (now, rate) = (Instant::now(), hub.bounds.messages_per_second);
        Self {
            stream,
            window: hub.window(),
            messages: Bucket::new(rate, 2 * rate, now),
            bytes: Bucket::new(rate.saturating_mul(limits::BYTES_PER_MESSAGE), 4 * limits::MESSAGE_BYTES as u32, now),
            hub,
            outbox,
            author: None,
            room: None,
            questions: Arc::new(Semaphore::new(limits::QUESTIONS_WAITING)),
        }
    }

    pub fn into_stream(self) -> Stream {
        self.stream
    }

    pub async fn run(&mut self) -> End {
        loop {
            let patience = if self.author.is_some() { limits::SILENCE } else { limits::HELLO_TIMEOUT };
            let message = match timeout(patience, self.stream.next()).await {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => {
                    return Parting::protocol(format!("the message cannot be read: {error}")).into();
                }
                Ok(None) => return End::Gone,
                Err(_) => return Parting::policy("nothing was heard from this window for too long").into(),
            };
            if let Err(end) = self.take(message).await {
                return end;
            }
        }
    }

    async fn take(&mut self, message: Message) -> Result<(), End> {
        let now = Instant::now();
        let size = match &message {
            Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
            Message::Text(text) => text.len(),
            Message::Close(_) => return Err(End::Gone),
        };
        let within = self.messages.take(1, now) && self.bytes.take(u32::try_from(size).unwrap_or(u32::MAX), now);
        if !within {
            return Err(Parting::policy("this window sends more than the server takes").into());
        }
        match message {
            Message::Binary(bytes) => match decode(&bytes, MAX_TO_SERVER) {
                Ok(message) => self.hear(message).await,
                Err(error) => Err(Parting::protocol(unread(&error.to_string())).into()),
            },
            Message::Text(_) => Err(Parting::protocol("messages are binary").into()),
            _ => Ok(()),
        }
    }

    async fn hear(&mut self, message: ToServer) -> Result<(), End> {
        match (message, self.author.clone()) {
            (ToServer::Hello(hello), None) => self.hello(hello).await,
            (ToServer::Hello(_), Some(_)) => Err(Parting::protocol("hello was said already").into()),
            (_, None) => Err(Parting::protocol("the first message is hello").into()),
            (ToServer::Join { trace }, Some(author)) => self.join(&author, Some(trace), None).await,
            (ToServer::Command { number, seen, command }, Some(author)) => {
                let outbox = self.outbox.clone();
                let told = match &self.room {
                    Some(room) => room.tell(ToHost::Command { author, number, seen, command, outbox }).await,
                    None => Err(()),
                };
                if told.is_err() {
                    let reason = "no trace is open".to_owned();
                    self.outbox.send(encode(&ToClient::Refused { number, reason }).into());
                }
                Ok(())
            }
            (ToServer::At(place), Some(_)) => {
                if let Some(room) = &self.room {
                    room.look(self.window, place);
                }
                Ok(())
            }
            (ToServer::Ask(question), Some(_)) => {
                self.ask(question);
                Ok(())
            }
        }
    }

    async fn hello(&mut self, hello: Hello) -> Result<(), End> {
        if hello.protocol != PROTOCOL {
            return Err(Parting::protocol(differs(&hello)).into());
        }
        if hello.key == 0 {
            return Err(Parting::protocol("a window's key is not 0").into());
        }
        let author = Author::new(hello.key, &name(&hello.name, NAME_LENGTH));
        self.author = Some(author.clone());
        self.join(&author, hello.trace, hello.resume).await
    }

    async fn join(&mut self, author: &Author, trace: Option<String>, resume: Option<(u64, u64)>) -> Result<(), End> {
        self.room = None;
        let files = self.hub.files().await;
        let Some(trace) = trace.or_else(|| self.hub.trace.clone()) else {
            return self.put(Out::Leave(lobby(author, files.to_vec()))).await;
        };
        match self.enter(author, &trace, resume, &files).await {
            Ok(entered) => {
                self.room = Some(entered.seat.room.clone());
                self.put(Out::Enter(Box::new(entered))).await
            }
            Err(message) => {
                let mut messages = lobby(author, files.to_vec());
                messages.push(encode(&ToClient::Answer(Box::new(Event::OpenFailed { message }))).into());
                self.put(Out::Leave(messages)).await
            }
        }
    }

    /// `Err`: why the trace has no session, in a line.
    async fn enter(
        &self,
        author: &Author,
        trace: &str,
        resume: Option<(u64, u64)>,
        files: &Arc<[String]>,
    ) -> Result<Entered, String> {
        // One that closes in this moment is opened anew.
        for _ in 0..3 {
            let room = self.hub.room(trace).await?;
            let Author { key, name, role } = author.clone();
            let seat = room.enter(self.window, Person { key, name, role, at: Place::default() });
            if let Ok(heard) = room.heard(author.key).await {
                let cursor = resume.filter(|(session, seq)| *session == room.id && room.reaches(*seq));
                let cursor = cursor.map(|(_, seq)| seq);
                let welcome = Welcome {
                    protocol: PROTOCOL,
                    version: version(),
                    session: room.id,
                    resumed: cursor.is_some(),
                    heard,
                    me: author.clone(),
                    files: files.to_vec(),
                };
                let welcome = Bytes::from(encode(&ToClient::Welcome(welcome)));
                return Ok(Entered { seat, me: author.clone(), welcome, cursor, files: files.clone() });
            }
            if let Ok(over) = room.over().wait_for(Option::is_some).await
                && let Some(Over::Refused(line)) = over.as_ref()
            {
                return Err(line.clone());
            }
        }
        Err(format!("its session ends again and again: {trace}"))
    }

    async fn put(&self, out: Out) -> Result<(), End> {
        if self.outbox.put(out).await { Ok(()) } else { Err(End::Gone) }
    }

    /// Answered beside this conversation.
    fn ask(&self, question: Question) {
        let (hub, room, outbox) = (self.hub.clone(), self.room.clone(), self.outbox.clone());
        let answer = |event| Bytes::from(encode(&ToClient::Answer(Box::new(event))));
        let Ok(place) = self.questions.clone().try_acquire_owned() else {
            let line = "this window asks too much at once; try again".to_owned();
            return outbox.send(answer(asking::refusal(room.as_deref(), question, line)));
        };
        tokio::spawn(async move {
            let event = asking::answer(&hub, room, question).await;
            drop(place);
            outbox.send(answer(event));
        });
    }
}

fn unread(error: &str) -> String {
    format!("{error}; load the page again, it may be of another version")
}

fn differs(hello: &Hello) -> String {
    let theirs = name(&hello.version, NAME_LENGTH);
    let (asked, ours) = (hello.protocol, version());
    format!("the page is of LoKA {theirs} (protocol {asked}), the server of {ours} ({PROTOCOL}): load the page again")
}
