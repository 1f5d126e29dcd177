//! The protocol against a driver that behaves as a test wants (python/tests/double_driver.py). The real one is tested on
//! real Ray by python/tests/test_ray.py.

use std::{fs, sync::Mutex};

use super::*;

impl ClusterConfig {
    fn doubled(behaviour: &str, log: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests/double_driver.py");
        let arguments = vec![script.into_os_string(), behaviour.into(), log.as_os_str().to_owned()];
        Self { arguments, timeout: Duration::from_secs(20), ..Self::new("python3", "/bin/loka") }
    }
}

/// A cluster whose other side is the double, and what it was asked.
struct Double {
    folder: tempfile::TempDir,
    joined: Result<Cluster, ClusterError>,
}

impl Double {
    fn new(behaviour: &str) -> Self {
        Self::with(behaviour, |config| config, &Control::new())
    }

    fn with(behaviour: &str, change: impl Fn(ClusterConfig) -> ClusterConfig, control: &Control) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = change(ClusterConfig::doubled(behaviour, &folder.path().join("log")));
        Self { joined: Cluster::connect(&config, control), folder }
    }

    fn error(behaviour: &str) -> String {
        Self::new(behaviour).joined.unwrap_err().to_string()
    }

    /// The parts that came, and how it ended.
    fn probe(&mut self, control: &Control) -> (Vec<usize>, Result<(), String>) {
        let mut made = Vec::new();
        let ended = self.joined.as_mut().unwrap().probe(&request(), control, &mut |part| made.push(part.part));
        (made, ended.map_err(|error| error.to_string()))
    }

    fn asked(&self) -> Vec<serde_json::Value> {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn request() -> ClusterRequest {
    let arguments = vec!["probe".to_owned(), "/a.trace.safetensors".to_owned()];
    ClusterRequest { arguments, out: "/a.parts".to_owned(), parts: vec![1, 3], of: 3 }
}

#[test]
fn parts_come_as_they_are_made() {
    let mut double = Double::new("fine");
    assert_eq!(double.probe(&Control::new()), (vec![1, 3], Ok(())));
    let info = double.joined.as_ref().unwrap().info().clone();
    assert_eq!(info.size(), "Ray 2.60.0 · 2 nodes · 4 CPUs · 8 H200");
    let status = info.status();
    assert_eq!((status.rows_by(), status.device.as_str(), status.problem.as_ref()), ("cuda", "NVIDIA H200", None));
    assert_eq!((info.engine().name, info.engine().driver.as_str()), ("cuda", "570.1"));
    double.joined = Err(ClusterError::Cancelled);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        double.asked(),
        [
            serde_json::json!({"do": "hello", "protocol": 1, "version": version, "program": "/bin/loka", "accelerator": null}),
            serde_json::json!({"do": "probe", "arguments": ["probe", "/a.trace.safetensors"], "out": "/a.parts",
                "parts": [1, 3], "of": 3}),
            serde_json::json!({"do": "end"}),
        ],
        "its input ends when it is dropped"
    );
}

#[test]
fn a_cluster_of_cpus_gives_rows_of_the_cpu_engine() {
    let device = crate::engine::Engine::describe(&crate::engine::CpuEngine).device;
    let note = Some("no NVIDIA driver".to_owned());
    let info = ClusterInfo { engine: "cpu".to_owned(), device, note, nodes: 1, ..ClusterInfo::default() };
    assert_eq!((info.status().rows_by(), info.engine().name), ("cpu", "cpu"));
    assert_eq!(info.status().libraries[0].problem.as_deref(), Some("no NVIDIA driver"));
    assert_eq!(info.size(), "Ray  · 1 node · 0 CPUs");
}

#[test]
fn what_cannot_be_joined_is_one_line() {
    for (behaviour, line) in [
        ("refuses", "no Ray cluster is here: start one"),
        ("dies-at-once", "the cluster's driver died (exit status: 1): ModuleNotFoundError: No module named 'loka'"),
        ("version", "the cluster's driver speaks protocol 2, this LoKA speaks 1"),
        ("rubbish", "the cluster's driver answered rubbish and was killed: Autotuning 12 configurations..."),
    ] {
        assert_eq!(Double::error(behaviour), line);
    }
    let missing = Cluster::connect(&ClusterConfig::new("no-such-python-here", "loka"), &Control::new());
    assert_eq!(missing.unwrap_err().to_string(), "no Python interpreter: no-such-python-here");
}

#[test]
fn a_silent_cluster_is_given_up_or_cancelled() {
    let soon = |config| ClusterConfig { timeout: Duration::from_millis(300), ..config };
    let (began, double) = (Instant::now(), Double::with("silent", soon, &Control::new()));
    assert_eq!(double.joined.unwrap_err().to_string(), "the cluster did not answer within 0.3 s");
    let control = Control::new();
    control.cancel();
    let double = Double::with("silent", |config| config, &control);
    assert_eq!(double.joined.unwrap_err(), ClusterError::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_stops_a_probe_is_one_line_and_its_parts_stay() {
    for (behaviour, made, line) in [
        ("a-part-is-refused", vec![1], "part 2 of 3: the disk is full: /parts (on n)"),
        ("dies", vec![1], "the cluster's driver died (exit status: 3): raylet died"),
        ("prints", vec![], "the cluster's driver answered rubbish and was killed: hello"),
    ] {
        assert_eq!(Double::new(behaviour).probe(&Control::new()), (made, Err(line.to_owned())), "{behaviour}");
    }
    let (made, ended) = Double::new("another-part").probe(&Control::new());
    assert!(made.is_empty() && ended.unwrap_err().contains("rubbish"), "one that nobody asked for");
}

#[test]
fn pause_resume_and_cancel_reach_the_driver() {
    let (mut double, control) = (Double::new("waits"), Control::new());
    let log = double.folder.path().join("log");
    let asked = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let wait_for = |word: &str| {
                let until = Instant::now() + Duration::from_secs(10);
                let wanted = format!("{{\"do\": \"{word}\"");
                while !fs::read_to_string(&log).unwrap_or_default().contains(&wanted) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                }
                asked.lock().unwrap().push(word.to_owned());
            };
            wait_for("probe");
            control.pause();
            wait_for("pause");
            control.resume();
            wait_for("resume");
            control.cancel();
        });
        assert_eq!(double.probe(&control), (vec![1], Ok(())), "what was made is there");
    });
    let words: Vec<_> = double.asked().iter().map(|asked| asked["do"].as_str().unwrap().to_owned()).collect();
    assert_eq!(words, ["hello", "probe", "pause", "resume", "cancel"]);
}

#[test]
fn where_a_cluster_may_be_is_known_without_asking() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ray_current_cluster");
    assert!(!is_left_by_ray_start(&file));
    fs::write(&file, " 10.0.0.1:6379\n").unwrap();
    assert!(is_left_by_ray_start(&file));
    fs::write(&file, "\n").unwrap();
    assert!(!is_left_by_ray_start(&file));
    assert!(unknown().problem.is_some_and(|line| line.contains("ray start --head") && !line.contains('\n')));
}
