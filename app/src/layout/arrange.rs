//! Where panes stand before a person moves them, by the window's width.

use egui_tiles::{Container, Linear, LinearDir, TileId, Tiles, Tree};
use serde::{Deserialize, Serialize};

use super::Pane;

/// How much fits beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrangement {
    /// Heatmap and quadrant side by side, the list and the site around them.
    Wide,
    /// Views behind tabs, the list and the site around them.
    Medium,
    /// One view at a time.
    Slim,
}

impl Arrangement {
    #[cfg(test)]
    pub const ALL: [Self; 3] = [Self::Wide, Self::Medium, Self::Slim];

    /// `now`: a window pulled to and fro across a border does not flicker.
    pub fn of(width: f32, now: Self) -> Self {
        let (wide, slim) =
            (if now == Self::Wide { 1480.0 } else { 1520.0 }, if now == Self::Slim { 840.0 } else { 800.0 });
        match width {
            width if width >= wide => Self::Wide,
            width if width < slim => Self::Slim,
            _ => Self::Medium,
        }
    }

    pub(super) fn tree(self) -> Tree<Pane> {
        let mut tiles = Tiles::default();
        let root = match self {
            Self::Wide => wide(&mut tiles),
            Self::Medium => medium(&mut tiles),
            Self::Slim => tabs(&mut tiles, &Pane::ALL),
        };
        Tree::new(egui::Id::unique("views"), root, tiles)
    }
}

fn wide(tiles: &mut Tiles<Pane>) -> TileId {
    let list = tabs(tiles, &[Pane::Sites]);
    let left = tabs(tiles, &[Pane::Heatmap, Pane::Plan, Pane::Review]);
    let right = tabs(tiles, &[Pane::Quadrant, Pane::Frontier]);
    let above = split(tiles, LinearDir::Horizontal, &[(left, 0.56), (right, 0.44)]);
    let below = tabs(tiles, &[Pane::Distribution, Pane::Drift, Pane::Graph, Pane::Mods, Pane::Log]);
    let middle = split(tiles, LinearDir::Vertical, &[(above, 0.68), (below, 0.32)]);
    let site = tabs(tiles, &[Pane::Site]);
    split(tiles, LinearDir::Horizontal, &[(list, 0.13), (middle, 0.63), (site, 0.24)])
}

fn medium(tiles: &mut Tiles<Pane>) -> TileId {
    let list = tabs(tiles, &[Pane::Sites]);
    let above = tabs(tiles, &[Pane::Heatmap, Pane::Quadrant, Pane::Frontier, Pane::Plan, Pane::Review, Pane::Mods]);
    let below = tabs(tiles, &[Pane::Distribution, Pane::Drift, Pane::Graph, Pane::Log]);
    let middle = split(tiles, LinearDir::Vertical, &[(above, 0.68), (below, 0.32)]);
    let site = tabs(tiles, &[Pane::Site]);
    split(tiles, LinearDir::Horizontal, &[(list, 0.15), (middle, 0.53), (site, 0.32)])
}

fn tabs(tiles: &mut Tiles<Pane>, panes: &[Pane]) -> TileId {
    let children = panes.iter().map(|pane| tiles.insert_pane(*pane)).collect();
    tiles.insert_tab_tile(children)
}

fn split(tiles: &mut Tiles<Pane>, dir: LinearDir, children: &[(TileId, f32)]) -> TileId {
    let mut linear = Linear::new(dir, children.iter().map(|(tile, _)| *tile).collect());
    for (tile, share) in children {
        linear.shares.set_share(*tile, *share);
    }
    tiles.insert_container(Container::Linear(linear))
}
