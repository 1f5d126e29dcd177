//! Takes a trace's modules, a filter, an order and the folders that are closed; gives the lines that the site list
//! and the heatmap show, the same in both. Computed when one of these changes, never in a frame.

use std::{cmp::Ordering, collections::HashSet};

use crate::{format::Term, model::SiteId};

use super::{Facts, Filter, FolderId, Modules, ReviewStanding, modules::part_of};

/// What sites are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sort {
    /// As the model runs.
    #[default]
    Forward,
    Name,
    /// The largest error first.
    WorstError,
    /// The largest speed-up of a safe kernel first.
    Gain,
    /// The largest loss cost first.
    LossCost,
    /// The most unsafe first.
    Verdict,
}

impl Sort {
    pub const ALL: [Self; 6] = [Self::Forward, Self::Name, Self::WorstError, Self::Gain, Self::LossCost, Self::Verdict];

    pub fn label(self) -> &'static str {
        match self {
            Self::Forward => "Forward order",
            Self::Name => "Name",
            Self::WorstError => "Worst error",
            Self::Gain => "Gain",
            Self::LossCost => "Loss cost",
            Self::Verdict => "Verdict",
        }
    }

    /// What it goes by.
    pub fn term(self) -> Term {
        match self {
            Self::Forward | Self::Name => Term::Site,
            Self::WorstError => Term::Error,
            Self::Gain => Term::Speedup,
            Self::LossCost => Term::LossCost,
            Self::Verdict => Term::Verdict,
        }
    }

    /// By results, which change while rows come.
    pub fn is_by_results(self) -> bool {
        !matches!(self, Self::Forward | Self::Name)
    }
}

/// How sites are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    pub sort: Sort,
    pub reversed: bool,
    /// In a tree of their modules; otherwise one list.
    pub grouped: bool,
}

impl Default for Order {
    fn default() -> Self {
        Self { sort: Sort::Forward, reversed: false, grouped: true }
    }
}

/// What a line stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// Modules that stand alone in one another are one line: `net.layers`.
    Folder {
        folder: FolderId,
        open: bool,
    },
    Site,
}

/// One line. Its label is a piece of a site's name, so that 100,000 lines hold no text of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub kind: LineKind,
    /// How far it is indented.
    pub depth: u16,
    /// The site; of a folder one that is in it.
    pub site: u32,
    /// Where in that site's name the label begins and ends.
    start: u32,
    end: u32,
    /// Its sites in [`Lines::order`].
    from: u32,
    to: u32,
}

impl Line {
    pub fn label<'a>(&self, ids: &'a [SiteId]) -> &'a str {
        part_of(ids, self.site, self.start..self.end)
    }

    /// The whole name of the site or module.
    pub fn path<'a>(&self, ids: &'a [SiteId]) -> &'a str {
        part_of(ids, self.site, 0..self.end)
    }

    pub fn is_folder(&self) -> bool {
        matches!(self.kind, LineKind::Folder { .. })
    }

    pub fn num_sites(&self) -> usize {
        (self.to - self.from) as usize
    }
}

/// The lines, and the sites behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    pub all: Vec<Line>,
    /// Sites that the filter lets through, as the lines stand; also those in closed folders.
    pub order: Vec<u32>,
    /// By site: its line, or that of the closed folder it is in.
    line_of: Vec<u32>,
}

/// Where a site that is filtered out stands.
const NOWHERE: u32 = u32::MAX;

impl Lines {
    pub fn of(modules: &Modules, facts: &Facts<'_>, filter: &Filter, order: Order, closed: &HashSet<FolderId>) -> Self {
        let mut shown: Vec<u32> =
            (0..facts.ids.len() as u32).filter(|site| filter.shows_site(facts, *site as usize)).collect();
        sort(&mut shown, facts, order);
        let mut lines =
            if order.grouped { Tree::of(modules, &shown).lines(facts.ids, closed) } else { flat(facts.ids, shown) };
        lines.number(facts.ids.len());
        lines
    }

