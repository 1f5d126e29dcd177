//! Sites by number and by name.

use std::collections::HashMap;

use super::{Site, SiteId};

/// The trace's sites by number and by name. Rows and views are kept by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteIndex {
    ids: Vec<SiteId>,
    by_id: HashMap<SiteId, usize>,
}

impl SiteIndex {
    pub fn new(sites: &[Site]) -> Self {
        let ids: Vec<SiteId> = sites.iter().map(|site| site.id.clone()).collect();
        let by_id = ids.iter().enumerate().map(|(at, id)| (id.clone(), at)).collect();
        Self { ids, by_id }
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub fn at(&self, id: &SiteId) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    pub fn ids(&self) -> &[SiteId] {
        &self.ids
    }
}
