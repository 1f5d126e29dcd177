//! `loka serve`: the workbench in browsers, on the engines of this machine. Takes a folder of traces and how it may be
//! reached, gives an address; ends on a signal.
//!
//! ```text
//! browser ── HTTP ──► accept ─► auth ─► page                      who may come in; our files, and nothing else
//!    ├── a file ────────────────► upload ─► served_dir              into the folder, under a new name
//!    └── WebSocket ─────────────► client ─► shared_session ─► session_actor
//!                                                one session a trace, on a thread of its own; what it may name on the
//!                                                disk is in served_dir
//! ```

mod accept;
mod access;
mod auth;
mod bucket;
mod client;
mod client_query;
mod coded;
mod http;
pub mod limits;
mod listen;
mod one_line;
mod outbox;
mod page;
mod people;
mod ring;
mod sanitize;
mod served_dir;
mod session_actor;
mod session_registry;
mod shared_session;
mod shutdown;
mod signals;
mod tls;
mod token;
mod upload;
pub mod user_store;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use bytes::Bytes;
use loka_core::{
    review::KeyRing,
    runtime::Driver,
    session::shared::{Author, PROTOCOL, ToClient, Welcome, encode},
};

pub use people::{People, User};
pub use served_dir::ServedDir;
pub use token::Token;

use self::{
    access::{Authenticator, Key, Names},
    auth::AuthGate,
    coded::Coded,
    http::AppState,
    page::Page,
    session_actor::MakeDriver,
    session_registry::SessionRegistry,
    shutdown::shutdown,
    signals::Signals,
    upload::Uploads,
    user_store::UserStore,
};
use crate::{clock::now, platform::ThreadExecutor};

/// How a person asked for it.
#[derive(Debug)]
pub struct Options {
    pub folder: PathBuf,
    /// The trace that a page shows which asks for none: a name in the folder.
    pub trace: Option<String>,
    pub listen: String,
    /// Made up where none is given.
    pub token: Option<Token>,
    /// Whoever can reach it comes in; on loopback alone.
    pub no_token: bool,
    /// The list of people who may come in, each with a token of their own. Then there is no other token.
    pub users: Option<PathBuf>,
    /// Whose keys are whose: signatures count by it.
    pub keys: Option<KeyRing>,
    /// Names of proxies before us.
    pub allow_hosts: Vec<String>,
    /// A proxy before us says from where a request comes.
    pub trust_forwarded_for: bool,
    /// A certificate and its key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Instead of the page that is built in.
    pub page: Option<PathBuf>,
    pub bounds: Bounds,
}

/// What a machine can bear is known to whoever runs it.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub clients: usize,
    pub sessions: usize,
    pub messages_per_second: u32,
    /// Bytes of steps that a window may be behind.
    pub ring_bytes: usize,
    /// Of one file that a page sends; 0: none is taken.
    pub upload_bytes: u64,
}

/// Ready: everything was checked, and the port is ours.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    tls: Option<tokio_rustls::TlsAcceptor>,
    auth: AuthGate,
    page: Page,
    served_dir: ServedDir,
    trace: Option<String>,
    uploads: Uploads,
    bounds: Bounds,
    keys: Option<KeyRing>,
}

impl Server {
    pub fn new(options: Options) -> Result<Self, String> {
        let served_dir = ServedDir::new(&options.folder)?;
        let page = Page::open(options.page.as_deref())?;
        let tls = options.tls.as_ref().map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
        let uploads = Uploads::new(options.trace.is_none(), options.bounds.upload_bytes);
        uploads.sweep(served_dir.root());
        let trace = match options.trace {
            Some(trace) => Some(served_dir.path(&trace).map(|_| trace)?),
            None => served_dir.only_trace(),
        };
        let asked = listen::resolve(&options.listen)?;
        let key = match (options.users, options.token) {
            (Some(path), _) => Key::Own(Arc::new(UserStore::open(&path)?)),
            (None, Some(token)) => Key::Shared(token),
            (None, None) if options.no_token && !asked.ip().is_loopback() => {
                return Err(format!("others reach it there: --no-token is for this machine alone: {asked}"));
            }
            (None, None) if options.no_token => Key::None,
            (None, None) => Key::Shared(Token::random()?),
        };
        let listener = listen::bind(asked)?;
        let address = listener.local_addr().map_err(|error| format!("{error}: {asked}"))?;
        let auth = AuthGate {
            names: Names::new(address, &options.allow_hosts),
            authenticator: Authenticator::new(key),
            cookie: format!("loka-{}", address.port()),
            secure: tls.is_some(),
            trusts_forwarded: options.trust_forwarded_for,
        };
        Ok(Self {
            listener,
            address,
            tls,
            auth,
            page,
            served_dir,
            trace,
            uploads,
            bounds: options.bounds,
            keys: options.keys,
        })
    }

