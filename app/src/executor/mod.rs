//! Carries a session's effects out, gives their events back: by threads and files of this process, or with files that lie
//! in a page's memory.

mod identify;
mod inspect;
#[cfg(not(target_arch = "wasm32"))]
mod journals;
#[cfg(feature = "gui")]
mod page;
mod reading;
#[cfg(not(target_arch = "wasm32"))]
mod threads;
#[cfg(not(target_arch = "wasm32"))]
mod watch;
#[cfg(not(target_arch = "wasm32"))]
mod work;

#[cfg(feature = "gui")]
pub(crate) use page::name_of;
#[cfg(feature = "gui")]
pub use page::{Fetched, MOST_BYTES, Outside, PageExecutor, Shelf, is_address};
#[cfg(not(target_arch = "wasm32"))]
pub use threads::ThreadExecutor;
#[cfg(all(feature = "serve", not(target_arch = "wasm32")))]
pub(crate) use {identify::identify, inspect::answer as inspect_answer, reading::series_of};

/// Where lies what belongs to a trace: the path of it, or of its results, with another ending.
pub(crate) fn beside(path: &str, ending: &str) -> String {
    let stem = [".trace.safetensors", ".results.parquet"].iter().find_map(|known| path.strip_suffix(known));
    format!("{}.{ending}", stem.unwrap_or(path.trim_end_matches(['/', '\\'])))
}

/// Called from any thread when an event waits, so that the window wakes up.
pub type Wake = std::sync::Arc<dyn Fn() + Send + Sync>;

pub(crate) fn panic_text(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().copied().or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    format!("LoKA met an error of its own, please report it: {}", text.unwrap_or("no details"))
}
