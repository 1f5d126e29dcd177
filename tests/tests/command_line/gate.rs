//! The real binary as the gate of CI: approvals, expired results, coverage, in every format; and what moved between two
//! sets of results.

use std::{fs, path::PathBuf, time::SystemTime};

use loka_core::{
    model::{Gemm, KernelId, Moment, Results},
    plan::Plan,
    review::{Approval, KeyRing, Keyed, Role, SecretKey, Statement},
    tables::write_results,
};
use loka_tests::{ProgramRun, big, run_in};
use serde_json::{Value, json};
use tempfile::TempDir;

const SITES: usize = 6;

/// A folder with made-up results and their plan.
struct GateFiles {
    folder: TempDir,
    results: Results,
}

impl GateFiles {
    fn new(policy: &str) -> Self {
        let mut results = big::results(SITES, 4);
        results.meta.time = days_ago(10);
        results.meta.driver = "570.10".to_owned();
        let made = Self { folder: TempDir::new().unwrap(), results };
        made.put("r.results.parquet", &made.results);
        made.run(&["plan", "r.results.parquet", "--out", "p.plan.json", "--policy", policy]).done();
        made
    }

    /// With a policy that asks for one signature.
    fn to_be_signed() -> Self {
        let made = Self::new("paper");
        let mut policy = serde_json::to_value(made.plan().policy).unwrap();
        policy["approval"] = json!({"approvers": 1});
        fs::write(made.path("signed.json"), policy.to_string()).unwrap();
        made.run(&["plan", "r.results.parquet", "--out", "p.plan.json", "--policy", "signed.json"]).done();
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, results: &Results) {
        write_results(&self.path(name), results).unwrap();
    }

    fn run(&self, args: &[&str]) -> ProgramRun {
        run_in(self.folder.path(), args)
    }

    fn check(&self, more: &[&str]) -> ProgramRun {
        self.run(&[&["check", "p.plan.json", "--results", "r.results.parquet"], more].concat())
    }

    fn plan(&self) -> Plan {
        Plan::from_json(&fs::read_to_string(self.path("p.plan.json")).unwrap()).unwrap()
    }

    fn write_plan(&self, plan: &Plan) {
        fs::write(self.path("p.plan.json"), plan.to_json()).unwrap();
    }

    /// Rules of what failed, and of what warned.
    #[track_caller]
    fn found(&self, more: &[&str]) -> [Vec<String>; 2] {
        let run = self.check(&[more, &["--json"]].concat());
        let mut objects = run.objects();
        let summary = objects.pop().unwrap();
        let of = |word: &str| -> Vec<String> {
            let those = objects.iter().filter(|finding| finding["severity"] == word);
            those.map(|finding| finding["rule"].as_str().unwrap().to_owned()).collect()
        };
        let (fails, warns) = (of("fails"), of("warns"));
        assert_eq!(summary["num_failed"], fails.len());
        assert_eq!(run.code, Some(i32::from(!fails.is_empty())), "{run:?}");
        [fails, warns]
    }
}

fn now() -> Moment {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Moment::of_seconds(i64::try_from(since.as_secs()).unwrap())
}

fn days_ago(days: i64) -> String {
    Moment(now().0 - days * 86_400_000).to_string()
}

#[test]
fn results_expire_by_age_driver_and_device() {
    let made = GateFiles::new("paper");
    let none: [Vec<String>; 2] = Default::default();
    assert_eq!(made.found(&[]), none);
    assert_eq!(made.found(&["--max-age", "11", "--driver", "570.10", "--device", big::DEVICE]), none);
    let rule = |more: &[&str]| made.found(more)[0].join(" ");
    assert_eq!(rule(&["--max-age", "9"]), "results/expired");
    assert_eq!(rule(&["--driver", "580.1"]), "results/driver");
    assert_eq!(rule(&["--driver", "same-as-here"]), "results/driver");
    assert_eq!(rule(&["--device", "NVIDIA H200"]), "results/device");
    let text = made.check(&["--driver", "580.1", "--max-age", "1"]).stdout;
    assert!(text.contains("fails: the results are 10 days old ("), "{text}");
    assert!(text.contains("fails: the results are of driver 570.10, driver 580.1 is asked for\n"), "{text}");
    assert!(text.ends_with("2 reasons why the plan must not ship: p.plan.json\n"), "{text}");
}

