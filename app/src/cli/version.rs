//! What `loka --version` tells: the release, the commit that it was built from where that is known, and what is in it.

use std::sync::LazyLock;

/// Behind the program's name.
pub fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        let commit = match env!("LOKA_BUILT_FROM") {
            "" => "commit not known",
            known => known,
        };
        format!("{version} ({commit})\nfeatures: {}", features().join(", "))
    });
    &TEXT
}

/// What this build has, in the words of app/Cargo.toml; `page`: browsers get the workbench from `loka serve`.
fn features() -> Vec<&'static str> {
    let parts = [
        ("cuda", true),
        ("gui", cfg!(feature = "gui")),
        ("query", cfg!(feature = "query")),
        ("serve", cfg!(feature = "serve")),
        ("page", cfg!(feature = "serve") && has_page()),
        ("debug", cfg!(debug_assertions)),
    ];
    parts.into_iter().filter_map(|(name, there)| there.then_some(name)).collect()
}

#[cfg(feature = "serve")]
fn has_page() -> bool {
    crate::server::has_page()
}

#[cfg(not(feature = "serve"))]
fn has_page() -> bool {
    false
}
