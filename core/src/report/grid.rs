//! The heatmap's cells: takes entries, gives sites by (GEMM x kernel) as the workbench has them. Where there are more
//! sites than paper has rows, a row is a few sites in a row and shows the worst of them.

use crate::{
    model::{Gemm, LatencySource, Metric, Quadrant},
    plan::Plan,
};

use super::{
    entries::{Entry, larger_is_better},
    order::by_module,
    text::{NAME, line},
};

/// As many as a person can find something in: five sheets of paper.
const MOST_ROWS: usize = 200;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellState {
    /// Not probed, or not in what is given.
    #[default]
    Nothing,
    /// Probed, and there is no value.
    Missing,
    Value,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    pub state: CellState,
    /// The worst of its sites.
    pub value: f64,
    /// Beyond the policy's bound for certain.
    pub beyond: bool,
    pub modelled: bool,
    pub chosen: bool,
    pub by_hand: bool,
    /// The place of what it shows among the entries.
    pub entry: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub label: String,
    /// Places in the plan.
    pub sites: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Places in the catalogue; three times these are the columns, one GEMM after the other.
    pub kernels: Vec<u16>,
    pub rows: Vec<Row>,
    /// Row by row.
    pub cells: Vec<Cell>,
    /// Of the values that colours are for: the high-precision kernels' would squeeze the rest into one colour.
    pub range: Option<(f64, f64)>,
}

impl Grid {
    pub fn of(plan: &Plan, entries: &[Entry]) -> Self {
        let mut kernels: Vec<u16> = entries.iter().map(|entry| entry.kernel).collect();
        kernels.sort_unstable();
        kernels.dedup();
        let rows = rows(plan);
        let mut row_of = vec![0; plan.sites.len()];
        for (at, row) in rows.iter().enumerate() {
            row.sites.iter().for_each(|site| row_of[*site as usize] = at);
        }
        let columns = 3 * kernels.len();
        let mut grid = Self { cells: vec![Cell::default(); columns * rows.len()], kernels, rows, range: None };
        for (at, entry) in entries.iter().enumerate() {
            let Ok(kernel) = grid.kernels.binary_search(&entry.kernel) else { continue };
            let column = entry.gemm as usize * grid.kernels.len() + kernel;
            let cell = &mut grid.cells[row_of[entry.site as usize] * columns + column];
            add(cell, at, entry, plan.policy.metric);
        }
        grid.range = range(entries, true).or_else(|| range(entries, false));
        grid
    }

    pub fn num_columns(&self) -> usize {
        3 * self.kernels.len()
    }

    pub fn cell(&self, row: usize, gemm: Gemm, kernel: usize) -> Cell {
        let at = row * self.num_columns() + gemm as usize * self.kernels.len() + kernel;
        self.cells.get(at).copied().unwrap_or_default()
    }

    /// The most sites that a row stands for.
    pub fn folded(&self) -> usize {
        self.rows.iter().map(|row| row.sites.len()).max().unwrap_or_default()
    }
}

fn add(cell: &mut Cell, at: usize, entry: &Entry, metric: Metric) {
    cell.chosen |= entry.chosen;
    cell.by_hand |= entry.by_hand;
    let Some(error) = entry.error else {
        if cell.state == CellState::Nothing {
            (cell.state, cell.entry) = (CellState::Missing, at);
        }
        return;
    };
    let worse = if larger_is_better(metric) { error.value < cell.value } else { error.value > cell.value };
    if cell.state != CellState::Value || worse {
        cell.state = CellState::Value;
        cell.value = error.value;
        cell.entry = at;
        cell.modelled = entry.source == LatencySource::Modelled;
        cell.beyond = matches!(entry.quadrant, Quadrant::UnsafeFast | Quadrant::UnsafeSlow | Quadrant::UnsafeUnknown);
    }
}

fn range(entries: &[Entry], low: bool) -> Option<(f64, f64)> {
    let values = entries.iter().filter(|entry| entry.low || !low).filter_map(|entry| Some(entry.error?.value));
    let values = values.filter(|value| *value > 0.0 && value.is_finite());
    values.fold(None, |range, value| {
        let (lo, hi): (f64, f64) = range.unwrap_or((value, value));
        Some((lo.min(value), hi.max(value)))
    })
}

fn rows(plan: &Plan) -> Vec<Row> {
    let order = by_module(&plan.sites);
    let each = order.len().div_ceil(MOST_ROWS).max(1);
    let name = |site: &u32| line(plan.sites[*site as usize].site.as_str(), NAME);
    let row = |sites: &[u32]| {
        let label = match sites {
            [] => String::new(),
            [one] => name(one),
            [first, .., last] => span(&name(first), &name(last)),
        };
        Row { label, sites: sites.to_vec() }
    };
    order.chunks(each).map(row).collect()
}

/// `net.layers.0 … 24`: what both begin with is said once, what follows the first difference not at all.
fn span(first: &str, last: &str) -> String {
    let same = first.bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
    // Names are cut between modules only.
    let from = first.as_bytes()[..same].iter().rposition(|byte| *byte == b'.').map_or(0, |dot| dot + 1);
    let part = |name: &str| name.get(from..).and_then(|rest| rest.split('.').next()).unwrap_or_default().to_owned();
    format!("{}{} … {}", first.get(..from).unwrap_or_default(), part(first), part(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{
            Overrides, Policy,
            testing::{results, row, unsupported},
        },
        model::SiteMods,
        plan::build,
        report::{Source, entries::entries},
    };

    #[test]
    fn a_row_of_many_sites_shows_the_worst() {
        let names: Vec<String> = (0..1_000).map(|at| format!("net.{at}.mlp")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let rows = vec![
            row(names[0], Gemm::Fprop, "te/current", 0.1, Some(1.3), 0.0),
            row(names[1], Gemm::Fprop, "te/current", 0.5, Some(1.3), 0.0),
            unsupported(names[2], Gemm::Fprop, "te/current", "no"),
            unsupported(names[5], Gemm::Fprop, "te/current", "no"),
        ];
        let results = results(&names, rows);
        let plan = build(&results, &Policy::paper(), &SiteMods::none(), &Overrides::new(), "p", "").unwrap().plan;
        let standing = crate::plan::standing(&plan, None, None);
        let all = entries(&Source { plan: &plan, results: Some(&results), standing });
        let grid = Grid::of(&plan, &all);
        assert_eq!((grid.rows.len(), grid.folded(), grid.kernels.len()), (200, 5, 2));
        assert_eq!(grid.rows[0].label, "net.0 … 4");
        let first = grid.cell(0, Gemm::Fprop, 1);
        assert!(first.state == CellState::Value && first.value == 0.5 && first.beyond && first.chosen, "{first:?}");
        assert_eq!(grid.cell(1, Gemm::Fprop, 1).state, CellState::Missing);
        assert_eq!(grid.cell(2, Gemm::Fprop, 1).state, CellState::Nothing);
        assert_eq!(grid.range, Some((0.1, 0.5)), "of low precision alone");
        // Without results what was chosen is there, and nothing else.
        let alone = entries(&Source { plan: &plan, results: None, standing: crate::plan::standing(&plan, None, None) });
        let grid = Grid::of(&plan, &alone);
        assert_eq!((grid.cell(0, Gemm::Fprop, 1).value, grid.cell(0, Gemm::Fprop, 1).beyond), (0.1, false));
        assert_eq!(grid.cell(1, Gemm::Fprop, 1).state, CellState::Nothing);
    }
}
