//! What the command line asks of a window (`loka open --do … --screenshot …`): takes a link, actions and what to do with a
//! picture, plays them one after another as a person would, each once what came before it is there and drawn.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use egui::{ColorImage, ViewportCommand};
use loka_core::session::NoticeKind;

use crate::{
    commands::{Action, Scope},
    layout::Layout,
    window::{LokaApp, address::Address},
};

/// Frames without anything under way before the next step: what a step begins may begin in the frame after it.
const STILL: u32 = 3;
/// The same while sites lack rows that nothing is probing: a probe that has not begun yet, or one that ended early.
const STILL_LACKING: u32 = 30;
/// Between two looks: nothing else may wake the window.
const LOOK_AGAIN: Duration = Duration::from_millis(60);

/// Puts a picture where it belongs.
pub type KeepPicture = Box<dyn FnOnce(&ColorImage) -> Result<(), String>>;

/// How a script ended, for whoever opened the window. `None`: it has not.
#[derive(Clone, Default)]
pub struct ScriptEnd(Arc<Mutex<Option<Result<(), String>>>>);

impl ScriptEnd {
    pub fn take(&self) -> Option<Result<(), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, end: Result<(), String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }
}

#[derive(Default)]
pub struct Script {
    /// A file was opened with the window: nothing is done before it is there.
    pub opens: bool,
    at: Option<Address>,
    actions: VecDeque<Action>,
    picture: Option<KeepPicture>,
    pub end: ScriptEnd,
    still: u32,
    shot: Arc<Mutex<Option<Arc<ColorImage>>>>,
    shooting: bool,
}

impl Script {
    /// `picture`: of the whole window, after which it closes.
    pub fn new(at: Option<Address>, actions: Vec<Action>, picture: Option<KeepPicture>) -> Self {
        Self { at, actions: actions.into(), picture, ..Self::default() }
    }

    pub fn makes_a_picture(&self) -> bool {
        self.picture.is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.at.is_none() && self.actions.is_empty() && self.picture.is_none()
    }
}

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
        let is_early = self.session().engines.looking && matches!(script.actions.front(), Some(Action::UseEngine(_)));
        script.still = if is_early || self.is_under_way() { 0 } else { script.still + 1 };
        let lacks = self.session().trace.is_some() && (self.session().lacks_rows() || !self.session().has_rows());
        if script.still < if lacks { STILL_LACKING } else { STILL } {
            return Ok(false);
        }
        script.still = 0;
        if let Some(address) = script.at.take() {
            return address.apply(self).map_or(Ok(false), Err);
        }
        if let Some(action) = script.actions.pop_front() {
            let me = self.link.status().me;
            let scope = Scope { session: self.session(), me: &me, view: &self.view, derived: &self.derived };
            if let Some(problem) = action.problem(scope) {
                return Err(format!("{} does nothing: {problem}", action.id()));
            }
            self.act(action);
            return Ok(false);
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

/// For [`layout_from_json`].
pub fn layout_to_json(layout: &Layout) -> String {
    // Plain data, which cannot fail to be written.
    serde_json::to_string(layout).unwrap_or_default()
}

/// Takes the stored layout of a window, or settings that have one, as JSON. `path`: for what is wrong with it.
pub fn layout_from_json(path: &Path, text: &str) -> Result<Layout, String> {
    let wrong = |why: &str| format!("{}: {why}", path.display());
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
    let layout = value.get("layout").unwrap_or(&value).clone();
    let layout: Layout = serde_json::from_value(layout).map_err(|error| wrong(&format!("not a layout: {error}")))?;
    layout.checked().ok_or_else(|| wrong("not a layout: it lacks a view, or has one twice"))
}
