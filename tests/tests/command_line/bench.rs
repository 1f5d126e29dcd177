//! Timing without a GPU: what is refused and in which words, and that a kernel database of one's own is
//! read, written and preferred.

use std::fs;

use loka_core::{
    bench::KernelDb,
    engine,
    model::{Gemm, KernelRecord, SiteTimes},
    tables::{read_kernels, write_kernels},
};
use loka_kernels::gemm::{Fp8Product, fp8_gemm, static_cast_us, static_gemm};
use loka_tests::{root, run_in, sample};
use serde_json::Value;
use tempfile::TempDir;

/// Every broken list of shapes and the words that it is refused in.
const BROKEN: [(&str, &str); 12] = [
    ("", "no shapes: every line is blank, a comment or the header m,k,n"),
    ("m,k,n\r\n\r\n# 1,2,3\r\n", "no shapes: every line is blank, a comment or the header m,k,n"),
    ("m,k,n\n2048,256\n", "line 2: 2 columns, it must have three: m,k,n"),
    ("2048;256;768\n", "line 1: 1 column, it must have three: m,k,n"),
    ("1,2,3,4\n", "line 1: 4 columns, it must have three: m,k,n"),
    ("8,8,8\n\n8,0,8\n", "line 3: k is 0, it must be at least 1"),
    ("8,8,-8\n", "line 1: n is -8, it must be at least 1"),
    ("8,8,2147483648\n", "line 1: n is 2147483648, it must be at most 2147483647"),
    ("8,8,1e3\n", "line 1: n is '1e3', not a whole number"),
    ("8, ,8\n", "line 1: k is '', not a whole number"),
    ("8,8,8\nm,k,n\n", "line 2: m is 'm', not a whole number"),
    ("M,N,K\n8,8,8\n", "line 1: the header is M,N,K, not m,k,n"),
];

#[test]
fn broken_shapes_are_named_with_file_and_line() {
    let work = TempDir::new().unwrap();
    for (text, words) in BROKEN {
        fs::write(work.path().join("s.csv"), text).unwrap();
        let line = run_in(work.path(), ["bench", "--shapes", "s.csv", "--out", "k.kernels.parquet"]).refused();
        assert_eq!(line, format!("loka: {words}: s.csv"), "{text:?}");
    }
    fs::write(work.path().join("s.csv"), [0xff, 0xfe, 0x00]).unwrap();
    let line = run_in(work.path(), ["bench", "--shapes", "s.csv", "--out", "k.kernels.parquet"]).refused();
    assert_eq!(line, "loka: not text: s.csv");
    let line = run_in(work.path(), ["bench", "--shapes", "absent.csv", "--out", "k.kernels.parquet"]).refused();
    assert_eq!(line, "loka: no such file or folder: absent.csv");
    assert!(!work.path().join("k.kernels.parquet").exists());
}

#[test]
fn without_a_gpu_the_engines_reason_is_given() {
    let Err(reason) = engine::open("cuda") else { return };
    let work = TempDir::new().unwrap();
    fs::write(work.path().join("s.csv"), "m,k,n\n64,64,64\n").unwrap();
    let trace = sample();
    for shapes in ["s.csv", trace.to_str().unwrap()] {
        for engine in ["auto", "cuda"] {
            let args = ["bench", "--shapes", shapes, "--out", "k.kernels.parquet", "--engine", engine];
            assert_eq!(run_in(work.path(), args).refused(), format!("loka: {reason}"));
        }
    }
    for (more, words) in [
        (["--kernels", "nothing/*"], "no kernel matches nothing/* (see `loka kernels`)"),
        (["--against", "absent"], "No such file or directory (os error 2): absent"),
        (["--csv", "absent/x.csv"], "no such folder: absent/x.csv"),
    ] {
        let args = ["bench", "--shapes", "s.csv", "--out", "k.kernels.parquet"].into_iter().chain(more);
        assert_eq!(run_in(work.path(), args).refused(), format!("loka: {words}"));
    }
    let bad = run_in(work.path(), ["bench", "--shapes", "s.csv", "--out", "k.kernels.parquet", "--gemms", "up"]);
    assert_eq!(bad.code, Some(2));
    assert!(bad.stderr.contains("unknown GEMM 'up' (fprop, dgrad or wgrad)"), "{bad:?}");
}

