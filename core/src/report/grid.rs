//! The workbench's heatmap on paper: takes entries, gives its grid. Where there are more sites than paper has rows, a row
//! is a few sites in a row and shows the worst of them.

use crate::{
    format::{NAME, line},
    model::{Gemm, KernelId, Metric, SiteId, catalogue},
    plan::Plan,
    views::{BestOfRecipes, Cells, Column, Filter, Grid, Mark, ShownColumn, by_module, worst_of},
};

use super::entries::{Entry, by_gemm};

/// As many as a person can find something in: five sheets of paper.
const MOST_ROWS: usize = 200;

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub label: String,
    /// Places in the plan.
    pub sites: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// Of its values.
    pub metric: Metric,
    /// Of the plan's sites; three GEMMs, the same kernels for each.
    pub grid: Grid,
    /// As the workbench shows them: one for all kernels that compute the same.
    pub columns: Vec<ShownColumn>,
    pub rows: Vec<Row>,
    smaller_is_worse: bool,
}

impl Sheet {
    pub fn of(plan: &Plan, entries: &[Entry]) -> Self {
        let mut kernels: Vec<u16> = entries.iter().map(|entry| entry.kernel).collect();
        kernels.sort_unstable();
        kernels.dedup();
        let ids: Vec<KernelId> = kernels.iter().map(|at| catalogue()[usize::from(*at)].id()).collect();
        let columns =
            Gemm::ALL.into_iter().flat_map(|gemm| ids.iter().map(move |id| Column { gemm, kernel: id.clone() }));
        let mut grid = Grid::waiting(columns.collect(), plan.sites.len());
        let metric = plan.policy.metric.shown();
        grid.bound = (metric == plan.policy.metric).then_some(plan.policy.max_error);
        for of_gemm in by_gemm(entries) {
            let mut best = BestOfRecipes::default();
            for entry in of_gemm {
                let Ok(kernel) = kernels.binary_search(&entry.kernel) else { continue };
                let place = grid.place(entry.site as usize, entry.gemm as usize * kernels.len() + kernel);
                let mut mark = Mark::MISSING;
                if let Some(error) = entry.shown {
                    grid.put(place, metric.on_scale(error).value, entry.low);
                    mark = Mark::of(entry.quadrant, entry.source);
                }
                grid.marks[place] = entry.chosen.map_or(mark, |by| mark.chosen(by));
                best.take((Some(usize::from(entry.kernel)), entry.gemm), entry.speedup, (place, grid.marks[place]));
            }
            best.mark(&mut grid);
        }
        let columns = ShownColumn::all(&grid, &Filter::default(), |_| false);
        Self { metric, grid, columns, rows: rows(plan), smaller_is_worse: metric.larger_is_better() }
    }

    /// The kernel that a site shows at a column.
    pub fn kernel_at(&self, site: u32, column: usize) -> Option<Column> {
        self.columns.get(column)?.column_at(&self.grid, site as usize)
    }

    /// The worst of a row's sites, and which one that is; marked as chosen where any of them runs it.
    pub fn cell(&self, row: usize, column: usize) -> (f32, Mark, Option<u32>) {
        let cells = Cells { shown: Some(&self.columns), ..Cells::of(&self.grid, self.smaller_is_worse) };
        let sites = self.rows.get(row).map_or(&[][..], |row| &row.sites);
        let (value, mark, site) = worst_of(cells, sites.iter().copied(), column);
        let chosen = [Mark::CHOSEN, Mark::OVERRIDDEN].into_iter();
        let any = |of: &Mark| sites.iter().any(|site| cells.get(*site as usize, column).1.has(*of));
        (value, chosen.filter(any).fold(mark, Mark::with), site)
    }

    /// The most sites that a row stands for.
    pub fn folded(&self) -> usize {
        self.rows.iter().map(|row| row.sites.len()).max().unwrap_or_default()
    }
}

fn rows(plan: &Plan) -> Vec<Row> {
    let ids: Vec<SiteId> = plan.sites.iter().map(|site| site.site.clone()).collect();
    let order = by_module(&ids);
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
        let sheet = Sheet::of(&plan, &all);
        assert_eq!((sheet.rows.len(), sheet.folded(), sheet.columns.len()), (200, 5, 6));
        assert_eq!(sheet.rows[0].label, "net.0 … 4");
        let (value, mark, site) = sheet.cell(0, 1);
        assert_eq!((value, site), (0.5, Some(1)));
        assert!([Mark::VALUE, Mark::UNSAFE, Mark::CHOSEN].iter().all(|of| mark.has(*of)), "{mark:?}");
        assert_eq!((sheet.cell(1, 1).1, sheet.cell(2, 1).1), (Mark::MISSING, Mark::WAITING));
        assert_eq!(sheet.grid.shown_range(), Some((0.1, 0.5)), "of low precision alone");
        // Without results what was chosen is there, and nothing else.
        let alone = entries(&Source { plan: &plan, results: None, standing: crate::plan::standing(&plan, None, None) });
        let sheet = Sheet::of(&plan, &alone);
        let (value, mark, _) = sheet.cell(0, 1);
        assert_eq!((value, mark), (0.1, Mark::VALUE.with(Mark::CHOSEN).with(Mark::BEST)));
        assert_eq!(sheet.cell(1, 1).1, Mark::WAITING);
    }
}
