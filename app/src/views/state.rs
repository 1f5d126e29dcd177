//! What is seen and selected: not saved, not undone, apart from the document.

use loka_core::{
    model::{Gemm, Metric, SiteId},
    session::{Session, view::Column},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    #[default]
    Heatmap,
    Quadrant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialogKind {
    Open,
    SaveResults,
    ExportPlan,
}

/// A question with one answer: a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialog {
    pub kind: DialogKind,
    pub path: String,
    /// The field takes the focus once.
    pub fresh: bool,
}

impl Dialog {
    pub fn open(session: &Session) -> Self {
        let folder = session.trace.as_ref().map(|trace| folder_of(&trace.path).to_owned());
        Self { kind: DialogKind::Open, path: folder.unwrap_or_default(), fresh: true }
    }

    pub fn save_results(session: &Session) -> Self {
        Self { kind: DialogKind::SaveResults, path: beside_trace(session, "results.parquet"), fresh: true }
    }

    pub fn export_plan(session: &Session) -> Self {
        Self { kind: DialogKind::ExportPlan, path: beside_trace(session, "plan.json"), fresh: true }
    }
}

/// The trace's own path with another ending.
fn beside_trace(session: &Session, ending: &str) -> String {
    let path = session.trace.as_ref().map_or("loka", |trace| &trace.path);
    let stem = [".trace.safetensors", ".results.parquet"].iter().find_map(|known| path.strip_suffix(known));
    format!("{}.{ending}", stem.unwrap_or(path.trim_end_matches(['/', '\\'])))
}

fn folder_of(path: &str) -> &str {
    path.rfind(['/', '\\']).map_or("", |at| &path[..=at])
}

/// Which of the policy's lines is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Error,
    Speedup,
}

#[derive(Clone, Debug)]
pub struct ViewState {
    pub site: Option<SiteId>,
    pub column: Option<Column>,
    /// Until a person selects, the worst site is selected for them.
    pub follow_worst: bool,
    pub metric: Metric,
    pub gemm: Option<Gemm>,
    pub relative: bool,
    pub filter: String,
    pub focus_filter: bool,
    pub tab: Tab,
    pub dark: bool,
    /// What was typed, and the highlighted row.
    pub palette: Option<(String, usize)>,
    pub sheet: bool,
    /// The list of engines is open.
    pub engines: bool,
    pub dialog: Option<Dialog>,
    /// The kernel whose override form is open.
    pub overriding: Option<Column>,
    pub reason: String,
    pub focus_reason: bool,
    /// The drag under way, and its gesture.
    pub drag: Option<(Line, u64)>,
    /// The first minute's hint, until a person acts on it.
    pub hint: bool,
    /// The list and the heatmap bring the selection into sight once.
    pub reveal: bool,
    gestures: u64,
}

impl Default for ViewState {
    fn default() -> Self {
        Self {
            site: None,
            column: None,
            follow_worst: true,
            metric: Metric::Mere,
            gemm: None,
            relative: false,
            filter: String::new(),
            focus_filter: false,
            tab: Tab::Heatmap,
            dark: true,
            palette: None,
            sheet: false,
            engines: false,
            dialog: None,
            overriding: None,
            reason: String::new(),
            focus_reason: false,
            drag: None,
            hint: true,
            reveal: false,
            gestures: 0,
        }
    }
}

impl ViewState {
    /// Changes with the same number undo as one.
    pub fn next_gesture(&mut self) -> u64 {
        self.gestures += 1;
        self.gestures
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
    }

    pub fn shows(&self, site: &SiteId) -> bool {
        let wanted = self.filter.trim().to_lowercase();
        wanted.is_empty() || site.as_str().to_lowercase().contains(&wanted)
    }

    pub fn step_site(&mut self, session: &Session, step: isize) {
        let Some(trace) = &session.trace else { return };
        let shown: Vec<&SiteId> =
            trace.manifest().sites.iter().map(|site| &site.id).filter(|id| self.shows(id)).collect();
        let now = self.site.as_ref().and_then(|site| shown.iter().position(|id| *id == site));
        if let Some(next) = stepped(now, shown.len(), step) {
            self.select(shown[next].clone(), None);
            self.reveal = true;
        }
    }

    pub fn step_column(&mut self, columns: &[Column], step: isize) {
        let now = self.column.as_ref().and_then(|column| columns.iter().position(|of| of == column));
        if let (Some(next), Some(site)) = (stepped(now, columns.len(), step), self.site.clone()) {
            self.select(site, Some(columns[next].clone()));
        }
    }

    pub fn open_palette(&mut self) {
        self.palette = Some((String::new(), 0));
    }

    /// Closes what is on top: palette, sheet, dialog, the override form, the filter's focus.
    pub fn back(&mut self, ctx: &egui::Context) {
        if self.palette.take().is_some() || std::mem::take(&mut self.sheet) || self.dialog.take().is_some() {
            return;
        }
        if std::mem::take(&mut self.engines) || self.overriding.take().is_some() {
            return;
        }
        if let Some(focused) = ctx.memory(|memory| memory.focused()) {
            ctx.memory_mut(|memory| memory.surrender_focus(focused));
        } else {
            self.filter.clear();
        }
    }
}

fn stepped(now: Option<usize>, count: usize, step: isize) -> Option<usize> {
    if count == 0 {
        return None;
    }
    Some(now.map_or(0, |now| now.saturating_add_signed(step).min(count - 1)))
}
