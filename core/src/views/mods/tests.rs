//! Where mods are on, and what they change, by hand.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::{
    dispatch::testing::{results, row},
    model::{Gemm, KernelId, Metric, ModKind, ModSet, ResultRow, Safety, Site, SiteId, SiteMods, TailOp},
    session::{Command, Event, Session},
    views::{PlanView, ViewQuery},
};

const FAST: &str = "cublaslt/fp8-rowwise+fast";

fn site(id: &str) -> Site {
    let made = results(&[id], Vec::new());
    Site { bias: true, ..made.meta.manifest.sites[0].clone() }
}

#[test]
fn modules_are_a_tree_with_counts_at_every_level() {
    let sites = ["net.layers.0.mlp.0", "net.layers.0.mlp.3", "net.layers.1.mlp.0", "net.top"].map(site);
    let only = SiteId::new("net.layers.0.mlp.3");
    let mods = SiteMods::default().with(ModKind::NoBias, true, Some(&[only]));
    let ModuleMods(modules) = ModuleMods::of(&sites, &mods);
    let told: Vec<(&str, usize, usize, usize)> =
        modules.iter().map(|of| (of.name.as_str(), of.depth, of.num_sites, of.num_on[0])).collect();
    let wanted = [
        ("net", 0, 4, 1),
        ("layers", 1, 3, 1),
        ("0.mlp", 2, 2, 1),
        ("0", 3, 1, 0),
        ("3", 3, 1, 1),
        ("1.mlp.0", 2, 1, 0),
        ("top", 1, 1, 0),
    ];
    assert_eq!(told, wanted);
    assert!(modules[2].has("net.layers.0.mlp.3") && !modules[2].has("net.layers.0.mlpx"));
    assert_eq!(On::of(modules[0].num_on[0], modules[0].num_sites), On::Some);
    let shown = ModuleMods(modules.clone()).visible(|module| module.depth < 1);
    assert_eq!(shown, [0, 1, 6], "the root's parts");
    assert!(modules[4].is_site(4) && !modules[2].is_site(2));
}

#[test]
fn names_deeper_than_a_stack_and_names_within_names_have_their_modules() {
    let deep = "d.".repeat(100_000) + "x";
    let sites = ["a", "a.b", "a.c", deep.as_str()].map(site);
    let ModuleMods(modules) = ModuleMods::of(&sites, &SiteMods::default());
    let told: Vec<(&str, usize, usize)> = modules.iter().map(|of| (&of.path[..1], of.depth, of.num_sites)).collect();
    assert_eq!(told, [("a", 0, 1), ("a", 0, 2), ("a", 1, 1), ("a", 1, 1), ("d", 0, 1)]);
    assert!(modules[0].has("a") && !modules[0].has("a.b"), "the site a");
    assert!(modules[1].has("a.b") && !modules[1].has("a"), "the module a");
    assert_eq!(modules[4].path, deep);
}

fn modified(row: ResultRow) -> ResultRow {
    ResultRow { mods: ModSet([ModKind::NoBias].into()), ..row }
}

/// Site a has a bias; b has none, and reads a.
fn session() -> Session {
    let fprop = |site, error| row(site, Gemm::Fprop, FAST, error, Some(1.3), 1e-7);
    let mut made = results(
        &["a", "b"],
        vec![
            fprop("a", 0.4),
            modified(fprop("a", 0.1)),
            row("a", Gemm::Dgrad, FAST, 0.1, Some(1.3), 0.0),
            modified(row("a", Gemm::Dgrad, FAST, 0.1, Some(1.3), 0.0)),
            fprop("b", 0.1),
            modified(fprop("b", 0.4)),
        ],
    );
    let baselines: Vec<ResultRow> =
        made.rows.iter().filter(|row| row.kernel.as_str() == "cublaslt/bf16").cloned().collect();
    made.rows.extend(baselines.into_iter().map(modified));
    made.meta.manifest.sites[0].bias = true;
    made.meta.manifest.sites[0].tail = vec![TailOp::plain("relu")];
    made.meta.manifest.sites[0].feeds = vec![SiteId::new("b")];
    let mut session = Session::by_paper();
    session.event(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results: Box::new(made.into()) });
    session
}

