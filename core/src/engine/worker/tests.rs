//! The protocol against a test double (python/tests/double_worker.py), and the real worker with
//! whatever libraries this machine's Python has.

use std::{fs, time::Instant};

use super::*;
use crate::model::{Runtime, catalogue};

const SHAPE: GemmShape = GemmShape { m: 4, k: 32, n: 8 };

/// A worker whose other side is the double, and the folder that counts its starts.
fn double(behaviour: &str) -> (Result<Worker, WorkerError>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = WorkerConfig::doubled(behaviour, &folder.path().join("starts"));
    (Worker::start(config.with_timeouts(Duration::from_secs(20), Duration::from_secs(20))), folder)
}

fn rowwise() -> KernelId {
    KernelId::new("torchao/rowwise")
}

fn run(worker: &mut Worker) -> Result<WorkerRun, WorkerError> {
    let path = |name: &str| worker.scratch().join(name);
    let a = Handle::file(&path("a"), Dtype::F32, &[4, 32]);
    let b = Handle::file(&path("b"), Dtype::F32, &[8, 32]);
    let out = Handle::file(&path("out"), Dtype::Bf16, &[4, 8]);
    worker.run(&rowwise(), Gemm::Fprop, SHAPE, [&a, &b], &out)
}

fn run_error(behaviour: &str) -> WorkerError {
    let (worker, _folder) = double(behaviour);
    run(&mut worker.unwrap()).unwrap_err()
}

#[test]
fn answers_come_through() {
    let (worker, _folder) = double("fine");
    let mut worker = worker.unwrap();
    assert_eq!(worker.hello().device.as_deref(), Some("a test double"));
    let reasons: Vec<_> = worker.kernels().iter().map(|k| (k.kernel.as_str(), k.reason.as_deref())).collect();
    assert_eq!(reasons, [("torchao/rowwise", None), ("deepgemm/blockwise", Some("DeepGEMM is not installed"))]);
    assert_eq!(run(&mut worker), Ok(WorkerRun { copied: true }));
    assert_eq!(fs::read(worker.scratch().join("out")).unwrap(), b"\x00\x3f".repeat(32));
    let timing = worker.time(&rowwise(), Gemm::Dgrad, SHAPE, &TimeOptions::default()).unwrap();
    assert_eq!((timing.gemm_us, timing.latency_us), (vec![1.0, 1.5], vec![3.25; 3]));
    let odd = GemmShape { k: 33, ..SHAPE };
    assert_eq!(worker.refuses(&rowwise(), Gemm::Fprop, odd), Ok(Some("k is odd".to_owned())));
    assert_eq!(worker.refuses(&rowwise(), Gemm::Fprop, SHAPE), Ok(None));
    assert_eq!(worker.release(), Ok(2));
}

#[test]
fn sites_come_with_samples_or_a_reason() {
    let (worker, _folder) = double("fine");
    let bf16 = KernelId::new("cublaslt/bf16");
    let triples = [[rowwise(), bf16.clone(), bf16.clone()], [rowwise(), rowwise(), bf16]];
    let options = TimeOptions::default();
    let runtime = Runtime::Launched;
    let asked = SiteRequest { shape: SHAPE, runtime, triples: &triples, options: &options, emulate: true };
    let rows = worker.unwrap().sites(&asked).unwrap();
    assert_eq!((&rows[0].kernels, &rows[0].site_us, &rows[0].reason), (&triples[0], &vec![3.0, 1.0, 2.0], &None));
    assert_eq!((rows[1].bf16_us.len(), rows[1].reason.as_deref()), (0, Some("out of memory")));
}

#[test]
fn a_missing_python_is_named() {
    for python in ["no-such-python-here", "/no/such/python3"] {
        let error = Worker::start(WorkerConfig::new(python)).unwrap_err();
        assert_eq!(error.to_string(), format!("no Python interpreter: {python}"));
    }
}

#[test]
fn a_file_that_is_no_program_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("python3");
    fs::write(&path, "not executable").unwrap();
    let error = Worker::start(WorkerConfig::new(&path)).unwrap_err();
    assert!(matches!(error, WorkerError::Start { .. }), "{error:?}");
    assert!(error.to_string().ends_with(&path.display().to_string()), "{error}");
}

#[test]
fn dying_is_told_with_its_status_and_last_words() {
    assert_eq!(
        run_error("dies").to_string(),
        "the library worker died (exit status: 11): Segmentation fault in libexample.so"
    );
    let (worker, _folder) = double("dies-at-once");
    assert_eq!(
        worker.unwrap_err().to_string(),
        "the library worker died (exit status: 1): ModuleNotFoundError: No module named 'encodings'"
    );
    assert_eq!(run_error("half-line").to_string(), "the library worker died (exit status: 0)");
}

