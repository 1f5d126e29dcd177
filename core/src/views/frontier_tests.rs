//! The frontier's curves and the quadrant's points of made-up rows: what adopting gives, what is kept, where
//! everything stands.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::{
    dispatch::{
        Policy,
        testing::{Dice, row},
    },
    model::{Gemm, KernelId, Metric, ModKind, ModSet, Quadrant, ResultRow, SiteId},
    session::{Command, Session},
    views::PlanView,
};

use super::{
    FrontierAxis, FrontierView, GroupBy, Shares,
    tests::{opened, views},
};

const FAST: &str = "cublaslt/fp8-rowwise+fast";
const OTHER: &str = "te/current";

fn many() -> Session {
    let mut dice = Dice::new(5);
    let sites: Vec<String> = (0..12).map(|at| format!("net.{}.l{at}", if at < 6 { "a" } else { "b" })).collect();
    let mut rows = Vec::new();
    for site in &sites {
        for gemm in Gemm::ALL {
            for kernel in [FAST, OTHER] {
                let (error, speedup) = (0.02 + 0.4 * dice.unit(), 0.8 + dice.unit());
                let cost = if gemm == Gemm::Fprop { 1e-6 + 1e-5 * dice.unit() } else { 0.0 };
                rows.push(row(site, gemm, kernel, error, Some(speedup), cost));
            }
        }
    }
    let names: Vec<&str> = sites.iter().map(String::as_str).collect();
    opened(rows, &names)
}

fn curves(session: &Session) -> FrontierView {
    FrontierView::of(&session.snapshot().unwrap(), &FrontierView::default())
}

#[test]
fn adopting_a_point_gives_its_speed_up_and_cost() {
    let mut session = many();
    let view = curves(&session);
    assert_eq!(view.curves.len(), Policy::BUILTIN.len());
    for curve in &view.curves {
        assert!(curve.points.len() > 5, "{}: {}", curve.policy.name, curve.points.len());
        for (at, point) in curve.points.iter().enumerate() {
            let policy = curve.policy_at(at).unwrap();
            session.command(Command::SetPolicy { policy }).unwrap();
            let totals = PlanView::of(&session.snapshot().unwrap()).decided.clone().unwrap().totals;
            assert!((totals.speedup.unwrap() - point.totals.speedup).abs() < 1e-9, "{} {at}", curve.policy.name);
            assert!((totals.loss_cost_hi.unwrap_or(0.0) - point.totals.loss_cost_hi).abs() < 1e-12);
            session.command(Command::Undo).unwrap();
        }
    }
    assert_eq!(session.document.policy, Policy::paper(), "each was one step");
}

#[test]
fn the_plan_of_now_stands_on_its_own_curve() {
    let mut session = many();
    let view = curves(&session);
    let policy = view.curves[0].policy_at(9).unwrap();
    session.command(Command::SetPolicy { policy }).unwrap();
    let (now, point) = (views(&session).now.unwrap(), view.curves[0].points[9].totals);
    assert!((now.speedup.value - point.speedup).abs() < 1e-9);
    assert_eq!(now.num_low_precision, point.num_low_precision);
    assert_eq!(now.worst_error.unwrap().value, point.worst_error.unwrap());
    let cost = now.cost(FrontierAxis::LossCost).unwrap();
    assert!((cost.hi - point.loss_cost_hi).abs() < 1e-12 && cost.value < cost.hi);
}

#[test]
fn only_what_changed_is_swept_again() {
    let mut session = many();
    let first = curves(&session);
    session.command(Command::SetMaxError { value: 0.31, gesture: None }).unwrap();
    let snapshot = session.snapshot().unwrap();
    let again = FrontierView::of(&snapshot, &first);
    assert_eq!(again, FrontierView::of(&snapshot, &FrontierView::default()), "kept and made anew are the same");
    assert_eq!(again.curves[0].points, first.curves[0].points);
    assert_eq!(again.curves[0].policy.max_error, 0.31);
    session.command(Command::SetMinSpeedup { value: 1.5, gesture: None }).unwrap();
    let slower = FrontierView::of(&session.snapshot().unwrap(), &again);
    assert_ne!(slower.curves[0].points, first.curves[0].points, "another least speed-up is another curve");
}

#[test]
fn nothing_known_has_no_curve() {
    let rows = vec![row("a", Gemm::Dgrad, FAST, 0.1, Some(1.3), 0.0)];
    let view = curves(&opened(rows, &["a"]));
    assert!(!view.curves.is_empty() && view.is_free(FrontierAxis::LossCost), "no loss cost is known");
    assert!(!view.is_free(FrontierAxis::WorstError));
    let mut blind = opened(Vec::new(), &["a"]);
    let policy = Policy { metric: Metric::SqnrDb, max_error: 20.0, ..Policy::paper() };
    blind.command(Command::SetPolicy { policy }).unwrap();
    assert!(curves(&blind).is_free(FrontierAxis::WorstError));
}

