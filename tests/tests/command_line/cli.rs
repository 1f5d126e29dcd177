//! The real binary: every command does its work, and every kind of bad input is refused with exit 2,
//! one line that names the cause and the file, and nothing written.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
    time::{Duration, Instant},
};

use loka_core::dispatch::Policy;
use loka_tests::{ProgramRun, here, loka, run_in, sample};
use serde_json::Value;
use tempfile::TempDir;

/// A name of a site that clears a terminal, turns a line around and begins another one.
#[test]
fn no_name_steers_a_terminal() {
    let hostile = "layers.0\u{1b}[2J\u{202e}\nloka: all is well";
    let folder = TempDir::new().unwrap();
    let (trace, path) = (loka_tests::tiny::trace(2), folder.path().join("t.trace.safetensors"));
    let mut trace = trace;
    let id = loka_core::model::SiteId::new(hostile);
    trace.manifest.sites[0].id = id.clone();
    trace.sites[0].site.id = id;
    loka_core::trace::write(&path, &trace).unwrap();
    let steers = |character: char| character != '\n' && (character.is_control() || character == '\u{202e}');
    for args in [
        &["info", "t.trace.safetensors"][..],
        &["--json", "info", "t.trace.safetensors"],
        &["probe", "t.trace.safetensors", "--out", "r.results.parquet", "--max-draws", "4"],
        &["plan", "r.results.parquet", "--out", "p.plan.json", "--policy", "rel-l2"],
        &["check", "p.plan.json", "--results", "r.results.parquet"],
        &["--json", "check", "p.plan.json", "--results", "r.results.parquet"],
        &["check", "p.plan.json", "--results", "r.results.parquet", "--format", "sarif"],
        &["check", "p.plan.json", "--results", "r.results.parquet", "--policy", "paper"],
        &["diff", "t.trace.safetensors", "t.trace.safetensors"],
        &["diff", "r.results.parquet", "r.results.parquet"],
        &["log", "t.trace.safetensors"],
        &["probe", "t.trace.safetensors", "--out", "x.results.parquet", "--sites", "\u{1b}[2J\u{202e}"],
    ] {
        let run = run_in(folder.path(), args);
        for text in [&run.stdout, &run.stderr] {
            assert!(!text.contains(steers), "{args:?}: {text:?}");
            assert!(!text.lines().any(|line| line.starts_with("loka: all is well")), "{args:?}: {text}");
        }
        if args[0] == "--json" {
            assert!(run.stdout.contains("\\u202e") || args[1] == "check", "{args:?}: {}", run.stdout);
            run.stdout.lines().for_each(|line| drop(serde_json::from_str::<Value>(line).unwrap()));
        }
    }
}

/// Release, commit and what is in it; Python's package is of the same release.
#[test]
fn the_version_says_what_is_in_it() {
    let version = env!("CARGO_PKG_VERSION");
    let text = run_in(Path::new("."), ["--version"]).done().stdout;
    let [first, features] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(first.starts_with(&format!("loka {version} (")) && first.ends_with(')'), "{text}");
    assert!(features.starts_with("features: cuda, gui, query, serve"), "{text}");
    assert_eq!(run_in(Path::new("."), ["-V"]).done().stdout.trim_end(), format!("loka {version}"));
    let python = fs::read_to_string(loka_tests::root("python/loka/__init__.py")).unwrap();
    assert!(python.contains(&format!("\n__version__ = \"{version}\"\n")), "python/loka is of another release");
    let changes = fs::read_to_string(loka_tests::root("CHANGELOG.md")).unwrap();
    assert!(changes.contains(&format!("\n## {version}")), "CHANGELOG.md knows no {version}");
}

/// docs/reference/actions.md has every id: one that is renamed or gone is noticed, since scripts call actions by it.
/// `loka actions --markdown >docs/reference/actions.md` writes it anew.
#[test]
fn ids_of_actions_stay() {
    let told = |args: &[&str]| run_in(Path::new("."), args).done().stdout;
    let (now, kept) = (told(&["actions", "--markdown"]), loka_tests::root("docs/reference/actions.md"));
    let kept = fs::read_to_string(kept).unwrap();
    let differs = now.lines().zip(kept.lines()).find(|(now, kept)| now != kept);
    assert!(now == kept, "loka actions --markdown >docs/reference/actions.md: {differs:?}");
    let lines = told(&["actions", "--json"]);
    let ids: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_str().unwrap().to_owned())
        .collect();
    assert!(ids.len() > 100 && ids.iter().all(|id| kept.contains(&format!("| `{id}` |"))), "{ids:?}");
}

