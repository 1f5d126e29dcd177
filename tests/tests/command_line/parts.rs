//! A probe in parts by the real binary: joined they are what one machine writes, to the byte but for the time of day;
//! whatever is not one whole run is refused in one line.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use loka_core::{model::Estimate, probe::NUMERICS_VERSION, tables::read_results};
use loka_tests::{loka, root, run_in, tiny};
use serde_json::Value;
use tempfile::TempDir;

const TRACE: &str = "t.trace.safetensors";
const SITES: usize = 9;
/// Everything but --part.
const OPTIONS: [&str; 6] = ["--engine", "cpu", "--max-draws", "4", "--mods", "no_bias"];

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    tiny::put(&folder.path().join(TRACE), SITES);
    folder
}

fn probe<'a>(part: &'a str, out: &'a str) -> Vec<&'a str> {
    [&["probe", TRACE, "--part", part, "--out", out][..], &OPTIONS].concat()
}

fn make(folder: &Path, of: usize, out: &str) -> Vec<Value> {
    let one = |part: usize| {
        let part = format!("{part}/{of}");
        let run = run_in(folder, [&["--json"][..], &probe(&part, out)].concat()).done();
        serde_json::from_str(&run.stdout).unwrap()
    };
    (1..=of).map(one).collect()
}

fn parts_in(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The file's bytes with its time of day made one and the same.
fn timeless(path: &Path) -> Vec<u8> {
    let (mut bytes, time) = (fs::read(path).unwrap(), read_results(path).unwrap().meta.time);
    let places: Vec<usize> =
        (0..bytes.len() - time.len()).filter(|at| bytes[*at..].starts_with(time.as_bytes())).collect();
    assert!(!places.is_empty(), "{time} is in the metadata");
    places.into_iter().for_each(|at| bytes[at..at + time.len()].fill(b'0'));
    bytes
}

#[test]
fn parts_are_what_one_machine_writes() {
    let folder = folder();
    let path = folder.path();
    run_in(path, [&["probe", TRACE, "--out", "one.results.parquet"][..], &OPTIONS].concat()).done();
    let expected = timeless(&path.join("one.results.parquet"));
    for of in [1, 4, 12] {
        let out = format!("parts-{of}");
        let made = make(path, of, &out);
        assert!(made.iter().all(|part| part["made"] == true));
        let sites: u64 = made.iter().map(|part| part["num_sites"].as_u64().unwrap()).sum();
        assert_eq!(sites, SITES as u64);
        let again = make(path, of, &out);
        assert!(again.iter().all(|part| part["made"] == false), "what is there is not made again");
        assert_eq!(parts_in(&path.join(&out)).len(), of, "and nothing else lies there");
        let run = run_in(path, ["merge", out.as_str(), "--out", "all.results.parquet"]).done();
        assert!(run.stdout.starts_with(&format!("{of} parts, {SITES} sites, ")), "{}", run.stdout);
        assert!(timeless(&path.join("all.results.parquet")) == expected, "{of} parts are the same bytes");
    }
    // By name, in any order, too; and a plan of them is a plan of the model.
    let mut files = parts_in(&path.join("parts-4"));
    files.reverse();
    let args = ["merge".into()].into_iter().chain(files).chain(["--out".into(), "all.results.parquet".into()]);
    run_in(path, args).done();
    assert!(timeless(&path.join("all.results.parquet")) == expected);
    run_in(path, ["plan", "all.results.parquet", "--out", "p.plan.json"]).done();
}

/// Of a real model, by its patterns, with sites left out and seeds other than 0.
#[test]
fn parts_of_some_sites_of_a_real_model() {
    let folder = TempDir::new().unwrap();
    let trace = root("sample-traces/wukong-clicks.trace.safetensors");
    let options = ["--engine", "cpu", "--max-draws", "2", "--seed", "7", "--kernels", "cublaslt/*", "--sites", "*.0*"];
    let trace = trace.to_str().unwrap();
    let path = folder.path();
    run_in(path, [&["probe", trace, "--out", "one.results.parquet"][..], &options].concat()).done();
    for part in ["1/2", "2/2"] {
        run_in(path, [&["probe", trace, "--part", part, "--out", "parts"][..], &options].concat()).done();
    }
    run_in(path, ["merge", "parts", "--out", "all.results.parquet"]).done();
    assert!(timeless(&path.join("all.results.parquet")) == timeless(&path.join("one.results.parquet")));
    assert_eq!(NUMERICS_VERSION, NUMERICS.0);
    for (kernel, expected) in NUMERICS.1 {
        for (found, expected) in sums(&path.join("one.results.parquet"), kernel).into_iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-4, "{kernel}: {found:e}, not {expected:e}");
        }
    }
}

