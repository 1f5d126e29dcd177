//! Takes the session's Effects, gives Events back: threads and files here, a server elsewhere, or files that lie in
//! a page's memory.

mod identify;
mod inspect;
#[cfg(not(target_arch = "wasm32"))]
mod local;
mod page;
mod reading;
#[cfg(not(target_arch = "wasm32"))]
mod watch;
#[cfg(not(target_arch = "wasm32"))]
mod work;

#[cfg(not(target_arch = "wasm32"))]
pub use local::LocalLink;
pub(crate) use page::name_of;
pub use page::{MOST_BYTES, Outside, PageLink, Shelf, is_address};

use loka_core::session::{Effect, Event};

/// Carries work out for a session.
pub trait Link {
    /// Starts an effect and returns at once.
    fn run(&mut self, effect: Effect);

    /// The next thing that happened, if any.
    fn poll(&mut self) -> Option<Event>;

    /// What is under way besides a probe ("Opening …"), for the status line.
    fn busy(&self) -> Option<String>;
}

/// Called from any thread when an event waits, so that the window wakes up.
pub type Wake = std::sync::Arc<dyn Fn() + Send + Sync>;

pub(crate) fn panic_text(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().copied().or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    format!("LoKA met an error of its own, please report it: {}", text.unwrap_or("no details"))
}
