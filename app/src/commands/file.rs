//! Opening and writing files, and what goes to the clipboard.

use egui::Key;
use loka_core::session::Command;

use super::{
    Doing, Scope, no_rows, no_site,
    table::{NO_KEY, actions, ctrl, ctrl_shift},
};
use crate::{
    layout::Pane,
    picture::PictureFormat,
    state::{CopyWhat, Dialog, ExportForm},
};

actions! {
    /// What reads and writes files, and copies.
    FileAction {
        Open: "Open…", "Open a trace, a folder of shards, results, or a plan to compare with", ctrl(Key::O);
        Browse: "Browse for files…", "Pick files in the system's own dialog; several open together", ctrl_shift(Key::O);
        ForgetRecent: "Clear recent files", "Forget which files were opened", NO_KEY;
        SaveResults: "Save results…", "Write every row, with its circumstances, to a Parquet file", ctrl(Key::S);
        ExportPlan: "Export plan…", "Write the chosen kernels as a plan that loka check accepts", ctrl(Key::E);
        ExportReport: "Export report…", "Write the plan and what is known of it as one HTML page for people", NO_KEY;
        SavePng: "Save view as PNG…", "Write the view that has the keys as it stands on screen", NO_KEY;
        SaveSvg: "Save view as SVG…", "Write the view that has the keys as vectors, with its text as text", NO_KEY;
        Copy: "Copy selection", "Copy the selected cell, or the selected site's row where no cell is selected", ctrl(Key::C);
        CopyCell: "Copy cell", "Copy the selected cell's number with every digit", NO_KEY;
        CopyRow: "Copy row", "Copy the selected site's numbers, separated by tabs", NO_KEY;
        CopyTable: "Copy table", "Copy the whole table of the view that has the keys, to paste into a spreadsheet", ctrl_shift(Key::C);
        CopyLink: "Copy link", "Copy the address of this page with the selection, the view and the filter in it", NO_KEY;
        CopyLog: "Copy the log", "Copy every line of the log that is shown", NO_KEY;
    }
}

impl FileAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        match self {
            Self::Open => None,
            Self::Browse => scope.view.no_browse.clone(),
            Self::ForgetRecent => scope.view.recent.is_empty().then(|| "no file was opened yet".to_owned()),
            Self::SaveResults | Self::ExportPlan | Self::ExportReport => no_rows(scope),
            Self::SavePng | Self::SaveSvg => no_picture(scope),
            Self::Copy => no_site(scope).or_else(|| no_rows(scope)),
            Self::CopyCell => no_site(scope).or_else(|| no_rows(scope)).or_else(|| no_cell(scope)),
            Self::CopyRow => no_site(scope).or_else(|| no_rows(scope)),
            Self::CopyTable => no_table(scope),
            Self::CopyLink => no_page(scope).or_else(|| super::no_trace(scope)),
            Self::CopyLog => scope.session.log().entries().is_empty().then(|| "the log is empty".to_owned()),
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        let pane = doing.view.layout.active();
        match self {
            Self::Open => doing.view.dialog = Some(Dialog::open(doing.session)),
            Self::Browse => doing.view.browse = Some(Dialog::open(doing.session)),
            Self::ForgetRecent => doing.view.recent.clear(),
            Self::SaveResults => doing.view.dialog = Some(Dialog::save_results(doing.session)),
            Self::ExportPlan => doing.view.dialog = Some(Dialog::export(doing.session, ExportForm::Plan)),
            Self::ExportReport => doing.view.dialog = Some(Dialog::export(doing.session, ExportForm::Report)),
            Self::SavePng => doing.view.dialog = Some(Dialog::picture(doing.session, pane, PictureFormat::Png)),
            Self::SaveSvg => doing.view.dialog = Some(Dialog::picture(doing.session, pane, PictureFormat::Svg)),
            Self::Copy if doing.view.column.is_some() => doing.view.copy = Some(CopyWhat::Cell),
            Self::Copy | Self::CopyRow => doing.view.copy = Some(CopyWhat::Row),
            Self::CopyCell => doing.view.copy = Some(CopyWhat::Cell),
            Self::CopyTable => doing.view.copy = Some(CopyWhat::Table(pane)),
            Self::CopyLink => doing.view.copy = Some(CopyWhat::Link),
            Self::CopyLog => doing.view.copy = Some(CopyWhat::Table(Pane::Log)),
        }
        None
    }
}

fn no_page(scope: Scope<'_>) -> Option<String> {
    scope.view.page.is_none().then(|| "only a page in a browser has an address".to_owned())
}

fn no_cell(scope: Scope<'_>) -> Option<String> {
    scope.view.column.is_none().then(|| "select one of its kernels first".to_owned())
}

fn no_table(scope: Scope<'_>) -> Option<String> {
    match scope.view.layout.active() {
        Pane::Log => FileAction::CopyLog.problem(scope),
        Pane::Site => no_site(scope).or_else(|| no_rows(scope)),
        Pane::Heatmap | Pane::Quadrant | Pane::Plan => no_rows(scope),
        pane => Some(format!("{} holds no table", pane.title())),
    }
}

fn no_picture(scope: Scope<'_>) -> Option<String> {
    let pane = scope.view.layout.active();
    let hidden = !scope.view.layout.is_on_screen(pane);
    super::no_trace(scope).or_else(|| hidden.then(|| format!("{} is not on screen", pane.title())))
}
