//! What views draw, derived from the session once per change rather than once per frame.

use std::{collections::BTreeMap, sync::Arc};

use loka_core::{
    model::{Gemm, LatencySource, Metric, SiteId},
    session::{
        PlanView, Session,
        view::{Heatmap, QuadrantView, SiteVerdict, sources_of_plan, worst_gemm},
    },
};

use super::ViewState;
use crate::theme::shorten;

#[derive(Default)]
pub struct Derived {
    pub heatmap: Heatmap,
    pub quadrant: QuadrantView,
    pub verdicts: BTreeMap<SiteId, SiteVerdict>,
    pub plan: Arc<PlanView>,
    pub worst: Option<(SiteId, Gemm)>,
    /// How many chosen kernels have a latency of which source.
    pub sources: BTreeMap<LatencySource, usize>,
    /// What all names begin with, up to a dot: left out where room is short.
    prefix: usize,
    /// Characters of the longest name: all are shortened, or none.
    longest: usize,
    key: Option<Key>,
}

type Key = (u64, Metric, Option<Gemm>, bool);

impl Derived {
    pub fn refresh(&mut self, session: &mut Session, view: &ViewState) {
        let key = (session.revision(), view.metric, view.gemm, view.relative);
        if self.key == Some(key) {
            return;
        }
        self.key = Some(key);
        self.plan = session.plan_view();
        self.heatmap = Heatmap::of(session, view.metric, view.gemm, view.relative);
        self.quadrant = QuadrantView::of(session, view.gemm);
        let sites = session.trace.as_ref().map(|trace| trace.manifest().sites.clone()).unwrap_or_default();
        self.verdicts = sites.iter().map(|site| (site.id.clone(), SiteVerdict::of(session, site))).collect();
        self.longest = self.heatmap.sites.iter().map(|site| site.as_str().chars().count()).max().unwrap_or(0);
        self.prefix = common_prefix(&self.heatmap.sites);
        self.worst = worst_gemm(session);
        self.sources = sources_of_plan(session);
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
        let derived = Derived { prefix: common_prefix(&sites), longest: 16, ..Derived::default() };
        assert_eq!(derived.short_name(&sites[0], 40), "net.layers.0.mlp");
        assert_eq!(derived.short_name(&sites[0], 12), "layers.0.mlp");
        assert_eq!(common_prefix(&sites[..1]), 0);
    }
}
