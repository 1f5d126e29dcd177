//! Every reader with files of its kind that are bent at random: bits turned, pieces cut out, doubled, moved, numbers made
//! huge, brackets nested. Each is refused in one line or read, in little memory and time.
//!
//! `scripts/fuzz.sh` looks deeper where it can (it needs a nightly compiler, and no C); this has all readers, SQLite and
//! Polars with them, in every run of the tests. `LOKA_BENT=N` bends each kind N times.

use std::{fs, path::Path, sync::PoisonError, time::Duration};

use loka::server::user_store;
use loka_core::{
    bench::{from_csv, parse_shapes, to_csv},
    dispatch::Policy,
    journal::{Journal, Trail},
    model::{SiteTimes, visible},
    plan::{Plan, standing},
    review::{KeyRing, SecretKey},
    runtime::Journaling as _,
    session::{
        Command, Event, NoticeKind,
        shared::{
            Author, CommandContext, MAX_TO_CLIENT, MAX_TO_SERVER, SequencedSession, ToClient, ToServer, decode, encode,
        },
    },
    tables::{read_kernels, read_results, results_from_bytes, write_kernels},
    trace::Trace,
};
use loka_tests::{big, dice::Dice, here, run_in};

use super::{TURN, measured};

/// So often each kind is bent.
fn times() -> usize {
    std::env::var("LOKA_BENT").map_or(150, |text| text.parse().unwrap())
}

/// Beside what is in the file, unpacked: dictionaries, pages and SQLite's own.
const MOST_BYTES: usize = 64 << 20;
/// A debug build beside a compiler.
const MOST_TIME: Duration = Duration::from_secs(5);

/// Sizes and counts that overflow something.
const HUGE: [u64; 6] = [0, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX, 1 << 40];

fn bend(dice: &mut Dice, good: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=dice.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = dice.below(bytes.len());
        let end = (at + 1 + dice.below(64)).min(bytes.len());
        match dice.below(9) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = dice.below(256) as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let piece = bytes[at..end].to_vec();
                let to = dice.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            5 => {
                let huge = HUGE[dice.below(HUGE.len())].to_le_bytes();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&huge[..end - at]);
            }
            6 => {
                // The next number in a text.
                if let Some(first) = bytes[at..].iter().position(u8::is_ascii_digit).map(|of| at + of) {
                    let digits = bytes[first..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                    let huge = HUGE[dice.below(HUGE.len())].to_string();
                    bytes.splice(first..first + digits, huge.bytes());
                }
            }
            7 => {
                let nested = [b"[".as_slice(), b"{\"a\":", b"\"", b"\n", b"\xe2\x80\xae"][dice.below(5)];
                let many = nested.repeat(1 + dice.below(5000));
                bytes.splice(at..at, many);
            }
            _ => bytes[at..end].fill([0, 0xff][dice.below(2)]),
        }
    }
    bytes
}

/// `read` gives the line that refuses it. With the file as it was first: that is read.
fn withstands(kind: &str, good: &[u8], mut read: impl FnMut(&[u8]) -> Result<(), String>) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    read(good).unwrap_or_else(|line| panic!("{kind}: the file that others are bent from is refused: {line}"));
    let mut refused = 0;
    for seed in 0..times() {
        let bent = bend(&mut Dice::new(seed as u64), good);
        let (found, peak, took) = measured(|| read(&bent));
        let most = MOST_BYTES + 64 * bent.len();
        assert!(peak < most, "{kind} {seed}: {peak} bytes for a file of {}", bent.len());
        assert!(took < MOST_TIME, "{kind} {seed}: {took:?}");
        if let Err(line) = found {
            refused += 1;
            assert!(!visible(&line).contains('\n') && !line.is_empty(), "{kind} {seed}: {line:?}");
        }
    }
    assert!(refused > times() / 10, "{kind}: {refused} of {} are refused", times());
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Bytes of a text, as whoever reads a file of it does.
fn of_text(bytes: &[u8], read: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
    std::str::from_utf8(bytes).map_err(text).and_then(read)
}

fn repository(path: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// The first byte says what it is, for the fuzzer.
fn seed(name: &str) -> Vec<u8> {
    repository(&format!("fuzz/seeds/documents/{name}"))[1..].to_vec()
}

#[test]
fn traces() {
    withstands("trace", &fs::read(here("corpus/good.trace.safetensors")).unwrap(), |bytes| {
        let trace = Trace::from_bytes("t", bytes.to_vec()).map_err(text)?;
        for entry in trace.sites() {
            trace.site_stats(&entry.site.id).map_err(text)?;
        }
        Ok(())
    });
}

#[test]
fn results_by_both_readers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.results.parquet");
    withstands("results", &repository("fuzz/seeds/results/tiny"), |bytes| {
        fs::write(&path, bytes).unwrap();
        let native = read_results(&path).map(drop).map_err(text);
        let page = results_from_bytes("r", bytes.to_vec()).map(drop).map_err(text);
        native.and(page)
    });
}

#[test]
fn kernel_databases() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k.kernels.parquet");
    let good = repository("assets/kernels/h200-cublaslt-cuda-graphs.kernels.parquet");
    withstands("kernels", &good, |bytes| {
        fs::write(&path, bytes).unwrap();
        read_kernels(&path).map(drop).map_err(text)
    });
}

