//! Takes the folder that `LOKA_PAGE` names (`scripts/build_web.sh` makes one), gives the table of its files that
//! `loka serve` has built in: gzipped where there is a `.gz`. Without the variable the table is empty.

#![allow(clippy::print_stdout, reason = "Cargo reads it")]

use std::{
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LOKA_PAGE");
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