#[test]
fn slow_kernels_buy_nothing() {
    let rows = vec![row("a", Gemm::Fprop, FAST, 0.1, Some(0.7), 1e-7)];
    let slow = curves(&opened(rows, &["a"]));
    assert!(slow.buys_nothing() && !curves(&many()).buys_nothing());
}

#[test]
fn decibels_sweep_from_the_top() {
    let mut session = many();
    let policy = Policy { name: "db".to_owned(), metric: Metric::SqnrDb, max_error: 20.0, ..Policy::paper() };
    session.command(Command::SetPolicy { policy: policy.clone() }).unwrap();
    let view = curves(&session);
    let curve = view.curves.last().unwrap();
    assert_eq!((view.curves.len(), &curve.policy), (Policy::BUILTIN.len() + 1, &policy));
    assert!(curve.points.windows(2).all(|pair| pair[1].threshold < pair[0].threshold));
    assert_eq!(curve.points[0].totals.num_low_precision, 0);
}

#[test]
fn time_shares_sum_to_one() {
    let quadrant = views(&many()).quadrant;
    let shares: Vec<f64> = Shares::all().iter().filter_map(|of| quadrant.shares.time_share(*of)).collect();
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    let points: usize = Shares::all().iter().map(|of| quadrant.shares.num_points(*of)).sum();
    assert_eq!(points, quadrant.points.len());
    assert_eq!(points, 12 * 3 * 2);
}

#[test]
fn a_gemms_time_stands_where_its_kernel_does() {
    let rows = vec![
        row("a", Gemm::Fprop, FAST, 0.1, Some(1.3), 0.0),
        row("a", Gemm::Fprop, OTHER, 0.9, Some(1.9), 0.0),
        row("a", Gemm::Dgrad, FAST, 0.9, Some(1.3), 0.0),
    ];
    let standings = views(&opened(rows, &["a"])).quadrant.shares;
    let share = |quadrant| (standings.time_share(quadrant).unwrap() * 3.0).round();
    assert_eq!(share(Quadrant::SafeFast), 1.0, "fprop, by the kernel that is chosen");
    assert_eq!(share(Quadrant::UnsafeFast), 1.0, "dgrad, by the best that it has");
    assert_eq!(share(Quadrant::Unsupported), 1.0, "wgrad has nothing in low precision");
}

#[test]
fn what_has_no_place_says_what_it_lacks() {
    let mut blind = row("a", Gemm::Wgrad, FAST, 0.1, Some(1.2), 0.0);
    blind.error = None;
    let slow = row("a", Gemm::Fprop, FAST, 0.1, None, 0.0);
    let quadrant = views(&opened(vec![blind, slow], &["a"])).quadrant;
    let lacks: Vec<(Gemm, bool)> = quadrant.unplaced.iter().map(|of| (of.gemm, of.has_error)).collect();
    assert_eq!(lacks, [(Gemm::Fprop, true), (Gemm::Wgrad, false)]);
    assert!(quadrant.points.is_empty() && quadrant.bounds.is_none());
}

#[test]
fn arrows_come_from_the_model_as_recorded() {
    let none = row("a", Gemm::Fprop, FAST, 0.3, Some(1.3), 0.0);
    let mods = ModSet([ModKind::BlockNorm].into());
    let with = ResultRow { mods, ..row("a", Gemm::Fprop, FAST, 0.1, Some(1.3), 0.0) };
    let mut session = opened(vec![none, with], &["a", "b"]);
    assert!(views(&session).quadrant.arrows.is_empty(), "no mod, no arrow");
    let sites = vec![SiteId::new("a")];
    session.command(Command::SetMod { kind: ModKind::BlockNorm, on: true, sites }).unwrap();
    let quadrant = views(&session).quadrant;
    let [arrow] = quadrant.arrows[..] else { panic!("{:?}", quadrant.arrows) };
    let point = quadrant.points[arrow.point as usize];
    assert!((f64::from(arrow.from[1]) - 0.3f64.log10()).abs() < 1e-6);
    assert!((f64::from(point.at[1]) - 0.1f64.log10()).abs() < 1e-6);
    assert_eq!(arrow.from[0], point.at[0]);
}

#[test]
fn a_sites_points_are_together_and_in_order() {
    let quadrant = views(&many()).quadrant;
    let of = quadrant.of_site(3);
    assert!(of.len() == 6 && quadrant.points[of.clone()].iter().all(|point| point.site == 3));
    for by_error in [false, true] {
        let places: Vec<f32> =
            quadrant.ordered(3, by_error).iter().map(|at| quadrant.points[*at].at[usize::from(by_error)]).collect();
        assert!(places.len() == 6 && places.is_sorted());
    }
    assert_eq!(quadrant.of_site(99).len(), 0);
    assert_eq!(quadrant.kernel(quadrant.points[0].kernel), Some(&KernelId::new(FAST)));
    let modules = &quadrant.groupings[GroupBy::Module as usize];
    assert_eq!(modules.groups, [("net.a".to_owned(), 36), ("net.b".to_owned(), 36)]);
}
