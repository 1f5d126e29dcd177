//! Every action of the table is carried out once in a real window, from the state that a person would be in,
//! and the frames after it are drawn. An action that this cannot reach fails the test.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use egui_kittest::Harness;
use loka::{
    LokaApp,
    commands::{Action, EditAction, SelectAction, WindowAction},
    link::InProcess,
    state::BrushShape,
};
use loka_core::{
    engine::EngineStatus,
    model::{Gemm, KernelId, ModSet, Results},
    plan::{self, Plan},
    runtime::{Executor, Report},
    session::{Command, Effect, Event},
    views::{BrushedRows, Column, Filter, ShownColumn},
};
use loka_tests::{big, scripted};

/// Answers every effect as an engine and a disk would.
struct Answering {
    results: Results,
    events: Rc<RefCell<VecDeque<Event>>>,
}

impl Executor for Answering {
    fn run(&mut self, effect: Effect) {
        let mut events = self.events.borrow_mut();
        match effect {
            Effect::Probe { run, mods, sites, engine, .. } => {
                let device = if engine == "cpu" { big::DEVICE } else { "NVIDIA H200" };
                // The cluster's nodes have such GPUs.
                let engine = if engine == "cluster" { "cuda".to_owned() } else { engine };
                let by = loka_core::session::Circumstances {
                    engine: engine.clone(),
                    device: device.to_owned(),
                    ..big::made_by(&self.results)
                };
                events.push_back(Event::ProbeStarted {
                    run,
                    mods: mods.clone(),
                    sites: sites.clone(),
                    by: Box::new(by),
                });
                let rows = self.results.rows.iter().filter(|row| sites.contains(&row.site)).cloned().map(|mut row| {
                    row.mods = mods.of(&row.site).clone();
                    (row.engine, row.device) = (engine.as_str().into(), device.into());
                    row
                });
                events.push_back(Event::Rows { run, rows: rows.collect() });
            }
            Effect::Inspect { trace, site } => {
                let outcome = Err("made up: there are no tensors".to_owned());
                events.push_back(Event::SiteInspected { trace, other: None, site, outcome });
            }
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Report> {
        self.events.borrow_mut().pop_front().map(Report::from)
    }
}

struct ActionWindow {
    harness: Harness<'static, LokaApp>,
    events: Rc<RefCell<VecDeque<Event>>>,
    results: Results,
    filter: &'static str,
}

impl ActionWindow {
    fn new() -> Self {
        let results = big::results(30, 5);
        let events = Rc::new(RefCell::new(VecDeque::from([big::opened(&results)])));
        let executor = Answering { results: results.clone(), events: events.clone() };
        let mut app = LokaApp::new(Box::new(InProcess::new(executor)));
        // As in a browser, where a link to what is seen can be copied.
        app.view_mut().page = Some("http://127.0.0.1/".to_owned());
        let harness = scripted::window(app, [1600.0, 1000.0]);
        let mut window = Self { harness, events, results, filter: "layers" };
        window.harness.run_steps(6);
        window
    }

    fn tell(&mut self, event: Event) {
        self.events.borrow_mut().push_back(event);
        self.harness.run_steps(4);
    }

    /// True if it did something.
    fn act(&mut self, action: Action) -> bool {
        if self.harness.state().performed().contains(&action) {
            return true;
        }
        self.harness.state_mut().act(action);
        self.harness.run_steps(3);
        if !self.harness.state().performed().contains(&action) {
            return false;
        }
        // What it opened is closed again, or it would be in the way of the next.
        for _ in 0..2 {
            self.harness.key_press(egui::Key::Escape);
            self.harness.run_steps(2);
        }
        true
    }

    /// Whatever can be done now, in the order of the table and against it: what one takes away another gives.
    fn everything(&mut self) {
        loop {
            let before = self.harness.state().performed().len();
            let all = Action::all();
            for action in all.iter().chain(all.iter().rev()) {
                // A change takes away what could be made again.
                if *action != Action::Edit(EditAction::Redo) {
                    self.look_at_a_kernel();
                }
                self.act(*action);
            }
            if self.harness.state().performed().len() == before {
                return;
            }
        }
    }

    /// Once: where one thing more is there, one action more can be.
    fn what_is_left(&mut self) {
        for action in Action::all() {
            if !self.harness.state().performed().contains(&action) {
                self.act(action);
            }
        }
    }

    /// A site in the middle and its fastest kernel: what most actions are about.
    fn look_at_a_kernel(&mut self) {
        let filter = self.filter;
        let site = self.results.meta.manifest.sites[4].id.clone();
        let column = Column { gemm: Gemm::Fprop, kernel: KernelId::new("cublaslt/fp8-blockwise") };
        let app = self.harness.state_mut();
        let known = app.session().row(&site, column.gemm, &column.kernel).is_some();
        let grid = &app.derived().grid;
        let mut columns = ShownColumn::all(grid, &Filter::default(), |_| true);
        columns.retain(|of| grid.columns[of.kernels[0]] == column);
        let brushed = BrushedRows::of_cells([4], grid, &columns);
        let at = BrushShape::Box([[0.0, 0.0], [0.0, 0.0]]);
        let free = !app.session().document.overrides.contains_key(&(site.clone(), column.gemm));
        let view = app.view_mut();
        view.select(site.clone(), known.then_some(column.clone()));
        view.filter = filter.to_owned();
        view.sites.order.grouped = true;
        if known {
            view.brush.take(brushed, at, false);
        }
        if known && free {
            let reason = "by hand".to_owned();
            app.command(Command::SetOverride { site, gemm: column.gemm, kernel: column.kernel, reason });
        }
    }

    fn finish(&mut self) {
        let Some(run) = self.harness.state().session().run.clone().filter(|run| run.running) else { return };
        self.tell(Event::ProbeFinished { run: run.id, cancelled: false, seconds: 1.0 });
    }
}

fn cuda() -> Event {
    let cuda = EngineStatus {
        name: "cuda".to_owned(),
        device: "NVIDIA H200".to_owned(),
        problem: None,
        ..EngineStatus::cpu()
    };
    Event::EnginesFound { engines: vec![cuda, cpu()] }
}

fn cluster() -> Event {
    let cluster = EngineStatus {
        name: "cluster".to_owned(),
        device: "NVIDIA H200".to_owned(),
        driver: "Ray 2.60.0 · 8 nodes".to_owned(),
        problem: None,
        ..EngineStatus::cpu()
    };
    Event::EnginesFound { engines: vec![cpu(), cluster] }
}

/// The machine that the rows are of.
fn cpu() -> EngineStatus {
    EngineStatus { device: big::DEVICE.to_owned(), ..EngineStatus::cpu() }
}

fn other_plan(results: &Results) -> Plan {
    let policy = loka_core::dispatch::Policy::rel_l2();
    plan::build(results, &policy, &ModSet::none().into(), &Default::default(), "other", "").unwrap().plan
}

#[test]
fn every_action_does_something_somewhere() {
    let mut window = ActionWindow::new();
    window.tell(Event::EnginesFound { engines: vec![cpu()] });
    // While a probe runs, then after it, with a second engine, with a plan to compare, and by an override.
    window.everything();
    // One probe at a time: each that draws more has its turn.
    for _ in 0..2 {
        window.finish();
        window.everything();
    }
    window.tell(cuda());
    window.everything();
    window.finish();
    let plan = Box::new(other_plan(&window.results));
    window.tell(Event::PlanOpened { path: "other.plan.json".to_owned(), plan });
    window.everything();
    window.finish();
    window.everything();
    window.harness.state_mut().command(Command::RequestApproval { note: String::new() });
    window.tell(Event::OpenFailed { message: "no such file: a".to_owned() });
    window.harness.state_mut().view_mut().text_size = 1.2;
    window.filter = "";
    window.harness.state_mut().command(Command::SetMinSpeedup { value: 50.0, gesture: None });
    window.everything();
    // What is closed in a filter opens with it: once more without one.
    for action in [SelectAction::CloseFolders, SelectAction::OpenFolders] {
        window.harness.state_mut().act(Action::Select(action));
        window.harness.run_steps(3);
    }
    window.tell(cluster());
    // Esc, after each action, sends lines away, too.
    window.tell(Event::OpenFailed { message: "no such file: b".to_owned() });
    window.act(Action::Window(WindowAction::DismissAll));
    window.what_is_left();
    let performed = window.harness.state().performed().clone();
    let left: Vec<String> =
        Action::all().into_iter().filter(|action| !performed.contains(action)).map(Action::text).collect();
    assert_eq!(left, ELSEWHERE, "an action that nothing covers, or one that is covered here now");
}

/// What needs the pointer or a real trace first: covered by the scenarios named beside it.
const ELSEWHERE: [&str; 7] = [
    "Browse for files…",      // everyday: with a dialog that answers
    "Previous recorded step", // inspection_views, as the next three: a site with series
    "Next recorded step",
    "Play the recorded steps",
    "Previous checkpoint", // and these two: a run with checkpoints
    "Next checkpoint",
    "Leave the recorded steps",
];
