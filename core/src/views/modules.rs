//! Takes the names of a trace's sites, gives the tree of modules that they stand in, split at dots. Made once a
//! trace: what is shown of it is [`super::Lines`]. Names may be empty, without a dot, or a thousand dots deep.

use std::{collections::HashMap, ops::Range};

use crate::model::SiteId;

/// A module with others in it, for as long as the trace is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FolderId(pub u32);

/// A module: its path is the beginning of any of its sites' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModuleNode {
    pub parent: u32,
    /// The first site in it.
    pub site: u32,
    /// In that site's name: where its own part begins, and where its path ends.
    pub start: u32,
    pub end: u32,
}

/// The tree. The root is module 0 and stands for no name; parents come before their children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    pub(super) all: Vec<ModuleNode>,
    /// By site: the module that it is directly in.
    pub(super) of_site: Vec<u32>,
}

/// A part of a site's name; all of it where it has no such part.
pub(super) fn part_of(ids: &[SiteId], site: u32, part: Range<u32>) -> &str {
    let name = ids.get(site as usize).map_or("", SiteId::as_str);
    name.get(part.start as usize..part.end as usize).unwrap_or(name)
}

impl Modules {
    pub fn new(ids: &[SiteId]) -> Self {
        let mut all = vec![ModuleNode { parent: 0, site: 0, start: 0, end: 0 }];
        let mut known: HashMap<(u32, &str), u32> = HashMap::new();
        let mut of_site = Vec::with_capacity(ids.len());
        for (site, id) in ids.iter().enumerate() {
            let name = id.as_str();
            let (mut parent, mut start) = (0, 0);
            for (dot, _) in name.match_indices('.') {
                parent = *known.entry((parent, &name[start..dot])).or_insert_with(|| {
                    let (site, start, end) = (site as u32, start as u32, dot as u32);
                    all.push(ModuleNode { parent, site, start, end });
                    all.len() as u32 - 1
                });
                start = dot + 1;
            }
            of_site.push(parent);
        }
        Self { all, of_site }
    }

    pub(super) fn get(&self, at: u32) -> ModuleNode {
        self.all.get(at as usize).copied().unwrap_or(ModuleNode { parent: 0, site: 0, start: 0, end: 0 })
    }

    /// The module's whole name.
    pub fn path<'a>(&self, ids: &'a [SiteId], folder: FolderId) -> &'a str {
        let of = self.get(folder.0);
        ids.get(of.site as usize).and_then(|id| id.as_str().get(..of.end as usize)).unwrap_or_default()
    }

    /// The outermost lie at 1.
    pub fn depth(&self, folder: FolderId) -> u32 {
        let (mut at, mut depth) = (folder.0, 0);
        while at != 0 {
            (at, depth) = (self.get(at).parent, depth + 1);
        }
        depth
    }

    /// Every module with something in it: to close all at once.
    pub fn folders(&self) -> impl Iterator<Item = FolderId> {
        (1..self.all.len() as u32).map(FolderId)
    }
}

/// Deeper than people nest modules; what lies deeper stands as one.
const DEEPEST: usize = 32;

/// Each with its dot at the end: a module is not its namesake site.
fn prefixes(site: &SiteId) -> impl Iterator<Item = &str> {
    let name = site.as_str();
    name.match_indices('.').take(DEEPEST).map(move |(dot, _)| &name[..=dot])
}

/// How many modules a site lies in.
pub fn depth(site: &SiteId) -> usize {
    prefixes(site).count()
}

/// The module at that depth with `.` at its end, or the site's whole name when it does not lie so deep.
pub fn module(site: &SiteId, depth: usize) -> &str {
    if depth == 0 {
        return "";
    }
    prefixes(site).nth(depth - 1).unwrap_or(site.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_a_depth() {
        let site = SiteId::new("net.layers.0.mlp");
        assert_eq!((depth(&site), module(&site, 2), module(&site, 9)), (3, "net.layers.", "net.layers.0.mlp"));
        let deep = SiteId::new(&".".repeat(100_000));
        assert_eq!(depth(&deep), DEEPEST);
    }
}
