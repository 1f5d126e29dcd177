//! A session on a server: takes commands and sends them there, applies what the server tells. Comes back by
//! itself after a lost connection, and says that it was away. What a window does for itself (files to download) is
//! left to the executor of its page.

use std::{collections::VecDeque, sync::Arc};

use loka_core::{
    runtime::{Applied, Executor, Replica},
    session::{
        Command, Effect, Event, Session,
        shared::{
            ClientQuery, CommandContext, LinkMessage, Loading, MAX_TO_CLIENT, SILENCE, SyncClient, ToClient, ToServer,
            decode, encode,
        },
    },
};

use super::{ConnectionState, Link, Status, Submission};
use crate::clock::now;

/// One connection.
pub trait Socket {
    fn send(&mut self, bytes: &[u8]);

    fn poll(&mut self) -> Option<SocketNews>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketNews {
    Opened,
    Message(Vec<u8>),
    /// It ended, or was never there.
    Closed,
    /// It could not be made. `again`: it is worth trying later.
    Failed {
        why: String,
        again: bool,
    },
}

/// Where connections and the time come from.
pub trait Network {
    fn connect(&mut self) -> Result<Box<dyn Socket>, String>;

    /// Seconds, from any moment on.
    fn now(&self) -> f64;
}

/// Waits between tries, in seconds; the last is kept to.
const WAITS: [f64; 6] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// Seconds after which what is not answered is told.
const LATE: f64 = 1.0;

const JOINING: &str = "The session is still on its way: nothing was changed. Try again in a moment.";

const AWAY: &str = "The server does not answer: nothing was changed. Try again when it is back.";

pub struct RemoteLink {
    network: Box<dyn Network>,
    /// For what a window does itself.
    page: Box<dyn Executor>,
    socket: Option<Box<dyn Socket>>,
    sync: SyncClient,
    replica: Replica,
    /// Asked, and not answered.
    questions: Vec<(ClientQuery, String)>,
    /// Hello was said on this connection: the server takes nothing before it.
    greeted: bool,
    joined: bool,
    away: Option<Away>,
    /// When the server was heard last, or reached for.
    heard: f64,
    /// Since when something that was sent is not answered.
    waiting: Option<f64>,
    own: VecDeque<LinkMessage>,
    /// What can be opened in the served folder.
    files: Arc<[String]>,
}

/// Since when there is no server, and how often it was tried.
struct Away {
    since: f64,
    retry_at: Option<f64>,
    tries: usize,
    why: String,
}

impl RemoteLink {
    pub fn new(network: Box<dyn Network>, page: Box<dyn Executor>, sync: SyncClient) -> Self {
        let mut link = Self {
            network,
            page,
            socket: None,
            sync,
            replica: Replica::default(),
            questions: Vec::new(),
            greeted: false,
            joined: false,
            away: None,
            heard: 0.0,
            waiting: None,
            own: VecDeque::new(),
            files: Arc::default(),
        };
        link.connect();
        link
    }

    /// What was asked for and is not answered.
    pub fn num_waiting(&self) -> usize {
        self.sync.num_waiting()
    }

    /// A trace was chosen, and is not here yet.
    pub fn awaits_trace(&self) -> bool {
        self.joined && self.sync.has_session() && self.replica.session().trace.is_none()
    }

    fn connect(&mut self) {
        self.heard = self.network.now();
        match self.network.connect() {
            Ok(socket) => self.socket = Some(socket),
            Err(why) => self.lost(why, true),
        }
    }

    /// The connection is gone, and nobody said why: what is known of it stands.
    fn cut(&mut self) {
        let known = self.away.as_ref().map(|away| away.why.clone());
        self.lost(known.unwrap_or_else(|| "it was cut".to_owned()), true);
    }

    /// The connection is gone; another is tried later if it is worth it.
    fn lost(&mut self, why: String, again: bool) {
        (self.socket, self.greeted, self.joined) = (None, false, false);
        let now = self.network.now();
        let tries = self.away.as_ref().map_or(0, |away| away.tries);
        let since = self.away.as_ref().map_or(now, |away| away.since);
        let wait = WAITS[tries.min(WAITS.len() - 1)];
        self.away = Some(Away { since, retry_at: again.then_some(now + wait), tries: tries + 1, why });
    }

