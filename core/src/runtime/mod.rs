//! What carries a session on: the one driver of it, for a window, for a page without a server, and for the server.
//!
//! ```text
//! client ── Command ──► Driver ── Effect ──► Executor (threads and files, or a page's memory)
//!    ▲                    │ ▲                    │
//!    └──── Applied ───────┘ └────── Report ──────┘
//!                         └── inputs, checkpoints ──► Journaling
//! ```
//!
//! [`Driver`] puts commands and events into one order, keeps them in the journal before anybody hears of them, and does
//! what follows of an opened file by itself: a trace without rows is probed, the open results file is watched, files that
//! were asked for together are opened one after the other. A window that looks at a server's session has a [`Replica`]
//! instead. What either applied is told to its client as [`Applied`].
//!
//! Nothing here knows a thread, a file, a clock or a socket: an [`Executor`] does.

mod applied;
mod driver;
mod executor;
mod opening;
mod replica;

pub use applied::Applied;
pub use driver::Driver;
pub use executor::{Executor, Journaling, NoJournal, Report};
pub use opening::OpenQueue;
pub use replica::Replica;
