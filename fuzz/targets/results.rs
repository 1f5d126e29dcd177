//! Bytes as a results file: refused in one line that names the file, or read, and what was read can be written and read
//! again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use loka_core::tables::{results_from_bytes, results_to_bytes};

const NAME: &str = "fuzz.results.parquet";

fuzz_target!(|bytes: &[u8]| {
    let results = match results_from_bytes(NAME, bytes.to_vec()) {
        Ok(results) => results,
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n') && line.contains(NAME), "{line}");
            return;
        }
    };
    let again = results_to_bytes(&results).expect("what was read can be written");
    let rows = results_from_bytes(NAME, again).expect("what was written can be read").rows.len();
    assert_eq!(rows, results.rows.len());
});
