//! What the command line asks of a window (`loka open --do … --screenshot …`): takes steps and what to do with a picture, for
//! the window to play.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use egui::ColorImage;

use crate::window::steps::Step;

/// Puts a picture where it belongs.
pub type KeepPicture = Box<dyn FnOnce(&ColorImage) -> Result<(), String>>;

/// How a script ended, for whoever opened the window. `None`: it has not.
#[derive(Clone, Default)]
pub struct ScriptEnd(Arc<Mutex<Option<Result<(), String>>>>);

impl ScriptEnd {
    pub fn take(&self) -> Option<Result<(), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn set(&self, end: Result<(), String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }
}

#[derive(Default)]
pub struct Script {
    /// A file was opened with the window: nothing is done before it is there.
    pub opens: bool,
    pub(super) steps: VecDeque<Step>,
    /// The last step was a command: notices behind this one say what became of it.
    pub(super) told_before: Option<u64>,
    pub(super) picture: Option<KeepPicture>,
    pub end: ScriptEnd,
    pub(super) still: u32,
    pub(super) shot: Arc<Mutex<Option<Arc<ColorImage>>>>,
    pub(super) shooting: bool,
}

impl Script {
    /// `picture`: of the whole window, after which it closes.
    pub fn new(steps: Vec<Step>, picture: Option<KeepPicture>) -> Self {
        Self { steps: steps.into(), picture, ..Self::default() }
    }

    pub fn makes_a_picture(&self) -> bool {
        self.picture.is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.picture.is_none()
    }
}
