//! Choosing, losing and timing: what the reducer does, event by event.

use super::*;
use crate::{
    dispatch::testing::{results, row},
    model::{Gemm, KernelId, Latency, LatencySource, ModKind, ModSet, ResultRow, Results, SiteId, SiteMods},
    session::{Circumstances, Event},
    views::OpenedTrace,
};

const GPU: &str = "NVIDIA H200";
const MEMORY: DeviceMemory = DeviceMemory { total: 100, free: 60, peak: 30 };

fn cpu() -> String {
    EngineStatus::cpu().device
}

fn cuda() -> EngineStatus {
    let usable = EngineStatus { name: "cuda".to_owned(), device: GPU.to_owned(), ..EngineStatus::cpu() };
    EngineStatus { memory: Some(MEMORY), ..usable }
}

fn by(engine: &str, device: &str) -> Circumstances {
    let meta = results(&["a"], Vec::new()).meta;
    Circumstances { engine: engine.to_owned(), device: device.to_owned(), ..Circumstances::from(&meta) }
}

fn of(engine: &str, device: &str, error: f64) -> ResultRow {
    let row = row("a", Gemm::Fprop, "cublaslt/fp8-rowwise", error, Some(1.2), 0.0);
    ResultRow { engine: engine.into(), device: device.into(), ..row }
}

fn opened() -> Session {
    let mut session = Session::default();
    let meta = results(&["a"], Vec::new()).meta;
    let trace = OpenedTrace { path: "a".to_owned(), name: "toy".to_owned(), meta };
    session.event(Event::TraceOpened { trace: Box::new(trace) });
    session
}

fn with_gpu() -> Session {
    let mut session = opened();
    session.event(Event::EnginesFound { engines: vec![cuda(), EngineStatus::cpu()] });
    session
}

/// The run that a command's effects start.
fn probe_in(effects: &[Effect]) -> Option<(u64, String, SiteMods)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Probe { run, engine, mods, .. } => Some((*run, engine.clone(), mods.clone())),
        _ => None,
    })
}

fn select(session: &mut Session, name: &str) -> Vec<Effect> {
    session.command(Command::SelectEngine { name: name.to_owned() }).unwrap()
}

/// A whole probe of one row, from the effects that asked for it.
fn played(session: &mut Session, effects: &[Effect], device: &str, error: f64) {
    let (run, engine, mods) = probe_in(effects).expect("a probe was asked for");
    let by = Box::new(by(&engine, device));
    session.event(Event::ProbeStarted { run, mods: mods.clone(), sites: sites(), by });
    session.event(Event::Rows {
        run,
        rows: vec![ResultRow { mods: mods.of_others().clone(), ..of(&engine, device, error) }],
    });
    session.event(Event::Progress { run, done: 1.0, seconds: 1.0 });
    session.event(Event::ProbeFinished { run, cancelled: false, seconds: 1.0 });
}

fn sites() -> Vec<SiteId> {
    vec![SiteId::new("a")]
}

fn errors(session: &Session) -> Vec<(String, f64)> {
    session.rows().map(|row| (row.engine.to_string(), row.error.as_ref().unwrap().mere.value)).collect()
}

#[test]
fn the_cpu_is_there_before_anything_was_found() {
    let mut session = opened();
    assert_eq!(session.command(Command::FindEngines).unwrap(), [Effect::FindEngines]);
    assert!(session.engines.looking);
    let effects = session.command(Command::StartProbe).unwrap();
    assert_eq!(probe_in(&effects).unwrap().1, "cpu");
    let refused = session.command(Command::SelectEngine { name: "cuda".to_owned() });
    assert_eq!(refused.unwrap_err().to_string(), "CUDA cannot be used: still looking for its libraries");
}

#[test]
fn a_better_engine_is_offered_and_not_taken() {
    let session = with_gpu();
    assert_eq!(session.engines.chosen, "cpu");
    let action = session.notices.last().unwrap().action.clone().unwrap();
    assert_eq!(action.text, "Use the CUDA engine");
    assert_eq!(action.command, Command::SelectEngine { name: "cuda".to_owned() });
}

