//! What is drawn of the graph when modules are folded: takes the sites, the tree of modules and which of these are turned
//! round, gives boxes in forward order, each a site or a run of sites of one folded module, the brackets of the modules
//! that are open, and the feeds between boxes.

use std::collections::HashSet;

use crate::{
    model::{Quadrant, SiteId},
    views::{FolderId, Modules, modules::part_of},
};

use super::Graph;

/// Brackets beyond this depth are left out: three rows are read at a glance.
const MOST_BRACKETS: usize = 3;
/// A name may be a thousand dots deep.
const DEEPEST: u32 = 32;

/// How the GEMMs of a box stand: how many sites under each verdict, in the order of [`Quadrant::BEST_FIRST`], then those
/// of which nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BandCounts {
    pub counts: [u32; 9],
    /// In low precision.
    pub num_low: u32,
}

impl BandCounts {
    /// The worst that is there, as modules are told by.
    pub fn worst(&self) -> Option<Quadrant> {
        let known = self.counts[..8].iter().rposition(|count| *count > 0)?;
        // A shape that nothing takes is no trouble while there is some.
        let judged = self.counts[..7].iter().rposition(|count| *count > 0);
        Quadrant::BEST_FIRST.get(judged.unwrap_or(known)).copied()
    }

    pub fn num(&self) -> u32 {
        self.counts.iter().sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphItemKind {
    Site,
    Module(FolderId),
}

/// One box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GraphItem {
    pub kind: GraphItemKind,
    /// Its sites, by number.
    pub from: u32,
    pub to: u32,
    pub baseline_us: f64,
    pub planned_us: f64,
    pub num_untimed: u32,
    /// By GEMM.
    pub gemms: [BandCounts; 3],
    pub num_mods: u32,
    pub num_broken: u32,
    pub by_hand: u32,
    /// Where in its first site's name the label begins and ends.
    start: u32,
    end: u32,
}

impl GraphItem {
    pub fn num_sites(&self) -> usize {
        (self.to - self.from) as usize
    }

    pub fn label<'a>(&self, ids: &'a [SiteId]) -> &'a str {
        part_of(ids, self.from, self.start..self.end)
    }

    /// The whole name of the site or module.
    pub fn path<'a>(&self, ids: &'a [SiteId]) -> &'a str {
        part_of(ids, self.from, 0..self.end)
    }
}

/// An open module over its boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    pub folder: FolderId,
    /// The outermost is 0.
    pub level: usize,
    /// Its boxes, by number.
    pub from: u32,
    pub to: u32,
    /// Where in the first box's first site the label begins and ends.
    start: u32,
    end: u32,
}

/// Feeds between two boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphEdge {
    pub from: u32,
    pub to: u32,
    pub num: u32,
    /// Of these, codes.
    pub codes: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphItems {
    /// They hold every site once, in order.
    pub all: Vec<GraphItem>,
    /// Sorted by where they begin.
    pub brackets: Vec<Bracket>,
    pub num_levels: usize,
    /// Sorted by who feeds.
    pub edges: Vec<GraphEdge>,
    /// Places in `edges`, sorted by who is fed.
    fed: Vec<u32>,
}

/// Modules that lie so deep, and deeper ones, are folded at first: all boxes are at most `most`, or the outermost modules
/// alone. The outermost lie at 1.
pub fn auto_depth(modules: &Modules, most: usize) -> u32 {
    let depths = depths(modules);
    let deepest = depths.iter().copied().max().unwrap_or(0).min(DEEPEST);
    let none = HashSet::new();
    let fits = |depth: &u32| runs(modules, &closed(modules, &depths, *depth, &none)).len() <= most;
    (1..=deepest + 1).rev().find(fits).unwrap_or(1)
}

fn depths(modules: &Modules) -> Vec<u32> {
    let mut depths: Vec<u32> = Vec::with_capacity(modules.all.len());
    for (at, module) in modules.all.iter().enumerate() {
        // Parents come before their children.
        depths.push(if at == 0 { 0 } else { depths[module.parent as usize] + 1 });
    }
    depths
}

/// By module: the outermost folded one that it lies in, which may be itself; 0: none.
fn closed(modules: &Modules, depths: &[u32], depth: u32, turned: &HashSet<FolderId>) -> Vec<u32> {
    let mut closed: Vec<u32> = vec![0; modules.all.len()];
    for at in 1..modules.all.len() {
        let outer = closed[modules.all[at].parent as usize];
        let own = (depths[at] >= depth) != turned.contains(&FolderId(at as u32));
        closed[at] = if outer != 0 { outer } else { u32::from(own) * at as u32 };
    }
    closed
}