#[test]
fn a_database_of_ones_own_comes_before_the_built_in_ones() {
    let work = TempDir::new().unwrap();
    let blank = KernelDb::builtin().remove(0).records.remove(0);
    let record = |name: &str, us: f64| KernelRecord {
        kernel: loka_core::model::KernelId::new(name),
        gemm: Gemm::Fprop,
        shape: loka_core::model::GemmShape { m: 4096, k: 64, n: 32 },
        latency_us: Some(us),
        latency_samples_us: vec![us - 1.0, us, us + 1.0],
        device: "Own GPU".to_owned(),
        ..blank.clone()
    };
    let trace = loka_core::trace::Trace::open(&sample()).unwrap();
    let site = trace.manifest().sites.iter().find(|site| site.id.as_str() == "net.top.0").unwrap();
    let shape = loka_core::model::GemmShape { m: site.m, k: site.k, n: site.n };
    let of = |first: f64, name: &str| KernelDb {
        name: name.to_owned(),
        records: [record("cublaslt/bf16", 8.0), record("cublaslt/fp8-rowwise", first)]
            .map(|record| KernelRecord { shape, ..record })
            .to_vec(),
    };
    for (name, us) in [("a", 5.0), ("b", 2.0)] {
        let database = of(us, name);
        let path = work.path().join(format!("{name}.kernels.parquet"));
        write_kernels(&path, &database).unwrap();
        assert_eq!(read_kernels(&path).unwrap(), database, "samples there and back");
    }
    let args = ["probe", sample().to_str().unwrap(), "--out", "r.results.parquet", "--json"].map(str::to_owned);
    let short = ["--sites", "net.top.0", "--kernels", "cublaslt/*", "--min-draws", "2", "--max-draws", "2"];
    let dbs = ["--latencies", "a.kernels.parquet", "--latencies", "b.kernels.parquet"];
    let all = args.into_iter().chain(short.into_iter().chain(dbs).map(str::to_owned));
    let rows = run_in(work.path(), all).done().objects();
    let row = rows.iter().find(|row| row["kernel"] == "cublaslt/fp8-rowwise" && row["gemm"] == "fprop").unwrap();
    assert_eq!((&row["latency"]["latency_us"], &row["latency"]["baseline_us"]), (&5.0.into(), &8.0.into()), "{row}");
    assert!(row["latency"]["note"].as_str().unwrap().contains("Own GPU"), "{row}");
}

/// At 200 random shapes of which no cost was fitted, as they were timed on an H200 (`benches/choice.py --time`).
#[test]
fn the_kernel_that_is_taken_is_seldom_slower_than_the_best_of_ours() {
    const EVERY: usize = 4;
    let mut lost: [Vec<f64>; 3] = Default::default();
    for file in ["docs/evidence/h200-choice-1.json", "docs/evidence/h200-choice-2.json"] {
        let told: Value = serde_json::from_slice(&fs::read(root(file)).unwrap()).unwrap();
        for row in told["shapes"].as_array().unwrap().iter().step_by(EVERY) {
            let [m, n, k] = ["m", "n", "k"].map(|size| u32::try_from(row[size].as_u64().unwrap()).unwrap());
            let us = |kernel: &str| row["us"][kernel].as_f64().unwrap();
            let on_codes = |fast| {
                let product = Fp8Product { m, n, k, fast, is_x_e5m2: false, scaled_by_rows: true };
                fp8_gemm(product, 132).into_iter().map(|launch| (launch.expected_us, launch.name()))
            };
            let timed = |fast| on_codes(fast).map(|(expected, name)| (expected, us(&name))).collect::<Vec<_>>();
            let cast_first = on_codes(true).map(|(us, name)| (us + static_cast_us(m, k), format!("cast+{name}")));
            let on_the_way = static_gemm(m, n, k, true, 132).into_iter();
            let on_the_way = on_the_way.map(|launch| (launch.expected_us, launch.entry.to_owned()));
            let of_bf16 = cast_first.chain(on_the_way).map(|(expected, name)| (expected, us(&name))).collect();
            for (family, ways) in [timed(true), timed(false), of_bf16].into_iter().enumerate() {
                let taken = ways.iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1;
                lost[family].push(taken / ways.iter().map(|way| way.1).fold(f64::INFINITY, f64::min));
            }
        }
    }
    for (family, lost) in ["fast", "promoted", "static"].into_iter().zip(&lost) {
        assert_eq!(lost.len(), 200);
        let mean = (lost.iter().map(|lost| lost.ln()).sum::<f64>() / 200.0).exp();
        let near = lost.iter().filter(|lost| **lost <= 1.1).count();
        assert!(mean <= 1.02 && near >= 190, "{family}: {mean:.4}, {near} of 200 within 10 %");
    }
}

