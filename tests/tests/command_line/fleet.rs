//! One kernel database of a fleet, and a plan for each of its GPUs from one probe, by the real binary. Times are those that
//! ship with LoKA, of an H200, and made-up ones of others.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use loka_core::{
    bench::KernelDb,
    model::{GemmShape, KernelRecord, LatencySource},
    parts::{BenchKey, BenchPart, PartKey, PartOf, shapes_digest, split},
    plan::Plan,
    tables::{read_kernels, read_results, write_bench_part, write_kernels},
};
use loka_tests::{root, run_in, tiny};
use tempfile::TempDir;

/// LoKA's own kernels and cuBLASLt's, as they were timed on an H200.
fn h200() -> KernelDb {
    KernelDb::builtin().into_iter().find(|database| database.name == "h200-native-cuda-graphs").unwrap()
}

/// The same on a device on which FP8 takes twice as long and BF16 three times.
fn of(device: &str) -> Vec<KernelRecord> {
    let slower = |record: KernelRecord| {
        let factor = if record.kernel.as_str() == "cublaslt/bf16" { 3.0 } else { 2.0 };
        let [gemm_us, latency_us, latency_p10_us, latency_p90_us, latency_cached_us] =
            [record.gemm_us, record.latency_us, record.latency_p10_us, record.latency_p90_us, record.latency_cached_us]
                .map(|us| us.map(|us| factor * us));
        let device = device.to_owned();
        KernelRecord { device, gemm_us, latency_us, latency_p10_us, latency_p90_us, latency_cached_us, ..record }
    };
    h200().records.into_iter().map(slower).collect()
}

fn put(path: &Path, records: Vec<KernelRecord>) {
    write_kernels(path, &KernelDb { name: String::new(), records }).unwrap();
}

/// What `loka bench --part` writes on such a device: so many parts, as files of that folder.
fn put_parts(folder: &Path, records: &[KernelRecord], parts: usize) -> Vec<PathBuf> {
    let mut shapes: Vec<GemmShape> = records.iter().map(|record| record.shape).collect();
    shapes.dedup();
    let first = &records[0];
    let named = |of: fn(&KernelRecord) -> String| records.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect();
    let run = BenchKey {
        shapes: shapes_digest(&shapes),
        kernels: named(|record| record.kernel.to_string()),
        gemms: loka_core::model::Gemm::ALL.to_vec(),
        samples: 31,
        engine: "cuda".to_owned(),
        device: first.device.clone(),
        driver: first.driver.clone(),
        versions: first.versions.clone(),
        of: parts,
    };
    fs::create_dir_all(folder).unwrap();
    let ranges = split(&vec![1; shapes.len()], parts).into_iter().enumerate();
    let put = |(at, range): (usize, std::ops::Range<usize>)| {
        let own = &shapes[range.clone()];
        let records = records.iter().filter(|record| own.contains(&record.shape)).cloned().collect();
        let part = BenchPart { key: PartKey::new(run.clone(), PartOf { part: at + 1, of: parts }, range), records };
        let path = folder.join(part.key.file_name());
        write_bench_part(&path, &part).unwrap();
        path
    };
    ranges.map(put).collect()
}

