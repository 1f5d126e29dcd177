//! The loop: takes lines as a client sends them and what happens in the session, gives each request its one answer. A
//! request that waits for the session lets pings and cancellations pass; what else comes meanwhile waits its turn.

use std::{
    collections::VecDeque,
    io::{BufReader, Read, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    },
    time::{Duration, Instant},
};

use loka_core::{
    model::{Metric, visible_json},
    session::Command,
    views::{ViewQuery, Views},
};
use serde_json::{Value, json};

use super::{
    lines::{self, ClientLine},
    message::{self, Code, Incoming, Message, Request, RpcError},
    protocol::{self, Era, Protocol},
    seat::Seat,
};
use crate::executor::{Wake, panic_text};

/// Bytes of one line. A request names some sites; whole lists of a large trace are a megabyte.
const LINE_BYTES: usize = 4 << 20;
/// Lines that wait for their turn: whoever sends more waits.
const LINES: usize = 64;
/// How often a server is looked after while nobody asks: a connection that was lost is tried again.
const TICK: Duration = Duration::from_millis(250);
/// For what is under way when a question comes: files being opened, a session on its way.
const PATIENCE: Duration = Duration::from_secs(60);
/// For the answer to a command.
const ANSWER: Duration = Duration::from_secs(20);
/// How often a client that wants to know is told how far a wait is.
const PROGRESS: Duration = Duration::from_millis(500);

/// What the assistant may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    Changes,
}

enum Signal {
    /// Something happened in the session.
    Wake,
    Line(ClientLine),
    End,
}

/// Why a tool has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoResult {
    /// In words, for the assistant.
    Words(String),
    /// The client asked for nothing any longer.
    Cancelled,
}

impl From<String> for NoResult {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

impl From<&str> for NoResult {
    fn from(words: &str) -> Self {
        Self::Words(words.to_owned())
    }
}

/// What a request asks for: `None` where it was cancelled.
pub type Perform = fn(&mut Host, &Request, Era) -> Option<Result<Value, RpcError>>;

pub struct Host {
    pub(super) seat: Seat,
    pub(super) access: Access,
    /// Derived of the session as it was last asked for.
    views: Views,
    refused: Vec<String>,
    signals: Receiver<Signal>,
    turns: Receiver<()>,
    called: Arc<AtomicBool>,
    postponed: VecDeque<ClientLine>,
    out: Box<dyn Write>,
    protocol: Protocol,
    perform: Perform,
    ended: bool,
}

/// What a host hears by, before there is a session that would wake it.
pub struct Ears {
    signals: Receiver<Signal>,
    sender: Sender<Signal>,
    turns: (SyncSender<()>, Receiver<()>),
    called: Arc<AtomicBool>,
}

impl Ears {
    /// Called when something happened, as often as it likes.
    pub fn wake(&self) -> Wake {
        let (sender, called) = (self.sender.clone(), Arc::clone(&self.called));
        Arc::new(move || {
            if !called.swap(true, Ordering::AcqRel) {
                drop(sender.send(Signal::Wake));
            }
        })
    }
}

impl Default for Ears {
    fn default() -> Self {
        let (sender, signals) = channel();
        Self { signals, sender, turns: sync_channel(LINES), called: Arc::default() }
    }
}

impl Host {
    /// Reads `input` on a thread of its own.
    pub fn new(
        ears: Ears,
        seat: Seat,
        access: Access,
        input: impl Read + Send + 'static,
        out: Box<dyn Write>,
        perform: Perform,
    ) -> Result<Self, String> {
        let Ears { signals, sender, turns: (turn, turns), called } = ears;
        let read = move || {
            let mut input = BufReader::new(input);
            while let Some(line) = lines::next(&mut input, LINE_BYTES) {
                if turn.send(()).is_err() || sender.send(Signal::Line(line)).is_err() {
                    return;
                }
            }
            drop(sender.send(Signal::End));
        };
        let thread = std::thread::Builder::new().name("loka-stdin".to_owned());
        thread.spawn(read).map_err(|error| format!("no thread could be started: {error}"))?;
        Ok(Self {
            seat,
            access,
            views: Views::default(),
            refused: Vec::new(),
            signals,
            turns,
            called,
            postponed: VecDeque::new(),
            out,
            protocol: Protocol::default(),
            perform,
            ended: false,
        })
    }