/// A Python whose worker is a double, which gives every site the same times.
#[cfg(unix)]
fn double(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let script = root("python/tests/double_worker.py");
    let path = folder.join("python");
    fs::write(&path, format!("#!/bin/sh\nexec python3 '{}' fine\n", script.display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(unix)]
#[test]
fn parts_of_a_bench_of_sites_are_what_one_machine_times() {
    let work = TempDir::new().unwrap();
    let path = work.path();
    double(path);
    fs::write(path.join("s.csv"), "m,k,n\n64,32,16\n128,32,16\n8,8,8\n").unwrap();
    let bench = ["--json", "bench", "--sites", "--shapes", "s.csv", "--python", "./python"];
    let run = |more: &[&str]| run_in(path, [&bench[..], more].concat());
    run(&["--out", "one.sites.json"]).done();
    for part in ["1/3", "2/3", "3/3"] {
        let told = run(&["--part", part, "--out", "parts"]).done().objects().remove(0);
        assert_eq!(
            (&told["part"], &told["made"], &told["num_shapes"]),
            (&part.into(), &true.into(), &1.into()),
            "{told}"
        );
        assert_eq!((&told["num_timed"], &told["device"]), (&50.into(), &"a test double".into()), "{told}");
    }
    let again = run(&["--part", "2/3", "--out", "parts", "--progress"]).done();
    assert_eq!((&again.objects()[0]["made"], again.stderr.as_str()), (&false.into(), ""), "what is there is not timed");
    let merged = run_in(path, ["merge", "parts", "--out", "all.sites.json"]).done().stdout;
    let expected = "3 parts: 75 of 75 sites and kernels timed on a test double; faster than BF16: 0 launched, 75 graph: all.sites.json\n\
                    next: loka probe TRACE --sites-times all.sites.json --out R.results.parquet\n";
    assert_eq!(merged, expected);
    let table = |name: &str| {
        let mut times = SiteTimes::from_json(&fs::read_to_string(path.join(name)).unwrap()).unwrap();
        times.recorded_at.clear();
        times
    };
    assert_eq!(table("all.sites.json"), table("one.sites.json"));

    // Another device, another list, a part that is missing or damaged; a part where a table has to be.
    let refused = |args: &[&str]| run_in(path, args).refused();
    let device = run(&["--part", "1/3", "--out", "parts", "--device", "H200"]).refused();
    assert!(device.contains("a test double") && device.contains("H200"), "{device}");
    assert!(
        refused(&["merge", "parts", "--device", "H200", "--out", "x.sites.json"]).contains("--device asks for H200")
    );
    let mut names: Vec<String> = fs::read_dir(path.join("parts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 3);
    let first = format!("parts/{}", names[0]);
    let line = refused(&["merge", "parts", "one.sites.json", "--out", "x.sites.json"]);
    let format = "no part of a bench --sites: its format is \"loka-site-times\", not \"loka-site-times-part\"";
    assert_eq!(line, format!("loka: {format}: one.sites.json"));
    let sample = sample();
    let probe = ["probe", sample.to_str().unwrap(), "--out", "r.results.parquet", "--sites-times", &first];
    let line = refused(&probe);
    assert_eq!(line, format!("loka: it is a part of a bench --sites: loka merge joins all of them: {first}"));
    let line = refused(&["merge", "parts", "--out", "x.json"]);
    assert!(line.starts_with("loka: "), "{line}");
    fs::write(path.join("s.csv"), "m,k,n\n64,32,16\n").unwrap();
    run(&["--part", "1/3", "--out", "parts"]).done();
    let line = refused(&["merge", "parts", "--out", "x.sites.json"]);
    assert!(line.starts_with("loka: parts of two runs: the list of shapes is "), "{line}");
    fs::remove_file(path.join(&first)).unwrap();
    for name in &names {
        fs::copy(path.join("parts").join(name), path.join(name)).ok();
    }
    let two: Vec<&str> = names[1..].iter().map(String::as_str).collect();
    let line = refused(&[&["merge", "--out", "x.sites.json"], &two[..]].concat());
    assert_eq!(line, "loka: part 1 of 3 is missing: loka bench --sites --part 1/3 makes it");
    let whole = fs::read_to_string(path.join(&names[1])).unwrap();
    fs::write(path.join(&names[1]), whole.replacen("\"us\":2.0", "\"us\":2.5", 1)).unwrap();
    let line = refused(&[&["merge", "--out", "x.sites.json"], &two[..]].concat());
    assert!(line.starts_with("loka: its seal does not fit its rows: "), "{line}");
    assert!(!path.join("x.sites.json").exists());
}