/// docs/reference/commands.md is what clap knows: `loka reference >docs/reference/commands.md` writes it anew.
#[test]
fn the_reference_of_commands_is_fresh() {
    let now = run_in(Path::new("."), ["reference"]).done().stdout;
    let kept = fs::read_to_string(loka_tests::root("docs/reference/commands.md")).unwrap();
    let differs = now.lines().zip(kept.lines()).find(|(now, kept)| now != kept);
    assert!(now == kept, "loka reference >docs/reference/commands.md: {differs:?}");
    for command in ["probe", "plan", "check", "serve", "user", "key"] {
        assert!(kept.contains(&format!("## `loka {command}`")), "{command}");
    }
    assert!(!kept.contains("`--drive`") && !kept.contains("loka reference"), "what is hidden stays hidden");
}

/// The table of docs/reference/policy.md says what the built-in policies ask for.
#[test]
fn the_reference_of_policies_is_fresh() {
    let page = fs::read_to_string(loka_tests::root("docs/reference/policy.md")).unwrap();
    for name in Policy::BUILTIN {
        let policy = Policy::builtin(name).unwrap();
        let cell = |value: Option<f64>| value.map_or(" ".to_owned(), |value| format!(" {value} "));
        let metric = serde_json::to_value(policy.metric).unwrap();
        let row = format!(
            "| `{name}` | `{}` | {} | {} |{}|{}|",
            metric.as_str().unwrap(),
            policy.max_error,
            policy.min_speedup,
            cell(policy.loss_budget),
            cell(policy.max_bias),
        );
        assert!(page.contains(&row), "docs/reference/policy.md lacks {row}");
    }
}

/// A folder with results and a plan of a short probe: two sites and every kernel.
struct Made {
    folder: TempDir,
}

static MADE: LazyLock<Made> = LazyLock::new(|| {
    let made = Made { folder: TempDir::new().unwrap() };
    made.probe("r.results.parquet", &["--sites", "net.top.*"]).done();
    made.run(&["plan", "r.results.parquet", "--out", "p.plan.json", "--policy", "rel-l2"]).done();
    made
});

impl Made {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, args: &[&str]) -> ProgramRun {
        run_in(self.folder.path(), args)
    }

    fn probe(&self, out: &str, more: &[&str]) -> ProgramRun {
        let trace = sample();
        let mut args = vec!["probe", trace.to_str().unwrap(), "--out", out, "--min-draws", "2", "--max-draws", "4"];
        args.extend(more);
        self.run(&args)
    }

    /// Refused, and no file is there that was not there before. The line on stderr.
    #[track_caller]
    fn refuses(&self, args: &[&str]) -> String {
        let work = TempDir::new().unwrap();
        for name in ["r.results.parquet", "p.plan.json"] {
            fs::copy(self.path(name), work.path().join(name)).unwrap();
        }
        let before = files(work.path());
        let line = run_in(work.path(), args).refused();
        assert_eq!(files(work.path()), before, "{args:?} wrote something");
        line
    }
}

