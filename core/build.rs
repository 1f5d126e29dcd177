//! Lists the Python package, so that the binary carries all of it: `engine/python/package.rs`.

use std::{env, fmt::Write as _, fs, io, path::Path};

fn main() -> io::Result<()> {
    let python = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../python");
    println!("cargo::rerun-if-changed=build.rs");
    let mut files = Vec::new();
    list(&python.join("loka"), "loka", &mut files)?;
    files.sort();
    let mut text = String::from("&[\n");
    for name in files {
        // Not the folder: Python's caches come and go in it, and all of core would be compiled anew after each run of Python. What
        // a new file needs, a test says (`engine/python/package.rs`).
        println!("cargo::rerun-if-changed=../python/{name}");
        // From this package's folder, whichever that is when core is compiled: two checkouts may share a target folder, and this list.
        let path = format!("/../python/{name}");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    ({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),");
    }
    text.push(']');
    fs::write(Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("python_files.rs"), text)
}

/// Modules, and the catalogue that they read; caches and libraries stay behind.
fn list(folder: &Path, name: &str, into: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(file) = path.file_name().and_then(|file| file.to_str()) else { continue };
        let name = format!("{name}/{file}");
        if path.is_dir() {
            list(&path, &name, into)?;
        } else if path.extension().is_some_and(|end| end == "py" || end == "json") {
            into.push(name);
        }
    }
    Ok(())
}
