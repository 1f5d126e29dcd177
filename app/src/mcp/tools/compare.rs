//! `compare`: what differs between two plans, and why.

use std::path::Path;

use loka_core::{
    format::number,
    model::FileMagic,
    plan::{Plan, PlanDiff, diff},
    session::Session,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolAnswer, and_more, limit, limit_schema, object, what_if::change_words};
use crate::{
    files,
    mcp::{
        arguments, figures,
        host::{Host, NoResult},
        message::Request,
    },
};

const SHOWN: usize = 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedCompare {
    before: String,
    after: Option<String>,
    limit: Option<usize>,
}

pub fn schema() -> Value {
    let which = "the path of a plan file on this machine, or now (the plan as it stands), submitted (the version up for \
                 approval), baseline (what people compare with in their windows) or policy (what the policy alone would \
                 choose, without overrides)";
    object(
        json!({
            "before": {"type": "string", "description": format!("What to compare with: {which}")},
            "after": {"type": "string", "default": "now", "description": format!("What is compared: {which}")},
            "limit": limit_schema(SHOWN),
        }),
        &["before"],
    )
}

pub fn perform(host: &mut Host, _: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: AskedCompare = arguments::read(arguments)?;
    let (before, after) = (asked.before.as_str(), asked.after.as_deref().unwrap_or("now"));
    let session = host.seat.session();
    let changed = diff(&plan_of(session, before)?, &plan_of(session, after)?);
    let shown = limit(asked.limit, SHOWN);
    let data = json!({
        "before": changed.before, "after": changed.after, "whole": changed.whole, "mods": changed.mods,
        "added": changed.added, "removed": changed.removed, "count": changed.changes.len(),
        "changes": changed.changes.iter().take(shown).collect::<Vec<_>>(), "unchanged": changed.unchanged,
    });
    let mut lines = vec![format!("From {before} to {after}:")];
    lines.extend(words(&changed, shown));
    Ok(ToolAnswer::new(lines, data))
}

fn words(changed: &PlanDiff, shown: usize) -> Vec<String> {
    let PlanDiff { whole, mods, added, removed, changes, unchanged, before, after, .. } = changed;
    let mut lines: Vec<String> = whole.iter().map(|sentence| format!("- {sentence}")).collect();
    if changed.is_empty() {
        lines.push("The plans decide the same.".to_owned());
    }
    lines.extend(mods.iter().take(shown).map(|(site, (was, is))| format!("- {site}: mods '{was}' became '{is}'")));
    for (sites, word) in [(added, "only in the second"), (removed, "only in the first")] {
        if !sites.is_empty() {
            lines.push(format!("- {} {word}", number::counted(sites.len(), "site")));
        }
    }
    lines.extend(changes.iter().take(shown).map(change_words));
    and_more(&mut lines, shown, changes.len());
    let speedup = |of: Option<f64>| of.map_or_else(|| "unknown".to_owned(), number::times);
    let cost = |of: Option<f64>| of.map_or_else(|| "unknown".to_owned(), number::plain);
    let less = before.planned_us - after.planned_us;
    lines.push(format!(
        "{} changed, {unchanged} stay. Speed-up {} before, {} after; as planned {} {} a step; loss cost {} before, {} after.",
        number::counted(changes.len(), "choice"),
        speedup(before.speedup),
        speedup(after.speedup),
        figures::micros(less.abs()),
        if less >= 0.0 { "less" } else { "more" },
        cost(before.loss_cost),
        cost(after.loss_cost),
    ));
    lines
}

fn plan_of(session: &Session, which: &str) -> Result<Plan, NoResult> {
    match which {
        "now" => session.plan_now().map_err(|error| error.to_string().into()),
        "policy" => session.plan_of_policy().map_err(|error| error.to_string().into()),
        "submitted" => {
            let release = session.reviewing.release.as_ref().ok_or("Nothing was submitted for approval")?;
            Ok(Plan::clone(&release.plan))
        }
        "baseline" => {
            let (_, plan) = session.other_plan.as_ref().ok_or("Nothing is compared with in the session")?;
            Ok(plan.document().clone())
        }
        path => {
            let read = files::read_document(Path::new(path), "a plan", FileMagic::Plan);
            let text = read.map_err(|error| format!("{error:#}"))?;
            Plan::from_json(&text).map_err(|error| format!("{error}: {path}").into())
        }
    }
}
