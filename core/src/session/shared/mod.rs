//! One session for several windows, and for a process that ends and comes back.
//!
//! The session is a pure reducer: what it is follows from what it was told, in which order. So sharing is one
//! ordered list of inputs. [`SequencedSession`] gives every command and every event its number; whoever applies the same
//! [`SequencedInput`]s has the same state, whether it is a server, a browser, or tomorrow's process reading a journal.
//!
//! ```text
//! windows ── Command, author ──┐                        ┌──► SequencedInput ──► windows (SyncClient)
//!                              ├──► SequencedSession ───┤
//! engines ── Event ────────────┘     Session            └──► SequencedInput ──► journal
//! ```
//!
//! Nothing here reads a clock, a file, a socket or a thread.

mod input;
mod sequenced_session;
mod sync_client;
mod wire;

pub use input::{Author, CommandContext, SequencedInput, SessionInput};
pub use sequenced_session::{CommandOutcome, OutOfOrder, SequencedSession};
pub use sync_client::{LinkMessage, Loading, SyncClient};
pub use wire::{
    ClientQuery, Hello, MAX_TO_CLIENT, MAX_TO_SERVER, NAME_LENGTH, PROTOCOL, Person, Place, SILENCE, ToClient,
    ToServer, Unread, Welcome, WireError, decode, encode, unpacked_size,
};
