//! A machine that loses power at any moment, whose disk writes in an order of its own: of what was not synced by then it
//! has any part, in sectors, and a name that is new, moved or gone may be as it was before, until its folder is synced.
//! What a program did is noted while it runs well (`FAULT_LOG` of shim.c); what the disk could have of it is made up here,
//! and opened. `LOKA_POWER=N` makes up N disks at every operation, which takes minutes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::Command,
};

use loka_core::trace::write;
use loka_tests::{dice::Dice, loka, serving::Server, tiny};
use tempfile::TempDir;

use crate::{commands, journal, shim, uploads};

/// A disk writes them whole.
const SECTOR: usize = 512;

/// Of the operations so many are looked at, the last among them, with two disks each: one that has nothing which was not
/// synced, and one by chance.
const MOMENTS: usize = 40;

/// Names in the folder, each with its inode.
type Names = BTreeMap<String, u64>;

enum Done {
    Write { inode: u64, offset: usize, bytes: Vec<u8> },
    Length { inode: u64, length: usize },
    Sync { inode: u64 },
    Told(String),
}

/// A folder before a program, and what it did there.
struct Recording {
    folder: u64,
    before: Vec<(String, u64, Vec<u8>)>,
    steps: Vec<(Done, Names)>,
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes.to_vec()
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().unwrap())
    }

    fn text(&mut self, length: usize) -> String {
        String::from_utf8(self.bytes(length)).unwrap()
    }

    fn step(&mut self) -> (Done, Names) {
        let [what, inode, offset, length] = std::array::from_fn(|_| self.number());
        let done = match what as u8 {
            b'W' => Done::Write { inode, offset: offset as usize, bytes: self.bytes(length as usize) },
            b'L' => Done::Length { inode, length: offset as usize },
            b'S' => Done::Sync { inode },
            b'T' => Done::Told(self.text(length as usize)),
            other => panic!("{other} is no operation"),
        };
        let mut names = Names::new();
        loop {
            let (inode, length) = (self.number(), self.number());
            if inode == 0 {
                return (done, names);
            }
            names.insert(self.text(length as usize), inode);
        }
    }
}

impl Recording {
    /// `run` is given what the program has to have in its environment.
    fn of(folder: &Path, run: impl FnOnce(&[(&'static str, String)])) -> Self {
        let folder = folder.canonicalize().unwrap();
        let log = folder.with_extension("log");
        let entries = fs::read_dir(&folder).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let inode = entry.metadata().unwrap().ino();
            (entry.file_name().into_string().unwrap(), inode, fs::read(entry.path()).unwrap())
        });
        let before = entries.collect();
        let shown = |path: &Path| path.display().to_string();
        run(&[("LD_PRELOAD", shown(shim())), ("FAULT_FOLDER", shown(&folder)), ("FAULT_LOG", shown(&log))]);
        let bytes = fs::read(&log).unwrap();
        fs::remove_file(&log).unwrap();
        let mut reader = Reader(&bytes);
        let mut steps = Vec::new();
        while !reader.0.is_empty() {
            steps.push(reader.step());
        }
        Self { folder: fs::metadata(&folder).unwrap().ino(), before, steps }
    }

    /// What it had told by then.
    fn told(&self, by: usize) -> String {
        let told = self.steps[..by].iter().filter_map(|(done, _)| match done {
            Done::Told(text) => Some(text.as_str()),
            _ => None,
        });
        told.collect()
    }

    /// Disks that there could be when the power goes: `see` gets the number of steps before that, and the folder.
    fn every_disk(&self, see: impl Fn(usize, &Path)) -> usize {
        let asked: Option<u64> = std::env::var("LOKA_POWER").ok().map(|text| text.parse().unwrap());
        let last = self.steps.len();
        let stride = if asked.is_some() { 1 } else { last.div_ceil(MOMENTS) };
        let mut num = 0;
        for by in (0..=last).rev().step_by(stride.max(1)) {
            let disk = Disk::after(self, by);
            for seed in 0..asked.unwrap_or(2) {
                let folder = TempDir::new().unwrap();
                disk.put(folder.path(), (seed > 0).then(|| Dice::new(seed * 10_007 + by as u64)));
                see(by, folder.path());
                num += 1;
            }
        }
        num
    }
}

/// What it has for good, and what it may have.
struct Disk<'a> {
    files: HashMap<u64, Content<'a>>,
    names: Names,
    /// As they were after each operation since the folder was synced.
    maybe: Vec<&'a Names>,
}

#[derive(Default)]
struct Content<'a> {
    bytes: Vec<u8>,
    maybe: Vec<&'a Done>,
}

impl<'a> Disk<'a> {
    fn after(recording: &'a Recording, by: usize) -> Self {
        let mut files: HashMap<u64, Content<'_>> = HashMap::new();
        let mut names = Names::new();
        for (name, inode, bytes) in &recording.before {
            names.insert(name.clone(), *inode);
            files.insert(*inode, Content { bytes: bytes.clone(), maybe: Vec::new() });
        }
        let mut disk = Self { files, names, maybe: Vec::new() };
        for (done, names) in &recording.steps[..by] {
            disk.maybe.push(names);
            match done {
                Done::Write { inode, .. } | Done::Length { inode, .. } => {
                    disk.files.entry(*inode).or_default().maybe.push(done);
                }
                Done::Sync { inode } if *inode == recording.folder => {
                    disk.names = names.clone();
                    disk.maybe.clear();
                }
                Done::Sync { inode } => {
                    let content = disk.files.entry(*inode).or_default();
                    for done in std::mem::take(&mut content.maybe) {
                        apply(&mut content.bytes, done, None);
                    }
                }
                Done::Told(_) => {}
            }
        }
        disk
    }

