//! Data ready to draw: takes a [`Snapshot`] and what is asked of it, gives the heatmap's grid, the quadrant's
//! points, verdicts and the plan. No view computes a number, and nothing here needs the thread that draws.

mod answer;
mod axis;
mod baseline;
mod brush;
mod cell;
mod changed;
mod colour;
mod columns;
mod density;
mod derivation;
pub mod distribution;
pub mod drift;
mod filter;
mod findings;
mod folds;
mod frontier;
mod graph;
mod grid;
mod groups;
mod lines;
mod mods;
mod modules;
mod nearby;
mod plan;
mod plan_view;
mod points;
mod recipes;
mod review;
mod scale;
mod series;
mod shares;
mod site;
mod site_cost;
mod snapshot;
mod standings;
pub mod tsv;
mod verdicts;
mod versus;

pub use answer::{Answer, Because, Clause};
pub use axis::{ErrorAxis, nudged_speedup, readable, speedup_at, speedup_place};
pub use baseline::{Baseline, BaselinePlan};
pub use brush::{BrushTotals, BrushedRow, BrushedRows, WorstRow};
pub(crate) use cell::value;
pub use cell::{Cell, cell, cell_versus};
pub use colour::{sequential, verdict_colour, verdict_word};
pub use columns::ShownColumn;
pub use density::{Density, Hex, HexLattice};
pub use derivation::Derivation;
pub use filter::{Facts, Filter, FilterError, TERMS, TermHelp};
pub use findings::{Finding, FindingKind, Remedy};
pub use folds::{Cells, Fold, fold, median, worst_of};
pub use frontier::{FrontierView, Now};
pub use graph::{
    BandCounts, Bracket, Feed, Graph, GraphBasis, GraphEdge, GraphGemm, GraphItem, GraphItemKind, GraphItems,
    GraphLayout, GraphSite, auto_depth,
};
pub(crate) use grid::BestOfRecipes;
pub use grid::{Column, Grid, Mark};
pub use groups::{GroupBy, Grouping, MAX_GROUPS};
pub use lines::{Line, LineKind, Lines, Order, Sort, by_module, natural};
pub use mods::{
    Flips, ModStanding, ModsEffect, ModsStanding, Module, ModuleMods, On, Ratio, SiteChange, Sums, site_change,
};
pub use modules::{FolderId, Modules, depth, module};
pub use nearby::Nearby;
pub use plan::{Comparison, Flags, PlanColumn, PlanGroup, PlanGroupBy, PlanLine, PlanTable, WarningGroup};
pub use plan_view::PlanView;
pub use points::{Arrow, Point, QuadrantView, Unplaced};
pub use review::{Concern, Looked, ReviewItem, ReviewQueue, SiteReview};
pub use scale::{Scale, ticks};
pub use series::{SeriesGrid, SeriesTable, SiteSeries};
pub(crate) use shares::Share;
pub use shares::Shares;
pub use site::{
    Broken, ChainView, CodesRead, CodesStored, ErrorOutlook, Faithful, GemmView, KernelColumn, KernelLine,
    KernelStanding, MOST_DRAWS, MoreDraws, Outlook, OverrideEffect, Parts, SiteView, SlowPart, SpeedOutlook, TailStep,
    draws_to_ask, fed_by, further_draws, override_effect, words as site_words,
};
pub use site_cost::{CostOrder, SiteCost};
pub use snapshot::{OpenedTrace, Snapshot};
pub use standings::{ReviewStanding, SiteRank, Standings};
pub use verdicts::{SiteVerdict, Worst};
pub use versus::{NOT_IN_BASELINE, SAME_US, Versus, VersusLine};

pub use crate::dispatch::{Curve, CurvePoint, FrontierAxis};

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    dispatch::{Choice, JudgedRows},
    model::{Gemm, LatencySource, Metric},
};

use findings::Worth;
use frontier::ChosenLow;
use plan_view::Earlier;

/// What a person looks at, as far as it changes what is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewQuery {
    pub metric: Metric,
    /// `None`: all three.
    pub gemm: Option<Gemm>,
    /// Values divided by those of the policy's baseline at the same GEMM.
    pub relative: bool,
    /// Where there is a baseline to compare with: what differs from it. It goes before `relative`.
    pub versus: bool,
}

/// Everything that is derived from one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Views {
    pub revision: u64,
    /// What they were derived from.
    pub snapshot: Option<Arc<Snapshot>>,
    pub question: Option<ViewQuery>,
    pub plan: Arc<PlanView>,
    /// Every row under the policy: what the rest is made of.
    judged: Arc<JudgedRows>,
    pub grid: Arc<Grid>,
    pub quadrant: Arc<QuadrantView>,
    /// The same without what differs from a baseline.
    plain: Arc<QuadrantView>,
    /// The plan as a point of the frontier.
    pub now: Option<Now>,
    /// By site.
    pub verdicts: Arc<Vec<SiteVerdict>>,
    /// What filters ask and what sites are sorted by.
    pub standings: Arc<Standings>,
    pub worst: Option<Worst>,
    /// Against what a person compares with; `None`: with nothing.
    pub versus: Option<Arc<Versus>>,
    /// The plan's choices as a table.
    pub table: Arc<PlanTable>,
    /// The plan in words.
    pub answer: Arc<Answer>,
    /// What to know of it, worth most first.
    pub findings: Arc<Vec<Finding>>,
    /// What the findings are made of, three a site.
    worth: Arc<Vec<Worth>>,
    /// What the plan as a point is made of, three a site.
    low: Arc<Vec<Option<ChosenLow>>>,
    /// Where mods are on and what they do there.
    pub mods: Arc<ModsStanding>,
    /// What they change; `None`: no mod is on.
    pub mods_effect: Option<Arc<ModsEffect>>,
    /// How many chosen kernels have a latency of which source.
    pub sources: BTreeMap<LatencySource, usize>,
}

impl Views {
    /// `last`: what was derived before; what has not changed since is taken from it.
    pub fn of(snapshot: &Arc<Snapshot>, question: ViewQuery, last: &Self) -> Self {
        Derivation::new(snapshot.clone(), question, last).whole(last)
    }

    fn earlier(&self) -> Option<Earlier<'_>> {
        Some(Earlier { snapshot: self.snapshot.as_deref()?, judged: &self.judged, plan: &self.plan })
    }

    /// What a GEMM of the site numbered `at` runs, with its words.
    pub fn choice_at(&self, at: usize, gemm: Gemm) -> Option<&Choice> {
        self.plan.choice_at(self.snapshot.as_deref()?, at, gemm)
    }

    /// The same compared with another baseline.
    fn against(&self, snapshot: &Arc<Snapshot>) -> Self {
        let table = Arc::new(PlanTable::clone(&self.table).against(snapshot, &self.plan));
        Self { revision: snapshot.revision, snapshot: Some(snapshot.clone()), table, ..self.clone() }
    }
}

#[cfg(test)]
mod frontier_tests;
#[cfg(test)]
mod tests;
