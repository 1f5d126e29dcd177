//! Takes the open trace and what a plan runs in FP8; gives the event with the checkpoints of its run that lie beside it, each with
//! the verdicts that the results beside it give. Nothing is probed.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use loka_core::{
    session::Event,
    tables,
    trace::Trace,
    views::drift::{Checkpoint, Followed, Verdicts},
};

use crate::{
    beside::beside,
    executor::panic_text,
    files::{self, WATCHED_ROWS},
};

/// Traces of a folder that are looked at: the last ones by name.
const MOST: usize = 500;

/// Rows of a checkpoint, by what stands behind its name: of a probe, or of the chosen kernels that `loka watch --keep-rows` drew.
const ROWS: [&str; 2] = ["results.parquet", WATCHED_ROWS];

/// `trace` names the open trace to the session; `open` is it, where its file is there. `file_of` says where what a session names so
/// lies, or why it may not be read.
pub(crate) fn answer(
    trace: String,
    open: Option<Trace>,
    followed: &Followed,
    file_of: impl Fn(&str) -> Result<String, String>,
) -> Event {
    // A panic must end as a failure, or the view would wait for ever.
    let work = AssertUnwindSafe(|| checkpoints(&trace, open, followed, file_of));
    let outcome = catch_unwind(work).unwrap_or_else(|cause| Err(panic_text(&*cause)));
    Event::CheckpointsRead { trace, outcome }
}

fn checkpoints(
    trace: &str,
    open: Option<Trace>,
    followed: &Followed,
    file_of: impl Fn(&str) -> Result<String, String>,
) -> Result<Vec<Checkpoint>, String> {
    let open = open.ok_or("these results came without their trace: open the trace to see its run's checkpoints")?;
    let run = &open.manifest().run.id;
    let mut found = Vec::new();
    for name in names_beside(trace)? {
        // What cannot be read is no checkpoint of this run: a file may be on its way.
        let Ok(file) = file_of(&name) else { continue };
        let Ok(other) = Trace::open(Path::new(&file)) else { continue };
        if other.manifest().run.id != *run {
            continue;
        }
        let verdicts = verdicts_of(&other, &file, &open, followed);
        found.push(Checkpoint { path: name, step: other.manifest().run.step, verdicts });
    }
    found.sort_by(|a, b| (a.step, &a.path).cmp(&(b.step, &b.path)));
    Ok(found)
}

/// The traces of the open one's folder, as a session names them, with the open one among them.
fn names_beside(trace: &str) -> Result<Vec<String>, String> {
    let (folder, own) = match trace.trim_end_matches('/').rsplit_once('/') {
        Some((folder, own)) => (format!("{folder}/"), own),
        None => (String::new(), trace),
    };
    let at = if folder.is_empty() { Path::new(".") } else { Path::new(&folder) };
    let failed = |error: std::io::Error| format!("{}: {}", files::reason(&error), at.display());
    // Shards of one run lie in a folder each.
    let is_folder = !own.ends_with(".trace.safetensors");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(at).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_trace = name.ends_with(".trace.safetensors");
        if is_trace && !is_folder || is_folder && entry.path().is_dir() {
            names.push(format!("{folder}{name}"));
        }
    }
    names.sort();
    names.drain(..names.len().saturating_sub(MOST));
    Ok(names)
}

fn verdicts_of(checkpoint: &Trace, file: &str, open: &Trace, followed: &Followed) -> Result<Verdicts, String> {
    let there = ROWS.map(|ending| beside(file, ending)).into_iter().find(|path| Path::new(path).is_file());
    let path = there.ok_or("no results lie beside it: probe it, or watch the folder with --keep-rows")?;
    let results = tables::read_results(Path::new(&path)).map_err(|error| error.to_string())?;
    if results.meta.manifest != *checkpoint.manifest() {
        return Err(format!("the results beside it are of another trace: {path}"));
    }
    let sites = &open.manifest().sites;
    Ok(followed.verdicts(sites, &results.rows, checkpoint.manifest().loss.value))
}
