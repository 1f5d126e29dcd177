//! The plan's lines in groups with sums: by library, recipe, shape, cause or module. Takes the table and what it was made
//! of, gives a line a group, the one that saves most first.

use std::collections::BTreeMap;

use crate::{
    model::Gemm,
    views::{Answer, Because, PlanView, Snapshot},
};

use super::{Flags, PlanTable};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlanGroupBy {
    Library,
    Recipe,
    Shape,
    /// Why a GEMM has the kernel that it has.
    Cause,
    Module,
}

impl PlanGroupBy {
    pub const ALL: [Self; 5] = [Self::Library, Self::Recipe, Self::Shape, Self::Cause, Self::Module];

    pub fn label(self) -> &'static str {
        match self {
            Self::Library => "Library",
            Self::Recipe => "Recipe",
            Self::Shape => "Shape",
            Self::Cause => "Cause",
            Self::Module => "Module",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlanGroup {
    pub name: String,
    /// Site number and GEMM, in forward order.
    pub gemms: Vec<(usize, Gemm)>,
    pub num_low: usize,
    /// Of those whose time is known.
    pub saved_us: f64,
    pub num_untimed: usize,
}

impl PlanGroup {
    /// Every line is in one group: they add up to the table's own sums.
    pub fn all(snapshot: &Snapshot, plan: &PlanView, table: &PlanTable, answer: &Answer, by: PlanGroupBy) -> Vec<Self> {
        let mut causes: BTreeMap<(usize, u8), Because> = BTreeMap::new();
        if by == PlanGroupBy::Cause {
            for clause in &answer.clauses {
                causes.extend(clause.gemms.iter().map(|(at, gemm)| ((*at, *gemm as u8), clause.because)));
            }
        }
        let mut groups: BTreeMap<String, Self> = BTreeMap::new();
        for line in &table.lines {
            let (site, kernel) = (&snapshot.sites()[line.at], plan.pick_at(line.at, line.gemm).map(|of| &of.kernel));
            let name = match by {
                PlanGroupBy::Library => kernel.map_or("", |kernel| kernel.library()).to_owned(),
                PlanGroupBy::Recipe => kernel.map_or("", |kernel| kernel.recipe()).to_owned(),
                PlanGroupBy::Shape => format!("{} × {} → {}", site.m, site.k, site.n),
                PlanGroupBy::Cause => {
                    let because = causes.get(&(line.at, line.gemm as u8));
                    because.map_or("never runs", |because| because.words()).to_owned()
                }
                PlanGroupBy::Module => site.id.as_str().rsplit_once('.').map_or("", |(module, _)| module).to_owned(),
            };
            let group = groups.entry(name.clone()).or_insert_with(|| Self {
                name,
                gemms: Vec::new(),
                num_low: 0,
                saved_us: 0.0,
                num_untimed: 0,
            });
            group.gemms.push((line.at, line.gemm));
            group.num_low += usize::from(line.flags.has(Flags::LOW));
            group.saved_us += line.saved_us.unwrap_or(0.0);
            group.num_untimed += usize::from(line.saved_us.is_none());
        }
        let mut all: Vec<Self> = groups.into_values().collect();
        // Stable: equals stay by name.
        all.sort_by(|a, b| b.saved_us.total_cmp(&a.saved_us));
        all
    }
}
