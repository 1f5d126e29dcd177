//! LoKA's command line and workbench. No numerics: what is shown arrives ready from `loka_core`.

mod beside;
#[cfg(not(target_arch = "wasm32"))]
pub mod cli;
pub mod clock;
#[cfg(not(target_arch = "wasm32"))]
mod cluster;
#[cfg(not(target_arch = "wasm32"))]
pub mod files;
#[cfg(not(target_arch = "wasm32"))]
pub mod keys;
#[cfg(not(target_arch = "wasm32"))]
mod nearest;
pub mod platform;
#[cfg(not(target_arch = "wasm32"))]
pub mod probing;
pub mod provenance;
#[cfg(all(feature = "serve", not(target_arch = "wasm32")))]
pub mod server;
#[cfg(not(target_arch = "wasm32"))]
pub mod store;

#[cfg(feature = "gui")]
pub mod commands;
#[cfg(feature = "gui")]
pub mod driving;
#[cfg(any(feature = "gui", feature = "serve"))]
pub mod executor;
#[cfg(feature = "gui")]
pub mod gpu;
#[cfg(feature = "gui")]
pub mod layout;
#[cfg(any(feature = "gui", feature = "serve"))]
pub mod link;
#[cfg(all(feature = "serve", not(target_arch = "wasm32")))]
pub mod mcp;
#[cfg(feature = "gui")]
mod panels;
#[cfg(feature = "gui")]
pub mod picture;
#[cfg(any(feature = "gui", feature = "serve"))]
mod regex;
#[cfg(feature = "gui")]
pub mod settings;
#[cfg(any(feature = "gui", feature = "serve"))]
mod signing;
#[cfg(feature = "gui")]
pub mod state;
#[cfg(feature = "gui")]
pub mod theme;
#[cfg(feature = "gui")]
pub mod views;

#[cfg(all(feature = "gui", not(target_arch = "wasm32")))]
pub mod desktop;
#[cfg(all(feature = "gui", target_arch = "wasm32"))]
pub mod page;
#[cfg(feature = "gui")]
mod view_cache;
#[cfg(feature = "gui")]
pub mod window;

#[cfg(feature = "gui")]
pub use window::LokaApp;
