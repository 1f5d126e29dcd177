//! The window's end of a shared session: takes what the server sends, gives messages in their order; takes what the
//! person asks for, gives what is to be sent. Survives a lost connection: it knows what it has and what was not
//! answered yet.

use std::collections::VecDeque;

use crate::session::{Command, Event, RowChunk, SavedSession, SessionHeader};

use super::{
    Author, ClientQuery, CommandContext, Hello, PROTOCOL, Person, Place, SequencedInput, SessionInput, ToClient,
    ToServer, Welcome,
};

/// What a window takes up, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkMessage {
    Event(Box<Event>),
    /// Somebody's command, carried out elsewhere: apply it, and do nothing of what it asks for.
    Command {
        by: CommandContext,
        /// Its place in the order.
        seq: u64,
        command: Box<Command>,
    },
    /// The whole session, in place of what the window has.
    State(Box<SavedSession>),
    /// This window's command was refused, in one line.
    Refused(String),
}

impl From<Event> for LinkMessage {
    fn from(event: Event) -> Self {
        Self::Event(Box::new(event))
    }
}

/// How far a session on its way is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loading {
    pub done: u64,
    pub all: u64,
}

/// A session on its way.
struct Coming {
    seq: u64,
    all: u64,
    saved: Box<SavedSession>,
}

/// A command on its way: sent again as it was, with what its author knew then.
struct Waiting {
    number: u64,
    seen: u64,
    command: Command,
}

impl Waiting {
    fn message(&self) -> ToServer {
        ToServer::Command { number: self.number, seen: self.seen, command: Box::new(self.command.clone()) }
    }
}

pub struct SyncClient {
    /// The window's own, whatever the server makes of it.
    key: u64,
    author: Author,
    version: String,
    trace: Option<String>,
    /// The session, and the last step taken.
    at: Option<(u64, u64)>,
    /// Of the session that is being joined.
    session: u64,
    /// Sent, and not answered.
    waiting: VecDeque<Waiting>,
    last_number: u64,
    place: Place,
    coming: Option<Coming>,
    news: VecDeque<LinkMessage>,
    pub people: Vec<Person>,
    pub files: Vec<String>,
    /// The server ended the talk: why, and whether it is worth trying again.
    pub closed: Option<(String, bool)>,
}

impl SyncClient {
    pub fn new(author: Author, version: &str, trace: Option<String>) -> Self {
        Self {
            key: author.key,
            author,
            version: version.to_owned(),
            trace,
            at: None,
            session: 0,
            waiting: VecDeque::new(),
            last_number: 0,
            place: Place::default(),
            coming: None,
            news: VecDeque::new(),
            people: Vec::new(),
            files: Vec::new(),
            closed: None,
        }
    }

    pub fn author(&self) -> &Author {
        &self.author
    }

    /// The trace asked for.
    pub fn trace(&self) -> Option<&str> {
        self.trace.as_deref()
    }

    /// The first message of every connection.
    pub fn hello(&mut self) -> ToServer {
        (self.coming, self.closed) = (None, None);
        ToServer::Hello(Hello {
            protocol: PROTOCOL,
            version: self.version.clone(),
            key: self.key,
            name: self.author.name.clone(),
            trace: self.trace.clone(),
            resume: self.at,
        })
    }

    /// Another trace's session from now on. Commands that were not answered are of the one before.
    pub fn join(&mut self, trace: &str) -> ToServer {
        self.trace = Some(trace.to_owned());
        (self.at, self.coming) = (None, None);
        self.waiting.clear();
        ToServer::Join { trace: trace.to_owned() }
    }

    pub fn submit(&mut self, command: Command) -> ToServer {
        self.last_number += 1;
        let seen = self.at.map_or(0, |(_, seq)| seq);
        let waiting = Waiting { number: self.last_number, seen, command };
        let message = waiting.message();
        self.waiting.push_back(waiting);
        message
    }

    /// Where this person looks now; `None`: the others know.
    pub fn look(&mut self, place: Place) -> Option<ToServer> {
        if self.place == place {
            return None;
        }
        self.place = place.clone();
        Some(ToServer::At(place))
    }

    pub fn ask(&self, question: ClientQuery) -> ToServer {
        ToServer::Ask(question)
    }

