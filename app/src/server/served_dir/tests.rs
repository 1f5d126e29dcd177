//! Every trick that a name can play.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{fs, path::Path};

use loka_core::{
    session::FileKind,
    trace::{Trace, merge, write},
};

use super::*;

/// A served folder with a trace in a folder, and a secret beside it.
fn served() -> (tempfile::TempDir, ServedDir) {
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("served");
    fs::create_dir_all(folder.join("runs/today")).unwrap();
    fs::write(around.path().join("secret.trace.safetensors"), "secret").unwrap();
    for name in ["a.trace.safetensors", "runs/b.trace.safetensors", "runs/today/c.plan.json", "r.parquet", "odd.txt"] {
        fs::write(folder.join(name), "x").unwrap();
    }
    let served_dir = ServedDir::new(&folder).unwrap();
    (around, served_dir)
}

#[test]
fn names_inside_lead_to_their_files() {
    let (_around, served_dir) = served();
    for name in ["a.trace.safetensors", "runs/b.trace.safetensors", "runs/today/c.plan.json", "runs", "."] {
        let path = served_dir.path(name).unwrap();
        assert!(path.starts_with(served_dir.root()), "{name}");
        assert_eq!(served_dir.name(&path).as_deref(), Some(name));
    }
    fs::write(served_dir.root().join("ümläut ☃.trace.safetensors"), "x").unwrap();
    assert!(served_dir.path("ümläut ☃.trace.safetensors").is_ok());
    assert_eq!(served_dir.name(Path::new("/etc/passwd")), None);
}

#[test]
fn names_that_lead_out_are_refused_in_one_line() {
    let (around, served_dir) = served();
    let absolute = around.path().join("secret.trace.safetensors").to_string_lossy().into_owned();
    let inside_but_absolute = served_dir.root().join("a.trace.safetensors").to_string_lossy().into_owned();
    for name in [
        "../secret.trace.safetensors",
        "runs/../../secret.trace.safetensors",
        "runs/../a.trace.safetensors",
        "..",
        "/",
        "//",
        "/etc/passwd",
        &absolute,
        &inside_but_absolute,
        "..\\secret.trace.safetensors",
        "C:\\secret",
        "c:secret",
        "C:/secret",
        "\\\\server\\share",
        "a.trace.safetensors\0.txt",
        "a\n.trace.safetensors",
        "",
        "./a.trace.safetensors",
        "runs//b.trace.safetensors",
        "runs/",
        &"x".repeat(limits::NAME_BYTES + 1),
        &"d/".repeat(2000),
    ] {
        let line = served_dir.path(name).unwrap_err();
        assert!(!line.contains('\n') && line.len() < 600, "{line}");
        let told = around.path().to_string_lossy();
        assert!(!line.contains(&*told) || name.starts_with('/'), "{line} tells a path of this machine");
    }
}

