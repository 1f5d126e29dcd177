//! The session: Commands in, Effects to carry out, Events back, one state that views read.
//!
//! ```text
//! Command ──► Session::command ──► Effect ──► engines, files (on threads, elsewhere)
//!                   ▲                               │
//!                state ◄── Session::event ◄── Event ┘
//! ```
//!
//! Nothing here reads a clock, a file or a thread, so that the same state is rebuilt in a test, from a
//! journal, or in a browser.

mod choosing;
mod command;
mod compared;
mod comparing;
mod contexts;
mod describe;
mod effect;
mod engines;
mod error;
mod event;
mod file_kind;
mod history;
mod inspecting;
mod inspections;
mod notices;
mod opening;
mod probing;
mod reducer;
mod review;
mod rows;
mod saved;
pub mod shared;
mod state;
mod switching;
mod watching;

pub use command::{BaselineOf, Command};
pub use compared::{ComparedResults, Flipped};
pub use describe::{policy_said, said};
pub use effect::Effect;
pub use engines::{ENGINES, Engines, Measuring, engine_title};
pub use error::CommandError;
pub use event::Event;
pub use file_kind::{FileKind, HEAD_BYTES};
pub use history::History;
pub use inspections::{Inspections, Looked, TraceComparison};
pub use notices::{LOG_LINES, Log, LogEntry, LogKind, Notice, NoticeAction, NoticeKind, Notices};
pub use review::{Release, Reviewing, Touch};
pub use rows::RowChunk;
pub use rows::{Circumstances, MeasuredLatency, Origin};
pub use saved::{SavedSession, SessionHeader};
pub use state::{Run, SeriesState, Session};
pub use watching::FileChange;

use crate::format::number::counted;
