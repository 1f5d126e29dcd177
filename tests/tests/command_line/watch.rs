//! `loka watch` by the real binary: snapshots of a model against its plan, one planted drift, and what is refused.

use std::{fs, path::Path};

use loka_core::trace::{Series, TraceData, write};
use loka_tests::{run_in, tiny};
use serde_json::Value;
use tempfile::TempDir;

const SITES: usize = 4;

/// As recorded at a step, with the amax of `layers.1`'s input times `drift`, which moves a little from step to step.
fn trace(step: u64, drift: f32) -> TraceData {
    let mut trace = tiny::trace(SITES);
    trace.manifest.run.step = step;
    for (at, stats) in trace.sites.iter_mut().enumerate() {
        let level = if at == 1 { drift } else { 1.0 };
        let jitter = |step: i64| 1.0 + 0.05 * ((step * 7 + at as i64 * 3) % 5 - 2) as f32;
        let steps: Vec<i64> = (0..12).map(|of| step as i64 + of).collect();
        let values = steps.iter().map(|step| level * jitter(*step)).collect();
        stats.series = vec![Series { name: "input_amax".to_owned(), steps, values }];
    }
    trace
}

fn put(folder: &Path, step: u64, drift: f32) {
    write(&folder.join(format!("snapshots/step-{step:04}.trace.safetensors")), &trace(step, drift)).unwrap();
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("snapshots")).unwrap();
    put(path, 10, 1.0);
    let planned = "snapshots/step-0010.trace.safetensors";
    run_in(path, ["probe", planned, "--engine", "cpu", "--max-draws", "8", "--out", "r.results.parquet"]).done();
    let by_hand = ["--override", "*:fprop=cublaslt/fp8-rowwise", "--policy", "rel-l2"];
    run_in(path, [&["plan", "r.results.parquet", "--out", "p.plan.json"][..], &by_hand].concat()).done();
    folder
}

const WATCH: [&str; 11] = [
    "--json",
    "watch",
    "snapshots",
    "--plan",
    "p.plan.json",
    "--once",
    "--engine",
    "cpu",
    "--max-draws",
    "8",
    "--prometheus=w.prom",
];

