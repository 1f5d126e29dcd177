//! Views of made-up rows: what each cell, point and verdict says, and what is kept between two looks.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use crate::{
    dispatch::{
        ChoiceSource, Dispatch, Document, Override, Policy, dispatch,
        testing::{every_kind_of_row, results, row},
    },
    model::{Estimate, Gemm, KernelId, Metric, ModKind, ModSet, ResultRow, Results, Runtime, SiteId, SiteRows},
    session::{Command, Event, Session},
};

use super::{Cell, Column, Mark, PlanView, Snapshot, ViewQuery, Views, cell, derivation::by_parts};

const FAST: &str = "cublaslt/fp8-rowwise+fast";
const OTHER: &str = "te/current";
const QUESTION: ViewQuery = ViewQuery { metric: Metric::Mere, gemm: None, relative: false, versus: false };

pub(super) fn opened(rows: Vec<ResultRow>, sites: &[&str]) -> Session {
    let mut session = Session::by_paper();
    let results: Results = results(sites, rows);
    let path = "made.results.parquet".to_owned();
    session.event(Event::ResultsOpened { path, results: Box::new(results.into()) });
    session
}

pub(super) fn views(session: &Session) -> Views {
    Views::of(&session.snapshot().unwrap(), QUESTION, &Views::default())
}

fn two_sites() -> Session {
    opened(
        vec![
            row("a", Gemm::Fprop, FAST, 0.1, Some(1.3), 1e-7),
            row("a", Gemm::Fprop, OTHER, 0.4, Some(1.5), 1e-7),
            row("b", Gemm::Dgrad, FAST, 0.2, None, 0.0),
        ],
        &["a", "b"],
    )
}

/// By site: the kernels that stand for their recipe at fprop.
fn best(views: &Views, site: usize) -> Vec<&str> {
    let (_, marks) = views.grid.row(site);
    let of = views.grid.columns.iter().zip(marks);
    of.filter(|(of, mark)| of.gemm == Gemm::Fprop && mark.has(Mark::BEST)).map(|(of, _)| of.kernel.as_str()).collect()
}

#[test]
fn the_best_of_a_recipe_is_what_the_plan_runs_or_else_the_fastest() {
    let alike = [FAST, "fbgemm/rowwise"];
    let rows = |(site, speeds): (&'static str, [Option<f64>; 2])| {
        let row = move |(kernel, speed): (&str, Option<f64>)| row(site, Gemm::Fprop, kernel, 0.1, speed, 1e-7);
        alike.into_iter().zip(speeds).map(row)
    };
    let speeds =
        [("a", [Some(1.2), Some(1.3)]), ("b", [Some(0.9), Some(0.8)]), ("c", [None, Some(0.8)]), ("d", [None, None])];
    let mut session = opened(speeds.into_iter().flat_map(rows).collect(), &["a", "b", "c", "d"]);
    let first = views(&session);
    let bf16 = "cublaslt/bf16";
    assert_eq!(best(&first, 0), [bf16, alike[1]], "chosen");
    assert_eq!(best(&first, 1), [bf16, alike[0]], "the fastest, though BF16 is faster");
    assert_eq!(best(&first, 2), [bf16, alike[1]], "the one whose time is known");
    assert_eq!(best(&first, 3), [bf16, alike[0]], "the first");
    let by_hand = Command::SetOverrides {
        at: vec![(SiteId::new("a"), Gemm::Fprop)],
        kernel: KernelId::new(alike[0]),
        reason: "known".to_owned(),
    };
    session.command(by_hand).unwrap();
    let then = Views::of(&session.snapshot().unwrap(), QUESTION, &first);
    assert_eq!(best(&then, 0), [bf16, alike[0]], "by hand");
    assert_eq!(then.grid.marks, views(&session).grid.marks, "as if nothing had been known");
}

#[test]
fn the_grid_has_a_cell_for_everything() {
    let session = two_sites();
    let views = views(&session);
    let grid = &views.grid;
    assert_eq!((grid.num_sites, grid.values.len()), (2, 2 * grid.columns.len()));
    let at = |site: usize, gemm, kernel: &str| {
        let column = Column { gemm, kernel: KernelId::new(kernel) };
        grid.place(site, grid.columns.iter().position(|of| *of == column).unwrap())
    };
    let safe = at(0, Gemm::Fprop, FAST);
    assert_eq!(grid.values[safe], 0.1);
    assert!(grid.marks[safe].has(Mark::CHOSEN) && !grid.marks[safe].has(Mark::UNSAFE));
    let unsafe_one = at(0, Gemm::Fprop, OTHER);
    assert!(grid.marks[unsafe_one].has(Mark::UNSAFE) && !grid.marks[unsafe_one].has(Mark::CHOSEN));
    assert!(grid.marks[at(1, Gemm::Dgrad, FAST)].has(Mark::UNCERTAIN));
    let waiting = at(1, Gemm::Fprop, FAST);
    assert_eq!(grid.marks[waiting], Mark::WAITING);
    assert!(grid.values[waiting].is_nan());
    assert_eq!(grid.bound, Some(0.2));
}

