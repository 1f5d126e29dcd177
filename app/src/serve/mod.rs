//! `loka serve`: the workbench in browsers, on the engines of this machine. Takes a folder of traces and how it may be
//! reached, gives an address; ends on a signal.
//!
//! ```text
//! browser ── HTTP ──► accept ─► gate ─► page          who may come in; our files, and nothing else
//!    └── WebSocket ─────────────► live ─► room ─► host   one session a trace, on a thread of its own
//!                                             └─ jail   what of the disk can be named
//! ```

mod accept;
mod access;
mod bucket;
mod ending;
mod gate;
mod http;
mod jail;
pub mod limits;
mod listen;
mod page;
mod tls;
mod token;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

pub use jail::{Jail, WHOLE};
pub use token::Token;

use self::{
    access::{Door, Names},
    ending::{Ender, Ending, ending},
    gate::Gate,
    page::Page,
};

/// How a person asked for it.
#[derive(Debug)]
pub struct Options {
    pub folder: PathBuf,
    /// The trace that a page shows which asks for none: a name in the folder.
    pub trace: Option<String>,
    pub listen: String,
    /// Asked for on loopback, too.
    pub token: Option<Token>,
    /// Names of proxies before us.
    pub allow_hosts: Vec<String>,
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
}

/// Ready: everything was checked, and the port is ours.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    tls: Option<tokio_rustls::TlsAcceptor>,
    gate: Gate,
    page: Page,
    jail: Jail,
}

impl Server {
    pub fn new(options: Options) -> Result<Self, String> {
        let jail = Jail::new(&options.folder)?;
        let page = Page::open(options.page.as_deref())?;
        let tls = options.tls.as_ref().map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
        let asked = listen::resolve(&options.listen)?;
        let token = match options.token {
            None if !asked.ip().is_loopback() => Some(Token::random()?),
            token => token,
        };
        let listener = listen::bind(asked)?;
        let address = listener.local_addr().map_err(|error| format!("{error}: {asked}"))?;
        let gate = Gate {
            names: Names::new(address, &options.allow_hosts),
            door: Door::new(token),
            cookie: format!("loka-{}", address.port()),
            secure: tls.is_some(),
        };
        Ok(Self { listener, address, tls, gate, page, jail })
    }

    /// What a browser opens, without the token.
    pub fn address(&self) -> String {
        listen::link(self.address, self.tls.is_some())
    }

    /// What a browser opens first.
    pub fn link(&self) -> String {
        match &self.gate.door.token {
            Some(token) => format!("{}?{}={}", self.address(), gate::TOKEN, token.text()),
            None => self.address(),
        }
    }

    pub fn jail(&self) -> &Jail {
        &self.jail
    }

    /// Until Ctrl+C or SIGTERM. `ready` is called when connections are taken.
    pub fn run(self, ready: impl FnOnce()) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits::WORKER_THREADS)
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
        let (ender, ending): (Ender, Ending) = ending();
        let router = http::router(Arc::new(self.gate), Arc::new(self.page));
        let accepting = tokio::spawn(accept::accept(listener, self.tls, router, ending));
        ready();
        signals.next().await;
        ender.end(limits::FAREWELL).await;
        accepting.abort();
        Ok(())
    }
}

/// What ends a server: whichever comes first.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    fn new() -> std::io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        // Without a handler the system ends the process, which is an end as well.
        drop(tokio::signal::ctrl_c().await);
    }
}