fn files(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn help_and_bad_use() {
    let made = &*MADE;
    assert!(made.run(&["--help"]).done().stdout.contains("Usage: loka"));
    for command in ["open", "info", "probe", "plan", "check", "diff", "bench", "kernels", "selftest", "merge"] {
        let help = made.run(&[command, "--help"]).done();
        assert!(help.stdout.contains(&format!("Usage: loka {command}")), "{help:?}");
    }
    for args in
        [&["info", "--nonsense"][..], &["info"], &["probe", "x"], &["plan", "x", "--out"], &["selftest", "extra"]]
    {
        let run = made.run(args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}: {run:?}");
        assert!(run.stderr.starts_with("error: "), "{run:?}");
    }
}

#[test]
fn info_says_what_is_there() {
    let made = &*MADE;
    let trace = sample();
    for args in [&["info", text(&trace)][..], &["info", text(&trace), "--deep"]] {
        let plain = made.run(args).done();
        assert!(plain.stdout.contains("14 of 14 sites usable"), "{plain:?}");
        let run = made.run(&[args, &["--json"]].concat()).done();
        let objects = run.objects();
        assert_eq!((objects.len(), &objects[0]["num_sites"], &objects[0]["num_unusable"]), (15, &14.into(), &0.into()));
        assert_eq!(objects[1]["site"]["id"], "net.layers.0.fmb.mlp.0");
    }
}

#[test]
fn two_traces_are_compared_site_by_site() {
    let made = &*MADE;
    let trace = sample();
    let trace = trace.to_str().unwrap();
    let same = made.run(&["diff", trace, trace]).done().stdout;
    assert!(same.starts_with("0 of 14 sites changed twofold or more, 14 did not"), "{same}");
    let objects = made.run(&["diff", trace, trace, "--json", "--kernel", "cublaslt/fp8-rowwise"]).done().objects();
    assert_eq!(
        (objects.len(), &objects[0]["octaves"], &objects[0]["site"]),
        (15, &0.0.into(), &"net.layers.0.fmb.mlp.0".into())
    );
    let line = made.refuses(&["diff", trace, trace, "--policy", "paper"]);
    assert_eq!(line, format!("loka: traces have no policy and no mods: {trace}"));
    let line = made.refuses(&["diff", trace, trace, "--kernel", "cublaslt/*"]);
    assert!(line.contains("--kernel is one kernel"), "{line}");
}

#[test]
fn a_probe_a_plan_a_check_a_diff() {
    let made = &*MADE;
    for policy in ["paper", "rel-l2", "loss-budget", "balanced"] {
        let out = format!("{policy}.plan.json");
        let run = made.run(&["plan", "r.results.parquet", "--out", &out, "--policy", policy, "--json"]).done();
        let objects = run.objects();
        assert_eq!(objects.len(), 14 * 3 + 1, "every GEMM of the trace and a summary");
        assert_eq!(objects[42]["written"], *out);
        // Two of fourteen sites were probed.
        let check = made.run(&["check", &out, "--results", "r.results.parquet", "--coverage", "14"]).done();
        assert!(check.stdout.contains("\nthe plan keeps its policy"), "{check:?}");
        let check = made.run(&["check", &out, "--results", "r.results.parquet", "--coverage", "14", "--json"]).done();
        assert_eq!(check.objects().last().unwrap()["passed"], true);
    }
    let same = made.run(&["diff", "p.plan.json", "p.plan.json"]).done();
    assert_eq!(same.stdout, "the plans decide the same\n");
    let forced = "net.top.0:fprop=cublaslt/tf32";
    made.run(&["plan", "r.results.parquet", "--out", "o.plan.json", "--policy", "rel-l2", "--override", forced]).done();
    let diff = made.run(&["diff", "p.plan.json", "o.plan.json", "--json"]).done();
    let objects = diff.objects();
    assert_eq!(objects.len(), 2, "{diff:?}");
    assert_eq!((&objects[0]["site"], &objects[0]["after"]), (&"net.top.0".into(), &"cublaslt/tf32".into()));
    assert!(made.run(&["diff", "p.plan.json", "o.plan.json"]).done().stdout.contains("1 choices changed, 41 stay"));
    // An override that is safe and slow may ship; one that breaks the policy may not.
    made.run(&["check", "o.plan.json", "--results", "r.results.parquet", "--coverage", "14"]).done();
    let unsafe_one = "net.top.0:dgrad=cublaslt/fp8-tensorwise";
    made.run(&["plan", "r.results.parquet", "--out", "u.plan.json", "--policy", "paper", "--override", unsafe_one])
        .done();
    let check = made.run(&["check", "u.plan.json", "--results", "r.results.parquet"]);
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(
        check.stdout.contains("fails: net.top.0:dgrad: cublaslt/fp8-tensorwise (an override) breaks the policy"),
        "{check:?}"
    );
}

#[test]
fn merge_kernels_and_selftest() {
    let made = &*MADE;
    let trace = sample();
    let merged = made.run(&["merge", text(&trace), "--out", "m.trace.safetensors", "--json"]).done();
    assert_eq!(merged.objects()[0]["num_sites"], 14);
    assert_eq!(merged.objects().len(), 1);
    made.run(&["info", "m.trace.safetensors", "--deep"]).done();

    let kernels = made.run(&["kernels", "--json"]).done().objects();
    let names: Vec<&str> = kernels.iter().filter_map(|kernel| kernel["kernel"].as_str()).collect();
    let engines: Vec<&str> = kernels.iter().filter_map(|line| line["engine"]["name"].as_str()).collect();
    assert_eq!(engines.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&"cpu", &"cuda"]));
    assert!(names.len() >= 18 && names.contains(&"torchao/rowwise_with_gw_hp"), "{names:?}");
    let listed = made.run(&["kernels"]).done();
    assert!(names.iter().all(|name| listed.stdout.contains(name)), "{listed:?}");

    let selftest = made.run(&["selftest"]).done();
    let last = selftest.stdout.lines().last().unwrap();
    let (passed, failed) = last.split_once(" passed, ").unwrap();
    assert!(passed.parse::<u32>().unwrap() > 5 && failed == "0 failed", "{last}");
    assert!(!made.run(&["selftest", "--json"]).done().objects().is_empty());
}