/// The folded module of each run of sites, or 0 for one that stands alone, and where the run begins.
fn runs(modules: &Modules, closed: &[u32]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (site, module) in modules.of_site.iter().enumerate() {
        let folded = closed[*module as usize];
        if folded == 0 || runs.last().is_none_or(|(last, _)| *last != folded) {
            runs.push((folded, site as u32));
        }
    }
    runs
}

impl GraphItems {
    /// `depth`: from which on modules are folded ([`auto_depth`]); `turned`: those that a person turned round.
    pub fn of(graph: &Graph, modules: &Modules, ids: &[SiteId], depth: u32, turned: &HashSet<FolderId>) -> Self {
        if graph.sites.len() != ids.len() || modules.of_site.len() != ids.len() {
            return Self::default();
        }
        let runs = runs(modules, &closed(modules, &depths(modules), depth, turned));
        let ends = runs.iter().skip(1).map(|(_, from)| *from).chain([ids.len() as u32]);
        let mut items = Self::default();
        items
            .all
            .extend(runs.iter().zip(ends).map(|((folded, from), to)| item(graph, modules, ids, *folded, *from, to)));
        items.bracket(modules, ids);
        items.connect(graph);
        items
    }

    /// The box that a site is in.
    pub fn item_of(&self, site: u32) -> Option<usize> {
        let at = self.all.partition_point(|item| item.to <= site);
        self.all.get(at).is_some_and(|item| item.from <= site).then_some(at)
    }

    /// Edges with an end among those boxes.
    pub fn edges_at(&self, from: usize, to: usize) -> impl Iterator<Item = GraphEdge> + '_ {
        let (from, to) = (from as u32, to as u32);
        let first = self.edges.partition_point(|edge| edge.from < from);
        let last = self.edges.partition_point(|edge| edge.from < to);
        let fed = |at: &u32| self.edges.get(*at as usize).copied();
        let begin = self.fed.partition_point(|at| fed(at).is_some_and(|edge| edge.to < from));
        let end = self.fed.partition_point(|at| fed(at).is_some_and(|edge| edge.to < to));
        let into = self.fed[begin..end.max(begin)].iter().filter_map(fed);
        let into = into.filter(move |edge| !(from..to).contains(&edge.from));
        self.edges[first..last.max(first)].iter().copied().chain(into)
    }

    pub fn bracket_label<'a>(&self, ids: &'a [SiteId], bracket: &Bracket) -> &'a str {
        let site = self.all.get(bracket.from as usize).map_or(0, |item| item.from);
        part_of(ids, site, bracket.start..bracket.end)
    }

    /// The largest time of a box, as planned.
    pub fn most_us(&self) -> f64 {
        self.all.iter().map(|item| item.planned_us).fold(0.0, f64::max)
    }

    /// Open modules over the boxes that they hold. One that holds all boxes tells nothing apart, and neither does one of a
    /// single box: both are left to the boxes' names.
    fn bracket(&mut self, modules: &Modules, ids: &[SiteId]) {
        // Boxes begin and end in the module that they lie in: open brackets are a stack, the outermost first.
        let mut open: Vec<(u32, u32)> = Vec::new();
        let mut found: Vec<(u32, u32, u32)> = Vec::new();
        let count = self.all.len() as u32;
        for at in 0..=count {
            let path = self.all.get(at as usize).map_or_else(Vec::new, |item| path_of(modules, item));
            let same = open.iter().zip(&path).take_while(|((module, _), of)| module == *of).count();
            while open.len() > same {
                let Some((module, from)) = open.pop() else { break };
                found.push((module, from, at));
            }
            open.extend(path[same..].iter().map(|module| (*module, at)));
        }
        // The outermost first among those that begin together; of two with the same boxes the inner has the longer name.
        found.sort_by_key(|(module, from, to)| (*from, std::cmp::Reverse(*to), *module));
        let mut stack: Vec<Bracket> = Vec::new();
        // Where names go on behind what all of them, or all in a bracket, begin with.
        let mut skipped = 0;
        for (module, from, to) in found {
            let end = modules.get(module).end;
            if (from, to) == (0, count) {
                skipped = end + 1;
                continue;
            }
            stack.retain(|outer| outer.to > from);
            let start = stack.last().map_or(skipped, |outer| outer.end + 1);
            if to - from < 2 {
                continue;
            }
            if let Some(same) = stack.last_mut().filter(|outer| (outer.from, outer.to) == (from, to)) {
                (same.folder, same.end) = (FolderId(module), end);
                let changed = *same;
                if let Some(known) = self.brackets.iter_mut().rev().find(|of| (of.from, of.to) == (from, to)) {
                    *known = changed;
                }
                continue;
            }
            if stack.len() >= MOST_BRACKETS {
                continue;
            }
            let bracket = Bracket { folder: FolderId(module), level: stack.len(), from, to, start, end };
            stack.push(bracket);
            self.brackets.push(bracket);
        }
        self.num_levels = self.brackets.iter().map(|of| of.level + 1).max().unwrap_or(0);
        self.name(ids, skipped);
    }

    /// Labels say what the brackets over a box do not.
    fn name(&mut self, ids: &[SiteId], skipped: u32) {
        for item in &mut self.all {
            item.start = skipped.min(item.end);
        }
        for bracket in &self.brackets {
            for item in &mut self.all[bracket.from as usize..bracket.to as usize] {
                item.start = item.start.max(bracket.end + 1).min(item.end);
            }
        }
        for item in &mut self.all {
            // A site may be called as the module that it lies in.
            if item.start >= item.end {
                let name = ids.get(item.from as usize).map_or("", SiteId::as_str);
                item.start =
                    name.get(..item.end as usize).and_then(|own| own.rfind('.')).map_or(0, |dot| dot as u32 + 1);
            }
        }
    }

    fn connect(&mut self, graph: &Graph) {
        let ends = |feed: &super::Feed| {
            let (from, to) = (self.item_of(feed.from)?, self.item_of(feed.to)?);
            (from != to).then_some(GraphEdge { from: from as u32, to: to as u32, num: 1, codes: u32::from(feed.codes) })
        };
        let mut edges: Vec<GraphEdge> = graph.feeds.iter().filter_map(ends).collect();
        edges.sort_unstable_by_key(|edge| (edge.from, edge.to));
        edges.dedup_by(|next, kept| {
            let same = (next.from, next.to) == (kept.from, kept.to);
            if same {
                (kept.num, kept.codes) = (kept.num + next.num, kept.codes + next.codes);
            }
            same
        });
        self.fed = (0..edges.len() as u32).collect();
        self.fed.sort_by_key(|at| (edges[*at as usize].to, edges[*at as usize].from));
        self.edges = edges;
    }
}

