//! A disk that fails on purpose: every write, sync and truncation of a journal and of the files that commands write goes
//! wrong in turn (full, broken, torn), and the process ends at every one of them. After each: nothing that was told is
//! lost, nothing half-written is believed. The same of a machine that loses power, whose disk has of what was not synced
//! any part (`power`). Goes by a library that is preloaded (shim.c), so by the real binary.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod commands;
mod journal;
mod power;
mod server;
mod uploads;

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use tempfile::TempDir;

static SHIM: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    let library = folder.path().join("shim.so");
    let source = loka_tests::here("tests/faults/shim.c");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(command.status().unwrap().success());
    (folder, library)
});

pub fn shim() -> &'static Path {
    &SHIM.1
}

/// What goes wrong, and at which operation.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub how: &'static str,
    pub at: usize,
    pub lasts: bool,
}

impl Fault {
    /// The process ends.
    pub fn kills(self) -> bool {
        matches!(self.how, "kill" | "half")
    }

    /// `command` with this fault below `folder`; the file that is there once it struck.
    pub fn strike(self, command: &mut Command, folder: &Path) -> PathBuf {
        let hit = folder.with_extension("hit");
        drop(std::fs::remove_file(&hit));
        command.env("LD_PRELOAD", shim()).env("FAULT_FOLDER", folder.canonicalize().unwrap());
        command.env("FAULT_AT", self.at.to_string()).env("FAULT_HOW", self.how).env("FAULT_HIT", &hit);
        if self.lasts {
            command.env("FAULT_LASTS", "1");
        }
        hit
    }
}

/// Every way to fail, at the first operation, the second, and so on, until none is left: `run` says whether it struck.
pub fn everywhere(step: usize, run: impl Fn(Fault) -> bool) -> usize {
    let ways = [
        ("full", false),
        ("full", true),
        ("io", false),
        ("torn", false),
        ("torn", true),
        ("kill", false),
        ("half", false),
    ];
    let mut num = 0;
    for (how, lasts) in ways {
        let mut at = 1;
        while run(Fault { how, at, lasts }) {
            assert!(at < 10_000, "it writes for ever");
            (at, num) = (at + step, num + 1);
        }
        assert!(at > 1, "nothing went wrong by {how}");
    }
    num
}