#[test]
fn hanging_ends_at_the_timeout() {
    let (worker, _folder) = double("hangs");
    let mut worker = worker.unwrap();
    worker.config.timeout = Duration::from_millis(300);
    let begin = Instant::now();
    let error = run(&mut worker).unwrap_err();
    assert_eq!(error.to_string(), "the library worker did not answer within 0.3 s and was killed: run");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn timing_has_a_limit_of_its_own() {
    let (worker, _folder) = double("hangs");
    let mut worker = worker.unwrap();
    worker.config.time_timeout = Duration::from_millis(200);
    let error = worker.time(&rowwise(), Gemm::Fprop, SHAPE, &TimeOptions::default()).unwrap_err();
    assert_eq!(error, WorkerError::TimedOut { request: "time", after: Duration::from_millis(200) });
}

#[test]
fn rubbish_is_shown_by_its_start() {
    let text = |behaviour| run_error(behaviour).to_string();
    let rubbish = "the library worker answered rubbish and was killed: ";
    assert_eq!(text("rubbish"), format!("{rubbish}Autotuning 12 configurations..."));
    assert_eq!(text("binary"), format!("{rubbish}\u{fffd}\u{fffd}{{}}"));
    assert_eq!(text("endless"), format!("{rubbish}{}", "x".repeat(80)));
    assert!(text("other-id").starts_with(rubbish));
    assert!(text("other-shape").starts_with(rubbish));
}

#[test]
fn another_version_is_refused() {
    let (worker, _folder) = double("version");
    assert_eq!(worker.unwrap_err().to_string(), "the library worker speaks protocol 3, this LoKA speaks 2");
}

#[test]
fn a_long_reply_is_read_whole() {
    let (worker, _folder) = double("long-line");
    let timing = worker.unwrap().time(&rowwise(), Gemm::Fprop, SHAPE, &TimeOptions::default()).unwrap();
    assert_eq!(timing.latency_us.len(), 200_000);
}

#[test]
fn a_flood_on_stderr_does_not_block() {
    let (worker, _folder) = double("chatty");
    assert_eq!(run(&mut worker.unwrap()), Ok(WorkerRun { copied: true }));
}

#[test]
fn a_refusal_leaves_the_process_alone() {
    let (worker, folder) = double("refuses");
    let mut worker = worker.unwrap();
    for _ in 0..6 {
        let error = run(&mut worker).unwrap_err();
        assert_eq!(error.to_string(), "k = 100 is not a multiple of 16");
    }
    assert_eq!(fs::read(folder.path().join("starts")).unwrap().len(), 1);
}

#[test]
fn it_starts_again_after_a_death() {
    let (worker, folder) = double("dies-once");
    let mut worker = worker.unwrap();
    assert!(matches!(run(&mut worker), Err(WorkerError::Died { .. })));
    assert_eq!(worker.release(), Ok(0), "nothing is open in a process that ended");
    assert_eq!(run(&mut worker), Ok(WorkerRun { copied: true }));
    assert_eq!(fs::read(folder.path().join("starts")).unwrap().len(), 2);
}

#[test]
fn a_lost_gpu_costs_its_row_and_a_restart() {
    let (worker, folder) = double("gpu-lost");
    let mut worker = worker.unwrap();
    let error = run(&mut worker).unwrap_err();
    assert_eq!(error, WorkerError::Refused { reason: "AcceleratorError: illegal memory access".to_owned() });
    assert_eq!(run(&mut worker), Ok(WorkerRun { copied: true }));
    assert_eq!(fs::read(folder.path().join("starts")).unwrap().len(), 2);
}

#[test]
fn it_is_given_up_after_three_restarts() {
    let (worker, folder) = double("dies");
    let mut worker = worker.unwrap();
    for _ in 0..=MAX_RESTARTS {
        assert!(matches!(run(&mut worker), Err(WorkerError::Died { .. })));
    }
    for _ in 0..2 {
        assert_eq!(
            run(&mut worker).unwrap_err().to_string(),
            "the library worker ended 4 times and is not started again; the last time: \
             the library worker died (exit status: 11): Segmentation fault in libexample.so"
        );
    }
    assert_eq!(fs::read(folder.path().join("starts")).unwrap().len(), 4);
}

#[test]
fn dropping_kills_it() {
    let (worker, _folder) = double("fine");
    let worker = worker.unwrap();
    let scratch = worker.scratch().to_owned();
    let id = worker.process.as_ref().and_then(Process::id).unwrap();
    drop(worker);
    assert!(!scratch.exists());
    assert!(!Path::new(&format!("/proc/{id}")).exists());
}

#[test]
fn the_real_worker_knows_kernels_of_the_catalogue_and_says_why_not() {
    let mut worker = Worker::start(WorkerConfig::default()).unwrap();
    let known: Vec<_> = catalogue().iter().map(|kernel| kernel.name).collect();
    assert_eq!(worker.kernels().len(), 11);
    for found in worker.kernels() {
        assert!(known.contains(&found.kernel.as_str()), "{}", found.kernel);
        assert_eq!(found.available, found.reason.is_none(), "{found:?}");
    }
    if let Some(missing) = worker.kernels().iter().find(|kernel| !kernel.available).cloned() {
        let kernel = KernelId::new(&missing.kernel);
        let error = worker.time(&kernel, Gemm::Fprop, SHAPE, &TimeOptions::default()).unwrap_err();
        assert_eq!(error, WorkerError::Refused { reason: missing.reason.unwrap() });
    }
    assert_eq!(worker.release(), Ok(0));
}
