//! What is seen of the graph: which modules are folded, how far it is zoomed and scrolled, and what core made of them,
//! kept until the plan, the folds or the room change.

use std::{collections::HashSet, sync::Arc};

use loka_core::{
    model::SiteId,
    session::Session,
    views::{FolderId, Graph, GraphItemKind, GraphItems, GraphLayout, Modules, auto_depth},
};

/// More boxes than these are folded at first.
const MOST: usize = 80;
/// A box is no narrower: three shapes and a letter of its name fit, and a pointer hits it.
const LEAST: f32 = 32.0;
const GAP: f32 = 6.0;
const MAX_ZOOM: f32 = 16.0;

#[derive(Clone, Debug)]
pub struct GraphState {
    /// Folded where others would be open, or open where they would be folded.
    turned: HashSet<FolderId>,
    /// Counts foldings.
    folding: u64,
    /// Times the width at which all boxes fit, or are no narrower than they may be.
    pub zoom: f32,
    pub offset: f32,
    /// What is in sight of the boxes, in points.
    pub width: f32,
    /// Where the boxes are to be scrolled in the next frame.
    pub scroll_to: Option<f32>,
    /// The site that was last brought into sight.
    pub seen: Option<SiteId>,
    modules: Option<(Arc<Modules>, u32)>,
    items: Option<(Arc<Graph>, u64, Arc<GraphItems>)>,
    layout: Option<(Arc<GraphItems>, [u32; 2], Arc<GraphLayout>)>,
}

impl Default for GraphState {
    fn default() -> Self {
        Self {
            turned: HashSet::new(),
            folding: 0,
            zoom: 1.0,
            offset: 0.0,
            width: 0.0,
            scroll_to: None,
            seen: None,
            modules: None,
            items: None,
            layout: None,
        }
    }
}

impl GraphState {
    /// Another trace.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Made when the graph or the folds change.
    pub fn items(&mut self, graph: &Arc<Graph>, modules: &Arc<Modules>, session: &Session) -> Arc<GraphItems> {
        let depth = match &self.modules {
            Some((known, depth)) if Arc::ptr_eq(known, modules) => *depth,
            _ => {
                let depth = auto_depth(modules, MOST);
                self.modules = Some((modules.clone(), depth));
                (self.turned, self.items) = (HashSet::new(), None);
                depth
            }
        };
        if let Some((of, folding, items)) = &self.items
            && Arc::ptr_eq(of, graph)
            && *folding == self.folding
        {
            return items.clone();
        }
        let items = Arc::new(GraphItems::of(graph, modules, session.index().ids(), depth, &self.turned));
        self.items = Some((graph.clone(), self.folding, items.clone()));
        items
    }

    /// Made when the boxes, the room or the zoom change.
    pub fn layout(&mut self, items: &Arc<GraphItems>, room: f32) -> Arc<GraphLayout> {
        let key = [room.to_bits(), self.zoom.to_bits()];
        if let Some((of, known, layout)) = &self.layout
            && Arc::ptr_eq(of, items)
            && *known == key
        {
            return layout.clone();
        }
        let layout = Arc::new(GraphLayout::of(items, room, self.zoom, LEAST, GAP));
        self.layout = Some((items.clone(), key, layout.clone()));
        layout
    }

    /// The boxes as they were drawn last.
    pub fn shown(&self) -> Option<(&Arc<Graph>, &Arc<GraphItems>)> {
        self.items.as_ref().map(|(graph, _, items)| (graph, items))
    }

    /// Folds an open module, or opens a folded one.
    pub fn turn(&mut self, folder: FolderId) {
        if !self.turned.remove(&folder) {
            self.turned.insert(folder);
        }
        self.folding += 1;
        // Whoever is selected is brought into sight again.
        self.seen = None;
    }

    /// Opens every module, or folds all of them; those that are so by themselves need no turning.
    pub fn turn_all(&mut self, fold: bool) {
        let Some((modules, depth)) = &self.modules else { return };
        self.turned = modules.folders().filter(|folder| (modules.depth(*folder) >= *depth) != fold).collect();
        self.folding += 1;
        self.seen = None;
    }

    /// The place at `keep` points from the left of what is in sight stays where it is.
    pub fn zoom_by(&mut self, factor: f32, keep: f32) {
        let before = self.zoom;
        self.zoom = (before * factor).clamp(1.0, MAX_ZOOM);
        self.scroll_to = Some(((self.offset + keep) * self.zoom / before - keep).max(0.0));
    }

    pub fn reset_zoom(&mut self) {
        (self.zoom, self.scroll_to, self.seen) = (1.0, Some(0.0), None);
    }

    /// The module that the selected site's box stands for, if it is one.
    pub fn folded(&self, at: u32) -> Option<FolderId> {
        let (_, items) = self.shown()?;
        match items.all.get(items.item_of(at)?)?.kind {
            GraphItemKind::Module(folder) => Some(folder),
            GraphItemKind::Site => None,
        }
    }

    /// The innermost open module with a bracket over the site's box.
    pub fn opened(&self, at: u32) -> Option<FolderId> {
        let (_, items) = self.shown()?;
        let item = items.item_of(at)? as u32;
        let over = items.brackets.iter().filter(|bracket| (bracket.from..bracket.to).contains(&item));
        over.max_by_key(|bracket| bracket.level).map(|bracket| bracket.folder)
    }
}
