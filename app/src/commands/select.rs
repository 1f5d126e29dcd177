//! Which sites and kernel are looked at, in which order they stand, and what is done to several at once.

use egui::Key;
use loka_core::{
    model::{Gemm, ModKind, SiteId},
    session::Command,
    views::Sort,
};

use super::{
    Doing, Scope, no_site, no_trace,
    table::{NO_KEY, actions, ctrl, key, shift},
};
use crate::state::{BulkForm, Steps, ViewState, brush_by_key};

actions! {
    /// What moves the selection, orders the sites, and works on those selected.
    SelectAction {
        NextSite: "Next site", "Move the selection down the list of sites", key(Key::ArrowDown);
        PreviousSite: "Previous site", "Move the selection up the list of sites", key(Key::ArrowUp);
        ExtendDown: "Extend the selection down", "Select the next site too", shift(Key::ArrowDown);
        ExtendUp: "Extend the selection up", "Select the previous site too", shift(Key::ArrowUp);
        FirstSite: "First site", "Move the selection to the top of the list", key(Key::Home);
        LastSite: "Last site", "Move the selection to the end of the list", key(Key::End);
        PageDown: "Page down", "Move the selection down by what the list shows", key(Key::PageDown);
        PageUp: "Page up", "Move the selection up by what the list shows", key(Key::PageUp);
        NextColumn: "Next kernel", "Move the selection to the right along the kernels of all GEMMs", key(Key::ArrowRight);
        PreviousColumn: "Previous kernel", "Move the selection to the left along the kernels of all GEMMs", key(Key::ArrowLeft);
        SelectAll: "Select all sites", "Select every site that the filter lets through", ctrl(Key::A);
        Filter: "Filter sites", "Show only sites by name, verdict, GEMM, library or module", key(Key::F);
        ClearFilter: "Clear the filter", "Show every site again", NO_KEY;
        CopySite: "Copy name", "Copy the selected site's whole name", NO_KEY;
        CopyNames: "Copy all selected names", "Copy the names of the selected sites, one a line", NO_KEY;
        NoBiasHere: "Toggle no bias at the selected sites", "Probe the selected sites as they would be without bias", NO_KEY;
        BlockNormHere: "Toggle BlockNorm at the selected sites", "Probe the selected sites as they would be with BlockNorm", NO_KEY;
        HardSwishHere: "Toggle hard swish at the selected sites", "Probe the selected sites as they would be with hard swish", NO_KEY;
        OverrideHere: "Override at the selected sites…", "Choose one kernel for all GEMMs of the selected sites, with one reason", NO_KEY;
        ClearOverridesHere: "Clear overrides at the selected sites", "Leave every GEMM of the selected sites to the policy again", NO_KEY;
        SortForward: "Sort in forward order", "List sites as the model runs them", NO_KEY;
        SortName: "Sort by name", "List sites by name, numbers in names as numbers", NO_KEY;
        SortError: "Sort by worst error", "List the sites first that err most with their best FP8 kernel", NO_KEY;
        SortGain: "Sort by gain", "List the sites first where a safe kernel is fastest", NO_KEY;
        SortLossCost: "Sort by loss cost", "List the sites first that cost most loss with their gentlest FP8 kernel", NO_KEY;
        SortVerdict: "Sort by verdict", "List the unsafe sites first, the safe and fast ones last", NO_KEY;
        ReverseOrder: "Reverse the order", "Turn the order of the sites round", NO_KEY;
        GroupByModule: "Group by module", "List sites in the tree of their modules, or in one list", NO_KEY;
        ToggleFolder: "Close the selected site's module", "Close the innermost module of the selected site, or open it again", NO_KEY;
        CloseFolders: "Close all modules", "Show the outermost modules alone", NO_KEY;
        OpenFolders: "Open all modules", "Show every site in its module", NO_KEY;
    }
}

impl SelectAction {
    /// It changes the plan.
    pub(super) fn decides(self) -> bool {
        use SelectAction::{BlockNormHere, ClearOverridesHere, HardSwishHere, NoBiasHere, OverrideHere};
        matches!(self, NoBiasHere | BlockNormHere | HardSwishHere | OverrideHere | ClearOverridesHere)
    }

