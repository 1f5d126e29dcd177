//! Files and bytes in memory: either is read, and refused in the same words. What polars writes: tests/tests/numbers/tables.rs.

use super::*;
use crate::{
    model::KernelId,
    tables::{results_by_site_from_bytes, results_from_bytes, results_to_bytes},
};

/// More rows than a page of Parquet holds.
fn many() -> Results {
    let names: Vec<String> = (0..40).map(|at| format!("site{at}")).collect();
    let mut results = results(&names.iter().map(String::as_str).collect::<Vec<_>>(), Vec::new());
    let [first, second] = [0, 1].map(|at| some_results().rows[at].clone());
    results.rows = (0..40_000_u64)
        .map(|at| ResultRow {
            site: SiteId::new(&names[at as usize % 40]),
            kernel: KernelId::new(&format!("te/of{}", at / 40)),
            seed: at.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..if at % 3 == 0 { second.clone() } else { first.clone() }
        })
        .collect();
    results
}

fn none() -> Results {
    Results { rows: Vec::new(), ..some_results() }
}

#[test]
fn what_is_written_in_memory_is_read_by_both() {
    for results in [some_results(), none(), many()] {
        let bytes = results_to_bytes(&results).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.results.parquet");
        std::fs::write(&path, &bytes).unwrap();
        assert!(read_results(&path).unwrap() == results);
        let read = results_from_bytes("m", bytes.clone()).unwrap();
        assert!(read == results);
        let by_site = ResultsBySite::from(results.clone());
        assert!(read_results_by_site(&path).unwrap() == by_site);
        assert!(results_by_site_from_bytes("m", bytes).unwrap() == by_site);
        assert_eq!(by_site.num_rows(), results.rows.len());
        assert_eq!(results_digest(&read.rows), results_digest(&results.rows));
        let names = file::read(&path).unwrap().names();
        let (_folder, path) = written(&results);
        assert_eq!(names, file::read(&path).unwrap().names());
    }
}

#[test]
fn every_truncation_is_refused_in_memory_too() {
    let (_folder, path) = written(&some_results());
    for bytes in [std::fs::read(&path).unwrap(), results_to_bytes(&some_results()).unwrap()] {
        for length in (0..bytes.len()).step_by(97) {
            let message = results_from_bytes("cut", bytes[..length].to_vec()).unwrap_err().to_string();
            assert!(
                message.starts_with("not a Parquet file, or a truncated one (") && !message.contains('\n'),
                "{length}: {message}"
            );
        }
    }
}

/// A browser cannot catch a panic: whatever is written over a byte, the answer is rows or one line.
#[test]
fn a_flipped_byte_is_read_or_refused_in_memory_too() {
    let (_folder, path) = written(&some_results());
    for bytes in [std::fs::read(&path).unwrap(), results_to_bytes(&some_results()).unwrap()] {
        for place in (0..bytes.len()).step_by(5).chain(bytes.len() - 64..bytes.len()) {
            let mut changed = bytes.clone();
            changed[place] ^= [0xff, 0x01, 0x80, 0x10][place % 4];
            if let Err(error) = results_from_bytes("broken", changed) {
                assert!(!error.to_string().contains('\n'), "{place}: {error}");
            }
        }
    }
}
