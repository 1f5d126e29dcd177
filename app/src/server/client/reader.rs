//! Takes a client's messages, as if hostile, gives commands to its session and questions to whoever answers them.

use std::{sync::Arc, time::Instant};

use axum::extract::ws::Message;
use bytes::Bytes;
use futures_util::StreamExt;
use loka_core::session::{
    CommandError, Event,
    shared::{
        Author, ClientQuery, Hello, MAX_TO_SERVER, NAME_LENGTH, PROTOCOL, Person, Place, ToClient, ToServer, Unread,
        Welcome, WireError, encode, unpacked_size,
    },
};
use sha2::{Digest as _, Sha256};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use super::{CloseReason, End, Stream};
use crate::server::{
    bucket::Bucket,
    client_query, idle, limits,
    one_line::name,
    outbox::{Entered, Out, Outbox},
    sanitize::place,
    session_registry::SessionRegistry,
    shared_session::{SessionEnd, SharedSession, ToActor},
    user_store::UserHandle,
    version,
};

pub struct Reader {
    stream: Stream,
    registry: Arc<SessionRegistry>,
    outbox: Outbox,
    window: u64,
    messages: Bucket,
    bytes: Bucket,
    author: Option<Author>,
    user_handle: Option<UserHandle>,
    shared: Option<Arc<SharedSession>>,
    questions: Arc<Semaphore>,
}