#[test]
fn signatures_are_asked_for_and_looked_into() {
    let made = GateFiles::to_be_signed();
    let [fails, _] = made.found(&[]);
    assert_eq!(fails, ["plan/draft", "approval/keys", "approval/missing"]);
    let key = SecretKey::new("Al", &[7; 32]).unwrap();
    let ring = |name: &str| {
        let people = vec![Keyed { name: name.to_owned(), key: key.public(), role: Role::Approver }];
        fs::write(made.path("keys.json"), KeyRing::new(people).unwrap().to_json()).unwrap();
    };
    ring("Al");
    assert_eq!(made.found(&["--keys", "keys.json"])[0], ["plan/draft", "approval/missing"]);
    let mut plan = made.plan();
    let (digest, review_digest, note) = (plan.digest.clone(), plan.review_digest(), String::new());
    let (name, role) = ("Al".to_owned(), Role::Approver);
    plan.approvals.push(Approval::sign(Statement { digest, review_digest, name, role, at: now(), note }, &key));
    // As `loka approve` does.
    plan.draft = None;
    made.write_plan(&plan);
    let none: [Vec<String>; 2] = Default::default();
    assert_eq!(made.found(&["--keys", "keys.json"]), none);
    assert_eq!(made.found(&[])[0], ["approval/keys"], "an unknown key is nobody's");
    assert_eq!(made.found(&["--keys", "keys.json", "--approvals", "2"])[0], ["approval/missing"]);
    assert_eq!(made.found(&["--approvals", "none"]), none);
    ring("Eve");
    assert_eq!(
        made.found(&["--keys", "keys.json"]),
        [vec!["approval/missing".to_owned()], vec!["approval/signature".to_owned()]]
    );
    plan.draft = Some("no".to_owned());
    made.write_plan(&plan);
    assert_eq!(made.found(&["--approvals", "none"])[0], ["plan/draft"]);
    fs::write(made.path("keys.json"), "{}").unwrap();
    assert!(made.check(&["--keys", "keys.json"]).refused().ends_with(": keys.json"));
}

#[test]
fn a_plan_is_held_to_the_policy_of_whoever_asks() {
    // Somebody lets their own plan off: every error is within a bound that they chose themselves.
    let made = GateFiles::new("paper");
    let mut policy = serde_json::to_value(made.plan().policy).unwrap();
    policy["max_error"] = json!(0.9);
    fs::write(made.path("lax.json"), policy.to_string()).unwrap();
    made.run(&["plan", "r.results.parquet", "--out", "p.plan.json", "--policy", "lax.json"]).done();
    let none: [Vec<String>; 2] = Default::default();
    assert_eq!(made.found(&[]), none);
    assert_eq!(made.found(&["--policy", "paper"])[0], ["policy/pinned"]);
    let text = made.check(&["--policy", "paper"]).stdout;
    let said = "fails: the plan was made by another policy than 'paper': max_error is 0.9, not 0.2\n";
    assert!(text.contains(said), "{text}");
    // A name alone is nothing that a plan keeps to.
    policy["name"] = json!("another name");
    fs::write(made.path("renamed.json"), policy.to_string()).unwrap();
    assert_eq!(made.found(&["--policy", "renamed.json"]), none);
    policy["approval"] = json!({"approvers": 2});
    fs::write(made.path("signed.json"), policy.to_string()).unwrap();
    let text = made.check(&["--policy", "signed.json"]).stdout;
    assert!(text.contains("approval is none, not {\"approvers\":2"), "{text}");
    assert!(made.check(&["--policy", "absent.json"]).refused().ends_with(": absent.json"));
    assert!(made.check(&["--policy", "papr"]).refused().contains("unknown policy 'papr'"));
}

#[test]
fn coverage_is_asked_for_and_weighed() {
    let made = GateFiles::new("paper");
    let mut less = made.results.clone();
    let site = less.meta.manifest.sites[2].id.clone();
    less.rows.retain(|row| row.site != site);
    less.meta.problems.push((site.clone(), "input.cov is not symmetric".to_owned()));
    made.put("r.results.parquet", &less);
    made.run(&["plan", "r.results.parquet", "--out", "p.plan.json", "--policy", "paper"]).done();
    let [fails, warns] = made.found(&[]);
    assert_eq!((fails.join(" "), warns.len()), ("coverage/share coverage/rows".to_owned(), 0));
    let text = made.check(&[]).stdout;
    assert!(text.contains("fails: 83.3 % of the GEMMs are covered (15 of 18), 100 % are asked for\n"), "{text}");
    let line = format!("fails: {site}: not probed, input.cov is not symmetric (fprop, dgrad, wgrad)\n");
    assert!(text.contains(&line), "{text}");
    let enough = [vec![], vec!["coverage/rows".to_owned()]];
    assert_eq!(made.found(&["--coverage", "83"]), enough);
    assert_eq!(made.found(&["--coverage", "83%"]), enough);
}

