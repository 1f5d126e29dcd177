//! Bytes as a table, of results or of kernels: refused in one line that names the file, or read, and what was read of
//! results can be written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use loka_core::tables::{TableError, kernels_from_bytes, results_from_bytes, results_to_bytes};

const NAME: &str = "fuzz.results.parquet";

fuzz_target!(|bytes: &[u8]| {
    drop(read(kernels_from_bytes(NAME, bytes.to_vec())));
    let Some(results) = read(results_from_bytes(NAME, bytes.to_vec())) else { return };
    let again = results_to_bytes(&results).expect("what was read can be written");
    let rows = results_from_bytes(NAME, again).expect("what was written can be read").rows.len();
    assert_eq!(rows, results.rows.len());
});

fn read<T>(found: Result<T, TableError>) -> Option<T> {
    let line = match found {
        Ok(read) => return Some(read),
        Err(error) => error.to_string(),
    };
    assert!(!line.contains('\n') && line.contains(NAME), "{line}");
    None
}