    fn put(&self, folder: &Path, mut dice: Option<Dice>) {
        let all: BTreeSet<&String> =
            self.names.keys().chain(self.maybe.iter().flat_map(|names| names.keys())).collect();
        for name in all {
            let newer = dice.as_mut().filter(|_| !self.maybe.is_empty());
            let newer = newer.and_then(|dice| (!dice.once_in(3)).then(|| self.maybe[dice.below(self.maybe.len())]));
            let of = newer.unwrap_or(&self.names);
            let Some(inode) = of.get(name) else { continue };
            let mut bytes = Vec::new();
            if let Some(content) = self.files.get(inode) {
                bytes.clone_from(&content.bytes);
                for done in &content.maybe {
                    if let Some(dice) = &mut dice
                        && !dice.once_in(2)
                    {
                        apply(&mut bytes, done, Some(dice));
                    }
                }
            }
            fs::write(folder.join(name), bytes).unwrap();
        }
    }
}

/// `torn`: of a write that was under way some sectors may be missing.
fn apply(file: &mut Vec<u8>, done: &Done, mut torn: Option<&mut Dice>) {
    match done {
        Done::Write { offset, bytes, .. } => {
            let is_torn = torn.as_mut().is_some_and(|dice| dice.once_in(2));
            let mut from = 0;
            while from < bytes.len() {
                let at = offset + from;
                let to = (from + SECTOR - at % SECTOR).min(bytes.len());
                if !(is_torn && torn.as_mut().is_some_and(|dice| dice.once_in(2))) {
                    let end = offset + to;
                    file.resize(file.len().max(end), 0);
                    file[at..end].copy_from_slice(&bytes[from..to]);
                }
                from = to;
            }
        }
        Done::Length { length, .. } => file.resize(*length, 0),
        Done::Sync { .. } | Done::Told(_) => {}
    }
}

#[test]
fn a_journal_has_what_was_told_after_the_power_went() {
    let folder = TempDir::new().unwrap();
    let recording = Recording::of(folder.path(), |environment| {
        let mut keeper = journal::keeper_of(&folder.path().join(journal::NAME));
        let output = keeper.envs(environment.iter().cloned()).output().unwrap();
        assert!(String::from_utf8(output.stdout).unwrap().contains("ended"));
    });
    let all = recording.told(recording.steps.len());
    assert_eq!(journal::told_in(&all), journal::COMMANDS, "{all}");
    let num = recording.every_disk(|by, folder| {
        let told = journal::told_in(&recording.told(by));
        journal::kept(&folder.join(journal::NAME), told, (by, recording.steps.len()));
    });
    println!("{num} disks");
}

/// Of a command that writes `name` in the folder that `from` is a copy of.
fn survives(from: &Path, args: &[&str], name: &str) {
    let folder = TempDir::new().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let old = fs::read(folder.path().join(name)).ok();
    let recording = Recording::of(folder.path(), |environment| {
        let mut command = Command::new(loka());
        command.args(args).current_dir(folder.path()).env("HOME", from).envs(environment.iter().cloned());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    });
    let new = fs::read(folder.path().join(name)).unwrap();
    assert_ne!(old.as_ref(), Some(&new));
    recording.every_disk(|by, folder| {
        let now = fs::read(folder.join(name)).ok();
        assert!(now == old || now.as_ref() == Some(&new), "{args:?}: half of it is there after {by} operations");
        // The command said that it was done.
        assert!(by < recording.steps.len() || now.as_ref() == Some(&new), "{args:?}: it is not there");
    });
}

#[test]
fn what_a_command_wrote_is_there_after_the_power_went() {
    let from = commands::made();
    survives(from.path(), &["plan", "t.results.parquet", "--policy", "paper", "--out", "t.plan.json"], "t.plan.json");
    survives(from.path(), &["probe", "t.trace.safetensors", "--seed", "7", "--out", "n.parquet"], "n.parquet");
    survives(from.path(), &["key", "new", "--name", "Anna", "--out", "a.key.json"], "a.key.json");
    survives(from.path(), &["user", "add", "Anna", "--role", "owner", "--users", "users.json"], "users.json");
}

#[test]
fn an_upload_that_was_told_is_there_after_the_power_went() {
    let (from, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let whole = from.path().join(uploads::NAME);
    write(&whole, &tiny::trace(3)).unwrap();
    let whole = fs::read(whole).unwrap();
    let recording = Recording::of(folder.path(), |environment| {
        let words: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let starter: Vec<&str> = std::iter::once("env").chain(words.iter().map(String::as_str)).collect();
        let server = Server::under(&starter, folder.path(), "127.0.0.1:0", uploads::NONE);
        assert_eq!(uploads::send(&server, &whole), 201);
    });
    recording.every_disk(|by, folder| {
        let now = fs::read(folder.join(uploads::NAME)).ok();
        assert!(now.as_ref().is_none_or(|now| *now == whole), "a part of it is there after {by} operations");
        assert!(by < recording.steps.len() || now.is_some(), "it is not there");
    });
}
