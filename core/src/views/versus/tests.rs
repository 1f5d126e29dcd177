//! What changed against a baseline, with numbers made by hand: BF16 takes 100 µs and has an error of .003 everywhere.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use crate::{
    dispatch::{
        Policy,
        testing::{every_kind_of_row, results, row},
    },
    model::{Gemm, KernelId, Metric, ModKind, ModSet, ResultRow, SiteId},
    session::{BaselineOf, Command, Event, Session},
    views::{
        Cell, Column, Mark, NOT_IN_BASELINE, PlanColumn, ViewQuery, Views, cell_versus, derivation::by_parts,
        tests::opened,
    },
};

const FAST: &str = "cublaslt/fp8-rowwise+fast";
const BF16: &str = "cublaslt/bf16";
const QUESTION: ViewQuery = ViewQuery { metric: Metric::Mere, gemm: None, relative: false, versus: true };

/// The policy takes FP8 forward at both sites: it saves 20 and 50 µs.
fn session() -> Session {
    let rows = vec![
        row("a", Gemm::Fprop, FAST, 0.1, Some(1.25), 2e-6),
        row("a", Gemm::Dgrad, FAST, 0.4, Some(1.6), 0.0),
        row("b", Gemm::Fprop, FAST, 0.1, Some(2.0), 1e-6),
    ];
    opened(rows, &["a", "b"])
}

fn views(session: &Session, last: &Views) -> Views {
    let snapshot = session.snapshot().unwrap();
    let views = Views::of(&snapshot, QUESTION, last);
    assert_eq!(format!("{:?}", by_parts(&snapshot, QUESTION, last)), format!("{views:?}"));
    views
}

fn set(session: &mut Session, gemm: Gemm, kernel: &str) {
    let (site, kernel, reason) = (SiteId::new("a"), KernelId::new(kernel), "by hand".to_owned());
    session.command(Command::SetOverride { site, gemm, kernel, reason }).unwrap();
}

fn column(gemm: Gemm, kernel: &str) -> Column {
    Column { gemm, kernel: KernelId::new(kernel) }
}

/// The grid's value and mark, and the cell's.
fn at(session: &Session, views: &Views, site: usize, column: &Column) -> (f32, Mark, Cell) {
    let place = views.grid.place(site, views.grid.columns.iter().position(|of| of == column).unwrap());
    let (snapshot, versus) = (session.snapshot().unwrap(), views.versus.as_ref().unwrap());
    let id = &snapshot.sites()[site].id;
    let cell = cell_versus(&snapshot, versus, id, column, Metric::Mere);
    (views.grid.values[place], views.grid.marks[place], cell)
}

#[test]
fn a_kept_plan_is_what_later_choices_are_seen_against() {
    let mut session = session();
    session.command(Command::SetBaseline { of: BaselineOf::Now }).unwrap();
    let first = views(&session, &Views::default());
    let versus = first.versus.as_ref().unwrap();
    assert_eq!(
        (versus.name.as_str(), versus.headline().as_str()),
        ("the plan kept", "Saves as much, no GEMM moved, same loss cost")
    );
    // 100 µs less 62.5.
    set(&mut session, Gemm::Dgrad, FAST);
    let second = views(&session, &first);
    let versus = second.versus.as_ref().unwrap();
    assert_eq!(versus.headline(), "Saves .0375 ms more, 1 GEMM moved, same loss cost");
    assert_eq!((versus.num_moved, versus.num_missing, versus.left_out()), (1, 0, None));
    let line = versus.line(0, Gemm::Dgrad).unwrap();
    assert_eq!((line.kernel.as_str(), line.moved, line.saved_us, line.delta_us), (BF16, true, Some(0.0), Some(37.5)));
    let line = versus.line(1, Gemm::Fprop).unwrap();
    assert_eq!((line.kernel.as_str(), line.moved, line.saved_us, line.delta_us), (FAST, false, Some(50.0), Some(0.0)));

    // Every kernel against what the baseline runs there.
    let moved = at(&session, &second, 0, &column(Gemm::Dgrad, FAST));
    assert!((moved.0 - 0.4 / 0.003).abs() < 1e-3 && moved.1.has(Mark::OVERRIDDEN));
    let Cell::Value { estimate, .. } = moved.2 else { panic!("{:?}", moved.2) };
    assert!((estimate.lo - 0.36 / 0.003).abs() < 1e-9, "the interval is that of now");
    assert_eq!(at(&session, &second, 0, &column(Gemm::Fprop, FAST)).0, 1.0);
    assert!((at(&session, &second, 0, &column(Gemm::Fprop, BF16)).0 - 0.03).abs() < 1e-7);
    assert_eq!(second.grid.bound, None, "the policy bounds errors, not what they are divided by");

    // One arrow: from BF16 to where FP8 is.
    let [arrow] = second.quadrant.arrows[..] else { panic!("{:?}", second.quadrant.arrows) };
    let places = [0.0, 0.003f64.log10(), 1.6f64.log10(), 0.4f64.log10()];
    for (place, expected) in [arrow.from[0], arrow.from[1], arrow.to[0], arrow.to[1]].into_iter().zip(places) {
        assert!((f64::from(place) - expected).abs() < 1e-6, "{arrow:?}");
    }
    // Back to high precision at another one: its arrow ends where BF16 is, and belongs to the point that it left.
    set(&mut session, Gemm::Fprop, BF16);
    let third = views(&session, &second);
    assert_eq!(third.versus.as_ref().unwrap().headline(), "Saves .0175 ms more, 2 GEMMs moved, loss cost −2e-6");
    let arrow = third.quadrant.arrows[0];
    assert!(arrow.to[0] == 0.0 && third.quadrant.points[arrow.point as usize].gemm == Gemm::Fprop);
}

