//! Reports from the binary, and that their heatmap and quadrant are the workbench's.

use std::{fs, path::Path};

use loka_core::{
    dispatch::{Override, Overrides, Policy},
    model::{Gemm, KernelId, Metric, Moment, Results, SiteMods},
    plan::{Plan, build, standing},
    report::{Sheet, Source, entries},
    review::{Approval, ApprovalRule, KeyRing, Keyed, Role, SecretKey, Statement},
    session::{Command, Event, Session},
    tables::write_results,
    views::{Filter, Grid, Mark, ShownColumn, ViewQuery, Views, by_module},
};
use loka_tests::{big, run_in};

const AT: &str = "2026-11-20T12:00:00Z";
const KEPT: &str = "cublaslt/bf16";

fn overrides(results: &Results) -> Overrides {
    let site = |at: usize| results.meta.manifest.sites[at].id.clone();
    let by_hand = |reason: &str| Override { kernel: KernelId::new(KEPT), reason: reason.to_owned() };
    [
        ((site(3), Gemm::Fprop), by_hand("first layer <b>& nothing else</b>")),
        ((site(9), Gemm::Wgrad), by_hand("loss spikes at step 900")),
    ]
    .into()
}

fn plan(results: &Results, policy: &Policy) -> Plan {
    build(results, policy, &SiteMods::none(), &overrides(results), "ranker", AT).unwrap().plan
}

fn views(results: Results, policy: &Policy) -> Views {
    let overrides = overrides(&results);
    let mut session = Session::default();
    session.event(Event::ResultsOpened { path: "r.results.parquet".to_owned(), results: Box::new(results.into()) });
    session.command(Command::SetPolicy { policy: policy.clone() }).unwrap();
    for ((site, gemm), Override { kernel, reason }) in overrides {
        session.command(Command::SetOverride { site, gemm, kernel, reason }).unwrap();
    }
    let question = ViewQuery { metric: policy.metric, gemm: None, relative: false, versus: false };
    Views::of(&session.snapshot().unwrap(), question, &Views::default())
}

#[test]
fn the_heatmap_and_the_quadrant_are_the_workbenchs() {
    for policy in [Policy::paper(), Policy { metric: Metric::SqnrDb, max_error: 30.0, ..Policy::paper() }] {
        let results = big::results(40, 7);
        let plan = plan(&results, &policy);
        let source = Source::new(&plan, Some(&results), standing(&plan, None, None)).unwrap();
        let all = entries(&source);
        let sheet = Sheet::of(&plan, &all);
        let views = views(results.clone(), &policy);
        let (ours, theirs) = (&sheet.grid, &views.grid);
        assert_eq!(ours.columns, theirs.columns, "the same kernels in the same order");
        assert_eq!(sheet.columns, ShownColumn::all(theirs, &Filter::default(), |_| false), "the same columns");
        assert_eq!((ours.num_sites, &ours.marks, ours.bound), (theirs.num_sites, &theirs.marks, theirs.bound));
        let bits = |grid: &Grid| grid.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(ours), bits(theirs));
        assert_eq!((ours.range, ours.low_range), (theirs.range, theirs.low_range));
        let num_values = ours.marks.iter().filter(|mark| mark.has(Mark::VALUE)).count();
        assert!(num_values > 500, "{num_values}");
        // Few sites are a row each, in the order of the workbench's list.
        let order: Vec<u32> = sheet.rows.iter().flat_map(|row| row.sites.iter().copied()).collect();
        let ids: Vec<_> = plan.sites.iter().map(|site| site.site.clone()).collect();
        assert_eq!((order, sheet.folded()), (by_module(&ids), 1));
        let points = &views.quadrant.points;
        let placed = all.iter().filter(|of| of.low && of.supported && of.error.is_some() && of.speedup.is_some());
        let ours: Vec<_> =
            placed.map(|of| (of.site, of.gemm, KernelId::new(of.kernel()), of.quadrant, of.chosen.is_some())).collect();
        let theirs: Vec<_> = points
            .iter()
            .map(|of| (of.site, of.gemm, views.quadrant.kernel(of.kernel).unwrap().clone(), of.quadrant, of.chosen))
            .collect();
        assert_eq!(ours, theirs);
    }
}

fn signed(plan: &Plan, key: &SecretKey, role: Role) -> Approval {
    let (digest, review_digest, at) = (plan.digest.clone(), plan.review_digest(), Moment::parse(AT).unwrap());
    let (name, note) = (key.name.clone(), "go".to_owned());
    Approval::sign(Statement { digest, review_digest, name, role, at, note }, key)
}

fn written(folder: &Path) -> Plan {
    let results = big::results(40, 7);
    let mut plan = plan(&results, &Policy { approval: Some(ApprovalRule::of(1)), ..Policy::paper() });
    plan.release = Some(2);
    plan.stamp(AT.to_owned());
    let anna = SecretKey::new("Anna", &[5; 32]).unwrap();
    plan.approvals = vec![signed(&plan, &anna, Role::Approver)];
    let person =
        |key| KeyRing::new(vec![Keyed { name: "Anna".to_owned(), key, role: Role::Approver }]).unwrap().to_json();
    fs::write(folder.join("keys.json"), person(anna.public())).unwrap();
    let eve = SecretKey::new("Anna", &[6; 32]).unwrap();
    fs::write(folder.join("others.json"), person(eve.public())).unwrap();
    fs::write(folder.join("p.plan.json"), plan.to_json()).unwrap();
    write_results(&folder.join("r.results.parquet"), &results).unwrap();
    write_results(&folder.join("other.results.parquet"), &big::results(40, 8)).unwrap();
    plan
}

#[test]
fn the_binary_writes_both_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let plan = written(folder.path());
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let all = ["report", "p.plan.json", "--results", "r.results.parquet", "--keys", "keys.json", "--out"];
    let run = run_in(folder.path(), all.into_iter().chain(["r.html"])).done();
    assert_eq!(run.stdout, "report written: r.html\n");
    let page = read("r.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    for part in ["Approved, release 2", "held against a list of keys", "&lt;b&gt;&amp; nothing else", &plan.digest] {
        assert!(page.contains(part), "{part}");
    }
    run_in(folder.path(), all.into_iter().chain(["again.html"])).done();
    assert_eq!(page, read("again.html"), "the same bytes");
    let told = run_in(folder.path(), ["report", "p.plan.json", "--out", "r.md", "--json"]).done();
    assert_eq!(told.objects()[0]["digest"], plan.digest.as_str());
    assert!(read("r.md").contains("`first layer <b>& nothing else</b>"));
    let odd = ["report", "p.plan.json", "--out", "r.txt", "--format", "markdown", "--keys", "others.json"];
    run_in(folder.path(), odd).done();
    assert!(
        read("r.txt").contains("Not approved: 0 of 1 approval")
            && read("r.txt").contains("no: `the key is not in the list")
    );
}

#[test]
fn bad_use_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let refused = |args: &[&str]| run_in(folder.path(), [&["report", "p.plan.json", "--out"], args].concat()).refused();
    assert!(refused(&["r.pdf"]).ends_with("neither .html nor .md, and no --format was given: r.pdf"));
    let other = refused(&["r.html", "--results", "other.results.parquet"]);
    assert!(
        other.starts_with("loka: the plan was made from other results: sha256:")
            && other.ends_with("other.results.parquet"),
        "{other}"
    );
    assert!(refused(&["r.html", "--keys", "p.plan.json"]).starts_with("loka: not a list of keys: "));
    assert!(refused(&["no/r.html"]).ends_with("no such folder: no/r.html"));
    assert!(!folder.path().join("r.html").exists());
}
