//! Changes of the document: undo, redo, overrides.

use egui::Key;
use loka_core::{
    model::{Gemm, SiteId},
    session::Command,
};

use super::{
    Doing, Scope, no_site,
    table::{NO_KEY, actions, ctrl, ctrl_shift, key, shift},
};

actions! {
    /// What changes the document.
    EditAction {
        Undo: "Undo", "Take back the last change of policy, mods or overrides", ctrl(Key::Z);
        Redo: "Redo", "Make the change again that was taken back", ctrl_shift(Key::Z);
        Override: "Override kernel", "Choose the selected kernel by hand, with a reason that the plan keeps", key(Key::O);
        ClearOverride: "Clear override", "Leave the selected GEMM to the policy again", shift(Key::O);
        ClearSelected: "Clear overrides of the selection", "Leave every GEMM of the selected sites, or of the one inspected, to the policy again", NO_KEY;
        ClearAll: "Clear all overrides", "Leave every GEMM to the policy again", NO_KEY;
    }
}

impl EditAction {
    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let said = |problem: bool, text: &str| problem.then(|| text.to_owned());
        match self {
            Self::Undo => said(!scope.session.can_undo(), "nothing to undo"),
            Self::Redo => said(!scope.session.can_redo(), "nothing to redo"),
            Self::Override => {
                no_site(scope).or_else(|| said(scope.view.column.is_none(), "select one of its kernels first"))
            }
            Self::ClearOverride => said(override_of(scope).is_none(), "nothing is set by hand here"),
            Self::ClearSelected => said(overrides_of_selection(scope).is_empty(), "nothing is set by hand there"),
            Self::ClearAll => said(scope.session.document.overrides.is_empty(), "nothing is set by hand"),
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        match self {
            Self::Undo => Some(Command::Undo),
            Self::Redo => Some(Command::Redo),
            Self::Override => {
                doing.view.overriding = doing.view.column.clone();
                doing.view.focus_reason = true;
                None
            }
            Self::ClearOverride => override_of(doing.scope()),
            Self::ClearSelected => {
                let scope = doing.scope();
                Some(Command::ClearOverrides { at: overrides_of_selection(scope) })
            }
            Self::ClearAll => {
                Some(Command::ClearOverrides { at: doing.session.document.overrides.keys().cloned().collect() })
            }
        }
    }
}

/// Of the selected sites, else of the one inspected.
fn overrides_of_selection(scope: Scope<'_>) -> Vec<(SiteId, Gemm)> {
    let view = scope.view;
    let chosen = |site: &SiteId| match view.selection.is_empty() {
        true => view.site.as_ref() == Some(site),
        false => view.selection.contains(site),
    };
    scope.session.document.overrides.keys().filter(|(site, _)| chosen(site)).cloned().collect()
}

fn override_of(scope: Scope<'_>) -> Option<Command> {
    let (site, gemm) = (scope.view.site.clone()?, scope.view.column.as_ref().map_or(Gemm::Fprop, |column| column.gemm));
    let known = scope.session.document.overrides.contains_key(&(site.clone(), gemm));
    known.then_some(Command::ClearOverride { site, gemm })
}
