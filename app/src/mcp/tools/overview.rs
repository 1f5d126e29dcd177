//! `overview`: what is open, the plan in words, and what may be done.

use std::time::Duration;

use loka_core::{
    format::number,
    model::{Gemm, Metric},
    session::{NoticeKind, Session, policy_said},
    views::Views,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolAnswer, object};
use crate::mcp::{
    arguments, figures,
    host::{Access, Host, NoResult},
    message::Request,
};

/// Seconds that a question may wait for a probe.
const MOST_SECONDS: u64 = 300;
/// Problems that are told, the latest.
const PROBLEMS: usize = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedOverview {
    #[serde(default)]
    wait_seconds: u64,
}

pub fn schema() -> Value {
    let wait = json!({
        "type": "integer", "minimum": 0, "maximum": MOST_SECONDS, "default": 0,
        "description": "Waits so long for a probe that runs to end, then tells how it stands",
    });
    object(json!({"wait_seconds": wait}), &[])
}

pub fn perform(host: &mut Host, request: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: AskedOverview = arguments::read(arguments)?;
    if asked.wait_seconds > 0 {
        let seconds = Duration::from_secs(asked.wait_seconds.min(MOST_SECONDS));
        host.wait(request, seconds, |seat| !seat.session().is_running() && !seat.session().is_measuring())?;
    }
    let views = host.views()?;
    let session = host.seat.session();
    let problems = problems(session);
    Ok(ToolAnswer::new(lines(host, &views, &problems), data(host, &views, &problems)))
}

fn lines(host: &Host, views: &Views, problems: &[String]) -> Vec<String> {
    let session = host.seat.session();
    let mut lines: Vec<String> = opened(session).into_iter().collect();
    lines.push(state(session));
    lines.push(format!("Policy {}; runtime {}.", policy_said(&session.document.policy), session.document.runtime));
    lines.extend(decisions(session));
    lines.push(String::new());
    let answer = views.answer.text();
    let no_plan = || views.plan.problem.clone().unwrap_or_else(|| "There is no plan before the first rows.".to_owned());
    lines.push(if answer.is_empty() { no_plan() } else { answer });
    lines.extend(totals(views, session));
    for group in &views.table.warnings {
        let about = if group.about.is_empty() { String::new() } else { format!(": {}", group.about) };
        lines.push(format!("Warning: {}{about}.", group.title));
    }
    lines.extend(problems.iter().map(|problem| format!("ToolAnswer by the session: {problem}")));
    lines.push(String::new());
    lines.push(access(host));
    lines
}

fn data(host: &Host, views: &Views, problems: &[String]) -> Value {
    let session = host.seat.session();
    let person = |person: &loka_core::session::shared::Person| json!({"name": person.name, "role": person.role, "site": person.at.site, "view": person.at.view});
    let people: Vec<Value> = host.seat.people().iter().map(person).collect();
    let clauses: Vec<Value> = views
        .answer
        .clauses
        .iter()
        .map(|clause| json!({"because": clause.because.words(), "text": clause.text, "gemms": clause.gemms.len()}))
        .collect();
    let warnings: Vec<Value> = views
        .table
        .warnings
        .iter()
        .map(|group| json!({"title": group.title, "about": group.about, "gemms": group.at.len()}))
        .collect();
    json!({
        "trace": session.trace.as_ref().map(|trace| json!({
            "path": trace.path, "model": trace.manifest().model.name, "step": trace.manifest().run.step,
            "loss": {"name": trace.manifest().loss.name, "value": trace.manifest().loss.value},
            "sites": trace.manifest().sites.len(), "gemms": num_gemms(session),
        })),
        "rows": {
            "count": session.rows().count(), "engine": session.shown_origin().engine,
            "device": session.shown_origin().device, "origin": origin(session), "complete": !session.lacks_rows(),
        },
        "probing": session.run.as_ref().filter(|run| run.running).map(|run| json!({
            "done": run.done, "seconds_left": run.seconds_left(), "paused": run.paused,
        })),
        "policy": session.document.policy, "runtime": session.document.runtime,
        "overrides": session.document.overrides.len(), "mods": session.document.mods, "answer": clauses,
        "totals": super::plan::totals_data(views), "warnings": warnings, "problems": problems,
        "findings": views.findings.len(), "session": if host.seat.is_joined() { "served" } else { "own" },
        "me": host.seat.me().name, "role": host.seat.me().role, "people": people,
        "may_change": host.access == Access::Changes, "not_kept": session.not_kept,
    })
}

fn problems(session: &Session) -> Vec<String> {
    let told = session.notices.iter().filter(|notice| notice.kind != NoticeKind::Info);
    let mut told: Vec<String> = told.map(|notice| notice.text.clone()).collect();
    told.drain(..told.len().saturating_sub(PROBLEMS));
    told
}

