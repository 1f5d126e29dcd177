//! Data ready to draw: takes a [`Snapshot`] and what is asked of it, gives the heatmap's grid, the quadrant's
//! points, verdicts and the plan. No view computes a number, and nothing here needs the thread that draws.

mod answer;
mod axis;
mod baseline;
mod brush;
mod cell;
mod changed;
mod colour;
mod density;
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
pub use density::{Density, Hex};
pub use filter::{Facts, Filter, FilterError, TERMS, TermHelp};
pub use findings::{Finding, FindingKind, Remedy};
pub use folds::{Cells, Fold, fold, median, worst_of};
pub use frontier::{FrontierView, Now};
pub use graph::{
    BandCounts, Bracket, Feed, Graph, GraphEdge, GraphGemm, GraphItem, GraphItemKind, GraphItems, GraphLayout,
    GraphSite, auto_depth,
};
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
    dispatch::{Choice, JudgedRows, parallel::join},
    model::{Gemm, LatencySource, Metric},
};

use changed::Changed;
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
        let same = last.question.is_some() && last.revision == snapshot.revision;
        if same && last.question == Some(question) {
            return last.clone();
        }
        // With another baseline everything is decided as it was.
        let decided = same || last.snapshot.as_ref().is_some_and(|of| of.is_decided_as(snapshot));
        let (plan, judged) = match decided {
            true => (last.plan.clone(), last.judged.clone()),
            false => {
                let earlier = last.earlier();
                let judged = snapshot.judged_after(earlier.map(|of| (of.snapshot, of.judged)));
                (Arc::new(PlanView::of_judged(snapshot, &judged, earlier)), Arc::new(judged))
            }
        };
        if let Some(baseline) = &snapshot.baseline {
            baseline.plan.seen(snapshot, &plan);
        }
        let versus = if same { last.versus.clone() } else { Versus::of(snapshot, &plan).map(Arc::new) };
        let against = versus.as_deref().filter(|_| question.versus);
        let gemm_changed = last.question.is_none_or(|asked| asked.gemm != question.gemm);
        let rows = (&**snapshot, &*judged);
        // Where each row stands, and what it shows, is as it was under another policy, too.
        let known = last.snapshot.as_ref().filter(|of| of.has_rows_of(snapshot));
        let changed =
            known.filter(|_| !decided).and_then(|_| Changed::since(last.earlier()?, (snapshot, &judged), &plan));
        let changed = changed.as_ref();
        let plain = || match !decided || gemm_changed {
            true => {
                let placed = Some(&*last.plain).filter(|_| known.is_some() && !gemm_changed);
                Arc::new(QuadrantView::of(rows, &plan, question.gemm, placed.map(|of| (of, changed))))
            }
            false => last.plain.clone(),
        };
        let kept = same && !gemm_changed && last.question.is_some_and(|asked| asked.versus == question.versus);
        let quadrant = || {
            let plain = plain();
            if kept {
                return (last.quadrant.clone(), plain);
            }
            let shown = against.map(|versus| Arc::new(plain.against(snapshot, &plan, versus)));
            (shown.unwrap_or_else(|| plain.clone()), plain)
        };
        let divided = |versus: bool| question.relative || (question.versus && versus);
        let as_asked = last.question == Some(question) && !divided(versus.is_some()) && !divided(last.versus.is_some());
        let filled = Some(&*last.grid).filter(|_| known.is_some() && as_asked);
        let grid = || Arc::new(Grid::of(rows, &plan, question, (against, filled.map(|of| (of, changed)))));
        let mods = || if same { last.mods.clone() } else { ModsStanding::of(snapshot, &last.mods) };
        // What depends on the question is made beside what does not.
        let asked: &dyn Fn() -> _ = &|| (grid(), quadrant(), mods());
        let (mut views, (grid, (quadrant, plain), mods)) = match (same, decided) {
            (true, _) => (last.clone(), asked()),
            (false, true) => join(|| last.against(snapshot), asked),
            (false, false) => Self::of_revision(snapshot, (plan.clone(), judged.clone()), (last, changed), asked),
        };
        (views.quadrant, views.plain, views.mods) = (quadrant, plain, mods);
        views.grid = grid;
        views.versus = versus;
        views.question = Some(question);
        views
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

    /// `changed`: since `last`; `None`: nothing of `last` is known to stand. `asked`: what else is to be made, beside it.
    fn of_revision<T>(
        snapshot: &Arc<Snapshot>,
        (plan, judged): (Arc<PlanView>, Arc<JudgedRows>),
        (last, changed): (&Self, Option<&Changed>),
        asked: &dyn Fn() -> T,
    ) -> (Self, T) {
        let rows = (&**snapshot, &*judged);
        let earlier = last.earlier().map(|earlier| (earlier, &*last.table));
        let of_table = || {
            let table = PlanTable::of(rows, &plan, earlier);
            let worth = Worth::of_all(rows, &plan, &table, changed.map(|changed| (&last.worth[..], changed)));
            let findings = Finding::all(rows, &plan, &table, &worth);
            (Arc::new(table), Arc::new(worth), Arc::new(findings))
        };
        let of_sites = || {
            let standings = Standings::of(rows, changed.map(|changed| (&*last.standings, changed)));
            let verdicts = changed.map(|changed| (&last.verdicts[..], changed));
            let verdicts = SiteVerdict::of_all(snapshot, &standings, verdicts);
            let answer = Answer::of(rows, &plan, &standings, changed.map(|changed| (&*last.answer, changed)));
            let low = ChosenLow::of_all(snapshot, &plan, changed.map(|changed| (&last.low[..], changed)));
            (Arc::new(standings), Arc::new(verdicts), Arc::new(answer), Arc::new(low))
        };
        let ((table, worth, findings), (asked, (standings, verdicts, answer, low))) =
            join(of_table, || (asked(), of_sites()));
        let views = Self {
            revision: snapshot.revision,
            answer,
            snapshot: Some(snapshot.clone()),
            sources: table.sources(),
            verdicts,
            // Errors are the rows', whatever is decided of them.
            worst: changed.map_or_else(|| Worst::of(snapshot, &judged), |_| last.worst.clone()),
            now: Now::of(&plan, snapshot.document.policy.metric, &low),
            findings,
            worth,
            low,
            standings,
            table,
            mods_effect: ModsEffect::of(snapshot, &plan).map(Arc::new),
            plan,
            judged,
            ..Self::default()
        };
        (views, asked)
    }
}

#[cfg(test)]
mod frontier_tests;
#[cfg(test)]
mod tests;
