//! Takes every site's recorded series, gives one grid a series: sites against steps, few enough columns for a
//! screen. Where several steps share a column its value is the largest of them: peaks are what one looks for.

use serde::{Deserialize, Serialize};

use super::{Cells, Mark};

/// Columns at most: more than a window has room for.
pub const MAX_COLUMNS: usize = 256;

/// One site's series of one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteSeries {
    pub site: u32,
    pub name: String,
    pub steps: Vec<i64>,
    pub values: Vec<f32>,
}

/// One series over all sites.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesGrid {
    pub name: String,
    /// First and last step of each column, both included.
    pub columns: Vec<(i64, i64)>,
    /// `[sites][columns]`.
    pub values: Vec<f32>,
    pub marks: Vec<Mark>,
    /// Smallest and largest positive finite value.
    pub range: Option<(f64, f64)>,
}

/// Every series of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesTable {
    /// Sorted by name.
    pub series: Vec<SeriesGrid>,
}

impl SeriesTable {
    pub fn of(num_sites: usize, mut all: Vec<SiteSeries>) -> Self {
        all.sort_by(|a, b| a.name.cmp(&b.name).then(a.site.cmp(&b.site)));
        let grids = all.chunk_by(|a, b| a.name == b.name).map(|of| SeriesGrid::of(num_sites, of));
        Self { series: grids.collect() }
    }

    pub fn get(&self, name: &str) -> Option<&SeriesGrid> {
        self.series.iter().find(|series| series.name == name)
    }
}

impl SeriesGrid {
    /// `of`: sites' series of one name.
    fn of(num_sites: usize, of: &[SiteSeries]) -> Self {
        let mut steps: Vec<i64> = of.iter().flat_map(|series| series.steps.iter().copied()).collect();
        steps.sort_unstable();
        steps.dedup();
        let width = steps.len().div_ceil(MAX_COLUMNS).max(1);
        let columns: Vec<(i64, i64)> = steps.chunks(width).map(|of| (of[0], of[of.len() - 1])).collect();
        let len = num_sites * columns.len();
        let name = of.first().map(|series| series.name.clone()).unwrap_or_default();
        let mut grid =
            Self { name, values: vec![f32::NAN; len], marks: vec![Mark::MISSING; len], columns, range: None };
        for series in of.iter().filter(|series| (series.site as usize) < num_sites) {
            grid.take(series);
        }
        grid
    }

    fn take(&mut self, series: &SiteSeries) {
        let row = series.site as usize * self.columns.len();
        for (step, value) in series.steps.iter().zip(&series.values) {
            let column = self.columns.partition_point(|(_, last)| last < step);
            let place = row + column;
            let Some(known) = self.values.get_mut(place) else { continue };
            // What is not finite is the worst that a series can hold: it is shown, not left out.
            let value = if value.is_finite() { value.abs() } else { f32::INFINITY };
            *known = known.max(value);
            self.marks[place] = Mark::VALUE;
            if value > 0.0 && value.is_finite() {
                let value = f64::from(value);
                let (lo, hi) = self.range.unwrap_or((value, value));
                self.range = Some((lo.min(value), hi.max(value)));
            }
        }
    }

    pub fn cells(&self) -> Cells<'_> {
        let num_columns = self.columns.len();
        Cells { values: &self.values, marks: &self.marks, num_columns, shown: None, smaller_is_worse: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(site: u32, name: &str, values: &[f32]) -> SiteSeries {
        let steps = (0..values.len() as i64).map(|step| 10 * step).collect();
        SiteSeries { site, name: name.to_owned(), steps, values: values.to_vec() }
    }

    #[test]
    fn sites_stand_against_steps() {
        let table = SeriesTable::of(3, vec![series(2, "loss", &[1.0]), series(0, "amax", &[1.0, -4.0, f32::NAN])]);
        let amax = table.get("amax").unwrap();
        assert_eq!(amax.columns, [(0, 0), (10, 10), (20, 20)]);
        assert_eq!(amax.values[..2], [1.0, 4.0]);
        assert_eq!((amax.values[2], amax.range), (f32::INFINITY, Some((1.0, 4.0))));
        assert_eq!(amax.marks[3], Mark::MISSING, "a site without the series");
        assert_eq!(table.get("loss").unwrap().columns.len(), 1);
    }

    #[test]
    fn many_steps_share_columns_and_keep_their_peak() {
        let mut values = vec![1.0; 10_000];
        values[7_777] = 9.0;
        let table = SeriesTable::of(1, vec![series(0, "amax", &values)]);
        let grid = &table.series[0];
        assert!(grid.columns.len() <= MAX_COLUMNS);
        assert_eq!(grid.values.iter().filter(|value| **value == 9.0).count(), 1);
        assert_eq!(grid.columns.last().unwrap().1, 99_990);
    }
}