    /// What a browser opens, without the token.
    pub fn address(&self) -> String {
        listen::link(self.address, self.tls.is_some())
    }

    /// What a browser opens first.
    pub fn link(&self) -> String {
        match &self.auth.authenticator.key {
            Key::Shared(token) => format!("{}{}", self.address(), token_query(token)),
            Key::None | Key::Own(_) => self.address(),
        }
    }

    /// Until Ctrl+C or SIGTERM. `ready` is called when connections are taken. The process works inside the served
    /// folder from now on: there the name of a file is its path, and no other path can come up in what a client is
    /// told.
    pub fn run(self, ready: impl FnOnce()) -> Result<(), String> {
        let root = self.served_dir.root().to_owned();
        std::env::set_current_dir(&root).map_err(|error| format!("{error}: {}", root.display()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits::WORKER_THREADS)
            .max_blocking_threads(limits::BLOCKING_THREADS)
            .thread_name("loka-serve")
            .enable_all()
            .build()
            .map_err(|error| format!("no threads for the server: {error}"))?;
        runtime.block_on(self.serve(ready))
    }

    async fn serve(self, ready: impl FnOnce()) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{error}: {}", self.address);
        let mut signals = Signals::new().map_err(failed)?;
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed)?;
        let keys = self.keys.map(Arc::new);
        let local = move |wake| {
            let executor = Box::new(ThreadExecutor::new(wake).with_journal());
            Driver::followed(executor, now).with_keys(keys.clone())
        };
        let make: MakeDriver = Arc::new(local);
        let registry = Arc::new(SessionRegistry::new(self.served_dir, self.trace, self.bounds, make));
        let (ender, shutdown) = shutdown();
        let user_store = match &self.auth.authenticator.key {
            Key::Own(user_store) => Some(user_store.clone()),
            Key::None | Key::Shared(_) => None,
        };
        let keeping_up = user_store.clone().map(|user_store| tokio::spawn(user_store.keep_up()));
        let (page, uploads) = (Arc::new(self.page), Arc::new(self.uploads));
        let behind = AppState { page, registry: registry.clone(), uploads, shutdown: shutdown.clone(), user_store };
        let router = http::router(Arc::new(self.auth), behind);
        let accepting = tokio::spawn(accept::accept(listener, self.tls, router, shutdown));
        ready();
        signals.next().await;
        // Clients first: what they asked for last is still taken, then every session is closed.
        ender.end(limits::FAREWELL).await;
        registry.close(limits::FAREWELL).await;
        accepting.abort();
        keeping_up.inspect(|keeping_up| keeping_up.abort());
        Ok(())
    }
}

/// What of a link holds the token.
pub fn token_query(token: &Token) -> String {
    format!("?{}={}", auth::TOKEN, token.text())
}

/// Whether browsers get the workbench from this build without `--page`.
pub fn has_page() -> bool {
    page::is_built_in()
}

/// The program's, for the line that says which of two is old.
fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// What a window is told that follows no session.
fn idle(me: &Author, files: Vec<String>) -> Vec<Bytes> {
    let (protocol, version, me) = (PROTOCOL, version(), me.clone());
    let welcome = Welcome { protocol, version, session: 0, resumed: false, heard: 0, me, files };
    vec![encode(&ToClient::Welcome(welcome)).into(), Coded::nothing()]
}
