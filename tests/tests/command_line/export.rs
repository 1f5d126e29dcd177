//! `loka export` of the real binary: what is written, what is refused, what is lost; and nothing is written unless
//! it may be.

use std::{fs, path::Path};

use loka_core::{
    dispatch::{Policy, Totals},
    plan::{FORMAT, Plan, VERSION},
};
use loka_tests::run_in;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Sites with the kernel of their three GEMMs.
fn write_plan(folder: &Path, sites: &[(&str, &str)]) {
    let choice = |kernel: &str| -> Value {
        json!({
            "kernel": kernel, "source": "dispatch", "reason": "a test", "error": {"mere": 0.1}, "speedup": 1.2,
            "runners_up": [],
        })
    };
    let sites: Vec<Value> = sites
        .iter()
        .map(|(site, kernel)| {
            json!({"site": site, "fprop": choice(kernel), "dgrad": choice(kernel), "wgrad": choice(kernel)})
        })
        .collect();
    let mut plan: Plan = serde_json::from_value(json!({
        "format": FORMAT, "version": VERSION, "name": "nightly", "created_at": "", "model": {"name": "toy"},
        "trace_digest": "sha256:00", "results_digest": "sha256:00", "policy": Policy::paper(), "mods": {},
        "sites": sites, "totals": Totals::default(), "digest": "",
    }))
    .unwrap();
    plan.stamp("2026-11-20T00:00:00Z".to_owned());
    fs::write(folder.join("p.plan.json"), plan.to_json()).unwrap();
}

const TARGETS: [&str; 10] = [
    "torchao",
    "torchao-inference",
    "te",
    "megatron",
    "nvdlfw",
    "modelopt",
    "compressed-tensors",
    "quark",
    "hf",
    "model-explorer",
];

fn num_files(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn every_target_is_written() {
    let folder = TempDir::new().unwrap();
    write_plan(folder.path(), &[("net.layers.1", "cublaslt/fp8-tensorwise"), ("net.layers.10", "cublaslt/bf16")]);
    for target in TARGETS {
        let out = format!("out.{target}");
        let args = ["export", "p.plan.json", "--to", target, "--out", &out, "--allow-loss", "--json"];
        let run = run_in(folder.path(), args).done();
        let objects = run.objects();
        let last = objects.last().unwrap();
        assert_eq!((&last["target"], &last["num_modules"]), (&target.into(), &2.into()), "{run:?}");
        for written in last["written"].as_array().unwrap() {
            assert!(folder.path().join(written.as_str().unwrap()).is_file(), "{written}");
        }
    }
    let list = run_in(folder.path(), ["export", "--list", "--json"]).done();
    let names: Vec<String> =
        list.objects().iter().map(|object| object["target"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, TARGETS);
}

#[test]
fn a_loss_needs_consent() {
    let folder = TempDir::new().unwrap();
    write_plan(folder.path(), &[("a", "loka/fp8-rowwise"), ("b", "cublaslt/bf16")]);
    let args = ["export", "p.plan.json", "--to", "torchao", "--out", "out.py"];
    let run = run_in(folder.path(), args);
    assert_eq!((run.code, num_files(folder.path())), (Some(1), 1), "{run:?}");
    assert!(run.stdout.starts_with("loses kernels: LoKA's own GEMMs"), "{run:?}");
    assert!(run.stdout.ends_with("nothing written: accept these losses with --allow-loss: p.plan.json\n"), "{run:?}");
    let run = run_in(folder.path(), args.into_iter().chain(["--allow-loss"])).done();
    assert!(run.stdout.ends_with("written: out.py\n"), "{run:?}");
}

#[test]
fn modules_are_what_names_are_resolved_against() {
    let folder = TempDir::new().unwrap();
    write_plan(folder.path(), &[("a.fc1", "cublaslt/fp8-blockwise"), ("fc1", "cublaslt/bf16")]);
    let export = |target: &'static str| {
        let args = ["export", "p.plan.json", "--to", target, "--out", "out", "--modules", "modules.txt"];
        run_in(folder.path(), args)
    };
    assert_eq!(export("hf").refused(), "loka: no such file or folder: modules.txt");
    fs::write(folder.path().join("modules.txt"), "a.fc1\tLinear\na.fc1\n").unwrap();
    assert_eq!(export("hf").refused(), "loka: line 2: the module 'a.fc1' is listed twice: modules.txt");
    fs::write(folder.path().join("modules.txt"), "a.fc1\tLinear\nfc1\tLinear\nx.fc1\tLinear\nact\tReLU\n").unwrap();
    let run = export("hf").done();
    assert_eq!(run.stderr, "note: 1 linear is not in the plan and stays in high precision: x.fc1\n");
    let written: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("out")).unwrap()).unwrap();
    assert_eq!(written["modules_to_not_convert"], json!([r"fc1\Z", "x.fc1"]), "as a suffix it would skip a.fc1");
    assert!(folder.path().join("out.provenance.json").is_file());
    fs::write(folder.path().join("modules.txt"), "other\n").unwrap();
    let run = export("megatron");
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(1), "no site of the plan is a linear of the model\nnothing written\n")
    );
}

#[test]
fn bad_use() {
    let folder = TempDir::new().unwrap();
    for args in [&["export"][..], &["export", "p.plan.json"], &["export", "p", "--to", "tensorrt", "--out", "x"]] {
        let run = run_in(folder.path(), args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    }
    let line = run_in(folder.path(), ["export", "gone.plan.json", "--to", "te", "--out", "x"]).refused();
    assert_eq!(line, "loka: no such file or folder: gone.plan.json");
}
