//! LoKA's command line and workbench. No numerics: what is shown arrives ready from `loka_core`.

#[cfg(any(feature = "gui", feature = "serve"))]
#[cfg(feature = "gui")]
pub mod address;
#[cfg(feature = "gui")]
pub mod alternative;
#[cfg(feature = "gui")]
mod app;
#[cfg(feature = "gui")]
mod chores;
#[cfg(not(target_arch = "wasm32"))]
pub mod cli;
pub mod clock;
#[cfg(feature = "gui")]
pub mod commands;
#[cfg(feature = "gui")]
mod copying;
#[cfg(feature = "gui")]
mod deriving;
#[cfg(feature = "gui")]
pub mod driving;
#[cfg(feature = "gui")]
mod errands;
#[cfg(any(feature = "gui", feature = "serve"))]
pub mod executor;
#[cfg(not(target_arch = "wasm32"))]
pub mod files;
#[cfg(feature = "gui")]
pub mod gpu;
#[cfg(not(target_arch = "wasm32"))]
pub mod keys;
#[cfg(feature = "gui")]
pub mod layout;
#[cfg(feature = "gui")]
pub mod link;
pub mod meta;
#[cfg(feature = "gui")]
mod news;
#[cfg(feature = "gui")]
mod panels;
#[cfg(feature = "gui")]
pub mod picker;
#[cfg(feature = "gui")]
pub mod picture;
#[cfg(not(target_arch = "wasm32"))]
pub mod probing;
#[cfg(all(feature = "serve", not(target_arch = "wasm32")))]
pub mod serve;
#[cfg(feature = "gui")]
pub mod settings;
#[cfg(any(feature = "gui", feature = "serve"))]
mod signing;
#[cfg(feature = "gui")]
pub mod state;
#[cfg(not(target_arch = "wasm32"))]
pub mod store;
#[cfg(feature = "gui")]
pub mod theme;
#[cfg(feature = "gui")]
pub mod views;
#[cfg(all(feature = "gui", target_arch = "wasm32"))]
pub mod web;
#[cfg(all(feature = "gui", not(target_arch = "wasm32")))]
pub mod window;

#[cfg(feature = "gui")]
pub use app::LokaApp;
