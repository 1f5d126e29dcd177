//! The parts of the page that people wrote or signed, and where its numbers are from.

use maud::{Markup, html};

use crate::{
    format::{
        NAME, SENTENCE, block, line,
        number::{count, counted_as},
    },
    model::ResultsMeta,
    plan::{Counted, Plan},
    review::{Comment, TEXT_CHARACTERS},
};

use super::{
    Source, decisions,
    entries::Entry,
    facts::{self, Warning},
    threads::{Marked, Thread, marked, threads},
};

/// Rows of a list that people write.
const MOST_OVERRIDES: usize = 2_000;
const MOST_NAMED: usize = 200;
const MOST_APPROVALS: usize = 500;
/// Bytes of all comments together.
const MOST_SAID: usize = 1_000_000;

pub fn approvals(source: &Source<'_>) -> Markup {
    let standing = &source.standing;
    html! {
        section {
            h2 { "Approvals" }
            p {
                @match standing.rule {
                    Some(rule) => { "The policy asks for " (rule.to_string()) ": " (counting(standing.num_valid)) "." }
                    None => "The policy asks for none.",
                }
                @if !standing.approvals.is_empty() {
                    " " (if standing.with_keys { "Signatures were held against a list of keys." }
                        else { "Signatures are genuine, but were not held against a list of keys: whose they are is what they say." })
                }
            }
            @if !standing.approvals.is_empty() {
                table {
                    thead { tr { th { "Who" } th { "Role" } th { "When" } th { "Counts" } th { "Note" } th { "Key" } } }
                    tbody { @for counted in standing.approvals.iter().take(MOST_APPROVALS) { (approval(counted)) } }
                }
                (more(standing.approvals.len(), MOST_APPROVALS))
            }
        }
    }
}

fn counting(valid: usize) -> String {
    if valid == 0 { "none counts".to_owned() } else { counted_as(valid, "counts", "count") }
}

fn approval(counted: &Counted<'_>) -> Markup {
    let of = counted.approval;
    html! {
        tr {
            td class="who" { (line(&of.name, NAME)) }
            td { (counted.role.as_str()) }
            td class="when" { (of.at.to_string()) }
            td {
                @match &counted.problem {
                    None => span class="good" { "✓ yes" },
                    Some(problem) => { span class="bad" { "✗ no: " } (line(&problem.to_string(), SENTENCE)) }
                }
            }
            td { (line(&of.note, SENTENCE)) }
            td class="code" { (line(&of.key.to_string(), NAME)) }
        }
    }
}

pub fn overrides(plan: &Plan) -> Markup {
    let all = facts::overrides(plan);
    html! {
        @if !all.is_empty() {
            section {
                h2 { "Overrides " span class="count" { (count(all.len())) } }
                @if let Some(authors) = facts::authors(plan) { p { "Decided by " bdi { (authors) } "." } }
                table {
                    thead { tr { th { "Site" } th { "GEMM" } th { "Kernel" } th class="num" { (plan.policy.metric.label()) }
                        th class="num" { "Speed-up" } th { "Reason" } } }
                    tbody {
                        @for (site, gemm, choice) in all.iter().take(MOST_OVERRIDES) {
                            tr {
                                td class="code site" { (line(site.as_str(), NAME)) }
                                td { (gemm.as_str()) }
                                td class="code kernel" { (line(choice.kernel.as_str(), NAME)) }
                                td class="num" { (decisions::error(choice, plan.policy.metric)) }
                                td class="num" { (decisions::speed(choice)) }
                                td { (decisions::why_overridden(choice)) }
                            }
                        }
                    }
                }
                (more(all.len(), MOST_OVERRIDES))
            }
        }
    }
}

/// What is left out, said.
pub fn more(all: usize, shown: usize) -> Markup {
    html! { @if all > shown { p class="note" { (count(all - shown)) " more are in the plan." } } }
}

pub fn warnings(source: &Source<'_>, entries: &[Entry]) -> Markup {
    let all = facts::warnings(source, entries);
    html! {
        section {
            h2 { "Warnings" }
            @if all.is_empty() { p { "None." } } @else { ul class="warnings" { @for of in &all { (warning(of)) } } }
            @if source.results.is_none() {
                p class="note" { "Without the results the plan was not checked against its policy." }
            }
        }
    }
}

fn warning(of: &Warning) -> Markup {
    let named = of.at.iter().take(MOST_NAMED);
    html! {
        li {
            @if of.fails { strong class="bad" { "✗ Must not ship: " } } @else { span class="warn" { "▲ " } }
            (of.title) "."
            @if of.at.len() > 3 {
                details { summary { "Where" } ul { @for at in named { li { (at) } } } (more(of.at.len(), MOST_NAMED)) }
            } @else if !of.at.is_empty() {
                ul { @for at in named { li { (at) } } }
            }
        }
    }
}

