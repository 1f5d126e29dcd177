//! What can be read whole: the plan, the rows behind it, findings, the glossary. Takes an address, gives its text.

use loka_core::{format::Term, model::ResultRow};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::{
    arguments,
    host::{Host, NoResult},
    message::Request,
    tools,
};

/// Rows of all sites in one answer: above it they are read site by site.
const ROWS: usize = 20_000;

const PLAN: &str = "loka://plan";
const RESULTS: &str = "loka://results";
const FINDINGS: &str = "loka://findings";
const GLOSSARY: &str = "loka://glossary";

const JSON: &str = "application/json";
const LINES: &str = "application/jsonl";

pub fn list() -> Vec<Value> {
    let of = |uri: &str, name: &str, kind: &str, about: &str| json!({"uri": uri, "name": name, "mimeType": kind, "description": about});
    vec![
        of(
            PLAN,
            "plan",
            JSON,
            "The plan as it stands, as `loka plan` would write it; without a date it is no plan to run",
        ),
        of(RESULTS, "results", LINES, "Every row of the results: error and time of each kernel at each GEMM"),
        of(FINDINGS, "findings", LINES, "What to know of the plan, worth most first"),
        of(GLOSSARY, "glossary", "text/markdown", "What each term means"),
    ]
}

pub fn templates() -> Vec<Value> {
    vec![json!({
        "uriTemplate": format!("{RESULTS}/{{site}}"), "name": "results of a site", "mimeType": LINES,
        "description": "The rows of one site by its whole name",
    })]
}

pub fn read(host: &mut Host, request: &Request, uri: &str) -> Result<Value, NoResult> {
    if uri == GLOSSARY {
        return Ok(json!({"uri": uri, "mimeType": "text/markdown", "text": glossary()}));
    }
    let of_site = uri.strip_prefix(RESULTS).and_then(|rest| rest.strip_prefix('/'));
    if ![PLAN, RESULTS, FINDINGS].contains(&uri) && of_site.is_none() {
        return Err(format!("there is no such resource: {}", loka_core::model::visible_within(uri, 200)).into());
    }
    host.ready(request)?;
    let (kind, text) = match (uri, of_site) {
        (PLAN, _) => (JSON, host.seat.session().plan_now().map_err(|error| error.to_string())?.to_json()),
        (FINDINGS, _) => (LINES, lines(&tools::findings_as_data(&host.views()?))),
        (_, Some(name)) => {
            let name = percent_decode_str(name).decode_utf8_lossy();
            let site = arguments::site(host.seat.session(), &name)?;
            let session = host.seat.session();
            (LINES, rows(session.rows().filter(|row| row.site == site))?)
        }
        _ => {
            let session = host.seat.session();
            let count = session.rows().count();
            if count > ROWS {
                return Err(format!("{count} rows are too many at once: read {RESULTS}/SITE for each site").into());
            }
            (LINES, rows(session.rows())?)
        }
    };
    Ok(json!({"uri": uri, "mimeType": kind, "text": text}))
}

fn rows<'a>(rows: impl Iterator<Item = &'a ResultRow>) -> Result<String, NoResult> {
    let mut text = String::new();
    for row in rows {
        text += &serde_json::to_string(row).map_err(|error| error.to_string())?;
        text.push('\n');
    }
    Ok(text)
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

fn glossary() -> String {
    let of = |term: &Term| format!("- **{}**: {}\n", term.title(), term.text());
    Term::ALL.iter().map(of).collect()
}
