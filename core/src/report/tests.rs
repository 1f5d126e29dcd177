//! Reports of made-up plans: what a reviewer reads in them, that nobody's text is more than text, and how large they
//! get.

use serde_json::Value;

use super::*;
use crate::{
    dispatch::{
        Override, Overrides, Policy,
        testing::{Dice, results, row, unsupported},
    },
    model::{Gemm, KernelId, ModKind, ModSet, Moment, ResultRow, SiteId, SiteMods},
    plan::{build, standing},
    review::{Approval, ApprovalRule, Comment, Review, Role, SecretKey, Statement},
};

mod figures;

const FAST: &str = "cublaslt/fp8-rowwise+fast";
const AT: &str = "2026-11-20T12:00:00Z";

/// What people might be called, or write, who wish the reader ill.
const NASTY: [&str; 22] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "]]><svg onload=alert(1)>",
    "&lt;b&gt; &amp; &#60;i&#62;",
    "</title></style></head><body>",
    "<!-- --><iframe src=//evil.example>",
    "pay\u{202e}fdp.exe\u{2066}",
    "two\nlines\r\n\n# heading",
    "`code` ``` fence",
    "```\n</pre>\n# out\n````",
    "~~~\n- [ ] task",
    "[link](https://evil.example) ![image](https://evil.example/x.png)",
    "@somebody @team/reviewers",
    "#123 GH-7 owner/repo#9 fixes #1",
    "https://evil.example www.evil.example <mailto:a@b.example>",
    "a | b \\| c \\\\| d",
    "| x |\n|---|\n| y |",
    "1. one\n* two\n> quote\n---",
    "\\",
    "\u{0}\u{7}\u{1b}[31m\u{200b}\u{feff}",
    "$$x$$ :smile: &copy; ~~no~~ **bold** __b__",
];

fn source<'a>(plan: &'a Plan, results: Option<&'a Results>) -> Source<'a> {
    Source::new(plan, results, standing(plan, None, None)).unwrap()
}

fn comment(id: u64, site: Option<&str>, reply_to: Option<u64>, by: &str, text: &str) -> Comment {
    let (site, gemm, at) = (site.map(SiteId::new), None, Moment::parse(AT).unwrap());
    Comment { id, site, gemm, reply_to, by: by.to_owned(), at, text: text.to_owned(), resolved_by: None }
}

fn signed(plan: &Plan, name: &str, note: &str) -> Approval {
    let key = SecretKey::new("key", &[7; 32]).unwrap();
    let (digest, review_digest, at) = (plan.digest.clone(), plan.review_digest(), Moment::parse(AT).unwrap());
    let (name, role, note) = (name.to_owned(), Role::Approver, note.to_owned());
    Approval::sign(Statement { digest, review_digest, name, role, at, note }, &key)
}

fn small_results() -> Results {
    let mut rows: Vec<ResultRow> = Vec::new();
    for (site, error, speedup) in
        [("net.0.a", 0.1, 1.3), ("net.0.b", 0.5, 1.4), ("net.1.a", 0.2, 1.2), ("top", 0.1, 0.9)]
    {
        rows.extend(Gemm::ALL.map(|gemm| row(site, gemm, FAST, error, Some(speedup), 1e-6)));
        rows.push(unsupported(site, Gemm::Fprop, "deepgemm/blockwise", "k = 32 is not a multiple of 128"));
    }
    results(&["net.0.a", "net.0.b", "net.1.a", "top"], rows)
}

/// With an override, a review, and one of two approvals.
fn small_plan(results: &Results) -> Plan {
    let policy = Policy { approval: Some(ApprovalRule::of(2)), ..Policy::paper() };
    let by_hand = Override { kernel: KernelId::new(FAST), reason: "the head is small".to_owned() };
    let overrides = Overrides::from([((SiteId::new("net.0.b"), Gemm::Dgrad), by_hand)]);
    let mut plan = build(results, &policy, &SiteMods::none(), &overrides, "nightly", "").unwrap().plan;
    plan.authors = vec!["Olga".to_owned()];
    plan.release = Some(2);
    plan.stamp(AT.to_owned());
    let mut review = Review::default();
    review.comments.push(comment(1, None, None, "Anna", "Looks fine.\nWhat of the head?"));
    review.comments.push(comment(2, None, Some(1), "Bo", "Small."));
    review
        .comments
        .push(Comment { resolved_by: Some("Anna".to_owned()), ..comment(3, Some("top"), None, "Anna", "Slow.") });
    review.comments.push(comment(4, Some("net.0.a"), Some(99), "Cy", "To nobody."));
    plan.review = Some(review);
    plan.approvals = vec![signed(&plan, "Anna", "go")];
    plan
}

