//! What is seen and selected: not saved, not undone, apart from the document.

use std::{collections::BTreeSet, sync::Arc};

use loka_core::{
    model::{Gemm, Metric, SiteId},
    session::Session,
    views::{BaselinePlan, Column, ViewQuery},
};

use super::{
    BrushState, CopyWhat, Derived, Dialog, DistributionState, DriftState, ExportState, FrontierState, GraphState,
    HeatmapState, LogState, ModsState, PlanState, QuadrantState, ReviewPane, SiteState, SitesState, StepCursor,
    TourState,
};
use crate::{
    layout::Layout,
    picture::{self},
    settings::Recent,
    theme::Ground,
};

/// Which of the policy's lines is dragged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdLine {
    Error,
    Speedup,
}

#[derive(Clone, Debug)]
pub struct ViewState {
    pub site: Option<SiteId>,
    /// Several sites, in force while the selected site is one of them: see [`Self::selected_sites`].
    pub selection: BTreeSet<SiteId>,
    pub column: Option<Column>,
    /// Until a person selects, the worst site is selected for them.
    pub follow_worst: bool,
    pub metric: Metric,
    /// A person said which metric is shown; until then it goes by the policy.
    metric_chosen: bool,
    pub gemm: Option<Gemm>,
    pub relative: bool,
    /// Where there is a baseline, views show what differs from it.
    pub versus: bool,
    /// The baseline that was there in the last frame: a new one is shown at once.
    baseline: Option<Arc<BaselinePlan>>,
    pub filter: String,
    pub focus_filter: bool,
    pub layout: Layout,
    /// Dark, light, or as the system has it.
    pub ground: Ground,
    /// Times the size that the system asks for.
    pub text_size: f32,
    /// The list of engines is open.
    pub engines: bool,
    pub dialog: Option<Dialog>,
    /// What the dialog's export would write.
    pub export: ExportState,
    /// The system's dialog is wanted for this question.
    pub browse: Option<Dialog>,
    /// Why there is no such dialog; `None`: there is one.
    pub no_browse: Option<String>,
    /// The address of the page that the window is in; `None`: it is in none.
    pub page: Option<String>,
    /// Wanted on the clipboard.
    pub copy: Option<CopyWhat>,
    pub picture: picture::PictureState,
    /// Files that were opened, the latest first.
    pub recent: Recent,
    /// The kernel whose override form is open.
    pub overriding: Option<Column>,
    pub reason: String,
    pub focus_reason: bool,
    /// The drag under way, and its gesture.
    pub drag: Option<(ThresholdLine, u64)>,
    /// The first minute's hint, until a person acts on it.
    pub hint: bool,
    pub tour: TourState,
    /// The list and the heatmap bring the selection into sight once.
    pub reveal: bool,
    pub sites: SitesState,
    pub heatmap: HeatmapState,
    pub quadrant: QuadrantState,
    pub frontier: FrontierState,
    pub brush: BrushState,
    pub graph: GraphState,
    pub site_view: SiteState,
    pub distribution: DistributionState,
    pub drift: DriftState,
    /// The recorded step that views show together.
    pub steps: StepCursor,
    pub mods: ModsState,
    pub plan: PlanState,
    pub log: LogState,
    pub review: ReviewPane,
    gestures: u64,
}

impl Default for ViewState {
    fn default() -> Self {
        Self {
            site: None,
            selection: BTreeSet::new(),
            column: None,
            follow_worst: true,
            metric: Metric::Mere,
            metric_chosen: false,
            gemm: None,
            relative: false,
            versus: true,
            baseline: None,
            filter: String::new(),
            focus_filter: false,
            layout: Layout::default(),
            ground: Ground::System,
            text_size: 1.0,
            engines: false,
            dialog: None,
            export: ExportState::default(),
            browse: None,
            no_browse: Some("this window has no file dialog of the system: type the path".to_owned()),
            page: None,
            copy: None,
            picture: picture::PictureState::default(),
            recent: Recent::default(),
            overriding: None,
            reason: String::new(),
            focus_reason: false,
            drag: None,
            hint: true,
            tour: TourState::default(),
            reveal: false,
            sites: SitesState::default(),
            heatmap: HeatmapState::default(),
            quadrant: QuadrantState::default(),
            frontier: FrontierState::default(),
            brush: BrushState::default(),
            graph: GraphState::default(),
            site_view: SiteState::default(),
            distribution: DistributionState::default(),
            drift: DriftState::default(),
            steps: StepCursor::default(),
            mods: ModsState::default(),
            plan: PlanState::default(),
            log: LogState::default(),
            review: ReviewPane::default(),
            gestures: 0,
        }
    }
}