    pub fn of_sort(sort: Sort) -> Self {
        match sort {
            Sort::Forward => Self::SortForward,
            Sort::Name => Self::SortName,
            Sort::WorstError => Self::SortError,
            Sort::Gain => Self::SortGain,
            Sort::LossCost => Self::SortLossCost,
            Sort::Verdict => Self::SortVerdict,
        }
    }

    fn sort(self) -> Option<Sort> {
        Sort::ALL.into_iter().find(|sort| Self::of_sort(*sort) == self)
    }

    fn mod_kind(self) -> Option<ModKind> {
        match self {
            Self::NoBiasHere => Some(ModKind::NoBias),
            Self::BlockNormHere => Some(ModKind::BlockNorm),
            Self::HardSwishHere => Some(ModKind::HardSwish),
            _ => None,
        }
    }

    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let said = |problem: bool, text: &str| problem.then(|| text.to_owned());
        let view = scope.view;
        match self {
            Self::CopySite
            | Self::CopyNames
            | Self::NoBiasHere
            | Self::BlockNormHere
            | Self::HardSwishHere
            | Self::ExtendDown
            | Self::ExtendUp => no_site(scope),
            Self::OverrideHere => {
                no_site(scope).or_else(|| said(scope.derived.grid.columns.is_empty(), "there are no rows yet"))
            }
            Self::ClearOverridesHere => {
                no_site(scope).or_else(|| said(overridden(scope).is_empty(), "nothing is set by hand there"))
            }
            Self::ClearFilter => said(view.filter.is_empty(), "nothing is filtered"),
            Self::ToggleFolder => no_site(scope).or_else(|| grouped(view)),
            Self::CloseFolders => no_trace(scope).or_else(|| grouped(view)),
            Self::OpenFolders => {
                no_trace(scope).or_else(|| grouped(view)).or_else(|| said(!view.sites.has_closed(), "all are open"))
            }
            _ => no_trace(scope),
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        doing.view.refresh_lines(doing.session, doing.derived);
        if let Some(sort) = self.sort() {
            doing.view.sites.order.sort = sort;
            return None;
        }
        if let Some(kind) = self.mod_kind() {
            return Some(toggle_mod(doing, kind));
        }
        match self {
            Self::OverrideHere => doing.view.sites.bulk = bulk_form(doing),
            Self::ClearOverridesHere => {
                let scope = doing.scope();
                return Some(Command::ClearOverrides { at: overridden(scope) });
            }
            Self::CopySite | Self::CopyNames => copy(self, doing),
            Self::NextColumn => step_column(doing, 1),
            Self::PreviousColumn => step_column(doing, -1),
            Self::ExtendDown => extend(doing, 1),
            Self::ExtendUp => extend(doing, -1),
            Self::SelectAll => select_all(doing),
            Self::ToggleFolder => toggle_folder(doing),
            _ => self.move_or_arrange(doing),
        }
        None
    }

    fn move_or_arrange(self, doing: &mut Doing<'_>) {
        let view = &mut *doing.view;
        let page = view.sites.page.max(2) as isize - 1;
        let all = view.sites.lines().all.len() as isize;
        let moves = [Self::NextSite, Self::PreviousSite, Self::PageDown, Self::PageUp, Self::FirstSite, Self::LastSite];
        if moves.contains(&self) {
            view.selection.clear();
            view.sites.anchor = None;
        }
        match self {
            Self::NextSite => view.step_site(doing.session, 1),
            Self::PreviousSite => view.step_site(doing.session, -1),
            Self::PageDown => view.step_site(doing.session, page),
            Self::PageUp => view.step_site(doing.session, -page),
            Self::FirstSite => view.step_site(doing.session, -all),
            Self::LastSite => view.step_site(doing.session, all),
            Self::Filter => {
                view.layout.show(crate::layout::Pane::Sites);
                view.focus_filter = true;
            }
            Self::ClearFilter => view.filter.clear(),
            Self::ReverseOrder => view.sites.order.reversed ^= true,
            Self::GroupByModule => view.sites.order.grouped ^= true,
            Self::CloseFolders => view.sites.close_all(true),
            Self::OpenFolders => view.sites.close_all(false),
            _ => {}
        }
    }
}

