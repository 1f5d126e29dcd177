//! The graph of a few made-up sites, and where its boxes stand.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::HashSet;

use super::*;
use crate::{
    dispatch::testing::{fed, results, row},
    model::{ModKind, ResultRow, SiteMods},
    session::{Command, Event, Session},
    views::{Modules, ViewQuery, Views},
};

const FAST: &str = "cublaslt/fp8-rowwise+fast";
const SITES: [&str; 7] = [
    "net.bottom",
    "net.layers.0.a",
    "net.layers.0.b",
    "net.layers.1.a",
    "net.layers.1.b",
    "net.layers.1.c",
    "net.head",
];

fn seen(rows: Vec<ResultRow>, feeds: &[(&str, &[&str])]) -> (Session, Views) {
    let mut session = Session::by_paper();
    let results = fed(results(&SITES, rows), feeds);
    session.event(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results: Box::new(results.into()) });
    let views = views(&session);
    (session, views)
}

fn views(session: &Session) -> Views {
    let question = ViewQuery { metric: crate::model::Metric::Mere, gemm: None, relative: false, versus: false };
    Views::of(&session.snapshot().unwrap(), question, &Views::default())
}

fn graph(views: &Views) -> Graph {
    Graph::of(&basis(views), None)
}

fn basis(views: &Views) -> GraphBasis {
    GraphBasis {
        snapshot: views.snapshot.clone().unwrap(),
        plan: views.plan.clone(),
        table: views.table.clone(),
        verdicts: views.verdicts.clone(),
    }
}

#[test]
fn what_is_taken_from_the_graph_of_before_is_as_if_it_was_made_anew() {
    let rows = SITES.iter().enumerate().flat_map(|(at, site)| {
        let error = 0.05 + 0.05 * at as f64;
        Gemm::ALL.map(|gemm| row(site, gemm, FAST, error, Some(1.2 + 0.1 * at as f64), 1e-8))
    });
    let (mut session, first) = seen(rows.collect(), &chain());
    let question = ViewQuery { metric: crate::model::Metric::Mere, gemm: None, relative: false, versus: false };
    let mut last = (first.clone(), Graph::of(&basis(&first), None));
    let at = vec![(SiteId::new(SITES[1]), Gemm::Fprop)];
    let by_hand =
        Command::SetOverrides { at, kernel: crate::model::KernelId::new("cublaslt/bf16"), reason: "a test".to_owned() };
    let tighter = |value| Command::SetMaxError { value, gesture: None };
    for (command, kept) in [(tighter(0.22), true), (tighter(0.12), true), (by_hand, true), (Command::Undo, true)] {
        session.command(command).unwrap();
        let now = Views::of(&session.snapshot().unwrap(), question, &last.0);
        let before = basis(&last.0);
        let graph = Graph::of(&basis(&now), Some((&before, &last.1)));
        assert_eq!(graph, Graph::of(&basis(&now), None));
        assert_eq!(basis(&now).is_same_at(&before, 0), kept, "the first site is far from all thresholds");
        last = (now, graph);
    }
}

