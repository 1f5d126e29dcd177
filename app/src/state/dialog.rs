//! A question that the window asks: which file, and what it proposes.

use loka_core::{export::Target, session::Session};

use crate::platform::{Here, Platform as _};
use crate::{layout::Pane, picture::PictureFormat};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialogKind {
    Open,
    SaveResults,
    Export(ExportForm),
    ComparePlan,
    CompareResults,
    /// With which key.
    Approve,
    SavePicture(Pane, PictureFormat),
}

/// What a plan is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportForm {
    /// LoKA's own file.
    Plan,
    Framework(Target),
    /// For people.
    Report,
}

impl ExportForm {
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Plan].into_iter().chain(Target::ALL.map(Self::Framework)).chain([Self::Report])
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Plan => "LoKA plan",
            Self::Framework(target) => target.title(),
            Self::Report => "Report (HTML)",
        }
    }

    /// How the file's name ends.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Plan => "plan.json",
            Self::Framework(target) => target.ending(),
            Self::Report => "report.html",
        }
    }
}

impl DialogKind {
    /// What a plan is to be written as, if that is what is asked.
    pub fn export_form(self) -> Option<ExportForm> {
        match self {
            Self::Export(form) => Some(form),
            _ => None,
        }
    }
}

/// What goes to the clipboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyWhat {
    Cell,
    Row,
    Table(Pane),
    /// The rows that were brushed.
    Brushed,
    /// The page's address.
    Link,
    /// How the views stand, as JSON.
    Layout,
    /// What was done here, a line each.
    Steps,
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
        // In a page the next file is rarely beside the last.
        let folder = session.trace.as_ref().filter(|_| !Here::IS_PAGE);
        let folder = folder.map(|trace| folder_of(&trace.path).to_owned());
        Self { kind: DialogKind::Open, path: folder.unwrap_or_default(), fresh: true }
    }

    pub fn save_results(session: &Session) -> Self {
        Self { kind: DialogKind::SaveResults, path: beside_trace(session, "results.parquet"), fresh: true }
    }

    pub fn picture(session: &Session, pane: Pane, format: PictureFormat) -> Self {
        let ending = format!("{}.{}", pane.title().to_lowercase(), format.ending());
        let path = beside_trace(session, &ending);
        Self { kind: DialogKind::SavePicture(pane, format), path, fresh: true }
    }

    pub fn export(session: &Session, form: ExportForm) -> Self {
        Self { kind: DialogKind::Export(form), path: beside_trace(session, form.ending()), fresh: true }
    }

    /// Another form under the same name: its ending goes along, where it is still the one that was proposed.
    pub fn export_as(&mut self, form: ExportForm) {
        if let DialogKind::Export(before) = self.kind
            && let Some(stem) = self.path.trim_end().strip_suffix(before.ending())
        {
            self.path = format!("{stem}{}", form.ending());
        }
        self.kind = DialogKind::Export(form);
    }

    pub fn approve() -> Self {
        Self { kind: DialogKind::Approve, path: Here::own_key_path().unwrap_or_default(), fresh: true }
    }

    pub fn compare_plan(session: &Session) -> Self {
        let path = if Here::IS_PAGE { String::new() } else { beside_trace(session, "plan.json") };
        Self { kind: DialogKind::ComparePlan, path, fresh: true }
    }

    pub fn compare_results(session: &Session) -> Self {
        let ending = "results.parquet";
        let path = if Here::IS_PAGE { String::new() } else { beside_trace(session, ending) };
        Self { kind: DialogKind::CompareResults, path, fresh: true }
    }
}

/// The trace's own path with another ending.
fn beside_trace(session: &Session, ending: &str) -> String {
    let path = session.trace.as_ref().map_or("loka", |trace| &trace.path);
    // A download has a name alone.
    let path = if Here::IS_PAGE { crate::executor::name_of(path) } else { path };
    crate::beside::beside(path, ending)
}

/// With the separator at its end.
pub fn folder_of(path: &str) -> &str {
    path.rfind(['/', '\\']).map_or("", |at| &path[..=at])
}