/// A plan whose first FP8 choice is unsafe by now.
fn broken() -> (GateFiles, String) {
    let made = GateFiles::new("paper");
    let plan = made.plan();
    let low = |kernel: &KernelId| kernel.as_str() != "cublaslt/bf16";
    let (site, gemm, choice) = plan.choices().find(|(.., choice)| low(&choice.kernel)).unwrap();
    let mut worse = made.results.clone();
    for row in worse.rows.iter_mut().filter(|row| row.site == *site && row.gemm == gemm && row.kernel == choice.kernel)
    {
        let mere = &mut row.error.as_mut().unwrap().mere;
        (mere.value, mere.lo, mere.hi) = (0.5, 0.45, 0.55);
    }
    made.put("worse.results.parquet", &worse);
    let place = format!("{site}:{gemm}");
    (made, place)
}

#[test]
fn sarif_has_what_code_scanning_needs() {
    let (made, place) = broken();
    let args = ["check", "p.plan.json", "--results", "worse.results.parquet", "--format", "sarif", "--out", "s.sarif"];
    let run = made.run(&args);
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.contains("fails: the plan was made from other results"), "text here, SARIF there: {run:?}");
    let sarif: Value = serde_json::from_str(&fs::read_to_string(made.path("s.sarif")).unwrap()).unwrap();
    assert_eq!((sarif["version"].as_str(), sarif["runs"].as_array().unwrap().len()), (Some("2.1.0"), 1));
    let run = &sarif["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    assert_eq!(run["tool"]["driver"]["name"], "LoKA");
    assert!(rules.iter().all(|rule| rule["id"].is_string() && rule["shortDescription"]["text"].is_string()));
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    let plan: Vec<String> = fs::read_to_string(made.path("p.plan.json")).unwrap().lines().map(str::to_owned).collect();
    for result in results {
        let at = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[at]["id"], result["ruleId"]);
        assert!(result["message"]["text"].is_string() && result["level"] == "error");
        let physical = &result["locations"][0]["physicalLocation"];
        assert_eq!(physical["artifactLocation"]["uri"], "p.plan.json");
        assert!(physical["region"]["startLine"].as_u64().unwrap() >= 1);
        assert!(result["partialFingerprints"].as_object().unwrap().values().all(Value::is_string));
    }
    let error = results.iter().find(|result| result["ruleId"] == "policy/error").unwrap();
    let location = &error["locations"][0];
    assert_eq!(location["logicalLocations"][0]["fullyQualifiedName"], place);
    let line = usize::try_from(location["physicalLocation"]["region"]["startLine"].as_u64().unwrap()).unwrap() - 1;
    let (site, gemm) = place.split_once(':').unwrap();
    assert_eq!(plan[line].trim(), format!("\"{gemm}\": {{"));
    let of_site = plan[..line].iter().rfind(|text| text.trim().starts_with("\"site\":")).unwrap();
    assert_eq!(of_site.trim(), format!("\"site\": \"{site}\","));
    // Nothing found is a document, too.
    let good = made.check(&["--format", "sarif"]).done();
    let sarif: Value = serde_json::from_str(&good.stdout).unwrap();
    assert_eq!(sarif["runs"][0]["results"], json!([]));
}

/// The value of an attribute in a tag.
fn attribute(tag: &str, name: &str) -> usize {
    let rest = tag.split(&format!(" {name}=\"")).nth(1).unwrap_or_else(|| panic!("no {name} in {tag}"));
    rest.split('"').next().unwrap().parse().unwrap()
}

