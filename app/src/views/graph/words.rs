//! Boxes, brackets and feeds in words: for the tooltip, and for who cannot see them.

use loka_core::{
    model::{Gemm, ModKind, Quadrant, SiteId},
    views::{Bracket, Graph, GraphEdge, GraphItem, GraphItemKind},
};

use super::Strip;
use crate::{
    theme::{number, verdict_word},
    views::Scene,
};

pub const FEEDS: &str = "Which site reads which other's output unchanged, as the trace recorded it. Where none is drawn, something else \
                         stands between, or it was not recorded";

/// How the widths came about.
pub fn times(graph: &Graph) -> String {
    let calls = "Summed time of the sites' GEMMs, casts included, every call of a step counted: as planned, against BF16 everywhere";
    let saved = number::micros(graph.baseline_us - graph.planned_us);
    format!("{calls}\n{saved} µs saved, GEMM by GEMM, as in the plan's table\nA box is as wide as its planned time")
}

/// The whole of it, for a screen reader.
pub fn strip(scene: &Scene<'_>, strip: &Strip) -> String {
    let boxes = number::counted_as(strip.items.all.len(), "box", "boxes");
    let sites = number::counted(scene.session.index().len(), "site");
    format!("Graph of {sites} in {boxes}, in forward order. Ctrl-wheel zooms")
}

fn name<'a>(scene: &'a Scene<'_>, at: u32) -> &'a str {
    scene.session.index().ids().get(at as usize).map_or("", SiteId::as_str)
}

/// A box in a line.
pub fn spoken(scene: &Scene<'_>, strip: &Strip, at: usize) -> String {
    let item = &strip.items.all[at];
    let path = item.path(scene.session.index().ids());
    match item.kind {
        GraphItemKind::Site => format!("Box of {path}"),
        GraphItemKind::Module(_) => format!("Open {path}, {}", number::counted(item.num_sites(), "site")),
    }
}

pub fn bracket(scene: &Scene<'_>, strip: &Strip, bracket: &Bracket) -> String {
    let own = strip.items.all.get(bracket.from as usize..bracket.to as usize).unwrap_or_default();
    let path = scene.view.sites.modules().path(scene.session.index().ids(), bracket.folder).to_owned();
    let sites = own.iter().map(GraphItem::num_sites).sum();
    let us: f64 = own.iter().map(|item| item.planned_us).sum();
    format!("{path}, {}{}", number::counted(sites, "site"), share(us, strip.graph.planned_us, ", "))
}

/// Of all time as planned.
fn share(us: f64, all: f64, before: &str) -> String {
    if all > 0.0 {
        format!("{before}{} µs, {} of the step", number::micros(us), number::percent(us / all))
    } else {
        String::new()
    }
}

pub fn told(scene: &Scene<'_>, strip: &Strip, at: usize) -> String {
    let item = &strip.items.all[at];
    let path = item.path(scene.session.index().ids());
    let mut lines = vec![match item.kind {
        GraphItemKind::Site => path.to_owned(),
        GraphItemKind::Module(_) => format!("{path} · {}", number::counted(item.num_sites(), "site")),
    }];
    if item.baseline_us > 0.0 {
        let planned = share(item.planned_us, strip.graph.planned_us, "");
        lines.push(format!("Planned {planned}; in BF16 {} µs", number::micros(item.baseline_us)));
    }
    if item.num_untimed > 0 {
        lines.push(format!("{} without a time", number::counted(item.num_untimed as usize, "GEMM")));
    }
    match item.kind {
        GraphItemKind::Site => lines.extend(site_lines(scene, strip, item)),
        GraphItemKind::Module(_) => {
            lines.extend(module_lines(item));
            lines.push("Click to open it, with Shift to select its sites".to_owned());
        }
    }
    lines.join("\n")
}

