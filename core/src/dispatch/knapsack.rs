//! Takes groups of options, each with a cost and a time, gives one option a group: least time with
//! the summed cost within a capacity (the multiple-choice knapsack).
//!
//! 1. Linear relaxation. In each group only the lower convex hull of (cost, time) matters; walking
//!    all hulls' steps from the most to the least efficient fills the capacity optimally, with at
//!    most one step taken in part. Its Lagrange multiplier gives a lower bound for any subset of
//!    decisions.
//! 2. Incumbent: the same walk, skipping steps that no longer fit.
//! 3. Proof. An option whose reduced cost lifts the bound above the incumbent is out (at 10,000
//!    groups all but a few tens are); the rest is searched by dynamic programming over
//!    non-dominated (cost, time) states, pruned by the same bound. The search is bounded: when it
//!    is cut short the answer says `proven: false` and the bound gives the gap.

/// An option. Both numbers are finite; the cost is not negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    pub cost: f64,
    pub time: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// One option's index a group.
    pub picks: Vec<usize>,
    pub time: f64,
    pub cost: f64,
    /// No solution is faster than this; equal to `time` when proven.
    pub lower_bound: f64,
    pub proven: bool,
}

/// States kept at a time, and over the whole search: bounds memory to some 100 MB and time to a second.
const MAX_STATES: usize = 20_000;
const MAX_NODES: usize = 4_000_000;

/// Rounding of sums over 10,000 groups, relative.
const SLACK: f64 = 1e-12;

/// One step along a group's hull.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnapsackStep {
    pub group: usize,
    pub to: usize,
    pub saved_time: f64,
    pub added_cost: f64,
}

impl KnapsackStep {
    fn efficiency(&self) -> f64 {
        self.saved_time / self.added_cost
    }
}

/// Where every group is cheapest, and the steps from there, most efficient first.
#[derive(Clone, Debug, PartialEq)]
pub struct HullWalk {
    pub start: Vec<usize>,
    pub start_cost: f64,
    pub start_time: f64,
    pub steps: Vec<KnapsackStep>,
}

impl HullWalk {
    /// Every group has at least one option.
    pub fn new(groups: &[&[Item]]) -> Self {
        let mut walk =
            Self { start: Vec::with_capacity(groups.len()), start_cost: 0.0, start_time: 0.0, steps: Vec::new() };
        for (group, items) in groups.iter().enumerate() {
            let hull = hull(items);
            let first = hull.first().copied().unwrap_or_default();
            walk.start.push(first);
            walk.start_cost += items[first].cost;
            walk.start_time += items[first].time;
            for pair in hull.windows(2) {
                let (from, to) = (items[pair[0]], items[pair[1]]);
                let (saved_time, added_cost) = (from.time - to.time, to.cost - from.cost);
                walk.steps.push(KnapsackStep { group, to: pair[1], saved_time, added_cost });
            }
        }
        // Stable: within a group steps are already from the most to the least efficient.
        let mut ranked: Vec<(f64, KnapsackStep)> =
            walk.steps.into_iter().map(|step| (step.efficiency(), step)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        walk.steps = ranked.into_iter().map(|(_, step)| step).collect();
        walk
    }
}

/// Drops what another beats in both (cost, time), and sorts the rest by rising cost. Ties: the earlier one.
pub(super) fn keep_undominated<T>(of: &mut Vec<T>, weight: impl Fn(&T) -> (f64, f64)) {
    of.sort_by(|a, b| {
        let ((a_cost, a_time), (b_cost, b_time)) = (weight(a), weight(b));
        a_cost.total_cmp(&b_cost).then(a_time.total_cmp(&b_time))
    });
    let mut fastest = f64::INFINITY;
    of.retain(|each| {
        let (_, time) = weight(each);
        let kept = time < fastest;
        fastest = fastest.min(time);
        kept
    });
}

/// Indices of the lower convex hull: cost rises, time falls, by less and less a unit of cost.
fn hull(items: &[Item]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|a, b| items[*a].cost.total_cmp(&items[*b].cost).then(items[*a].time.total_cmp(&items[*b].time)));
    let mut hull: Vec<usize> = Vec::with_capacity(items.len());
    for next in order {
        if hull.last().is_some_and(|last| items[next].time >= items[*last].time) {
            continue;
        }
        while let [.., before, last] = hull[..] {
            let slope = |a: usize, b: usize| (items[a].time - items[b].time) / (items[b].cost - items[a].cost);
            if slope(before, last) > slope(last, next) {
                break;
            }
            hull.pop();
        }
        hull.push(next);
    }
    hull
}

