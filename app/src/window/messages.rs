//! What comes from the link: polls what was applied to the session, does what the window does along with it.

use loka_core::{
    runtime::Applied,
    session::{Command, FileKind},
};

use crate::{link::ConnectionState, platform::FrameBudget, window::LokaApp};

/// Messages may take this many milliseconds of a frame; the rest waits for the next.
const BUDGET_MS: f64 = 3.0;

impl LokaApp {
    /// What the link has to say, for as long as a frame may take.
    pub(crate) fn take_events(&mut self, ctx: &egui::Context) {
        let budget = FrameBudget::of_ms(BUDGET_MS);
        while let Some(applied) = self.link.poll() {
            self.follow_up(applied);
            if budget.is_spent() {
                ctx.request_repaint();
                break;
            }
        }
        let status = self.link.status();
        match status.connection {
            ConnectionState::Here => {}
            // Whether the server is still there: it says something more often.
            ConnectionState::Joined { .. } => ctx.request_repaint_after(std::time::Duration::from_secs(5)),
            // The next try, and how long the server has been away.
            ConnectionState::Joining { .. } | ConnectionState::Away { .. } => {
                ctx.request_repaint_after(std::time::Duration::from_millis(250));
            }
        }
        if self.session().is_running() || self.session().is_measuring() || status.busy.is_some() {
            // Progress moves even while no rows come.
            ctx.request_repaint_after(std::time::Duration::from_millis(200));
        }
    }

    fn follow_up(&mut self, applied: Applied) {
        match applied {
            Applied::Opened { path, kind, refused } => {
                if !refused {
                    self.housekeeping.remember_opened(&mut self.view, path, kind);
                }
                if kind == FileKind::Trace {
                    self.view.forget_selection();
                }
            }
            Applied::Signed(approval) => self.command(Command::Approve { approval }),
            Applied::Replaced { same_trace: false } => self.view.forget_selection(),
            // What is selected stays where it is the same trace.
            Applied::Replaced { same_trace: true }
            | Applied::Input
            | Applied::Refused(_)
            | Applied::OpenFailed { .. } => {}
        }
    }
}