#[test]
fn documents() {
    withstands("plan", &seed("plan"), |bytes| {
        of_text(bytes, |json| {
            let plan = Plan::from_json(json).map_err(text)?;
            drop(standing(&plan, None, None).missing());
            Ok(())
        })
    });
    withstands("policy", &seed("policy"), |bytes| {
        of_text(bytes, |json| Policy::from_json(json).map(drop).map_err(text))
    });
    withstands("keys", &seed("keys"), |bytes| of_text(bytes, |json| KeyRing::from_json(json).map(drop).map_err(text)));
    let key = SecretKey::new("Anna", &[7; 32]).unwrap().to_json();
    withstands("secret key", key.as_bytes(), |bytes| {
        of_text(bytes, |json| SecretKey::from_json(json).map(drop).map_err(text))
    });
}

#[test]
fn tables_of_text() {
    withstands("shapes", &seed("shapes"), |bytes| of_text(bytes, |csv| parse_shapes(csv).map(drop).map_err(text)));
    let times = SiteTimes { device: "NVIDIA H200".to_owned(), ..SiteTimes::default() };
    withstands("site times", times.to_json().as_bytes(), |bytes| {
        of_text(bytes, |json| SiteTimes::from_json(json).map(drop).map_err(text))
    });
    let records = read_kernels(&here("../assets/kernels/h200-cublaslt-cuda-graphs.kernels.parquet")).unwrap().records;
    withstands("kernels as CSV", to_csv(&records[..20]).as_bytes(), |bytes| {
        of_text(bytes, |csv| from_csv(csv).map(drop).map_err(text))
    });
}

#[test]
fn lists_of_people() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.json");
    run_in(folder.path(), ["user", "add", "Anna", "--role", "reviewer", "--users", "users.json"]).done();
    let good = fs::read(&path).unwrap();
    withstands("people", &good, |bytes| {
        fs::write(&path, bytes).unwrap();
        user_store::read(&path).map(drop)
    });
}

/// A journal with some of everything.
fn journal(path: &Path) {
    let (mut journal, ..) = Journal::open(path, ("stamp", "sha256:00"), std::sync::Arc::new(|| {})).unwrap();
    for number in 1..=20 {
        let by = CommandContext::numbered(Author::new(7, "Anna"), number);
        journal.command(&by, &Command::SetMaxError { value: number as f64 / 100.0, gesture: None });
        journal.event(&Event::Notice { kind: NoticeKind::Info, message: format!("Number {number}") });
    }
    let mut ordered = SequencedSession::default();
    ordered.remember(7, 20);
    journal.checkpoint(ordered.save());
    journal.flush();
}

#[test]
fn journals() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.journal.sqlite");
    journal(&path);
    let good = fs::read(&path).unwrap();
    let mut at = 0;
    withstands("journal", &good, |bytes| {
        // In a folder of its own: what cannot be taken up is set aside there.
        at += 1;
        let folder = folder.path().join(at.to_string());
        fs::create_dir(&folder).unwrap();
        let path = folder.join("t.journal.sqlite");
        fs::write(&path, bytes).unwrap();
        let trail = Trail::read(&path).map_err(text).and_then(|found| found.map(drop).map_err(text));
        let opened = Journal::open(&path, ("stamp", "sha256:00"), std::sync::Arc::new(|| {}));
        let opened = opened.map_err(text).and_then(|(_, _, told)| told.map_or(Ok(()), Err));
        fs::remove_dir_all(&folder).unwrap();
        trail.and(opened)
    });
}

/// Not a check: writes what the fuzzer begins with of kernels and of journals, whose coding changes with the session.
#[test]
#[ignore = "writes fuzz/seeds"]
fn seeds_are_written() {
    let seeds = here("../fuzz/seeds");
    let mut database = loka_core::bench::KernelDb::builtin().remove(0);
    database.records.truncate(3);
    let csv = to_csv(&database.records);
    database.records[0].latency_samples_us = vec![1.0, 2.0];
    write_kernels(&seeds.join("results/kernels"), &database).unwrap();
    let mut ordered = SequencedSession::default();
    let results = big::results(2, 1);
    ordered.event(big::opened(&results));
    ordered.event(big::started(&results, 1));
    let rows = Event::Rows { run: 1, rows: results.rows[..3].to_vec() };
    ordered.event(rows.clone());
    let command = Command::SetMaxError { value: 0.2, gesture: Some(1) };
    ordered.command(CommandContext::numbered(Author::new(7, "Anna"), 1), command.clone()).unwrap();
    let saved = ordered.save();
    let documents = [
        ("kernels", b'd', csv.into_bytes()),
        ("journal-head", b'H', postcard::to_stdvec(&saved.head).unwrap()),
        ("journal-rows", b'R', postcard::to_stdvec(&saved.shares[0]).unwrap()),
        ("journal-event", b'E', postcard::to_stdvec(&rows).unwrap()),
        ("journal-command", b'C', serde_json::to_vec(&command).unwrap()),
    ];
    for (name, which, bytes) in documents {
        fs::write(seeds.join("documents").join(name), [[which].as_slice(), &bytes].concat()).unwrap();
    }
}

#[test]
fn messages_both_ways() {
    let comment = Command::Comment { site: None, gemm: None, reply_to: None, text: "It is fine".repeat(40) };
    let good = encode(&ToServer::Command { number: 3, seen: 2, command: Box::new(comment) });
    withstands("to the server", &good, |bytes| decode::<ToServer>(bytes, MAX_TO_SERVER).map(drop).map_err(text));
    let head = Box::default();
    let good = encode(&ToClient::Saved { seq: 3, num_shares: 2, head });
    withstands("to a window", &good, |bytes| decode::<ToClient>(bytes, MAX_TO_CLIENT).map(drop).map_err(text));
}
