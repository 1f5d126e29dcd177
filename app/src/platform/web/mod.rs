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

/// Why a plan is not written in a framework's form here: what reads those files back, YAML and patterns of three kinds, would be
/// a tenth of the page.
pub(crate) const NO_FRAMEWORK_FILES: Option<&str> = Some(
    "A page writes LoKA's plan and the report. The program's window and loka export write the files of frameworks",
);