impl ViewState {
    /// What the views are derived for.
    pub fn question(&self) -> ViewQuery {
        ViewQuery { metric: self.metric, gemm: self.gemm, relative: self.relative, versus: self.versus }
    }

    /// Changes with the same number undo as one.
    pub fn next_gesture(&mut self) -> u64 {
        self.gestures += 1;
        self.gestures
    }

    /// A person's.
    pub fn choose_metric(&mut self, metric: Metric) {
        (self.metric, self.metric_chosen) = (metric, true);
    }

    /// Until somebody chooses, shown is what the policy bounds; where that is known of some GEMMs only, relative L2, which
    /// all of them have.
    pub fn follow_policy(&mut self, bounded: Metric) {
        if !self.metric_chosen {
            self.metric = bounded.shown();
        }
    }

    pub fn select(&mut self, site: SiteId, column: Option<Column>) {
        self.follow_worst = false;
        if self.site.as_ref() != Some(&site) || (column.is_some() && column != self.column) {
            self.overriding = None;
        }
        self.site = Some(site);
        if column.is_some() {
            self.column = column;
        }
    }

    /// A new trace: nothing of the old one stays selected.
    pub fn forget_selection(&mut self) {
        (self.site, self.column, self.overriding, self.follow_worst) = (None, None, None, true);
        self.selection.clear();
        self.quadrant.forget();
        self.frontier.forget();
        self.brush.forget();
        self.graph.forget();
        self.mods.module = None;
        self.review.forget();
    }

    /// Brings the lines of the list and the heatmap up to date; cheap when nothing changed.
    pub fn refresh_lines(&mut self, session: &Session, derived: &Derived) {
        self.sites.refresh(session, derived, &self.filter, &self.selection);
    }

    /// What bulk actions work on: the selection, or the selected site alone.
    pub fn selected_sites(&self) -> Vec<SiteId> {
        match &self.site {
            Some(site) if self.selection.contains(site) => self.selection.iter().cloned().collect(),
            Some(site) => vec![site.clone()],
            None => Vec::new(),
        }
    }

    pub fn is_selected(&self, site: &SiteId) -> bool {
        self.site.as_ref() == Some(site)
            || (self.selection.contains(site) && self.site.as_ref().is_some_and(|of| self.selection.contains(of)))
    }

    /// Moves the selection along the lines; closed folders are passed by.
    pub fn step_site(&mut self, session: &Session, step: isize) {
        let now = self.site.as_ref().and_then(|site| session.index().at(site));
        let lines = self.sites.lines();
        let next = lines.stepped(now.and_then(|site| lines.line_of(site)), step);
        if let Some(id) = next.and_then(|site| session.index().ids().get(site)) {
            self.select(id.clone(), None);
            self.reveal = true;
        }
    }

    /// Something is open, or about to be, that a person types into.
    pub fn wants_keys(&self) -> bool {
        self.dialog.is_some()
            || self.sites.bulk.is_some()
            || self.focus_reason
            || self.focus_filter
            || self.review.focus_draft
    }

    /// Whoever set another baseline wants to see it, also after the one before was left.
    pub fn follow_baseline(&mut self, session: &Session) {
        let now = session.other_plan.as_ref().map(|(_, plan)| plan);
        let same = match (now, &self.baseline) {
            (Some(now), Some(known)) => Arc::ptr_eq(now, known),
            (now, known) => now.is_none() && known.is_none(),
        };
        if !same {
            (self.versus, self.baseline) = (true, now.cloned());
        }
    }

    /// Closes what is on top: a dialog, the tour, a list, a form. True if something was.
    pub fn close_top(&mut self, ctx: &egui::Context) -> bool {
        if self.dialog.take().is_some() || self.tour.leave() {
            return true;
        }
        // A menu, a list: the press was taken before they could see it.
        if egui::Popup::is_any_open(ctx) {
            egui::Popup::close_all(ctx);
            return true;
        }
        std::mem::take(&mut self.engines) || self.sites.bulk.take().is_some() || self.overriding.take().is_some()
    }

    /// With nothing on top: what is selected by an area, a field that has the keys, the filter, what is compared with.
    pub fn leave(&mut self, ctx: &egui::Context) {
        if self.brush.is_shown(&self.layout) {
            return self.brush.forget();
        }
        if let Some(focused) = ctx.memory(|memory| memory.focused()) {
            ctx.memory_mut(|memory| memory.surrender_focus(focused));
        } else if !self.filter.is_empty() {
            self.filter.clear();
        } else if self.baseline.is_some() {
            self.versus = false;
        }
    }
}
