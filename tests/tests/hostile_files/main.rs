//! Files of a few megabytes that claim gigabytes are refused for the price of reading their beginning; files that are bent
//! at random are refused or read, within bounds of memory and time. The allocator counts for the whole process: the tests
//! take turns.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod bent;
#[cfg(unix)]
mod headers;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use loka_core::tables::{RESULTS_KEY, read_results, results_from_bytes};
use parquet::{
    basic::Compression,
    column::writer::ColumnCloseResult,
    data_type::{ByteArray, ByteArrayType, DoubleType},
    file::{
        metadata::KeyValue, properties::WriterProperties, reader::FileReader, serialized_reader::SerializedFileReader,
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};

struct CountingAllocator;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static TURN: Mutex<()> = Mutex::new(());

/// One of them has the processor for itself, beside a compiler too.
const TRIES: usize = 5;

// SAFETY: the system's allocator does the work; beside it only numbers are kept.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(HELD.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// What it gives, the most bytes that it held beside what was held before, and its time.
fn measured<T>(run: impl FnOnce() -> T) -> (T, usize, Duration) {
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let start = Instant::now();
    let out = run();
    (out, PEAK.load(Relaxed) - before, start.elapsed())
}

fn meta(sites: usize) -> String {
    let site = |at| format!(r#"{{"id":"{at}","m":16,"k":16,"n":16,"dtype":"bf16"}}"#);
    let sites: Vec<String> = (0..sites).map(site).collect();
    format!(
        r#"{{"trace_digest":"00","manifest":{{"version":1,"model":{{"name":"x","family":"","framework":"","parameters":0}},
        "run":{{"id":"0","rank":0,"world_size":1,"step":0,"every":1,"device":""}},"loss":{{"name":"loss","value":1.0}},
        "quantile_probs":[],"sites":[{}]}},"engine":"","device":"","driver":"","versions":"","time":"","seed":0,
        "confidence":0.95,"problems":[]}}"#,
        sites.join(",")
    )
}

/// One row, `groups` times `rows` times: each group of rows is the first one copied.
fn bomb(sites: usize, groups: usize, rows: usize) -> Vec<u8> {
    let texts = ["site", "gemm", "kernel", "mods", "engine", "device", "sampler", "latency_note"];
    let numbers = ["mere", "mere_lo", "mere_hi", "rel_l2", "latency_us", "gemm_us", "cast_us", "speedup"];
    let text = texts.map(|name| format!("optional binary {name} (STRING);")).concat();
    let number = numbers.map(|name| format!("optional double {name};")).concat();
    let schema = Arc::new(parse_message_type(&format!("message root {{ {text} {number} }}")).unwrap());
    let pair = KeyValue::new(RESULTS_KEY.to_owned(), meta(sites));
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_key_value_metadata(Some(vec![pair]))
        .build();
    let properties = Arc::new(properties);
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::clone(&schema), Arc::clone(&properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let levels = vec![1; rows];
    let values = ["0", "fprop", "cublaslt/bf16", "", "cpu", "cpu", "copula", ""];
    for value in values {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&vec![ByteArray::from(value); rows], Some(&levels), None).unwrap();
        column.close().unwrap();
    }
    for _ in numbers {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(&vec![0.5; rows], Some(&levels), None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    let one = bytes::Bytes::from(writer.into_inner().unwrap());
    let first = SerializedFileReader::new(one.clone()).unwrap();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    for _ in 0..groups {
        let mut group = writer.next_row_group().unwrap();
        for column in first.metadata().row_group(0).columns() {
            let closed = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: rows as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            group.append_column(&one, closed).unwrap();
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// By both readers: the native one and the page's.
fn refused(bytes: &[u8], line: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(bytes.len() < 5 << 20, "{} bytes", bytes.len());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.results.parquet");
    std::fs::write(&path, bytes).unwrap();
    let native = || read_results(&path).unwrap_err().to_string();
    let page = || results_from_bytes(&path.to_string_lossy(), bytes.to_vec()).unwrap_err().to_string();
    for read in [&native as &dyn Fn() -> String, &page] {
        let mut least = Duration::MAX;
        for _ in 0..TRIES {
            let (said, peak, took) = measured(read);
            assert_eq!(said, format!("{line}: {}", path.display()));
            assert!(peak < 50_000_000, "{peak} bytes");
            least = least.min(took);
        }
        // Some milliseconds, tens of them on a busy machine; decoding what it claims takes many seconds.
        assert!(least < Duration::from_secs(1), "{least:?}");
    }
}

#[test]
fn more_rows_than_results_can_mean_are_refused_by_the_footer() {
    refused(&bomb(1, 20, 1_000_000), "it claims 20000000 rows, it can mean no more than 10000000");
    refused(&bomb(1, 8, 1_000_000), "it claims 8000000 rows, it can mean no more than 12288");
}

#[test]
fn the_first_row_that_is_there_twice_is_refused() {
    let line = "row 2: 0 fprop by cublaslt/bf16 with no mods on cpu is in row 1 already";
    refused(&bomb(1000, 8, 1_000_000), line);
}
