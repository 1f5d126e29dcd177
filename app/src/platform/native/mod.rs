//! A program of this machine, with files and threads.

mod clock;
#[cfg(any(feature = "gui", feature = "serve"))]
mod executor;
#[cfg(feature = "gui")]
mod file_store;
mod memory;
#[cfg(feature = "gui")]
mod system_picker;
#[cfg(feature = "gui")]
mod window;
#[cfg(feature = "gui")]
mod worker;

#[cfg(feature = "gui")]
pub(crate) use clock::FrameBudget;
pub(crate) use clock::milliseconds;
#[cfg(any(feature = "gui", feature = "serve"))]
pub use executor::ThreadExecutor;
#[cfg(feature = "serve")]
pub(crate) use executor::{checkpoints, compare, identify};
pub use memory::give_back_large_lists;
#[cfg(feature = "gui")]
pub(crate) use worker::ViewWorker;
#[cfg(feature = "gui")]
pub use {file_store::FileStore, system_picker::SystemPicker, window::Here};

/// Why a plan is not written in a framework's form here.
#[cfg(any(feature = "gui", feature = "serve"))]
pub(crate) const NO_FRAMEWORK_FILES: Option<&str> = None;