/// Where the listing's error names a site, the other site of that trace works.
fn of_one_site(error: &str) -> bool {
    error.contains(": net.top.0") && !error.contains("listed twice")
}

/// Every broken trace of the corpus, its path and the words it must be refused in.
fn corpus() -> Vec<(PathBuf, String)> {
    let folder = here("corpus");
    let listing = fs::read_to_string(folder.join("traces.tsv")).unwrap();
    let entry = |line: &str| {
        let (name, error) = line.split_once('\t').unwrap();
        // A shard's error names the shard, so the path that is given comes before every name.
        let named = error.replace(name, &format!("{}/{name}", folder.display()));
        (folder.join(name), named)
    };
    listing.lines().map(entry).collect()
}

const READERS: [&[&str]; 4] = [
    &["info"],
    &["info", "--deep"],
    &["probe", "--out", "o.results.parquet", "--min-draws", "2", "--max-draws", "2"],
    &["merge", "--out", "o.trace.safetensors"],
];

#[test]
fn every_broken_trace_on_every_command() {
    let made = &*MADE;
    let (mut whole, mut one) = (0, 0);
    for (path, error) in corpus() {
        // As shards of a folder some faults are of a site; those of a whole trace are of the file.
        if of_one_site(&error) && !made.run(&["info", text(&path)]).stdout.is_empty() {
            one_broken_site(&path, &error);
            one += 1;
            continue;
        }
        for reader in READERS {
            let line = made.refuses(&[reader, &[text(&path)]].concat());
            assert_eq!(line, format!("loka: {error}"), "{reader:?}");
        }
        whole += 1;
    }
    assert!(whole >= 25 && one >= 35, "{whole} whole, {one} of one site");
}

/// net.top.2 is used, net.top.0 is named with the cause.
#[track_caller]
fn one_broken_site(path: &Path, error: &str) {
    let cause = error.split(": net.top.0").next().unwrap().split(" in ").next().unwrap();
    let cause = cause.split(", but ").next().unwrap();
    let work = TempDir::new().unwrap();
    for reader in READERS {
        let run = run_in(work.path(), [reader, &[text(path)]].concat()).done();
        let structural = run_in(work.path(), ["info", text(path)]).stdout.contains("unusable");
        if structural || reader != READERS[0] {
            assert!(
                run.stdout.contains(cause) || run.stderr.contains(cause),
                "{reader:?} of {path:?}: {cause}: {run:?}"
            );
        }
        if reader[0] != "info" {
            let about =
                run.stderr.lines().filter(|line| line.starts_with("warning: net.top.0 cannot be used: ")).count();
            assert_eq!(about, 1, "{reader:?} of {path:?}: {run:?}");
        }
    }
    assert_eq!(files(work.path()), BTreeSet::from(["o.results.parquet".to_owned(), "o.trace.safetensors".to_owned()]));
    // Nothing is left of the trace when the other site is not asked for.
    let asked = ["probe", text(path), "--sites", "net.top.0", "--out", "none.results.parquet"];
    let run = run_in(work.path(), asked);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.lines().last().unwrap().starts_with("loka: no site could be probed: "), "{run:?}");
    assert!(!work.path().join("none.results.parquet").exists());
}