    fn send(&mut self, message: &ToServer) {
        if let Some(socket) = &mut self.socket {
            socket.send(&encode(message));
        }
    }

    fn drive(&mut self) {
        let due = |away: &Away| away.retry_at.is_some_and(|at| at <= self.network.now());
        if self.socket.is_none() && self.away.as_ref().is_some_and(due) {
            self.connect();
        }
        while let Some(news) = self.socket.as_mut().and_then(|socket| socket.poll()) {
            self.heard = self.network.now();
            match news {
                SocketNews::Opened => {
                    let hello = self.sync.hello();
                    self.send(&hello);
                    self.greeted = true;
                }
                SocketNews::Message(bytes) => self.message(&bytes),
                SocketNews::Failed { why, again } => self.lost(why, again),
                SocketNews::Closed => match self.sync.closed.take() {
                    Some((why, again)) => self.lost(why, again),
                    None => self.cut(),
                },
            }
        }
        // After everything that came while nobody looked, as of a page in the background.
        if self.socket.is_some() && self.network.now() - self.heard > SILENCE {
            self.lost(format!("nothing was heard of it for {SILENCE:.0} s"), true);
        }
        self.waiting = match (self.sync.num_waiting(), self.waiting) {
            (0, _) => None,
            (_, since) => since.or(Some(self.network.now())),
        };
    }

    fn message(&mut self, bytes: &[u8]) {
        let message: ToClient = match decode(bytes, MAX_TO_CLIENT) {
            Ok(message) => message,
            Err(error) => return self.lost(error.to_string(), true),
        };
        if let ToClient::Answer(event) = &message {
            self.answered(event);
        }
        let welcome = matches!(message, ToClient::Welcome(_));
        match self.sync.take(message) {
            Ok(answers) => answers.iter().for_each(|answer| self.send(answer)),
            Err(why) => return self.lost(why, true),
        }
        if welcome {
            (self.joined, self.away) = (true, None);
            self.files = self.sync.files.as_slice().into();
            for (question, _) in self.questions.clone() {
                self.send(&ToServer::Ask(question));
            }
        }
    }

    fn ask(&mut self, question: ClientQuery, trace: String) {
        if self.away.is_some() {
            let event = unanswered(question, trace);
            return self.own.push_back(LinkMessage::from(event));
        }
        // The welcome sends what is not answered.
        if self.joined {
            self.send(&ToServer::Ask(question.clone()));
        }
        self.questions.push((question, trace));
    }

    fn answered(&mut self, event: &Event) {
        let of = |(question, _): &(ClientQuery, String)| match (question, event) {
            (ClientQuery::Inspect { site, other }, Event::SiteInspected { site: of, other: from, .. }) => {
                site == of && other == from
            }
            (ClientQuery::Series, Event::SeriesRead { .. }) => true,
            (ClientQuery::Compare { path }, Event::TraceCompared { path: of, .. }) => path == of,
            (ClientQuery::Checkpoints { .. }, Event::CheckpointsRead { .. }) => true,
            (ClientQuery::Identify { path }, Event::Identified { path: of, .. }) => path == of,
            _ => false,
        };
        if let Some(at) = self.questions.iter().position(of) {
            self.questions.remove(at);
        }
    }
}

/// What a question comes to without a server.
fn unanswered(question: ClientQuery, trace: String) -> Event {
    let why = "the server does not answer".to_owned();
    match question {
        ClientQuery::Inspect { site, other } => Event::SiteInspected { trace, other, site, outcome: Err(why) },
        ClientQuery::Series => Event::SeriesRead { path: trace, table: Err(why) },
        ClientQuery::Compare { path } => Event::TraceCompared { trace, path, outcome: Err(why) },
        ClientQuery::Checkpoints { .. } => Event::CheckpointsRead { trace, outcome: Err(why) },
        ClientQuery::Identify { path } => Event::Identified { path, kind: Err(why) },
    }
}

impl RemoteLink {
    /// Of what the session asks for, the server does what all see; a window asks for what it alone wants to know.
    fn run(&mut self, effect: Effect) {
        match effect {
            Effect::Inspect { trace, site } => self.ask(ClientQuery::Inspect { site, other: None }, trace),
            Effect::InspectOther { trace, path, site } => {
                self.ask(ClientQuery::Inspect { site, other: Some(path) }, trace);
            }
            Effect::CompareTrace { trace, path } => self.ask(ClientQuery::Compare { path }, trace),
            Effect::ReadCheckpoints { trace, followed } => {
                self.ask(ClientQuery::Checkpoints { followed: Box::new(Arc::unwrap_or_clone(followed)) }, trace);
            }
            Effect::ReadSeries { path } => self.ask(ClientQuery::Series, path),
            Effect::Identify { path } => self.ask(ClientQuery::Identify { path }, String::new()),
            Effect::WriteResults { .. }
            | Effect::WritePlan { .. }
            | Effect::WriteExport { .. }
            | Effect::WriteReport { .. }
            | Effect::Sign { .. } => self.page.run(effect),
            _ => {}
        }
    }