/// Parts of two versions of the numerics are not joined, so that a version is one: where these change, raise
/// `NUMERICS_VERSION` and write both here. Of each kernel the sums of MERE, rel L2, noise share and loss cost over its GEMMs.
/// To four digits: GEMMs fuse a product with its sum only where the processor can, and a value that lies between two codes then
/// goes the other way. The draws are the same on all (version 1 drew others where vectors have 512 bits).
const NUMERICS: (u32, [(&str, [f64; 4]); 9]) = (
    2,
    [
        ("cublaslt/bf16", [0.203046, 0.0395337, 0.000214917, 1.84225e-7]),
        ("cublaslt/fp8-blockwise", [3.34166, 0.3151, 0.0120903, 9.05692e-6]),
        ("cublaslt/fp8-delayed", [3.55561, 0.345378, 0.0165374, 1.56116e-5]),
        ("cublaslt/fp8-delayed+fast", [3.56235, 0.438421, 0.27841, 1.64063e-5]),
        ("cublaslt/fp8-rowwise", [3.47655, 0.338393, 0.0204627, 1.54408e-5]),
        ("cublaslt/fp8-rowwise+fast", [3.49761, 0.452141, 0.382406, 1.61996e-5]),
        ("cublaslt/fp8-tensorwise", [5.07422, 0.487805, 0.0343271, 1.6769e-5]),
        ("cublaslt/fp8-tensorwise+fast", [5.06573, 0.55933, 0.24232, 1.75313e-5]),
        ("cublaslt/tf32", [0.0221494, 0.00215344, 6.13963e-7, 5.44614e-10]),
    ],
);

fn sums(path: &Path, kernel: &str) -> [f64; 4] {
    let results = read_results(path).unwrap();
    let errors = results.rows.iter().filter(|row| row.kernel.as_str() == kernel).filter_map(|row| row.error.as_ref());
    errors.fold([0.0; 4], |sums, error| {
        let value = |estimate: Option<Estimate>| estimate.map_or(0.0, |estimate| estimate.value);
        let noise = value(error.noise.map(|noise| noise.share));
        let each = [error.mere.value, error.rel_l2.value, noise, value(error.loss_cost)];
        std::array::from_fn(|at| sums[at] + each[at])
    })
}

