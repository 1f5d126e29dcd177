//! What the sites of a file's rows were probed under: a row names its own site's mods alone, and its file was
//! probed with the same mods everywhere.

use std::collections::HashMap;

use crate::{
    engine::{Feeds, SiteContext},
    model::{ModSet, Site, SiteMods},
};

/// Contexts of uniform sets of mods, each looked up once.
pub(super) struct Uniform {
    by_mods: HashMap<ModSet, Vec<SiteContext>>,
}

impl Uniform {
    /// For each of `sets`.
    pub fn new<'a>(sites: &[Site], sets: impl Iterator<Item = &'a ModSet>) -> Self {
        let feeds = Feeds::new(sites);
        let mut by_mods: HashMap<ModSet, Vec<SiteContext>> = HashMap::new();
        for mods in sets {
            if !by_mods.contains_key(mods) {
                by_mods.insert(mods.clone(), feeds.contexts(&SiteMods::from(mods.clone())));
            }
        }
        Self { by_mods }
    }

    /// Of the site numbered `at` under `mods` everywhere.
    pub fn of(&self, at: usize, mods: &ModSet) -> SiteContext {
        let known = self.by_mods.get(mods).and_then(|contexts| contexts.get(at));
        known.cloned().unwrap_or_else(|| SiteContext { own: mods.clone(), upstream: Vec::new() })
    }
}
