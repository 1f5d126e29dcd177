//! Takes the folder that `LOKA_PAGE` names (`scripts/build_web.sh` makes one), gives the table of its files that
//! `loka serve` has built in: gzipped where there is a `.gz`. Without the variable the table is empty.
//!
//! And the commit that `loka --version` tells: `LOKA_COMMIT`, or of a release build what git says, where there is git.

#![allow(clippy::print_stdout, reason = "Cargo reads it")]

use std::{
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LOKA_PAGE");
    println!("cargo::rerun-if-env-changed=LOKA_COMMIT");
    println!("cargo::rustc-env=LOKA_BUILT_FROM={}", commit().unwrap_or_default());
    let mut table = String::from("&[\n");
    if let Some(folder) = env::var_os("LOKA_PAGE").filter(|folder| !folder.is_empty()) {
        let folder = fs::canonicalize(&folder).map_err(|error| format!("{error}: {}", Path::new(&folder).display()))?;
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut files = Vec::new();
        collect(&folder, &mut files)?;
        files.sort();
        for path in files {
            let name = path.strip_prefix(&folder)?.to_str().ok_or("a file of the page has a name that is no text")?;
            writeln!(table, "    ({:?}, include_bytes!({:?})),", name.replace('\\', "/"), path)?;
        }
    }
    table.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    fs::write(out.join("page.rs"), table)?;
    Ok(())
}

/// The commit and its day, where it is known. A development build does not ask: it would be compiled anew with each commit.
fn commit() -> Option<String> {
    let given = env::var("LOKA_COMMIT").ok().filter(|given| !given.is_empty());
    if given.is_some()
        || env::var("PROFILE").as_deref() != Ok("release")
        || env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("wasm32")
    {
        return given;
    }
    // A copy of the sources inside of somebody else's repository has none of its own.
    let root = fs::canonicalize(PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?).parent()?).ok()?;
    if fs::canonicalize(git(&root, &["rev-parse", "--show-toplevel"])?).ok()? != root {
        return None;
    }
    // The first changes with another branch, the second with a commit.
    for name in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", name])?);
        if path.is_file() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&root, &["log", "-1", "--abbrev=9", "--format=%h, %cs"])
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let done = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(done.stdout).ok()?.trim().to_owned();
    (done.status.success() && !text.is_empty()).then_some(text)
}

/// Files below `folder`. Of a file and its `.gz` the latter alone, but for the entry page, which is changed when it
/// is served.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        println!("cargo::rerun-if-changed={}", path.display());
        if path.is_dir() {
            collect(&path, files)?;
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let beside = |name: &str| path.with_file_name(name).is_file();
        let left_out = match name.as_str() {
            "index.html" => false,
            "index.html.gz" => beside("index.html"),
            name => beside(&format!("{name}.gz")),
        };
        if !left_out {
            files.push(path);
        }
    }
    Ok(())
}
