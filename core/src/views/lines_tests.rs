//! Trees of names as people and machines give them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::views::{SiteRank, Standings};

fn ids(names: &[&str]) -> Vec<SiteId> {
    names.iter().map(|name| SiteId::new(name)).collect()
}

fn filter(text: &str) -> Filter {
    Filter::read(text, &|_| Err(String::new())).unwrap()
}

fn lines(ids: &[SiteId], text: &str, order: Order, closed: &HashSet<FolderId>) -> Lines {
    let facts = Facts { ids, ..Facts::default() };
    Lines::of(&Modules::new(ids), &facts, &filter(text), order, closed)
}

/// As an outline: two blanks a level, `/` behind a folder, `+` behind a closed one.
fn outline(lines: &Lines, ids: &[SiteId]) -> Vec<String> {
    let text = |line: &Line| {
        let mark = match line.kind {
            LineKind::Folder { open: true, .. } => format!("/ {}", line.num_sites()),
            LineKind::Folder { .. } => format!("+ {}", line.num_sites()),
            LineKind::Site => String::new(),
        };
        format!("{}{}{mark}", "  ".repeat(line.depth.into()), line.label(ids))
    };
    lines.all.iter().map(text).collect()
}

#[test]
fn modules_that_stand_alone_are_joined() {
    let ids = ids(&["net.layers.0.a", "net.layers.0.b", "net.layers.1.mlp.x", "net.top"]);
    let lines = lines(&ids, "", Order::default(), &HashSet::new());
    assert_eq!(
        outline(&lines, &ids),
        ["net/ 4", "  layers/ 3", "    0/ 2", "      a", "      b", "    1.mlp.x", "  top"]
    );
    assert_eq!(lines.order, [0, 1, 2, 3]);
    assert_eq!(lines.all[2].path(&ids), "net.layers.0");
    assert_eq!(lines.line_of(2), Some(5));
}

#[test]
fn a_closed_folder_keeps_its_sites() {
    let ids = ids(&["a.b.x", "a.b.y", "a.c", "d"]);
    let open = lines(&ids, "", Order::default(), &HashSet::new());
    assert_eq!(outline(&open, &ids), ["a/ 3", "  b/ 2", "    x", "    y", "  c", "d"]);
    let LineKind::Folder { folder, .. } = open.all[1].kind else { panic!("a folder") };
    let closed = lines(&ids, "", Order::default(), &HashSet::from([folder]));
    assert_eq!(outline(&closed, &ids), ["a/ 3", "  b+ 2", "  c", "d"]);
    assert_eq!(closed.sites(&closed.all[1]), [0, 1]);
    assert_eq!((closed.line_of(1), closed.line_of(2)), (Some(1), Some(2)));
    assert_eq!(closed.between(1, 2).collect::<Vec<_>>(), [0, 1, 2], "a closed folder is all that is in it");
}

#[test]
fn a_name_can_be_a_site_and_a_module() {
    let ids = ids(&["a", "a.b", "a.c"]);
    assert_eq!(outline(&lines(&ids, "", Order::default(), &HashSet::new()), &ids), ["a", "a/ 2", "  b", "  c"]);
}

#[test]
fn a_folder_that_is_left_and_entered_again_stands_once() {
    let ids = ids(&["a.x", "b.x", "a.y", "b.y"]);
    let lines = lines(&ids, "", Order::default(), &HashSet::new());
    assert_eq!(outline(&lines, &ids), ["a/ 2", "  x", "  y", "b/ 2", "  x", "  y"]);
    assert_eq!(lines.order, [0, 2, 1, 3]);
}

#[test]
fn names_sort_with_their_numbers() {
    let ids = ids(&["l.10", "l.2", "l.02b", "a"]);
    let order = Order { sort: Sort::Name, grouped: false, reversed: false };
    let lines = lines(&ids, "", order, &HashSet::new());
    assert_eq!(outline(&lines, &ids), ["a", "l.2", "l.02b", "l.10"]);
}

