//! The page's tables of what is decided: counts by kernel, every choice that is not the baseline's, the rest by
//! module, and all sites.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::{
    dispatch::{Choice, ChoiceSource},
    format::{
        NAME, SENTENCE, line,
        number::{count, counted_as, times},
        short,
    },
    model::Gemm,
    plan::{Plan, PlanSite},
};

use super::{
    decisions::{self, Group, folded, is_decided},
    sections::more,
};

/// Groups that a person reads through.
const MOST_GROUPS: usize = 60;
/// Longer lists open on demand.
const OPEN: usize = 120;
/// Longer ones give no reasons: the file has a bound.
const WITH_REASONS: usize = 3_000;
/// Longer ones stay closed on paper: forty sheets of one list are for a screen.
const ON_PAPER: usize = 2_000;
/// Beyond that the plan itself is the list.
const MOST_SITES: usize = 15_000;

pub fn decisions(plan: &Plan) -> Markup {
    let decided: Vec<_> = plan.choices().filter(|(.., choice)| is_decided(choice)).collect();
    html! {
        section {
            h2 { "Decisions" }
            (by_kernel(plan))
            @if decided.is_empty() {
                p { "No GEMM is in low precision, and nobody chose by hand." }
            } @else if decided.len() <= WITH_REASONS {
                h3 { "In low precision or by hand " span class="count" { (count(decided.len())) } }
                @let rows = html! { (with_reasons(plan, decided.iter().copied())) };
                (listed(decided.len(), &format!("All {}", counted_as(decided.len(), "choice", "choices")), &rows))
            } @else {
                h3 { "In low precision " span class="count" { (count(decided.len())) } }
                (groups(&folded(plan, true, MOST_GROUPS), plan))
            }
            @let high = folded(plan, false, MOST_GROUPS);
            @if !high.is_empty() { h3 { "In high precision" } (groups(&high, plan)) }
            @if decided.len() < 3 * plan.sites.len() { (every(plan)) }
        }
    }
}

fn by_kernel(plan: &Plan) -> Markup {
    let mut counts: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for (_, gemm, choice) in plan.choices() {
        counts.entry(choice.kernel.as_str()).or_default()[gemm as usize] += 1;
    }
    html! {
        table class="narrow" {
            thead { tr { th { "Kernel" } @for gemm in Gemm::ALL { th class="num" { (gemm.as_str()) } } } }
            tbody { @for (kernel, counts) in counts.iter().take(MOST_GROUPS) {
                tr { td class="code" { (line(kernel, NAME)) } @for num in counts { td class="num" { (count(*num)) } } }
            } }
        }
    }
}

fn listed(len: usize, name: &str, rows: &Markup) -> Markup {
    html! {
        @if len <= OPEN { (rows) }
        @else { details class=(if len > ON_PAPER { "screen" } else { "" }) { summary { (name) } (rows) } }
    }
}

fn with_reasons<'a>(
    plan: &Plan,
    choices: impl Iterator<Item = (&'a crate::model::SiteId, Gemm, &'a Choice)>,
) -> Markup {
    html! {
        table {
            thead { tr { th { "Site" } th { "GEMM" } th { "Kernel" } th class="num" { (plan.policy.metric.label()) }
                th class="num" { "Speed-up" } th { "Why" } } }
            tbody { @for (site, gemm, choice) in choices {
                tr {
                    td class="code site" { (line(site.as_str(), NAME)) }
                    td { (gemm.as_str()) }
                    td class="code kernel" { (line(choice.kernel.as_str(), NAME)) }
                    td class="num" { (decisions::error(choice, plan.policy.metric)) }
                    td class="num" { (decisions::speed(choice)) }
                    td { (line(&choice.reason, SENTENCE)) }
                }
            } }
        }
    }
}

fn groups(all: &[Group], plan: &Plan) -> Markup {
    html! {
        table {
            thead { tr { th { "Where" } th class="num" { "GEMMs" } th { "Kernel" } th class="num" { "Worst " (plan.policy.metric.label()) }
                th class="num" { "Speed-up" } th { "Why" } } }
            tbody { @for of in all.iter().take(4 * MOST_GROUPS) {
                tr {
                    td class="code site" { (of.place) }
                    td class="num" { (count(of.num_gemms)) }
                    td class="code kernel" { (of.kernel) }
                    td class="num" { (of.error()) }
                    td class="num" { (of.speed()) }
                    td { (of.why) }
                }
            } }
        }
        (more(all.len(), 4 * MOST_GROUPS))
    }
}

/// All sites: with reasons where they fit, else a line each.
fn every(plan: &Plan) -> Markup {
    let num = plan.sites.len();
    html! {
        details class=(if 3 * num > ON_PAPER { "screen" } else { "" }) {
            summary { "All " (counted_as(num, "site", "sites")) }
            @if 3 * num <= WITH_REASONS {
                (with_reasons(plan, plan.choices()))
            } @else {
                p class="note" { "Kernel, speed-up and " (plan.policy.metric.label()) "; the reasons are in the plan." }
                table {
                    thead { tr { th { "Site" } @for gemm in Gemm::ALL { th { (gemm.as_str()) } } } }
                    tbody { @for site in plan.sites.iter().take(MOST_SITES) { (compact(plan, site)) } }
                }
                (more(num, MOST_SITES))
            }
        }
    }
}

fn compact(plan: &Plan, site: &PlanSite) -> Markup {
    html! {
        tr {
            td class="code site" { (line(site.site.as_str(), NAME)) }
            @for gemm in Gemm::ALL {
                @let choice = site.choice(gemm);
                td {
                    (line(choice.kernel.as_str(), NAME))
                    @if is_decided(choice) {
                        @if let Some(speed) = choice.speedup { " " (times(speed)) }
                        @if let Some(error) = choice.error.get(&plan.policy.metric) { " " (short(*error)) }
                        @if choice.source == ChoiceSource::Override { " by hand" }
                    }
                }
            }
        }
    }
}