    fn number(&mut self, num_sites: usize) {
        self.line_of = vec![NOWHERE; num_sites];
        for (at, line) in self.all.iter().enumerate() {
            if matches!(line.kind, LineKind::Folder { open: false, .. }) || !line.is_folder() {
                for site in &self.order[line.from as usize..line.to as usize] {
                    self.line_of[*site as usize] = at as u32;
                }
            }
        }
    }

    /// The line that stands for a site; `None` when it is filtered out.
    pub fn line_of(&self, site: usize) -> Option<usize> {
        self.line_of.get(site).filter(|at| **at != NOWHERE).map(|at| *at as usize)
    }

    /// Every site that the filter lets through, in the order of the list, also those in closed folders.
    pub fn shown(&self) -> &[u32] {
        &self.order
    }

    /// The sites of a line: one, or all that are in the folder.
    pub fn sites(&self, line: &Line) -> &[u32] {
        self.order.get(line.from as usize..line.to as usize).unwrap_or_default()
    }

    /// The innermost folder that a site stands in, or the closed one that stands for it.
    pub fn folder_of(&self, site: usize) -> Option<FolderId> {
        let at = self.line_of(site)?;
        let depth = self.all[at].depth;
        if let LineKind::Folder { folder, .. } = self.all[at].kind {
            return Some(folder);
        }
        self.all[..at].iter().rev().filter(|line| line.depth < depth).find_map(|line| match line.kind {
            LineKind::Folder { folder, .. } => Some(folder),
            LineKind::Site => None,
        })
    }

    /// The site `step` lines further, folders left out; the first, or the last, when there is no such line.
    pub fn stepped(&self, from: Option<usize>, step: isize) -> Option<usize> {
        let Some(from) = from else { return self.next_site(0, 1).or_else(|| self.next_site(0, -1)) };
        let direction = step.signum();
        let mut at = from;
        for _ in 0..step.unsigned_abs() {
            let Some(next) = at.checked_add_signed(direction).and_then(|next| self.next_line(next, direction)) else {
                break;
            };
            at = next;
        }
        let here = self.all.get(at).filter(|line| !line.is_folder());
        here.map(|line| line.site as usize)
    }

    fn next_site(&self, from: usize, direction: isize) -> Option<usize> {
        self.next_line(from, direction).map(|at| self.all[at].site as usize)
    }

    fn next_line(&self, mut at: usize, direction: isize) -> Option<usize> {
        while self.all.get(at)?.is_folder() {
            at = at.checked_add_signed(direction)?;
        }
        Some(at)
    }

    /// Sites between two lines, both included, in either order: what Shift selects.
    pub fn between(&self, a: usize, b: usize) -> impl Iterator<Item = u32> {
        let (from, to) = (a.min(b), a.max(b) + 1);
        let lines = self.all.get(from..to.min(self.all.len())).unwrap_or_default();
        let own = lines.iter().filter(|line| !matches!(line.kind, LineKind::Folder { open: true, .. }));
        own.flat_map(|line| self.sites(line).iter().copied())
    }
}

/// Every site, those of a module together at the place of its first one: as a list that is grouped and open has them.
pub fn by_module(ids: &[SiteId]) -> Vec<u32> {
    let all: Vec<u32> = (0..ids.len() as u32).collect();
    Tree::of(&Modules::new(ids), &all).lines(ids, &HashSet::new()).order
}

fn flat(ids: &[SiteId], shown: Vec<u32>) -> Lines {
    let line = |(at, site): (usize, &u32)| Line {
        kind: LineKind::Site,
        depth: 0,
        site: *site,
        start: 0,
        end: ids[*site as usize].as_str().len() as u32,
        from: at as u32,
        to: at as u32 + 1,
    };
    Lines { all: shown.iter().enumerate().map(line).collect(), order: shown, line_of: Vec::new() }
}

