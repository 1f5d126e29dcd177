//! Takes the grid's columns, one a kernel, gives those that are shown: one for all kernels that compute the same at a GEMM,
//! whoever runs them, where each site shows the best of them; or one a kernel, where a person opens such a column.

use crate::model::{Gemm, catalogue};

use super::{
    Column, Filter, Grid, Mark,
    recipes::{recipe, short_recipe},
};

/// A column of the heatmap as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShownColumn {
    pub gemm: Gemm,
    /// What its kernels compute, short: `row+fast`.
    pub recipe: String,
    /// Places of its kernels among the grid's columns, in the catalogue's order; more than one only of a closed column.
    pub kernels: Vec<usize>,
    /// How many kernels of the recipe there are, those of other columns with it.
    pub num_alike: usize,
}

impl ShownColumn {
    /// Those that the filter lets through. `open`: the recipes, by their short name, that have a column a kernel.
    pub fn all(grid: &Grid, filter: &Filter, open: impl Fn(&str) -> bool) -> Vec<Self> {
        // By GEMM and recipe, in the order of the first kernel.
        let mut closed: Vec<(usize, Self)> = Vec::new();
        for (at, column) in grid.columns.iter().enumerate().filter(|(_, column)| filter.shows_column(column)) {
            let (gemm, Some(number)) = (column.gemm, column.kernel.number()) else { continue };
            let recipe = recipe(number, gemm);
            match closed.iter_mut().find(|(of, shown)| (*of, shown.gemm) == (recipe, gemm)) {
                Some((_, shown)) => shown.kernels.push(at),
                None => {
                    let name = short_recipe(catalogue()[number].numerics(gemm));
                    closed.push((recipe, Self { gemm, recipe: name, kernels: vec![at], num_alike: 0 }));
                }
            }
        }
        let each = |(_, shown): (usize, Self)| {
            let shown = Self { num_alike: shown.kernels.len(), ..shown };
            let opened = shown.num_alike > 1 && open(&shown.recipe);
            let kernels: Vec<Vec<usize>> =
                if opened { shown.kernels.iter().map(|at| vec![*at]).collect() } else { vec![shown.kernels.clone()] };
            kernels.into_iter().map(move |kernels| Self { kernels, ..shown.clone() })
        };
        closed.into_iter().flat_map(each).collect()
    }

    /// Several kernels stand behind it.
    pub fn is_closed(&self) -> bool {
        self.kernels.len() > 1
    }

    /// One of several columns of a recipe.
    pub fn is_open(&self) -> bool {
        self.num_alike > 1 && !self.is_closed()
    }

    pub fn holds(&self, column: usize) -> bool {
        self.kernels.contains(&column)
    }

    /// The kernel that a site shows, as its place among the grid's columns: the best of them, or the first with a value where
    /// the filter leaves that out. `marks`: the site's.
    pub fn kernel_at(&self, marks: &[Mark]) -> usize {
        let has = |wanted: Mark| {
            let mut all = self.kernels.iter().copied();
            all.find(|at| marks.get(*at).is_some_and(|mark| mark.has(wanted)))
        };
        let first = || self.kernels.first().copied().unwrap_or_default();
        match self.kernels.as_slice() {
            [one] => *one,
            _ => has(Mark::BEST).or_else(|| has(Mark::VALUE)).or_else(|| has(Mark::MISSING)).unwrap_or_else(first),
        }
    }

    /// What it is known by when others come to stand beside it: its first kernel.
    pub fn first(&self, grid: &Grid) -> Option<Column> {
        grid.columns.get(*self.kernels.first()?).cloned()
    }

    /// The kernel that a site shows, with its name.
    pub fn column_at(&self, grid: &Grid, site: usize) -> Option<Column> {
        grid.columns.get(self.kernel_at(grid.row(site).1)).cloned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::model::KernelId;

    fn grid(kernels: &[&str]) -> Grid {
        let column = |gemm| kernels.iter().map(move |kernel| Column { gemm, kernel: KernelId::new(kernel) });
        Grid::waiting(Gemm::ALL.into_iter().flat_map(column).collect(), 1)
    }

    fn named(grid: &Grid, of: &[ShownColumn]) -> Vec<(Gemm, String, Vec<String>)> {
        let kernel = |at: &usize| grid.columns[*at].kernel.to_string();
        of.iter().map(|of| (of.gemm, of.recipe.clone(), of.kernels.iter().map(kernel).collect())).collect()
    }

    #[test]
    fn what_computes_the_same_at_a_gemm_shares_a_column() {
        let grid =
            grid(&["cublaslt/bf16", "cublaslt/fp8-tensorwise", "pytorch/fp8-tensorwise+fast", "torchao/tensorwise"]);
        let shown = named(&grid, &ShownColumn::all(&grid, &Filter::default(), |_| false));
        let of = |gemm, recipe: &str, kernels: &[&str]| {
            (gemm, recipe.to_owned(), kernels.iter().map(|kernel| (*kernel).to_owned()).collect())
        };
        let (slow, fast, ao) = ("cublaslt/fp8-tensorwise", "pytorch/fp8-tensorwise+fast", "torchao/tensorwise");
        let backward = |gemm| {
            [of(gemm, "bf16", &["cublaslt/bf16"]), of(gemm, "tensor", &[slow, ao]), of(gemm, "tensor+fast", &[fast])]
        };
        let forward = [
            of(Gemm::Fprop, "bf16", &["cublaslt/bf16"]),
            of(Gemm::Fprop, "tensor", &[slow]),
            of(Gemm::Fprop, "tensor+fast", &[fast, ao]),
        ];
        assert_eq!(shown, [forward, backward(Gemm::Dgrad), backward(Gemm::Wgrad)].concat());
    }

    #[test]
    fn an_open_recipe_has_a_column_a_kernel() {
        let grid = grid(&["cublaslt/fp8-rowwise+fast", "te/current", "fbgemm/rowwise"]);
        let closed = ShownColumn::all(&grid, &Filter::default(), |_| false);
        assert!(closed[0].is_closed() && !closed[0].is_open() && closed[0].num_alike == 2);
        let open = ShownColumn::all(&grid, &Filter::default(), |recipe| recipe == "row+fast");
        let fprop: Vec<usize> = open.iter().filter(|of| of.gemm == Gemm::Fprop).map(|of| of.kernels[0]).collect();
        assert_eq!((fprop, open.len()), (vec![0, 2, 1], 9), "what shares a recipe stands together");
        assert!(open[0].is_open() && open[1].is_open() && !open[2].is_open());
    }

    #[test]
    fn a_site_shows_the_best_or_else_what_has_a_value() {
        let shared = ShownColumn { gemm: Gemm::Fprop, recipe: String::new(), kernels: vec![0, 2, 3], num_alike: 3 };
        let (value, missing, waiting) = (Mark::VALUE, Mark::MISSING, Mark::WAITING);
        assert_eq!(shared.kernel_at(&[value, value, value, value.with(Mark::BEST)]), 3);
        assert_eq!(shared.kernel_at(&[missing, value, value, waiting]), 2, "the best is filtered out");
        assert_eq!(shared.kernel_at(&[waiting, value, missing, waiting]), 2);
        assert_eq!(shared.kernel_at(&[waiting; 4]), 0);
        assert_eq!(shared.kernel_at(&[]), 0);
    }
}
