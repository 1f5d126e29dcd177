//! Takes the sites and the mods in force, gives a tree of modules with what is on where, and what each mod
//! does at how many sites. Depends on no row: it is kept while rows stream in.

use std::collections::BTreeMap;

use crate::{
    model::{ModKind, Site, SiteMods},
    mods::{Effect, effect},
    session::Snapshot,
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

/// A module while it is put together.
#[derive(Default)]
struct Node {
    /// In the order in which the model runs them, which need not be by name.
    children: Vec<(String, Node)>,
    by_name: std::collections::HashMap<String, usize>,
    num_sites: usize,
    num_on: [usize; 3],
    num_able: [usize; 3],
}

impl Node {
    fn add(&mut self, name: &str, on: [bool; 3], able: [bool; 3]) {
        self.num_sites += 1;
        for at in 0..3 {
            self.num_on[at] += usize::from(on[at]);
            self.num_able[at] += usize::from(able[at]);
        }
        if name.is_empty() {
            return;
        }
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let at = *self.by_name.entry(first.to_owned()).or_insert_with(|| {
            self.children.push((first.to_owned(), Self::default()));
            self.children.len() - 1
        });
        self.children[at].1.add(rest, on, able);
    }

    fn list(self, path: &str, parent: usize, depth: usize, into: &mut Vec<Module>) {
        for (name, mut node) in self.children {
            let mut full = if path.is_empty() { name } else { format!("{path}.{name}") };
            // A module with one part and no site of its own is one step, not two.
            while node.children.len() == 1 && node.children[0].1.num_sites == node.num_sites {
                if let Some((only, inner)) = node.children.pop() {
                    full = format!("{full}.{only}");
                    node = inner;
                }
            }
            let at = into.len();
            let shown = full.get(parent..).unwrap_or(&full).trim_start_matches('.').to_owned();
            let Self { num_sites, num_on, num_able, .. } = node;
            into.push(Module { name: shown, path: full.clone(), depth, end: 0, num_sites, num_on, num_able });
            node.list(&full, full.len(), depth + 1, into);
            into[at].end = into.len();
        }
    }
}

impl ModuleMods {
    pub fn of(sites: &[Site], mods: &SiteMods) -> Self {
        let mut root = Node::default();
        for site in sites {
            let set = mods.of(&site.id);
            let able = ModKind::ALL.map(|kind| matches!(effect(kind, site), Effect::Changes(_)));
            root.add(site.id.as_str(), ModKind::ALL.map(|kind| set.contains(kind)), able);
        }
        let mut modules = Vec::new();
        root.list("", 0, 0, &mut modules);
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

impl Module {
    pub fn is_site(&self, at: usize) -> bool {
        self.end == at + 1
    }

    pub fn has(&self, site: &str) -> bool {
        site.strip_prefix(self.path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}