#[test]
fn one_kind_of_file_in_place_of_another() {
    let made = &*MADE;
    let trace = sample();
    let trace = text(&trace);
    for reader in READERS {
        let line = made.refuses(&[reader, &["r.results.parquet"]].concat());
        assert!(line.ends_with(": r.results.parquet"), "{line}");
        assert!(made.refuses(&[reader, &["p.plan.json"]].concat()).ends_with(": p.plan.json"));
    }
    for (args, file) in [
        (&["plan", trace, "--out", "x.plan.json"][..], trace),
        (&["plan", "p.plan.json", "--out", "x.plan.json"], "p.plan.json"),
        (&["check", "p.plan.json", "--results", trace], trace),
        (&["check", "r.results.parquet", "--results", "r.results.parquet"], "r.results.parquet"),
        (&["diff", "p.plan.json", "r.results.parquet"], "r.results.parquet"),
        (&["diff", trace, "p.plan.json"], trace),
        (&["plan", "absent", "--out", "x.plan.json"], "absent"),
        (&["check", "p.plan.json", "--results", "absent"], "absent"),
        (&["plan", "r.results.parquet", "--out", "x.plan.json", "--policy", "absent.json"], "absent.json"),
        (&["plan", "r.results.parquet", "--out", "x.plan.json", "--policy", "r.results.parquet"], "r.results.parquet"),
    ] {
        let line = made.refuses(args);
        assert!(line.starts_with("loka: ") && line.ends_with(&format!(": {file}")), "{args:?}: {line}");
    }
}

#[test]
fn results_that_are_cut_short() {
    let made = &*MADE;
    let whole = fs::read(made.path("r.results.parquet")).unwrap();
    for length in [0, 3, 4, 100, whole.len() / 2, whole.len() - 1] {
        let cut = made.path(&format!("cut-{length}.results.parquet"));
        fs::write(&cut, &whole[..length]).unwrap();
        for args in
            [&["plan", text(&cut), "--out", "x.plan.json"][..], &["check", "p.plan.json", "--results", text(&cut)]]
        {
            let line = made.refuses(args);
            assert!(
                line.contains("not a Parquet file, or a truncated one") && line.ends_with(text(&cut)),
                "{length}: {line}"
            );
        }
    }
}

#[test]
fn a_check_against_another_traces_results_fails() {
    let made = &*MADE;
    let other = here("corpus/good.trace.safetensors");
    made.run(&["probe", text(&other), "--out", "good.results.parquet", "--min-draws", "2", "--max-draws", "2"]).done();
    let check = made.run(&["check", "p.plan.json", "--results", "good.results.parquet"]);
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.stdout.starts_with("fails: the plan is for another trace: sha256:713a3c09"), "{check:?}");
    // Other draws of the same trace are other results.
    made.probe("seed.results.parquet", &["--sites", "net.top.*", "--seed", "5"]).done();
    let check = made.run(&["check", "p.plan.json", "--results", "seed.results.parquet"]);
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.stdout.starts_with("fails: the plan was made from other results: "), "{check:?}");
}

#[test]
fn plans_that_were_changed() {
    let made = &*MADE;
    let plan = fs::read_to_string(made.path("p.plan.json")).unwrap();
    for (change, to, words) in [
        ("\"name\": \"rel-l2\"", "\"name\": \"rel-l3\"", "the plan was changed after it was made: its digest is "),
        ("\"version\": 1", "\"version\": 2", "plan version 2 is not known (this program reads 1)"),
        ("\"format\": \"loka-plan\"", "\"format\": \"other\"", "not a plan: format is \"other\", not \"loka-plan\""),
        ("cublaslt/bf16", "cublaslt/bf17", "the plan was changed after it was made: its digest is "),
        ("}", "", "not a plan: "),
    ] {
        assert!(plan.contains(change), "{change}");
        let path = made.path(&format!("changed-{}.plan.json", words.len()));
        fs::write(&path, plan.replacen(change, to, 1)).unwrap();
        for args in
            [&["check", text(&path), "--results", "r.results.parquet"][..], &["diff", "p.plan.json", text(&path)]]
        {
            let line = made.refuses(args);
            assert!(line.starts_with(&format!("loka: {words}")) && line.ends_with(text(&path)), "{line}");
        }
    }
}