fn grouped(view: &ViewState) -> Option<String> {
    (!view.sites.order.grouped).then(|| "sites stand in one list".to_owned())
}

/// GEMMs of the selected sites that a person chose.
fn overridden(scope: Scope<'_>) -> Vec<(SiteId, Gemm)> {
    let known = &scope.session.document.overrides;
    let sites = scope.view.selected_sites();
    let all = sites.into_iter().flat_map(|site| Gemm::ALL.map(|gemm| (site.clone(), gemm)));
    all.filter(|key| known.contains_key(key)).collect()
}

/// On at all of them, or off when it is on at all.
fn toggle_mod(doing: &Doing<'_>, kind: ModKind) -> Command {
    let sites = doing.view.selected_sites();
    let on = !sites.iter().all(|site| doing.session.document.mods.of(site).contains(kind));
    Command::SetMod { kind, on, sites }
}

fn bulk_form(doing: &Doing<'_>) -> Option<BulkForm> {
    let view = &*doing.view;
    let selected = view.column.as_ref().map(|column| column.kernel.clone());
    let kernel = selected.or_else(|| doing.derived.grid.columns.first().map(|column| column.kernel.clone()))?;
    Some(BulkForm::new(&view.selected_sites(), kernel, view.gemm))
}

/// One a line, as the list stands.
fn copy(action: SelectAction, doing: &Doing<'_>) {
    let view = &*doing.view;
    let text = if action == SelectAction::CopySite {
        view.site.as_ref().map(|site| site.as_str().to_owned())
    } else {
        let index = doing.session.index();
        let place = |site: &SiteId| index.at(site).and_then(|at| view.sites.lines().line_of(at));
        let mut sites = view.selected_sites();
        sites.sort_by_key(|site| place(site).unwrap_or(usize::MAX));
        Some(sites.iter().map(SiteId::as_str).collect::<Vec<_>>().join("\n"))
    };
    if let Some(text) = text {
        doing.ctx.copy_text(text);
    }
}

/// Along the kernels, or along the steps of a series.
fn step_column(doing: &mut Doing<'_>, step: isize) {
    if !doing.view.heatmap.step_along(doing.session, step) {
        crate::state::step_column(doing.view, doing.derived, doing.session, step);
    }
}

/// Of the brushed area while the keys are its own, else of the selected sites.
fn extend(doing: &mut Doing<'_>, step: isize) {
    if doing.view.brush.takes_keys(&doing.view.layout)
        && brush_by_key(doing.view, doing.derived, doing.session, Steps(0, step))
    {
        return;
    }
    let view = &mut *doing.view;
    let Some(from) = view.sites.anchor.clone().filter(|of| view.is_selected(of)).or_else(|| view.site.clone()) else {
        return;
    };
    view.step_site(doing.session, step);
    let index = doing.session.index();
    let lines = view.sites.lines();
    let line = |site: &SiteId| index.at(site).and_then(|at| lines.line_of(at));
    if let (Some(from_line), Some(to)) = (line(&from), view.site.as_ref().and_then(line)) {
        let all = lines.between(from_line, to).filter_map(|site| index.ids().get(site as usize).cloned());
        view.selection = all.collect();
        view.sites.anchor = Some(from);
    }
}

fn select_all(doing: &mut Doing<'_>) {
    let ids = doing.session.index().ids();
    let lines = doing.view.sites.lines();
    let all = lines.order.iter().filter_map(|site| ids.get(*site as usize).cloned());
    doing.view.selection = all.collect();
    let keeps = doing.view.site.as_ref().is_some_and(|site| doing.view.selection.contains(site));
    let first = lines.order.first().and_then(|site| ids.get(*site as usize));
    if let (false, Some(first)) = (keeps, first) {
        doing.view.select(first.clone(), None);
    }
}

/// The folder that the site's line stands in, or the closed one that stands for it.
fn toggle_folder(doing: &mut Doing<'_>) {
    let lines = doing.view.sites.lines();
    let site = doing.view.site.as_ref().and_then(|site| doing.session.index().at(site));
    let folder = site.and_then(|site| lines.folder_of(site));
    if let Some(folder) = folder {
        doing.view.sites.toggle(folder);
    }
}