#[test]
fn a_doubled_amax_is_an_alarm_with_its_second_snapshot() {
    let folder = folder();
    let path = folder.path();
    let looked = |code| {
        let run = run_in(path, WATCH);
        assert_eq!(run.code, Some(code), "{run:?}");
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    put(path, 20, 1.0);
    put(path, 30, 1.1);
    let told = looked(0);
    assert_eq!(
        told.iter().map(|line| line["step"].as_u64().unwrap()).collect::<Vec<_>>(),
        [20, 30],
        "the plan's own is none"
    );
    assert!(
        told.iter().all(|line| line["num_tests"] == 2 * SITES && line["began"] == Value::Array(Vec::new())),
        "{told:?}"
    );
    let again = run_in(path, &WATCH[1..]).done();
    assert_eq!(again.stdout.trim(), "no new snapshot, 2 looked at before, no alarm: snapshots");
    put(path, 40, 2.0);
    assert_eq!(looked(0)[0]["standing"], 0, "one snapshot alone is no alarm");
    put(path, 50, 2.0);
    let told = looked(1);
    let began = told[0]["began"].as_array().unwrap();
    assert_eq!(began.len(), 1, "{told:?}");
    assert_eq!(began[0]["test"], "layers.1: range of x");
    let found = began[0]["alarm"]["found"].as_f64().unwrap();
    assert!((found - 2.0).abs() < 0.1, "{found}");
    let metrics = fs::read_to_string(path.join("w.prom")).unwrap();
    assert!(metrics.contains("\nloka_watch_alarms 1\n"), "{metrics}");
    let line = "loka_watch_alarm{test=\"layers.1: range of x\",since=\"step-0050.trace.safetensors\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
    // It stands where nothing new came, and ends after two snapshots that are well.
    assert_eq!(looked(1), Vec::<Value>::new());
    put(path, 60, 1.0);
    put(path, 70, 1.0);
    let told = looked(0);
    assert_eq!(told[1]["ended"][0], "layers.1: range of x");
    // For people.
    fs::remove_file(path.join("p.watch.json")).unwrap();
    let run = run_in(path, &WATCH[1..]);
    assert!(run.stdout.contains("  ALARM layers.1: range of x: amax of x, times 2."), "{}", run.stdout);
}

#[test]
fn rows_of_each_snapshot_are_kept_for_the_workbench_where_they_are_asked_for() {
    let folder = folder();
    let path = folder.path();
    put(path, 20, 1.0);
    run_in(path, [&WATCH[..], &["--keep-rows"]].concat()).done();
    let kept = path.join("snapshots/step-0020.watched.results.parquet");
    let results = loka_core::tables::read_results(&kept).unwrap();
    assert_eq!(results.meta.manifest.run.step, 20);
    // The chosen kernels', and BF16's beside them.
    let chosen = |row: &&loka_core::model::ResultRow| row.kernel.as_str() == "cublaslt/fp8-rowwise";
    assert_eq!(
        results.rows.iter().filter(chosen).filter(|row| row.gemm == loka_core::model::Gemm::Fprop).count(),
        SITES
    );
    // A folder that takes none is a line, and the watch goes on.
    put(path, 30, 1.0);
    fs::create_dir(path.join("snapshots/step-0030.watched.results.parquet")).unwrap();
    let run = run_in(path, [&WATCH[..], &["--keep-rows"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("warning: its rows are not kept: "), "{run:?}");
}

#[test]
fn what_training_saw_is_an_alarm_with_the_second_check_that_is_off_and_somebody_is_told() {
    let folder = folder();
    let path = folder.path();
    let plan: Value = serde_json::from_str(&fs::read_to_string(path.join("p.plan.json")).unwrap()).unwrap();
    let log = |checks: &[(u64, &str)]| {
        let mut text = fs::read_to_string(path.join("health.jsonl")).unwrap_or_default();
        for (step, verdict) in checks {
            let line = serde_json::json!({
                "time": "2026-11-26T08:00:00Z", "step": step, "rank": 0, "plan": plan["digest"], "site": "layers.1",
                "gemm": "fprop", "kernel": "cublaslt/fp8-rowwise", "predicted": 0.03, "seen": null, "saturated": 0.0,
                "flushed": 0.0, "verdict": verdict, "note": "",
            });
            text += &format!("{line}\n");
        }
        fs::write(path.join("health.jsonl"), text).unwrap();
    };
    let looked = |code| {
        let run = run_in(path, [&WATCH[..], &["--health-log=health.jsonl", "--on-alarm=cat >> told.jsonl"]].concat());
        assert_eq!((run.code, run.stderr.as_str()), (Some(code), ""), "{run:?}");
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    assert_eq!(looked(0), Vec::<Value>::new(), "training has not begun");
    log(&[(0, "ok"), (1000, "off")]);
    assert_eq!(looked(0), Vec::<Value>::new(), "one check alone is no alarm");
    let metrics = || fs::read_to_string(path.join("w.prom")).unwrap_or_default();
    assert_eq!(metrics(), "", "nothing to tell so far");
    log(&[(2000, "off")]);
    let told = looked(1);
    assert_eq!(told[0]["began"][0]["test"], "layers.1:fprop canary");
    assert_eq!(told[0]["began"][0]["alarm"]["since"], "step 2000");
    // Figures do not wait for a snapshot, of which there is none to tell.
    let line = "loka_watch_alarm{test=\"layers.1:fprop canary\",since=\"step 2000\"} 1\n";
    assert!(metrics().contains("\nloka_watch_alarms 1\n") && metrics().contains(line), "{}", metrics());
    assert!(metrics().contains("\nloka_watch_snapshots 0\n") && !metrics().contains("loka_watch_last_step"));
    assert_eq!(looked(1), Vec::<Value>::new(), "nothing new, and it stands");
    put(path, 20, 1.0);
    looked(1);
    let of_snapshot = |text: String| {
        let named =
            |line: &&str| line.contains("_last_step ") || line.contains("_tests ") || line.contains("_snapshots ");
        text.lines().filter(named).map(str::to_owned).collect::<Vec<String>>()
    };
    let before = of_snapshot(metrics());
    assert!(before.contains(&"loka_watch_last_step 20".to_owned()) && metrics().contains(line), "{}", metrics());
    log(&[(3000, "ok"), (4000, "ok")]);
    assert_eq!(looked(0)[0]["ended"][0], "layers.1:fprop canary");
    assert!(metrics().contains("\nloka_watch_alarms 0\n") && !metrics().contains(line), "{}", metrics());
    assert_eq!(of_snapshot(metrics()), before, "the last snapshot's stay");
    // The command got both lines.
    let heard: Vec<Value> = fs::read_to_string(path.join("told.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(heard.len(), 2);
    assert_eq!(heard[0], told[0]);
    // One that fails, and a line that is none of the canary's: each is said, and the watch goes on.
    log(&[(5000, "off"), (6000, "off")]);
    fs::write(path.join("health.jsonl"), fs::read_to_string(path.join("health.jsonl")).unwrap() + "{\n").unwrap();
    let run = run_in(path, [&WATCH[..], &["--health-log=health.jsonl", "--on-alarm=exit 3"]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    let said: Vec<&str> = run.stderr.lines().collect();
    assert!(said[0].starts_with("warning: not a line of a health log: "), "{run:?}");
    assert_eq!(said[1], "warning: --on-alarm: exit status: 3: exit 3");
}

/// A folder of shards is looked at once the one that has the weights is there, too.
#[test]
fn a_snapshot_whose_weights_are_on_their_way_is_waited_for() {
    let folder = folder();
    let path = folder.path();
    let shards = path.join("snapshots/step-0020");
    fs::create_dir(&shards).unwrap();
    let put_shard = |to: &Path, rank: u64| {
        let mut data = trace(20, 1.0);
        data.manifest.run.rank = rank;
        data.manifest.run.world_size = 2;
        if rank == 1 {
            data.manifest.run.extra.insert("weights_in".to_owned(), serde_json::json!({"rank": 0, "file": "w-rank0"}));
        }
        write(to, &data).unwrap();
    };
    put_shard(&shards.join("w-rank1.trace.safetensors"), 1);
    let run = run_in(path, WATCH);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""), "{run:?}");
    put_shard(&shards.join("w-rank0.trace.safetensors"), 0);
    let told = run_in(path, WATCH).done().objects();
    assert_eq!((told.len(), &told[0]["step"]), (1, &20.into()), "{told:?}");
    // By itself in the folder it is no snapshot.
    put_shard(&path.join("snapshots/x.trace.safetensors"), 1);
    let run = run_in(path, WATCH);
    let line = "warning: not looked at: it has no weights: they are in w-rank0, rank 0's; take both, or their folder: \
                snapshots/x.trace.safetensors";
    assert_eq!((run.code, run.stderr.trim_end()), (Some(1), line));
}

#[test]
fn what_is_not_of_the_plan_is_said() {
    let folder = folder();
    let path = folder.path();
    let refusal = |args: &[&str]| {
        let run = run_in(path, args);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{run:?}");
        run.stderr.trim().to_owned()
    };
    let plain = ["plan", "r.results.parquet", "--out", "bf16.plan.json"];
    run_in(path, plain).done();
    assert_eq!(
        refusal(&["watch", "snapshots", "--plan", "bf16.plan.json", "--once"]),
        "loka: nothing to watch: the plan has BF16 everywhere: bf16.plan.json"
    );
    assert_eq!(refusal(&["watch", "none", "--plan", "p.plan.json"]), "loka: no such folder: none");
    fs::write(path.join("s.json"), "{}").unwrap();
    assert!(
        refusal(&["watch", "snapshots", "--plan", "p.plan.json", "--state", "s.json"])
            .starts_with("loka: not a watch's state: ")
    );
    // Another model's, and one that is none.
    write(&path.join("snapshots/x.trace.safetensors"), &tiny::trace(SITES - 1)).unwrap();
    fs::write(path.join("snapshots/y.trace.safetensors"), "nothing").unwrap();
    let run = run_in(path, WATCH);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{run:?}");
    let told: Vec<&str> = run.stderr.lines().collect();
    assert!(
        told[0].starts_with("warning: not looked at: ") && told[0].ends_with("snapshots/y.trace.safetensors"),
        "{told:?}"
    );
    assert_eq!(told[1], "warning: not looked at: the plan's site layers.3 is not in it: snapshots/x.trace.safetensors");
}