#[test]
fn each_engine_keeps_its_own_rows() {
    let mut session = with_gpu();
    let effects = session.command(Command::StartProbe).unwrap();
    played(&mut session, &effects, &cpu(), 0.1);
    let effects = select(&mut session, "cuda");
    assert!(session.rows().next().is_none(), "nothing of the CPU is shown as CUDA's");
    assert!(session.notices.iter().all(|notice| notice.action.is_none()), "the offer was taken");
    played(&mut session, &effects, GPU, 0.2);
    assert_eq!(errors(&session), [("cuda".to_owned(), 0.2)]);
    assert_eq!(session.results().unwrap().meta.device, GPU);

    assert_eq!(select(&mut session, "cpu"), [], "its rows are there: nothing is probed");
    assert_eq!(errors(&session), [("cpu".to_owned(), 0.1)]);
    assert_eq!(session.run.as_ref().unwrap().origin.engine.as_ref(), "cpu");
    let Results { meta, rows } = session.results().unwrap();
    assert_eq!((meta.engine.as_str(), rows.len()), ("cpu", 1), "a file holds the rows of one engine");
}

#[test]
fn switching_in_the_middle_cancels_and_comes_back_to_the_end() {
    let mut session = with_gpu();
    let (run, _, mods) = probe_in(&session.command(Command::StartProbe).unwrap()).unwrap();
    session.event(Event::ProbeStarted { run, mods, sites: sites(), by: Box::new(by("cpu", &cpu())) });
    session.event(Event::Rows { run, rows: vec![of("cpu", &cpu(), 0.1)] });
    let effects = select(&mut session, "cuda");
    assert_eq!(effects.first(), Some(&Effect::Cancel));
    played(&mut session, &effects, GPU, 0.2);
    // What the CPU's run still had to say changes nothing.
    session.event(Event::Rows { run, rows: vec![of("cpu", &cpu(), 0.9)] });
    assert_eq!(errors(&session), [("cuda".to_owned(), 0.2)]);

    let effects = select(&mut session, "cpu");
    assert_eq!(errors(&session), [("cpu".to_owned(), 0.1)], "partial rows are shown at once");
    assert_eq!(probe_in(&effects).unwrap().1, "cpu", "and probed to the end");
}

#[test]
fn mods_that_one_engine_lacks_are_probed_when_it_comes_back() {
    let mut session = with_gpu();
    let effects = session.command(Command::StartProbe).unwrap();
    played(&mut session, &effects, &cpu(), 0.1);
    let effects = select(&mut session, "cuda");
    played(&mut session, &effects, GPU, 0.2);
    let effects = session.command(Command::ToggleMod { kind: ModKind::NoBias }).unwrap();
    assert_eq!(probe_in(&effects).unwrap().1, "cuda");
    played(&mut session, &effects, GPU, 0.3);
    let (_, engine, mods) = probe_in(&select(&mut session, "cpu")).unwrap();
    assert_eq!((engine.as_str(), mods), ("cpu", SiteMods::from(ModSet::none().toggled(ModKind::NoBias))));
}

#[test]
fn a_lost_engine_keeps_its_rows_and_offers_the_cpu() {
    let mut session = with_gpu();
    let effects = select(&mut session, "cuda");
    let (run, _, mods) = probe_in(&effects).unwrap();
    session.event(Event::ProbeStarted { run, mods, sites: sites(), by: Box::new(by("cuda", GPU)) });
    session.event(Event::Rows { run, rows: vec![of("cuda", GPU, 0.2)] });
    let lost = Event::EngineLost { name: "cuda".to_owned(), reason: "an illegal address".to_owned() };
    session.event(lost.clone());
    session.event(lost);
    session.event(Event::ProbeFinished { run, cancelled: false, seconds: 1.0 });
    assert_eq!(session.notices.len(), 1, "said once");
    let notice = session.notices[0].clone();
    assert_eq!(notice.text, "CUDA stopped working: an illegal address. Its 1 finished rows are kept.");
    assert_eq!(notice.action.as_ref().unwrap().text, "Use the CPU engine");
    assert_eq!(errors(&session), [("cuda".to_owned(), 0.2)]);
    let run = session.run.as_ref().unwrap();
    assert!(!run.running && run.cancelled, "{run:?}");
    assert_eq!(session.engines.problem("cuda").as_deref(), Some("an illegal address"));
    assert!(session.command(Command::StartProbe).is_err());

    let effects = session.command(notice.action.unwrap().command).unwrap();
    assert_eq!(probe_in(&effects).unwrap().1, "cpu");
    assert_eq!(select(&mut session, "cuda"), [], "nothing is asked of it");
    assert_eq!(errors(&session), [("cuda".to_owned(), 0.2)], "they can still be read");
    session.event(Event::EnginesFound { engines: vec![cuda(), EngineStatus::cpu()] });
    assert!(session.engines.problem("cuda").is_some(), "lost stays lost");
}

