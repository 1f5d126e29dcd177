//! LoKA's command line and workbench. No numerics: what is shown arrives ready from `loka_core`.

#[cfg(not(target_arch = "wasm32"))]
pub mod probing;
