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
mod comparing;
mod contexts;
mod document;
mod engines;
mod event;
mod file_kind;
mod history;
mod inspections;
mod log;
mod notice;
mod opening;
mod plan_view;
mod probing;
mod reviewing;
mod rows;
mod said;
mod saved;
pub mod shared;
mod snapshot;
mod state;
pub mod view;
mod watching;

pub use command::{Command, CommandError};
pub use comparing::{ComparedResults, Flipped};
pub use document::Document;
pub use engines::{ENGINES, Engines, Measuring, engine_title};
pub use event::{Effect, Event, OpenedTrace};
pub use file_kind::{FileKind, HEAD_BYTES};
pub use history::History;
pub use inspections::{Inspections, Looked};
pub use log::{LOG_LINES, Log, LogEntry, LogKind};
pub use notice::{Notice, NoticeAction, NoticeKind};
pub use plan_view::PlanView;
pub use reviewing::{Release, Reviewing, Touch};
pub use rows::{Circumstances, MeasuredLatency, Origin, SiteIndex, SiteRows};
pub use said::{said, visible};
pub use saved::{Head, Saved, Share};
pub use snapshot::Snapshot;
pub use state::{Run, SeriesState, Session};
pub use watching::FileChange;
