//! `loka query` by the real binary: group-bys and joins over results, kernel databases and plans, held against sums over the
//! rows themselves; what it writes is read by somebody else's reader; what it refuses it refuses in one line.

use std::{collections::BTreeMap, fs, fs::File};

use loka_core::{model::Gemm, tables::read_results};
use loka_tests::{ProgramRun, root, run_in};
use polars::prelude::{ParquetReader, SerReader as _};
use serde_json::Value;
use tempfile::TempDir;

const RESULTS: &str = "sample-traces/dcnv2-ranker.results.parquet";

/// A folder with results, the same as of another run, a plan of them and a kernel database.
fn runs() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| fs::copy(root(from), folder.path().join(to)).unwrap();
    copy(RESULTS, "a.results.parquet");
    copy(RESULTS, "b.results.parquet");
    copy("assets/kernels/h200-libraries-cuda-graphs.kernels.parquet", "h200.kernels.parquet");
    run_in(folder.path(), ["plan", "a.results.parquet", "--out", "p.plan.json"]).done();
    fs::write(folder.path().join("notes.txt"), "not for this").unwrap();
    folder
}

fn ask(folder: &TempDir, args: &[&str]) -> ProgramRun {
    run_in(folder.path(), ["query"].iter().chain(args))
}

fn objects(folder: &TempDir, sql: &str, files: &[&str]) -> Vec<Value> {
    ask(folder, &[&["--json", sql], files].concat()).done().objects()
}

#[test]
fn a_group_by_is_the_sum_over_the_rows() {
    let folder = runs();
    let sql = "SELECT file, kernel, gemm, COUNT(*) AS rows, MAX(rel_l2) AS worst FROM results WHERE supported \
               GROUP BY file, kernel, gemm ORDER BY file, kernel, gemm";
    let asked = objects(&folder, sql, &["a.results.parquet", "b.results.parquet"]);
    let mut groups: BTreeMap<(String, String), (i64, Option<f64>)> = BTreeMap::new();
    for row in read_results(&root(RESULTS)).unwrap().rows.iter().filter(|row| row.supported) {
        let group = groups.entry((row.kernel.to_string(), row.gemm.to_string())).or_default();
        let error = row.error.as_ref().map(|error| error.rel_l2.value);
        *group = (group.0 + 1, group.1.into_iter().chain(error).reduce(f64::max));
    }
    for file in ["a.results.parquet", "b.results.parquet"] {
        let found: Vec<&Value> = asked.iter().filter(|row| row["file"] == file).collect();
        assert_eq!(found.len(), groups.len());
        for (row, ((kernel, gemm), (count, worst))) in found.into_iter().zip(&groups) {
            assert_eq!((row["kernel"].as_str(), row["gemm"].as_str()), (Some(&**kernel), Some(&**gemm)));
            assert_eq!((row["rows"].as_i64(), row["worst"].as_f64()), (Some(*count), *worst), "{kernel} {gemm}");
        }
    }
}

#[test]
fn plans_and_results_join() {
    let folder = runs();
    let sql = "SELECT p.site, p.gemm, p.kernel, p.rel_l2 AS planned, r.rel_l2 AS probed FROM plans p JOIN results r \
               ON p.site = r.site AND p.gemm = r.gemm AND p.kernel = r.kernel AND p.mods = r.mods WHERE p.runs";
    let joined = objects(&folder, sql, &["a.results.parquet", "p.plan.json"]);
    let chosen = objects(&folder, "SELECT COUNT(*) AS n FROM plans WHERE runs", &["p.plan.json"]);
    assert_eq!(Some(joined.len() as i64), chosen[0]["n"].as_i64());
    assert!(joined.iter().any(|row| row["kernel"].as_str().unwrap().contains("fp8")));
    for row in &joined {
        assert_eq!(row["planned"], row["probed"], "{row}");
    }
}

#[test]
fn a_folder_stands_for_its_files() {
    let folder = runs();
    let tables = ask(&folder, &["--json", "--tables", "."]).done().objects();
    let names: Vec<_> = tables.iter().map(|table| table["table"].as_str().unwrap()).collect();
    assert_eq!(names, ["results", "kernels", "plans"]);
    let rows = read_results(&root(RESULTS)).unwrap().rows.len();
    assert_eq!(tables[0]["rows"].as_u64(), Some(2 * rows as u64));
    let plan: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("p.plan.json")).unwrap()).unwrap();
    let sites = plan["sites"].as_array().unwrap().len();
    assert_eq!(tables[2]["rows"].as_u64(), Some((sites * Gemm::ALL.len()) as u64));
    let devices = objects(&folder, "SELECT DISTINCT device FROM kernels", &["."]);
    assert!(devices.iter().all(|row| row["device"].as_str().unwrap().contains("H200")), "{devices:?}");
    let text = ask(&folder, &["--tables", "."]).done().stdout;
    assert!(
        text.contains("results: ") && text.contains("  rel_l2 double\n") && text.contains("  site text\n"),
        "{text}"
    );
}