fn effect(session: &mut Session) -> Option<ModsEffect> {
    let plan = PlanView::of(&session.snapshot().unwrap());
    ModsEffect::of(&session.snapshot().unwrap(), &plan)
}

#[test]
fn flips_are_counted_here_and_downstream() {
    let mut session = session();
    assert!(effect(&mut session).is_none(), "no mod is on");
    session.command(Command::ToggleMod { kind: ModKind::NoBias }).unwrap();
    let effect = effect(&mut session).unwrap();
    assert_eq!(effect.here, Flips { to_safe: 1, same: 1, ..Flips::default() });
    assert_eq!(effect.downstream, Flips { to_unsafe: 1, ..Flips::default() }, "b has no bias, and reads a");
    assert_eq!((effect.num_waiting, effect.lacks_before), (0, false));
    // 1/4, 1 and 4.
    assert_eq!(effect.error.map(|ratio| (ratio.median, ratio.num)), Some((1.0, 3)));
    let low = |sums: &Sums| sums.totals.baseline_us - sums.totals.planned_us;
    let each = 100.0 - 100.0 / 1.3;
    assert!((low(&effect.before) - 2.0 * each).abs() < 1e-9, "a's dgrad and b's fprop");
    assert!((low(&effect.after) - 2.0 * each).abs() < 1e-9, "a's two");
}

#[test]
fn rows_on_their_way_are_counted() {
    let mut session = session();
    session.command(Command::ToggleMod { kind: ModKind::HardSwish }).unwrap();
    let effect = effect(&mut session).unwrap();
    assert_eq!((effect.num_waiting, effect.num_sites), (2, 2));
}

#[test]
fn one_site_before_and_after() {
    let mut session = session();
    session.command(Command::ToggleMod { kind: ModKind::NoBias }).unwrap();
    let of =
        |gemm| site_change(&session.snapshot().unwrap(), &SiteId::new("a"), gemm, &KernelId::new(FAST), Metric::Mere);
    let change = of(Gemm::Fprop).unwrap();
    assert_eq!(change.safety, (Some(Safety::Unsafe), Some(Safety::Safe)));
    let (metric, before, after) = change.errors[0];
    assert_eq!((metric, before.unwrap().value, after.unwrap().value), (Metric::Mere, 0.4, 0.1));
    assert!(of(Gemm::Wgrad).is_none());
}

/// Beyond .05, a tenth of the loss.
#[test]
fn a_loss_cost_outside_its_range_is_marked_before_and_after() {
    let cost = |cost: f64| row("a", Gemm::Fprop, FAST, 0.1, Some(1.3), cost);
    let mut session = Session::by_paper();
    let made = results(&["a"], vec![cost(0.06), modified(cost(0.04))]);
    session.event(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results: Box::new(made.into()) });
    session.command(Command::ToggleMod { kind: ModKind::NoBias }).unwrap();
    let (snapshot, kernel) = (session.snapshot().unwrap(), KernelId::new(FAST));
    let change = site_change(&snapshot, &SiteId::new("a"), Gemm::Fprop, &kernel, Metric::LossCost).unwrap();
    let (_, before, after) = change.errors[0];
    assert_eq!((before, after.map(|cost| cost.value)), (None, Some(0.04)));
    assert_eq!(change.is_out_of_range, (true, false));
}

#[test]
fn the_standing_outlives_rows_and_not_mods() {
    let mut session = session();
    let question = ViewQuery { metric: Metric::Mere, gemm: None, relative: false, versus: false };
    let first = crate::views::Views::of(&session.snapshot().unwrap(), question, &Default::default());
    session.command(Command::SetMaxError { value: 0.3, gesture: None }).unwrap();
    let second = crate::views::Views::of(&session.snapshot().unwrap(), question, &first);
    assert!(std::sync::Arc::ptr_eq(&first.mods, &second.mods));
    let sites = vec![SiteId::new("a")];
    session.command(Command::SetMod { kind: ModKind::NoBias, on: true, sites }).unwrap();
    let third = crate::views::Views::of(&session.snapshot().unwrap(), question, &second);
    let no_bias = &third.mods.kinds[0];
    assert_eq!((no_bias.kind, no_bias.num_on, no_bias.num_able, no_bias.num_changing), (ModKind::NoBias, 1, 1, 1));
    assert_eq!(no_bias.not, [("this site has no bias", 1)]);
}