/// The largest first, what is not known last.
fn descending(a: f32, b: f32) -> Ordering {
    a.is_nan().cmp(&b.is_nan()).then(b.total_cmp(&a))
}

fn sort(shown: &mut [u32], facts: &Facts<'_>, order: Order) {
    let rank = |site: &u32| facts.standings.map(|all| all.rank(*site as usize)).unwrap_or_default();
    // Stable: equals stay as the model runs.
    match order.sort {
        Sort::Forward => {}
        Sort::Name => shown.sort_by(|a, b| {
            let name = |site: &u32| facts.ids[*site as usize].as_str();
            natural(name(a), name(b))
        }),
        Sort::WorstError => shown.sort_by(|a, b| descending(rank(a).error, rank(b).error)),
        Sort::Gain => shown.sort_by(|a, b| descending(rank(a).gain, rank(b).gain)),
        Sort::LossCost => shown.sort_by(|a, b| descending(rank(a).loss_cost, rank(b).loss_cost)),
        Sort::Verdict => shown.sort_by_cached_key(|site| trouble(facts, *site as usize)),
    }
    if order.reversed {
        shown.reverse();
    }
}

/// Sorts the most unsafe first: GEMMs by their standing, those not judged last.
fn trouble(facts: &Facts<'_>, site: usize) -> [u8; 3] {
    let rank = |standing: Option<ReviewStanding>| match standing {
        Some(ReviewStanding::UnsafeFast) => 0,
        Some(ReviewStanding::UnsafeSlow) => 1,
        Some(ReviewStanding::Uncertain) => 2,
        Some(ReviewStanding::Safe) => 3,
        Some(ReviewStanding::SafeFast) => 4,
        None => 5,
    };
    let best = |gemm| facts.standings.and_then(|all| all.best(site, gemm, |_| true));
    let mut all = crate::model::Gemm::ALL.map(|gemm| rank(best(gemm)));
    all.sort_unstable();
    all
}

/// Numbers in names count as numbers: `layers.2` comes before `layers.10`. `01` and `1` are equal.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while let (Some(first), Some(second)) = (a.first(), b.first()) {
        if first.is_ascii_digit() && second.is_ascii_digit() {
            let (one, two) = (digits(a), digits(b));
            let plain = |digits: &[u8]| digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len());
            let (short, long) = (&one[plain(one)..], &two[plain(two)..]);
            let by_value = short.len().cmp(&long.len()).then_with(|| short.cmp(long));
            if by_value != Ordering::Equal {
                return by_value;
            }
            (a, b) = (&a[one.len()..], &b[two.len()..]);
        } else if first != second {
            return first.cmp(second);
        } else {
            (a, b) = (&a[1..], &b[1..]);
        }
    }
    a.len().cmp(&b.len())
}

fn digits(text: &[u8]) -> &[u8] {
    &text[..text.iter().take_while(|byte| byte.is_ascii_digit()).count()]
}

/// A module or a site in its parent, at the place of its first site in the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Child {
    first: u32,
    is_site: bool,
    /// Of the module, or of the site.
    at: u32,
}

/// What the filter leaves of the modules.
struct Tree<'a> {
    modules: &'a Modules,
    /// By parent, then by place.
    children: Vec<Child>,
    /// By module: where its children begin; one more at the end.
    begin: Vec<u32>,
    num_sites: Vec<u32>,
}

