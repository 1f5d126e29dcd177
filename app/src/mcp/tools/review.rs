//! `review`: what people decided, said and signed.

use loka_core::{
    dispatch::Override,
    model::{Gemm, SiteId},
    review::{Comment, Mark, ReviewState},
    session::{Release, Session},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolAnswer, and_more, limit, limit_schema, object};
use crate::mcp::{
    arguments,
    host::{Host, NoResult},
    message::Request,
};

const SHOWN: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedReview {
    limit: Option<usize>,
}

pub fn schema() -> Value {
    object(json!({"limit": limit_schema(SHOWN)}), &[])
}

pub fn perform(host: &mut Host, _: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: AskedReview = arguments::read(arguments)?;
    let session = host.seat.session();
    let (reviewing, shown) = (&session.reviewing, limit(asked.limit, SHOWN));
    let set = session.document.overrides.iter();
    let overrides: Vec<(String, Value)> = set.map(|(at, set)| override_told(session, at, set)).collect();
    let marks = reviewing.review.marks().filter(|mark| mark.state != ReviewState::Open);
    let marks: Vec<(String, Value)> = marks.map(mark_told).collect();
    let mut lines = Vec::new();
    let mut data = Map::new();
    for (what, told) in [("overrides", overrides), ("comments", comments(session, None)), ("marks", marks)] {
        let all = told.len();
        // The latest are the last.
        let (words, values): (Vec<String>, Vec<Value>) = told.into_iter().skip(all.saturating_sub(shown)).unzip();
        lines.push(format!("{all} {what}{}", if all == 0 { "." } else { ":" }));
        lines.extend(words);
        and_more(&mut lines, shown, all);
        data.insert(what.to_owned(), values.into());
    }
    let (line, release) = release_told(reviewing.release.as_ref());
    lines.push(line);
    data.insert("release".to_owned(), release);
    Ok(ToolAnswer::new(lines, Value::Object(data)))
}

fn override_told(session: &Session, (site, gemm): &(SiteId, Gemm), set: &Override) -> (String, Value) {
    let touch = session.reviewing.touched.get(&(site.clone(), *gemm));
    let by = touch.map(|touch| format!(", by {} at {}", touch.by, touch.at)).unwrap_or_default();
    let reason = if set.reason.trim().is_empty() { "no reason given" } else { set.reason.as_str() };
    let data = json!({
        "site": site, "gemm": gemm, "kernel": set.kernel, "reason": set.reason, "by": touch.map(|touch| &touch.by),
        "at": touch.map(|touch| touch.at.to_string()),
    });
    (format!("- {site} {gemm}: {} ({reason}){by}", set.kernel), data)
}

fn mark_told(mark: &Mark) -> (String, Value) {
    let place = mark.site.as_ref().map_or("the plan", SiteId::as_str);
    let data = json!({"site": mark.site, "state": mark.state, "by": mark.by, "at": mark.at.to_string()});
    (format!("- {place}: {} by {} at {}", mark.state.as_str(), mark.by, mark.at), data)
}

fn release_told(release: Option<&Release>) -> (String, Value) {
    let Some(release) = release else { return ("Nothing was submitted for approval.".to_owned(), Value::Null) };
    let signed: Vec<&str> = release.approvals.iter().map(|by| by.name.as_str()).collect();
    let by = if signed.is_empty() { "nobody yet".to_owned() } else { signed.join(", ") };
    let changed = release.changed.as_ref().map(|(by, at)| format!(" {by} changed the plan since, at {at}."));
    let (number, whose, at) = (release.number, &release.by, release.at);
    let line =
        format!("Version {number} was submitted by {whose} at {at}; signed by {by}.{}", changed.unwrap_or_default());
    let data = json!({
        "number": number, "by": whose, "at": at.to_string(), "note": release.note, "approvals": signed,
        "changed_since": release.changed.is_some(),
    });
    (line, data)
}

/// Of one site, or all.
pub fn comments(session: &Session, of: Option<&SiteId>) -> Vec<(String, Value)> {
    let told = |comment: &Comment| {
        let place = comment.site.as_ref().map_or("the plan", SiteId::as_str);
        let gemm = comment.gemm.map(|gemm| format!(" {gemm}")).unwrap_or_default();
        let answers = comment.reply_to.map(|id| format!(", in answer to {id}")).unwrap_or_default();
        let closed = comment.resolved_by.as_ref().map(|by| format!(", closed by {by}")).unwrap_or_default();
        let (id, by, at, text) = (comment.id, &comment.by, comment.at, &comment.text);
        let data = json!({
            "id": id, "site": comment.site, "gemm": comment.gemm, "reply_to": comment.reply_to, "by": by,
            "at": at.to_string(), "text": text, "resolved_by": comment.resolved_by,
        });
        (format!("- comment {id} on {place}{gemm} by {by} at {at}{answers}{closed}: {text}"), data)
    };
    let all = session.reviewing.review.comments.iter();
    all.filter(|comment| of.is_none() || comment.site.as_ref() == of).map(told).collect()
}