#[test]
fn a_reviewer_finds_the_parts_in_order() {
    let results = small_results();
    let plan = small_plan(&results);
    let page = html(&source(&plan, Some(&results)));
    let parts = [
        "<h1>nightly</h1>",
        "Not approved: 1 of 2 approvals by an approver or an owner, not by an author (release 2)",
        "Speed-up of all GEMMs",
        "4 of 12",
        "MERE at most .2 and more than 1.05× BF16",
        "<h2>Approvals</h2>",
        "✓ yes",
        "<h2>Error and speed</h2>",
        "<h2>Errors by site, GEMM and kernel</h2>",
        "<h2>Overrides",
        "Decided by <bdi>Olga</bdi>",
        "the head is small",
        "<h2>Warnings</h2>",
        "Must not ship: </strong>1 choice breaks the policy",
        "stay in BF16 as no kernel is certainly safe",
        "<h2>Decisions</h2>",
        "net.0.*",
        "none is safe",
        "<h2>Review",
        "The plan as a whole",
        "Looks fine.\nWhat of the head?",
        "Small.",
        "To nobody.",
        "✓ resolved by <bdi>Anna</bdi>",
        "<h2>Provenance</h2>",
        &plan.digest,
        "a test",
    ];
    let mut from = 0;
    for part in parts {
        from +=
            page[from..].find(part).unwrap_or_else(|| panic!("'{part}' is not after byte {from}:\n{}", &page[from..]));
    }
    assert_eq!(page, html(&source(&plan, Some(&results))), "the same bytes");
}

#[test]
fn the_plan_alone_says_what_it_can() {
    let results = small_results();
    let plan = small_plan(&results);
    let page = html(&source(&plan, None));
    for part in ["From the plan alone", "the plan was not checked", "the head is small", "safe &amp; fast · 3"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("of the BF16 time"));
}

#[test]
fn other_results_are_refused() {
    let results = small_results();
    let plan = small_plan(&results);
    let mut other = results.clone();
    other.rows[0].error = None;
    let error = Source::new(&plan, Some(&other), standing(&plan, None, None)).unwrap_err().to_string();
    assert!(error.starts_with("the plan was made from other results: sha256:"), "{error}");
}

/// Everything that a person or a file can say is nasty.
fn nasty_plan(text: &str) -> (Plan, Results) {
    let policy = Policy { name: text.to_owned(), approval: Some(ApprovalRule::of(1)), ..Policy::paper() };
    let names = [format!("{text}.{text}"), "a.b".to_owned()];
    let rows = Gemm::ALL.map(|gemm| row(&names[0], gemm, FAST, 0.1, Some(1.3), 1e-6));
    let mut results = results(&names.each_ref().map(String::as_str), rows.to_vec());
    let meta = &mut results.meta;
    for said in [&mut meta.device, &mut meta.driver, &mut meta.versions, &mut meta.engine, &mut meta.time] {
        text.clone_into(said);
    }
    meta.manifest.model.name = text.to_owned();
    meta.manifest.model.note = Some(text.to_owned());
    meta.manifest.run.id = text.to_owned();
    meta.manifest.loss.name = text.to_owned();
    meta.problems = vec![(SiteId::new(text), text.to_owned())];
    let by_hand = Override { kernel: KernelId::new(FAST), reason: text.to_owned() };
    let overrides = Overrides::from([((SiteId::new(&names[0]), Gemm::Dgrad), by_hand)]);
    let mods = SiteMods::none();
    let mut plan = build(&results, &policy, &mods, &overrides, text, text).unwrap().plan;
    plan.mods = [(SiteId::new(text), ModSet([ModKind::NoBias].into()))].into();
    plan.sites[1].wgrad.reason = text.to_owned();
    plan.sites[1].dgrad.kernel = KernelId::new(text);
    plan.authors = vec![text.to_owned()];
    plan.stamp(text.to_owned());
    let mut review = Review::default();
    review.comments.push(comment(1, Some(text), None, text, text));
    review.comments.push(comment(2, None, Some(1), text, text));
    review.comments.push(Comment { resolved_by: Some(text.to_owned()), ..comment(3, None, None, text, text) });
    plan.review = Some(review);
    plan.draft = Some(text.to_owned());
    plan.approvals = vec![signed(&plan, text, text)];
    (plan, results)
}

