//! `what_if`: what another policy, runtime or kernel would give, with the session left as it is.

use std::sync::Arc;

use loka_core::{
    dispatch::{Override, Policy},
    format::number,
    model::{Metric, Runtime},
    plan::ChoiceChange,
    session::{Session, policy_said},
    views::{Baseline, BaselinePlan, Snapshot, ViewQuery, Views, override_effect, site_words},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolAnswer, and_more, limit, limit_schema, object};
use crate::mcp::{
    arguments,
    host::{Host, NoResult},
    message::Request,
};

const SHOWN: usize = 20;

/// PolicyBounds of a policy, as far as they are to be others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyBounds {
    policy: Option<String>,
    metric: Option<String>,
    max_error: Option<f64>,
    min_speedup: Option<f64>,
    loss_budget: Option<f64>,
    max_bias: Option<f64>,
    runtime: Option<Runtime>,
}

/// The same for a schema.
pub fn bounds_schema() -> Map<String, Value> {
    let metrics = Metric::ALL.map(Metric::as_str);
    let runtimes = Runtime::ALL.map(Runtime::as_str);
    let fields = json!({
        "policy": {
            "type": "string", "enum": Policy::BUILTIN,
            "description": "A built-in policy; bounds that are given beside it replace its own",
        },
        "metric": {"type": "string", "enum": metrics, "description": "What max_error bounds"},
        "max_error": {"type": "number", "minimum": 0, "description": "The largest error that is safe"},
        "min_speedup": {
            "type": "number", "minimum": 0, "description": "What a kernel has to gain over BF16, as 1.05",
        },
        "loss_budget": {
            "type": "number", "minimum": 0,
            "description": "Share of the loss that all forward GEMMs together may cost, as .0002",
        },
        "max_bias": {
            "type": "number", "minimum": 0, "description": "How far from 0 the bias of a backward GEMM may be",
        },
        "runtime": {"type": "string", "enum": runtimes, "description": "Where the plan would run"},
    });
    let Value::Object(fields) = fields else { return Map::new() };
    fields
}

impl PolicyBounds {
    pub fn is_empty(&self) -> bool {
        self.keep_the_policy() && self.runtime.is_none()
    }

    pub fn runtime(&self) -> Option<Runtime> {
        self.runtime
    }

    fn keep_the_policy(&self) -> bool {
        let numbers = [self.max_error, self.min_speedup, self.loss_budget, self.max_bias];
        self.policy.is_none() && self.metric.is_none() && numbers.iter().all(Option::is_none)
    }