    fn command(&mut self, command: Command) {
        if command.is_per_window() {
            let by = CommandContext::alone(self.sync.author().clone(), now());
            let effects = self.replica.private(&by, command);
            return effects.into_iter().for_each(|effect| self.run(effect));
        }
        if self.away.is_some() {
            return self.own.push_back(LinkMessage::Refused(AWAY.to_owned()));
        }
        match command {
            Command::OpenTrace { path } => {
                self.questions.clear();
                let message = self.sync.join(&path);
                // Hello says it, too.
                if self.greeted {
                    self.send(&message);
                }
            }
            // Its number is known with the welcome: the server may know this window from before it was loaded anew.
            _ if !self.joined => self.own.push_back(LinkMessage::Refused(JOINING.to_owned())),
            command => {
                let message = self.sync.submit(command);
                self.send(&message);
            }
        }
    }

    fn open_next(&mut self) {
        while let Some(command) = self.replica.next_open() {
            self.command(command);
        }
    }

    fn next_news(&mut self) -> Option<LinkMessage> {
        let own = |page: &mut dyn Executor| page.poll()?.event().map(LinkMessage::from);
        self.own.pop_front().or_else(|| self.sync.poll()).or_else(|| own(self.page.as_mut()))
    }

    fn connection(&self) -> ConnectionState {
        let now = self.network.now();
        if let Some(away) = &self.away {
            let whole = |seconds: f64| seconds.max(0.0).round() as u64;
            let retry_in = away.retry_at.map(|at| whole(at - now));
            return ConnectionState::Away { why: away.why.clone(), seconds_away: whole(now - away.since), retry_in };
        }
        let share = self.sync.loading().map(|Loading { done, all }| done as f32 / all.max(1) as f32);
        if !self.joined || share.is_some() {
            return ConnectionState::Joining { share };
        }
        let late = self.waiting.is_some_and(|since| now - since > LATE);
        let waiting = if late { self.sync.num_waiting() } else { 0 };
        let (people, me) = (self.sync.people.clone(), self.sync.author().clone());
        ConnectionState::Joined { people, me, waiting }
    }
}

impl Link for RemoteLink {
    fn session(&self) -> &Session {
        self.replica.session()
    }

    fn submit(&mut self, what: Submission) {
        match what {
            Submission::Command(command) => self.command(command),
            Submission::Open(paths) => {
                for question in self.replica.open(paths) {
                    self.command(question);
                }
                self.open_next();
            }
            Submission::Note(event) => drop(self.replica.apply(LinkMessage::from(event))),
            Submission::Look(place) => {
                if self.joined
                    && let Some(message) = self.sync.look(place)
                {
                    self.send(&message);
                }
            }
            Submission::Retry => {
                if self.socket.is_none() {
                    self.connect();
                }
            }
        }
    }

    fn poll(&mut self) -> Option<Applied> {
        self.drive();
        let news = self.next_news()?;
        let applied = self.replica.apply(news);
        self.open_next();
        Some(applied)
    }

    fn status(&self) -> Status {
        let reading = || self.questions.first().map(|_| "Reading on the server".to_owned());
        Status {
            connection: self.connection(),
            busy: self.page.busy().or_else(reading),
            me: self.sync.author().clone(),
            files: Some(self.files.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
