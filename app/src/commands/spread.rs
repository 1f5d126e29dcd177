//! Distributions and drift.

use loka_core::session::Command;

use super::{Doing, Scope, table::actions};

actions! {
    /// Distributions and drift.
    SpreadAction {}
}

impl SpreadAction {
    pub(super) fn problem(self, _: Scope<'_>) -> Option<String> {
        match self {}
    }

    pub(super) fn perform(self, _: &mut Doing<'_>) -> Option<Command> {
        match self {}
    }
}
