//! `loka log`: a trace's journal in, who decided what out.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use loka_core::{
    journal::{self, Break, Link, Trail, TrailEntry},
    model::visible,
    session::said,
};
use serde_json::{Value, json};

use super::output::{self, Outcome, TextTable};
use crate::files;

#[derive(clap::Args, Debug)]
pub struct LogArgs {
    /// A trace that has a journal beside it, or a journal.
    #[arg(value_name = "TRACE|JOURNAL")]
    path: PathBuf,
    /// A head that was noted earlier: it must be in the chain, or something before it was rewritten.
    #[arg(long, value_name = "HASH")]
    head: Option<Link>,
    /// Only what has this number or a later one. The whole chain is verified all the same.
    #[arg(long, value_name = "N", default_value_t = 0)]
    since: u64,
}

pub fn run(args: &LogArgs, json: bool) -> anyhow::Result<Outcome> {
    let path = journal_of(&args.path)?;
    let trail = match Trail::read(&path)? {
        Ok(trail) => trail,
        Err(wrong) => return broken(&path, &wrong, json),
    };
    if let Some(head) = args.head.filter(|head| !trail.has(*head)) {
        return unknown(&path, head, json);
    }
    let shown: Vec<&TrailEntry> = trail.entries.iter().filter(|entry| entry.seq >= args.since).collect();
    let num = trail.entries.len();
    if json {
        shown.into_iter().try_for_each(|entry| output::json(&line(entry)))?;
        output::json(&json!({
            "journal": path, "trace_digest": trail.trace_digest, "holds": true, "num_entries": num,
            "first": trail.first.to_string(), "head": trail.head().to_string(),
        }))?;
        return Ok(Outcome::Done);
    }
    print_table(&shown);
    let entries = if num == 1 { "1 entry".to_owned() } else { format!("{num} entries") };
    output::line(&format!("the chain holds: {entries}, head {}", trail.head()));
    Ok(Outcome::Done)
}

/// Itself, or the one beside a trace.
fn journal_of(path: &Path) -> anyhow::Result<PathBuf> {
    std::fs::metadata(path).map_err(|error| anyhow::anyhow!("{}: {}", files::reason(&error), path.display()))?;
    let mut begins = [0; 6];
    let sqlite = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut begins)).is_ok();
    let named = path.file_name().is_some_and(|name| name.to_string_lossy().contains(".journal.sqlite"));
    if named || (sqlite && begins == *b"SQLite") {
        return Ok(path.to_owned());
    }
    let beside = journal::beside(path);
    if !beside.exists() {
        anyhow::bail!("no journal is kept of it, there is no {}: {}", beside.display(), path.display());
    }
    Ok(beside)
}

fn broken(path: &Path, wrong: &Break, json: bool) -> anyhow::Result<Outcome> {
    if json {
        output::json(&json!({"journal": path, "holds": false, "problem": wrong.to_string()}))?;
    } else {
        output::line(&format!("the chain is broken: {wrong}: {}", path.display()));
    }
    Ok(Outcome::Failed)
}

fn unknown(path: &Path, head: Link, json: bool) -> anyhow::Result<Outcome> {
    let problem = format!("{head} is not in it: what was there was rewritten, or it is another journal");
    if json {
        output::json(&json!({"journal": path, "holds": false, "problem": problem}))?;
    } else {
        output::line(&format!("{problem}: {}", path.display()));
    }
    Ok(Outcome::Failed)
}

/// What another version of this program wrote is shown as it is written.
fn words(entry: &TrailEntry) -> String {
    entry.asked().map_or_else(|| visible(&entry.command), |command| said(&command))
}

/// Everything that the entry's hash is over, as it is (the command is a text), and the words.
fn line(entry: &TrailEntry) -> Value {
    let TrailEntry { seq, at, author, role, number, seen, command, hash, .. } = entry;
    json!({
        "entry": seq, "at": at, "at_ms": at.0, "author": author, "role": role,
        // Of 64 bits: more than a number of JSON is good for everywhere.
        "author_key": entry.author_key.to_string(), "number": number, "seen": seen,
        "said": words(entry), "command": command, "hash": hash.to_string(),
    })
}

fn print_table(shown: &[&TrailEntry]) {
    if shown.is_empty() {
        return;
    }
    let mut table = TextTable::new(&[">entry", "time", "who", "what"]);
    for entry in shown {
        let who = format!("{} ({})", entry.author, entry.role);
        // What the program does unasked, and what was done by no clock.
        let at = if entry.at.0 == 0 { "-".to_owned() } else { entry.at.to_string() };
        table.row([entry.seq.to_string(), at, who, words(entry)]);
    }
    table.print();
}
