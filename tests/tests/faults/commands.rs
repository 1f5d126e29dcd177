//! Files that commands write: whatever goes wrong, what was there before is there still, or what is new is whole.

use std::{fs, path::Path, process::Command};

use loka_core::{
    tables::{read_results, write_results},
    trace::write,
};
use loka_tests::{loka, run_in, tiny};
use tempfile::TempDir;

use crate::{Fault, everywhere};

/// Runs `args` in a fresh copy of `from` with a fault; `check` is told whether the command said that it was done.
fn struck(from: &Path, args: &[&str], fault: Fault, check: impl Fn(&Path, bool)) -> bool {
    let folder = TempDir::new().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let mut command = Command::new(loka());
    command.args(args).current_dir(folder.path()).env("HOME", folder.path());
    let hit = fault.strike(&mut command, folder.path());
    let output = command.output().unwrap();
    let hit_at = hit.exists();
    drop(fs::remove_file(&hit));
    let errors = String::from_utf8_lossy(&output.stderr);
    if !fault.kills() && !output.status.success() {
        assert!(
            errors.lines().any(|line| line.starts_with("loka: ")) && !errors.contains("panicked"),
            "{fault:?} {errors}"
        );
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".loka-")), "{fault:?}: {left:?} is left");
    }
    check(folder.path(), output.status.success());
    hit_at
}

/// A trace, its results and a plan of them.
pub fn made() -> TempDir {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("t.trace.safetensors"), &tiny::trace(2)).unwrap();
    let run = |args: &[&str]| run_in(folder.path(), args).done();
    run(&["probe", "t.trace.safetensors", "--engine", "cpu", "--out", "t.results.parquet"]);
    run(&["plan", "t.results.parquet", "--policy", "rel-l2", "--out", "t.plan.json"]);
    folder
}

#[test]
fn a_plan_is_the_old_one_or_the_new_one() {
    let from = made();
    let old = fs::read(from.path().join("t.plan.json")).unwrap();
    let args = ["plan", "t.results.parquet", "--policy", "paper", "--out", "t.plan.json"];
    everywhere(1, |fault| {
        struck(from.path(), &args, fault, |folder, done| {
            let now = fs::read(folder.join("t.plan.json")).unwrap();
            let is_old = now == old;
            assert!(is_old != done || fault.kills(), "{fault:?}: said done: {done}");
            run_in(folder, ["check", "t.plan.json", "--results", "t.results.parquet"]).done();
        })
    });
}

/// In its environment a process of this test writes results there.
const WRITES: &str = "LOKA_TEST_WRITES";

#[test]
fn writer() {
    let Some(path) = std::env::var_os(WRITES) else { return };
    let path = Path::new(&path);
    let mut results = read_results(path).unwrap();
    results.meta.seed += 1;
    println!("done {}", write_results(path, &results).is_ok());
}

#[test]
fn results_are_the_old_ones_or_the_new_ones() {
    let from = made();
    let name = "t.results.parquet";
    let old = read_results(&from.path().join(name)).unwrap();
    everywhere(41, |fault| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name);
        fs::copy(from.path().join(name), &path).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "commands::writer", "--nocapture"]).env(WRITES, &path);
        let hit = fault.strike(&mut command, folder.path());
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let struck = hit.exists();
        drop(fs::remove_file(&hit));
        let now = read_results(&path).unwrap();
        assert_eq!(now.rows, old.rows, "{fault:?}");
        let is_new = now.meta.seed == old.meta.seed + 1;
        assert!(is_new == text.contains("done true") || fault.kills(), "{fault:?}: {text}");
        struck
    });
}

#[test]
fn a_key_is_whole_or_not_there() {
    let from = TempDir::new().unwrap();
    everywhere(1, |fault| {
        struck(from.path(), &["key", "new", "--name", "Anna", "--out", "a.key.json"], fault, |folder, done| {
            assert!(done == folder.join("a.key.json").exists() || fault.kills(), "{fault:?}");
            if folder.join("a.key.json").exists() {
                run_in(folder, ["key", "show", "a.key.json"]).done();
            }
        })
    });
}

#[test]
fn a_report_is_whole_or_not_there() {
    let from = made();
    let args = ["report", "t.plan.json", "--results", "t.results.parquet", "--out", "t.html"];
    everywhere(1, |fault| {
        struck(from.path(), &args, fault, |folder, done| {
            let page = fs::read_to_string(folder.join("t.html")).unwrap_or_default();
            assert!(done != page.is_empty() || fault.kills(), "{fault:?}");
            assert!(page.is_empty() || page.trim_end().ends_with("</html>"), "{fault:?}");
        })
    });
}
