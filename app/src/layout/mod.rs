//! The views as panes that dock, split, close and come back. Takes the window's width, gives an arrangement;
//! what a person arranged stays until it is reset.

mod arrange;
mod json;

pub use arrange::Arrangement;

use egui_tiles::{Container, Tile, TileId, Tree};
use serde::{Deserialize, Serialize};

/// One view in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pane {
    Sites,
    Heatmap,
    Quadrant,
    Frontier,
    Plan,
    Review,
    Mods,
    Site,
    Distribution,
    Drift,
    Graph,
    Log,
}

impl Pane {
    pub const ALL: [Self; 12] = [
        Self::Heatmap,
        Self::Quadrant,
        Self::Frontier,
        Self::Plan,
        Self::Review,
        Self::Distribution,
        Self::Drift,
        Self::Graph,
        Self::Mods,
        Self::Sites,
        Self::Site,
        Self::Log,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Sites => "Sites",
            Self::Heatmap => "Heatmap",
            Self::Quadrant => "Quadrant",
            Self::Frontier => "Frontier",
            Self::Plan => "Plan",
            Self::Review => "Review",
            Self::Mods => "Mods",
            Self::Site => "Site",
            Self::Distribution => "Distribution",
            Self::Drift => "Drift",
            Self::Graph => "Graph",
            Self::Log => "Log",
        }
    }

    /// What it answers, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Sites => "Every site with what low precision offers its GEMMs",
            Self::Heatmap => "Sites against kernels, coloured by a metric",
            Self::Quadrant => "Error against speed-up, with the policy's lines",
            Self::Frontier => "What each step of speed-up costs in loss or error",
            Self::Plan => "Every choice, by the time it saves, and what warns",
            Self::Review => "Who looked at what, what is open, and who signed",
            Self::Mods => "Changes of the model, before and after",
            Self::Site => "Everything about the selected site, and its kernels",
            Self::Distribution => "Values against what each format can hold",
            Self::Drift => "How a site's values moved while the model trained",
            Self::Graph => "The model's forward chain, each site as wide as its time",
            Self::Log => "What happened, line by line",
        }
    }
}

/// Panes that came after layouts were stored, each with one that it stands beside.
const LATER: [(Pane, Pane); 1] = [(Pane::Graph, Pane::Drift)];

/// The tree of panes. All panes are always in it; a closed one is hidden where it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    pub(crate) tree: Tree<Pane>,
    arrangement: Arrangement,
    /// A person moved, resized or closed something: the window's width no longer rearranges it.
    pub(crate) customised: bool,
    /// The pane that keys go to.
    pub(crate) active: Pane,
}

impl Default for Layout {
    fn default() -> Self {
        Self::arranged(Arrangement::Medium)
    }
}

impl Layout {
    pub fn arranged(arrangement: Arrangement) -> Self {
        Self { tree: arrangement.tree(), arrangement, customised: false, active: Pane::Heatmap }
    }

    /// Follows the window's width until a person arranges things.
    pub fn fit(&mut self, width: f32) {
        let fitting = Arrangement::of(width, self.arrangement);
        if !self.customised && fitting != self.arrangement {
            *self = Self { active: self.active, ..Self::arranged(fitting) };
        }
    }

    pub fn reset(&mut self, width: f32) {
        *self = Self::arranged(Arrangement::of(width, self.arrangement));
    }

    pub fn is_customised(&self) -> bool {
        self.customised
    }

    pub fn active(&self) -> Pane {
        self.active
    }

    pub fn activate(&mut self, pane: Pane) {
        self.active = pane;
    }

    /// Opens a pane where it was, in front of what shares its place, and gives it the keys.
    pub fn show(&mut self, pane: Pane) {
        if let Some(tile) = self.tree.tiles.find_pane(&pane) {
            self.customised |= !self.tree.is_visible(tile);
            self.tree.set_visible(tile, true);
            self.tree.make_active(|of, _| of == tile);
        }
        self.active = pane;
    }

    pub fn close(&mut self, pane: Pane) {
        if let Some(tile) = self.tree.tiles.find_pane(&pane) {
            self.tree.set_visible(tile, false);
            self.customised = true;
        }
        if self.active == pane {
            self.active = self.open_panes().first().copied().unwrap_or(Pane::Heatmap);
        }
    }

    /// Neither closed nor behind another tab.
    pub fn is_on_screen(&self, pane: Pane) -> bool {
        let tile = self.tree.tiles.find_pane(&pane);
        tile.is_some_and(|tile| self.tree.is_visible(tile) && self.tree.active_tiles().contains(&tile))
    }

    /// Where a pane was drawn last, its tab left out; `None` when it is not on screen.
    pub fn rect_of(&self, pane: Pane) -> Option<egui::Rect> {
        self.tree.tiles.rect(self.tree.tiles.find_pane(&pane)?)
    }

    pub fn is_open(&self, pane: Pane) -> bool {
        self.tree.tiles.find_pane(&pane).is_some_and(|tile| self.tree.is_visible(tile))
    }