#[test]
fn policies_that_cannot_be() {
    let made = &*MADE;
    for (json, words) in [
        (r#"{"name": "p", "metric": "mere", "max_error": -0.1}"#, "policy 'p': max_error"),
        (r#"{"name": "p", "metric": "mere", "max_error": NaN}"#, "not a policy: "),
        (r#"{"name": "p", "metric": "mere", "max_error": 1e999}"#, "not a policy: "),
        (r#"{"name": "p", "metric": "bleu", "max_error": 0.1}"#, "not a policy: unknown variant `bleu`"),
        (r#"{"name": "p", "metric": "mere", "max_error": 0.1, "extra": 1}"#, "not a policy: unknown field `extra`"),
        (r#"{"name": "p", "metric": "mere", "max_error": 0.1, "min_speedup": -1}"#, "policy 'p': min_speedup"),
        (r#"{"name": "p", "metric": "mere", "max_error": 0.1, "confidence": 1.5}"#, "policy 'p': confidence"),
        (r#"{"name": "p", "metric": "mere", "max_error": 0.1, "loss_budget": -1}"#, "policy 'p': loss_budget"),
        ("max_error = 0.1", "not a policy: "),
    ] {
        let path = made.path("bad.policy.json");
        fs::write(&path, json).unwrap();
        let line = made.refuses(&["plan", "r.results.parquet", "--out", "x.plan.json", "--policy", text(&path)]);
        assert!(line.starts_with(&format!("loka: {words}")) && line.ends_with(text(&path)), "{json}: {line}");
    }
    let line = made.refuses(&["plan", "r.results.parquet", "--out", "x.plan.json", "--policy", "papper"]);
    assert_eq!(line, "loka: unknown policy 'papper' (paper, rel-l2, loss-budget or balanced)");
}

#[test]
fn a_pattern_overrides_every_site_that_it_matches() {
    let made = &*MADE;
    made.run(&[
        "plan",
        "r.results.parquet",
        "--out",
        "w.plan.json",
        "--policy",
        "rel-l2",
        "--override",
        "net.top.*:*=cublaslt/tf32",
        "--override",
        "net.top.2:wgrad=cublaslt/bf16",
    ])
    .done();
    let plan: Value = serde_json::from_str(&fs::read_to_string(made.path("w.plan.json")).unwrap()).unwrap();
    for site in plan["sites"].as_array().unwrap() {
        let (name, by_hand) = (site["site"].as_str().unwrap(), site["fprop"]["source"] == "override");
        assert_eq!(by_hand, name.starts_with("net.top."), "{name}");
        let last = if name == "net.top.2" { "cublaslt/bf16" } else { "cublaslt/tf32" };
        assert!(!by_hand || site["wgrad"]["kernel"] == last, "{name}");
    }
}

#[test]
fn a_wrong_file_is_named_for_what_it_is() {
    let made = &*MADE;
    let model = made.path("model.pt");
    fs::write(&model, b"PK\x03\x04\x00\x00\x08\x08archive/data.pkl").unwrap();
    for (args, line) in [
        (&["info", "r.results.parquet"][..], "not a LoKA trace: it is a Parquet file: r.results.parquet"),
        (&["info", "p.plan.json"], "not a LoKA trace: it is a LoKA plan: p.plan.json"),
        (&["plan", "p.plan.json", "--out", "x.plan.json"], "not a Parquet file: it is a LoKA plan: p.plan.json"),
        (
            &["check", "r.results.parquet", "--results", "r.results.parquet"],
            "not a plan: it is a Parquet file: r.results.parquet",
        ),
        (
            &["plan", "r.results.parquet", "--out", "x.plan.json", "--policy", "./p.plan.json"],
            "not a policy: it is a LoKA plan: ./p.plan.json",
        ),
    ] {
        assert_eq!(made.refuses(args), format!("loka: {line}"));
    }
    let line = made.refuses(&["info", text(&model)]);
    assert_eq!(
        line,
        format!("loka: not a LoKA trace: it is a ZIP archive, as PyTorch checkpoints are: {}", model.display())
    );
}

#[test]
fn overrides_and_mods_that_cannot_be() {
    let made = &*MADE;
    for (wanted, words) in [
        ("net.top.9:fprop=cublaslt/bf16", "override of an unknown site 'net.top.9' (nearest: net.top.0, net.top.2)"),
        (
            "nets.*:fprop=cublaslt/bf16",
            "override of an unknown site 'nets.*' (nearest: net.layers.0.fmb.mlp.0, net.layers.0.fmb.mlp.3, net.layers.0.fmb.mlp.6)",
        ),
        ("net.top.0:fprop=cublaslt/fp4", "override of net.top.0:fprop with an unknown kernel 'cublaslt/fp4'"),
        (
            "net.top.2:fprop=cublaslt/fp8-rowwise",
            "override of net.top.2:fprop with cublaslt/fp8-rowwise, which does not run there: n = 1 is less than 16",
        ),
        (
            "net.layers.0.fmb.mlp.0:fprop=cublaslt/fp8-rowwise",
            "override of net.layers.0.fmb.mlp.0:fprop with cublaslt/fp8-rowwise, which was not probed there",
        ),
    ] {
        let line = made.refuses(&["plan", "r.results.parquet", "--out", "x.plan.json", "--override", wanted]);
        assert_eq!(line, format!("loka: {words}: r.results.parquet"));
    }
    // What is malformed on the command line is refused before any file is read.
    for wanted in ["net.top.0", "net.top.0=cublaslt/bf16", "net.top.0:sideways=cublaslt/bf16", ""] {
        let run = made.run(&["plan", "r.results.parquet", "--out", "x.plan.json", "--override", wanted]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    }
    let line = made.refuses(&["findings", "r.results.parquet", "--mods", "no_bias"]);
    assert_eq!(line, "loka: these results have no rows under the mods asked for: r.results.parquet");
    let found = made.run(&["findings", "r.results.parquet", "--policy", "paper", "--json"]);
    assert_eq!(found.code, Some(0), "{found:?}");
    for line in found.stdout.lines() {
        let told: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(told["text"].is_string() && !told["gemms"].as_array().unwrap().is_empty(), "{line}");
    }
    let line = made.refuses(&["plan", "r.results.parquet", "--out", "x.plan.json", "--mods", "no_bias"]);
    assert_eq!(line, "loka: the results have no rows with mods 'no_bias' (they have: ''): r.results.parquet");
    let run = made.run(&["plan", "r.results.parquet", "--out", "x.plan.json", "--mods", "no_biass"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("unknown mod 'no_biass' (no_bias, block_norm or hard_swish)"), "{run:?}");
    assert!(!made.path("x.plan.json").exists());
}

#[test]
fn probe_options_that_cannot_be() {
    let made = &*MADE;
    let trace = sample();
    let trace = text(&trace);
    for (options, words) in [
        (&["--engine", "cpu", "--measure"][..], "--measure needs the CUDA engine: "),
        (&["--latencies", "r.results.parquet"], "column 'latency_p10_us' is missing: r.results.parquet"),
        (&["--latencies", "absent"], "No such file or directory (os error 2): absent"),
        (&["--confidence", "2"], "the confidence must lie between 0 and 1, not 2"),
        (&["--confidence", "NaN"], "the confidence must lie between 0 and 1, not NaN"),
        (&["--min-draws", "9", "--max-draws", "8"], "--min-draws 9 is above --max-draws 8"),
        (&["--sites", "nothing.*"], &format!("no site matches nothing.*: {trace}")),
        (&["--kernels", "nothing/*"], "no kernel matches nothing/* (see `loka kernels`)"),
        (&["--sites", "a[b"], "'a[b' is not a pattern: "),
    ] {
        let line = made.refuses(&[&["probe", trace, "--out", "x.results.parquet"], options].concat());
        assert!(line.starts_with(&format!("loka: {words}")), "{options:?}: {line}");
    }
    if let Err(reason) = loka_core::engine::open("cuda") {
        let line = made.refuses(&["probe", trace, "--out", "x.results.parquet", "--engine", "cuda"]);
        assert_eq!(line, format!("loka: {reason}; --engine cpu emulates every kernel instead"));
        let auto = made.probe("auto.results.parquet", &["--sites", "net.top.2"]).done();
        let said = format!(
            "Engine: CPU, emulating formats, scales and accumulation; speeds are recorded on an H200. No CUDA engine: {reason}.\n"
        );
        assert_eq!(auto.stderr, said, "falling back is always said");
    }
    for options in [
        &["--min-draws", "1"][..],
        &["--max-draws", "-3"],
        &["--mods", "none"],
        &["--sampler", "uniform"],
        &["--seed", "x"],
    ] {
        let run = made.run(&[&["probe", trace, "--out", "x.results.parquet"], options].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{options:?}: {run:?}");
        assert!(run.stderr.starts_with("error: "), "{options:?}: {run:?}");
    }
    assert!(!made.path("x.results.parquet").exists());
}

/// Every command that writes, with its output missing.
fn writers(made: &Made) -> [Vec<String>; 3] {
    let (trace, results) = (sample(), made.path("r.results.parquet"));
    [
        vec!["probe".to_owned(), text(&trace).to_owned()],
        vec!["plan".to_owned(), text(&results).to_owned()],
        vec!["merge".to_owned(), text(&trace).to_owned()],
    ]
}

#[test]
fn outputs_that_cannot_be_written() {
    let made = &*MADE;
    let work = TempDir::new().unwrap();
    fs::create_dir(work.path().join("taken")).unwrap();
    fs::write(work.path().join("file"), "x").unwrap();
    let before = files(work.path());
    for command in writers(made) {
        // Root may write anywhere, but not below a file.
        for (out, words) in
            [("absent/out", "no such folder"), ("taken", "a folder, not a file"), ("file/out", "no such folder")]
        {
            let args = command.iter().map(String::as_str).chain(["--out", out]);
            let started = Instant::now();
            let line = run_in(work.path(), args).refused();
            assert_eq!(line, format!("loka: {words}: {out}"), "{command:?}");
            assert!(started.elapsed() < Duration::from_secs(20), "{command:?} worked for nothing");
            assert_eq!(files(work.path()), before, "{command:?} {out}");
        }
    }
    assert_eq!(fs::read_dir(work.path().join("taken")).unwrap().count(), 0);
}

#[test]
fn a_line_break_in_a_name_stays_one_line() {
    let made = &*MADE;
    for args in [
        &["info", "two\nlines"][..],
        &["probe", "two\nlines", "--out", "x.results.parquet"],
        &["plan", "two\nlines", "--out", "x.plan.json"],
        &["check", "two\nlines", "--results", "r.results.parquet"],
        &["merge", "two\nlines", "--out", "x.trace.safetensors"],
        &["plan", "r.results.parquet", "--out", "absent\nfolder/x.plan.json"],
    ] {
        made.refuses(args);
    }
}

#[test]
fn a_killed_probe_leaves_nothing_half_written() {
    let work = TempDir::new().unwrap();
    let trace = sample();
    let probe = |draws: &str| {
        let mut command = Command::new(loka());
        command.args(["probe", text(&trace), "--out", "r.results.parquet", "--min-draws", draws, "--max-draws", draws]);
        command.current_dir(work.path()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    fs::write(work.path().join("r.results.parquet"), "the old one").unwrap();
    // Long before it could end: 2,000 draws of every GEMM take minutes.
    for wait in [100, 1500] {
        let mut child = probe("2000").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        child.kill().unwrap();
        child.wait().unwrap();
        // While it draws there is no temporary; one that is killed as it writes may leave `.loka-*`.
        assert_eq!(files(work.path()), BTreeSet::from(["r.results.parquet".to_owned()]));
        assert_eq!(fs::read(work.path().join("r.results.parquet")).unwrap(), b"the old one");
    }
    assert!(probe("2").status().unwrap().success());
    let plan = run_in(work.path(), ["plan", "r.results.parquet", "--out", "p.plan.json"]).done();
    assert!(plan.stdout.contains("plan written: p.plan.json"));
}

#[test]
fn the_seed_decides_and_the_threads_do_not() {
    let made = &*MADE;
    let rows = |more: &[&str]| -> Vec<Value> {
        let sites = ["--sites", "net.top.*", "--sites", "net.layers.1.fmb.mlp.0", "--mods", "block_norm", "--json"];
        made.probe("d.results.parquet", &[&sites, more].concat()).done().objects()
    };
    let one = rows(&["--threads", "1", "--seed", "7"]);
    assert_eq!(one.len(), 2 * 3 * 3 * 26 + 1, "three sites, with and without the mod, and a summary");
    assert_eq!(rows(&["--threads", "2", "--seed", "7"]), one);
    let other = rows(&["--threads", "2", "--seed", "8"]);
    let with_error = |rows: &[Value]| rows.iter().filter(|row| row["error"].is_object()).count();
    assert_eq!(with_error(&other), with_error(&one));
    for (other, one) in other.iter().zip(&one).filter(|(_, one)| one["error"].is_object()) {
        assert_ne!(other["error"]["rel_l2"], one["error"]["rel_l2"], "{one}");
    }
}

/// The table has FP8 GEMMs beside "0.9 x BF16": whoever reads it asks why.
#[test]
fn a_plan_says_why_gemms_are_chosen_that_are_slower_alone() {
    let folder = TempDir::new().unwrap();
    let (results, out) =
        (loka_tests::root("sample-traces/dcnv2-ranker.results.parquet"), folder.path().join("p.plan.json"));
    let told = "slower than BF16 alone, their own casts included; their sites, as they run, are faster (together)";
    let args = ["plan", results.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let text = run_in(folder.path(), args).done().stdout;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(told)).collect();
    assert_eq!(lines.len(), 1, "{text}");
    // The first of the table.
    assert!(lines[0].starts_with("stack.crosses.0.v fprop and "), "{text}");
}
