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

mod command;
mod document;
mod engines;
mod event;
mod notice;
mod plan_view;
mod rows;
mod state;
pub mod view;

pub use command::{Command, CommandError};
pub use document::{Document, History};
pub use engines::{ENGINES, Engines, Measuring, engine_title};
pub use event::{Effect, Event, OpenedTrace};
pub use notice::{Notice, NoticeAction, NoticeKind};
pub use plan_view::PlanView;
pub use rows::{Circumstances, MeasuredLatency, Origin};
pub use state::{Run, Session};