#[test]
fn a_point_needs_an_error_and_a_speed() {
    let views = views(&two_sites());
    assert_eq!((views.quadrant.points.len(), views.quadrant.unplaced.len()), (2, 1));
}

#[test]
fn verdicts_and_the_worst_site() {
    let views = views(&two_sites());
    assert_eq!((views.verdicts[0].num_safe_fast, views.verdicts[0].num_known()), (1, 1));
    assert_eq!(views.verdicts[1].num_uncertain, 1);
    let worst = views.worst.unwrap();
    assert_eq!((worst.site.as_str(), worst.gemm), ("b", Gemm::Dgrad));
}

#[test]
fn another_question_keeps_the_plan() {
    let session = two_sites();
    let first = views(&session);
    let metric = Metric::RelL2;
    let other = Views::of(&session.snapshot().unwrap(), ViewQuery { metric, ..QUESTION }, &first);
    assert!(std::sync::Arc::ptr_eq(&first.plan, &other.plan));
    assert!(std::sync::Arc::ptr_eq(&first.quadrant, &other.quadrant));
    assert_ne!(first.grid, other.grid);
}

#[test]
fn a_missing_value_says_why() {
    let mut unsupported = row("a", Gemm::Wgrad, FAST, 0.1, None, 0.0);
    (unsupported.supported, unsupported.reason) = (false, Some("n is not a multiple of 16".into()));
    let session = opened(vec![unsupported], &["a"]);
    let column = |gemm| Column { gemm, kernel: KernelId::new(FAST) };
    let at = |gemm| cell(&session.snapshot().unwrap(), &SiteId::new("a"), &column(gemm), Metric::Mere, false);
    assert_eq!(at(Gemm::Wgrad), Cell::Missing { reason: "n is not a multiple of 16".to_owned() });
    assert_eq!(at(Gemm::Fprop), Cell::Waiting);
}

#[test]
fn mods_at_one_site_show_its_own_rows() {
    let none = row("a", Gemm::Fprop, FAST, 0.3, Some(1.3), 0.0);
    let mods = ModSet([ModKind::BlockNorm].into());
    let with = ResultRow { mods, ..row("a", Gemm::Fprop, FAST, 0.1, Some(1.3), 0.0) };
    let mut session = opened(vec![none, with], &["a", "b"]);
    let sites = vec![SiteId::new("a")];
    session.command(Command::SetMod { kind: ModKind::BlockNorm, on: true, sites }).unwrap();
    let kernel = KernelId::new(FAST);
    let error = |row: Option<&ResultRow>| row.unwrap().metric(Metric::Mere).unwrap().value;
    assert_eq!(error(session.row(&SiteId::new("a"), Gemm::Fprop, &kernel)), 0.1);
    assert_eq!(error(session.row_before(&SiteId::new("a"), Gemm::Fprop, &kernel)), 0.3);
    session.command(Command::Undo).unwrap();
    assert_eq!(error(session.row(&SiteId::new("a"), Gemm::Fprop, &kernel)), 0.3);
}

#[test]
fn a_policy_change_is_seen() {
    let mut session = two_sites();
    let before = views(&session);
    session.command(Command::SetPolicy { policy: Policy { max_error: 0.5, ..Policy::paper() } }).unwrap();
    let after = Views::of(&session.snapshot().unwrap(), QUESTION, &before);
    assert_eq!(after.verdicts[1].num_safe, 1, "safe, and its speed is not known");
    assert_eq!(after.plan.pick_at(0, Gemm::Fprop).unwrap().kernel.as_str(), OTHER, "the faster one is safe now");
}

