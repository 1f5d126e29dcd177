//! `plan`: the plan's totals with its lines, or its lines in groups.

use loka_core::{
    dispatch::ChoiceSource,
    format::number,
    model::LatencySource,
    views::{Facts, Filter, Flags, PlanColumn, PlanGroup, PlanGroupBy, PlanLine, Snapshot, Views, verdict_word},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolAnswer, and_more, limit, limit_schema, object};
use crate::{
    mcp::{
        arguments, figures,
        host::{Host, NoResult},
        message::Request,
    },
    regex::compile,
};

const SHOWN: usize = 30;

const GROUPS: [(&str, PlanGroupBy); 5] = [
    ("library", PlanGroupBy::Library),
    ("recipe", PlanGroupBy::Recipe),
    ("shape", PlanGroupBy::Shape),
    ("cause", PlanGroupBy::Cause),
    ("module", PlanGroupBy::Module),
];

const SORTS: [(&str, PlanColumn); 4] = [
    ("saved", PlanColumn::Saved),
    ("site", PlanColumn::Site),
    ("kernel", PlanColumn::Kernel),
    ("margin", PlanColumn::Margin),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedPlan {
    group_by: Option<String>,
    sort: Option<String>,
    filter: Option<String>,
    #[serde(default)]
    fp8_only: bool,
    limit: Option<usize>,
}

pub fn schema() -> Value {
    let groups = GROUPS.map(|(word, _)| word);
    let sorts = SORTS.map(|(word, _)| word);
    let by = "Groups with sums in place of lines; cause: why a GEMM has the kernel that it has";
    let sort = "saved: most saved first; margin: nearest to its bound first; site: in forward order";
    object(
        json!({
            "group_by": {"type": "string", "enum": groups, "description": by},
            "sort": {"type": "string", "enum": sorts, "default": "saved", "description": sort},
            "filter": {"type": "string", "description": "The workbench's filter of sites, as for `sites`"},
            "fp8_only": {"type": "boolean", "default": false, "description": "Only GEMMs in low precision"},
            "limit": limit_schema(SHOWN),
        }),
        &[],
    )
}

pub fn perform(host: &mut Host, _: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: AskedPlan = arguments::read(arguments)?;
    let views = host.views()?;
    let snapshot = views.snapshot.clone().ok_or("No trace is open")?;
    if views.plan.decided.is_none() {
        let why = views.plan.problem.clone().unwrap_or_else(|| "there are no rows yet".to_owned());
        return Err(format!("There is no plan: {why}").into());
    }
    let mut lines = super::overview::totals(&views, host.seat.session());
    let mut data = json!({"totals": totals_data(&views), "policy": snapshot.document.policy});
    let shown = limit(asked.limit, SHOWN);
    if let Some(by) = &asked.group_by {
        let by = arguments::word("grouping", by, &GROUPS)?;
        let groups = PlanGroup::all(&snapshot, &views.plan, &views.table, &views.answer, by);
        lines.extend(groups.iter().take(shown).map(group_words));
        and_more(&mut lines, shown, groups.len());
        data["groups"] = groups.iter().take(shown).map(group_data).collect();
        return Ok(ToolAnswer::new(lines, data));
    }
    let sort = arguments::word("order", asked.sort.as_deref().unwrap_or("saved"), &SORTS)?;
    let filter = asked.filter.as_deref().unwrap_or_default();
    let filter = Filter::read(filter, &compile).map_err(|error| error.to_string())?;
    let facts = Facts::of(&snapshot, &views.standings, std::iter::empty());
    let kept: Vec<bool> = (0..snapshot.sites().len()).map(|at| filter.shows_site(&facts, at)).collect();
    let keep = |line: &PlanLine| {
        let wanted = !asked.fp8_only || line.flags.has(Flags::LOW);
        wanted && kept[line.at] && snapshot.sites()[line.at].runs(line.gemm)
    };
    let order = views.table.order(&views.plan, None, (sort, false), keep);
    let of = |at: &u32| of_line(&snapshot, &views, &views.table.lines[*at as usize]);
    let (words, values): (Vec<String>, Vec<Value>) = order.iter().take(shown).map(of).unzip();
    lines.extend(words);
    and_more(&mut lines, shown, order.len());
    (data["lines"], data["count"]) = (values.into(), json!(order.len()));
    Ok(ToolAnswer::new(lines, data))
}

pub fn totals_data(views: &Views) -> Value {
    let Some(decided) = &views.plan.decided else { return Value::Null };
    let totals = &decided.totals;
    json!({
        "bf16_us": totals.baseline_us, "planned_us": totals.planned_us, "saved_us": totals.baseline_us - totals.planned_us,
        "unit": "us a step", "speedup": totals.speedup, "latency_sources": figures::sources(views),
        "sites_timed_whole": totals.measured_sites, "sites_added_up": totals.modelled_sites,
        "loss_cost": totals.loss_cost, "loss_cost_at_most": totals.loss_cost_hi, "gemms": totals.num_gemms,
        "gemms_in_fp8": views.table.num_low, "gemms_uncertain": views.table.num_uncertain,
        "gemms_without_time": totals.num_without_latency, "loss_costs_out_of_range": totals.num_cost_out_of_range,
    })
}

fn group_words(group: &PlanGroup) -> String {
    let name = if group.name.is_empty() { "(none)" } else { &group.name };
    let (gemms, saved) = (number::counted(group.gemms.len(), "GEMM"), figures::micros(group.saved_us));
    let untimed = if group.num_untimed > 0 { format!(", {} without a time", group.num_untimed) } else { String::new() };
    format!("- {name}: {gemms}, {} in FP8, saves {saved}{untimed}", group.num_low)
}

fn group_data(group: &PlanGroup) -> Value {
    json!({
        "name": group.name, "gemms": group.gemms.len(), "gemms_in_fp8": group.num_low, "saved_us": group.saved_us,
        "gemms_without_time": group.num_untimed,
    })
}

fn of_line(snapshot: &Snapshot, views: &Views, line: &PlanLine) -> (String, Value) {
    let site = &snapshot.index.ids()[line.at];
    let choice = views.choice_at(line.at, line.gemm);
    let row = choice.and_then(|choice| snapshot.row(line.at, line.gemm, &choice.kernel));
    let kernel = choice.map_or("not chosen yet", |choice| choice.kernel.as_str());
    let by_hand = choice.is_some_and(|choice| choice.source == ChoiceSource::Override);
    let source = row.map_or(LatencySource::None, |row| row.latency.source);
    let origin = row.map(figures::of_row).unwrap_or_default();
    let error = line.error.map_or_else(String::new, |error| {
        let limit = number::trimmed(line.bound.limit);
        format!(
            ", {} against {limit} ({origin})",
            figures::error_words(row, (line.bound.metric, error), snapshot.loss())
        )
    });
    let words = format!(
        "- {site} {}: {kernel}{}, saves {} ({}), {}{error}",
        line.gemm,
        if by_hand { " (set by hand)" } else { "" },
        figures::maybe_micros(line.saved_us),
        source.as_str(),
        verdict_word(line.verdict),
    );
    let data = json!({
        "site": site, "gemm": line.gemm, "kernel": kernel, "by": choice.map(|choice| choice.source),
        "reason": choice.map(|choice| &choice.reason), "saved": figures::time(line.saved_us, source),
        "share_of_saved": line.share, "verdict": verdict_word(line.verdict),
        "error": line.error.zip(row).map(|(error, row)| figures::error_of(row, (line.bound.metric, error), snapshot.loss())),
        "bound": {"metric": line.bound.metric.as_str(), "limit": line.bound.limit}, "margin": line.margin,
    });
    (words, data)
}