#[test]
fn parts_of_benches_and_databases_are_one_database_of_a_fleet() {
    let work = TempDir::new().unwrap();
    let path = work.path();
    // One device: what one machine writes, to the byte.
    put(&path.join("one.kernels.parquet"), h200().records);
    let parts = put_parts(&path.join("times"), &h200().records, 5);
    let run = run_in(path, ["merge", "times", "--out", "all.kernels.parquet"]).done();
    assert!(run.stdout.starts_with("5 parts: "), "{}", run.stdout);
    let bytes = |name: &str| fs::read(path.join(name)).unwrap();
    assert!(bytes("all.kernels.parquet") == bytes("one.kernels.parquet"));
    // Parts of two devices in one folder, and a third as a database.
    put_parts(&path.join("times"), &of("NVIDIA H100"), 2);
    put(&path.join("l40s.kernels.parquet"), of("NVIDIA L40S"));
    let args = ["merge", "times", "l40s.kernels.parquet", "--out", "fleet.kernels.parquet"];
    let told = run_in(path, ["--json"].into_iter().chain(args)).done().objects().remove(0);
    assert_eq!((&told["num_parts"], &told["num_databases"]), (&7.into(), &1.into()));
    let devices = ["NVIDIA H100", "NVIDIA H200", "NVIDIA L40S"];
    assert_eq!(told["devices"], serde_json::json!(devices));
    let fleet = read_kernels(&path.join("fleet.kernels.parquet")).unwrap().records;
    assert_eq!(
        fleet,
        devices.map(|device| if device.ends_with("H200") { h200().records } else { of(device) }).concat()
    );
    // A fleet is a database, too.
    put(&path.join("b200.kernels.parquet"), of("NVIDIA B200"));
    let args = ["merge", "b200.kernels.parquet", "fleet.kernels.parquet", "--out", "more.kernels.parquet"];
    assert!(
        run_in(path, args).done().stdout.contains(" rows of NVIDIA B200, NVIDIA H100, NVIDIA H200, NVIDIA L40S merged")
    );

    let refusal = |args: &[&str]| {
        let line = run_in(path, [&["merge", "--out", "x.kernels.parquet"], args].concat()).refused();
        assert!(!path.join("x.kernels.parquet").exists());
        line
    };
    let first = &h200().records[0].place();
    assert_eq!(
        refusal(&["fleet.kernels.parquet", "one.kernels.parquet"]),
        format!(
            "loka: {first} was timed on NVIDIA H200 twice, the other time is in fleet.kernels.parquet: one.kernels.parquet"
        )
    );
    assert_eq!(
        refusal(&["one.kernels.parquet", "l40s.kernels.parquet", "--device", "h200"]),
        format!("loka: {first} was timed on NVIDIA L40S, --device asks for h200: l40s.kernels.parquet")
    );
    fs::remove_file(&parts[1]).unwrap();
    assert_eq!(refusal(&["times"]), "loka: on NVIDIA H200: part 2 of 5 is missing: loka bench --part 2/5 makes it");
    fs::copy(&parts[0], &parts[1]).unwrap();
    assert!(refusal(&["times"]).contains(", by its name it would be bench-2-of-5-"));
    let cut = bytes("one.kernels.parquet");
    fs::write(path.join("cut.kernels.parquet"), &cut[..cut.len() / 2]).unwrap();
    assert!(refusal(&["cut.kernels.parquet"]).starts_with("loka: not a Parquet file, or a truncated one ("));
    fs::create_dir(path.join("empty")).unwrap();
    assert_eq!(refusal(&["empty"]), "loka: no parts of a bench are in this folder: empty");
    let line = run_in(path, ["merge", "one.kernels.parquet", "--out", "x.parquet"]).refused();
    assert_eq!(line, "loka: kernel databases make one, *.kernels.parquet: x.parquet");
    // A part is no database: what it lacks would be modelled where it was timed.
    tiny::put(&path.join("t.trace.safetensors"), 2);
    let part = parts[0].to_str().unwrap();
    let args = ["probe", "t.trace.safetensors", "--out", "r.results.parquet", "--latencies", part];
    let line = run_in(path, args).refused();
    assert_eq!(line, format!("loka: it is part 1/5 of a bench: loka merge joins all of them: {part}"));
}

/// Measured on an H200, whole sites among it.
const RESULTS: &str = "sample-traces/dcnv2-ranker.results.parquet";

