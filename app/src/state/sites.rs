//! Takes the session, what is typed and the order; keeps the lines that the list and the heatmap share, remade
//! when one of these changes. Not saved, not undone.

use std::{
    collections::{BTreeSet, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    rc::Rc,
    sync::Arc,
};

use loka_core::{
    model::{Gemm, KernelId},
    model::{SiteId, SiteIndex},
    session::Command,
    session::Session,
    views::{Facts, Filter, FolderId, Lines, Modules, Order},
};

use super::Derived;
use crate::regex::compile;

/// What is asked for in the form.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkForm {
    /// GEMMs, in the order of their sites.
    at: Vec<(SiteId, Gemm)>,
    /// The first of the sites, and how many there are.
    pub first: Option<SiteId>,
    pub num_sites: usize,
    pub kernel: KernelId,
    pub gemms: BTreeSet<Gemm>,
    pub reason: String,
    /// The reason's field takes the focus once.
    pub fresh: bool,
}

impl BulkForm {
    pub fn new(sites: &[SiteId], kernel: KernelId, gemm: Option<Gemm>) -> Self {
        let gemms = gemm.map_or_else(|| Gemm::ALL.into(), |gemm| [gemm].into());
        let at = sites.iter().flat_map(|site| Gemm::ALL.map(|gemm| (site.clone(), gemm))).collect();
        Self { gemms, ..Self::at(at, kernel) }
    }

    /// Of these GEMMs and no others.
    pub fn at(at: Vec<(SiteId, Gemm)>, kernel: KernelId) -> Self {
        let gemms = at.iter().map(|(_, gemm)| *gemm).collect();
        let sites: BTreeSet<&SiteId> = at.iter().map(|(site, _)| site).collect();
        let (first, num_sites) = (at.first().map(|(site, _)| site.clone()), sites.len());
        Self { at, first, num_sites, kernel, gemms, reason: String::new(), fresh: true }
    }

    /// Those that are ticked.
    fn ticked(&self) -> impl Iterator<Item = &(SiteId, Gemm)> {
        self.at.iter().filter(|(_, gemm)| self.gemms.contains(gemm))
    }

    pub fn num_gemms(&self) -> usize {
        self.ticked().count()
    }

    /// There is one of it among the GEMMs.
    pub fn has(&self, gemm: Gemm) -> bool {
        self.at.iter().any(|(_, of)| *of == gemm)
    }

    pub fn problem(&self) -> Option<&'static str> {
        if self.gemms.is_empty() {
            Some("Choose a GEMM")
        } else if self.reason.trim().is_empty() {
            Some("The plan keeps a reason: say why")
        } else {
            None
        }
    }

    pub fn command(&self) -> Command {
        Command::SetOverrides {
            at: self.ticked().cloned().collect(),
            kernel: self.kernel.clone(),
            reason: self.reason.trim().to_owned(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct SitesState {
    pub order: Order,
    /// Closed folders; and those closed while a filter is in force, which opens all.
    closed: HashSet<FolderId>,
    closed_in_filter: HashSet<FolderId>,
    /// Counts openings and closings of folders.
    folding: u64,
    /// Where Shift selects from.
    pub anchor: Option<SiteId>,
    /// The override form for several sites.
    pub bulk: Option<BulkForm>,
    /// The list's height in lines, for Page Up and Page Down.
    pub page: usize,
    index: Option<Arc<SiteIndex>>,
    modules: Arc<Modules>,
    /// As typed, and read.
    text: String,
    filter: Rc<Filter>,
    problem: Option<String>,
    made_of: Option<u64>,
    lines: Arc<Lines>,
}

impl SitesState {
    pub fn lines(&self) -> Arc<Lines> {
        self.lines.clone()
    }

    pub fn modules(&self) -> Arc<Modules> {
        self.modules.clone()
    }

    pub fn filter(&self) -> Rc<Filter> {
        self.filter.clone()
    }

    /// What is wrong with the filter: then it filters nothing.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub fn toggle(&mut self, folder: FolderId) {
        let closed = if self.filter.is_empty() { &mut self.closed } else { &mut self.closed_in_filter };
        if !closed.remove(&folder) {
            closed.insert(folder);
        }
        self.folding += 1;
    }

    /// Closes every folder, or opens them all.
    pub fn close_all(&mut self, close: bool) {
        let all = if close { self.modules.folders().collect() } else { HashSet::new() };
        *(if self.filter.is_empty() { &mut self.closed } else { &mut self.closed_in_filter }) = all;
        self.folding += 1;
    }

    pub fn has_closed(&self) -> bool {
        !(if self.filter.is_empty() { &self.closed } else { &self.closed_in_filter }).is_empty()
    }

    pub fn refresh(&mut self, session: &Session, derived: &Derived, text: &str, selection: &BTreeSet<SiteId>) {
        if !self.index.as_ref().is_some_and(|known| Arc::ptr_eq(known, session.index())) {
            self.index = Some(session.index().clone());
            self.modules = Arc::new(Modules::new(session.index().ids()));
            self.closed.clear();
            self.closed_in_filter.clear();
            (self.anchor, self.bulk, self.made_of) = (None, None, None);
        }
        if self.text != text {
            text.clone_into(&mut self.text);
            self.closed_in_filter.clear();
            (self.filter, self.problem) = match Filter::read(text, &compile) {
                Ok(filter) => (Rc::new(filter), None),
                Err(error) => (Rc::default(), Some(error.to_string())),
            };
            self.made_of = None;
        }
        let made_of = self.fingerprint(session, derived, selection);
        if self.made_of != Some(made_of) {
            self.made_of = Some(made_of);
            let facts = match &derived.snapshot {
                Some(snapshot) => Facts::of(snapshot, &derived.standings, selection.iter().cloned()),
                None => Facts::names(session.index().ids()),
            };
            let closed = if self.filter.is_empty() { &self.closed } else { &self.closed_in_filter };
            let lines = Lines::of(&self.modules, &facts, &self.filter, self.order, closed);
            // Another letter of what all names have: whatever was made of the lines stays.
            if *self.lines != lines {
                self.lines = Arc::new(lines);
            }
        }
    }

    /// Of what the lines depend on, besides the trace and the filter.
    fn fingerprint(&self, session: &Session, derived: &Derived, selection: &BTreeSet<SiteId>) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.order, self.folding).hash(&mut hasher);
        if self.order.sort.is_by_results() || self.filter.asks_for_more_than_names() {
            (derived.revision, session.revision()).hash(&mut hasher);
        }
        if self.filter.asks_for_selection() {
            selection.hash(&mut hasher);
        }
        hasher.finish()
    }
}
