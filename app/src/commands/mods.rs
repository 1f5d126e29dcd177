//! Changes of the model at some sites: the selected ones, or a module's. Each is one step of undo; everywhere
//! is [`super::Action::ToggleMod`].

use loka_core::{
    model::{ModKind, SiteId},
    session::Command,
};

use super::{
    Doing, Scope, no_site,
    table::{NO_KEY, actions},
};
use crate::state::set_mod;

actions! {
    /// Changes of the model, at some sites.
    ModsAction {
        NoBiasHere: "Toggle no bias here", "Drop the bias at the selected sites, or at the one inspected", NO_KEY;
        BlockNormHere: "Toggle BlockNorm here", "Use BlockNorm at the selected sites, or at the one inspected", NO_KEY;
        HardSwishHere: "Toggle hard swish here", "Use hard swish at the selected sites, or at the one inspected", NO_KEY;
        NoBiasInModule: "Toggle no bias in this module", "Drop the bias in the module picked in the Mods view, or else the site's own", NO_KEY;
        BlockNormInModule: "Toggle BlockNorm in this module", "Use BlockNorm in the module picked in the Mods view, or else the site's own", NO_KEY;
        HardSwishInModule: "Toggle hard swish in this module", "Use hard swish in the module picked in the Mods view, or else the site's own", NO_KEY;
    }
}

impl ModsAction {
    /// In the order of [`ModKind::ALL`].
    pub const HERE: [(Self, ModKind); 3] = [
        (Self::NoBiasHere, ModKind::NoBias),
        (Self::BlockNormHere, ModKind::BlockNorm),
        (Self::HardSwishHere, ModKind::HardSwish),
    ];
    pub const IN_MODULE: [(Self, ModKind); 3] = [
        (Self::NoBiasInModule, ModKind::NoBias),
        (Self::BlockNormInModule, ModKind::BlockNorm),
        (Self::HardSwishInModule, ModKind::HardSwish),
    ];

    fn kind(self) -> ModKind {
        match self {
            Self::NoBiasHere | Self::NoBiasInModule => ModKind::NoBias,
            Self::BlockNormHere | Self::BlockNormInModule => ModKind::BlockNorm,
            Self::HardSwishHere | Self::HardSwishInModule => ModKind::HardSwish,
        }
    }

    fn is_here(self) -> bool {
        Self::HERE.iter().any(|(action, _)| *action == self)
    }

    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let elsewhere = if self.is_here() { scope.view.selection.is_empty() } else { scope.view.mods.module.is_none() };
        no_site(scope).filter(|_| elsewhere)
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        let inspected = doing.view.site.clone();
        let sites: Vec<SiteId> = if !self.is_here() {
            let module = doing.view.mods.module.clone().or_else(|| Some(module_of(inspected.as_ref()?).to_owned()))?;
            doing.session.index().ids().iter().filter(|id| is_in(id, &module)).cloned().collect()
        } else if doing.view.selection.is_empty() {
            vec![inspected?]
        } else {
            doing.view.selection.iter().cloned().collect()
        };
        (!sites.is_empty()).then(|| set_mod(&doing.session.document.mods, self.kind(), sites))
    }
}

/// Everything before the last dot; a name without one is its own module.
fn module_of(site: &SiteId) -> &str {
    site.as_str().rsplit_once('.').map_or(site.as_str(), |(module, _)| module)
}

fn is_in(site: &SiteId, module: &str) -> bool {
    site.as_str().strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