    /// Commands that the server did not answer yet.
    pub fn num_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The session and the last step of it that was taken.
    pub fn at(&self) -> Option<(u64, u64)> {
        self.at
    }

    /// The server gave this window a session, which may still be on its way.
    pub fn has_session(&self) -> bool {
        self.session != 0
    }

    /// `None`: nothing is on its way.
    pub fn loading(&self) -> Option<Loading> {
        let coming = self.coming.as_ref()?;
        Some(Loading { done: coming.saved.shares.len() as u64, all: coming.all })
    }

    pub fn poll(&mut self) -> Option<LinkMessage> {
        self.news.pop_front()
    }

    /// Takes a message; gives what has to be sent for it. `Err`: the server broke the order, and the window has
    /// to say hello again, for the whole session.
    pub fn take(&mut self, message: ToClient) -> Result<Vec<ToServer>, String> {
        match message {
            ToClient::Welcome(welcome) => return Ok(self.welcomed(welcome)),
            ToClient::Saved { seq, num_shares, head } => self.begin(seq, num_shares, head),
            ToClient::Shares(shares) => self.add(shares),
            ToClient::Steps(steps) => {
                for step in steps {
                    self.step(step)?;
                }
            }
            ToClient::Refused { number, reason } => {
                self.answered(number);
                self.news.push_back(LinkMessage::Refused(reason));
            }
            ToClient::Answer(event) => self.news.push_back(LinkMessage::Event(event)),
            ToClient::Present(people) => self.take_people(people),
            ToClient::Closing { reason, again } => self.closed = Some((reason, again)),
            ToClient::Alive => {}
        }
        Ok(Vec::new())
    }

    fn welcomed(&mut self, welcome: Welcome) -> Vec<ToServer> {
        let Welcome { session, resumed, heard, files, me, .. } = welcome;
        (self.session, self.files, self.author) = (session, files, me);
        if !resumed {
            self.at = None;
        }
        self.answered(heard);
        // The server may know this window from before it was loaded anew.
        self.last_number = self.last_number.max(heard);
        let mut again: Vec<ToServer> = self.waiting.iter().map(Waiting::message).collect();
        if self.place != Place::default() {
            again.push(ToServer::At(self.place.clone()));
        }
        again
    }

    /// What this person may do can change while the window is open.
    fn take_people(&mut self, people: Vec<Person>) {
        if let Some(me) = people.iter().find(|person| person.key == self.author.key) {
            self.author.role = me.role;
        }
        self.people = people;
    }

    /// Commands are answered in their order.
    fn answered(&mut self, number: u64) {
        while self.waiting.front().is_some_and(|waiting| waiting.number <= number) {
            self.waiting.pop_front();
        }
    }

    fn begin(&mut self, seq: u64, all: u64, head: Box<SessionHeader>) {
        let saved = Box::new(SavedSession { head: *head, shares: Vec::new() });
        self.coming = Some(Coming { seq, all, saved });
        self.whole();
    }

    fn add(&mut self, shares: Vec<RowChunk>) {
        if let Some(coming) = &mut self.coming {
            coming.saved.shares.extend(shares);
        }
        self.whole();
    }

    /// The last share makes it a state.
    fn whole(&mut self) {
        let whole = self.coming.take_if(|coming| coming.saved.shares.len() as u64 >= coming.all);
        if let Some(Coming { seq, saved, .. }) = whole {
            // What was sent while it was on its way and is in it comes by no step.
            self.answered(saved.head.heard.get(&self.author.key).copied().unwrap_or_default());
            self.at = Some((self.session, seq));
            self.news.push_back(LinkMessage::State(saved));
        }
    }

    fn step(&mut self, SequencedInput { seq, input }: SequencedInput) -> Result<(), String> {
        // Steps that the state on its way has already, or that were sent before it was asked for.
        let Some((session, last)) = self.at else { return Ok(()) };
        if seq <= last {
            return Ok(());
        }
        if seq != last + 1 {
            self.at = None;
            return Err(format!("step {seq} came after step {last}"));
        }
        self.at = Some((session, seq));
        let news = match input {
            SessionInput::Event(event) => LinkMessage::Event(event),
            SessionInput::Command { by, command } => {
                if by.author.key == self.author.key {
                    self.answered(by.number);
                }
                LinkMessage::Command { by, seq, command: Box::new(command) }
            }
        };
        self.news.push_back(news);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
