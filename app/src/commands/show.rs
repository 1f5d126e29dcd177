//! What all views show: the metric, the GEMM, the reference.

use egui::Key;
use loka_core::{
    model::{Gemm, Metric},
    session::Command,
};

use super::{
    Doing, Scope,
    table::{actions, key},
};

actions! {
    /// What the views show.
    ShowAction {
        CycleGemm: "Cycle GEMM", "Show all GEMMs, then fprop, dgrad or wgrad alone", key(Key::G);
        CycleMetric: "Cycle metric", "Colour the heatmap by the next metric", key(Key::M);
        ToggleRelative: "Relative to BF16", "Divide every value by BF16's at the same GEMM", key(Key::R);
    }
}

impl ShowAction {
    pub(super) fn problem(self, _: Scope<'_>) -> Option<String> {
        None
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        let view = &mut *doing.view;
        match self {
            Self::CycleGemm => view.gemm = next_gemm(view.gemm),
            Self::CycleMetric => view.choose_metric(next_metric(view.metric)),
            Self::ToggleRelative => view.relative = !view.relative,
        }
        None
    }
}

fn next_gemm(gemm: Option<Gemm>) -> Option<Gemm> {
    match gemm {
        None => Some(Gemm::Fprop),
        Some(Gemm::Fprop) => Some(Gemm::Dgrad),
        Some(Gemm::Dgrad) => Some(Gemm::Wgrad),
        Some(Gemm::Wgrad) => None,
    }
}

fn next_metric(metric: Metric) -> Metric {
    let at = Metric::ALL.iter().position(|of| *of == metric).unwrap_or(0);
    Metric::ALL[(at + 1) % Metric::ALL.len()]
}
