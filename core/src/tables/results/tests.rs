//! Results written and read back; broken files refused in exact words.

#[cfg(feature = "web")]
mod both;

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::{
    dispatch::testing::{results, row, unsupported},
    model::{Fidelity, Gemm, ModKind, ModSet, NoiseBasis, NoiseShare, StaticScale, StepErrors},
    plan::results_digest,
};

fn some_results() -> Results {
    let mut modified = row("b", Gemm::Fprop, "te/current", 0.1, Some(1.0 / 0.3), 1e-9);
    modified.mods = ModSet([ModKind::NoBias, ModKind::BlockNorm].into());
    modified.fidelity = Some(Fidelity { rows: 64, heldout_rel_l2: 0.03, heldout_mere: 0.3 });
    modified.latency.tail_us = Some(12.5);
    modified.latency.cached_us = Some(9.75);
    modified.static_scale = Some(StaticScale { scale: 2f32.powi(-30), saturation: 3.7e-5 });
    modified.flushed = Some(0.125);
    modified.seed = u64::MAX - 1;
    if let Some(error) = &mut modified.error {
        error.mere.hi = f64::INFINITY;
        error.block_rel_l2 = Some(Estimate::new(0.2, 0.1, 0.3));
    }
    results(
        &["a", "b"],
        vec![modified, unsupported("a", Gemm::Wgrad, "te/blockwise", "m = 8 is not a multiple of 128")],
    )
}

fn written(results: &Results) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.results.parquet");
    write_results(&path, results).unwrap();
    (folder, path)
}

fn refusal(results: &Results) -> String {
    let (_folder, path) = written(results);
    let message = read_results(&path).unwrap_err().to_string();
    message.strip_suffix(&format!(": {}", path.display())).unwrap().to_owned()
}

#[test]
fn what_is_written_is_read_to_the_bit() {
    let results = some_results();
    let (folder, path) = written(&results);
    let read = read_results(&path).unwrap();
    assert_eq!(read, results);
    assert_eq!(results_digest(&read.rows), results_digest(&results.rows));
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "the temporary is gone");
}

#[test]
fn an_empty_file_of_results_is_one() {
    let mut results = some_results();
    results.rows.clear();
    let (_folder, path) = written(&results);
    assert_eq!(read_results(&path).unwrap(), results);
}

#[test]
fn the_columns_are_the_contracts_then_ours() {
    let (_folder, path) = written(&some_results());
    let table = file::read(&path).unwrap();
    let names = table.names();
    let contract = "site gemm kernel library recipe mods m k n supported reason draws zeros_skipped mere mere_lo mere_hi rel_l2 rel_l2_lo \
                    rel_l2_hi sqnr_db median_rel max_abs block_rel_l2 block_rel_l2_lo block_rel_l2_hi loss_cost loss_cost_lo loss_cost_hi \
                    latency_us latency_lo_us latency_hi_us gemm_us cast_us baseline_us speedup latency_source engine device seed sampler \
                    heldout_rows heldout_rel_l2 heldout_mere tail_us latency_note static_scale saturation cached_us \
                    flushed noise_share noise_share_lo noise_share_hi noise_basis bias bias_lo bias_hi loss_cost_excess \
                    loss_cost_excess_lo loss_cost_excess_hi loss_cost_in_range rel_l2_first rel_l2_last";
    assert_eq!(names.join(" "), contract);
    assert_eq!(table.text("mods").unwrap().at(0).map(|text| &**text), Some("block_norm+no_bias"));
}

#[test]
fn what_an_error_does_to_training_comes_back() {
    let mut results = some_results();
    let wanted = (0.0013, -0.004);
    let row = results.rows.iter().position(|row| row.error.is_some()).unwrap();
    let error = results.rows[row].error.as_mut().unwrap();
    let steps = Some(StepErrors { first: 0.01, last: 0.04 });
    error.noise = Some(NoiseShare { share: Estimate::exact(wanted.0), basis: NoiseBasis::Independent, steps });
    error.bias = Some(Estimate::new(wanted.1, -0.005, -0.003));
    let (_folder, path) = written(&results);
    let back = read_results(&path).unwrap();
    assert_eq!(back, results);
    assert_eq!(back.rows[row].metric(Metric::Bias).map(|bias| bias.value), Some(wanted.1));
}

