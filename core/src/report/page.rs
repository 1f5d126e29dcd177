//! Takes what a report is of, gives the page: what ships, how bad, where, who agreed, and what it rests on. Nothing in
//! it runs, and it fetches nothing.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{
    format::{NAME, line, number::counted_as},
    plan::Plan,
};

use super::{
    Source, colour,
    entries::{Entry, entries},
    facts::{self, State},
    figure,
    graph::graph,
    grid::Sheet,
    heatmap::heatmap,
    points::Points,
    quadrant::{FIELD, quadrant},
    sections, tables,
};

/// No script, no font, no frame, no request: whatever a name or a comment says.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The whole file.
pub fn html(source: &Source<'_>) -> String {
    let plan = source.plan;
    let entries = entries(source);
    let title = format!("LoKA report: {}", line(&plan.name, NAME));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title) }
                style { (PreEscaped(style())) }
            }
            body { main {
                (header(source))
                (sections::approvals(source))
                (pictures(source, &entries))
                (sections::overrides(plan))
                (sections::warnings(source, &entries))
                (tables::decisions(plan))
                (sections::review(plan))
                (sections::mods(plan))
                (sections::provenance(source))
            } }
        }
    }
    .into_string()
}

fn style() -> String {
    let dark = colour::style(true);
    let (figures, page) = (figure::SHEET, include_str!("style.css"));
    // On paper always the light ones.
    format!("{}{figures}{page}@media screen and (prefers-color-scheme:dark){{{dark}}}", colour::style(false))
}

fn header(source: &Source<'_>) -> Markup {
    let plan = source.plan;
    let status = facts::status(source);
    html! {
        header {
            p class="kind" { "LoKA report" }
            h1 { (line(&plan.name, NAME)) }
            p class="status" {
                (mark(status.state)) bdi { (status.text) }
            }
            dl class="totals" {
                @for (name, value) in facts::totals(plan) { div { dt { (name) } dd { (value) } } }
            }
            p class="policy" { strong { "Policy " (line(&plan.policy.name, NAME)) ". " } (facts::policy(plan)) }
        }
    }
}

/// A check, a ring that waits, a dashed ring, a dash: read without colour.
fn mark(state: State) -> Markup {
    let (class, path) = match state {
        State::Approved => ("good", "M4 9.5L7.5 13L14 5"),
        State::Waiting => ("wait", "M9 2.5a6.5 6.5 0 1 0 .01 0M9 5.5V9.5H12"),
        State::Draft => ("draft", "M4 14L5 10.5L12 3.5L14.5 6L7.5 13z"),
        State::Unasked => ("none", "M4 9H14"),
    };
    html! { svg class=(format!("mark {class}")) viewBox="0 0 18 18" width="18" height="18" aria-hidden="true" { path d=(path) {} } }
}

fn pictures(source: &Source<'_>, entries: &[Entry]) -> Markup {
    let plan = source.plan;
    let sheet = Sheet::of(plan, entries);
    let graph = source.results.and_then(|results| graph(plan, entries, results));
    html! {
        @if let Some(graph) = graph { section { h2 { "Where the time goes" } (graph) } }
        section {
            h2 { "Error and speed" }
            @if source.results.is_none() {
                p class="note" { "From the plan alone: the chosen kernels, without intervals. With the results every kernel is shown." }
            }
            @match Points::of(plan, entries, FIELD) {
                Some(points) => (quadrant(plan, &points)),
                None => p { "No kernel in low precision has both an error and a speed-up." },
            }
        }
        section {
            h2 { "Errors by site, GEMM and kernel" }
            (folded(plan, &sheet))
            (heatmap(plan, &sheet, entries))
        }
    }
}

fn folded(plan: &Plan, sheet: &Sheet) -> Markup {
    let most = sheet.folded();
    html! {
        @if most > 1 {
            p class="note" {
                (counted_as(plan.sites.len(), "site", "sites")) " in " (counted_as(sheet.rows.len(), "row", "rows"))
                ": each shows the worst of up to " (most) " sites that stand together."
            }
        }
    }
}
