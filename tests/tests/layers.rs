//! The rules of docs and architecture that a reader relies on: a stage of core imports only earlier
//! ones, core knows no window, the app computes no numbers, files say what they are.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use loka_tests::root;

/// core's stages, each with what it may import beside itself and those before it. `engine` runs what
/// `probe` asks for, `bench` knows latencies; neither imports the other.
const STAGES: [&str; 17] = [
    "model", "numerics", "trace", "stats", "mods", "engine", "bench", "probe", "review", "dispatch", "plan", "export",
    "report", "session", "runtime", "journal", "tables",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Code without comments: what a `//` hides is no import.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The stages that `code` names: in `crate::stage` and in `use crate::{stage::…, stage}`.
fn imports(code: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let named = match rest.strip_prefix('{') {
            Some(list) => top_level_names(list),
            None => vec![leading_name(rest)],
        };
        found.extend(STAGES.into_iter().filter(|stage| named.contains(stage)));
    }
    found
}

fn leading_name(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// `a::{b, c}, d::e};` gives a and d.
fn top_level_names(list: &str) -> Vec<&str> {
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                names.push(leading_name(list[start..at].trim()));
                if c == '}' {
                    break;
                }
                start = at + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

#[test]
fn the_scan_sees_imports() {
    assert_eq!(imports("use crate::{\n    model::{Gemm, plan},\n    probe::X,\n};"), ["model", "probe"]);
    assert_eq!(imports("let x = crate::numerics::amax(&y); use crate::stats::A;"), ["numerics", "stats"]);
    assert!(imports("use std::fs; use super::plan;").is_empty());
}

#[test]
fn a_stage_imports_only_earlier_ones() {
    let src = root("core/src");
    let mut listed: Vec<String> = Vec::new();
    for entry in fs::read_dir(&src).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            listed.push(entry.file_name().into_string().unwrap());
        }
    }
    listed.sort();
    let mut stages = STAGES.to_vec();
    stages.sort_unstable();
    assert_eq!(listed, stages, "every folder of core/src is a stage");

    let mut wrong = Vec::new();
    for (rank, stage) in STAGES.iter().enumerate() {
        for path in sources(&src.join(stage)) {
            for import in imports(&code(&path)) {
                let other = STAGES.iter().position(|stage| *stage == import).unwrap();
                if other > rank {
                    wrong.push(format!("{} imports {import}", path.strip_prefix(&src).unwrap().display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn core_knows_no_window_and_the_app_no_numerics() {
    for path in sources(&root("core/src")) {
        let code = code(&path);
        for word in ["egui", "eframe", "wgpu"] {
            assert!(!code.contains(word), "{} names {word}", path.display());
        }
    }
    for word in ["egui", "eframe", "wgpu"] {
        assert!(!fs::read_to_string(root("core/Cargo.toml")).unwrap().contains(word), "core depends on {word}");
    }
    for path in sources(&root("app/src")) {
        // `loka selftest` is where the numerics are called by name, to be checked on this machine.
        if !path.ends_with("cli/selftest.rs") {
            assert!(!code(&path).contains("numerics::"), "{} calls numerics", path.display());
        }
    }
}

#[test]
fn every_file_says_what_it_is() {
    let mut wrong = Vec::new();
    for folder in ["core/src", "app/src", "kernels/src", "tests/src", "tests/tests"] {
        for path in sources(&root(folder)) {
            let text = fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(root("")).unwrap().display().to_string();
            if !text.starts_with("//! ") {
                wrong.push(format!("{name} does not begin with a //! line"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
