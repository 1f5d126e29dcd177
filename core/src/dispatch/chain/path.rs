//! Takes sites that hand their outputs on, each with the ways in which it may run, gives the shortest paths
//! through them: for every summed cost that is worth it the least time, and how it is reached.
//!
//! Whoever reads has one feeder, so the sites are a tree. What a site's output is stored as is all that its
//! readers know of it: dynamic programming from the last reader to the first feeder, over that state. A state
//! keeps every pair of cost and time that no other beats in both. Where no cost is counted that is one pair,
//! and the answer is exact. Under a budget there may be very many: beyond `most` of them neighbours are
//! represented by the cheapest of them, which is a real path; how much time that may give away is summed in
//! `slack_us`.

use super::super::knapsack::keep_undominated;

/// What a site's output is stored as. A reader sees its feeder's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stored {
    Bf16,
    /// In BF16 and as codes of that scale.
    Both(f64),
    /// As codes of that scale alone.
    Codes(f64),
}

/// One way to run a site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PathState {
    /// `Bf16`: the site reads BF16. Else it reads codes where its feeder stores exactly this.
    pub reads: Stored,
    pub time: f64,
    pub cost: f64,
    /// Its output can be stored as codes.
    pub produces: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stop {
    /// At least one reads BF16.
    pub ways: Vec<PathState>,
    /// Places of its readers, behind its own.
    pub readers: Vec<usize>,
    /// To store codes beside BF16.
    pub extra_us: f64,
    /// Nobody else needs the output in BF16.
    pub may_drop_bf16: bool,
}

/// One end of a path: what all sites cost together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct End {
    pub cost: f64,
    pub time: f64,
    node: u32,
}

/// How one site runs on a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PathStep {
    pub way: usize,
    pub stored: Stored,
}

#[derive(Clone, Debug)]
enum PathNode {
    Nothing,
    Both(u32, u32),
    Step { stop: u32, step: PathStep, below: u32 },
}

#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// Cost rises, time falls.
    pub ends: Vec<End>,
    /// No path within an end's cost is faster than its time by more.
    pub slack_us: f64,
    nodes: Vec<PathNode>,
    pub stops: Vec<Stop>,
}

/// `stops`: in forward order, the first one feeds all others, directly or not.
pub(super) fn paths(stops: Vec<Stop>, most: usize) -> Paths {
    let mut search = Search { stops: &stops, most: most.max(2), nodes: vec![PathNode::Nothing], slack_us: 0.0 };
    let mut tables: Vec<LabelTable> = vec![LabelTable::default(); stops.len()];
    for at in (0..stops.len()).rev() {
        tables[at] = search.table(at, &tables);
        // A reader has one feeder, which has looked at it.
        stops[at].readers.iter().for_each(|reader| tables[*reader] = LabelTable::default());
    }
    let ends = tables.into_iter().next().map_or_else(Vec::new, |table| table.of(Stored::Bf16).to_vec());
    let (slack_us, nodes) = (search.slack_us, search.nodes);
    Paths { ends, slack_us, nodes, stops }
}

impl Paths {
    /// One step a stop.
    pub(super) fn steps(&self, end: usize) -> Vec<PathStep> {
        let mut steps = vec![PathStep { way: 0, stored: Stored::Bf16 }; self.stops.len()];
        let mut open: Vec<u32> = self.ends.get(end).map(|end| end.node).into_iter().collect();
        while let Some(node) = open.pop() {
            match self.nodes[node as usize] {
                PathNode::Nothing => {}
                PathNode::Both(a, b) => open.extend([a, b]),
                PathNode::Step { stop, step, below } => {
                    steps[stop as usize] = step;
                    open.push(below);
                }
            }
        }
        steps
    }
}

const NOTHING: u32 = 0;

/// What a site and all behind it cost, by what the site reads.
#[derive(Clone, Debug, Default)]
struct LabelTable(Vec<(Stored, Vec<End>)>);

impl LabelTable {
    fn of(&self, reads: Stored) -> &[End] {
        self.0.iter().find(|(key, _)| *key == reads).map_or(&[], |(_, ends)| ends)
    }
}

struct Search<'s> {
    stops: &'s [Stop],
    most: usize,
    nodes: Vec<PathNode>,
    slack_us: f64,
}

/// An end before it is known to be kept: only those that are become nodes.
struct Draft {
    cost: f64,
    time: f64,
    node: DrawnPath,
}

enum DrawnPath {
    Already(u32),
    New(PathNode),
}

impl Draft {
    fn again(end: &End) -> Self {
        Self { cost: end.cost, time: end.time, node: DrawnPath::Already(end.node) }
    }
}