#[test]
fn an_answer_is_a_table_a_spreadsheet_or_parquet() {
    let folder = runs();
    let sql = "SELECT site, gemm, k, rel_l2, supported, NULL AS nothing FROM results WHERE kernel = 'cublaslt/fp8-rowwise' \
               ORDER BY site, gemm LIMIT 3";
    let shown = ask(&folder, &[sql, "a.results.parquet"]).done().stdout;
    assert_eq!(shown.lines().count(), 4, "{shown}");
    assert!(shown.starts_with("site"), "{shown}");
    let rows = objects(&folder, sql, &["a.results.parquet"]);
    ask(&folder, &[sql, "a.results.parquet", "--out", "x.parquet"]).done();
    let frame = ParquetReader::new(File::open(folder.path().join("x.parquet")).unwrap()).finish().unwrap();
    assert_eq!((frame.height(), frame.width()), (3, 6));
    for (at, row) in rows.iter().enumerate() {
        let of = |name: &str| frame.column(name).unwrap().get(at).unwrap();
        assert_eq!(of("site").get_str(), row["site"].as_str());
        assert_eq!(of("k").extract::<i64>(), row["k"].as_i64());
        assert_eq!(of("rel_l2").extract::<f64>(), row["rel_l2"].as_f64());
    }
    ask(
        &folder,
        &[
            "SELECT 'a,\"b\"' AS text, 1.5 AS number, NULL AS nothing FROM results LIMIT 1",
            "a.results.parquet",
            "--out",
            "x.csv",
        ],
    )
    .done();
    assert_eq!(fs::read_to_string(folder.path().join("x.csv")).unwrap(), "text,number,nothing\n\"a,\"\"b\"\"\",1.5,\n");
}

#[test]
fn what_cannot_be_answered_is_refused_in_one_line() {
    let folder = runs();
    let refused = |args: &[&str]| ask(&folder, args).refused();
    let has = |args: &[&str], words: &str| {
        let line = refused(args);
        assert!(line.contains(words), "{line}: not '{words}'");
    };
    has(&["SELECT 1"], "no files to ask");
    has(&["SELECT * FROM runs", "a.results.parquet"], "no such table: runs (there are: results)");
    has(&["SELECT * FROM results WHERE", "a.results.parquet"], "in the SQL: Expected: an expression, found: EOF");
    has(
        &["SELECT nothing FROM results", "a.results.parquet"],
        "no such column: nothing (loka query --tables FILE prints them)",
    );
    has(&["SELECT 1 FROM results; SELECT 2 FROM results", "a.results.parquet"], "one");
    // Nothing on disk but what was named.
    has(
        &["SELECT * FROM read_parquet('a.results.parquet')", "p.plan.json"],
        "'read_parquet' is not a supported table function",
    );
    has(&["SELECT * FROM read_csv('notes.txt')", "p.plan.json"], "'read_csv' is not a supported table function");
    has(&["SELECT 1 FROM results", "notes.txt"], "notes.txt");
    has(&["SELECT 1 FROM results", "missing.results.parquet"], "missing.results.parquet");
    has(
        &["SELECT 1 FROM results", "a.results.parquet", "--out", "x.txt"],
        "an answer is written as *.csv or *.parquet: x.txt",
    );
    fs::create_dir(folder.path().join("empty")).unwrap();
    has(&["SELECT 1 FROM results", "empty"], "no results, kernel database or plan is in this folder: empty");
    fs::write(
        folder.path().join("cut.results.parquet"),
        &fs::read(folder.path().join("a.results.parquet")).unwrap()[..900],
    )
    .unwrap();
    has(&["SELECT 1 FROM results", "cut.results.parquet"], "cut.results.parquet");
    assert!(!folder.path().join("x.txt").exists());
}

/// A name in a file steers no terminal, and does not end a line of JSON.
#[test]
fn a_name_with_control_characters_stays_text() {
    let folder = runs();
    let sql = "SELECT 'a\u{1b}[31m\nb' AS name FROM results LIMIT 1";
    let shown = ask(&folder, &[sql, "a.results.parquet"]).done().stdout;
    assert!(!shown.contains('\u{1b}') && shown.lines().count() == 2, "{shown:?}");
    assert_eq!(objects(&folder, sql, &["a.results.parquet"])[0]["name"], "a\u{1b}[31m\nb");
}
