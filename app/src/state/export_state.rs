//! What an export would write, known before it is written: whose approval the plan has, what the form cannot say of it, and
//! which files there will be. Made beside the frames while the dialog is open.

use std::sync::{Arc, Mutex, PoisonError};

use loka_core::{
    export::{Loss, export, modules_of, status_of},
    plan::Plan,
    session::Session,
};

use super::ExportForm;
use crate::platform::NO_FRAMEWORK_FILES;

/// Rows that come while the dialog is open change the plan many times a second; it is made anew so often, in seconds.
const ANEW: f64 = 1.0;

/// What a preview is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviewOf {
    form: ExportForm,
    revision: u64,
    review: u64,
}

impl PreviewOf {
    fn now(session: &Session, form: ExportForm) -> Self {
        Self { form, revision: session.revision(), review: session.reviewing.revision }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportPreview {
    /// What the file says of the plan's approval; empty where nobody has to sign.
    pub status: String,
    /// How much runs in FP8 by it.
    pub summary: Option<String>,
    /// What the form cannot say, a line each.
    pub losses: Vec<String>,
    /// Worth telling, nothing to accept.
    pub notes: Vec<String>,
    /// What files have behind the name that is asked for: the first has nothing.
    pub suffixes: Vec<String>,
    /// Why nothing can be written.
    pub refused: Vec<String>,
}

impl ExportPreview {
    pub fn of(plan: &Plan, form: ExportForm) -> Self {
        let status = status_of(plan);
        let ExportForm::Framework(target) = form else {
            return Self { status, suffixes: vec![String::new()], ..Self::default() };
        };
        if let Some(why) = NO_FRAMEWORK_FILES {
            return Self { status, refused: vec![why.to_owned()], ..Self::default() };
        }
        match export(plan, &modules_of(plan), target, &status) {
            Ok(export) => Self {
                status,
                summary: Some(export.summary(target)),
                losses: export.losses.iter().map(Loss::to_string).collect(),
                notes: export.notes,
                suffixes: export.files.into_iter().map(|file| file.suffix).collect(),
                refused: Vec::new(),
            },
            Err(refusal) => Self { status, refused: refusal.lines(), ..Self::default() },
        }
    }

    fn refused(line: String) -> Self {
        Self { refused: vec![line], ..Self::default() }
    }
}

type Slot = Arc<Mutex<Option<(PreviewOf, ExportPreview)>>>;

/// Of the dialog that is open.
#[derive(Clone, Debug, Default)]
pub struct ExportState {
    asked: Option<PreviewOf>,
    asked_at: f64,
    /// Where the preview that is being made will lie.
    slot: Slot,
    known: Option<(PreviewOf, ExportPreview)>,
    /// The losses that a person accepted; others have to be accepted anew.
    accepted: Option<Vec<String>>,
}

/// A preview that is wanted: what to make it of, and where it goes.
pub struct PreviewTask {
    of: PreviewOf,
    plan: Plan,
    slot: Slot,
}

impl PreviewTask {
    /// Takes a while of a large plan.
    pub fn run(self) {
        let preview = ExportPreview::of(&self.plan, self.of.form);
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((self.of, preview));
    }
}

impl ExportState {
    /// Takes up what was made, and gives what is to be made for that form, if it is not known or under way.
    pub fn turn(&mut self, session: &Session, form: ExportForm, seconds: f64) -> Option<PreviewTask> {
        if let Some(made) = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.known = Some(made);
        }
        let of = PreviewOf::now(session, form);
        let other_form = self.asked.is_none_or(|asked| asked.form != form);
        let is_late = seconds - self.asked_at >= ANEW && !self.is_under_way();
        if self.asked == Some(of) || !(other_form || is_late) {
            return None;
        }
        (self.asked, self.asked_at) = (Some(of), seconds);
        match session.plan_for_file() {
            Ok(plan) => Some(PreviewTask { of, plan, slot: self.slot.clone() }),
            Err(error) => {
                self.known = Some((of, ExportPreview::refused(error.to_string())));
                None
            }
        }
    }

    pub fn is_used(&self) -> bool {
        self.asked.is_some()
    }

    /// What is shown is of an earlier moment.
    pub fn is_behind(&self, session: &Session, form: ExportForm) -> bool {
        self.known.as_ref().map(|(of, _)| *of) != Some(PreviewOf::now(session, form))
    }

    fn is_under_way(&self) -> bool {
        self.asked.is_some() && self.asked != self.known.as_ref().map(|(of, _)| *of)
    }

    /// `None`: it is being made.
    pub fn preview(&self, form: ExportForm) -> Option<&ExportPreview> {
        self.known.as_ref().filter(|(of, _)| of.form == form).map(|(_, preview)| preview)
    }

    pub fn is_accepted(&self, losses: &[String]) -> bool {
        losses.is_empty() || self.accepted.as_deref() == Some(losses)
    }

    pub fn accept(&mut self, losses: Option<&[String]>) {
        self.accepted = losses.map(<[String]>::to_vec);
    }

    /// Why a file of that form cannot be written yet; `None`: it can.
    pub fn problem(&self, form: ExportForm) -> Option<&'static str> {
        match (form, self.preview(form)) {
            // Their writers say in a line what is in the way.
            (ExportForm::Plan | ExportForm::Report, _) => None,
            (_, None) => Some("What the file would lose is being worked out"),
            (_, Some(preview)) if !preview.refused.is_empty() => Some("The plan cannot be written in this form"),
            (_, Some(preview)) if !self.is_accepted(&preview.losses) => Some("Accept what the file cannot say first"),
            _ => None,
        }
    }
}