/// The open modules that a box lies in, the outermost first.
fn path_of(modules: &Modules, item: &GraphItem) -> Vec<u32> {
    let mut at = match item.kind {
        GraphItemKind::Site => modules.of_site.get(item.from as usize).copied().unwrap_or(0),
        GraphItemKind::Module(folder) => modules.get(folder.0).parent,
    };
    let mut path = Vec::new();
    while at != 0 {
        path.push(at);
        at = modules.get(at).parent;
    }
    path.reverse();
    path.truncate(DEEPEST as usize);
    path
}

fn item(graph: &Graph, modules: &Modules, ids: &[SiteId], folded: u32, from: u32, to: u32) -> GraphItem {
    // A module of one site is that site.
    let kind = if folded != 0 && to - from > 1 { GraphItemKind::Module(FolderId(folded)) } else { GraphItemKind::Site };
    let end = match kind {
        GraphItemKind::Module(folder) => modules.get(folder.0).end,
        GraphItemKind::Site => ids[from as usize].as_str().len() as u32,
    };
    let mut item = GraphItem {
        kind,
        from,
        to,
        baseline_us: 0.0,
        planned_us: 0.0,
        num_untimed: 0,
        gemms: [BandCounts::default(); 3],
        num_mods: 0,
        num_broken: 0,
        by_hand: 0,
        start: 0,
        end,
    };
    for site in &graph.sites[from as usize..to as usize] {
        item.baseline_us += site.baseline_us;
        item.planned_us += site.planned_us;
        item.num_untimed += site.num_untimed;
        item.num_mods += u32::from(site.num_mods > 0);
        item.num_broken += u32::from(site.is_broken);
        item.by_hand += site.gemms.iter().filter(|gemm| gemm.by_hand).count() as u32;
        for (standing, gemm) in item.gemms.iter_mut().zip(site.gemms).filter(|(_, gemm)| gemm.runs) {
            standing.counts[gemm.verdict.map_or(8, Quadrant::rank)] += 1;
            standing.num_low += u32::from(gemm.is_low);
        }
    }
    item
}
