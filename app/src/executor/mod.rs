//! Carries a session's effects out, gives their events back: by threads and files of this process, or with files that lie
//! in a page's memory.

pub(crate) mod exporting;
pub(crate) mod identify;
pub(crate) mod inspect;
#[cfg(feature = "gui")]
mod page;
pub(crate) mod reading;

#[cfg(feature = "gui")]
pub(crate) use page::name_of;
#[cfg(feature = "gui")]
pub use page::{Fetched, MOST_BYTES, MemoryFiles, Outside, PageExecutor, is_address};

/// Called from any thread when an event waits, so that the window wakes up.
pub type Wake = std::sync::Arc<dyn Fn() + Send + Sync>;

pub(crate) fn panic_text(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().copied().or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    format!("LoKA met an error of its own, please report it: {}", text.unwrap_or("no details"))
}
