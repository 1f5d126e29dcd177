//! What views draw, derived from the session once a change rather than once a frame: at once while there is
//! little of it, on a thread of its own when it would be felt.

use std::sync::Arc;

use loka_core::{
    model::{Estimate, Gemm, KernelId, Metric, SiteId},
    session::Session,
    views::{
        Cell, Column, FrontierView, Graph, SiteChange, SiteVerdict, Versus, ViewQuery, Views, cell, cell_versus,
        site_change,
    },
};

use crate::{
    layout::{Layout, Pane},
    theme::shorten,
    view_cache::{FrontierCache, GraphCache, ViewCache},
};

/// The latest views, and how names are shortened.
pub struct Derived {
    views: Views,
    deriver: ViewCache,
    sweeps: FrontierCache,
    graphs: GraphCache,
    /// What all names begin with, up to a dot: left out where room is short.
    prefix: usize,
    /// Characters of the longest name: all are shortened, or none.
    longest: usize,
    /// Which trace the names are of, and how many.
    named: Option<(String, usize)>,
}

impl std::ops::Deref for Derived {
    type Target = Views;

    fn deref(&self) -> &Views {
        &self.views
    }
}

impl Derived {
    pub fn new(deriver: ViewCache, sweeps: FrontierCache, graphs: GraphCache) -> Self {
        Self { views: Views::default(), deriver, sweeps, graphs, prefix: 0, longest: 0, named: None }
    }

    /// Brings the views up to date, or has that begun; of the frontier, which is two dozen plans a policy, and of the graph only
    /// while they are looked at. An error of our own is a line for the person.
    pub fn refresh(&mut self, session: &Session, question: ViewQuery, layout: &Layout) -> Option<String> {
        self.name(session);
        let problem = self.deriver.refresh(session, question, &mut self.views);
        let curves = if layout.is_on_screen(Pane::Frontier) { self.sweeps.refresh(session) } else { None };
        let graph = if layout.is_on_screen(Pane::Graph) {
            self.graphs.refresh(&self.views)
        } else {
            self.graphs.rest();
            None
        };
        problem.or(curves).or(graph)
    }

    /// The plan along the forward chain; of the last time that it was on screen. `None`: not yet.
    pub fn graph(&self) -> Option<&Arc<Graph>> {
        self.graphs.graph()
    }

    /// What each policy's threshold buys; of the last time that the frontier was on screen.
    pub fn frontier(&self) -> &FrontierView {
        self.sweeps.view()
    }

    /// True while the curves are of an earlier moment.
    pub fn frontier_is_behind(&self) -> bool {
        self.sweeps.is_behind()
    }

    /// True while what is drawn is of an earlier moment.
    pub fn is_behind(&self) -> bool {
        self.deriver.is_behind() || self.graphs.is_behind()
    }

    /// The next frame goes on with what this one began.
    pub fn is_halfway(&self) -> bool {
        self.deriver.is_halfway()
    }

    fn name(&mut self, session: &Session) {
        let now = session.trace.as_ref().map(|trace| (trace.path.clone(), session.sites().len()));
        if now != self.named {
            self.named = now;
            self.views = Views::default();
            self.sweeps.forget();
            self.graphs.forget();
            let ids = session.index().ids();
            self.longest = ids.iter().map(|site| site.as_str().chars().count()).max().unwrap_or(0);
            self.prefix = common_prefix(ids);
        }
    }

    /// What is compared with, while the views show what differs from it.
    pub fn versus(&self) -> Option<&Versus> {
        let shown = self.views.question.is_some_and(|asked| asked.versus);
        self.views.versus.as_deref().filter(|_| shown)
    }

    /// One cell of the heatmap, of the same moment as everything else that is drawn.
    pub fn cell(&self, site: &SiteId, column: &Column, metric: Metric, relative: bool) -> Cell {
        let Some(snapshot) = &self.views.snapshot else { return Cell::Waiting };
        match self.versus() {
            Some(versus) => cell_versus(snapshot, versus, site, column, metric),
            None => cell(snapshot, site, column, metric, relative),
        }
    }

    /// The same as it is by itself, and what it is compared with.
    pub fn compared(&self, site: &SiteId, column: &Column, metric: Metric) -> Option<(Cell, KernelId, Estimate)> {
        let (snapshot, versus) = (self.views.snapshot.as_ref()?, self.versus()?);
        let base = versus.base(snapshot, snapshot.index.at(site)?, column.gemm, &column.kernel)?;
        Some((cell(snapshot, site, column, metric, false), base.kernel.clone(), base.metric(metric)?))
    }

    /// What the mods in force change at a site, of that moment.
    pub fn site_change(&self, site: &SiteId, gemm: Gemm, kernel: &KernelId, metric: Metric) -> Option<SiteChange> {
        site_change(self.views.snapshot.as_ref()?, site, gemm, kernel, metric)
    }

    pub fn verdict(&self, at: usize) -> SiteVerdict {
        self.views.verdicts.get(at).copied().unwrap_or_default()
    }

    /// A site's name in at most `max` characters: without what all begin with, then shortened in the
    /// middle.
    pub fn short_name(&self, site: &SiteId, max: usize) -> String {
        let name = site.as_str();
        if self.longest <= max { name.to_owned() } else { shorten(name.get(self.prefix..).unwrap_or(name), max) }
    }
}

fn common_prefix(sites: &[SiteId]) -> usize {
    let [first, rest @ ..] = sites else { return 0 };
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let length = rest.iter().map(|site| shared(first.as_str(), site.as_str())).min().unwrap_or(0);
    first.as_str().as_bytes()[..length].iter().rposition(|byte| *byte == b'.').map_or(0, |dot| dot + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_they_share() {
        let sites = ["net.layers.0.mlp", "net.layers.1.mlp", "net.top.0"].map(SiteId::new);
        let derived = Derived {
            prefix: common_prefix(&sites),
            longest: 16,
            ..Derived::new(ViewCache::inline(), FrontierCache::inline(), GraphCache::default())
        };
        assert_eq!(derived.short_name(&sites[0], 40), "net.layers.0.mlp");
        assert_eq!(derived.short_name(&sites[0], 12), "layers.0.mlp");
        assert_eq!(common_prefix(&sites[..1]), 0);
    }
}