/// The tags of a page, without what stands in quotes.
fn tags(page: &str) -> std::collections::BTreeSet<String> {
    let name = |rest: &str| {
        rest.split(|c: char| !(c.is_ascii_alphanumeric() || "!/-".contains(c))).next().map(str::to_lowercase)
    };
    page.split('<').skip(1).filter_map(name).collect()
}

#[test]
fn nobodys_text_is_more_than_text() {
    let (harmless, results) = nasty_plan("x");
    let known = tags(&html(&source(&harmless, Some(&results))));
    assert!(known.contains("table") && !known.contains("script"), "{known:?}");
    for text in NASTY {
        let (plan, results) = nasty_plan(text);
        for page in [html(&source(&plan, Some(&results))), html(&source(&plan, None))] {
            assert!(tags(&page).is_subset(&known), "{text}: {:?}", tags(&page).difference(&known));
            for bad in ["<script", "<img", "<iframe", "javascript:", "url("] {
                assert!(!page.contains(bad), "{text}: {bad}");
            }
            assert!(!page.contains("\" onmouseover"), "{text}");
            for hidden in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{0}', '\u{1b}', '\r'] {
                assert!(!page.contains(hidden), "{text}: U+{:04X}", u32::from(hidden));
            }
        }
    }
}

#[test]
fn the_page_may_do_nothing() {
    let results = small_results();
    let plan = small_plan(&results);
    let page = html(&source(&plan, Some(&results)));
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">";
    let at = page.find(policy).unwrap();
    assert!(at < page.find("<style").unwrap() && at < page.find("<title").unwrap(), "before anything it must hold");
    for word in ["http://", "https://", "<a ", "<link", "<form", "src=", "href="] {
        assert!(!page.contains(word), "{word}");
    }
}

/// The lines of Markdown outside of fences, without what stands in code.
fn outside_code(text: &str) -> String {
    let (mut fence, mut shown) = (None::<usize>, String::new());
    for line in text.lines() {
        let ticks = line.bytes().take_while(|byte| *byte == b'`').count();
        match fence {
            Some(open) if ticks >= open && line[ticks..].trim().is_empty() => fence = None,
            Some(_) => {}
            None if ticks >= 3 && !line[ticks..].contains('`') => fence = Some(ticks),
            None => {
                shown.push_str(&without_spans(line));
                shown.push('\n');
            }
        }
    }
    assert_eq!(fence, None, "a fence is open at the end:\n{text}");
    shown
}

fn without_spans(line: &str) -> String {
    let (mut rest, mut shown) = (line, String::new());
    while let Some(at) = rest.find('`') {
        let ticks = rest[at..].bytes().take_while(|byte| *byte == b'`').count();
        let inner = &rest[at + ticks..];
        let mut from = 0;
        let end = loop {
            let next = inner[from..].find('`').unwrap_or_else(|| panic!("code without an end: {line}")) + from;
            let run = inner[next..].bytes().take_while(|byte| *byte == b'`').count();
            if run == ticks {
                break next;
            }
            from = next + run;
        };
        assert!(!inner[..end].contains('|'), "a pipe ends the cell even in code: {line}");
        shown.push_str(&rest[..at]);
        shown.push_str("CODE");
        rest = &inner[end + ticks..];
    }
    shown + rest
}

#[test]
fn markdown_of_nasty_texts_is_the_markdown_of_harmless_ones() {
    let (harmless, results) = nasty_plan("x");
    let known = outside_code(&markdown(&source(&harmless, Some(&results))));
    assert!(known.contains("### Overrides: 1") && known.contains("| CODE | dgrad | CODE | CODE |"), "{known}");
    for text in NASTY {
        let (plan, results) = nasty_plan(text);
        let shown = outside_code(&markdown(&source(&plan, Some(&results))));
        assert_eq!(shown, known, "{text}");
    }
    for line in known.lines() {
        assert!(!line.contains('@') && !line.contains('<') && !line.contains("!["), "{line}");
    }
}

