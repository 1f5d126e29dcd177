//! Native entry. The browser's is `page`, called from the page.

#[cfg(not(target_arch = "wasm32"))]
fn main() -> std::process::ExitCode {
    loka::platform::give_back_large_lists();
    std::process::ExitCode::from(loka::cli::run())
}

#[cfg(all(target_arch = "wasm32", feature = "gui"))]
fn main() {
    loka::page::start();
}

#[cfg(all(target_arch = "wasm32", not(feature = "gui")))]
fn main() {}