    /// Until the client goes.
    pub fn run(mut self) {
        while !self.ended {
            while let Some(line) = self.postponed.pop_front() {
                self.line(line);
            }
            let signal = self.next_signal(if self.seat.is_joined() { TICK } else { PATIENCE });
            match signal {
                Some(Signal::Line(line)) => self.line(line),
                Some(Signal::End) => self.ended = true,
                Some(Signal::Wake) | None => {}
            }
            // What nobody waited for was refused to nobody.
            drop(self.seat.drive());
        }
        self.seat.flush();
    }

    fn next_signal(&mut self, within: Duration) -> Option<Signal> {
        match self.signals.recv_timeout(within) {
            Ok(Signal::Wake) => {
                self.called.store(false, Ordering::Release);
                Some(Signal::Wake)
            }
            Ok(Signal::Line(line)) => {
                _ = self.turns.recv();
                Some(Signal::Line(line))
            }
            Ok(Signal::End) | Err(RecvTimeoutError::Disconnected) => Some(Signal::End),
            Err(RecvTimeoutError::Timeout) => None,
        }
    }

    fn line(&mut self, line: ClientLine) {
        let message = match line {
            // Between messages there may be nothing.
            ClientLine::Text(text) if text.trim().is_empty() => return,
            ClientLine::Text(text) => message::read(&text),
            ClientLine::TooLong => {
                let why = format!("a message of more than {} MiB", LINE_BYTES >> 20);
                Message::One(Incoming::Wrong(Value::Null, RpcError::new(Code::InvalidRequest, why)))
            }
            ClientLine::NoText => Message::One(Incoming::Wrong(Value::Null, RpcError::new(Code::Parse, "not UTF-8"))),
        };
        match message {
            Message::One(one) => {
                if let Some(answer) = self.incoming(one) {
                    self.write(&answer);
                }
            }
            Message::Batch(all) if self.protocol.takes_batches() => {
                let answers: Vec<Value> = all.into_iter().filter_map(|one| self.incoming(one)).collect();
                if !answers.is_empty() {
                    self.write(&Value::Array(answers));
                }
            }
            Message::Batch(_) => {
                let none = RpcError::new(Code::InvalidRequest, "a batch: this version of MCP has one message a line");
                self.write(&message::answer(&Value::Null, Err(none)));
            }
        }
    }

    /// Its answer, if it has one.
    fn incoming(&mut self, incoming: Incoming) -> Option<Value> {
        match incoming {
            Incoming::Wrong(id, error) => Some(message::answer(&id, Err(error))),
            Incoming::Notification { .. } | Incoming::Response => None,
            Incoming::Request(request) => {
                // A defect of ours is one request's, not the session's.
                let outcome = catch_unwind(AssertUnwindSafe(|| self.request(&request)));
                let outcome =
                    outcome.unwrap_or_else(|cause| Some(Err(RpcError::new(Code::Internal, panic_text(&*cause)))))?;
                Some(message::answer(&request.id, outcome))
            }
        }
    }

    /// `None`: it was cancelled.
    fn request(&mut self, request: &Request) -> Option<Result<Value, RpcError>> {
        let era = match self.protocol.era_of(request) {
            Ok(era) => era,
            Err(error) => return Some(Err(error)),
        };
        let outcome = (self.perform)(self, request, era)?;
        Some(outcome.map(|result| match era {
            Era::Handshake => result,
            Era::Stateless => protocol::stateless(result, &request.method),
        }))
    }

    pub(super) fn protocol(&mut self) -> &mut Protocol {
        &mut self.protocol
    }

    fn write(&mut self, message: &Value) {
        // Names come from files: whatever is in one, a line stays a line and steers no terminal.
        let line = visible_json(&message.to_string());
        let written = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
        // Nobody reads any longer.
        self.ended |= written.is_err();
    }

