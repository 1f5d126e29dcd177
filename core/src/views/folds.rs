//! Takes the cells of many sites, gives one cell for all of them: the worst and the median of a folder, and the
//! worst of rows that share a line of pixels.

use super::{Grid, Mark, ShownColumn};

/// A table of cells to fold, `[sites][columns]`.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'a> {
    pub values: &'a [f32],
    pub marks: &'a [Mark],
    /// Of the table.
    pub num_columns: usize,
    /// The columns that are asked for, where they are others than the table's.
    pub shown: Option<&'a [ShownColumn]>,
    /// Decibels: the smaller value is the worse one.
    pub smaller_is_worse: bool,
}

impl<'a> Cells<'a> {
    pub fn of(grid: &'a Grid, smaller_is_worse: bool) -> Self {
        let num_columns = grid.columns.len();
        Self { values: &grid.values, marks: &grid.marks, num_columns, shown: None, smaller_is_worse }
    }

    /// How many columns can be asked for.
    pub fn num_shown(&self) -> usize {
        self.shown.map_or(self.num_columns, <[ShownColumn]>::len)
    }

    fn row(&self, site: usize) -> (&'a [f32], &'a [Mark]) {
        let row = site * self.num_columns..(site + 1) * self.num_columns;
        (self.values.get(row.clone()).unwrap_or_default(), self.marks.get(row).unwrap_or_default())
    }

    pub fn get(&self, site: usize, column: usize) -> (f32, Mark) {
        self.get_of(self.row(site), column)
    }

    fn get_of(&self, (values, marks): (&[f32], &[Mark]), column: usize) -> (f32, Mark) {
        let at = self.shown.map_or(column, |shown| shown.get(column).map_or(usize::MAX, |of| of.kernel_at(marks)));
        let value = values.get(at).copied().unwrap_or(f32::NAN);
        (value, marks.get(at).copied().unwrap_or_default())
    }

    fn is_worse(&self, a: f32, b: f32) -> bool {
        if self.smaller_is_worse { a < b } else { a > b }
    }
}

/// All of a folder's sites at one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fold {
    pub worst: f32,
    /// Which site it is.
    pub worst_site: u32,
    /// Of the worst; or missing, or waiting, when no site has a value.
    pub mark: Mark,
    pub num_values: u32,
    /// Sites whose value is beyond the bound for certain.
    pub num_unsafe: u32,
    /// Sites that this column was chosen for.
    pub num_chosen: u32,
}

/// Every column over `sites`: a row is read in one go, since the next one lies far from it.
pub fn fold(cells: Cells<'_>, sites: &[u32]) -> Vec<Fold> {
    let none = Fold {
        worst: f32::NAN,
        worst_site: sites.first().copied().unwrap_or_default(),
        mark: Mark::WAITING,
        num_values: 0,
        num_unsafe: 0,
        num_chosen: 0,
    };
    let mut folds = vec![none; cells.num_shown()];
    for site in sites {
        let row = cells.row(*site as usize);
        for (column, fold) in folds.iter_mut().enumerate() {
            let (value, mark) = cells.get_of(row, column);
            fold.num_unsafe += u32::from(mark.has(Mark::UNSAFE));
            fold.num_chosen += u32::from(mark.has(Mark::CHOSEN));
            if !mark.has(Mark::VALUE) || value.is_nan() {
                let missing = mark.has(Mark::MISSING) && fold.num_values == 0;
                fold.mark = if missing { Mark::MISSING } else { fold.mark };
                continue;
            }
            if fold.num_values == 0 || cells.is_worse(value, fold.worst) {
                (fold.worst, fold.worst_site, fold.mark) = (value, *site, mark);
            }
            fold.num_values += 1;
        }
    }
    folds
}

/// The lower middle of one column's values over `sites`: a value that a site has; NaN where there is none.
pub fn median(cells: Cells<'_>, sites: &[u32], column: usize) -> f32 {
    let known = sites.iter().map(|site| cells.get(*site as usize, column));
    let known = known.filter(|(value, mark)| mark.has(Mark::VALUE) && !value.is_nan());
    let mut values: Vec<f32> = known.map(|(value, _)| value).collect();
    if values.is_empty() {
        return f32::NAN;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable_by(middle, f32::total_cmp).1
}

/// The worst of `sites` at one column: for rows that share a line of pixels.
pub fn worst_of(cells: Cells<'_>, sites: impl Iterator<Item = u32>, column: usize) -> (f32, Mark, Option<u32>) {
    let mut worst = (f32::NAN, Mark::WAITING, None);
    for site in sites {
        let (value, mark) = cells.get(site as usize, column);
        let has_value = mark.has(Mark::VALUE) && !value.is_nan();
        let first = !worst.1.has(Mark::VALUE);
        if has_value && (first || cells.is_worse(value, worst.0)) {
            worst = (value, mark, Some(site));
        } else if first && mark.has(Mark::MISSING) {
            worst = (f32::NAN, Mark::MISSING, Some(site));
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: Mark = Mark::VALUE;

    fn cells<'a>(values: &'a [f32], marks: &'a [Mark]) -> Cells<'a> {
        Cells { values, marks, num_columns: 1, shown: None, smaller_is_worse: false }
    }

    #[test]
    fn a_folder_has_its_worst_and_its_median() {
        let marks = [VALUE, VALUE.with(Mark::UNSAFE), Mark::MISSING, VALUE, Mark::WAITING];
        let values = [0.1, 0.4, f32::NAN, 0.2, f32::NAN];
        let of = fold(cells(&values, &marks), &[0, 1, 2, 3, 4])[0];
        assert_eq!((of.worst, of.worst_site, of.num_values, of.num_unsafe), (0.4, 1, 3, 1));
        assert_eq!(median(cells(&values, &marks), &[0, 1, 2, 3, 4], 0), 0.2);
        assert!(of.mark.has(Mark::UNSAFE));
        let decibels = Cells { smaller_is_worse: true, ..cells(&values, &marks) };
        assert_eq!(fold(decibels, &[0, 1, 3])[0].worst, 0.1);
    }

    #[test]
    fn without_a_value_it_says_missing_before_waiting() {
        let (values, marks) = ([f32::NAN; 3], [Mark::WAITING, Mark::MISSING, Mark::WAITING]);
        assert_eq!(fold(cells(&values, &marks), &[0, 1, 2])[0].mark, Mark::MISSING);
        assert_eq!(fold(cells(&values, &marks), &[0, 2])[0].mark, Mark::WAITING);
        assert_eq!(fold(cells(&values, &marks), &[])[0].num_values, 0);
    }

    #[test]
    fn rows_on_one_line_of_pixels_show_the_worst() {
        let marks = [VALUE, Mark::MISSING, VALUE.with(Mark::CHOSEN)];
        let values = [0.1, f32::NAN, 0.3];
        let (value, mark, site) = worst_of(cells(&values, &marks), 0..3, 0);
        assert_eq!((value, site), (0.3, Some(2)));
        assert!(mark.has(Mark::CHOSEN));
        assert_eq!(worst_of(cells(&values, &marks), 1..2, 0).1, Mark::MISSING);
    }
}