#[test]
fn a_scale_that_is_none_is_refused() {
    let with = |known: StaticScale| {
        let mut results = some_results();
        results.rows[0].static_scale = Some(known);
        refusal(&results)
    };
    let message = with(StaticScale { scale: 0.3, saturation: 0.0 });
    assert!(message.contains("static_scale is 0.30000001192092896, not a power of two"), "{message}");
    let message = with(StaticScale { scale: 0.5, saturation: 1.5 });
    assert!(message.contains("saturation is 1.5, above 1"), "{message}");
}

#[test]
fn impossible_values_are_refused_with_their_row() {
    let with = |change: fn(&mut ResultRow)| {
        let mut results = some_results();
        change(&mut results.rows[0]);
        refusal(&results)
    };
    assert_eq!(with(|row| row.flushed = Some(1.5)), "row 1: flushed is 1.5, above 1");
    assert_eq!(with(|row| row.flushed = Some(-0.5)), "row 1: flushed is -0.5, it must be at least 0");
    assert_eq!(with(|row| row.shape.m = 0), "row 1: m is 0, it must be at least 1");
    assert_eq!(with(|row| row.latency.latency_us = Some(-2.0)), "row 1: latency_us is -2, it must be at least 0");
    assert_eq!(
        with(|row| row.error.as_mut().unwrap().mere.value = f64::NAN),
        "row 1: mere is NaN, it must be at least 0"
    );
    assert_eq!(with(|row| row.error.as_mut().unwrap().mere.lo = -0.1), "row 1: mere_lo is -0.1, it must be at least 0");
    assert_eq!(
        with(|row| row.error.as_mut().unwrap().rel_l2.hi = 0.0),
        "row 1: rel_l2_lo 0.09000000000000001 is above rel_l2_hi 0"
    );
    assert_eq!(with(|row| row.site = SiteId::new("x")), "row 1: site 'x' is not in the trace");
}

#[test]
fn every_truncation_is_refused_in_one_line() {
    let (folder, path) = written(&some_results());
    let bytes = std::fs::read(&path).unwrap();
    let cut = folder.path().join("cut.results.parquet");
    for length in (0..bytes.len()).step_by(97) {
        std::fs::write(&cut, &bytes[..length]).unwrap();
        let message = read_results(&cut).unwrap_err().to_string();
        assert!(
            message.starts_with("not a Parquet file, or a truncated one (") && !message.contains('\n'),
            "{length}: {message}"
        );
    }
    assert!(read_results(&folder.path().join("none")).unwrap_err().to_string().starts_with("No such file"));
    assert!(read_results(folder.path()).unwrap_err().to_string().contains("not a file"));
}

#[test]
fn nothing_is_left_where_writing_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no/such/folder/r.results.parquet");
    let message = write_results(&path, &some_results()).unwrap_err().to_string();
    assert!(message.ends_with(&format!(": {}", path.display())), "{message}");
}

/// Whatever is written over a byte, the answer is rows or one line: never a panic.
#[test]
fn a_flipped_byte_is_read_or_refused() {
    let (folder, path) = written(&some_results());
    let bytes = std::fs::read(&path).unwrap();
    let broken = folder.path().join("broken.results.parquet");
    for place in (0..bytes.len()).step_by(41).chain(bytes.len() - 64..bytes.len()) {
        let mut changed = bytes.clone();
        changed[place] ^= 0xff;
        std::fs::write(&broken, &changed).unwrap();
        if let Err(error) = read_results(&broken) {
            assert!(!error.to_string().contains('\n'), "{place}: {error}");
        }
    }
}
