//! What is seen of this view and not of the model: kept while the window is open.

use std::{collections::BTreeSet, sync::Arc};

use loka_core::{
    model::{ModKind, SiteId, SiteMods},
    session::Command,
    views::ModsStanding,
};

#[derive(Clone, Debug, Default)]
pub struct ModsState {
    /// The module that actions for "this module" go to; `None`: the selected site's.
    pub module: Option<String>,
    /// Modules whose parts are hidden or shown against the rule that the first two levels are open.
    turned: BTreeSet<String>,
    turns: u64,
    /// Which modules are shown, and what that was made of.
    shown: Option<(Arc<ModsStanding>, u64, Arc<[usize]>)>,
}

/// Levels that are open from the start.
const OPEN_LEVELS: usize = 2;

impl ModsState {
    pub fn is_open(&self, path: &str, depth: usize) -> bool {
        (depth < OPEN_LEVELS) != self.turned.contains(path)
    }

    pub fn turn(&mut self, path: &str) {
        if !self.turned.remove(path) {
            self.turned.insert(path.to_owned());
        }
        self.turns += 1;
    }

    /// Places of the modules to show; looked up again only when something was opened or changed.
    pub fn shown(&mut self, standing: &Arc<ModsStanding>) -> Arc<[usize]> {
        if let Some((of, turns, shown)) = &self.shown
            && Arc::ptr_eq(of, standing)
            && *turns == self.turns
        {
            return shown.clone();
        }
        let shown: Arc<[usize]> = standing.modules.visible(|module| self.is_open(&module.path, module.depth)).into();
        self.shown = Some((standing.clone(), self.turns, shown.clone()));
        shown
    }
}

/// On at all of these sites, or off where it is on at all of them already.
pub fn set_mod(mods: &SiteMods, kind: ModKind, sites: Vec<SiteId>) -> Command {
    let on = !sites.iter().all(|site| mods.of(site).contains(kind));
    Command::SetMod { kind, on, sites }
}