#[test]
fn another_baseline_decides_nothing_anew() {
    let mut session = session();
    let first = views(&session, &Views::default());
    assert!(first.versus.is_none() && first.grid.bound == Some(0.2));
    set(&mut session, Gemm::Fprop, BF16);
    let before = views(&session, &first);
    session.command(Command::SetBaseline { of: BaselineOf::Now }).unwrap();
    let after = views(&session, &before);
    assert!(!Arc::ptr_eq(&first.plan, &before.plan) && Arc::ptr_eq(&before.plan, &after.plan));
    assert!(Arc::ptr_eq(&before.standings, &after.standings) && after.versus.is_some());
    assert_eq!(after.table.other.as_ref().unwrap().changes.unchanged, 6);
    session.command(Command::ClosePlan).unwrap();
    let closed = views(&session, &after);
    assert!(closed.versus.is_none() && closed.grid.marks == before.grid.marks && closed.table.other.is_none());
    assert_eq!(closed.revision, session.revision());
    // As if it had been derived in one go.
    assert_eq!(*closed.table, *views(&session, &Views::default()).table);
}

/// Whatever was decided by whichever policy: a session that was written down and read has the document instead.
#[test]
fn what_is_kept_is_compared_as_its_document_is() {
    let mut session = Session::by_paper();
    let results = Box::new(every_kind_of_row().into());
    session.event(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results });
    let mut last = views(&session, &Views::default());
    for (at, name) in Policy::BUILTIN.into_iter().enumerate() {
        session.command(Command::SetPolicy { policy: Policy::builtin(name).unwrap() }).unwrap();
        let (site, gemm, kernel) = (SiteId::new(&format!("s{}", 3 + at)), Gemm::Fprop, KernelId::new(BF16));
        session.command(Command::SetOverride { site, gemm, kernel, reason: "tried".to_owned() }).unwrap();
        if at % 2 == 0 {
            last = views(&session, &last);
        }
        session.command(Command::SetBaseline { of: BaselineOf::Now }).unwrap();
        let plan = session.other_plan.as_ref().unwrap().1.clone();
        assert_eq!(plan.document().sites, session.plan_now().unwrap().sites, "{name}");
        let mut read =
            Session::restored(postcard::from_bytes(&postcard::to_allocvec(&session.save()).unwrap()).unwrap());
        for max_error in [None, Some(0.9), Some(0.01)] {
            if let Some(value) = max_error {
                let command = Command::SetMaxError { value, gesture: None };
                [&mut session, &mut read].into_iter().for_each(|of| drop(of.command(command.clone())));
            }
            last = views(&session, &last);
            let anew = views(&read, &Views::default());
            assert_eq!((&last.versus, &last.table), (&anew.versus, &anew.table), "{name} {max_error:?}");
            // As text: no number is not equal to itself.
            let text = |of: &Views| format!("{:?}", (&of.grid, &of.quadrant, &of.plan.decided));
            assert_eq!(text(&last), text(&anew), "{name} {max_error:?}");
        }
        assert_eq!(session.save().digest(), read.save().digest());
    }
}