#[test]
fn markdown_has_what_a_pull_request_needs() {
    let results = small_results();
    let plan = small_plan(&results);
    let text = markdown(&source(&plan, Some(&results)));
    for part in [
        "## LoKA report: `nightly`",
        "⏳ **Not approved: 1 of 2 approvals",
        "- GEMMs in FP8: **4 of 12**",
        "| `Anna` | approver | 2026-11-20T12:00:00Z | yes | `go` |",
        "### In low precision: 3 GEMMs",
        "| `net.0.b` | dgrad | `cublaslt/fp8-rowwise+fast` | `the head is small",
        "### Comments: 2 open, 1 resolved",
        "```text\nLooks fine.\nWhat of the head?\n```",
        "### In high precision: 8 GEMMs",
        &plan.digest,
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("Slow."), "resolved ones are in the report");
}

/// As many sites as asked for, with eight kernels' rows.
fn large(num_sites: usize) -> (Plan, Results) {
    let mut dice = Dice::new(3);
    let names: Vec<String> = (0..num_sites).map(|at| format!("net.layers.{}.fmb.mlp.{}", at / 3, at % 3)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let kernels = [
        FAST,
        "cublaslt/fp8-rowwise",
        "te/current",
        "te/blockwise",
        "torchao/rowwise",
        "fbgemm/rowwise",
        "deepgemm/blockwise",
    ];
    let mut rows = Vec::new();
    for name in &names {
        for gemm in Gemm::ALL {
            rows.extend(
                kernels.map(|kernel| row(name, gemm, kernel, 0.4 * dice.unit(), Some(0.6 + dice.unit()), 1e-9)),
            );
        }
    }
    let results = results(&names, rows);
    let overrides: Overrides = (0..num_sites / 10)
        .map(|at| {
            let by_hand = Override {
                kernel: KernelId::new("cublaslt/bf16"),
                reason: "a reason of some length, as people give it".to_owned(),
            };
            ((SiteId::new(names[10 * at]), Gemm::Fprop), by_hand)
        })
        .collect();
    let mut plan = build(&results, &Policy::paper(), &SiteMods::none(), &overrides, "large", "").unwrap().plan;
    let mut review = Review::default();
    for id in 1..=2_000 {
        review.comments.push(comment(id, Some(names[id as usize % num_sites]), None, "Anna", &"word ".repeat(300)));
    }
    plan.review = Some(review);
    plan.stamp(AT.to_owned());
    (plan, results)
}

#[test]
fn ten_thousand_sites_are_five_megabytes_at_most() {
    let (plan, results) = large(10_000);
    for results in [Some(&results), None] {
        let page = html(&source(&plan, results));
        assert!(page.len() < 5_000_000, "{} bytes", page.len());
        assert!(page.contains("10,000 sites in 200 rows"), "folded");
        assert!(page.contains("more are in the plan"), "what is left out is said");
    }
    let text = markdown(&source(&plan, Some(&results)));
    assert!((10_000..60_000).contains(&text.len()), "{} bytes", text.len());
    outside_code(&text);
}

#[test]
fn a_comment_beyond_all_bounds_is_cut() {
    let results = small_results();
    let mut plan = small_plan(&results);
    let long = "x".repeat(10_000_000);
    let review = plan.review.as_mut().unwrap();
    review.comments.push(comment(5, Some(&long), None, &long, &long));
    plan.draft = Some(long.clone());
    plan.name = long;
    let source = source(&plan, Some(&results));
    assert!(html(&source).len() < 200_000);
    assert!(markdown(&source).len() < 60_000);
}

#[test]
fn a_plan_of_nothing_has_a_report() {
    let results = results(&[], Vec::new());
    let plan = build(&results, &Policy::paper(), &SiteMods::none(), &Overrides::new(), "", "").unwrap().plan;
    let page = html(&source(&plan, Some(&results)));
    assert!(page.contains("No error is known.") && page.contains("The policy asks for no approval"));
    assert!(markdown(&source(&plan, None)).contains("(empty)"));
    let again: Value = serde_json::from_str(&plan.to_json()).unwrap();
    assert_eq!(again["digest"], plan.digest.as_str());
}