#[test]
fn rows_of_a_file_from_elsewhere_stand_apart() {
    let mut session = opened();
    let effects = session.command(Command::StartProbe).unwrap();
    played(&mut session, &effects, &cpu(), 0.1);
    let file = results(&["a"], Vec::new());
    let meta = by("cuda", GPU).stamp(file.meta);
    let file = Box::new(Results { meta, rows: vec![of("cuda", GPU, 0.2)] }.into());
    session.event(Event::ResultsOpened { path: "r".to_owned(), results: file });
    assert_eq!(errors(&session), [("cuda".to_owned(), 0.2)]);
    assert_eq!(session.results().unwrap().meta.device, GPU);

    let toggle = Command::ToggleMod { kind: ModKind::NoBias };
    assert_eq!(session.command(toggle.clone()).unwrap(), [], "nobody asked for other rows than these");
    let said = format!("Not probed on {GPU} under these mods. Run probe does it by CPU, and sets its rows aside.");
    assert!(session.notices.iter().any(|notice| notice.text == said), "{:?}", session.notices);
    assert_eq!(session.command(Command::Undo).unwrap(), []);
    assert_eq!(errors(&session), [("cuda".to_owned(), 0.2)], "as they were");

    session.command(toggle).unwrap();
    let effects = session.command(Command::StartProbe).unwrap();
    played(&mut session, &effects, &cpu(), 0.4);
    assert!(session.rows().all(|row| &*row.engine == "cpu"), "what is probed here does not join the file's rows");
    assert!(session.notices.iter().any(|notice| notice.text.contains("set aside")));
}

/// Of a file whose neighbours are of other sites, as of one that has each site's together.
#[test]
fn rows_that_lie_apart_come_together() {
    let opened = |rows: Vec<ResultRow>| {
        let mut session = Session::default();
        let file = Results { rows, ..results(&["a", "b"], Vec::new()) };
        session.event(Event::ResultsOpened { path: "r".to_owned(), results: Box::new(file.into()) });
        session.results().unwrap()
    };
    let of = |site: &str, gemm, kernel| row(site, gemm, kernel, 0.1, Some(1.2), 0.0);
    let kernels = ["cublaslt/bf16", "cublaslt/fp8-rowwise", "te/current"];
    let together: Vec<_> = ["a", "b"]
        .iter()
        .flat_map(|site| Gemm::ALL.map(|gemm| kernels.map(|kernel| of(site, gemm, kernel))))
        .flatten()
        .collect();
    let apart: Vec<_> = (0..9).rev().flat_map(|at| [together[at].clone(), together[9 + at].clone()]).collect();
    assert_eq!(opened(apart), opened(together));
}

fn measured_latency() -> MeasuredLatency {
    let latency = Latency {
        latency_us: Some(5.0),
        baseline_us: Some(10.0),
        source: LatencySource::Measured,
        ..Latency::unknown("measured here")
    };
    let (site, kernel) = (SiteId::new("a"), KernelId::new("cublaslt/fp8-rowwise"));
    MeasuredLatency { site, gemm: Gemm::Fprop, kernel, latency }
}