impl<'a> Tree<'a> {
    fn of(modules: &'a Modules, shown: &[u32]) -> Self {
        let mut num_sites = vec![0; modules.all.len()];
        let mut first = vec![u32::MAX; modules.all.len()];
        for (place, site) in shown.iter().enumerate() {
            let (parent, place) = (modules.of_site[*site as usize], place as u32);
            num_sites[parent as usize] += 1;
            first[parent as usize] = first[parent as usize].min(place);
        }
        let mut begin = vec![0; modules.all.len() + 1];
        begin.iter_mut().skip(1).zip(&num_sites).for_each(|(begin, own)| *begin = *own);
        // Parents come before their children: backwards, all of a module is known before its parent.
        for at in (1..modules.all.len()).rev() {
            if num_sites[at] > 0 {
                let parent = modules.all[at].parent;
                num_sites[parent as usize] += num_sites[at];
                first[parent as usize] = first[parent as usize].min(first[at]);
                begin[parent as usize + 1] += 1;
            }
        }
        (1..begin.len()).for_each(|at| begin[at] += begin[at - 1]);
        let nothing = Child { first: 0, is_site: false, at: 0 };
        let (mut children, mut next) = (vec![nothing; begin[modules.all.len()] as usize], begin.clone());
        let mut put = |parent: u32, child: Child| {
            let place = &mut next[parent as usize];
            children[*place as usize] = child;
            *place += 1;
        };
        for (place, site) in shown.iter().enumerate() {
            put(modules.of_site[*site as usize], Child { first: place as u32, is_site: true, at: *site });
        }
        for at in (1..modules.all.len()).filter(|at| num_sites[*at] > 0) {
            put(modules.all[at].parent, Child { first: first[at], is_site: false, at: at as u32 });
        }
        // Sites of a module are in order, and so are mostly the modules in one: what has both is not.
        for of in begin.windows(2).map(|ends| ends[0] as usize..ends[1] as usize) {
            if !children[of.clone()].is_sorted() {
                children[of].sort_unstable();
            }
        }
        Self { modules, children, begin, num_sites }
    }

    fn children(&self, module: u32) -> &[Child] {
        &self.children[self.begin[module as usize] as usize..self.begin[module as usize + 1] as usize]
    }

    /// The last of the modules that stand alone in one another from `module` on.
    fn joined(&self, mut module: u32) -> u32 {
        while let [Child { is_site: false, at, .. }] = self.children(module) {
            module = *at;
        }
        module
    }

    fn lines(&self, ids: &[SiteId], closed: &HashSet<FolderId>) -> Lines {
        let mut lines = Lines::default();
        // A stack of our own: a name may be deeper than the thread's. `Err`: that line's folder ends here.
        let mut stack: Vec<Result<(Child, u16, bool), u32>> = Vec::new();
        stack.extend(self.children(0).iter().rev().map(|child| Ok((*child, 0, true))));
        while let Some(next) = stack.pop() {
            let (child, depth, visible) = match next {
                Ok(next) => next,
                Err(line) => {
                    lines.all[line as usize].to = lines.order.len() as u32;
                    continue;
                }
            };
            let from = lines.order.len() as u32;
            // A folder of one site is that site, under the longer name.
            if child.is_site || self.num_sites[child.at as usize] == 1 {
                let (site, start) = self.single(child);
                let end = ids[site as usize].as_str().len() as u32;
                lines.order.push(site);
                if visible {
                    lines.all.push(Line { kind: LineKind::Site, depth, site, start, end, from, to: from + 1 });
                }
                continue;
            }
            let start = self.modules.get(child.at).start;
            let module = self.joined(child.at);
            let of = self.modules.get(module);
            let open = !closed.contains(&FolderId(module));
            if visible {
                let kind = LineKind::Folder { folder: FolderId(module), open };
                let (site, end) = (of.site, of.end);
                stack.push(Err(lines.all.len() as u32));
                lines.all.push(Line { kind, depth, site, start, end, from, to: from });
            }
            let inner = self.children(module).iter().rev();
            stack.extend(inner.map(|child| Ok((*child, depth.saturating_add(1), visible && open))));
        }
        lines
    }

    /// The only site of a child, and where its label begins.
    fn single(&self, child: Child) -> (u32, u32) {
        let mut at = child;
        while !at.is_site {
            let Some(inner) = self.children(at.at).first() else { break };
            at = *inner;
        }
        let own = || match self.modules.of_site[at.at as usize] {
            0 => 0,
            module => self.modules.get(module).end + 1,
        };
        (at.at, if child.is_site { own() } else { self.modules.get(child.at).start })
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
