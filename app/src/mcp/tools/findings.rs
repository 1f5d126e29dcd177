//! `findings`: what to know of the plan, worth most first.

use loka_core::{
    format::number,
    model::SiteId,
    views::{Finding, Remedy, Views},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolAnswer, and_more, limit, limit_schema, object};
use crate::mcp::{
    arguments, figures,
    host::{Host, NoResult},
    message::Request,
};

const SHOWN: usize = 20;
/// GEMMs that are named.
const NAMED: usize = 6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedFindings {
    limit: Option<usize>,
}

pub fn schema() -> Value {
    object(json!({"limit": limit_schema(SHOWN)}), &[])
}

pub fn perform(host: &mut Host, _: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: AskedFindings = arguments::read(arguments)?;
    let views = host.views()?;
    let shown = limit(asked.limit, SHOWN);
    let mut lines: Vec<String> = views.findings.iter().take(shown).map(|found| line(found, &views)).collect();
    and_more(&mut lines, shown, views.findings.len());
    lines.push(if views.findings.is_empty() {
        "Nothing to find: every GEMM has the fastest kernel that was probed, or FP8 gains nothing there.".to_owned()
    } else {
        let sources = figures::sources_words(&views);
        format!(
            "Worth is of each alone, if it came as hoped for: two findings may speak of one GEMM. Times of the plan's \
             kernels: {sources}."
        )
    });
    let data: Vec<Value> = as_data(&views).into_iter().take(shown).collect();
    Ok(ToolAnswer::new(lines, json!({"findings": data, "count": views.findings.len()})))
}

fn ids(views: &Views) -> &[SiteId] {
    views.snapshot.as_ref().map_or(&[], |snapshot| snapshot.index.ids())
}

fn line(found: &Finding, views: &Views) -> String {
    let cost = |cost: f64| format!("a loss cost of {}", number::plain(cost));
    let worth = match (found.saves_us, found.loss_cost) {
        (Some(us), None) => format!("worth {} a step", figures::micros(us)),
        (Some(us), Some(of)) => format!("worth {} a step for {}", figures::micros(us), cost(of)),
        (None, Some(of)) => format!("about {}", cost(of)),
        (None, None) => "about quality".to_owned(),
    };
    let remedy = found.remedy.as_ref().map(|remedy| format!(" What would help: {}.", remedy_words(remedy, views)));
    let named = found.gemms.iter().take(NAMED);
    let mut names: Vec<String> =
        named.filter_map(|(at, gemm)| Some(format!("{} {gemm}", ids(views).get(*at)?))).collect();
    if found.gemms.len() > NAMED {
        names.push(format!("{} more", found.gemms.len() - NAMED));
    }
    format!("- ({worth}) {}{} [{}]", found.text, remedy.unwrap_or_default(), names.join(", "))
}

fn remedy_words(remedy: &Remedy, views: &Views) -> String {
    match remedy {
        Remedy::Draw { site, draws } => {
            let name = ids(views).get(*site).map(ToString::to_string).unwrap_or_default();
            format!("{draws} draws at {name} (draw_more)")
        }
        Remedy::Threshold { max_error } => {
            format!("a policy with max_error {} (try what_if)", number::plain(*max_error))
        }
        Remedy::Frontier => "a larger loss budget (try what_if)".to_owned(),
        Remedy::ClearOverrides => "leaving them to the policy (clear_override)".to_owned(),
        Remedy::Measure => "measuring speeds on the GPU that trains (loka probe --measure)".to_owned(),
    }
}

/// As `loka findings --json` has them.
pub fn as_data(views: &Views) -> Vec<Value> {
    let of = |found: &Finding| {
        let gemms = found.gemms.iter();
        let gemms: Vec<Value> =
            gemms.filter_map(|(at, gemm)| Some(json!({"site": ids(views).get(*at)?, "gemm": gemm}))).collect();
        json!({
            "finding": found.kind, "text": found.text, "saves_us": found.saves_us, "loss_cost": found.loss_cost,
            "remedy": found.remedy, "gemms": gemms,
        })
    };
    views.findings.iter().map(of).collect()
}
