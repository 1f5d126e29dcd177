//! Takes the session's Effects, gives Events back: threads and files here, a server elsewhere, or a
//! plain answer where there is neither.

#[cfg(not(target_arch = "wasm32"))]
mod identify;
#[cfg(not(target_arch = "wasm32"))]
mod inspect;
#[cfg(not(target_arch = "wasm32"))]
mod local;
mod offline;
#[cfg(not(target_arch = "wasm32"))]
mod watch;
#[cfg(not(target_arch = "wasm32"))]
mod work;

#[cfg(not(target_arch = "wasm32"))]
pub use local::LocalLink;
pub use offline::OfflineLink;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use work::panic_text;

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
