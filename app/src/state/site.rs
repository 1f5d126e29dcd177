//! What is seen of this view and not of the model: kept while the window is open. What core made of the
//! selected site is kept with what it was made of, so that a still window asks for nothing.

use std::sync::Arc;

use loka_core::{
    model::{Metric, SiteId},
    session::Session,
    views::{Column, KernelColumn, OverrideEffect, SiteView, fed_by, override_effect},
};

use super::Derived;

#[derive(Clone, Debug, Default)]
pub struct SiteState {
    pub sort: KernelColumn,
    pub reversed: bool,
    seen: Option<(SiteKey, Arc<SiteView>)>,
    /// Of which trace, for which site, and the sites that feed it.
    fed_by: Option<(String, SiteId, Arc<[SiteId]>)>,
    effect: Option<(Thought, Arc<OverrideEffect>)>,
}

/// What a site's view depends on: the revision of what is shown, the site, the metric.
type SiteKey = (u64, SiteId, Metric);
/// The same of an override that is thought of.
type Thought = (u64, SiteId, Column);

impl SiteState {
    pub fn site(&mut self, derived: &Derived, id: &SiteId, metric: Metric) -> Option<Arc<SiteView>> {
        let key = (derived.revision, id.clone(), metric);
        if let Some((seen, view)) = &self.seen
            && *seen == key
        {
            return Some(view.clone());
        }
        let view = Arc::new(SiteView::of(derived.snapshot.as_ref()?, &derived.plan, id, metric)?);
        self.seen = Some((key, view.clone()));
        Some(view)
    }

    pub fn fed_by(&mut self, session: &Session, id: &SiteId) -> Arc<[SiteId]> {
        let path = session.trace.as_ref().map_or("", |trace| trace.path.as_str());
        match &self.fed_by {
            Some((of, site, found)) if of == path && site == id => found.clone(),
            _ => {
                let found: Arc<[SiteId]> = fed_by(session.sites(), id).into();
                self.fed_by = Some((path.to_owned(), id.clone(), found.clone()));
                found
            }
        }
    }

    pub fn effect(&mut self, derived: &Derived, id: &SiteId, column: &Column) -> Option<Arc<OverrideEffect>> {
        let key = (derived.revision, id.clone(), column.clone());
        if let Some((seen, effect)) = &self.effect
            && *seen == key
        {
            return Some(effect.clone());
        }
        let effect =
            Arc::new(override_effect(derived.snapshot.as_ref()?, &derived.plan, (id, column.gemm), &column.kernel)?);
        self.effect = Some((key, effect.clone()));
        Some(effect)
    }

    /// By that column; the same one again turns the order round.
    pub fn sort_by(&mut self, column: KernelColumn) {
        let same = self.sort == column;
        // The largest speed-up is the most interesting, of all else the smallest.
        self.reversed = if same { !self.reversed } else { column == KernelColumn::Speedup };
        self.sort = column;
    }
}
