//! The window: takes a link to a session, gives frames; on the desktop and in a page. What it does beside drawing is here,
//! a file each: what the link tells, housekeeping, work in the background, the clipboard, the address of what is seen.

pub mod address;
pub mod alternative;
mod app;
mod chores;
mod copying;
pub(crate) mod housekeeping;
mod messages;
mod playing;
pub mod script;
pub mod steps;
pub mod url_sync;

pub use app::LokaApp;
