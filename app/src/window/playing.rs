//! Plays a script one step after another as a person would, each once what came before it is there and drawn.

use std::{sync::PoisonError, time::Duration};

use egui::ViewportCommand;
use loka_core::session::NoticeKind;

use crate::{
    commands::{Action, Scope},
    window::{LokaApp, script::Script, steps::Step},
};

/// Frames without anything under way before the next step: what a step begins may begin in the frame after it.
const STILL: u32 = 3;
/// The same while sites lack rows that nothing is probing: a probe that has not begun yet, or one that ended early.
const STILL_LACKING: u32 = 30;
/// Between two looks: nothing else may wake the window.
const LOOK_AGAIN: Duration = Duration::from_millis(60);

impl LokaApp {
    /// Once a frame, after the window took its input.
    pub(crate) fn play(&mut self, ctx: &egui::Context) {
        let Some(mut script) = self.script.take() else { return };
        match self.step(&mut script, ctx) {
            Ok(true) => {
                script.end.set(Ok(()));
                if script.shooting {
                    ctx.send_viewport_cmd(ViewportCommand::Close);
                }
            }
            Ok(false) => {
                ctx.request_repaint_after(LOOK_AGAIN);
                self.script = Some(script);
            }
            Err(why) if script.picture.is_some() || script.shooting => {
                script.end.set(Err(why));
                ctx.send_viewport_cmd(ViewportCommand::Close);
            }
            // The window stays, with the reason in it.
            Err(why) => {
                script.end.set(Ok(()));
                self.notify(NoticeKind::Error, why);
            }
        }
    }

    /// True at its end.
    fn step(&mut self, script: &mut Script, ctx: &egui::Context) -> Result<bool, String> {
        if script.shooting {
            let shot = script.shot.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some((image, keep)) = shot.and_then(|image| Some((image, script.picture.take()?))) else {
                return Ok(false);
            };
            return keep(&image).map(|()| true);
        }
        if script.opens && self.session().trace.is_none() {
            let failed = self.session().notices.iter().find(|notice| notice.kind == NoticeKind::Error);
            return failed.map_or(Ok(false), |notice| Err(notice.text.clone()));
        }
        // Which engines there are takes seconds to find out.
        let is_early =
            self.session().engines.looking && matches!(script.steps.front(), Some(Step::Act(Action::UseEngine(_))));
        script.still = if is_early || self.is_under_way() { 0 } else { script.still + 1 };
        let lacks = self.session().trace.is_some() && (self.session().lacks_rows() || !self.session().has_rows());
        if script.still < if lacks { STILL_LACKING } else { STILL } {
            return Ok(false);
        }
        script.still = 0;
        let notices = &self.session().notices;
        if let Some(before) = script.told_before.take()
            && let Some(refused) = notices.iter().find(|of| of.id > before && of.kind == NoticeKind::Error)
        {
            return Err(refused.text.clone());
        }
        let newest = notices.iter().map(|notice| notice.id).max().unwrap_or(0);
        match script.steps.pop_front() {
            Some(Step::At(address)) => return self.go_to(address).map_or(Ok(false), Err),
            Some(Step::Act(action)) => {
                let me = self.link.status().me;
                let scope = Scope { session: self.session(), me: &me, view: &self.view, derived: &self.derived };
                if let Some(problem) = action.problem(scope) {
                    return Err(format!("{} does nothing: {problem}", action.id()));
                }
                self.act(action);
                return Ok(false);
            }
            Some(Step::Do(command)) => {
                script.told_before = Some(newest);
                self.ask(*command);
                return Ok(false);
            }
            None => {}
        }
        if script.picture.is_none() {
            return Ok(true);
        }
        let (shot, ctx) = (script.shot.clone(), ctx.clone());
        let wake = ctx.clone();
        ctx.request_screenshot(move |image| {
            *shot.lock().unwrap_or_else(PoisonError::into_inner) = Some(image);
            wake.request_repaint();
        });
        script.shooting = true;
        Ok(false)
    }

    fn is_under_way(&self) -> bool {
        let session = self.session();
        session.is_running()
            || session.is_measuring()
            || self.derived.is_behind()
            || self.link.status().busy.is_some()
            || self.has_requests()
    }
}
