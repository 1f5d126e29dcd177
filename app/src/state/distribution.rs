//! What is seen of the distributions: the operand, and the site that the selected one is compared with.

use loka_core::{model::SiteId, views::distribution::Operand};

/// What this view shows. Not saved, not undone.
#[derive(Clone, Debug, Default)]
pub struct DistributionState {
    pub operand: Operand,
    /// The site that the selected one is compared with.
    pub pinned: Option<SiteId>,
    /// Bars of formats that no kernel uses here, too.
    pub all_formats: bool,
}

impl DistributionState {
    /// Pins a site, or lets it go when it is the pinned one.
    pub fn toggle_pin(&mut self, site: &SiteId) {
        self.pinned = if self.pinned.as_ref() == Some(site) { None } else { Some(site.clone()) };
    }
}