pub fn review(plan: &Plan) -> Markup {
    let (threads, marked) = (threads(plan), marked(plan));
    let open = threads.iter().filter(|thread| thread.is_open()).count();
    let mut left = MOST_SAID;
    let mut shown = Vec::new();
    for thread in &threads {
        let size: usize = std::iter::once(&thread.first)
            .chain(&thread.replies)
            .map(|of| of.text.len().min(TEXT_CHARACTERS) + 300)
            .sum();
        if size > left {
            break;
        }
        left -= size;
        shown.push(thread);
    }
    html! {
        section {
            h2 { "Review " span class="count" { (count(threads.len())) } }
            @if threads.is_empty() && marked == Marked::default() {
                p { "Nobody has said anything yet." }
            } @else {
                p {
                    "Of " (counted_as(plan.sites.len(), "site", "sites")) ", " (count(marked.agreed)) " agreed to, "
                    (counted_as(marked.needs_work.len(), "needs", "need")) " work. "
                    (counted_as(threads.len(), "thread", "threads")) ", " (count(open)) " open."
                }
            }
            @if !marked.needs_work.is_empty() {
                ul { @for site in marked.needs_work.iter().take(MOST_NAMED) {
                    li { span class="warn" { "▲ " } span class="code" { (line(site.as_str(), NAME)) } " needs work" }
                } }
                (more(marked.needs_work.len(), MOST_NAMED))
            }
            @for of in &shown { (thread(of)) }
            (more(threads.len(), shown.len()))
        }
    }
}

fn thread(of: &Thread<'_>) -> Markup {
    html! {
        article class=(if of.is_open() { "thread open" } else { "thread" }) {
            h3 {
                bdi { (of.place()) }
                @match &of.first.resolved_by {
                    None => span class="state" { "○ open" },
                    Some(by) => span class="state" { "✓ resolved by " bdi { (line(by, NAME)) } },
                }
            }
            (comment(of.first))
            @for reply in of.replies.iter().take(MOST_NAMED) { div class="reply" { (comment(reply)) } }
            (more(of.replies.len(), MOST_NAMED))
        }
    }
}

fn comment(of: &Comment) -> Markup {
    html! {
        p class="by" { bdi { strong { (line(&of.by, NAME)) } } " " span class="when" { (of.at.to_string()) } }
        p class="said" dir="auto" { (block(&of.text, TEXT_CHARACTERS)) }
    }
}

pub fn mods(plan: &Plan) -> Markup {
    let mut sets: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    for (site, set) in &plan.mods {
        let names: Vec<&str> = set.0.iter().map(|kind| kind.label()).collect();
        sets.entry(names.join(", ")).or_default().push(line(site.as_str(), NAME));
    }
    html! {
        @if !sets.is_empty() {
            section {
                h2 { "Mods" }
                p { (crate::mods::MUST_BE_TRAINED) }
                @for (names, sites) in &sets {
                    h3 { (names) " " span class="count" { (counted_as(sites.len(), "site", "sites")) } }
                    p class="code" { (sites[..sites.len().min(MOST_NAMED)].join(", ")) }
                    (more(sites.len(), MOST_NAMED))
                }
            }
        }
    }
}

pub fn provenance(source: &Source<'_>) -> Markup {
    let plan = source.plan;
    let mut facts = vec![
        ("Plan", line(&plan.digest, NAME)),
        ("Trace", line(&plan.trace_digest, NAME)),
        ("Results", line(&plan.results_digest, NAME)),
        ("Plan made", line(&plan.created_at, NAME)),
        ("Model", model(plan)),
        ("Times of", line(plan.device.as_deref().unwrap_or_default(), NAME)),
    ];
    if let Some(authors) = facts::authors(plan) {
        facts.push(("Authors", authors));
    }
    if let Some(results) = source.results {
        facts.extend(measured(&results.meta));
    }
    facts.push(("LoKA", env!("CARGO_PKG_VERSION").to_owned()));
    let policy = serde_json::to_string_pretty(&plan.policy).unwrap_or_default();
    html! {
        section {
            h2 { "Provenance" }
            dl class="facts" { @for (name, value) in &facts { @if !value.is_empty() { dt { (name) } dd class="code" { (value) } } } }
            h3 { "Policy" }
            pre { (block(&policy, TEXT_CHARACTERS)) }
        }
    }
}

fn model(plan: &Plan) -> String {
    let model = &plan.model;
    let mut parts = vec![line(&model.name, NAME), line(&model.family, NAME), line(&model.framework, NAME)];
    if model.parameters > 0 {
        parts.push(format!("{} parameters", count(model.parameters as usize)));
    }
    parts.extend(model.note.as_ref().map(|note| line(note, SENTENCE)));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

fn measured(meta: &ResultsMeta) -> Vec<(&'static str, String)> {
    let run = &meta.manifest.run;
    vec![
        (
            "Recorded",
            format!("run {}, step {}, {}", line(&run.id, NAME), count(run.step as usize), line(&run.device, NAME)),
        ),
        (
            "Loss",
            format!("{} {}", line(&meta.manifest.loss.name, NAME), crate::format::short(meta.manifest.loss.value)),
        ),
        (
            "Sites' share of matmul FLOPs",
            match meta.manifest.flop_coverage() {
                Ok(coverage) => coverage.percent(coverage.sites),
                Err(why) => line(&why, NAME),
            },
        ),
        ("Engine", line(&meta.engine, NAME)),
        ("Device", line(&meta.device, NAME)),
        ("Driver", line(&meta.driver, NAME)),
        ("Versions", line(&meta.versions, SENTENCE)),
        ("Probed", line(&meta.time, NAME)),
        ("Seed, confidence", format!("{}, {}", meta.seed, meta.confidence)),
        (
            "Not probed",
            meta.problems
                .iter()
                .take(20)
                .map(|(site, why)| line(&format!("{site}: {why}"), SENTENCE))
                .collect::<Vec<_>>()
                .join("; "),
        ),
    ]
}
