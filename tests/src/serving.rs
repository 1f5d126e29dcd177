//! `loka serve` as a test needs it: the real binary on a port of its own, raw requests to it, and windows that follow
//! a session as a browser's do.

mod raw;
mod usage;

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, ErrorKind, Read as _},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use loka_core::session::{
    self, Event, Session,
    shared::{Author, ClientQuery, LinkMessage, MAX_TO_CLIENT, SyncClient, ToClient, ToServer, decode, encode},
};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket, client::IntoClientRequest as _};

pub use raw::Answer;
pub use usage::ProcessUsage;

use crate::{ProgramRun, loka};

/// No step of a test waits longer. Under ten other processes a probe by eight parts took twenty seconds.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, killed when it is dropped.
pub struct Server {
    pub child: Child,
    /// What the last line of its start says.
    pub link: String,
    /// `127.0.0.1:PORT`.
    pub address: String,
    out: BufReader<ChildStdout>,
    _page: TempDir,
}

pub const INDEX: &str = "<!doctype html><html><head><!-- loka-serve --></head><body>LoKA</body></html>";
pub const SCRIPT: &str = "export default 1;";

fn page() -> TempDir {
    let page = TempDir::new().unwrap();
    std::fs::write(page.path().join("index.html"), INDEX).unwrap();
    std::fs::write(page.path().join("loka.js"), SCRIPT).unwrap();
    page
}

impl Server {
    /// Serves `what` on a free port, with a page of two files.
    pub fn start<S: AsRef<OsStr>>(what: &Path, args: impl IntoIterator<Item = S>) -> Self {
        Self::listen(what, "127.0.0.1:0", args)
    }

    pub fn listen<S: AsRef<OsStr>>(what: &Path, listen: &str, args: impl IntoIterator<Item = S>) -> Self {
        Self::under(&[], what, listen, args)
    }

    /// What it writes on stderr is kept in a file.
    pub fn logged<S: AsRef<OsStr>>(what: &Path, args: impl IntoIterator<Item = S>, log: &Path) -> Self {
        Self::spawned(&[], what, "127.0.0.1:0", args, std::fs::File::create(log).unwrap().into())
    }

    /// Started by another program, whose words come first.
    pub fn under<S: AsRef<OsStr>>(
        starter: &[&str],
        what: &Path,
        listen: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        Self::spawned(starter, what, listen, args, Stdio::null())
    }