/// Eight programs at once make one part: all end well, one file is there, and it is whole.
#[test]
fn who_races_for_a_part_ends_well() {
    let folder = folder();
    let start = |_| {
        let mut command = Command::new(loka());
        command.args(probe("1/1", "parts")).current_dir(folder.path()).stdout(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(start).collect();
    for mut child in children {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    assert_eq!(parts_in(&folder.path().join("parts")).len(), 1, "and no draft stays");
    run_in(folder.path(), ["merge", "parts", "--out", "all.results.parquet"]).done();
}

#[test]
fn what_is_not_one_whole_run_is_refused() {
    let folder = folder();
    let path = folder.path();
    make(path, 3, "parts");
    let all = parts_in(&path.join("parts"));
    let refusal = |args: &[&str]| {
        let run = run_in(path, args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}: {}", run.stderr);
        let lines: Vec<&str> = run.stderr.lines().collect();
        let [line] = lines.as_slice() else { panic!("{args:?}: {}", run.stderr) };
        line.strip_prefix("loka: ").unwrap().to_owned()
    };
    let merge = |args: &[&str]| {
        let line = refusal(&[&["merge", "--out", "all.results.parquet"], args].concat());
        assert!(!path.join("all.results.parquet").exists());
        line
    };
    let [one, two, three] = [0, 1, 2].map(|at: usize| all[at].to_str().unwrap());
    assert_eq!(merge(&[one, three]), "part 2 of 3 is missing: loka probe --part 2/3 makes it");
    assert_eq!(merge(&[one, two, three, one]), format!("part 1/3 is there twice, the other one is {one}: {one}"));
    assert_eq!(merge(&[one, TRACE]), format!("not a Parquet file: it is a LoKA trace: {TRACE}"));
    // Of another run, by one option; of another trace.
    tiny::put(&path.join("u.trace.safetensors"), SITES + 1);
    for (other, line) in [
        (&["--seed", "5"][..], "parts of two runs: the seed is 5, but 0 in "),
        (&["--kernels", "cublaslt/*"], "parts of two runs: the kernels is "),
        (&["--confidence", ".9"], "parts of two runs: the confidence is 0.9, but 0.95 in "),
    ] {
        run_in(path, [&probe("2/3", "other")[..], other].concat()).done();
        let file = parts_in(&path.join("other")).pop().unwrap();
        let found = merge(&[one, file.to_str().unwrap(), three]);
        assert!(found.starts_with(line) && found.ends_with(file.to_str().unwrap()), "{found}");
        fs::remove_dir_all(path.join("other")).unwrap();
    }
    run_in(path, ["probe", "u.trace.safetensors", "--part", "2/3", "--out", "other", "--max-draws", "4"]).done();
    let file = parts_in(&path.join("other")).pop().unwrap();
    assert!(merge(&[one, file.to_str().unwrap(), three]).starts_with("parts of two runs: the trace is sha256:"));
    // Cut short, changed, under another's name.
    let bytes = fs::read(two).unwrap();
    fs::write(path.join("cut.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    assert!(merge(&[one, "cut.parquet", three]).starts_with("not a Parquet file, or a truncated one ("));
    fs::write(two, &bytes[..bytes.len() - 9]).unwrap();
    let again = refusal(&probe("2/3", "parts"));
    assert!(
        again.contains("remove it to have it made again: ")
            && again.ends_with(all[1].file_name().unwrap().to_str().unwrap()),
        "{again}"
    );
    fs::copy(one, two).unwrap();
    let again = refusal(&probe("2/3", "parts"));
    assert!(
        again.starts_with("it is part-1-of-3-") && again.contains(", by its name it would be part-2-of-3-"),
        "{again}"
    );
    assert!(merge(&["parts"]).contains(", by its name it would be part-2-of-3-"));
    fs::remove_file(two).unwrap();
    run_in(path, probe("2/3", "parts")).done();
    assert_eq!(fs::read(two).unwrap().len(), bytes.len());
    // A part is no results file.
    assert_eq!(
        refusal(&["plan", one, "--out", "p.plan.json"]),
        format!("it is part 1/3 of a probe: loka merge joins all of them: {one}")
    );
    assert_eq!(
        refusal(&["merge", "parts", "--out", "all.trace.safetensors"]),
        "parts of a probe make results, *.results.parquet: all.trace.safetensors"
    );
    fs::create_dir(path.join("empty")).unwrap();
    assert_eq!(refusal(&probe("1/3", TRACE)), format!("a file, not a folder: {TRACE}"));
    assert!(
        refusal(&[&probe("1/3", "parts")[..], &["--device", "H200"]].concat()).ends_with(", --device asks for H200")
    );
    assert_eq!(run_in(path, probe("4/3", "parts")).code, Some(2));
    run_in(path, ["merge", "parts", "--out", "all.results.parquet"]).done();
}

/// Where a build knows no stores it says so, before anything is read.
#[test]
fn a_url_is_a_store_or_a_line_that_says_how_to_get_one() {
    let folder = folder();
    for args in [
        &["probe", "s3://a/t.trace.safetensors", "--part", "1/2", "--out", "parts"][..],
        &["probe", TRACE, "--part", "1/2", "--out", "ftp://a/parts"],
        &["merge", "gs://", "--out", "r.results.parquet"],
    ] {
        let run = run_in(folder.path(), args);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{args:?}: {}", run.stderr);
        let is_told = run.stderr.contains("--features stores") || run.stderr.contains("://");
        assert!(is_told, "{}", run.stderr);
    }
}
