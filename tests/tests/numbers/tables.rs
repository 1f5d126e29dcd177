//! Results as others read and write them: polars opens what LoKA wrote, and LoKA what polars wrote, whole or refused in
//! the same words as a file and as bytes.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use loka_core::{
    bench::KernelDb,
    model::{Estimate, Fidelity, ModKind, ModSet, NoiseBasis, NoiseShare, Results, StaticScale, StepErrors},
    plan::results_digest,
    tables::{TableError, read_results, results_from_bytes, write_kernels, write_results},
};
use loka_tests::big;
use polars::prelude::{
    DataFrame, IntoColumn, KeyValueMetadata, NamedFrom, ParquetCompression, ParquetReader, ParquetWriter, SerReader,
    Series,
};
use tempfile::TempDir;

const KEY: &str = "loka.results";

fn written(results: &Results) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.results.parquet");
    write_results(&path, results).unwrap();
    (folder, path)
}

/// With what is rare in the first row; as they are read again, so that what is made of columns, such as the cost beyond
/// BF16's, is there.
fn made(num_sites: usize) -> Results {
    let mut results = big::results(num_sites, 1);
    let row = results.rows.iter_mut().find(|row| row.error.is_some()).unwrap();
    row.mods = ModSet([ModKind::NoBias, ModKind::BlockNorm].into());
    row.fidelity = Some(Fidelity { rows: 64, heldout_rel_l2: 0.03, heldout_mere: 0.3 });
    (row.latency.tail_us, row.latency.cached_us) = (Some(12.5), Some(9.75));
    row.static_scale = Some(StaticScale { scale: 2_f32.powi(-30), saturation: 3.7e-5 });
    row.flushed = Some(0.125);
    row.seed = u64::MAX - 1;
    let error = row.error.as_mut().unwrap();
    error.mere.hi = f64::INFINITY;
    error.block_rel_l2 = Some(Estimate::new(0.2, 0.1, 0.3));
    let (_folder, path) = written(&results);
    let read = read_results(&path).unwrap();
    assert!(read.rows.iter().any(|row| row.seed == u64::MAX - 1 && row.static_scale.is_some()));
    read
}

fn frame_of(path: &Path) -> DataFrame {
    ParquetReader::new(File::open(path).unwrap()).finish().unwrap()
}

/// What LoKA wrote of them, read by polars, changed, and written by it in its place.
fn rewritten(
    results: &Results,
    change: impl FnOnce(&mut DataFrame),
    metadata: Option<&str>,
    codec: ParquetCompression,
) -> (TempDir, PathBuf) {
    let (folder, path) = written(results);
    let meta = metadata.map_or_else(|| serde_json::to_string(&results.meta).unwrap(), str::to_owned);
    let mut frame = frame_of(&path);
    change(&mut frame);
    let pairs = (!meta.is_empty()).then(|| KeyValueMetadata::from_static(vec![(KEY.to_owned(), meta)]));
    let writer = ParquetWriter::new(File::create(&path).unwrap()).with_compression(codec);
    writer.with_key_value_metadata(pairs).finish(&mut frame).unwrap();
    (folder, path)
}

fn in_memory(path: &Path) -> Result<Results, TableError> {
    results_from_bytes(&path.to_string_lossy(), std::fs::read(path).unwrap())
}

/// The words, which are the same of the file and of its bytes.
fn refused(change: impl FnOnce(&mut DataFrame), metadata: Option<&str>) -> String {
    let (_folder, path) = rewritten(&made(2), change, metadata, ParquetCompression::default());
    let [file, bytes] = [read_results(&path), in_memory(&path)].map(|read| read.unwrap_err().to_string());
    assert_eq!(file, bytes);
    file.strip_suffix(&format!(": {}", path.display())).unwrap().to_owned()
}

fn replaced(name: &'static str, of: fn(usize) -> Series) -> impl FnOnce(&mut DataFrame) {
    move |frame| {
        let height = frame.height();
        frame.with_column(of(height).with_name(name.into()).into_column()).unwrap();
    }
}

#[test]
fn polars_reads_what_is_written() {
    let results = made(3);
    let (_folder, path) = written(&results);
    let frame = frame_of(&path);
    assert_eq!(frame.height(), results.rows.len());
    let (sites, rel_l2) =
        (frame.column("site").unwrap().str().unwrap(), frame.column("rel_l2").unwrap().f64().unwrap());
    let (m, supported) =
        (frame.column("m").unwrap().i64().unwrap(), frame.column("supported").unwrap().bool().unwrap());
    for (at, row) in results.rows.iter().enumerate() {
        assert_eq!(sites.get(at), Some(row.site.as_str()));
        assert_eq!(rel_l2.get(at), row.error.as_ref().map(|error| error.rel_l2.value));
        assert_eq!(m.get(at), Some(i64::try_from(row.shape.m).unwrap()));
        assert_eq!(supported.get(at), Some(row.supported));
    }
}

#[test]
fn polars_reads_lists_of_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.kernels.parquet");
    let mut records = KernelDb::builtin().remove(0).records;
    records.truncate(3);
    records[0].latency_samples_us = vec![1.5, 2.5];
    records[2].latency_samples_us = vec![4.0];
    write_kernels(&path, &KernelDb { name: "x".to_owned(), records }).unwrap();
    let frame = frame_of(&path);
    let lists = frame.column("latency_samples_us").unwrap().list().unwrap();
    let found: Vec<Vec<f64>> =
        (0..3).map(|at| lists.get_as_series(at).unwrap().f64().unwrap().into_no_null_iter().collect()).collect();
    assert_eq!(found, [vec![1.5, 2.5], vec![], vec![4.0]]);
}