#[test]
fn junit_counts_its_rules() {
    let (made, _) = broken();
    let run = made.run(&[
        "check",
        "p.plan.json",
        "--results",
        "worse.results.parquet",
        "--format",
        "junit",
        "--max-age",
        "9",
    ]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let tags = |name: &str| -> Vec<&str> {
        run.stdout.split('<').filter(|tag| tag.split([' ', '>', '/']).next() == Some(name)).collect()
    };
    let whole = tags("testsuites")[0];
    let (suites, cases) = (tags("testsuite"), tags("testcase"));
    assert_eq!((attribute(whole, "tests"), attribute(whole, "failures"), attribute(whole, "errors")), (24, 3, 0));
    assert_eq!((suites.len(), cases.len(), tags("failure").len()), (5, 24, 3));
    let sum = |name: &str| suites.iter().map(|suite| attribute(suite, name)).sum::<usize>();
    assert_eq!((sum("tests"), sum("failures")), (24, 3));
    // No budget, no policy, no signatures, driver or device were asked for.
    assert_eq!(tags("skipped").len(), 8);
    assert!(run.stdout.contains("classname=\"results/expired\""), "{}", run.stdout);
    assert!(run.stdout.contains("breaks the policy: MERE .5 (.45 to .55) &gt; .2"), "{}", run.stdout);
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let made = GateFiles::new("paper");
    for args in [
        &["--approvals", "0"][..],
        &["--approvals", "some"],
        &["--coverage", "101"],
        &["--coverage", "NaN"],
        &["--max-age", "-1"],
        &["--format", "xml"],
    ] {
        let run = made.check(args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}: {run:?}");
    }
    assert!(made.check(&["--json", "--format", "sarif"]).refused().contains("--out"));
    assert!(made.check(&["--format", "sarif", "--out", "absent/s.sarif"]).refused().ends_with(": absent/s.sarif"));
    made.check(&["--json", "--format", "junit", "--out", "j.xml"]).done().objects();
    assert!(fs::read_to_string(made.path("j.xml")).unwrap().starts_with("<?xml"));
}

#[test]
fn two_results_are_compared_with_the_reasons() {
    let (made, place) = broken();
    let same = made.run(&["diff", "r.results.parquet", "r.results.parquet", "--policy", "paper"]).done();
    assert_eq!(same.stdout, "the results say the same\n");
    let run = made.run(&["diff", "r.results.parquet", "worse.results.parquet", "--policy", "paper", "--json"]).done();
    let objects = run.objects();
    let of = |what: &str| objects.iter().filter(|line| line["what"] == what).collect::<Vec<_>>();
    let (verdicts, choices) = (of("verdict"), of("choice"));
    assert_eq!((verdicts.len(), of("error").len(), of("latency").len(), of("kernel").len()), (1, 1, 0, 0), "{run:?}");
    let named = |line: &Value| format!("{}:{}", line["site"].as_str().unwrap(), line["gemm"].as_str().unwrap());
    assert_eq!((named(verdicts[0]), &verdicts[0]["before"]), (place.clone(), &json!("safe")));
    assert_eq!((&verdicts[0]["after"], &verdicts[0]["near_tie"]), (&json!("unsafe"), &json!(false)));
    assert!(choices.iter().any(|line| named(line) == place && line["cause"] == "error"), "{run:?}");
    let summary = objects.last().unwrap();
    assert_eq!((&summary["num_verdicts"], &summary["whole"]), (&json!(1), &json!([])));
    let text = made.run(&["diff", "r.results.parquet", "worse.results.parquet", "--policy", "paper"]).done().stdout;
    assert!(text.contains("safe → unsafe") && text.contains("1 verdicts flipped, 1 errors and 0 latencies"), "{text}");
    // Under a policy that bounds another metric nothing flipped.
    let other = made.run(&["diff", "r.results.parquet", "worse.results.parquet", "--policy", "rel-l2", "--json"]);
    assert_eq!(other.done().objects().last().unwrap()["num_verdicts"], 0);
}

#[test]
fn two_runs_are_compared_and_two_kinds_are_not() {
    let made = GateFiles::new("paper");
    let mut run = made.results.clone();
    run.meta.trace_digest = "sha256:another".to_owned();
    run.meta.manifest.run.step += 1000;
    let timed = run.rows.iter().position(|row| row.gemm == Gemm::Fprop && row.latency.latency_us.is_some()).unwrap();
    let latency = &mut run.rows[timed].latency;
    let slower = |us: &mut Option<f64>| *us = us.map(|us| 3.0 * us);
    [&mut latency.latency_us, &mut latency.latency_lo_us, &mut latency.latency_hi_us].into_iter().for_each(slower);
    made.put("run.results.parquet", &run);
    let text = made.run(&["diff", "r.results.parquet", "run.results.parquet", "--policy", "paper"]).done().stdout;
    assert!(text.starts_with("another trace: sha256:another instead of sha256:"), "{text}");
    assert!(text.contains("\nanother run: made-up, step 7000 instead of made-up, step 6000\n"), "{text}");
    assert!(text.contains("3.00 times as long"), "{text}");
    for (args, file) in [
        (["r.results.parquet", "p.plan.json"], "p.plan.json"),
        (["p.plan.json", "r.results.parquet"], "r.results.parquet"),
    ] {
        let line = made.run(&["diff", args[0], args[1]]).refused();
        assert!(line.contains("compared with") && line.ends_with(&format!(": {file}")), "{line}");
    }
    let mods = made.run(&["diff", "r.results.parquet", "r.results.parquet", "--mods", "no_bias"]).refused();
    assert!(mods.starts_with("loka: the results have no rows with mods 'no_bias'"), "{mods}");
    let policy = made.run(&["diff", "p.plan.json", "p.plan.json", "--policy", "paper"]).refused();
    assert!(policy.contains("are for results"), "{policy}");
    // By its content, whatever its name.
    fs::copy(made.path("run.results.parquet"), made.path("run")).unwrap();
    assert_eq!(made.run(&["diff", "r.results.parquet", "run", "--policy", "paper"]).done().stdout, text);
}