#[test]
fn measured_speeds_replace_those_of_rows_now_and_later() {
    let mut session = with_gpu();
    let refused = session.command(Command::MeasureSpeeds).unwrap_err().to_string();
    assert!(refused.contains("choose the CUDA engine"), "{refused}");
    let effects = select(&mut session, "cuda");
    let (run, _, mods) = probe_in(&effects).unwrap();
    session.event(Event::ProbeStarted { run, mods, sites: sites(), by: Box::new(by("cuda", GPU)) });
    assert!(session.measure_problem().unwrap().contains("the probe has the device"));
    let tailed = |error| {
        let row = of("cuda", GPU, error);
        ResultRow { latency: Latency { tail_us: Some(3.0), ..row.latency.clone() }, ..row }
    };
    session.event(Event::Rows { run, rows: vec![tailed(0.2)] });
    session.event(Event::ProbeFinished { run, cancelled: false, seconds: 1.0 });

    let effects = session.command(Command::MeasureSpeeds).unwrap();
    let [Effect::Measure { run, engine }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(engine, "cuda");
    session.event(Event::Measured { run: *run, latencies: vec![measured_latency()], done: 0.5, seconds: 1.0 });
    assert_eq!(session.measuring.as_ref().unwrap().done, 0.5);
    let check = |session: &Session| {
        let row = session.rows().next().unwrap();
        assert_eq!((row.speedup(), row.latency.source), (Some(2.0), LatencySource::Measured));
        assert_eq!(row.latency.tail_us, Some(3.0), "the mods' own");
    };
    check(&session);
    session.event(Event::MeasureFinished { run: *run, problem: None });
    assert!(!session.is_measuring());
    // A later probe brings recorded latencies again.
    let (run, _, mods) = probe_in(&session.command(Command::StartProbe).unwrap()).unwrap();
    session.event(Event::ProbeStarted { run, mods, sites: sites(), by: Box::new(by("cuda", GPU)) });
    session.event(Event::Rows { run, rows: vec![tailed(0.1)] });
    check(&session);
}

#[test]
fn measuring_on_a_machine_without_cuda_says_why_not() {
    let mut session = opened();
    let missing = EngineStatus::missing("cuda", "no NVIDIA driver".to_owned(), Vec::new());
    session.event(Event::EnginesFound { engines: vec![EngineStatus::cpu(), missing] });
    let why = session.measure_problem().unwrap();
    assert!(why.ends_with("CUDA is missing: no NVIDIA driver"), "{why}");
    assert!(matches!(session.command(Command::MeasureSpeeds), Err(CommandError::CannotMeasure(_))));
}

#[test]
fn an_engine_is_no_part_of_the_document() {
    let mut session = with_gpu();
    select(&mut session, "cuda");
    assert!(!session.can_undo());
}

fn cluster_of(device: &str) -> EngineStatus {
    EngineStatus { name: "cluster".to_owned(), device: device.to_owned(), ..EngineStatus::cpu() }
}

/// A cluster's nodes compute by an engine, and give what it gives here.
#[test]
fn rows_of_a_cluster_stand_with_those_of_its_nodes_engine() {
    let mut session = opened();
    session.event(Event::EnginesFound { engines: vec![EngineStatus::cpu(), cluster_of(&cpu())] });
    let effects = session.command(Command::StartProbe).unwrap();
    played(&mut session, &effects, &cpu(), 0.1);
    assert_eq!(select(&mut session, "cluster"), [], "they are there");
    assert_eq!((errors(&session), session.num_rows_of("cluster")), (vec![("cpu".to_owned(), 0.1)], 1));
    // What lacks is asked of the cluster, and added.
    let effects = session.command(Command::ToggleMod { kind: ModKind::NoBias }).unwrap();
    let (run, engine, mods) = probe_in(&effects).unwrap();
    assert_eq!(engine, "cluster");
    session.event(Event::ProbeStarted { run, mods, sites: sites(), by: Box::new(by("cpu", &cpu())) });
    let log: Vec<_> = session.log().entries().iter().map(|entry| entry.text.clone()).collect();
    assert_eq!(log.last().unwrap(), &format!("Probe of 1 site started on Ray cluster ({})", cpu()));
    assert!(session.measure_problem().unwrap().contains("loka.ray.bench"));
    // Of GPUs they are CUDA's.
    session.event(Event::EnginesFound { engines: vec![EngineStatus::cpu(), cluster_of(GPU)] });
    assert!(!session.engine_is_that_of_the_rows());
    assert_eq!(cluster_of(GPU).rows_by(), "cuda");
}

#[test]
fn a_cluster_that_is_still_looked_for_keeps_nothing_waiting() {
    let mut session = opened();
    let looked_for = EngineStatus::looked_for("cluster");
    session.event(Event::EnginesFound { engines: vec![cuda(), EngineStatus::cpu(), looked_for.clone()] });
    assert!(session.engines.looking && session.engines.problem("cuda").is_none());
    assert!(session.engines.problem("cluster").is_some());
    let offers = |session: &Session| session.notices.iter().filter(|notice| notice.action.is_some()).count();
    assert_eq!(offers(&session), 1);
    session.event(Event::EnginesFound { engines: vec![cuda(), EngineStatus::cpu(), cluster_of(&cpu())] });
    assert!(!session.engines.looking && session.engines.problem("cluster").is_none());
    assert_eq!(offers(&session), 1, "CUDA is offered once, a cluster not at all");
    // Looked for again, it is there until it is not found.
    session.event(Event::EnginesFound { engines: vec![EngineStatus::cpu(), looked_for] });
    assert!(session.engines.looking && session.engines.problem("cluster").is_none());
}
