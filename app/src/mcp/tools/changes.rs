//! What changes the session: each a command of the session, in the name and the role of whoever asks here, answered with
//! what the plan is like then.

use loka_core::{
    format::number,
    model::{Gemm, ModKind, SiteId},
    session::{Command, Session, policy_said},
    views::{MOST_DRAWS, SiteView},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolAnswer, object, what_if};
use crate::mcp::{
    arguments,
    host::{Host, NoResult},
    message::Request,
};

/// Has it done and says what came of it.
fn done(host: &mut Host, request: &Request, command: Command, what: &str) -> Result<ToolAnswer, NoResult> {
    let (me, needs) = (host.seat.me(), command.needs());
    if me.role < needs {
        let line = format!(
            "{} is {} here, and that takes {}: nothing was changed. Whoever runs the server gives another role by `loka \
             user role`.",
            me.name,
            me.role.one(),
            needs.one()
        );
        return Err(line.into());
    }
    let before = host.seat.session().num_decisions();
    host.change(request, command)?;
    let views = host.views()?;
    let session = host.seat.session();
    let mut lines = vec![format!("Done, as {}: {what}.", me.name)];
    if session.num_decisions() != before {
        lines.extend(super::overview::totals(&views, session));
    }
    if session.is_running() {
        lines.push("A probe runs: ask overview with wait_seconds until it is over.".to_owned());
    }
    lines.extend(session.not_kept.iter().map(|why| format!("It is not kept for later: {why}.")));
    let data = json!({
        "done": what, "by": me.name, "totals": super::plan::totals_data(&views), "probing": session.is_running(),
        "not_kept": session.not_kept, "can_undo": session.can_undo(),
    });
    Ok(ToolAnswer::new(lines, data))
}

pub fn policy_schema() -> Value {
    object(Value::Object(what_if::bounds_schema()), &[])
}

pub fn set_policy(host: &mut Host, request: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let bounds: what_if::PolicyBounds = arguments::read(arguments)?;
    let policy = bounds.policy(&host.seat.session().document.policy)?;
    let mut told = Err("Say what to change: a policy, a bound of it, or the runtime".into());
    if let Some(policy) = policy {
        let what = format!("the policy is {}", policy_said(&policy));
        told = Ok(done(host, request, Command::SetPolicy { policy }, &what)?);
    }
    if let Some(runtime) = bounds.runtime() {
        told = Ok(done(host, request, Command::SetRuntime { runtime }, &format!("the runtime is {runtime}"))?);
    }
    told
}

fn sites(session: &Session, names: &[String]) -> Result<Vec<SiteId>, String> {
    if names.is_empty() {
        return Err("sites is empty: name at least one".to_owned());
    }
    names.iter().map(|name| arguments::site(session, name)).collect()
}

/// GEMMs of these sites that run: one of each, or all three.
fn places(session: &Session, names: &[String], gemm: Option<&str>) -> Result<Vec<(SiteId, Gemm)>, String> {
    let gemms = match gemm {
        None | Some("all") => Gemm::ALL.to_vec(),
        Some(name) => vec![arguments::gemm(name)?],
    };
    let mut places = Vec::new();
    for id in sites(session, names)? {
        let runs = |gemm: &Gemm| session.site(&id).is_some_and(|site| site.runs(*gemm));
        places.extend(gemms.iter().copied().filter(runs).map(|gemm| (id.clone(), gemm)));
    }
    if places.is_empty() { Err("none of these GEMMs runs in training".to_owned()) } else { Ok(places) }
}