    fn spawned<S: AsRef<OsStr>>(
        starter: &[&str],
        what: &Path,
        listen: &str,
        args: impl IntoIterator<Item = S>,
        stderr: Stdio,
    ) -> Self {
        let args: Vec<S> = args.into_iter().collect();
        let page = page();
        let binary = loka();
        let mut words = starter.iter().map(OsStr::new).chain([binary.as_os_str()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg("serve").arg(what).args(["--listen", listen, "--page"]).arg(page.path()).args(&args);
        // A test of tokens says so.
        let of_keys = ["--token", "--token-file", "--users"].map(OsStr::new);
        if listen.starts_with("127.") && !args.iter().any(|arg| of_keys.contains(&arg.as_ref())) {
            command.arg("--no-token");
        }
        Self::begun(command.stderr(stderr), page).unwrap_or_else(|run| panic!("not a link: {run:?}"))
    }

    /// A `loka` that was asked for a window where there is no display. `open` gets a page of two files. `Err`: it ended.
    pub fn without_display(folder: &Path, args: &[&str]) -> Result<Self, ProgramRun> {
        let (mut command, page) = (Command::new(loka()), page());
        command.args(args).current_dir(folder).stderr(Stdio::piped());
        if args.contains(&"open") {
            command.arg("--page").arg(page.path());
        }
        for name in ["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET"] {
            command.env_remove(name);
        }
        Self::begun(&mut command, page)
    }

    fn begun(command: &mut Command, page: TempDir) -> Result<Self, ProgramRun> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut link = String::new();
        out.read_line(&mut link).unwrap();
        let Some((_, after)) = link.split_once("://") else {
            let ended = ProgramRun::from(child.wait_with_output().unwrap());
            return Err(ProgramRun { stdout: link, ..ended });
        };
        let port = after.split(['/', '"']).next().unwrap().rsplit(':').next().unwrap();
        let address = format!("127.0.0.1:{port}");
        Ok(Self { child, link: link.trim_end().to_owned(), address, out, _page: page })
    }

    /// Everything else that it wrote on stdout; it has ended.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        rest
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// The exit code, once it has ended by itself.
    pub fn ended(&mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Puts somebody on a list of people; the end of their link.
pub fn add_user(users: &Path, name: &str, role: &str) -> String {
    let folder = users.parent().unwrap();
    let run = crate::run_in(folder, ["user", "add", name, "--role", role, "--users", users.to_str().unwrap()]).done();
    run.stdout.trim_end().to_owned()
}

/// A window on a session: what a browser does, without drawing.
pub struct Window {
    socket: Option<WebSocket<TcpStream>>,
    address: String,
    cookie: Option<String>,
    pub sync: SyncClient,
    pub session: Session,
    /// Connections on which the server has answered.
    pub num_welcomes: usize,
    /// How often the whole session came.
    pub num_states: usize,
    /// Messages with steps since the window was opened.
    pub num_steps: usize,
    /// How often the server said that it is there.
    pub num_alive: usize,
    /// Rows that steps brought, those that came again with a better interval too.
    pub num_rows: usize,
    pub refused: Vec<String>,
    pub answers: Vec<Event>,
}

impl Window {
    /// Says hello and waits for the session.
    pub fn join(server: &Server, key: u64, trace: Option<&str>) -> Self {
        let mut window = Self::knock(server, key, trace);
        window.until("the session comes", |window| window.num_states > 0);
        window
    }

    /// Says hello, and waits for nothing.
    pub fn knock(server: &Server, key: u64, trace: Option<&str>) -> Self {
        Self::knock_as(server, Author::new(key, &format!("Window {key}")), trace, None)
    }

    /// Says hello by that name, with a cookie that may be of another one.
    pub fn knock_as(server: &Server, author: Author, trace: Option<&str>, cookie: Option<String>) -> Self {
        let mut window = Self {
            socket: None,
            address: server.address.clone(),
            cookie,
            sync: SyncClient::new(author, "test", trace.map(str::to_owned)),
            session: Session::default(),
            num_welcomes: 0,
            num_states: 0,
            num_steps: 0,
            num_alive: 0,
            num_rows: 0,
            refused: Vec::new(),
            answers: Vec::new(),
        };
        window.connect();
        window
    }

    /// The same window on another connection, maybe of another server.
    pub fn reconnect(&mut self, server: &Server) {
        self.address.clone_from(&server.address);
        self.connect();
    }

    fn connect(&mut self) {
        self.socket = Some(open(&self.address, self.cookie.as_deref()));
        let hello = self.sync.hello();
        self.send(&hello);
    }

    /// As when a cable is pulled.
    pub fn drop_connection(&mut self) {
        self.socket = None;
    }

    pub fn socket(&mut self) -> &mut WebSocket<TcpStream> {
        self.socket.as_mut().unwrap()
    }

    pub fn send(&mut self, message: &ToServer) {
        self.socket().send(Message::Binary(encode(message).into())).unwrap();
    }

    pub fn submit(&mut self, command: session::Command) {
        let message = self.sync.submit(command);
        self.send(&message);
    }

    pub fn ask(&mut self, question: ClientQuery) {
        let message = self.sync.ask(question);
        self.send(&message);
    }

    /// Takes one message, if one comes in that time. `false`: the connection is over.
    pub fn pump(&mut self, within: Duration) -> bool {
        let Some(socket) = &mut self.socket else { return false };
        socket.get_ref().set_read_timeout(Some(within.max(Duration::from_millis(1)))).unwrap();
        let bytes = match socket.read() {
            Ok(Message::Binary(bytes)) => bytes,
            Ok(Message::Close(_)) => return false,
            Ok(_) => return true,
            Err(tungstenite::Error::Io(error))
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                return true;
            }
            Err(_) => return false,
        };
        let message: ToClient = decode(&bytes, MAX_TO_CLIENT).unwrap();
        self.num_welcomes += usize::from(matches!(message, ToClient::Welcome(_)));
        self.num_steps += usize::from(matches!(message, ToClient::Steps(_)));
        self.num_alive += usize::from(matches!(message, ToClient::Alive));
        for message in self.sync.take(message).unwrap() {
            self.send(&message);
        }
        while let Some(news) = self.sync.poll() {
            self.take(news);
        }
        true
    }

    fn take(&mut self, news: LinkMessage) {
        match news {
            LinkMessage::Event(event) => {
                if event.is_per_window() || matches!(*event, Event::OpenFailed { .. }) {
                    self.answers.push((*event).clone());
                }
                if let Event::Rows { rows, .. } = &*event {
                    self.num_rows += rows.len();
                }
                self.session.event(*event);
            }
            LinkMessage::Command { by, seq, command } => drop(self.session.command_by(&by, seq, *command)),
            LinkMessage::State(saved) => {
                self.num_states += 1;
                self.session = Session::restored(*saved);
            }
            LinkMessage::Refused(line) => self.refused.push(line),
        }
    }

    /// Follows the session until something is so.
    #[track_caller]
    pub fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !so(self) {
            assert!(start.elapsed() < PATIENCE, "it never happens that {what}: {}", self.state());
            if !self.pump(Duration::from_millis(50)) {
                assert!(so(self), "the connection ended before {what}: {:?}", self.sync.closed);
                return;
            }
        }
    }

    /// For whoever reads why a test failed.
    fn state(&self) -> String {
        let log: Vec<&str> = self.session.log().entries().iter().map(|entry| entry.text.as_str()).collect();
        let (run, closed) = (&self.session.run, &self.sync.closed);
        let run = run.as_ref().map(|run| (run.running, run.done, run.num_rows));
        format!("at {:?}, run {run:?}, closed {closed:?}, log {log:#?}", self.sync.at())
    }

    /// Follows until nothing came for a while.
    pub fn settle(&mut self) {
        let mut quiet = Instant::now();
        let start = Instant::now();
        let mut at = self.sync.at();
        while quiet.elapsed() < Duration::from_millis(400) && start.elapsed() < PATIENCE {
            self.pump(Duration::from_millis(20));
            if self.sync.at() != at {
                (at, quiet) = (self.sync.at(), Instant::now());
            }
        }
    }

    /// The probe is over and every site has its rows.
    pub fn until_probed(&mut self) {
        self.until("every site was probed", |window| {
            window.session.trace.is_some() && !window.session.is_running() && !window.session.lacks_rows()
        });
    }

    /// Reads until the server ends the talk; why, as it said.
    pub fn until_closed(&mut self) -> String {
        let start = Instant::now();
        while self.pump(Duration::from_millis(50)) {
            assert!(start.elapsed() < PATIENCE, "it was not closed");
        }
        self.sync.closed.clone().unwrap_or_default().0
    }

    pub fn digest(&self) -> String {
        self.session.save().digest()
    }
}

/// A WebSocket as the server's own page opens it.
pub fn open(address: &str, cookie: Option<&str>) -> WebSocket<TcpStream> {
    let mut request = format!("ws://{address}/live").into_client_request().unwrap();
    request.headers_mut().insert("Origin", format!("http://{address}").parse().unwrap());
    if let Some(cookie) = cookie {
        request.headers_mut().insert("Cookie", cookie.parse().unwrap());
    }
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    tungstenite::client(request, stream).unwrap().0
}

/// Every window has heard the same, and made the same of it.
#[track_caller]
pub fn are_same(windows: &mut [&mut Window]) {
    windows.iter_mut().for_each(|window| window.settle());
    let first = (windows[0].sync.at(), windows[0].digest());
    for window in &mut *windows {
        assert_eq!((window.sync.at(), window.digest()), first);
    }
}
