//! What several tests need: where things lie, the real binary to run, and a session of any size.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test stops at the first surprise")]

pub mod assistant;
pub mod big;
pub mod dice;
pub mod house;
pub mod scripted;
pub mod serving;
pub mod tiny;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// A file or folder of tests/.
pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A file or folder of the repository.
pub fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The real trace that ships with LoKA: 14 sites of a small Wukong.
pub fn sample() -> PathBuf {
    root("sample-traces/wukong-clicks.trace.safetensors")
}

/// The binary beside this test's own, as `./test` builds it: a test cannot ask Cargo for another
/// package's binary.
pub fn loka() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test.ancestors().skip(1).take(2).map(|folder| folder.join("loka")).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("no binary near {}: run `cargo build --package loka` first, or ./test", test.display())
    })
}

/// Where pictures cannot be drawn a test of them is skipped, but not on CI: there it would pass for ever.
pub fn cannot_draw() {
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci.is_empty()),
        "nothing here can draw, and CI must have something that can"
    );
    eprintln!("skipped: nothing here can draw");
}

/// How one run of the binary ended.
#[derive(Debug)]
pub struct ProgramRun {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `loka` with `args` in `folder`, and waits.
pub fn run_in<S: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = S>) -> ProgramRun {
    let output = Command::new(loka()).args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    ProgramRun::from(output)
}

impl From<Output> for ProgramRun {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl ProgramRun {
    /// It ended well.
    #[track_caller]
    pub fn done(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// It was refused as bad use or bad input: exit 2, nothing on stdout, one line on stderr. The line.
    #[track_caller]
    pub fn refused(self) -> String {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        self.stderr.trim_end().to_owned()
    }

    /// Its stdout as JSON objects, one a line and nothing else.
    #[track_caller]
    pub fn objects(&self) -> Vec<Value> {
        let object = |line: &str| match serde_json::from_str(line) {
            Ok(value @ Value::Object(_)) => value,
            other => panic!("not a JSON object: {line}: {other:?}"),
        };
        assert!(self.stdout.ends_with('\n'), "{self:?}");
        self.stdout.lines().map(object).collect()
    }
}
