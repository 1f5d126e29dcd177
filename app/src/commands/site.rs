//! The selected site: which GEMM is inspected, how its kernels are sorted, more draws.

use egui::Key;
use loka_core::{
    model::Gemm,
    session::Command,
    views::{Column, KernelColumn, SiteView},
};

use super::{
    Doing, Scope, no_site,
    table::{NO_KEY, actions, key},
};

actions! {
    /// The selected site.
    SiteAction {
        NextGemm: "Next GEMM", "Inspect the selected site's next GEMM, with the kernel that was chosen for it", key(Key::CloseBracket);
        PreviousGemm: "Previous GEMM", "Inspect the selected site's previous GEMM", key(Key::OpenBracket);
        SortKernels: "Sort kernels by the next column", "Sort the selected site's kernels by name, error, draws, latency, then speed-up", NO_KEY;
        DrawMore: "Draw more here", "Probe the selected site again with more draws, so that uncertain verdicts may stand", key(Key::D);
    }
}

impl SiteAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let session = scope.session;
        let site = scope.view.site.as_ref();
        match self {
            Self::DrawMore => no_site(scope).or_else(|| {
                let said = |problem: bool, text: &str| problem.then(|| text.to_owned());
                said(session.is_running() || session.is_measuring(), "something runs: let it end, or cancel it")
                    .or_else(|| said(site.and_then(|id| session.site_rows(id)).is_none(), "this site has no rows yet"))
            }),
            _ => no_site(scope),
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        match self {
            Self::NextGemm => step(doing, 1),
            Self::PreviousGemm => step(doing, 2),
            Self::SortKernels => {
                let state = &mut doing.view.site_view;
                state.sort_by(next_column(state.sort));
            }
            Self::DrawMore => return draw_more(doing),
        }
        None
    }
}

fn shown(doing: &Doing<'_>) -> Gemm {
    doing.view.column.as_ref().map_or(Gemm::Fprop, |column| column.gemm)
}

/// `by` of three further, round the end.
fn step(doing: &mut Doing<'_>, by: usize) {
    let Some(site) = doing.view.site.clone() else { return };
    let gemm = Gemm::ALL[(shown(doing) as usize + by) % 3];
    let chosen = doing.derived.plan.pick(&site, gemm).map(|choice| choice.kernel.clone());
    let kernel = chosen.unwrap_or_else(loka_core::model::baseline_kernel);
    doing.view.select(site, Some(Column { gemm, kernel }));
}

fn next_column(sort: KernelColumn) -> KernelColumn {
    match sort {
        KernelColumn::Kernel => KernelColumn::Error,
        KernelColumn::Error => KernelColumn::Draws,
        KernelColumn::Draws => KernelColumn::Latency,
        KernelColumn::Latency => KernelColumn::Speedup,
        KernelColumn::Speedup => KernelColumn::Kernel,
    }
}

fn draw_more(doing: &Doing<'_>) -> Option<Command> {
    let site = doing.view.site.clone()?;
    let view = SiteView::of(doing.derived.snapshot.as_ref()?, &doing.derived.plan, &site, doing.view.metric)?;
    let max_draws = view.gemms[shown(doing) as usize].draws_to_ask?;
    Some(Command::ProbeMore { site, max_draws })
}
