//! What a page without a server does, by the same code and natively: files in memory, plans and results that are the
//! program's own, addresses that hold what is seen.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use loka::{
    LokaApp,
    executor::{Fetched, MemoryFiles, Outside, PageExecutor},
    layout::Pane,
    link::InProcess,
    platform::ThreadExecutor,
    window::alternative::{Alternative, Told},
    window::{
        address::Address,
        url_sync::{AddressStep, UrlSync},
    },
};
use loka_core::{
    dispatch::Policy,
    export::Target,
    model::{Gemm, Metric},
    plan::Plan,
    runtime::{Executor, Report},
    session::{Command, Event, NoticeKind, Session},
    tables,
};
use loka_tests::{big, sample};

/// A browser whose downloads are a list.
#[derive(Clone, Default)]
struct Browser(Rc<RefCell<BTreeMap<String, Vec<u8>>>>);

impl Outside for Browser {
    fn save(&self, name: &str, bytes: Vec<u8>) -> Result<(), String> {
        self.0.borrow_mut().insert(name.to_owned(), bytes);
        Ok(())
    }

    fn fetch(&self, _: &str) {}

    fn fetched(&self) -> Option<Fetched> {
        None
    }

    fn busy(&self) -> Option<String> {
        None
    }
}

fn page(memory: MemoryFiles, browser: &Browser) -> PageExecutor {
    PageExecutor::new(memory, Box::new(browser.clone()), Arc::new(|| ()))
}

/// Carries a command out and gives the session what comes of it, until that.
fn obey(session: &mut Session, executor: &mut dyn Executor, command: Command, until: fn(&Event) -> bool) {
    session.command(command).unwrap().into_iter().for_each(|effect| executor.run(effect));
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing came");
        let Some(event) = executor.poll().and_then(Report::event) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        if let Event::OpenFailed { message } | Event::WriteFailed { message } = &event {
            panic!("{message}");
        }
        let done = until(&event);
        session.event(event);
        if done {
            return;
        }
    }
}

/// Rows opened, a policy, a threshold, a mod and an override chosen, plan and results written.
fn work(executor: &mut dyn Executor, results: &str, [plan, rows, quark, report]: [&str; 4]) {
    let mut session = Session::default();
    let open = Command::OpenResults { path: results.to_owned() };
    obey(&mut session, executor, open, |event| matches!(event, Event::ResultsOpened { .. }));
    let row = session.rows().find(|row| row.supported && row.gemm == Gemm::Dgrad).unwrap();
    let (site, gemm, kernel) = (row.site.clone(), row.gemm, row.kernel.clone());
    for command in [
        Command::SetPolicy { policy: Policy::builtin("rel-l2").unwrap() },
        Command::SetMaxError { value: 0.07, gesture: None },
        Command::SetOverride { site, gemm, kernel, reason: "measured it".to_owned() },
    ] {
        assert_eq!(session.command(command).unwrap(), []);
    }
    let written: fn(&Event) -> bool = |event| matches!(event, Event::Written { .. });
    obey(&mut session, executor, Command::ExportPlan { path: plan.to_owned() }, written);
    obey(&mut session, executor, Command::SaveResults { path: rows.to_owned() }, written);
    obey(&mut session, executor, Command::ExportTo { path: quark.to_owned(), target: Target::Quark }, written);
    obey(&mut session, executor, Command::ExportReport { path: report.to_owned() }, written);
}

#[test]
fn a_page_writes_what_the_program_writes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let made = big::results(40, 7);
    tables::write_results(at("r.results.parquet").as_ref(), &made).unwrap();
    let mut program = ThreadExecutor::new(Arc::new(|| ()));
    work(
        &mut program,
        &at("r.results.parquet"),
        [&at("p.plan.json"), &at("s.results.parquet"), &at("q.json"), &at("r.html")],
    );

    let (memory, browser) = (MemoryFiles::default(), Browser::default());
    memory.put("r.results.parquet", std::fs::read(at("r.results.parquet")).unwrap().into()).unwrap();
    work(&mut page(memory, &browser), "r.results.parquet", ["p.plan.json", "s.results.parquet", "q.json", "r.html"]);

    let saved = browser.0.borrow();
    let dated_alike = |text: &str| {
        // Reading checks the digest that each was given.
        let mut plan = Plan::from_json(text).unwrap();
        plan.stamp("2026-11-21T00:00:00Z".to_owned());
        plan.to_json()
    };
    let mine = std::fs::read_to_string(at("p.plan.json")).unwrap();
    let pages = String::from_utf8(saved["p.plan.json"].clone()).unwrap();
    assert_eq!(dated_alike(&pages), dated_alike(&mine));
    let rows = tables::results_from_bytes("s", saved["s.results.parquet"].clone()).unwrap();
    assert_eq!(rows, tables::read_results(at("s.results.parquet").as_ref()).unwrap());
    std::fs::write(at("page.results.parquet"), &saved["s.results.parquet"]).unwrap();
    assert_eq!(rows, tables::read_results(at("page.results.parquet").as_ref()).unwrap());

    let text = |name: &str| String::from_utf8(saved[name].clone()).unwrap();
    assert_eq!(text("q.json"), std::fs::read_to_string(at("q.json")).unwrap());
    for name in ["q.json.provenance.json", "r.html"] {
        // Of the plan that was saved before, by its digest, here and there.
        let there = std::fs::read_to_string(at(name)).unwrap();
        let digest = |plan: &str| Plan::from_json(plan).unwrap().digest;
        assert!(text(name).contains(&digest(&pages)) && there.contains(&digest(&mine)), "{name}");
    }
    assert!(!text("r.html").contains("From the plan alone"), "with its rows");
}

