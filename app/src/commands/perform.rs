//! Takes an action, changes the view state or gives the session's command for it.

use loka_core::{
    dispatch::Policy,
    model::{Gemm, Metric},
    session::{Command, ENGINES, Session, view::Column},
};

use super::Action;
use crate::views::{Dialog, Tab, ViewState};

/// Whether an action would do something now.
pub fn is_enabled(action: Action, session: &Session, view: &ViewState) -> bool {
    let has_trace = session.trace.is_some();
    match action {
        Action::Undo => session.can_undo(),
        Action::Redo => session.can_redo(),
        Action::SaveResults | Action::ExportPlan => session.rows().next().is_some(),
        Action::RunOrCancel
        | Action::ToggleMod(_)
        | Action::NextSite
        | Action::PreviousSite
        | Action::NextColumn
        | Action::PreviousColumn
        | Action::Filter => has_trace,
        Action::UseEngine(at) => engine_problem(session, at).is_none(),
        Action::MeasureSpeeds => session.measure_problem().is_none(),
        Action::Override => view.site.is_some() && view.column.is_some(),
        Action::ClearOverride => override_of(session, view).is_some(),
        Action::CopySite => view.site.is_some(),
        _ => true,
    }
}

/// Why an action would do nothing now, where there is more to say than that.
pub fn why_disabled(action: Action, session: &Session) -> Option<String> {
    match action {
        Action::UseEngine(at) => engine_problem(session, at),
        Action::MeasureSpeeds => session.measure_problem(),
        _ => None,
    }
}

/// Rows of an engine that is gone can still be looked at.
fn engine_problem(session: &Session, at: usize) -> Option<String> {
    let name = ENGINES.get(at)?;
    session.engines.problem(name).filter(|_| session.num_rows_of(name) == 0)
}

fn override_of(session: &Session, view: &ViewState) -> Option<Command> {
    let (site, gemm) = (view.site.clone()?, view.column.as_ref()?.gemm);
    let known = session.document.overrides.contains_key(&(site.clone(), gemm));
    known.then_some(Command::ClearOverride { site, gemm })
}

/// Carries the view's part out; gives the session's part. `columns`: those of the heatmap.
pub fn perform(
    action: Action,
    session: &Session,
    view: &mut ViewState,
    columns: &[Column],
    ctx: &egui::Context,
) -> Option<Command> {
    match action {
        Action::Open => view.dialog = Some(Dialog::open(session)),
        Action::SaveResults => view.dialog = Some(Dialog::save_results(session)),
        Action::ExportPlan => view.dialog = Some(Dialog::export_plan(session)),
        Action::Undo => return Some(Command::Undo),
        Action::Redo => return Some(Command::Redo),
        Action::ShowEngines => view.engines = !view.engines,
        Action::UseEngine(at) => {
            let name = ENGINES.get(at).map(|name| (*name).to_owned());
            return name.map(|name| Command::SelectEngine { name });
        }
        Action::MeasureSpeeds => return Some(Command::MeasureSpeeds),
        Action::RunOrCancel if session.is_running() || session.is_measuring() => return Some(Command::CancelProbe),
        Action::RunOrCancel => return Some(Command::StartProbe),
        Action::ToggleMod(kind) => return Some(Command::ToggleMod { kind }),
        Action::UsePolicy(at) => {
            let policy = Policy::BUILTIN.get(at).and_then(|name| Policy::builtin(name).ok());
            return policy.map(|policy| Command::SetPolicy { policy });
        }
        Action::Override => {
            view.overriding = view.column.clone();
            view.focus_reason = true;
        }
        Action::ClearOverride => return override_of(session, view),
        Action::NextSite => view.step_site(session, 1),
        Action::PreviousSite => view.step_site(session, -1),
        Action::NextColumn => view.step_column(columns, 1),
        Action::PreviousColumn => view.step_column(columns, -1),
        Action::CycleGemm => view.gemm = next_gemm(view.gemm),
        Action::CycleMetric => view.metric = next_metric(view.metric),
        Action::ShowMetric(metric) => view.metric = metric,
        Action::ToggleRelative => view.relative = !view.relative,
        Action::Filter => view.focus_filter = true,
        Action::CopySite => {
            if let Some(site) = &view.site {
                ctx.copy_text(site.as_str().to_owned());
            }
        }
        Action::ShowHeatmap => view.tab = Tab::Heatmap,
        Action::ShowQuadrant => view.tab = Tab::Quadrant,
        Action::SwitchTheme => view.dark = !view.dark,
        Action::Palette => view.open_palette(),
        Action::Sheet => view.sheet = !view.sheet,
        Action::Back => view.back(ctx),
    }
    None
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
