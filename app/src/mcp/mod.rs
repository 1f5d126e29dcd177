//! `loka mcp`: a Model Context Protocol server on stdin and stdout. Takes a session, one of this process or a server's, and
//! answers an assistant's questions of it with what the views show; changes it by the same commands as a window, where
//! that was allowed.
//!
//! ```text
//! stdin ──► lines ──► message ──► requests ──► tools, resources, prompts ──► seat ──► Driver, or a served session
//! stdout ◄─────────────────────────┘ one line an answer, and nothing else
//! ```
//!
//! Written by hand: the protocol is a dozen methods, a session is no `Send`, and what a client may send is bounded here
//! before it is in memory. Stateless requests (2026-07-28) and the handshake of earlier versions are both served.

mod arguments;
mod connect;
mod figures;
mod host;
mod lines;
mod message;
mod prompts;
mod protocol;
mod requests;
mod resources;
mod seat;
mod served;
mod tools;

pub use host::{Access, Ears, Host};
pub use requests::perform;
pub use seat::Seat;
pub use served::Served;

use std::sync::Arc;

use loka_core::session::shared::{Author, SyncClient};

use crate::{executor::Wake, link::RemoteLink, platform::ThreadExecutor};

/// Joins the session of a server. `certificate`: PEM, of who signed the server's.
pub fn join(to: Served, author: Author, certificate: Option<&[u8]>, wake: &Wake) -> Result<Seat, String> {
    let sync = SyncClient::new(author, env!("CARGO_PKG_VERSION"), to.trace.clone());
    let network = connect::Connector::new(to, certificate, Arc::clone(wake))?;
    // For what a window does for itself, which nobody asks for here.
    let own = ThreadExecutor::new(Arc::clone(wake));
    Ok(Seat::Joined(Box::new(RemoteLink::new(Box::new(network), Box::new(own), sync))))
}