fn plan_of(path: &Path) -> Plan {
    Plan::from_json(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn one_probe_plans_for_every_device_of_a_fleet() {
    let work = TempDir::new().unwrap();
    let (path, results) = (work.path(), root(RESULTS));
    let results = results.to_str().unwrap();
    put(&path.join("fleet.kernels.parquet"), [of("NVIDIA H100"), h200().records].concat());
    let plan = |more: &[&str]| run_in(path, [&["plan", results, "--out", "p.plan.json"], more].concat());
    plan(&[]).done();
    let plain = plan_of(&path.join("p.plan.json"));
    assert_eq!(plain.device, None);

    // What was measured on an H200 is what is known of an H200.
    let run = plan(&["--device", "h200"]).done();
    assert!(run.stderr.contains("Times of NVIDIA H200.") && !run.stderr.contains("left out"), "{}", run.stderr);
    let own = plan_of(&path.join("p.plan.json"));
    assert_eq!(own.device.as_deref(), Some("NVIDIA H200"));
    assert_eq!(own.totals, plain.totals);

    // Nothing of it is left where the plan is for another device.
    let other = ["--device", "H100", "--latencies", "fleet.kernels.parquet", "--results-out", "h100.results.parquet"];
    let run = plan(&other).done();
    assert!(
        run.stderr.contains("warning: times of whole sites are left out: they are of NVIDIA H200"),
        "{}",
        run.stderr
    );
    let other = plan_of(&path.join("p.plan.json"));
    assert_eq!(other.device.as_deref(), Some("NVIDIA H100"));
    assert_ne!(other.totals.planned_us.to_bits(), own.totals.planned_us.to_bits());
    let timed = read_results(&path.join("h100.results.parquet")).unwrap();
    assert_eq!(timed.meta.site_times, None);
    let devices: BTreeSet<_> = timed.rows.iter().filter_map(|row| row.latency.device()).collect();
    assert_eq!(devices, BTreeSet::from(["NVIDIA H100"]));
    assert!(timed.rows.iter().any(|row| row.latency.source == LatencySource::Modelled));
    let before = read_results(&root(RESULTS)).unwrap();
    assert_eq!(
        timed.rows.iter().map(|row| &row.error).collect::<Vec<_>>(),
        before.rows.iter().map(|row| &row.error).collect::<Vec<_>>()
    );
    // The gate holds it against those results, and notices others.
    run_in(path, ["check", "p.plan.json", "--results", "h100.results.parquet"]).done();
    let run = run_in(path, ["check", "p.plan.json", "--results", results]);
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.contains("the plan was made from other results"), "{}", run.stdout);
    // What differs between the two plans is said first to be the device.
    fs::write(path.join("own.plan.json"), own.to_json()).unwrap();
    let run = run_in(path, ["diff", "own.plan.json", "p.plan.json"]);
    assert!(run.stdout.contains("times of another device: NVIDIA H100 instead of NVIDIA H200"), "{}", run.stdout);
}

#[test]
fn a_device_is_chosen_by_somebody() {
    let work = TempDir::new().unwrap();
    let (path, results) = (work.path(), root(RESULTS));
    let results = results.to_str().unwrap();
    put(&path.join("fleet.kernels.parquet"), [of("NVIDIA H100 PCIe"), of("NVIDIA H100 NVL")].concat());
    put(&path.join("l4.kernels.parquet"), of("NVIDIA L4"));
    put(&path.join("none.kernels.parquet"), Vec::new());
    let refusal = |more: &[&str]| {
        let line = run_in(path, [&["plan", results, "--out", "p.plan.json"], more].concat()).refused();
        assert!(!path.join("p.plan.json").exists());
        line
    };
    let fleet = ["--latencies", "fleet.kernels.parquet"];
    assert_eq!(
        refusal(&fleet),
        "loka: there are times of NVIDIA H100 NVL, NVIDIA H100 PCIe: choose one by --device: fleet.kernels.parquet"
    );
    assert_eq!(
        refusal(&[&fleet[..], &["--device", "B200"]].concat()),
        "loka: no times of a device B200 are known; these are: NVIDIA H100 NVL, NVIDIA H100 PCIe, NVIDIA H200: \
         fleet.kernels.parquet"
    );
    assert_eq!(
        refusal(&[&fleet[..], &["--device", "H100"]].concat()),
        "loka: H100 is several devices: NVIDIA H100 NVL, NVIDIA H100 PCIe; name one of them: fleet.kernels.parquet"
    );
    assert_eq!(refusal(&["--latencies", "none.kernels.parquet"]), "loka: no times are in it: none.kernels.parquet");
    assert_eq!(
        refusal(&["--results-out", "x.results.parquet"]),
        "loka: --results-out is for results with other times: --device, --latencies"
    );
    assert_eq!(
        refusal(&["--device", "H200", "--results-out", results]),
        format!("loka: --results-out would overwrite the results: {results}")
    );
    // One device needs no word.
    let args = ["plan", results, "--out", "p.plan.json", "--latencies", "l4.kernels.parquet"];
    run_in(path, args).done();
    assert_eq!(plan_of(&path.join("p.plan.json")).device.as_deref(), Some("NVIDIA L4"));
    // A probe without a GPU does not know whose times to take.
    tiny::put(&path.join("t.trace.safetensors"), 2);
    let args =
        ["probe", "t.trace.safetensors", "--engine", "cpu", "--out", "r.results.parquet"].into_iter().chain(fleet);
    let line = run_in(path, args).refused();
    assert_eq!(
        line,
        "loka: there are times of NVIDIA H100 NVL, NVIDIA H100 PCIe: probe without it, and choose by loka plan --device \
         NAME --latencies FILE: fleet.kernels.parquet"
    );
}