/// The baseline runs everywhere, whether it was probed there or not.
#[test]
fn what_is_on_screen_is_what_is_exported() {
    let session = two_sites();
    let mut snapshot = (*session.snapshot().unwrap()).clone();
    for (site, gemm, kernel) in [("a", Gemm::Fprop, OTHER), ("b", Gemm::Wgrad, "cublaslt/bf16")] {
        let wanted = Override { kernel: KernelId::new(kernel), reason: "tried".to_owned() };
        snapshot.document.overrides.insert((SiteId::new(site), gemm), wanted);
    }
    let Document { policy, runtime, mods, overrides } = &snapshot.document;
    let results = session.results().unwrap();
    let plan = crate::plan::build_for(*runtime, &results, policy, mods, overrides, ("p", "")).unwrap().plan;
    let view = PlanView::of(&snapshot);
    let decided = view.decided.as_ref().unwrap();
    let gemms = (0..2).flat_map(|at| Gemm::ALL.map(|gemm| (at, gemm)));
    let shown = gemms.map(|(at, gemm)| view.choice_at(&snapshot, at, gemm).unwrap());
    assert!(shown.eq(plan.choices().map(|(.., choice)| choice)));
    assert_eq!((decided.totals, view.num_waiting_overrides), (plan.totals, 0));
    assert_eq!(decided.picks().filter(|of| of.source == ChoiceSource::Override).count(), 2);
}

/// Whatever was looked at before, and whatever is kept of it.
#[test]
fn what_is_kept_is_what_would_be_made_anew() {
    let mut session = Session::by_paper();
    let results = Box::new(every_kind_of_row().into());
    session.event(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results });
    let first = session.snapshot().unwrap();
    let mut documents = Vec::new();
    for name in Policy::BUILTIN {
        let policy = Policy::builtin(name).unwrap();
        for (times, min_speedup) in [(1.0, policy.min_speedup), (1.3, policy.min_speedup), (0.4, 1.02)] {
            let (max_error, budget) = (times * policy.max_error, policy.loss_budget.map(|budget| times * budget));
            let policy = Policy { max_error, min_speedup, loss_budget: budget, ..policy.clone() };
            documents.push(Document { policy, ..first.document.clone() });
        }
    }
    let wanted = |kernel: &str| Override { kernel: KernelId::new(kernel), reason: "tried".to_owned() };
    for (site, kernel) in [("s3", "cublaslt/bf16"), ("s7", "te/current"), ("s9", "fbgemm/rowwise")] {
        let mut last = documents.last().unwrap().clone();
        last.overrides.insert((SiteId::new(site), Gemm::Fprop), wanted(kernel));
        documents.push(last);
    }
    for runtime in [Runtime::Graph, Runtime::Inference] {
        documents.push(Document { runtime, ..documents.last().unwrap().clone() });
    }
    let fprop = ViewQuery { gemm: Some(Gemm::Fprop), ..QUESTION };
    let mut kept = Views::default();
    for (at, document) in documents.into_iter().rev().enumerate() {
        let mut snapshot = Snapshot::clone(&first);
        let revision = first.revision + 1 + at as u64;
        (snapshot.revision, snapshot.decided_revision, snapshot.document) = (revision, revision, document);
        if at % 3 == 1 {
            // Rows of one site come again, with other errors.
            let mut rows = snapshot.rows[at].as_ref().unwrap().all().to_vec();
            rows.iter_mut().filter_map(|row| row.error.as_mut()).for_each(|error| error.mere = Estimate::exact(0.15));
            snapshot.rows[at] = Some(Arc::new(SiteRows::from(rows)));
        }
        let snapshot = Arc::new(snapshot);
        for question in [QUESTION, ViewQuery { relative: true, ..QUESTION }, fprop, QUESTION] {
            let in_parts = by_parts(&snapshot, question, &kept);
            kept = Views::of(&snapshot, question, &kept);
            let anew = Views::of(&snapshot, question, &Views::default());
            // As text: no number is not equal to itself.
            let text =
                |of: &Views| format!("{:?} {:?}", (&of.grid, &of.standings, &of.quadrant), (&of.plan.decided, &of.now));
            assert_eq!(text(&kept), text(&anew), "{at} {question:?}");
            assert_eq!(format!("{in_parts:?}"), format!("{kept:?}"), "{at} {question:?}");
            assert_eq!((&kept.table, &kept.answer), (&anew.table, &anew.answer));
            assert_eq!((&kept.findings, &kept.verdicts, &kept.worst), (&anew.findings, &anew.verdicts, &anew.worst));
        }
        let decided = dispatched(&snapshot);
        for (place, choice) in decided.choices.iter().enumerate() {
            assert_eq!(kept.choice_at(place / 3, Gemm::ALL[place % 3]), Some(choice), "{at}");
        }
    }
}

fn dispatched(snapshot: &Snapshot) -> Dispatch {
    let (candidates, Document { policy, overrides, .. }) = (snapshot.candidates(), &snapshot.document);
    dispatch(&candidates, policy, &candidates.ready(overrides, &policy.baseline), snapshot.loss()).unwrap()
}
