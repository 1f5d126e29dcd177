//! Takes cells and the folders in sight, keeps each folder's worst and median: made for folders that are seen, so
//! many in a frame that none is felt, and kept until results or the lines change.

use std::{collections::HashMap, sync::Arc};

use loka_core::views::{Cells, Fold, FolderId, Grid, Line, LineKind, Lines, SeriesTable, fold};

/// Cells that may be folded in one frame: about two milliseconds.
const BUDGET: usize = 250_000;

#[derive(Clone, Debug, Default)]
pub struct Folding {
    grid: Option<Arc<Grid>>,
    lines: Option<Arc<Lines>>,
    series: Option<(Arc<SeriesTable>, String)>,
    /// Counts changes of what is folded, and of what was.
    content: u64,
    version: u64,
    /// With the content that each was made of.
    known: HashMap<FolderId, (u64, Arc<[Fold]>)>,
}

impl Folding {
    pub fn version(&self) -> (u64, u64) {
        (self.content, self.version)
    }

    /// Notes what is shown now; what was folded before counts as old.
    pub fn show(&mut self, grid: &Arc<Grid>, lines: &Arc<Lines>, series: Option<(&Arc<SeriesTable>, &str)>) {
        let same_grid = self.grid.as_ref().is_some_and(|known| Arc::ptr_eq(known, grid));
        let same_lines = self.lines.as_ref().is_some_and(|known| Arc::ptr_eq(known, lines));
        let same_series = match (&self.series, series) {
            (Some((known, name)), Some((table, wanted))) => Arc::ptr_eq(known, table) && name == wanted,
            (None, None) => true,
            _ => false,
        };
        if !same_grid {
            self.grid = Some(grid.clone());
        }
        if !same_lines {
            self.lines = Some(lines.clone());
        }
        if !same_series {
            self.series = series.map(|(table, name)| (table.clone(), name.to_owned()));
            self.known.clear();
        }
        self.content += u64::from(!(same_grid && same_lines && same_series));
    }

    /// Folds the folders among `seen`; `false` when some are left for the next frame.
    pub fn fold(&mut self, cells: Cells<'_>, lines: &Lines, seen: &[Line]) -> bool {
        let mut spent = 0;
        for line in seen {
            let LineKind::Folder { folder, .. } = line.kind else { continue };
            if self.known.get(&folder).is_some_and(|(content, _)| *content == self.content) {
                continue;
            }
            if spent > BUDGET {
                return false;
            }
            let sites = lines.sites(line);
            spent += sites.len() * cells.num_columns;
            let folds = (0..cells.num_columns).map(|column| fold(cells, sites, column));
            self.known.insert(folder, (self.content, folds.collect()));
            self.version += 1;
        }
        true
    }

    /// The latest that is known of a folder; of another number of columns it is of no use.
    pub fn get(&self, folder: FolderId, column: usize, num_columns: usize) -> Option<&Fold> {
        let (_, folds) = self.known.get(&folder).filter(|(_, folds)| folds.len() == num_columns)?;
        folds.get(column)
    }
}
