//! Takes what a person wants on the clipboard, gives its text, made in the background: a table of ten thousand sites must
//! not hold a frame up. The text itself is core's.

use std::sync::Arc;

use loka_core::{
    format::number::counted,
    session::Session,
    views::{BrushedRows, Column, Snapshot, ViewQuery, Views, tsv},
};

use crate::{
    layout::{Layout, Pane},
    platform::{BackgroundTasks, TaskResult},
    state::{CopyWhat, ViewState},
    views::log_text,
    window::{address::Address, steps::Done},
};

/// Everything that a table is made from, free to leave the thread that draws.
struct CopySource {
    snapshot: Arc<Snapshot>,
    views: Views,
    question: ViewQuery,
    /// The selected site.
    at: Option<usize>,
    column: Option<Column>,
    brushed: Arc<BrushedRows>,
    /// Sites that the filter shows.
    shown: Vec<usize>,
    /// The address of what is seen; empty where there is no page.
    link: String,
    layout: Layout,
    /// What was done, and in how many steps.
    steps: (String, usize),
}

/// A line for the person when there is nothing to copy.
pub fn copy(
    what: CopyWhat,
    (session, view, views): (&Session, &ViewState, &Views),
    done: &Done,
    background: &BackgroundTasks,
) -> Option<String> {
    if what == CopyWhat::Table(Pane::Log) {
        let (text, lines) = log_text(session, &view.log);
        let what = format!("{lines} lines of the log");
        background.run("loka-copy", move || Some(TaskResult::Copy { text, what }));
        return None;
    }
    let Some(source) = CopySource::of(session, view, views, done) else {
        return Some("open a trace first".to_owned());
    };
    if what == CopyWhat::Steps && source.steps.1 == 0 {
        return Some("nothing was done here yet that could be done again".to_owned());
    }
    background.run("loka-copy", move || {
        let (text, what) = source.text(what);
        Some(TaskResult::Copy { text, what })
    });
    None
}

impl CopySource {
    fn of(session: &Session, view: &ViewState, views: &Views, done: &Done) -> Option<Self> {
        let snapshot = session.snapshot()?;
        Some(Self {
            views: views.clone(),
            question: view.question(),
            at: view.site.as_ref().and_then(|site| session.index().at(site)),
            column: view.column.clone(),
            brushed: view.brush.set.clone(),
            shown: view.sites.lines().shown().iter().map(|at| *at as usize).collect(),
            link: view.page.as_deref().map(|page| linked(page, &Address::of(view))).unwrap_or_default(),
            layout: view.layout.clone(),
            steps: done.text(Address::of(view), &snapshot.trace.path),
            snapshot,
        })
    }

    /// The text, and how it is called.
    fn text(&self, what: CopyWhat) -> (String, String) {
        let Self { snapshot, views, question, shown, .. } = self;
        let at = self.at.unwrap_or(usize::MAX);
        let table = match what {
            CopyWhat::Cell => {
                let cell = self.column.as_ref().map(|column| tsv::grid_cell(snapshot, views, *question, at, column));
                return (tsv::escaped(&cell.unwrap_or_default()), "The cell".to_owned());
            }
            CopyWhat::Row => {
                return (tsv::line(&tsv::grid_row(snapshot, views, *question, at)), "The row".to_owned());
            }
            CopyWhat::Link => return (self.link.clone(), "The link".to_owned()),
            CopyWhat::Steps => {
                let (text, steps) = &self.steps;
                return (text.clone(), format!("A text of {}", counted(*steps, "step")));
            }
            CopyWhat::Layout => return (self.layout.to_json(), "The layout".to_owned()),
            CopyWhat::Brushed => tsv::row_set(snapshot, &self.brushed),
            CopyWhat::Table(Pane::Quadrant) => tsv::points(snapshot, views),
            CopyWhat::Table(Pane::Plan) => tsv::choices(snapshot, views),
            CopyWhat::Table(Pane::Site) => tsv::kernels(snapshot, at),
            CopyWhat::Table(_) => tsv::grid(snapshot, views, *question, shown),
        };
        (table.to_tsv(), format!("A table of {} rows", table.rows.len()))
    }
}

/// `page` with that behind its `#`.
fn linked(page: &str, address: &Address) -> String {
    format!("{}#{}", page.split('#').next().unwrap_or_default(), address.format())
}