#[test]
fn what_other_results_lack_is_told_and_counted() {
    let mut session = session();
    let other = results(&["a"], vec![row("a", Gemm::Fprop, FAST, 0.05, Some(2.0), 0.0)]);
    session.event(Event::ResultsCompared { path: "runs/old.results.parquet".to_owned(), results: Box::new(other) });
    let views = views(&session, &Views::default());
    let versus = views.versus.as_ref().unwrap();
    assert_eq!(versus.name, "the results old.results.parquet");
    // 20 µs where there were 50; b is not there, so that its 50 µs are no gain.
    assert_eq!(versus.headline(), "Saves .03 ms less, no GEMM moved");
    assert_eq!(versus.left_out().as_deref(), Some("3 GEMMs are not in the baseline"));
    assert_eq!(versus.line(0, Gemm::Fprop).unwrap().delta_us, Some(-30.0));
    assert!(versus.line(1, Gemm::Fprop).is_none());
    let order = |reversed| views.table.order(&views.plan, Some(versus), (PlanColumn::Versus, reversed), |_| true);
    assert_eq!((order(false)[0], &order(false)[3..], order(true)[5]), (0, &[3, 4, 5][..], 0), "what is not there last");
    let (value, mark, _) = at(&session, &views, 0, &column(Gemm::Fprop, FAST));
    assert!(value == 2.0 && mark.has(Mark::CHOSEN));
    let missing = Cell::Missing { reason: NOT_IN_BASELINE.to_owned() };
    for (site, gemm) in [(1, Gemm::Fprop), (0, Gemm::Dgrad)] {
        let (value, mark, cell) = at(&session, &views, site, &column(gemm, FAST));
        assert!(value.is_nan() && mark.has(Mark::MISSING) && !mark.has(Mark::VALUE), "{site} {gemm}");
        assert_eq!(cell, missing);
    }
    // Whoever joins is sent the rows, too.
    let saved = postcard::from_bytes(&postcard::to_allocvec(&session.save()).unwrap()).unwrap();
    let joined = Session::restored(saved);
    let again = Views::of(&joined.snapshot().unwrap(), QUESTION, &Views::default());
    assert_eq!((&again.versus, &again.grid.marks), (&views.versus, &views.grid.marks));
    session.command(Command::ClosePlan).unwrap();
    assert_eq!(session.save().num_rows(), 9, "the other rows are forgotten");
}

#[test]
fn mods_are_compared_kernel_by_kernel() {
    let none = row("a", Gemm::Fprop, FAST, 0.3, Some(1.25), 0.0);
    let mods = ModSet([ModKind::BlockNorm].into());
    let with = |row: ResultRow| ResultRow { mods: mods.clone(), ..row };
    let norm = with(row("a", Gemm::Fprop, FAST, 0.1, Some(1.25), 0.0));
    let bf16 = with(row("a", Gemm::Fprop, BF16, 0.003, Some(1.0), 0.0));
    let mut session = opened(vec![none, norm, bf16], &["a"]);
    session.command(Command::ToggleMod { kind: ModKind::BlockNorm }).unwrap();
    session.command(Command::SetBaseline { of: BaselineOf::Mods { mods: ModSet::none() } }).unwrap();
    let views = views(&session, &Views::default());
    let versus = views.versus.as_ref().unwrap();
    assert_eq!((versus.name.as_str(), versus.by_kernel), ("the model without mods", true));
    // Unsafe without the mod, chosen with it; the gradients were not probed with it.
    assert_eq!(versus.headline(), "Saves .02 ms more, 1 GEMM moved");
    assert_eq!(versus.left_out().as_deref(), Some("2 GEMMs have no time in both"));
    assert!((at(&session, &views, 0, &column(Gemm::Fprop, FAST)).0 - 1.0 / 3.0).abs() < 1e-6);
    let [arrow] = views.quadrant.arrows[..] else { panic!("{:?}", views.quadrant.arrows) };
    assert!((f64::from(arrow.from[1]) - 0.3f64.log10()).abs() < 1e-6);
    assert!((f64::from(arrow.to[1]) - 0.1f64.log10()).abs() < 1e-6);
    let mods = ModSet([ModKind::NoBias].into());
    let refused = session.command(Command::SetBaseline { of: BaselineOf::Mods { mods } }).unwrap_err();
    assert_eq!(refused.to_string(), "the model with no bias was not probed: turn that on once to compare with it");
    let refused = session.command(Command::SetBaseline { of: BaselineOf::Submitted }).unwrap_err();
    assert_eq!(refused.to_string(), "nothing was submitted for approval");
}

#[test]
fn a_plan_of_another_trace_is_a_line_that_names_it() {
    let mut session = session();
    let mut plan = session.plan_now().unwrap();
    plan.trace_digest = "sha256:11".to_owned();
    session.event(Event::PlanOpened { path: "theirs.plan.json".to_owned(), plan: Box::new(plan) });
    let told = session.notices.last().map(|notice| notice.text.clone());
    assert_eq!(told.as_deref(), Some("this plan is of another trace: theirs.plan.json"));
    assert!(session.snapshot().unwrap().baseline.is_none());
}
