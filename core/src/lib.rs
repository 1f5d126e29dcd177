//! LoKA's core: what the workbench and the command line do, without a window.
//!
//! One reader's path, one direction. Each stage takes plain data and gives plain data, and imports
//! only earlier stages (a test in `tests/` checks it):
//!
//! ```text
//! trace ──► stats ──► mods ──► probe (errors) ──┐
//! what was   samplers   what-if   draws, metrics  ├──► dispatch ──► plan ──► export
//! recorded                  └► bench (latency) ───┘    policy, choices
//!                              engine: cpu
//! session: Command ──► Effect ──► Event ──► Session state
//! runtime: the one driver of a session, for a window, a page and a server
//! ```
//!
//! [`model`] has the words, [`format`] how they and numbers are written, and [`numerics`] the formats and metrics that
//! every stage speaks.
//! With the feature `native` off, nothing here knows files or threads; `web` reads and writes results in memory.

pub use loka_numerics as numerics;

pub mod format;
pub mod model;
pub mod trace;

pub mod stats;

pub mod mods;

pub mod bench;
pub mod engine;
pub mod probe;

pub mod review;

pub mod dispatch;

pub mod plan;

pub mod parts;

pub mod watch;

pub mod export;

pub mod views;

pub mod report;

pub mod session;

pub mod runtime;

#[cfg(feature = "native")]
pub mod journal;

#[cfg(any(feature = "native", feature = "web"))]
pub mod tables;
