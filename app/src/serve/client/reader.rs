//! Takes a client's messages, as if hostile, gives commands to its session and questions to whoever answers them.

use std::{sync::Arc, time::Instant};

use axum::extract::ws::Message;
use bytes::Bytes;
use futures_util::StreamExt;
use loka_core::session::{
    CommandError, Event,
    shared::{
        Author, Hello, MAX_TO_SERVER, NAME_LENGTH, PROTOCOL, Person, Place, Question, ToClient, ToServer, Unread,
        Welcome, WireError, encode, unpacked_size,
    },
};
use sha2::{Digest as _, Sha256};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use super::{End, Entered, Out, Outbox, Parting, Stream};
use crate::serve::{
    asking,
    bucket::Bucket,
    hub::Hub,
    limits, lobby,
    room::{Over, Room, ToHost},
    roster::Badge,
    version,
    vet::{name, place},
};

pub struct Reader {
    stream: Stream,
    hub: Arc<Hub>,
    outbox: Outbox,
    window: u64,
    messages: Bucket,
    bytes: Bucket,
    author: Option<Author>,
    badge: Option<Badge>,
    room: Option<Arc<Room>>,
    questions: Arc<Semaphore>,
}

impl Reader {
    pub fn new(stream: Stream, hub: Arc<Hub>, badge: Option<Badge>, outbox: Outbox) -> Self {
        let (now, rate) = (Instant::now(), hub.bounds.messages_per_second);
        Self {
            stream,
            window: hub.window(),
            messages: Bucket::new(rate, 2 * rate, now),
            bytes: Bucket::new(rate.saturating_mul(limits::BYTES_PER_MESSAGE), 4 * limits::MESSAGE_BYTES as u32, now),
            hub,
            outbox,
            author: None,
            badge,
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
            let heard = tokio::select! {
                biased;
                () = changed(&mut self.badge) => {
                    if let Err(end) = self.take_role() {
                        return end;
                    }
                    continue;
                }
                heard = timeout(patience, self.stream.next()) => heard,
            };
            let message = match heard {
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

    /// The list of people is another: what this one may do may be, too.
    fn take_role(&mut self) -> Result<(), End> {
        let (Some(badge), Some(author)) = (&self.badge, &mut self.author) else { return Ok(()) };
        match badge.user() {
            Some(user) if user.name == author.name => {
                if author.role != user.role {
                    author.role = user.role;
                    if let Some(room) = &self.room {
                        room.set_role(self.window, user.role);
                    }
                }
                Ok(())
            }
            _ => Err(Parting::gone().into()),
        }
    }

    async fn take(&mut self, message: Message) -> Result<(), End> {
        let now = Instant::now();
        let size = match &message {
            Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
            Message::Text(text) => text.len(),
            Message::Close(_) => return Err(End::Gone),
        };
        // What it costs is what it comes to, however well it is packed.
        let size = match &message {
            Message::Binary(bytes) => unpacked_size(bytes, MAX_TO_SERVER).map_err(|error| broken(&error))?,
            _ => size,
        };
        let within = self.messages.take(1, now) && self.bytes.take(u32::try_from(size).unwrap_or(u32::MAX), now);
        if !within {
            return Err(Parting::policy("this window sends more than the server takes").into());
        }
        match message {
            Message::Binary(_) if self.author.is_none() && size > limits::HELLO_BYTES => {
                Err(Parting::protocol("the first message is hello").into())
            }
            Message::Binary(bytes) => match self.read(bytes, size).await? {
                Read::Message(message) => self.hear(*message).await,
                Read::NotAllowed { number, reason } => {
                    self.outbox.send(encode(&ToClient::Refused { number, reason }).into());
                    Ok(())
                }
            },
            Message::Text(_) => Err(Parting::protocol("messages are binary").into()),
            _ => Ok(()),
        }
    }

    /// The message, unless it is a command that this one may not give: that is refused before it is made.
    async fn read(&self, bytes: Bytes, size: usize) -> Result<Read, End> {
        let author = self.author.clone();
        let read = move || {
            let unread = Unread::of(&bytes, MAX_TO_SERVER)?;
            if let (Some((number, needs)), Some(Author { name, role, .. })) = (unread.command(), author)
                && role < needs
            {
                let reason = CommandError::NotAllowed { name, role, needs }.to_string();
                return Ok(Read::NotAllowed { number, reason });
            }
            unread.read().map(|message| Read::Message(Box::new(message)))
        };
        if size <= limits::LARGE_MESSAGE {
            return read().map_err(|error| broken(&error));
        }
        // Closed with the server alone.
        let Ok(_place) = self.hub.large.acquire().await else { return Err(End::Gone) };
        spawn_blocking(read).await.map_err(|_| End::Gone)?.map_err(|error| broken(&error))
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
            (ToServer::At(at), Some(_)) => {
                if let Some(room) = &self.room {
                    room.look(self.window, place(at));
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
        let author = match &self.badge {
            None => Author::new(mixed("", hello.key), &name(&hello.name, NAME_LENGTH)),
            // Whatever the window calls itself.
            Some(badge) => {
                let user = badge.user().ok_or_else(Parting::gone)?;
                Author { key: mixed(&user.name, hello.key), name: user.name, role: user.role }
            }
        };
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
            let room = self.hub.room(trace, author.role).await?;
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

/// What a client sent.
enum Read {
    Message(Box<ToServer>),
    NotAllowed { number: u64, reason: String },
}

fn broken(error: &WireError) -> End {
    Parting::protocol(unread(&error.to_string())).into()
}

/// The number under which others know a window: nobody can have one of somebody else's, whatever a window says that
/// it is. What a window says is its secret: it comes from there again, and cannot be found from the number.
fn mixed(name: &str, key: u64) -> u64 {
    let mut hash = Sha256::new_with_prefix(b"loka serve window\0");
    // A name has no 0 in it.
    hash.update(name);
    hash.update([0]);
    hash.update(key.to_le_bytes());
    let number = hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    // 0 is the program itself.
    number.max(1)
}

/// Never, where there is no list.
async fn changed(badge: &mut Option<Badge>) {
    match badge {
        Some(badge) => badge.changed().await,
        None => std::future::pending().await,
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

#[cfg(test)]
mod tests {
    use super::mixed;

    #[test]
    fn a_window_of_one_person_is_none_of_another() {
        let all = [mixed("Anna", 1), mixed("Anna", 2), mixed("Bo", 1), mixed("", 1), mixed("Anna", u64::MAX)];
        let distinct: std::collections::BTreeSet<u64> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(mixed("Anna", 1), all[0], "a window that comes again is the same");
        assert!(!all.contains(&1) && !all.contains(&0));
    }
}