/// `None`: even the cheapest options exceed the capacity.
pub fn solve(groups: &[&[Item]], capacity: f64) -> Option<Solution> {
    let walk = HullWalk::new(groups);
    let room = capacity + SLACK * capacity.abs();
    if walk.start_cost > room {
        return None;
    }
    let mut picks = walk.start.clone();
    let (mut cost, mut time) = (walk.start_cost, walk.start_time);
    let mut steps = walk.steps.iter();
    let broken = steps.find(|step| {
        if cost + step.added_cost > room {
            return true;
        }
        picks[step.group] = step.to;
        cost += step.added_cost;
        time -= step.saved_time;
        false
    });
    let Some(broken) = broken else { return Some(Solution { picks, time, cost, lower_bound: time, proven: true }) };

    let multiplier = broken.efficiency();
    let relaxed = Relaxed { bound: time - multiplier * (room - cost), multiplier, room, cost, time };
    let mut best = Solution { picks: picks.clone(), time, cost, lower_bound: relaxed.bound, proven: false };
    fill(&mut best, steps.copied().collect(), broken.group, room);
    Some(Search::new(groups, &picks, relaxed, best).run())
}

/// Takes further steps that fit. A group with a step left out is closed: the next one starts there.
fn fill(best: &mut Solution, steps: Vec<KnapsackStep>, broken: usize, room: f64) {
    let mut closed = std::collections::HashSet::from([broken]);
    for step in steps {
        if closed.contains(&step.group) {
            continue;
        }
        if best.cost + step.added_cost > room {
            closed.insert(step.group);
            continue;
        }
        best.picks[step.group] = step.to;
        best.cost += step.added_cost;
        best.time -= step.saved_time;
    }
}

/// The relaxation's whole part: the cost and time of its picks, and the bound.
#[derive(Clone, Copy)]
struct Relaxed {
    bound: f64,
    multiplier: f64,
    room: f64,
    cost: f64,
    time: f64,
}

impl Relaxed {
    /// No completion of a state is faster: time + multiplier x (cost - room), by weak duality.
    fn bound_of(&self, cost: f64, time: f64) -> f64 {
        time + self.multiplier * (cost - self.room)
    }
}

/// A group that is still open: what each surviving alternative changes against the relaxed pick.
struct Open {
    group: usize,
    alternatives: Vec<(usize, Item)>,
    least_penalty: f64,
    largest_saving: f64,
}

#[derive(Clone, Copy)]
struct Partial {
    cost: f64,
    time: f64,
    node: u32,
    /// The alternative taken last, not yet a node.
    taken: Option<(u32, u32)>,
}

struct KnapsackNode {
    parent: u32,
    group: u32,
    option: u32,
}

const ROOT: u32 = u32::MAX;

struct Search<'p> {
    picks: &'p [usize],
    relaxed: Relaxed,
    best: Solution,
    open: Vec<Open>,
    nodes: Vec<KnapsackNode>,
    complete: bool,
}

impl<'p> Search<'p> {
    fn new(groups: &[&[Item]], picks: &'p [usize], relaxed: Relaxed, best: Solution) -> Self {
        let mut open: Vec<Open> = groups
            .iter()
            .zip(picks)
            .enumerate()
            .filter_map(|(group, (items, pick))| open_group(group, items, *pick, &relaxed, best.time))
            .collect();
        open.sort_by(|a, b| a.least_penalty.total_cmp(&b.least_penalty).then(a.group.cmp(&b.group)));
        Self { picks, relaxed, best, open, nodes: Vec::new(), complete: true }
    }