#[test]
fn what_polars_writes_is_read() {
    let empty = Results { rows: Vec::new(), ..made(2) };
    let many = made(1_000);
    assert!(many.rows.len() > 20_000, "more rows than a page of Parquet holds: {}", many.rows.len());
    for results in [made(2), empty, many] {
        let (_folder, path) = rewritten(&results, |_| (), None, ParquetCompression::default());
        for read in [read_results(&path).unwrap(), in_memory(&path).unwrap()] {
            assert!(read == results);
            assert_eq!(results_digest(&read.rows), results_digest(&results.rows));
        }
    }
}

#[test]
fn a_file_from_before_later_columns_is_read() {
    let mut results = made(2);
    for error in results.rows.iter_mut().filter_map(|row| row.error.as_mut()) {
        let (share, steps) = (Estimate::new(0.013, 0.011, 0.015), Some(StepErrors { first: 0.02, last: 0.03 }));
        error.noise = Some(NoiseShare { share, basis: NoiseBasis::Recorded, steps });
        error.bias = Some(Estimate::new(-0.002, -0.003, -0.001));
    }
    // A tenth of the loss is less than some of these, and more than others.
    let costs = || results.rows.iter().filter_map(|row| row.error.as_ref()?.loss_cost);
    results.meta.manifest.loss.value = 10.0 * costs().map(|cost| cost.value).fold(0.0, f64::max) / 2.0;
    let loss = results.meta.manifest.loss.value;
    let out_of_range = |results: &Results| -> Vec<bool> {
        results.rows.iter().map(|row| row.is_loss_cost_out_of_range(loss)).collect()
    };
    let known = out_of_range(&results);
    assert!(
        known.contains(&true)
            && results.rows.iter().any(|row| row.error.as_ref().is_some_and(|of| of.loss_excess.is_some()))
    );
    let (_folder, path) = written(&results);
    assert!(read_results(&path).unwrap() == results, "all of it is in a file of today");

    let estimates =
        ["noise_share", "bias", "loss_cost_excess"].map(|name| ["", "_lo", "_hi"].map(|end| format!("{name}{end}")));
    let others = [
        "static_scale",
        "saturation",
        "cached_us",
        "flushed",
        "noise_basis",
        "rel_l2_first",
        "rel_l2_last",
        "loss_cost_in_range",
    ];
    let later: Vec<String> = estimates.into_iter().flatten().chain(others.map(str::to_owned)).collect();
    let drop = |frame: &mut DataFrame| later.iter().for_each(|name| *frame = frame.drop(name).unwrap());
    let (_folder, path) = rewritten(&results, drop, None, ParquetCompression::default());
    for row in &mut results.rows {
        (row.static_scale, row.latency.cached_us, row.flushed) = (None, None, None);
        row.error.iter_mut().for_each(|error| (error.noise, error.bias) = (None, None));
    }
    // What is charged of a loss cost, and whether it is in its range, is made of what an old file has, too.
    for read in [read_results(&path).unwrap(), in_memory(&path).unwrap()] {
        assert!(read == results);
        assert_eq!(out_of_range(&read), known);
    }
}

#[test]
fn a_file_of_something_else_is_refused() {
    let ints = |height: usize| Series::new("".into(), vec![1_i32; height]);
    let words = |height: usize| Series::new("".into(), vec!["bprop"; height]);
    let halves = |height: usize| Series::new("".into(), vec![0.5_f32; height]);
    let nulls = |height: usize| Series::new("".into(), vec![None::<i64>; height]);
    assert_eq!(refused(|frame| *frame = frame.drop("mere_hi").unwrap(), None), "column 'mere_hi' is missing");
    assert_eq!(refused(replaced("m", ints), None), "column 'm' is i32, not i64");
    assert_eq!(refused(replaced("mere", halves), None), "column 'mere' is f32, not f64");
    let one_row = |frame: &mut DataFrame| {
        *frame = frame.head(Some(1));
        replaced("gemm", words)(frame);
    };
    assert_eq!(refused(one_row, None), "row 1: unknown GEMM 'bprop' (fprop, dgrad or wgrad)");
    assert_eq!(refused(replaced("seed", words), None), "column 'seed' is str, not i64");
    assert_eq!(refused(replaced("k", nulls), None), "row 1: k is null");
    assert_eq!(refused(|_| (), Some("")), "not a results file: its metadata has no 'loka.results'");
    assert!(refused(|_| (), Some("{}")).starts_with("its metadata 'loka.results' is broken: missing field"));
}

#[test]
fn other_writers_codecs_are_read_or_named() {
    let results = made(2);
    for codec in [ParquetCompression::Uncompressed, ParquetCompression::Snappy, ParquetCompression::Zstd(None)] {
        let (_folder, path) = rewritten(&results, |_| (), None, codec);
        assert!(in_memory(&path).unwrap() == results, "{codec:?}");
    }
    for (codec, name) in [(ParquetCompression::Lz4Raw, "LZ4_RAW"), (ParquetCompression::Gzip(None), "GZIP")] {
        let (_folder, path) = rewritten(&results, |_| (), None, codec);
        let line = in_memory(&path).unwrap_err().to_string();
        assert_eq!(line, format!("its pages are packed by {name}: save it again with loka: {}", path.display()));
    }
}