fn num_gemms(session: &Session) -> usize {
    session.sites().iter().map(|site| Gemm::ALL.into_iter().filter(|gemm| site.runs(*gemm)).count()).sum()
}

fn opened(session: &Session) -> Option<String> {
    let trace = session.trace.as_ref()?;
    let manifest = trace.manifest();
    let (sites, gemms) = (number::counted(manifest.sites.len(), "site"), number::counted(num_gemms(session), "GEMM"));
    let loss = format!("{} {}", manifest.loss.name, number::plain(manifest.loss.value));
    let (name, step) = (&manifest.model.name, manifest.run.step);
    Some(format!("{name} at step {step}: {sites}, {gemms} that run, {loss} ({}).", trace.path))
}

fn origin(session: &Session) -> String {
    let of = session.shown_origin();
    if session.has_rows() { figures::error_origin(&of.engine, &of.device) } else { "none".to_owned() }
}

fn state(session: &Session) -> String {
    let rows = format!("{} rows, errors {}", number::count(session.rows().count() as u64), origin(session));
    match session.run.as_ref().filter(|run| run.running) {
        Some(run) => {
            let left = run.seconds_left().map(|left| format!(", {} left", number::seconds(left))).unwrap_or_default();
            let word = if run.paused { "paused" } else { "probing" };
            format!("{rows}; {word}, {} done{left}: figures may still move.", number::percent(run.done))
        }
        None if session.is_measuring() => format!("{rows}; speeds are being measured: figures may still move."),
        None if !session.has_rows() => "There are no rows yet, and nothing is being probed.".to_owned(),
        None if session.lacks_rows() => format!("{rows}; some sites have no rows."),
        None => format!("{rows}; every site has its rows."),
    }
}

fn decisions(session: &Session) -> Option<String> {
    let document = &session.document;
    let mut parts = Vec::new();
    if !document.overrides.is_empty() {
        parts.push(number::counted(document.overrides.len(), "override"));
    }
    if !document.mods.is_empty() {
        parts.push("mods are on, and the plan is for a model that must be trained with them".to_owned());
    }
    if let Some((path, plan)) = &session.other_plan {
        parts.push(format!("compared with {} ({path})", plan.name()));
    }
    (!parts.is_empty()).then(|| format!("By people: {}.", parts.join("; ")))
}

/// What the plan gains and costs.
pub(super) fn totals(views: &Views, session: &Session) -> Vec<String> {
    let Some(decided) = &views.plan.decided else { return Vec::new() };
    let totals = &decided.totals;
    let speedup = totals.speedup.map_or_else(|| "speed-up unknown".to_owned(), number::times);
    let mut lines = vec![format!(
        "Totals: {} a step in BF16, {} as planned, {speedup}; {} of {} GEMMs in FP8; times: {}; {} uncertain.",
        figures::micros(totals.baseline_us),
        figures::micros(totals.planned_us),
        views.table.num_low,
        totals.num_gemms,
        figures::sources_words(views),
        views.table.num_uncertain,
    )];
    if totals.measured_sites + totals.modelled_sites > 0 {
        let (whole, parts) = (totals.measured_sites, totals.modelled_sites);
        lines.push(format!("Sites timed whole: {whole}; added up from single GEMMs: {parts}."));
    }
    if let Some(cost) = totals.loss_cost {
        let loss = session.trace.as_ref().map_or(0.0, |trace| trace.manifest().loss.value);
        let share = if loss > 0.0 { format!(", {} of the loss", number::percent(cost / loss)) } else { String::new() };
        let most = totals.loss_cost_hi.map(|hi| format!(", at most {}", number::plain(hi))).unwrap_or_default();
        let (label, cost, origin) = (Metric::LossCost.label(), number::plain(cost), origin(session));
        lines.push(format!("{label} {cost}{share}{most} (forward GEMMs, beyond BF16's; {origin})."));
    }
    lines
}

fn access(host: &Host) -> String {
    let me = host.seat.me();
    let whose = if host.seat.is_joined() {
        let people: Vec<String> = host.seat.people().into_iter().map(|person| person.name).collect();
        let with =
            if people.is_empty() { "nobody else is there".to_owned() } else { format!("with {}", people.join(", ")) };
        format!("This is a served session ({with}); you are {}, {}", me.name, me.role.one())
    } else {
        "This session is of this server alone: no window shows it".to_owned()
    };
    match host.access {
        Access::ReadOnly => format!("{whose}. Read-only: changes are allowed by `loka mcp --allow-changes`."),
        Access::Changes => {
            let kept = host.seat.session().not_kept.as_ref().map(|why| format!(" Changes are not kept: {why}."));
            format!("{whose}. Changes are allowed.{}", kept.unwrap_or_default())
        }
    }
}