    /// `None`: it stays as it is.
    pub fn policy(&self, now: &Policy) -> Result<Option<Policy>, String> {
        if self.keep_the_policy() {
            return Ok(None);
        }
        let mut policy = match &self.policy {
            Some(name) => {
                let policy = Policy::builtin(name).map_err(|error| error.to_string())?;
                // Who must sign is a team's own rule, whatever bounds it takes.
                Policy { approval: now.approval.clone(), ..policy }
            }
            None => now.clone(),
        };
        if let Some(metric) = &self.metric {
            policy.metric = arguments::metric(metric)?;
        }
        policy.max_error = self.max_error.unwrap_or(policy.max_error);
        policy.min_speedup = self.min_speedup.unwrap_or(policy.min_speedup);
        policy.loss_budget = self.loss_budget.or(policy.loss_budget);
        policy.max_bias = self.max_bias.or(policy.max_bias);
        policy.validate().map_err(|error| error.to_string())?;
        Ok(Some(policy))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ByHand {
    site: String,
    gemm: String,
    kernel: String,
}

#[derive(Deserialize)]
struct AskedWhatIf {
    #[serde(rename = "override")]
    by_hand: Option<ByHand>,
    #[serde(default)]
    without_overrides: bool,
    limit: Option<usize>,
    #[serde(flatten)]
    bounds: Map<String, Value>,
}

pub fn schema() -> Value {
    let mut properties = bounds_schema();
    let place = json!({
        "site": {"type": "string"}, "gemm": {"type": "string", "enum": ["fprop", "dgrad", "wgrad"]},
        "kernel": {"type": "string"},
    });
    let by_hand = json!({
        "type": "object", "description": "A kernel set by hand at one GEMM", "properties": place,
        "required": ["site", "gemm", "kernel"], "additionalProperties": false,
    });
    let without = "As if nothing had been set by hand";
    properties.insert("override".to_owned(), by_hand);
    properties
        .insert("without_overrides".to_owned(), json!({"type": "boolean", "default": false, "description": without}));
    properties.insert("limit".to_owned(), limit_schema(SHOWN));
    object(Value::Object(properties), &[])
}

pub fn perform(host: &mut Host, _: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: AskedWhatIf = arguments::read(arguments)?;
    let bounds: PolicyBounds = arguments::read(asked.bounds)?;
    if bounds.is_empty() && asked.by_hand.is_none() && !asked.without_overrides {
        return Err(
            "Say what should be otherwise: a policy, a bound of it, a runtime, an override, or without_overrides"
                .into(),
        );
    }
    let views = host.views()?;
    let session = host.seat.session();
    let snapshot = views.snapshot.clone().ok_or("No trace is open")?;
    let mut then = Snapshot::clone(&snapshot);
    let mut lines = Vec::new();
    if asked.without_overrides {
        then.document.overrides.clear();
        lines.push("Without overrides.".to_owned());
    }
    if let Some(policy) = bounds.policy(&snapshot.document.policy)? {
        lines.push(format!("With policy {}.", policy_said(&policy)));
        then.document.policy = policy;
    }
    if let Some(runtime) = bounds.runtime() {
        lines.push(format!("With runtime {runtime}."));
        then.document.runtime = runtime;
    }
    if let Some(by_hand) = &asked.by_hand {
        set_by_hand(session, &views, by_hand, &mut then, &mut lines)?;
    }
    then.baseline = Some(Arc::new(now(session)?));
    let question = ViewQuery { metric: then.document.policy.metric, gemm: None, relative: false, versus: false };
    let then = Views::of(&Arc::new(then), question, &Views::default());
    told(session, (&views, &then), lines, limit(asked.limit, SHOWN))
}

/// The plan as it stands, to hold the other one against.
fn now(session: &Session) -> Result<Baseline, NoResult> {
    let plan = BaselinePlan::Read(Box::new(session.plan_now().map_err(|error| error.to_string())?));
    let rows = vec![None; session.sites().len()];
    Ok(Baseline { name: "now".to_owned(), plan: Arc::new(plan), rows, by_kernel: false, of_results: false })
}

fn set_by_hand(
    session: &Session,
    views: &Views,
    by_hand: &ByHand,
    then: &mut Snapshot,
    lines: &mut Vec<String>,
) -> Result<(), NoResult> {
    let site = arguments::site(session, &by_hand.site)?;
    let (gemm, kernel) = (arguments::gemm(&by_hand.gemm)?, arguments::kernel(&by_hand.kernel)?);
    let effect = override_effect(then, &views.plan, (&site, gemm), &kernel);
    let effect = effect.ok_or_else(|| format!("{kernel} was not probed at {site} {gemm}, or cannot run there"))?;
    lines.push(format!("With {kernel} set by hand at {site} {gemm}."));
    lines.extend(effect.breaks.iter().map(site_words::broken_words));
    then.document.overrides.insert((site, gemm), Override { kernel, reason: "what if".to_owned() });
    Ok(())
}

fn told(
    session: &Session,
    (now, then): (&Views, &Views),
    mut lines: Vec<String>,
    shown: usize,
) -> Result<ToolAnswer, NoResult> {
    if then.plan.decided.is_none() {
        let why = then.plan.problem.clone().unwrap_or_else(|| "there are no rows".to_owned());
        return Err(format!("There would be no plan: {why}").into());
    }
    for (word, views) in [("Now:", now), ("Then:", then)] {
        lines.push(word.to_owned());
        lines.extend(super::overview::totals(views, session).into_iter().map(|line| format!("  {line}")));
    }
    lines.push(format!("  {}", then.answer.text()));
    let changes: &[ChoiceChange] = then.table.other.as_ref().map_or(&[], |other| &other.changes.changes);
    lines.push(format!("{} would get another kernel.", number::counted(changes.len(), "GEMM")));
    lines.extend(changes.iter().take(shown).map(change_words));
    and_more(&mut lines, shown, changes.len());
    lines.push("The session is as it was.".to_owned());
    let data = json!({
        "now": super::plan::totals_data(now), "then": super::plan::totals_data(then),
        "policy": then.snapshot.as_ref().map(|snapshot| &snapshot.document.policy),
        "changes": changes.iter().take(shown).collect::<Vec<_>>(), "count": changes.len(), "answer": then.answer.text(),
    });
    Ok(ToolAnswer::new(lines, data))
}

pub fn change_words(change: &ChoiceChange) -> String {
    let times = |speedup: Option<f64>| speedup.map(|of| format!(" ({})", number::times(of))).unwrap_or_default();
    let (was, is) = (times(change.before_speedup), times(change.after_speedup));
    let ChoiceChange { site, gemm, before, after, cause, reason, .. } = change;
    format!("- {site} {gemm}: {before}{was} became {after}{is}; {}: {reason}", cause.as_str())
}