fn site_lines(scene: &Scene<'_>, strip: &Strip, item: &GraphItem) -> Vec<String> {
    let at = item.from;
    let mut lines = Vec::new();
    let (Some(site), Some(of)) = (scene.session.sites().get(at as usize), strip.graph.sites.get(at as usize)) else {
        return lines;
    };
    let shape = [site.m, site.k, site.n].map(|size| number::count(size as u64));
    let calls = if site.calls == 1 { String::new() } else { format!(", {} calls a step", site.calls) };
    lines.push(format!("{} × {} → {}{calls}", shape[0], shape[1], shape[2]));
    for gemm in Gemm::ALL {
        let own = of.gemms[gemm as usize];
        if !own.runs {
            lines.push(format!("{gemm}: never runs"));
            continue;
        }
        let verdict = own.verdict.map_or("not probed yet", verdict_word);
        let kernel = scene.derived.plan.pick_at(at as usize, gemm).map_or("", |choice| choice.kernel.as_str());
        let hand = if own.by_hand { ", by hand" } else { "" };
        let runs = if kernel.is_empty() { String::new() } else { format!("; runs {kernel}{hand}") };
        lines.push(format!("{gemm}: FP8 is {verdict} at best{runs}"));
    }
    for (operand, [from, to]) in
        [("x", [Gemm::Fprop, Gemm::Wgrad]), ("W", [Gemm::Fprop, Gemm::Dgrad]), ("dy", [Gemm::Dgrad, Gemm::Wgrad])]
            .into_iter()
            .zip(of.shared)
            .filter_map(|(cast, shared)| shared.then_some(cast))
    {
        lines.push(format!("One cast of {operand} for {from} and {to}"));
    }
    let told = |codes: bool| if codes { " (FP8 codes)" } else { "" };
    let before: Vec<String> =
        strip.graph.to(at).iter().map(|feed| format!("{}{}", name(scene, feed.from), told(feed.codes))).collect();
    let behind: Vec<String> =
        strip.graph.from(at).iter().map(|feed| format!("{}{}", name(scene, feed.to), told(feed.codes))).collect();
    if !before.is_empty() {
        lines.push(format!("Fed by {}", before.join(", ")));
    }
    if !behind.is_empty() {
        lines.push(format!("Feeds {}", behind.join(", ")));
    }
    let mods: Vec<&str> = scene.session.document.mods.of(&site.id).0.iter().map(|kind| ModKind::label(*kind)).collect();
    if !mods.is_empty() {
        lines.push(format!("Mods: {}", mods.join(", ")));
    }
    if of.is_broken {
        lines.push("The recording has a problem here: it cannot be probed".to_owned());
    }
    lines
}

fn module_lines(item: &GraphItem) -> Vec<String> {
    let mut lines = Vec::new();
    for gemm in Gemm::ALL {
        let standing = item.gemms[gemm as usize];
        let known = Quadrant::BEST_FIRST.iter().zip(standing.counts).filter(|(_, count)| *count > 0);
        let mut parts: Vec<String> =
            known.map(|(of, count)| format!("{} {}", number::count(u64::from(count)), verdict_word(*of))).collect();
        if standing.counts[8] > 0 {
            parts.push(format!("{} not probed yet", number::count(u64::from(standing.counts[8]))));
        }
        if !parts.is_empty() {
            let low = number::count(u64::from(standing.num_low));
            lines.push(format!("{gemm}: {}; {low} in FP8", parts.join(", ")));
        }
    }
    for (count, what) in [(item.num_mods, "with a mod"), (item.num_broken, "with a problem in the recording")] {
        if count > 0 {
            lines.push(format!("{} {what}", number::counted(count as usize, "site")));
        }
    }
    if item.by_hand > 0 {
        lines.push(format!("{} set by hand", number::counted(item.by_hand as usize, "GEMM")));
    }
    lines
}

pub fn edge(scene: &Scene<'_>, strip: &Strip, edge: GraphEdge) -> String {
    let ids = scene.session.index().ids();
    let name = |at: u32| strip.items.all.get(at as usize).map_or("", |item| item.path(ids));
    let (from, to) = (name(edge.from), name(edge.to));
    let codes = match edge.codes {
        0 => String::new(),
        codes if codes == edge.num => "\nFP8 codes are handed on: the reader need not cast".to_owned(),
        codes => format!("\n{} of them hand FP8 codes on", number::count(u64::from(codes))),
    };
    let feeds = if edge.num == 1 { String::new() } else { format!(" by {} feeds", number::count(u64::from(edge.num))) };
    format!("{from} feeds {to}{feeds}{codes}")
}
