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
#[cfg(all(feature = "serve", not(target_arch = "wasm32")))]
pub(crate) use {identify::identify, inspect::answer as inspect_answer, local::series_of};

use loka_core::session::{
    Command, Effect, Event,
    shared::{Author, News, Person},
};

/// Carries work out for a session.
pub trait Link {
    /// Starts an effect and returns at once.
    fn run(&mut self, effect: Effect);

    /// The next thing that happened, if any.
    fn poll(&mut self) -> Option<News>;

    /// What is under way besides a probe ("Opening …"), for the status line.
    fn busy(&self) -> Option<String>;

    /// Hands a command to whoever puts the session's inputs in order. `Some`: that is this window, which applies
    /// it now; `None`: it comes back as news when it has its place.
    fn submit(&mut self, command: Command) -> Option<Command> {
        Some(command)
    }

    /// The session took a command of this window: what lasts longer than the window is kept.
    fn keep_command(&mut self, _: &Command) {}

    /// The session is about to take an event.
    fn keep_event(&mut self, _: &Event) {}

    fn standing(&self) -> Standing {
        Standing::Here
    }

    /// Somebody else orders the session's inputs and does what it asks for.
    fn is_shared(&self) -> bool {
        !matches!(self.standing(), Standing::Here)
    }
}

/// Where the session is.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Standing {
    /// In this window.
    #[default]
    Here,
    /// On a server that is being reached; how much of the session has come.
    Joining { share: Option<f32> },
    /// On a server, with these people.
    Joined { people: Vec<Person>, me: Author },
    /// The server does not answer: what is seen is as it was. Tried again by itself in so many seconds.
    Away { why: String, seconds_away: u64, retry_in: Option<u64> },
}

/// Called from any thread when an event waits, so that the window wakes up.
pub type Wake = std::sync::Arc<dyn Fn() + Send + Sync>;
