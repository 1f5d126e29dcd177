//! `sites`: sites ranked by what they cost or by a metric, narrowed by the workbench's filter.

use std::collections::{BTreeSet, HashSet};

use loka_core::{
    format::number,
    model::{Estimate, Gemm, Metric},
    views::{CostOrder, Facts, Filter, Lines, Modules, Order, SiteCost, Snapshot, Sort, TERMS, Views, verdict_word},
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

const SHOWN: usize = 10;

#[derive(Clone, Copy)]
enum Ranking {
    Cost(CostOrder),
    Sorted(Sort),
    /// Of the gentlest kernel in low precision, at the worst GEMM.
    By(Metric),
}

const RANKINGS: [(&str, Ranking); 16] = [
    ("time", Ranking::Cost(CostOrder::Time)),
    ("saved", Ranking::Cost(CostOrder::Saved)),
    ("loss_cost", Ranking::Cost(CostOrder::Loss)),
    ("error", Ranking::Sorted(Sort::WorstError)),
    ("gain", Ranking::Sorted(Sort::Gain)),
    ("verdict", Ranking::Sorted(Sort::Verdict)),
    ("forward", Ranking::Sorted(Sort::Forward)),
    ("name", Ranking::Sorted(Sort::Name)),
    ("mere", Ranking::By(Metric::Mere)),
    ("rel_l2", Ranking::By(Metric::RelL2)),
    ("sqnr_db", Ranking::By(Metric::SqnrDb)),
    ("median_rel", Ranking::By(Metric::MedianRel)),
    ("max_abs", Ranking::By(Metric::MaxAbs)),
    ("block_rel_l2", Ranking::By(Metric::BlockRelL2)),
    ("noise_share", Ranking::By(Metric::NoiseShare)),
    ("bias", Ranking::By(Metric::Bias)),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedSites {
    sort: Option<String>,
    filter: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    reversed: bool,
}

/// The workbench's filter, as a model is told of it.
pub fn filter_words() -> String {
    let terms: Vec<String> = TERMS
        .iter()
        .filter(|help| help.term != "is:selected")
        .map(|help| format!("{} ({})", help.term, help.about))
        .collect();
    format!(
        "The workbench's filter: words of the name, module:PATH, lib:NAME, /regex/, and -TERM for its opposite; terms \
         beside each other must all hold. {}",
        terms.join("; ")
    )
}

pub fn schema() -> Value {
    let words: BTreeSet<&str> = RANKINGS.iter().map(|(word, _)| *word).collect();
    let by = "time: microseconds a step as planned; saved: what the plan saves; loss_cost: of the plan's forward kernel; \
              error: the policy's metric of the best FP8 kernel at the worst GEMM; gain: speed-up of the best safe kernel; a \
              metric's name: of the gentlest FP8 kernel at the worst GEMM. The largest or worst first.";
    object(
        json!({
            "sort": {"type": "string", "enum": words, "default": "time", "description": by},
            "filter": {"type": "string", "description": filter_words()},
            "limit": limit_schema(SHOWN),
            "reversed": {"type": "boolean", "default": false, "description": "The smallest or best first"},
        }),
        &[],
    )
}

pub fn perform(host: &mut Host, _: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: AskedSites = arguments::read(arguments)?;
    let views = host.views()?;
    let snapshot = views.snapshot.clone().ok_or("No trace is open")?;
    let text = asked.filter.unwrap_or_default();
    let filter = Filter::read(&text, &compile).map_err(|error| error.to_string())?;
    let facts = Facts::of(&snapshot, &views.standings, std::iter::empty());
    let costs = SiteCost::of_all(&snapshot, &views.plan, &views.table);
    let sort = asked.sort.as_deref().unwrap_or("time");
    let mut order = ranked(&snapshot, &facts, &filter, &costs, arguments::word("order", sort, &RANKINGS)?);
    if asked.reversed {
        order.reverse();
    }
    let shown = limit(asked.limit, SHOWN);
    let filtered = if text.is_empty() { String::new() } else { format!(" that the filter '{text}' lets through") };
    let mut lines = vec![format!(
        "{}{filtered}, by {sort}{}. Times of the plan's kernels: {}.",
        number::counted(order.len(), "site"),
        if asked.reversed { ", reversed" } else { "" },
        figures::sources_words(&views),
    )];
    lines.extend(whole_sites(&views));
    let mut data = Vec::new();
    for cost in order.iter().take(shown).filter_map(|at| costs.get(*at as usize)) {
        let ranked = Ranked::of(&snapshot, &views, &facts, cost);
        lines.push(ranked.line());
        data.push(ranked.data());
    }
    and_more(&mut lines, shown, order.len());
    Ok(ToolAnswer::new(lines, json!({"sites": data, "count": order.len(), "sort": sort, "filter": text})))
}

/// Sums of two kinds must not be taken for each other.
fn whole_sites(views: &Views) -> Option<String> {
    let whole = views.plan.decided.as_ref()?.totals.measured_sites;
    (whole > 0).then(|| {
        format!(
            "A site's time in BF16 here is the sum of its GEMMs with their casts, and what it saves is as it was timed: {} timed \
             whole. The plan's totals are larger, by launches and what makes and reads the operands.",
            number::counted_as(whole, "site was", "sites were")
        )
    })
}

fn ranked(snapshot: &Snapshot, facts: &Facts<'_>, filter: &Filter, costs: &[SiteCost], by: Ranking) -> Vec<u32> {
    let listed = |sort| {
        let order = Order { sort, reversed: false, grouped: false };
        Lines::of(&Modules::new(snapshot.index.ids()), facts, filter, order, &HashSet::new()).order
    };
    match by {
        Ranking::Sorted(sort) => listed(sort),
        Ranking::Cost(by) => {
            let mut order = listed(Sort::Forward);
            order.sort_by(|a, b| costs[*a as usize].compare(&costs[*b as usize], by));
            order
        }
        Ranking::By(metric) => {
            let mut order = listed(Sort::Forward);
            let value = |at: &u32| facts.metric(None, metric, *at as usize);
            let bad = |at: &u32| value(at).map_or(f64::NEG_INFINITY, |value| metric.badness(value));
            order.sort_by(|a, b| bad(b).total_cmp(&bad(a)));
            order
        }
    }
}

/// A site with what is told of it.
struct Ranked<'a> {
    snapshot: &'a Snapshot,
    views: &'a Views,
    cost: &'a SiteCost,
    /// Of its errors.
    origin: String,
    /// In the policy's metric: of the gentlest kernel in low precision, at the worst GEMM.
    worst: Option<f64>,
}

impl<'a> Ranked<'a> {
    fn of(snapshot: &'a Snapshot, views: &'a Views, facts: &Facts<'_>, cost: &'a SiteCost) -> Self {
        let row = Gemm::ALL.into_iter().find_map(|gemm| snapshot.rows_of(cost.at, gemm).first());
        let origin = row.map_or_else(|| "none".to_owned(), figures::of_row);
        let worst = facts.metric(None, snapshot.document.policy.metric, cost.at);
        Self { snapshot, views, cost, origin, worst }
    }

    fn loss_share(&self, cost: Estimate) -> Option<f64> {
        let loss = self.snapshot.loss();
        (loss > 0.0).then(|| cost.value / loss)
    }

    fn line(&self) -> String {
        let (site, cost) = (&self.snapshot.sites()[self.cost.at], self.cost);
        let share = cost.share.map(|share| format!(", {} of all", number::percent(share))).unwrap_or_default();
        let untimed =
            if cost.num_untimed > 0 { format!(", {} GEMMs without a time", cost.num_untimed) } else { String::new() };
        let loss = cost.loss_cost.map_or_else(
            || "loss cost unknown".to_owned(),
            |of| {
                let share = self.loss_share(of).map(|share| format!("{} of the loss, ", number::percent(share)));
                format!("loss cost {} ({}{})", number::sentence(of), share.unwrap_or_default(), self.origin)
            },
        );
        let metric = self.snapshot.document.policy.metric.label();
        let worst = self.worst.map(|value| {
            format!(
                "; {metric} {} with the gentlest FP8 kernel at the worst GEMM ({})",
                number::plain(value),
                self.origin
            )
        });
        format!(
            "- {} ({} x {} -> {}): {} a step as planned, {} in BF16{share}, saves {} ({}{untimed}); {loss}{}. {}.",
            site.id,
            site.m,
            site.k,
            site.n,
            figures::maybe_micros(cost.planned_us),
            figures::maybe_micros(cost.baseline_us),
            figures::maybe_micros(cost.saved_us),
            cost.source.as_str(),
            worst.unwrap_or_default(),
            self.gemms()
                .map(|(gemm, kernel, verdict)| format!("{gemm} {kernel} (FP8 at best {verdict})"))
                .collect::<Vec<_>>()
                .join("; "),
        )
    }

    /// Those that run: the plan's kernel, and the best that low precision offers.
    fn gemms(&self) -> impl Iterator<Item = (Gemm, &str, &'static str)> {
        let at = self.cost.at;
        let verdicts = self.views.verdicts.get(at).copied().unwrap_or_default();
        Gemm::ALL.into_iter().filter(move |gemm| self.snapshot.sites()[at].runs(*gemm)).map(move |gemm| {
            let choice = self.views.plan.pick_at(at, gemm);
            let kernel = choice.map_or("not chosen yet", |choice| choice.kernel.as_str());
            (gemm, kernel, verdicts.gemms[gemm as usize].map_or("not judged", verdict_word))
        })
    }

    fn data(&self) -> Value {
        let (site, cost) = (&self.snapshot.sites()[self.cost.at], self.cost);
        let gemm = |(gemm, kernel, verdict): (Gemm, &str, &str)| {
            let choice = self.views.choice_at(cost.at, gemm);
            json!({
                "gemm": gemm, "kernel": kernel, "by": choice.map(|choice| choice.source),
                "reason": choice.map(|choice| &choice.reason), "best_fp8": verdict,
            })
        };
        let metric = self.snapshot.document.policy.metric.as_str();
        json!({
            "site": site.id, "class": site.class, "m": site.m, "k": site.k, "n": site.n,
            "planned": figures::time(cost.planned_us, cost.source), "bf16": figures::time(cost.baseline_us, cost.source),
            "saved": figures::time(cost.saved_us, cost.source), "share_of_bf16_time": cost.share,
            "gemms_without_time": cost.num_untimed, "gemms_in_fp8": cost.num_low,
            "loss_cost": cost.loss_cost.map(|of| figures::error(Metric::LossCost, of, &self.origin)),
            "loss_cost_share": cost.loss_cost.and_then(|of| self.loss_share(of)),
            "worst_of_gentlest": self.worst.map(|value| json!({"metric": metric, "value": value, "origin": self.origin})),
            "gemms": self.gemms().map(gemm).collect::<Vec<_>>(),
        })
    }
}
