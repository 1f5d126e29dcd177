//! A page in a browser: no paths and no threads, downloads instead of files.

mod clipboard;
mod clock;
pub(crate) mod dom;
mod download;
mod picker;
mod store;
mod window;
mod worker;

pub(crate) use clock::{FrameBudget, milliseconds};
pub(crate) use download::save;
pub(crate) use picker::{PagePicker, file_input};
pub(crate) use store::PageStore;
pub use window::Here;
pub(crate) use worker::ViewWorker;