/// A window on files in memory, after so many frames.
fn window(files: &[(&str, Vec<u8>)], frames: usize) -> (LokaApp, egui::Context) {
    let memory = MemoryFiles::default();
    for (name, bytes) in files {
        memory.put(name, bytes.clone().into()).unwrap();
    }
    let mut app = LokaApp::new(Box::new(InProcess::new(page(memory, &Browser::default()))));
    let ctx = egui::Context::default();
    app.tick(&ctx);
    app.open_all(files.iter().map(|(name, _)| (*name).to_owned()).collect());
    for _ in 0..frames {
        app.tick(&ctx);
    }
    (app, ctx)
}

fn rows() -> (&'static str, Vec<u8>) {
    ("r.results.parquet", tables::results_to_bytes(&big::results(40, 7)).unwrap())
}

#[test]
fn a_trace_without_rows_is_no_error() {
    let (mut app, ctx) = window(&[("a.trace.safetensors", std::fs::read(sample()).unwrap())], 12);
    // A trace's digest is read between frames, as far as each leaves time: on a busy machine that takes more of them.
    let is_read = |app: &LokaApp| app.session().trace.as_ref().is_some_and(|trace| !trace.meta.trace_digest.is_empty());
    for _ in 0..2_000 {
        if is_read(&app) {
            break;
        }
        app.tick(&ctx);
    }
    let session = app.session();
    assert!(session.trace.as_ref().is_some_and(|trace| !trace.meta.trace_digest.is_empty()));
    let notices: Vec<_> = session.notices.iter().map(|notice| (notice.kind, notice.text.as_str())).collect();
    let [(NoticeKind::Info, line)] = notices.as_slice() else { panic!("{notices:?}") };
    assert!(line.starts_with("There are no rows yet: a page on its own has no engine"), "{line}");
}

#[test]
fn an_address_is_followed_and_kept() {
    let mut url_sync = UrlSync::default();
    let site = big::site_name(7);
    url_sync.go(&format!("#site={site}&view=quadrant&metric=rel_l2&gemm=wgrad&filter=mlp"));
    let (mut app, ctx) = window(&[], 1);
    assert_eq!(url_sync.tick(&mut app, 0.0), AddressStep::Rest, "it waits for a trace");
    (app, _) = window(&[rows()], 12);
    assert_eq!(url_sync.tick(&mut app, 1.0), AddressStep::Rest, "it says already what is seen");
    app.tick(&ctx);
    let seen = Address::of(app.view());
    assert_eq!(seen.site.as_ref().map(|site| site.as_str().to_owned()), Some(site));
    assert_eq!(
        (seen.view, seen.metric, seen.gemm),
        (Some(Pane::Quadrant), Some(Metric::RelL2), Some(Some(Gemm::Wgrad)))
    );
    assert_eq!(app.view().filter, "mlp");

    app.view_mut().filter.clear();
    let AddressStep::Write(text) = url_sync.tick(&mut app, 2.0) else { panic!("not written") };
    assert!(text.ends_with("gemm=wgrad"), "{text}");
    app.view_mut().gemm = None;
    let AddressStep::Later(left) = url_sync.tick(&mut app, 2.1) else { panic!("too often") };
    assert!((0.2..0.4).contains(&left), "{left}");
    assert!(matches!(url_sync.tick(&mut app, 3.0), AddressStep::Write(text) if text.ends_with("gemm=all")));
    assert_eq!(url_sync.tick(&mut app, 4.0), AddressStep::Rest);
}

/// What a screen reader finds behind the canvas.
#[test]
fn what_is_seen_is_there_as_text() {
    let (mut app, ctx) = window(&[rows()], 12);
    let mut told = Told::default();
    let Alternative::Text(html) = app.alternative(&mut told, 0.0) else { panic!("not told") };
    let answer = app.session().snapshot().is_some();
    assert!(answer && html.contains("<caption>Plan: the kernel of each GEMM</caption>"), "{html}");
    let sites = app.session().sites().len();
    assert_eq!(html.matches("<th scope=\"row\">").count(), sites + 3 * sites, "each site, and each of its GEMMs");
    assert!(html.contains(&big::site_name(7)) && html.contains("Review: marks and comments: none."), "{html}");
    assert_eq!(app.alternative(&mut told, 1.0), Alternative::Same, "told already");
    app.tick(&ctx);
    assert_eq!(app.alternative(&mut told, 2.0), Alternative::Same);
    let mut now = 2.0;
    for change in [Command::SetPolicy { policy: Policy::paper() }, Command::Undo] {
        app.command(change);
        (0..3).for_each(|_| app.tick(&ctx));
        now += 1.0;
        let Alternative::Later(rest) = app.alternative(&mut told, now) else { panic!("at once") };
        now += rest;
        let Alternative::Text(html) = app.alternative(&mut told, now) else { panic!("not told") };
        let policy = &app.session().document.policy.name;
        assert!(html.contains(&format!("<p>Policy {policy}.</p>")), "{html}");
        assert_eq!(app.alternative(&mut told, now), Alternative::Same);
    }
}

#[test]
fn an_address_of_another_trace_is_a_line() {
    let (mut app, _) = window(&[rows()], 12);
    let mut url_sync = UrlSync::default();
    url_sync.go("site=nowhere&view=plan");
    url_sync.tick(&mut app, 1.0);
    let last = app.session().notices.last().unwrap();
    assert_eq!(last.text, "The address names a site that this trace does not have: nowhere");
    assert_eq!(app.view().layout.active(), Pane::Plan);
}
