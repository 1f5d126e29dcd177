//! The command line, by the real binary: what each command writes, says and refuses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod approval;
mod bench;
mod cli;
mod export;
mod fleet;
mod gate;
mod mods;
mod no_display;
mod parts;
mod query;
mod report;
mod watch;
