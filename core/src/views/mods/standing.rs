//! Takes the sites and the mods in force, gives a tree of modules with what is on where, and what each mod
//! does at how many sites. Depends on no row: it is kept while rows stream in.

use std::collections::{BTreeMap, HashSet};

use crate::{
    model::{ModKind, Site, SiteId, SiteMods},
    mods::{Effect, effect},
    views::{Facts, Filter, Line, Lines, Modules, Order, Snapshot},
};

/// Where something is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum On {
    #[default]
    Nowhere,
    Some,
    Everywhere,
}

impl On {
    pub fn of(count: usize, all: usize) -> Self {
        match count {
            0 => Self::Nowhere,
            count if count == all => Self::Everywhere,
            _ => Self::Some,
        }
    }
}

/// One mod.
#[derive(Clone, Debug, PartialEq)]
pub struct ModStanding {
    pub kind: ModKind,
    pub num_on: usize,
    /// Sites that it would change, and those where it is on and does.
    pub num_able: usize,
    pub num_changing: usize,
    /// What it does, and why it does nothing, with how many sites; the most frequent first.
    pub does: Vec<(String, usize)>,
    pub not: Vec<(&'static str, usize)>,
}

/// A part of the model by the names of its sites.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// What all its sites' names begin with, up to a dot; a site's whole name for a leaf.
    pub path: String,
    /// The path beyond its parent's.
    pub name: String,
    pub depth: usize,
    /// The place after its last descendant.
    pub end: usize,
    pub num_sites: usize,
    /// In the order of [`ModKind::ALL`]: sites where it is on, and that it would change.
    pub num_on: [usize; 3],
    pub num_able: [usize; 3],
}

/// Parents before their children, in forward order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleMods(pub Vec<Module>);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModsStanding {
    /// In the order of [`ModKind::ALL`].
    pub kinds: Vec<ModStanding>,
    pub modules: ModuleMods,
    pub num_sites: usize,
    /// What it was made of.
    made_of: (String, SiteMods),
}

impl ModsStanding {
    /// `last` when nothing that it depends on has changed.
    pub fn of(snapshot: &Snapshot, last: &std::sync::Arc<Self>) -> std::sync::Arc<Self> {
        let made_of = (snapshot.trace.path.clone(), snapshot.document.mods.clone());
        if last.made_of == made_of && last.num_sites == snapshot.sites().len() {
            return last.clone();
        }
        let (sites, mods) = (snapshot.sites(), &snapshot.document.mods);
        std::sync::Arc::new(Self {
            kinds: ModKind::ALL.iter().map(|kind| standing(*kind, sites, mods)).collect(),
            modules: ModuleMods::of(sites, mods),
            num_sites: sites.len(),
            made_of,
        })
    }
}

fn standing(kind: ModKind, sites: &[Site], mods: &SiteMods) -> ModStanding {
    let (mut does, mut not) = (BTreeMap::<String, usize>::new(), BTreeMap::<&'static str, usize>::new());
    let mut standing = ModStanding { kind, num_on: 0, num_able: 0, num_changing: 0, does: vec![], not: vec![] };
    for site in sites {
        let on = mods.of(&site.id).contains(kind);
        standing.num_on += usize::from(on);
        match effect(kind, site) {
            Effect::Changes(what) => {
                standing.num_able += 1;
                standing.num_changing += usize::from(on);
                *does.entry(what).or_default() += 1;
            }
            Effect::Nothing(why) => *not.entry(why).or_default() += 1,
        }
    }
    standing.does = does.into_iter().collect();
    standing.not = not.into_iter().collect();
    standing.does.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    standing.not.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    standing
}

impl ModuleMods {
    /// The lines of the site list with every folder open: one tree of modules serves both.
    pub fn of(sites: &[Site], mods: &SiteMods) -> Self {
        let ids: Vec<SiteId> = sites.iter().map(|site| site.id.clone()).collect();
        let (filter, closed) = (Filter::default(), HashSet::new());
        let lines = Lines::of(&Modules::new(&ids), &Facts::names(&ids), &filter, Order::default(), &closed);
        let (on, able): (Vec<[bool; 3]>, Vec<[bool; 3]>) = sites.iter().map(|site| of_site(site, mods)).unzip();
        let count = |of: &[[bool; 3]], line: &Line| {
            let inside = lines.sites(line);
            [0, 1, 2].map(|kind| inside.iter().filter(|site| of[**site as usize][kind]).count())
        };
        let module = |line: &Line| Module {
            path: line.path(&ids).to_owned(),
            name: line.label(&ids).to_owned(),
            depth: usize::from(line.depth),
            end: 0,
            num_sites: line.num_sites(),
            num_on: count(&on, line),
            num_able: count(&able, line),
        };
        let mut modules: Vec<Module> = lines.all.iter().map(module).collect();
        end_at_siblings(&mut modules);
        Self(modules)
    }

    /// Places of the modules to show: those whose parents `is_open` opens.
    pub fn visible(&self, is_open: impl Fn(&Module) -> bool) -> Vec<usize> {
        let mut shown = Vec::new();
        let mut at = 0;
        while let Some(module) = self.0.get(at) {
            shown.push(at);
            at = if is_open(module) { at + 1 } else { module.end };
        }
        shown
    }
}

/// In the order of [`ModKind::ALL`]: which are on at a site, and which would change it.
fn of_site(site: &Site, mods: &SiteMods) -> ([bool; 3], [bool; 3]) {
    let set = mods.of(&site.id);
    let able = ModKind::ALL.map(|kind| matches!(effect(kind, site), Effect::Changes(_)));
    (ModKind::ALL.map(|kind| set.contains(kind)), able)
}

/// A module ends where the next begins that is not deeper.
fn end_at_siblings(modules: &mut [Module]) {
    let mut open: Vec<usize> = Vec::new();
    for at in 0..modules.len() {
        while let Some(before) = open.pop_if(|before| modules[*before].depth >= modules[at].depth) {
            modules[before].end = at;
        }
        open.push(at);
    }
    let end = modules.len();
    open.into_iter().for_each(|at| modules[at].end = end);
}

impl Module {
    pub fn is_site(&self, at: usize) -> bool {
        self.end == at + 1
    }

    /// A site's own line has that site alone, also where its name begins others'.
    pub fn has(&self, site: &str) -> bool {
        let rest = site.strip_prefix(self.path.as_str());
        rest.is_some_and(|rest| if self.num_sites == 1 { rest.is_empty() } else { rest.starts_with('.') })
    }
}
