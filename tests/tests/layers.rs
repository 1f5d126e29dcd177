//! The rules of docs and architecture that a reader relies on: a stage of core imports only earlier
//! ones, core knows no window, the app computes no numbers, files say what they are.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use loka_tests::{
    house::{House, circles, sources},
    root,
};

/// core's stages, each with what it may import beside itself and those before it. `engine` runs what
/// `probe` asks for, `bench` knows latencies; neither imports the other.
const STAGES: [&str; 20] = [
    "model", "format", "trace", "stats", "mods", "engine", "bench", "probe", "review", "dispatch", "plan", "parts",
    "watch", "export", "views", "report", "session", "runtime", "journal", "tables",
];

/// What the window is made of, in the same way: state under commands, commands under what is drawn, the window above all
/// of it, and above the window the two places where there is one.
const WINDOW: [&str; 14] = [
    "platform",
    "theme",
    "gpu",
    "layout",
    "picture",
    "settings",
    "view_cache",
    "state",
    "commands",
    "views",
    "panels",
    "window",
    "desktop",
    "page",
];

/// Where code may ask whether it is compiled for a browser: the list of modules, the two entries, and the choice of a
/// platform.
const ASK_FOR_BROWSER: [&str; 3] = ["app/src/lib.rs", "app/src/main.rs", "app/src/platform/mod.rs"];

/// Code without comments: what a `//` hides is no import.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The folder of `src` that a file lies in, or the file itself.
fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or(file)
}

/// Imports of a later layer by an earlier one.
fn upward(house: &House, layers: &[&str]) -> Vec<String> {
    let rank = |file: &str| layers.iter().position(|layer| *layer == room(file));
    let mut wrong = Vec::new();
    for (file, imports) in house.imports() {
        for import in imports {
            if let (Some(from), Some(to)) = (rank(file), rank(import))
                && to > from
            {
                wrong.push(format!("{file} imports {import}"));
            }
        }
    }
    wrong
}

#[test]
fn a_stage_of_core_imports_only_earlier_ones() {
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
    let wrong = upward(&House::read(&src), &STAGES);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_drawn_reads_state_and_state_draws_nothing() {
    let wrong = upward(&House::read(&root("app/src")), &WINDOW);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_differs_in_a_browser_is_in_one_folder() {
    let asks = |path: &Path| code(path).contains("target_arch") || code(path).contains("target_family");
    let mut found = Vec::new();
    for folder in ["app/src", "core/src"] {
        for path in sources(&root(folder)).into_iter().filter(|path| asks(path)) {
            found.push(path.strip_prefix(root("")).unwrap().display().to_string());
        }
    }
    found.sort();
    assert_eq!(found, ASK_FOR_BROWSER);
}

/// A parser that finds nothing would let everything pass.
#[test]
fn imports_are_found_through_reexports_and_tests_are_left_out() {
    let house = House::read(&root("core/src"));
    let imports = house.imports();
    let of = |file: &str, import: &str| imports.get(file).is_some_and(|imports| imports.contains(import));
    assert!(of("session/reducer.rs", "dispatch/policy.rs"), "`dispatch::Policy` is defined there");
    assert!(of("views/snapshot.rs", "model/site_rows.rs"));
    assert!(!of("views/plan_view.rs", "session/state.rs"));
    let of_tests: Vec<_> = imports.keys().filter(|file| file.ends_with("tests.rs")).collect();
    assert!(of_tests.is_empty(), "{of_tests:?}");
}

#[test]
fn circles_are_found() {
    let graph: BTreeMap<&str, BTreeSet<&str>> =
        [("a", ["b"].into()), ("b", ["c"].into()), ("c", ["a", "d"].into())].into();
    assert_eq!(circles(&graph), [["a", "b", "c"]]);
}

/// What `mod.rs` re-exports for its folder is followed to where it is defined, so `mod.rs` itself is left out.
fn circles_of_files(src: &str) -> Vec<Vec<String>> {
    let house = House::read(&root(src));
    let is_file = |file: &&str| !file.ends_with("mod.rs");
    let imports = house.imports().into_iter().filter(|(file, _)| is_file(file));
    let graph = imports.map(|(file, imports)| (file, imports.into_iter().filter(is_file).collect())).collect();
    circles(&graph).into_iter().map(|circle| circle.into_iter().map(str::to_owned).collect()).collect()
}

/// Files that know each other are read together: three are a thought, more are a knot.
#[test]
fn no_more_than_three_files_know_each_other() {
    for src in ["core/src", "app/src", "kernels/src", "capi/src"] {
        let knots: Vec<_> = circles_of_files(src).into_iter().filter(|of| of.len() > 3).collect();
        assert!(knots.is_empty(), "{src}: {knots:#?}");
    }
}

/// A word means one thing: no type's name stands more than twice in core and app.
#[test]
fn no_type_has_a_name_that_two_others_have() {
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in ["core/src", "core/numerics/src", "app/src", "kernels/src", "capi/src"] {
        for (name, file) in House::read(&root(package)).types {
            types.entry(name).or_default().insert(format!("{package}/{file}"));
        }
    }
    let many: Vec<String> =
        types.iter().filter(|(_, files)| files.len() > 2).map(|(name, files)| format!("{name}: {files:?}")).collect();
    assert!(many.is_empty(), "{}", many.join("\n"));
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
    for folder in ["core/src", "core/numerics/src", "app/src", "kernels/src", "tests/src", "tests/tests"] {
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