impl Search<'_> {
    fn table(&mut self, at: usize, tables: &[LabelTable]) -> LabelTable {
        let stop = &self.stops[at];
        let behind = self.behind(stop, tables);
        let mut drafts: Vec<(Stored, Vec<Draft>)> = Vec::new();
        for (number, way) in stop.ways.iter().enumerate() {
            let reached = behind.iter().filter(|(stored, _)| *stored == Stored::Bf16 || way.produces);
            let reached = reached.flat_map(|(stored, ends)| {
                let step = PathStep { way: number, stored: *stored };
                ends.iter().map(move |end| {
                    let node = DrawnPath::New(PathNode::Step { stop: at as u32, step, below: end.node });
                    Draft { cost: end.cost + way.cost, time: end.time + way.time, node }
                })
            });
            match drafts.iter_mut().find(|(reads, _)| *reads == way.reads) {
                Some((_, all)) => all.extend(reached),
                None => drafts.push((way.reads, reached.collect())),
            }
        }
        LabelTable(drafts.into_iter().map(|(reads, drafts)| (reads, self.keep(drafts))).collect())
    }

    /// What everything behind a site costs, by what the site stores; the extra store is in it.
    fn behind(&mut self, stop: &Stop, tables: &[LabelTable]) -> Vec<(Stored, Vec<End>)> {
        let mut found = vec![(Stored::Bf16, self.together(stop, tables, &[Stored::Bf16], 0.0))];
        let mut asked: Vec<Stored> = Vec::new();
        for reads in stop.readers.iter().flat_map(|reader| tables[*reader].0.iter().map(|(reads, _)| *reads)) {
            if reads != Stored::Bf16 && !asked.contains(&reads) {
                asked.push(reads);
            }
        }
        for stored in asked {
            let ends = match stored {
                Stored::Both(_) => self.together(stop, tables, &[Stored::Bf16, stored], stop.extra_us),
                Stored::Codes(_) if stop.may_drop_bf16 => self.together(stop, tables, &[stored], 0.0),
                Stored::Bf16 | Stored::Codes(_) => continue,
            };
            found.push((stored, ends));
        }
        found
    }

    /// All readers at once, each reading one of `allowed`. Empty where one of them cannot.
    fn together(&mut self, stop: &Stop, tables: &[LabelTable], allowed: &[Stored], extra_us: f64) -> Vec<End> {
        let mut sum = vec![End { cost: 0.0, time: extra_us, node: NOTHING }];
        for reader in &stop.readers {
            let ways = allowed.iter().flat_map(|reads| tables[*reader].of(*reads)).map(Draft::again).collect();
            let ways = self.keep(ways);
            let both = |before: &End, way: &End| Draft {
                cost: before.cost + way.cost,
                time: before.time + way.time,
                node: match before.node {
                    NOTHING => DrawnPath::Already(way.node),
                    other => DrawnPath::New(PathNode::Both(other, way.node)),
                },
            };
            let drafts = sum.iter().flat_map(|before| ways.iter().map(move |way| both(before, way))).collect();
            sum = self.keep(drafts);
        }
        sum
    }

    /// Drops what another beats in both, and bounds the rest. Ties: the earlier one.
    fn keep(&mut self, mut drafts: Vec<Draft>) -> Vec<End> {
        keep_undominated(&mut drafts, |draft| (draft.cost, draft.time));
        if drafts.len() > self.most {
            self.slack_us += thin(&mut drafts, self.most);
        }
        drafts.into_iter().map(|draft| self.end(draft)).collect()
    }

    fn end(&mut self, draft: Draft) -> End {
        let node = match draft.node {
            DrawnPath::Already(node) => node,
            DrawnPath::New(node) => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        End { cost: draft.cost, time: draft.time, node }
    }
}

/// Keeps `most` at most, the fastest one always; gives the most time that a dropped one is faster by than the
/// one kept for it, which costs no more.
fn thin(drafts: &mut Vec<Draft>, most: usize) -> f64 {
    let (Some(first), Some(last)) = (drafts.first(), drafts.last()) else { return 0.0 };
    let (first, last) = (first.time, last.time);
    // Times within a step are one: as many steps as may be kept, less the fastest.
    let step = (first - last) / (most - 1) as f64;
    let (mut from, mut slack_us) = (f64::INFINITY, 0.0_f64);
    drafts.retain(|draft| {
        let kept = from - draft.time > step || draft.time == last;
        if kept {
            from = draft.time;
        } else {
            slack_us = slack_us.max(from - draft.time);
        }
        kept
    });
    slack_us
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