    /// In the order of [`Pane::ALL`].
    pub fn open_panes(&self) -> Vec<Pane> {
        Pane::ALL.into_iter().filter(|pane| self.is_open(*pane)).collect()
    }

    /// A stored layout holds every pane once, or it is not used: an edited file must not lose a view. One of an earlier
    /// version gets the panes that it cannot know.
    #[must_use]
    pub fn checked(mut self) -> Option<Self> {
        LATER.iter().for_each(|(pane, beside)| self.add(*pane, *beside));
        let count =
            |pane: &Pane| self.tree.tiles.tiles().filter(|tile| matches!(tile, Tile::Pane(of) if of == pane)).count();
        let whole = self.tree.root().is_some() && Pane::ALL.iter().all(|pane| count(pane) == 1);
        (whole && self.is_reachable()).then_some(self)
    }

    /// Behind the tabs that `beside` is one of, unless it is there.
    fn add(&mut self, pane: Pane, beside: Pane) {
        let tiles = &mut self.tree.tiles;
        let tabs = tiles.find_pane(&beside).and_then(|tile| tiles.parent_of(tile));
        if let (None, Some(tabs)) = (tiles.find_pane(&pane), tabs)
            && matches!(tiles.get(tabs), Some(Tile::Container(Container::Tabs(_))))
        {
            let tile = tiles.insert_pane(pane);
            if let Some(Tile::Container(Container::Tabs(of))) = tiles.get_mut(tabs) {
                of.add_child(tile);
            }
        }
    }

    /// Every tile hangs on the root exactly once: no loop, nothing lost.
    fn is_reachable(&self) -> bool {
        let mut waiting: Vec<TileId> = self.tree.root().into_iter().collect();
        let mut seen = std::collections::HashSet::new();
        while let Some(tile) = waiting.pop() {
            if !seen.insert(tile) {
                return false;
            }
            match self.tree.tiles.get(tile) {
                Some(Tile::Container(container)) => waiting.extend(Container::children(container).copied()),
                Some(Tile::Pane(_)) => {}
                None => return false,
            }
        }
        let is_pane = |tile: &TileId| matches!(self.tree.tiles.get(*tile), Some(Tile::Pane(_)));
        seen.iter().filter(|tile| is_pane(tile)).count() == Pane::ALL.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arrangement_holds_every_pane_once() {
        for arrangement in Arrangement::ALL {
            let layout = Layout::arranged(arrangement);
            assert!(layout.clone().checked().is_some(), "{arrangement:?}");
            assert_eq!(layout.open_panes().len(), Pane::ALL.len());
        }
    }

    #[test]
    fn a_closed_pane_comes_back() {
        let mut layout = Layout::default();
        layout.close(Pane::Heatmap);
        assert!(!layout.is_open(Pane::Heatmap) && layout.is_customised());
        assert_ne!(layout.active(), Pane::Heatmap);
        layout.show(Pane::Heatmap);
        assert!(layout.is_on_screen(Pane::Heatmap));
        layout.reset(1280.0);
        assert!(!layout.is_customised());
    }

    #[test]
    fn what_is_stored_comes_back_and_what_is_broken_does_not() {
        let mut layout = Layout::arranged(Arrangement::Wide);
        layout.close(Pane::Drift);
        let text = serde_json::to_string(&layout).unwrap();
        let back: Layout = serde_json::from_str(&text).unwrap();
        let back = back.checked().unwrap();
        assert!(!back.is_open(Pane::Drift) && back.is_open(Pane::Log));
        let doubled: Layout = serde_json::from_str(&text.replace("\"drift\"", "\"log\"")).unwrap();
        assert!(doubled.checked().is_none(), "a view would be lost");
    }

    #[test]
    fn what_an_earlier_version_stored_gets_the_panes_that_came_later() {
        let mut layout = Layout::arranged(Arrangement::Wide);
        layout.close(Pane::Log);
        let tile = layout.tree.tiles.find_pane(&Pane::Graph).unwrap();
        let tabs = layout.tree.tiles.parent_of(tile).unwrap();
        layout.tree.tiles.remove(tile);
        let Some(Tile::Container(of)) = layout.tree.tiles.get_mut(tabs) else { panic!("no tabs") };
        of.remove_child(tile);
        let back: Layout = serde_json::from_str(&serde_json::to_string(&layout).unwrap()).unwrap();
        let mut back = back.checked().unwrap();
        assert!(back.is_open(Pane::Graph) && !back.is_open(Pane::Log), "the rest is as it was");
        back.show(Pane::Graph);
        assert!(back.is_on_screen(Pane::Graph) && !back.is_on_screen(Pane::Drift));
    }

    #[test]
    fn the_width_arranges_until_a_person_does() {
        let mut layout = Layout::default();
        layout.fit(1900.0);
        assert_eq!(layout.arrangement, Arrangement::Wide);
        layout.fit(400.0);
        assert_eq!(layout.arrangement, Arrangement::Slim);
        layout.close(Pane::Log);
        layout.fit(1900.0);
        assert_eq!(layout.arrangement, Arrangement::Slim, "a person's arrangement stays");
    }
}