fn chain() -> [(&'static str, &'static [&'static str]); 5] {
    [
        ("net.bottom", &["net.layers.0.a", "net.layers.1.a"]),
        ("net.layers.0.a", &["net.layers.0.b"]),
        ("net.layers.0.b", &["net.layers.1.a"]),
        ("net.layers.1.a", &["net.layers.1.b", "net.layers.1.c"]),
        ("net.layers.1.c", &["net.head"]),
    ]
}

fn folded(graph: &Graph, depth: u32, turned: &[&str]) -> (GraphItems, Vec<String>) {
    let ids = SITES.map(SiteId::new);
    let modules = Modules::new(&ids);
    let named = |path: &str| modules.folders().find(|folder| modules.path(&ids, *folder) == path).unwrap();
    let turned: HashSet<FolderId> = turned.iter().map(|path| named(path)).collect();
    let items = GraphItems::of(graph, &modules, &ids, depth, &turned);
    let labels = items.all.iter().map(|item| item.label(&ids).to_owned()).collect();
    (items, labels)
}

use crate::views::FolderId;

#[test]
fn a_box_has_its_times_its_verdicts_and_what_runs_there() {
    let rows = vec![
        row("net.bottom", Gemm::Fprop, FAST, 0.1, Some(2.0), 0.0),
        row("net.bottom", Gemm::Dgrad, FAST, 0.5, Some(2.0), 0.0),
    ];
    let (_, views) = seen(rows, &chain());
    let graph = graph(&views);
    let bottom = graph.sites[0];
    let [fprop, dgrad, wgrad] = bottom.gemms;
    assert_eq!((fprop.verdict, fprop.is_low), (Some(Quadrant::SafeFast), true));
    assert_eq!((dgrad.verdict, dgrad.is_low), (Some(Quadrant::UnsafeFast), false));
    assert_eq!((wgrad.verdict, wgrad.is_low, wgrad.runs), (None, false, true));
    assert!((bottom.baseline_us - 300.0).abs() < 1e-9 && (bottom.planned_us - 250.0).abs() < 1e-9, "{bottom:?}");
    // What the table says is saved is what the boxes are narrower by.
    assert!((graph.baseline_us - graph.planned_us - views.table.saved_us).abs() < 1e-9);
    assert_eq!(graph.num_untimed, 0);
}

#[test]
fn a_site_that_runs_twice_takes_its_time_twice_and_what_never_runs_takes_none() {
    let mut results = results(&SITES, vec![row("net.bottom", Gemm::Fprop, FAST, 0.1, Some(2.0), 0.0)]);
    results.meta.manifest.sites[0].calls = 2;
    results.meta.manifest.sites[0].grads.input = false;
    let mut session = Session::by_paper();
    session.event(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results: Box::new(results.into()) });
    let graph = graph(&views(&session));
    let bottom = graph.sites[0];
    assert!(!bottom.gemms[Gemm::Dgrad as usize].runs);
    assert!((bottom.baseline_us - 400.0).abs() < 1e-9 && (bottom.planned_us - 300.0).abs() < 1e-9, "{bottom:?}");
}

#[test]
fn feeds_are_found_from_both_ends() {
    let (_, views) = seen(Vec::new(), &chain());
    let graph = graph(&views);
    let to = |site| graph.from(site).iter().map(|feed| feed.to).collect::<Vec<_>>();
    let from = |site| graph.to(site).iter().map(|feed| feed.from).collect::<Vec<_>>();
    assert_eq!((to(0), to(3), to(6)), (vec![1, 3], vec![4, 5], vec![]));
    assert_eq!((from(3), from(0), from(6)), (vec![0, 2], vec![], vec![5]));
    assert_eq!(graph.num_codes(), 0);
}

#[test]
fn mods_and_choices_by_hand_are_marked() {
    let (mut session, _) = seen(vec![row("net.bottom", Gemm::Fprop, FAST, 0.5, Some(2.0), 0.0)], &chain());
    let site = SiteId::new("net.bottom");
    let (gemm, kernel, reason) = (Gemm::Fprop, crate::model::KernelId::new(FAST), "a test".to_owned());
    session.command(Command::SetOverride { site: site.clone(), gemm, kernel, reason }).unwrap();
    assert!(graph(&views(&session)).sites[0].gemms[0].by_hand);
    session.command(Command::SetMod { kind: ModKind::BlockNorm, on: true, sites: vec![site] }).unwrap();
    assert_ne!(session.document.mods, SiteMods::default());
    let graph = graph(&views(&session));
    assert_eq!((graph.sites[0].num_mods, graph.sites[1].num_mods), (1, 0));
}

#[test]
fn modules_fold_in_forward_order_and_hold_every_site_once() {
    let (_, views) = seen(vec![row("net.bottom", Gemm::Fprop, FAST, 0.1, Some(2.0), 0.0)], &chain());
    let graph = graph(&views);
    for (depth, turned, wanted) in [
        (9, &[][..], &["bottom", "a", "b", "a", "b", "c", "head"][..]),
        (3, &[], &["bottom", "0", "1", "head"]),
        (2, &[], &["bottom", "layers", "head"]),
        (2, &["net.layers"], &["bottom", "0", "1", "head"]),
        (2, &["net.layers", "net.layers.1"], &["bottom", "0", "a", "b", "c", "head"]),
        (9, &["net.layers.0"], &["bottom", "0", "a", "b", "c", "head"]),
        (1, &[], &["net"]),
    ] {
        let (items, labels) = folded(&graph, depth, turned);
        assert_eq!(labels, wanted, "{depth} {turned:?}");
        let ends = items.all.iter().fold(0, |end, item| {
            assert_eq!(item.from, end);
            item.to
        });
        assert_eq!(ends as usize, SITES.len());
        let time: f64 = items.all.iter().map(|item| item.planned_us).sum();
        assert!((time - graph.planned_us).abs() < 1e-9);
        let gemms: u32 = items.all.iter().flat_map(|item| item.gemms).map(|standing| standing.num()).sum();
        assert_eq!(gemms as usize, 3 * SITES.len());
        for site in 0..SITES.len() as u32 {
            let item = &items.all[items.item_of(site).unwrap()];
            assert!((item.from..item.to).contains(&site));
        }
    }
}

#[test]
fn open_modules_are_brackets_over_their_boxes() {
    let (_, views) = seen(Vec::new(), &chain());
    let ids = SITES.map(SiteId::new);
    let told = |depth, turned: &[&str]| {
        let (items, _) = folded(&graph(&views), depth, turned);
        let brackets = items.brackets.iter();
        let told = brackets.map(|of| (items.bracket_label(&ids, of).to_owned(), of.level, of.from, of.to));
        told.collect::<Vec<_>>()
    };
    let named = |label: &str, level, from, to| (label.to_owned(), level, from, to);
    // `net` holds all of them: it tells nothing apart.
    assert_eq!(told(9, &[]), [named("layers", 0, 1, 6), named("0", 1, 1, 3), named("1", 1, 3, 6)]);
    assert_eq!(told(3, &[]), [named("layers", 0, 1, 3)]);
    assert_eq!(told(2, &[]), []);
}

/// `fmb.mlp` is one module to a reader.
#[test]
fn modules_that_stand_alone_in_one_another_are_one_bracket() {
    let ids = ["top.0", "l.fmb.mlp.0", "l.fmb.mlp.3"].map(SiteId::new);
    let modules = Modules::new(&ids);
    let graph = Graph { sites: vec![GraphSite::default(); 3], ..Graph::default() };
    let items = GraphItems::of(&graph, &modules, &ids, 9, &HashSet::new());
    let [only] = items.brackets.as_slice() else { panic!("{:?}", items.brackets) };
    assert_eq!(items.bracket_label(&ids, only), "l.fmb.mlp");
    let labels: Vec<&str> = items.all.iter().map(|item| item.label(&ids)).collect();
    assert_eq!(labels, ["top.0", "0", "3"]);
}

#[test]
fn edges_join_boxes_and_count_what_they_stand_for() {
    let (_, views) = seen(Vec::new(), &chain());
    let (items, _) = folded(&graph(&views), 3, &[]);
    let edges: Vec<_> = items.edges.iter().map(|edge| (edge.from, edge.to, edge.num)).collect();
    assert_eq!(edges, [(0, 1, 1), (0, 2, 1), (1, 2, 1), (2, 3, 1)]);
    let at = |from, to| items.edges_at(from, to).map(|edge| (edge.from, edge.to)).collect::<Vec<_>>();
    assert_eq!(at(1, 2), [(1, 2), (0, 1)]);
    assert_eq!(at(3, 4), [(2, 3)]);
    let mut all = at(0, 4);
    all.sort_unstable();
    assert_eq!(all.len(), edges.len(), "each once");
    let (items, _) = folded(&graph(&views), 2, &[]);
    assert_eq!(items.edges.iter().map(|edge| edge.num).collect::<Vec<_>>(), [2, 1], "feeds within a box are not drawn");
}

#[test]
fn a_large_model_folds_by_itself() {
    let ids: Vec<SiteId> = (0..9_000).map(|at| SiteId::new(&format!("net.layers.{}.mlp.{}", at / 6, at % 6))).collect();
    let modules = Modules::new(&ids);
    assert_eq!(auto_depth(&modules, 10_000), 5, "all boxes fit");
    assert_eq!(auto_depth(&modules, 2_000), 4, "one a `mlp`, of which there is one a layer");
    assert_eq!(auto_depth(&modules, 100), 2, "`net.layers` alone");
    assert_eq!(auto_depth(&Modules::new(&[]), 100), 1);
    let deep = SiteId::new(&".".repeat(10_000));
    assert!(auto_depth(&Modules::new(&[deep]), 0) >= 1);
}

#[test]
fn widths_are_times_but_no_less_than_can_be_hit() {
    let sites = [10.0, 20.0, 0.0, 70.0].map(|planned_us| GraphSite { planned_us, ..GraphSite::default() });
    let graph = Graph { sites: sites.into(), ..Graph::default() };
    let ids = ["a", "b", "c", "d"].map(SiteId::new);
    let items = GraphItems::of(&graph, &Modules::new(&ids), &ids, 9, &HashSet::new());
    let layout = GraphLayout::of(&items, 406.0, 1.0, 20.0, 2.0);
    assert!((layout.total() - 406.0).abs() < 0.1, "they fill the room: {}", layout.total());
    let width = |at| layout.right(at) - layout.left(at);
    assert!((width(2) - 20.0).abs() < 0.01 && layout.num_least == 1);
    assert!((width(3) / width(0) - 7.0).abs() < 0.01 && (width(1) / width(0) - 2.0).abs() < 0.01);
    for at in 0..4 {
        assert_eq!(layout.at(layout.center(at)), Some(at));
        assert!(layout.visible(layout.left(at), layout.right(at)).contains(&at));
    }
    assert_eq!(layout.at(layout.right(0) + 1.0), None, "the gap is no box");
    assert_eq!((layout.at(-1.0), layout.at(1e6)), (None, None));
    assert_eq!(layout.visible(-50.0, 5000.0), 0..4);
    // Too many for the room: they take what they need, and the view scrolls.
    let narrow = GraphLayout::of(&items, 50.0, 1.0, 20.0, 2.0);
    assert!(narrow.total() >= 4.0 * 20.0);
    let near = GraphLayout::of(&items, 406.0, 3.0, 20.0, 2.0);
    assert!(near.total() > 2.9 * 400.0);
}

#[test]
fn without_times_all_are_alike() {
    let graph = Graph { sites: vec![GraphSite::default(); 3], ..Graph::default() };
    let ids = ["a", "b", "c"].map(SiteId::new);
    let items = GraphItems::of(&graph, &Modules::new(&ids), &ids, 9, &HashSet::new());
    let layout = GraphLayout::of(&items, 304.0, 1.0, 20.0, 2.0);
    let widths: Vec<f32> = (0..3).map(|at| layout.right(at) - layout.left(at)).collect();
    assert!(widths.iter().all(|width| (width - 100.0).abs() < 0.01), "{widths:?}");
    assert_eq!(GraphLayout::of(&GraphItems::default(), 304.0, 1.0, 20.0, 2.0).total(), 0.0);
}