#[test]
fn encoded_tricks_are_plain_characters() {
    let (_around, served_dir) = served();
    for name in
        ["%2e%2e/secret.trace.safetensors", "..%2fsecret.trace.safetensors", "%00", "..%c0%afsecret", "~", "$HOME"]
    {
        assert!(served_dir.path(name).unwrap_err().starts_with("no such file or folder"), "{name}");
    }
    fs::write(served_dir.root().join("%2e%2e"), "x").unwrap();
    assert!(served_dir.path("%2e%2e").is_ok(), "a file may be called so");
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_must_stay_inside() {
    use std::os::unix::fs::symlink;
    let (around, served_dir) = served();
    symlink(around.path().join("secret.trace.safetensors"), served_dir.root().join("out.trace.safetensors")).unwrap();
    symlink("../secret.trace.safetensors", served_dir.root().join("relative.trace.safetensors")).unwrap();
    symlink(around.path(), served_dir.root().join("up")).unwrap();
    symlink("a.trace.safetensors", served_dir.root().join("in.trace.safetensors")).unwrap();
    symlink("round", served_dir.root().join("round")).unwrap();
    for name in ["out.trace.safetensors", "relative.trace.safetensors", "up", "up/secret.trace.safetensors"] {
        assert!(served_dir.path(name).unwrap_err().starts_with(OUTSIDE), "{name}");
    }
    // A folder of the same beginning is another folder.
    fs::create_dir(around.path().join("served-too")).unwrap();
    fs::write(around.path().join("served-too/a.trace.safetensors"), "x").unwrap();
    symlink("../served-too/a.trace.safetensors", served_dir.root().join("sibling.trace.safetensors")).unwrap();
    assert!(served_dir.path("sibling.trace.safetensors").is_err());
    assert_eq!(served_dir.path("in.trace.safetensors").unwrap(), served_dir.root().join("a.trace.safetensors"));
    assert!(served_dir.path("round").is_err());
}

#[cfg(unix)]
#[test]
fn only_files_and_folders_can_be_read() {
    let (_around, served_dir) = served();
    drop(std::os::unix::net::UnixListener::bind(served_dir.root().join("s.trace.safetensors")).unwrap());
    assert!(served_dir.path("s.trace.safetensors").unwrap_err().starts_with("neither a file nor a folder"));
    assert!(!served_dir.list().entries.iter().any(|entry| entry.name.starts_with("s.")));
}

#[test]
fn a_missing_folder_and_a_file_are_no_jail() {
    let (around, served_dir) = served();
    assert!(ServedDir::new(&around.path().join("nowhere")).unwrap_err().starts_with("no such file or folder"));
    assert!(ServedDir::new(&served_dir.root().join("odd.txt")).unwrap_err().starts_with("not a folder"));
}

#[test]
fn numbers_in_names_count_as_numbers() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["week-10", "week-2", "week-02", "week-1"] {
        fs::write(folder.path().join(format!("{name}.plan.json")), "{}").unwrap();
    }
    let entries = ServedDir::new(folder.path()).unwrap().list().entries;
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.trim_end_matches(".plan.json")).collect();
    assert_eq!(names, ["week-1", "week-02", "week-2", "week-10"]);
}

#[test]
fn the_list_holds_what_can_be_opened() {
    let (_around, served_dir) = served();
    fs::write(served_dir.root().join(".hidden.trace.safetensors"), "x").unwrap();
    fs::create_dir_all(served_dir.root().join("1/2/3")).unwrap();
    fs::write(served_dir.root().join("1/2/deep.trace.safetensors"), "x").unwrap();
    fs::write(served_dir.root().join("1/2/3/too-deep.trace.safetensors"), "x").unwrap();
    let listing = served_dir.list();
    let names: Vec<(&str, FileKind)> = listing.entries.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
    assert_eq!(
        names,
        [
            ("1/2/deep.trace.safetensors", FileKind::Trace),
            ("a.trace.safetensors", FileKind::Trace),
            ("runs/b.trace.safetensors", FileKind::Trace),
            ("r.parquet", FileKind::Results),
            ("runs/today/c.plan.json", FileKind::Plan),
        ]
    );
    assert!(listing.complete);
    assert!(names.iter().all(|(name, _)| served_dir.path(name).is_ok()), "what is offered can be asked for");
}

#[test]
fn the_list_is_bounded() {
    let (_around, served_dir) = served();
    for number in 0..limits::LISTED {
        fs::write(served_dir.root().join(format!("{number:04}.trace.safetensors")), "").unwrap();
    }
    let listing = served_dir.list();
    assert_eq!((listing.entries.len(), listing.complete), (limits::LISTED, false));
}

#[test]
fn shards_of_a_run_are_one_trace_and_traces_of_two_runs_are_two() {
    let sample = |name: &str| format!("{}/../sample-traces/{name}.trace.safetensors", env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, from: &str| fs::copy(sample(from), folder.path().join(name)).map(drop).unwrap();
    put("a.trace.safetensors", "interformer-past");
    put("b.trace.safetensors", "dhen-counters");
    let ranks = folder.path().join("ranks");
    fs::create_dir(&ranks).unwrap();
    let one = Trace::open(Path::new(&sample("interformer-past"))).unwrap();
    let mut shard = merge(&[one]).unwrap();
    for rank in 0..2 {
        (shard.manifest.run.rank, shard.manifest.run.world_size) = (rank, 2);
        write(&ranks.join(format!("rank-{rank}.trace.safetensors")), &shard).unwrap();
    }
    let names = |folder: &Path| -> Vec<String> {
        let entries = ServedDir::new(folder).unwrap().list().entries;
        entries.into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(names(folder.path()), ["a.trace.safetensors", "b.trace.safetensors", "ranks"]);
    assert_eq!(names(&ranks), ["."]);
}