fn place_schema() -> Map<String, Value> {
    let fields = json!({
        "sites": {
            "type": "array", "items": {"type": "string"}, "minItems": 1,
            "description": "Whole names of sites, as `sites` gives them",
        },
        "gemm": {
            "type": "string", "enum": ["fprop", "dgrad", "wgrad", "all"], "default": "all",
            "description": "Which of the three GEMMs of each site",
        },
    });
    let Value::Object(fields) = fields else { return Map::new() };
    fields
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetKernel {
    sites: Vec<String>,
    gemm: Option<String>,
    kernel: String,
    reason: String,
}

pub fn override_schema() -> Value {
    let mut fields = place_schema();
    let kernel = "As library/recipe, as `site` gives it; cublaslt/bf16 keeps a GEMM in high precision";
    let reason = "Why, for whoever reviews the plan";
    fields.insert("kernel".to_owned(), json!({"type": "string", "description": kernel}));
    fields.insert("reason".to_owned(), json!({"type": "string", "minLength": 1, "description": reason}));
    object(Value::Object(fields), &["sites", "kernel", "reason"])
}

pub fn set_override(host: &mut Host, request: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: SetKernel = arguments::read(arguments)?;
    if asked.reason.trim().is_empty() {
        return Err("reason is empty: say why, for whoever reviews the plan".into());
    }
    let at = places(host.seat.session(), &asked.sites, asked.gemm.as_deref())?;
    let (kernel, reason) = (arguments::kernel(&asked.kernel)?, asked.reason);
    let what = format!("{kernel} is set by hand at {}", number::counted(at.len(), "GEMM"));
    let command = match at.as_slice() {
        [(site, gemm)] => Command::SetOverride { site: site.clone(), gemm: *gemm, kernel, reason },
        _ => Command::SetOverrides { at, kernel, reason },
    };
    done(host, request, command, &what)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clear {
    sites: Vec<String>,
    gemm: Option<String>,
}

pub fn clear_schema() -> Value {
    object(Value::Object(place_schema()), &["sites"])
}

pub fn clear_override(
    host: &mut Host,
    request: &Request,
    arguments: Map<String, Value>,
) -> Result<ToolAnswer, NoResult> {
    let asked: Clear = arguments::read(arguments)?;
    let session = host.seat.session();
    let mut at = places(session, &asked.sites, asked.gemm.as_deref())?;
    at.retain(|place| session.document.overrides.contains_key(place));
    if at.is_empty() {
        return Err("Nothing is set by hand there".into());
    }
    let what = format!("{} left to the policy", number::counted_as(at.len(), "GEMM is", "GEMMs are"));
    done(host, request, Command::ClearOverrides { at }, &what)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModAt {
    #[serde(rename = "mod")]
    kind: String,
    on: bool,
    sites: Option<Vec<String>>,
}

const KINDS: [(&str, ModKind); 3] =
    [("no_bias", ModKind::NoBias), ("block_norm", ModKind::BlockNorm), ("hard_swish", ModKind::HardSwish)];

pub fn mod_schema() -> Value {
    let kinds = KINDS.map(|(word, _)| word);
    let sites = "Whole names of sites; everywhere when left out";
    object(
        json!({
            "mod": {"type": "string", "enum": kinds, "description": "The change of the model"},
            "on": {"type": "boolean", "description": "On or off"},
            "sites": {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": sites},
        }),
        &["mod", "on"],
    )
}

pub fn set_mod(host: &mut Host, request: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: ModAt = arguments::read(arguments)?;
    let kind = arguments::word("mod", &asked.kind, &KINDS)?;
    let session = host.seat.session();
    let sites = match &asked.sites {
        Some(names) => sites(session, names)?,
        None => session.index().ids().to_vec(),
    };
    let (on, word) = (asked.on, if asked.on { "on" } else { "off" });
    let what = format!("{} is {word} at {}", kind.label(), number::counted(sites.len(), "site"));
    done(host, request, Command::SetMod { kind, on, sites }, &what)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Say {
    text: String,
    site: Option<String>,
    gemm: Option<String>,
    reply_to: Option<u64>,
}

pub fn comment_schema() -> Value {
    let site = "The site's whole name; the plan as a whole when left out";
    object(
        json!({
            "text": {"type": "string", "minLength": 1, "description": "What to say"},
            "site": {"type": "string", "description": site},
            "gemm": {"type": "string", "enum": ["fprop", "dgrad", "wgrad"], "description": "One of its GEMMs"},
            "reply_to": {"type": "integer", "minimum": 1, "description": "The comment that begins the thread"},
        }),
        &["text"],
    )
}

pub fn comment(host: &mut Host, request: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: Say = arguments::read(arguments)?;
    let site = asked.site.as_deref().map(|name| arguments::site(host.seat.session(), name)).transpose()?;
    let gemm = asked.gemm.as_deref().map(arguments::gemm).transpose()?;
    let what = format!("a comment on {}", site.as_ref().map_or("the plan", SiteId::as_str));
    done(host, request, Command::Comment { site, gemm, reply_to: asked.reply_to, text: asked.text }, &what)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draw {
    site: String,
    draws: Option<u64>,
}

pub fn draw_schema() -> Value {
    let draws = "Draws of every kernel, those taken included; as many as verdicts are expected to need when left out";
    object(
        json!({
            "site": {"type": "string", "description": "The site's whole name"},
            "draws": {"type": "integer", "minimum": 1, "maximum": MOST_DRAWS, "description": draws},
        }),
        &["site"],
    )
}

pub fn draw_more(host: &mut Host, request: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: Draw = arguments::read(arguments)?;
    let site = arguments::site(host.seat.session(), &asked.site)?;
    let (views, metric) = (host.views()?, host.metric());
    let expected = || {
        let view = SiteView::of(views.snapshot.as_ref()?, &views.plan, &site, metric)?;
        view.gemms.iter().filter_map(|gemm| gemm.draws_to_ask).max()
    };
    let max_draws = asked.draws.or_else(expected).ok_or("this site has no rows yet")?;
    if !(1..=MOST_DRAWS).contains(&max_draws) {
        return Err(format!("a site is probed with 1 to {MOST_DRAWS} draws").into());
    }
    let what = format!("{site} is probed with up to {max_draws} draws");
    done(host, request, Command::ProbeMore { site, max_draws }, &what)
}

pub fn undo(host: &mut Host, request: &Request, _: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    done(host, request, Command::Undo, "the last decision is undone")
}

pub fn redo(host: &mut Host, request: &Request, _: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    done(host, request, Command::Redo, "what was undone is decided again")
}