impl Reader {
    pub fn new(
        stream: Stream,
        registry: Arc<SessionRegistry>,
        user_handle: Option<UserHandle>,
        outbox: Outbox,
    ) -> Self {
        let (now, rate) = (Instant::now(), registry.bounds.messages_per_second);
        Self {
            stream,
            window: registry.window(),
            messages: Bucket::new(rate, 2 * rate, now),
            bytes: Bucket::new(rate.saturating_mul(limits::BYTES_PER_MESSAGE), 4 * limits::MESSAGE_BYTES as u32, now),
            registry,
            outbox,
            author: None,
            user_handle,
            shared: None,
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
                () = changed(&mut self.user_handle) => {
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
                    return CloseReason::protocol(format!("the message cannot be read: {error}")).into();
                }
                Ok(None) => return End::Gone,
                Err(_) => return CloseReason::policy("nothing was heard from this window for too long").into(),
            };
            if let Err(end) = self.take(message).await {
                return end;
            }
        }
    }

    /// The list of people is another: what this one may do may be, too.
    fn take_role(&mut self) -> Result<(), End> {
        let (Some(user_handle), Some(author)) = (&self.user_handle, &mut self.author) else { return Ok(()) };
        match user_handle.user() {
            Some(user) if user.name == author.name => {
                if author.role != user.role {
                    author.role = user.role;
                    if let Some(shared) = &self.shared {
                        shared.set_role(self.window, user.role);
                    }
                }
                Ok(())
            }
            _ => Err(CloseReason::gone().into()),
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
            return Err(CloseReason::policy("this window sends more than the server takes").into());
        }
        match message {
            Message::Binary(_) if self.author.is_none() && size > limits::HELLO_BYTES => {
                Err(CloseReason::protocol("the first message is hello").into())
            }
            Message::Binary(bytes) => match self.read(bytes, size).await? {
                Read::Message(message) => self.hear(*message).await,
                Read::NotAllowed { number, reason } => {
                    self.outbox.send(encode(&ToClient::Refused { number, reason }).into());
                    Ok(())
                }
            },
            Message::Text(_) => Err(CloseReason::protocol("messages are binary").into()),
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
        let Ok(_place) = self.registry.large.acquire().await else { return Err(End::Gone) };
        spawn_blocking(read).await.map_err(|_| End::Gone)?.map_err(|error| broken(&error))
    }

    async fn hear(&mut self, message: ToServer) -> Result<(), End> {
        match (message, self.author.clone()) {
            (ToServer::Hello(hello), None) => self.hello(hello).await,
            (ToServer::Hello(_), Some(_)) => Err(CloseReason::protocol("hello was said already").into()),
            (_, None) => Err(CloseReason::protocol("the first message is hello").into()),
            (ToServer::Join { trace }, Some(author)) => self.join(&author, Some(trace), None).await,
            (ToServer::Command { number, seen, command }, Some(author)) => {
                let outbox = self.outbox.clone();
                let told = match &self.shared {
                    Some(shared) => shared.tell(ToActor::Command { author, number, seen, command, outbox }).await,
                    None => Err(()),
                };
                if told.is_err() {
                    let reason = "no trace is open".to_owned();
                    self.outbox.send(encode(&ToClient::Refused { number, reason }).into());
                }
                Ok(())
            }
            (ToServer::At(at), Some(_)) => {
                if let Some(shared) = &self.shared {
                    shared.look(self.window, place(at));
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
            return Err(CloseReason::protocol(differs(&hello)).into());
        }
        if hello.key == 0 {
            return Err(CloseReason::protocol("a window's key is not 0").into());
        }
        let author = match &self.user_handle {
            None => Author::new(mixed("", hello.key), &name(&hello.name, NAME_LENGTH)),
            // Whatever the window calls itself.
            Some(user_handle) => {
                let user = user_handle.user().ok_or_else(CloseReason::gone)?;
                Author { key: mixed(&user.name, hello.key), name: user.name, role: user.role }
            }
        };
        self.author = Some(author.clone());
        self.join(&author, hello.trace, hello.resume).await
    }

    async fn join(&mut self, author: &Author, trace: Option<String>, resume: Option<(u64, u64)>) -> Result<(), End> {
        self.shared = None;
        let files = self.registry.files().await;
        let Some(trace) = trace.or_else(|| self.registry.trace.clone()) else {
            return self.put(Out::Leave(idle(author, files.to_vec()))).await;
        };
        match self.enter(author, &trace, resume, &files).await {
            Ok(entered) => {
                self.shared = Some(entered.subscription.shared.clone());
                self.put(Out::Enter(Box::new(entered))).await
            }
            Err(message) => {
                let mut messages = idle(author, files.to_vec());
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
            let shared = self.registry.shared(trace, author.role).await?;
            let Author { key, name, role } = author.clone();
            let subscription = shared.enter(self.window, Person { key, name, role, at: Place::default() });
            if let Ok(heard) = shared.heard(author.key).await {
                let cursor = resume.filter(|(session, seq)| *session == shared.id && shared.reaches(*seq));
                let cursor = cursor.map(|(_, seq)| seq);
                let welcome = Welcome {
                    protocol: PROTOCOL,
                    version: version(),
                    session: shared.id,
                    resumed: cursor.is_some(),
                    heard,
                    me: author.clone(),
                    files: files.to_vec(),
                };
                let welcome = Bytes::from(encode(&ToClient::Welcome(welcome)));
                return Ok(Entered { subscription, me: author.clone(), welcome, cursor, files: files.clone() });
            }
            if let Ok(ended) = shared.ended().wait_for(Option::is_some).await
                && let Some(SessionEnd::Refused(line)) = ended.as_ref()
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
    fn ask(&self, question: ClientQuery) {
        let (registry, shared, outbox) = (self.registry.clone(), self.shared.clone(), self.outbox.clone());
        let answer = |event| Bytes::from(encode(&ToClient::Answer(Box::new(event))));
        let Ok(place) = self.questions.clone().try_acquire_owned() else {
            let line = "this window asks too much at once; try again".to_owned();
            return outbox.send(answer(client_query::refusal(shared.as_deref(), question, line)));
        };
        tokio::spawn(async move {
            let event = client_query::answer(&registry, shared, question).await;
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
    CloseReason::protocol(unread(&error.to_string())).into()
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
async fn changed(user_handle: &mut Option<UserHandle>) {
    match user_handle {
        Some(user_handle) => user_handle.changed().await,
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
