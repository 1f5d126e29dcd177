//! Filters as people type them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::{
    dispatch::testing::{results, row},
    model::KernelId,
    session::{Event, Session},
    views::{ViewQuery, Views},
};

fn compile(pattern: &str) -> Result<Matcher, String> {
    // Enough of a regular expression for these tests: `^` and text.
    if pattern.contains('(') {
        return Err("unclosed group".to_owned());
    }
    let (anchored, text) = pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
    let text = text.to_owned();
    Ok(Box::new(move |name| if anchored { name.starts_with(&text) } else { name.contains(&text) }))
}

fn session() -> Session {
    let sites = ["net.layers.1.mlp", "net.layers.10.mlp", "net.head", "Wide:net"];
    let fast = "cublaslt/fp8-rowwise+fast";
    let rows = vec![
        row(sites[0], Gemm::Fprop, fast, 0.1, Some(1.3), 0.0),
        row(sites[0], Gemm::Wgrad, fast, 0.9, Some(1.3), 0.0),
        row(sites[1], Gemm::Fprop, "torchao/rowwise", 0.9, Some(1.3), 0.0),
        row(sites[1], Gemm::Fprop, fast, 0.1, Some(1.0), 0.0),
        row(sites[2], Gemm::Fprop, fast, 0.2, Some(1.3), 0.0),
    ];
    let mut session = Session::by_paper();
    let results = Box::new(results(&sites, rows).into());
    session.event(Event::ResultsOpened { path: "made.results.parquet".to_owned(), results });
    session
}

fn shown(text: &str) -> Vec<usize> {
    let session = session();
    let question = ViewQuery { metric: crate::model::Metric::Mere, gemm: None, relative: false, versus: false };
    let views = Views::of(&session.snapshot().unwrap(), question, &Views::default());
    let snapshot = session.snapshot().unwrap();
    let facts = Facts::of(&snapshot, &views.standings, [SiteId::new("net.head")].into_iter());
    let filter = Filter::read(text, &compile).unwrap();
    (0..4).filter(|site| filter.shows_site(&facts, *site)).collect()
}

#[test]
fn names_by_text_regex_and_module() {
    assert_eq!(shown(""), [0, 1, 2, 3]);
    assert_eq!(shown("MLP"), [0, 1]);
    assert_eq!(shown("-mlp"), [2, 3]);
    assert_eq!(shown("net layers"), [0, 1], "all words must be there");
    assert_eq!(shown("/^net.l/"), [0, 1]);
    assert_eq!(shown("-/^net/"), [3]);
    assert_eq!(shown("module:net.layers.1"), [0], "not layers.10");
    assert_eq!(shown("module:net.layers.1 module:net.head"), [0, 2], "one or the other");
    assert_eq!(shown("-module:net.layers"), [2, 3]);
    assert_eq!(shown("\"wide:\""), [3], "quoted, a colon is a character");
    assert_eq!(shown("wide:net"), [3], "and no key of ours is one either");
}

#[test]
fn verdicts_over_the_kernels_that_are_left() {
    assert_eq!(shown("verdict:fast"), [0]);
    assert_eq!(shown("verdict:slow"), [1]);
    assert_eq!(shown("verdict:safe"), [0, 1]);
    assert_eq!(shown("verdict:unsafe"), [0], "wgrad of the first; the second has a safe kernel");
    assert_eq!(shown("verdict:unsafe gemm:fprop"), Vec::<usize>::new());
    assert_eq!(shown("verdict:unsafe lib:torchao"), [1]);
    assert_eq!(shown("verdict:uncertain verdict:slow"), [1, 2]);
    assert_eq!(shown("verdict:waiting"), [3]);
    assert_eq!(shown("-verdict:waiting"), [0, 1, 2]);
    assert_eq!(shown("lib:torchao"), [1, 3], "and what nobody has probed yet");
    assert_eq!(shown("is:selected"), [2]);
    assert_eq!(shown("is:overridden"), Vec::<usize>::new());
}