#[test]
fn results_sort_worst_first_and_unknown_last() {
    let ids = ids(&["a.1", "a.2", "b.1", "b.2"]);
    let rank = |error| SiteRank { error, ..SiteRank::default() };
    let ranks = vec![rank(0.1), rank(f32::NAN), rank(0.9), rank(0.3)];
    let standings = Standings { ranks, ..Standings::default() };
    let facts = Facts { ids: &ids, standings: Some(&standings), ..Facts::default() };
    let of = |grouped, reversed| {
        let order = Order { sort: Sort::WorstError, grouped, reversed };
        Lines::of(&Modules::new(&ids), &facts, &filter(""), order, &HashSet::new())
    };
    assert_eq!(of(false, false).order, [2, 3, 0, 1]);
    assert_eq!(of(false, true).order, [1, 0, 3, 2]);
    assert_eq!(outline(&of(true, false), &ids), ["b/ 2", "  1", "  2", "a/ 2", "  1", "  2"], "the worst module first");
}

#[test]
fn hostile_names_stand() {
    let long = "x".repeat(4000);
    let deep = "d.".repeat(2000) + "end";
    let dots = "....";
    let ids = ids(&["", &long, &deep, "سلام.עולם", "🧮.🧮.a", "🧮.🧮.b", dots, "."]);
    let lines = lines(&ids, "", Order::default(), &HashSet::new());
    assert_eq!(lines.order.len(), ids.len());
    assert!(lines.all.iter().any(|line| line.label(&ids) == "🧮.🧮"));
    assert!(lines.all.iter().any(|line| line.label(&ids) == deep), "one line, not two thousand");
    assert!((0..ids.len()).all(|site| lines.line_of(site).is_some()));
    let nested: Vec<String> = (0..600).map(|depth| "n.".repeat(depth) + "leaf").collect();
    let nested: Vec<SiteId> = nested.iter().map(|name| SiteId::new(name)).collect();
    let lines = super::tests::lines(&nested, "", Order::default(), &HashSet::new());
    assert_eq!(lines.order.len(), 600);
}

#[test]
fn arrows_pass_folders_by() {
    let ids = ids(&["a.x", "a.y", "b.x", "b.y"]);
    let lines = lines(&ids, "", Order::default(), &HashSet::new());
    assert_eq!(lines.stepped(None, 1), Some(0));
    assert_eq!(lines.stepped(lines.line_of(1), 1), Some(2), "over the folder b");
    assert_eq!(lines.stepped(lines.line_of(2), -1), Some(1));
    assert_eq!(lines.stepped(lines.line_of(0), -1), Some(0));
    assert_eq!(lines.stepped(lines.line_of(0), 10), Some(3));
    assert_eq!(Lines::default().stepped(None, 1), None);
}

#[test]
fn filtered_out_sites_have_no_line() {
    let ids = ids(&["a.x", "a.y", "b.x"]);
    let lines = lines(&ids, "y", Order::default(), &HashSet::new());
    assert_eq!(outline(&lines, &ids), ["a.y"], "a folder of one site is that site");
    assert_eq!((lines.line_of(0), lines.line_of(1)), (None, Some(0)));
}

#[test]
fn a_hundred_thousand_sites_are_no_square() {
    let ids: Vec<SiteId> =
        (0..100_000).map(|at| SiteId::new(&format!("net.layers.{}.block.{}.fc", at / 100, at % 100))).collect();
    let modules = Modules::new(&ids);
    let facts = Facts { ids: &ids, ..Facts::default() };
    let start = std::time::Instant::now();
    let lines = Lines::of(&modules, &facts, &filter(""), Order::default(), &HashSet::new());
    let taken = start.elapsed();
    assert_eq!(lines.order.len(), 100_000);
    eprintln!("100,000 sites: {taken:?}, {} lines", lines.all.len());
    // A square of that would be minutes, on the busiest machine too.
    assert!(taken < std::time::Duration::from_secs(20), "{taken:?}");
}

#[test]
fn modules_stand_together_where_they_begin() {
    let ordered = |names: &[&str]| {
        let ids: Vec<SiteId> = names.iter().map(|name| SiteId::new(name)).collect();
        by_module(&ids).iter().map(|at| names[*at as usize].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ordered(&["a.x", "top", "b.0", "a.y", "b.1.z", "b.2"]), ["a.x", "a.y", "top", "b.0", "b.1.z", "b.2"]);
    assert_eq!(ordered(&["a.b", "a", "a.b.c", "a.d"]), ["a.b", "a.b.c", "a.d", "a"]);
    assert_eq!(ordered(&["", ".", ".."]), ["", ".", ".."]);
}