    /// Carries the session on until `done`, or that long. `Err`: the client cancelled `request`, or is gone.
    pub(super) fn wait(
        &mut self,
        request: &Request,
        within: Duration,
        done: impl Fn(&Seat) -> bool,
    ) -> Result<bool, NoResult> {
        let until = Instant::now() + within;
        let mut told = Instant::now();
        loop {
            let refused = self.seat.drive();
            self.refused.extend(refused);
            if done(&self.seat) {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            match self.next_signal(left.min(TICK)) {
                Some(Signal::Line(line)) => self.meanwhile(request, line)?,
                Some(Signal::End) => {
                    self.ended = true;
                    return Err(NoResult::Cancelled);
                }
                Some(Signal::Wake) | None => {}
            }
            if told.elapsed() > PROGRESS {
                told = Instant::now();
                self.tell_progress(request);
            }
        }
    }

    /// A line that comes while a request waits.
    fn meanwhile(&mut self, request: &Request, line: ClientLine) -> Result<(), NoResult> {
        if let ClientLine::Text(text) = &line {
            match message::read(text) {
                Message::One(Incoming::Request(ping)) if ping.method == "ping" => {
                    if let Some(answer) = self.incoming(Incoming::Request(ping)) {
                        self.write(&answer);
                    }
                    return Ok(());
                }
                Message::One(Incoming::Notification { method, params }) => {
                    let cancelled = method == "notifications/cancelled" && params.get("requestId") == Some(&request.id);
                    return if cancelled { Err(NoResult::Cancelled) } else { Ok(()) };
                }
                _ => {}
            }
        }
        self.postponed.push_back(line);
        Ok(())
    }

    fn tell_progress(&mut self, request: &Request) {
        let Some(token) = request.params.get("_meta").and_then(|meta| meta.get("progressToken")).cloned() else {
            return;
        };
        let Some(run) = &self.seat.session().run else { return };
        let params = json!({
            "progressToken": token, "progress": run.done, "total": 1.0,
            "message": format!("probing, {:.0} %", 100.0 * run.done),
        });
        self.write(&message::notification("notifications/progress", &params));
    }

    /// The session is there: files are open, or the server's has come.
    pub(super) fn ready(&mut self, request: &Request) -> Result<(), NoResult> {
        let there = |seat: &Seat| seat.problem().is_some() || seat.under_way().is_none();
        if !self.wait(request, PATIENCE, there)? {
            let what = self.seat.under_way().unwrap_or_default();
            return Err(format!("still under way after {} s: {what}. Ask again.", PATIENCE.as_secs()).into());
        }
        if let Some(problem) = self.seat.problem() {
            return Err(problem.into());
        }
        if self.seat.session().trace.is_none() {
            return Err(self.nothing_open().into());
        }
        Ok(())
    }

    fn nothing_open(&self) -> String {
        let files = self.seat.files();
        if !files.is_empty() {
            let names: Vec<&str> = files.iter().take(20).map(String::as_str).collect();
            return format!(
                "No trace is chosen. Start `loka mcp --connect` with --trace NAME; the server has: {}.",
                names.join(", ")
            );
        }
        let last = self.seat.session().notices.last().map(|notice| format!(": {}", notice.text)).unwrap_or_default();
        format!("No trace is open{last}")
    }

    /// Everything that is derived of the session as it stands.
    pub(super) fn views(&mut self) -> Result<Views, NoResult> {
        let snapshot = self.seat.session().snapshot().ok_or("No trace is open")?;
        let metric = self.metric();
        let question = ViewQuery { metric, gemm: None, relative: false, versus: false };
        self.views = Views::of(&snapshot, question, &self.views);
        Ok(self.views.clone())
    }

    /// The policy's.
    pub(super) fn metric(&self) -> Metric {
        self.seat.session().document.policy.metric
    }

    /// Has a command carried out, here or on the server; the refusal in words.
    pub(super) fn change(&mut self, request: &Request, command: Command) -> Result<(), NoResult> {
        self.refused.clear();
        self.seat.submit(command)?;
        let answered = self.wait(request, ANSWER, |seat| seat.num_waiting() == 0)?;
        if let Some(line) = self.refused.pop() {
            return Err(line.into());
        }
        if !answered {
            let problem = self.seat.problem().unwrap_or_else(|| "the server does not answer".to_owned());
            return Err(format!("{problem}. Whether it was done is not known: look before asking again.").into());
        }
        self.seat.flush();
        Ok(())
    }
}
