//! Takes cells and the folders in sight, keeps each folder's worst, and its median where those are shown: made for folders that
//! are seen, so many in a frame that none is felt, and kept until results change, or the sites that are left of a folder.

use std::{collections::HashMap, sync::Arc};

use loka_core::views::{Cells, Fold, FolderId, Grid, Line, LineKind, Lines, SeriesTable, ShownColumn, fold, median};

/// Cells that may be folded in one frame: about two milliseconds.
const BUDGET: usize = 250_000;

#[derive(Clone, Debug, Default)]
pub struct Folding {
    grid: Option<Arc<Grid>>,
    lines: Option<Arc<Lines>>,
    columns: Vec<ShownColumn>,
    series: Option<(Arc<SeriesTable>, String)>,
    with_medians: bool,
    /// Counts changes of what is folded, of the lines, and of what was folded.
    content: u64,
    arranged: u64,
    version: u64,
    known: HashMap<FolderId, Folded>,
}

/// One folder's columns, and what they were made of.
#[derive(Clone, Debug)]
struct Folded {
    content: u64,
    /// The last lines that had these sites in it.
    arranged: u64,
    sites: Box<[u32]>,
    folds: Vec<Fold>,
    /// Empty where they are not shown.
    medians: Vec<f32>,
}

impl Folding {
    pub fn version(&self) -> [u64; 3] {
        [self.content, self.arranged, self.version]
    }

    /// Notes what is shown now; what was folded of something else counts as old.
    pub fn show(
        &mut self,
        grid: &Arc<Grid>,
        lines: &Arc<Lines>,
        (columns, series): (&[ShownColumn], Option<(&Arc<SeriesTable>, &str)>),
        with_medians: bool,
    ) {
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
        let same_columns = self.columns == columns;
        if !(same_series && same_columns) {
            self.series = series.map(|(table, name)| (table.clone(), name.to_owned()));
            self.columns = columns.to_vec();
            self.known.clear();
        }
        let same_medians = std::mem::replace(&mut self.with_medians, with_medians) == with_medians;
        self.content += u64::from(!(same_grid && same_series && same_columns && same_medians));
        self.arranged += u64::from(!same_lines);
    }

    /// Folds the folders among `seen`; `false` when some are left for the next frame.
    pub fn fold(&mut self, cells: Cells<'_>, lines: &Lines, seen: &[Line]) -> bool {
        let (content, arranged) = (self.content, self.arranged);
        let mut spent = 0;
        for line in seen {
            let LineKind::Folder { folder, .. } = line.kind else { continue };
            let sites = lines.sites(line);
            let known = self.known.get_mut(&folder).filter(|known| known.content == content);
            if let Some(known) = known.filter(|known| known.arranged == arranged || *known.sites == *sites) {
                known.arranged = arranged;
                continue;
            }
            if spent > BUDGET {
                return false;
            }
            spent += sites.len() * cells.num_shown();
            let shown = if self.with_medians { cells.num_shown() } else { 0 };
            let medians = (0..shown).map(|column| median(cells, sites, column)).collect();
            let folded = Folded { content, arranged, sites: sites.into(), folds: fold(cells, sites), medians };
            self.known.insert(folder, folded);
            self.version += 1;
        }
        true
    }

    /// The latest that is known of a folder; of another number of columns it is of no use.
    pub fn get(&self, folder: FolderId, column: usize, num_columns: usize) -> Option<&Fold> {
        self.known.get(&folder).filter(|known| known.folds.len() == num_columns)?.folds.get(column)
    }

    /// The same of a folder's median.
    pub fn median(&self, folder: FolderId, column: usize, num_columns: usize) -> Option<f32> {
        self.known.get(&folder).filter(|known| known.medians.len() == num_columns)?.medians.get(column).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use loka_core::{
        model::SiteId,
        views::{Facts, Filter, Mark, Modules, Order},
    };

    use super::*;

    #[test]
    fn a_folder_is_folded_again_when_other_sites_are_left_of_it() {
        let ids = ["m.ab", "m.ac", "m.b"].map(SiteId::new);
        let column = |value: f32| (vec![value, 0.1, 0.4], vec![Mark::VALUE; 3]);
        let grid = |value: f32| {
            let (values, marks) = column(value);
            Arc::new(Grid { num_sites: 3, values, marks, ..Grid::default() })
        };
        let lines = |text: &str| {
            let filter = Filter::read(text, &|_| Err(String::new())).unwrap();
            let (modules, facts) = (Modules::new(&ids), Facts::names(&ids));
            Arc::new(Lines::of(&modules, &facts, &filter, Order::default(), &HashSet::new()))
        };
        let mut folding = Folding::default();
        let mut folded = |grid: &Arc<Grid>, lines: &Arc<Lines>| {
            folding.show(grid, lines, (&[], None), true);
            let cells = Cells { num_columns: 1, ..Cells::of(grid, false) };
            assert!(folding.fold(cells, lines, &lines.all));
            let folder = lines.all.iter().find_map(|line| match line.kind {
                LineKind::Folder { folder, .. } => Some(folder),
                LineKind::Site => None,
            });
            let (folder, version) = (folder.unwrap(), folding.version);
            (folding.get(folder, 0, 1).unwrap().worst, folding.median(folder, 0, 1).unwrap(), version)
        };
        let first = grid(0.2);
        assert_eq!(folded(&first, &lines("")), (0.4, 0.2, 1));
        assert_eq!(folded(&first, &lines("m")), (0.4, 0.2, 1), "other lines of the same sites");
        assert_eq!(folded(&first, &lines("a")), (0.2, 0.1, 2));
        assert_eq!(folded(&grid(0.3), &lines("a")), (0.3, 0.1, 3));
    }
}
