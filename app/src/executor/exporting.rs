//! Takes a plan that is to leave the session, gives the files that it becomes: dated, in a framework's form, or as a report.

use std::sync::{Arc, Mutex, PoisonError};

use loka_core::{
    export::{Target, export, modules_of, status_of},
    model::Results,
    plan::{Plan, standing},
    report::{Source, html},
    review::KeyRing,
};

use crate::{
    clock::{now, now_rfc3339},
    platform::NO_FRAMEWORK_FILES,
};

/// Dates plans. One that is what it was when it was dated last keeps its date and with it its digest, so that a framework's
/// file names the plan that was saved beside it.
#[derive(Clone, Default)]
pub(crate) struct PlanDates(Arc<Mutex<Option<(String, String)>>>);

impl PlanDates {
    /// Leaves a plan that has a date as it is: that is under what was signed.
    pub fn stamp(&self, plan: &mut Plan) {
        if !plan.created_at.is_empty() {
            return;
        }
        let undated = plan.content_digest();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let date = match &*last {
            Some((known, date)) if *known == undated => date.clone(),
            _ => last.insert((undated, now_rfc3339())).1.clone(),
        };
        plan.stamp(date);
    }
}

/// Files to write: what their names have behind the one that was asked for, and their bytes. That one is the last: it is
/// there when all of them are.
pub(crate) struct PlanFiles {
    pub files: Vec<(String, Vec<u8>)>,
    /// "Plan for torchao".
    pub what: String,
}

/// Of a plan with its date; or a line without a path.
pub(crate) fn for_framework(plan: &Plan, target: Target) -> Result<PlanFiles, String> {
    if let Some(why) = NO_FRAMEWORK_FILES {
        return Err(why.to_owned());
    }
    let export = export(plan, &modules_of(plan), target, &status_of(plan)).map_err(|refusal| refusal.to_string())?;
    let files: Vec<_> = export.files.into_iter().rev().map(|file| (file.suffix, file.text.into_bytes())).collect();
    let beside = match files.len() {
        0 | 1 => String::new(),
        2 => ", with 1 file beside it,".to_owned(),
        many => format!(", with {} files beside it,", many - 1),
    };
    Ok(PlanFiles { files, what: format!("Plan for {}{beside}", target.title()) })
}

/// `results`: left out of the report where the plan is of others, as a version that was signed before more rows came.
pub(crate) fn as_report(plan: &Plan, results: &Results, keys: Option<&KeyRing>) -> PlanFiles {
    let standing = standing(plan, keys, Some(now()));
    let (source, what) = match Source::new(plan, Some(results), standing.clone()) {
        Ok(source) => (source, "Report"),
        Err(_) => {
            let source = Source { plan, results: None, standing };
            (source, "Report by the plan's own numbers, which are of earlier rows,")
        }
    };
    PlanFiles { files: vec![(String::new(), html(&source).into_bytes())], what: what.to_owned() }
}
