//! Takes a number of sites and a path, writes the made-up results of `loka_tests::big` there: what `scripts/bench_web.sh`
//! opens.
//!
//! `cargo run --package loka_tests --example big_results -- 10000 big.results.parquet`

#![allow(clippy::panic, clippy::unwrap_used, reason = "nobody but a benchmark runs it")]

use std::path::PathBuf;

use loka_core::tables;
use loka_tests::big;

/// Rows differ from seed to seed; the figures do not.
const SEED: u64 = 1;

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(sites), Some(path), None) = (args.next(), args.next(), args.next()) else {
        panic!("two arguments are wanted: how many sites, and a path");
    };
    let sites = sites.parse().unwrap_or_else(|_| panic!("not a number of sites: {sites}"));
    tables::write_results(&PathBuf::from(path), &big::results(sites, SEED)).unwrap();
}