    fn run(mut self) -> Solution {
        let mut saving_left: f64 = self.open.iter().map(|open| open.largest_saving).sum();
        let mut states = vec![Partial { cost: self.relaxed.cost, time: self.relaxed.time, node: ROOT, taken: None }];
        for open in std::mem::take(&mut self.open) {
            // Past this group's least penalty nothing can change any more.
            if self.relaxed.bound + open.least_penalty >= self.target() {
                break;
            }
            saving_left -= open.largest_saving;
            states = self.expand(&states, &open, saving_left);
            if self.nodes.len() > MAX_NODES {
                self.complete = false;
                break;
            }
        }
        self.best.proven = self.complete;
        if self.complete {
            self.best.lower_bound = self.best.time;
        }
        self.best
    }

    /// What a state must beat to matter.
    fn target(&self) -> f64 {
        self.best.time - SLACK * self.best.time.abs()
    }

    fn expand(&mut self, states: &[Partial], open: &Open, saving_left: f64) -> Vec<Partial> {
        let mut next: Vec<Partial> = Vec::with_capacity(2 * states.len());
        let useful = |relaxed: &Relaxed, state: &Partial, target: f64| {
            relaxed.bound_of(state.cost, state.time) < target && state.cost - saving_left <= relaxed.room
        };
        for state in states {
            if useful(&self.relaxed, state, self.target()) {
                next.push(Partial { taken: None, ..*state });
            }
            for (option, change) in &open.alternatives {
                let taken = Some((open.group as u32, *option as u32));
                let reached =
                    Partial { cost: state.cost + change.cost, time: state.time + change.time, node: state.node, taken };
                if !useful(&self.relaxed, &reached, self.target()) {
                    continue;
                }
                if reached.cost <= self.relaxed.room && reached.time < self.target() {
                    self.improve(&reached);
                }
                next.push(reached);
            }
        }
        self.keep(next)
    }

    /// Drops dominated states, bounds their number, and makes nodes of the survivors.
    fn keep(&mut self, mut states: Vec<Partial>) -> Vec<Partial> {
        keep_undominated(&mut states, |state| (state.cost, state.time));
        if states.len() > MAX_STATES {
            self.complete = false;
            let relaxed = self.relaxed;
            states.sort_by(|a, b| relaxed.bound_of(a.cost, a.time).total_cmp(&relaxed.bound_of(b.cost, b.time)));
            states.truncate(MAX_STATES);
        }
        for state in &mut states {
            if let Some((group, option)) = state.taken.take() {
                self.nodes.push(KnapsackNode { parent: state.node, group, option });
                state.node = (self.nodes.len() - 1) as u32;
            }
        }
        states
    }

    fn improve(&mut self, state: &Partial) {
        self.best.picks.copy_from_slice(self.picks);
        if let Some((group, option)) = state.taken {
            self.best.picks[group as usize] = option as usize;
        }
        let mut at = state.node;
        while let Some(node) = self.nodes.get(at as usize) {
            self.best.picks[node.group as usize] = node.option as usize;
            at = node.parent;
        }
        self.best.cost = state.cost;
        self.best.time = state.time;
    }
}

fn open_group(group: usize, items: &[Item], pick: usize, relaxed: &Relaxed, best: f64) -> Option<Open> {
    let from = items[pick];
    let mut open = Open { group, alternatives: Vec::new(), least_penalty: f64::INFINITY, largest_saving: 0.0 };
    for (index, item) in items.iter().enumerate().filter(|(index, _)| *index != pick) {
        let change = Item { cost: item.cost - from.cost, time: item.time - from.time };
        let penalty = (change.time + relaxed.multiplier * change.cost).max(0.0);
        if relaxed.bound + penalty < best {
            open.alternatives.push((index, change));
            open.least_penalty = open.least_penalty.min(penalty);
            open.largest_saving = open.largest_saving.max(-change.cost);
        }
    }
    (!open.alternatives.is_empty()).then_some(open)
}

#[cfg(test)]
mod tests;