#[test]
fn columns_by_gemm_and_library() {
    let column = |gemm, kernel| Column { gemm, kernel: KernelId::new(kernel) };
    let shows = |text: &str, gemm, kernel| Filter::read(text, &compile).unwrap().shows_column(&column(gemm, kernel));
    assert!(shows("mlp", Gemm::Fprop, "te/current"));
    assert!(shows("gemm:dgrad lib:te", Gemm::Dgrad, "te/current"));
    assert!(!shows("gemm:dgrad", Gemm::Fprop, "te/current"));
    assert!(!shows("lib:torchao", Gemm::Fprop, "te/current"));
    assert!(!shows("-lib:te", Gemm::Fprop, "te/current"));
    assert!(shows("-lib:te", Gemm::Fprop, "torchao/rowwise"));
}

#[test]
fn what_is_wrong_is_said_and_what_is_half_typed_is_not() {
    let error = |text: &str| Filter::read(text, &compile).err().map(|error| error.to_string());
    assert_eq!(error("/a(/").unwrap(), "/a(/ is no regular expression: unclosed group");
    assert!(error("verdict:fats").unwrap().contains("“fats” (there are fast, slow"));
    assert!(error("gemm:x").is_some() && error("is:x").is_some());
    for half in ["verdict:", "/ml", "\"net", "-", "module:", "mlp -"] {
        assert_eq!(error(half), None, "{half}");
        assert!(!shown(half).is_empty(), "{half}");
    }
}

#[test]
fn figures_are_held_against_numbers() {
    assert_eq!(shown("gain>1.2"), [0], "of kernels that are safe");
    assert_eq!(shown("wgrad.mere>.2"), [0]);
    assert_eq!(shown("mere<=.2"), [1, 2]);
    assert_eq!(shown("-fprop.mere<.15"), [2, 3], "what is not known is on no side");
    assert_eq!(shown("m>0").len(), 4);
    assert_eq!(shown("gain>").len(), 4, "half typed");
    assert_eq!(shown("gain>1e-").len(), 4, "half typed");
    let refused = |text: &str| Filter::read(text, &compile).unwrap_err().to_string();
    assert_eq!(refused("gain>fast"), "“fast” is no number");
    assert!(
        refused("speed>1").starts_with("no figure: is called “speed” (there are m, k, n, loss"),
        "{}",
        refused("speed>1")
    );
}

#[test]
fn every_term_that_the_menu_offers_can_be_read() {
    for help in TERMS {
        assert!(Filter::read(help.term, &compile).is_ok_and(|filter| !filter.is_empty()), "{}", help.term);
    }
}

#[test]
fn capitals_make_no_difference_in_any_script() {
    let ids = ["net.mlp", "Net.MLP", "ÜBER.ΟΔΟΣ"].map(SiteId::new);
    let shown = |text: &str| {
        let filter = Filter::read(text, &compile).unwrap();
        (0..ids.len()).filter(|site| filter.shows_site(&Facts::names(&ids), *site)).collect::<Vec<_>>()
    };
    assert_eq!((shown("Mlp"), shown("t.m"), shown("über"), shown("ΟΔ")), (vec![0, 1], vec![0, 1], vec![2], vec![2]));
    assert_eq!(shown("-mlp"), [2]);
}

#[test]
fn a_loss_cost_outside_its_range_is_no_figure() {
    let costs = |site: &str, cost: f64| row(site, Gemm::Fprop, "te/current", 0.1, Some(1.3), cost);
    let mut session = Session::by_paper();
    let results = results(&["beyond", "within"], vec![costs("beyond", 0.06), costs("within", 0.04)]);
    session.event(Event::ResultsOpened { path: "r".to_owned(), results: Box::new(results.into()) });
    let snapshot = session.snapshot().unwrap();
    let question = ViewQuery { metric: Metric::LossCost, gemm: None, relative: false, versus: false };
    let views = Views::of(&snapshot, question, &Views::default());
    let facts = Facts::of(&snapshot, &views.standings, std::iter::empty());
    let of = |site| facts.metric(None, Metric::LossCost, site);
    assert_eq!((of(0), of(1)), (None, Some(0.04)));
}
