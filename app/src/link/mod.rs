//! Takes the session's Effects, gives Events back: threads and files here, a server elsewhere, or files that lie in
//! a page's memory.

mod identify;
mod inspect;
#[cfg(not(target_arch = "wasm32"))]
mod keeping;
#[cfg(not(target_arch = "wasm32"))]
mod local;
#[cfg(feature = "gui")]
mod page;
mod reading;
#[cfg(feature = "gui")]
mod remote;
#[cfg(not(target_arch = "wasm32"))]
mod watch;
#[cfg(not(target_arch = "wasm32"))]
mod work;

#[cfg(not(target_arch = "wasm32"))]
pub use local::LocalLink;
#[cfg(feature = "gui")]
pub(crate) use page::name_of;
#[cfg(feature = "gui")]
pub use page::{Fetched, MOST_BYTES, Outside, PageLink, Shelf, is_address};
#[cfg(feature = "gui")]
pub use remote::{Network, RemoteLink, Socket, SocketNews};
#[cfg(all(feature = "serve", not(target_arch = "wasm32")))]
pub(crate) use {identify::identify, inspect::answer as inspect_answer, reading::series_of};

use loka_core::{
    session::{
        Command, Effect, Event, Saved,
        shared::{Author, By, News, Person, Place},
    },
    trace::Trace,
};

/// Carries work out for a session.
pub trait Link {
    /// Starts an effect and returns at once.
    fn run(&mut self, effect: Effect);

    /// The next thing that happened, if any.
    fn poll(&mut self) -> Option<News>;

    /// The open trace, for questions beside the session; `None`: it is not here.
    fn trace(&self) -> Option<Trace> {
        None
    }

    /// What is under way besides a probe ("Opening …"), for the status line.
    fn busy(&self) -> Option<String>;

    /// Hands a command to whoever puts the session's inputs in order. `Some`: that is this window, which applies
    /// it now; `None`: it comes back as news when it has its place.
    fn submit(&mut self, command: Command) -> Option<Command> {
        Some(command)
    }

    /// Who is at this window.
    fn me(&self) -> Author {
        Author::program()
    }

    /// The session took a command. What lasts longer than the window is kept.
    fn keep_command(&mut self, _: &By, _: &Command) {}

    /// Where the person looks, for others who look on.
    fn look(&mut self, _: Place) {}

    /// The session is about to take an event.
    fn keep_event(&mut self, _: &Event) {}

    /// The session has to be kept whole before its next input.
    fn wants_checkpoint(&self) -> bool {
        false
    }

    fn checkpoint(&mut self, _: Saved) {}

    /// Returns when what was to be kept so far is.
    fn flush(&mut self) {}

    fn standing(&self) -> Standing {
        Standing::Here
    }

    /// Tries at once to reach whoever is away.
    fn retry(&mut self) {}

    /// What can be opened where the session is; `None`: whatever this machine has.
    fn suggestions(&self) -> Option<&[String]> {
        None
    }

    /// Somebody else orders the session's inputs and does what it asks for.
    fn is_shared(&self) -> bool {
        self.standing().is_served()
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

impl Standing {
    /// The session and its files are a server's, whether it answers or not.
    pub fn is_served(&self) -> bool {
        !matches!(self, Self::Here)
    }
}

/// Called from any thread when an event waits, so that the window wakes up.
pub type Wake = std::sync::Arc<dyn Fn() + Send + Sync>;

pub(crate) fn panic_text(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().copied().or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    format!("LoKA met an error of its own, please report it: {}", text.unwrap_or("no details"))
}
