//! One session for several windows, and for a process that ends and comes back.
//!
//! The session is a pure reducer: what it is follows from what it was told, in which order. So sharing is one
//! ordered list of inputs. [`Ordered`] gives every command and every event its number; whoever applies the same
//! [`Step`]s has the same state, whether it is a server, a browser, or tomorrow's process reading a journal.
//!
//! ```text
//! windows ── Command, author ──┐                        ┌──► Step ──► windows (Follower)
//!                              ├──► Ordered ── Step ────┤
//! engines ── Event ────────────┘     Session            └──► Step ──► journal
//! ```
//!
//! Nothing here reads a clock, a file, a socket or a thread.

mod follower;
mod input;
mod ordered;
mod wire;

pub use follower::{Follower, Loading, News};
pub use input::{Author, By, Input, Step};
pub use ordered::{Ordered, OutOfOrder, Taken};
pub use wire::{
    Hello, MAX_TO_CLIENT, MAX_TO_SERVER, NAME_LENGTH, PROTOCOL, Person, Place, Question, SILENCE, ToClient, ToServer,
    Unread, Welcome, WireError, decode, encode, unpacked_size,
};
