//! The engine "cluster" of a served session: rows come by parts, pause and cancel reach what makes them, what fails is one
//! line and the session goes on. By a stand-in for Ray that makes parts with the real program, one after the other; where
//! `RAY_ADDRESS` is set, on that cluster. Real Ray is tested by python/tests/test_ray.py.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use loka_core::{
    model::{ModKind, ResultRow},
    session::Command,
};
use loka_tests::{
    root, run_in,
    serving::{Server, Window},
    tiny,
};
use tempfile::TempDir;

const TRACE: &str = "tiny.trace.safetensors";
/// A part each, so few.
const SITES: usize = 10;
const PARTS: usize = SITES;

/// A served trace, with a cluster that behaves so.
struct Served {
    folder: TempDir,
    server: Server,
}

impl Served {
    fn new(behaviour: &str) -> Self {
        let folder = TempDir::new().unwrap();
        tiny::put(&folder.path().join(TRACE), SITES);
        Self { server: serve(folder.path(), behaviour), folder }
    }

    /// What lies beside the trace, but for drafts.
    fn parts(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("tiny.parts")).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("part-")).collect();
        names.sort();
        names
    }

    /// A window whose session has this machine's rows, and the cluster for engine.
    fn window(&self) -> Window {
        let mut window = Window::join(&self.server, 1, None);
        window.until_probed();
        window.until("the cluster was found", |window| window.session.engines.problem("cluster").is_none());
        window.submit(Command::SelectEngine { name: "cluster".to_owned() });
        window.until("it is chosen", |window| window.session.engines.chosen == "cluster");
        window
    }
}

fn serve(folder: &Path, behaviour: &str) -> Server {
    if std::env::var_os("RAY_ADDRESS").is_some() && behaviour == "makes" {
        return Server::start(folder, &[] as &[&str]);
    }
    let found = std::process::Command::new("sh").args(["-c", "command -v python3"]).output().unwrap();
    let python = String::from_utf8(found.stdout).unwrap();
    let (bin, double) = (folder.join("bin"), root("python/tests/double_driver.py"));
    fs::create_dir_all(&bin).unwrap();
    let script =
        format!("#!/bin/sh\nexec {} {} {behaviour} {}/asked\n", python.trim(), double.display(), bin.display());
    fs::write(bin.join("python3"), script).unwrap();
    fs::set_permissions(bin.join("python3"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}:{}", bin.display(), std::env::var("PATH").unwrap());
    Server::under(&["env", "RAY_ADDRESS=stand-in", &path], folder, "127.0.0.1:0", &[] as &[&str])
}

fn rows(window: &Window) -> Vec<ResultRow> {
    let mut rows: Vec<ResultRow> = window.session.rows().cloned().collect();
    rows.sort_by(|a, b| (&a.site, a.gemm, &a.kernel).cmp(&(&b.site, b.gemm, &b.kernel)));
    rows
}

/// Every row, as this machine finds it under the same mods.
fn expected(window: &mut Window) -> Vec<ResultRow> {
    window.submit(Command::SelectEngine { name: "cpu".to_owned() });
    window.until("it is chosen", |window| window.session.engines.chosen == "cpu");
    window.submit(Command::StartProbe);
    window.until("it runs", |window| window.session.is_running());
    window.until_probed();
    rows(window)
}

#[test]
fn a_session_probes_on_a_cluster_what_this_machine_would() {
    let served = Served::new("makes");
    let mut window = served.window();
    assert!(served.parts().is_empty(), "rows that are there are not made again");
    window.submit(Command::ToggleMod { kind: ModKind::HardSwish });
    window.until("it runs", |window| window.session.is_running());
    window.until("rows come before the end", |window| {
        let run = window.session.run.as_ref().unwrap();
        run.num_rows > 0 && run.done > 0.0 && run.done < 1.0
    });
    window.until_probed();
    assert_eq!(served.parts().len(), PARTS);
    let found = rows(&window);
    assert!(found.iter().all(|row| &*row.engine == "cpu"), "rows are those of the engine of its nodes");
    assert!(window.refused.is_empty(), "{:?}", window.refused);
    assert_eq!(found, expected(&mut window));
    let lines: Vec<&str> = window.session.log().entries().iter().map(|entry| entry.text.as_str()).collect();
    assert!(lines.iter().any(|line| line.starts_with("Probe of 10 sites started on Ray cluster (CPU (")), "{lines:#?}");
}

#[test]
fn pause_and_cancel_reach_it_and_what_was_made_is_found_again() {
    let served = Served::new("makes");
    let mut window = served.window();
    window.submit(Command::ToggleMod { kind: ModKind::HardSwish });
    window.until("rows come", |window| window.session.run.as_ref().is_some_and(|run| run.running && run.done > 0.0));
    window.submit(Command::PauseProbe { paused: true });
    // What was begun comes to its end, on a busy machine after a while; where nothing rests all of them are made.
    let mut so_far = 0;
    while served.parts().len() > so_far {
        so_far = served.parts().len();
        (0..4).for_each(|_| window.settle());
    }
    assert!(so_far > 0 && so_far < PARTS, "{so_far}");
    window.submit(Command::PauseProbe { paused: false });
    window.until("it goes on", |window| {
        window.session.run.as_ref().is_some_and(|run| run.done > (so_far as f64 + 0.5) / PARTS as f64)
    });
    window.submit(Command::CancelProbe);
    window.until("it has ended", |window| !window.session.is_running());
    window.settle();
    let made = served.parts();
    assert!(made.len() > so_far && made.len() < PARTS, "{}", made.len());
    // What is there stays as it is: only what lacks is made.
    let written = |name: &String| fs::metadata(served.folder.path().join("tiny.parts").join(name)).unwrap().modified();
    let before: Vec<_> = made.iter().map(|name| written(name).unwrap()).collect();
    window.submit(Command::StartProbe);
    window.until("it runs", |window| window.session.is_running());
    window.until_probed();
    assert_eq!(served.parts().len(), PARTS);
    assert_eq!(made.iter().map(|name| written(name).unwrap()).collect::<Vec<_>>(), before);
    assert_eq!(rows(&window), expected(&mut window));
}

#[test]
fn more_draws_of_a_site_are_a_part_of_its_own() {
    let served = Served::new("makes");
    let mut window = served.window();
    let site = window.session.sites()[3].id.clone();
    window.submit(Command::ProbeMore { site: site.clone(), max_draws: 100 });
    window.until("it has as many", |window| {
        let mut errors = window.session.rows().filter(|row| row.site == site).filter_map(|row| row.error.as_ref());
        errors.all(|error| error.draws == 100)
    });
    window.until("it has ended", |window| !window.session.is_running());
    let parts = served.parts();
    assert!(parts.len() == 1 && parts[0].starts_with("part-1-of-1-"), "{parts:?}");
}

#[test]
fn a_cluster_that_dies_costs_what_was_under_way() {
    let served = Served::new("dies-after-3");
    let mut window = served.window();
    window.submit(Command::ToggleMod { kind: ModKind::HardSwish });
    window.until("it is told", |window| {
        window.session.notices.iter().any(|notice| {
            notice.text
                == "The probe on the cluster stopped: the cluster's driver died (exit status: 3): the raylet died. \
                    Rows that came are kept."
        })
    });
    window.until("it has ended", |window| !window.session.is_running());
    assert_eq!(served.parts().len(), 3);
    assert!(window.session.has_rows() && window.session.lacks_rows());
    // The session goes on: by this machine, or by the cluster once more.
    window.submit(Command::SelectEngine { name: "cpu".to_owned() });
    window.until_probed();
}

#[test]
fn a_part_that_is_none_of_this_probe_is_told_and_left() {
    let served = Served::new("makes");
    let mut window = served.window();
    window.submit(Command::ToggleMod { kind: ModKind::HardSwish });
    window.until("it runs", |window| window.session.is_running());
    window.until_probed();
    let parts = served.folder.path().join("tiny.parts");
    let broken = parts.join(&served.parts()[6]);
    fs::write(&broken, b"PAR1").unwrap();
    window.submit(Command::StartProbe);
    window.until("it is told", |window| {
        let about = |text: &str| text.contains("remove it to have it made again") && text.contains("part-07-of-10");
        window.session.notices.iter().any(|notice| about(&notice.text))
    });
    window.until("it has ended", |window| !window.session.is_running());
    fs::remove_file(&broken).unwrap();
    window.submit(Command::StartProbe);
    window.until("it is made again", |_| broken.exists());
}

#[test]
fn a_cluster_that_cannot_be_used_is_listed_with_its_reason() {
    for (behaviour, reason) in [
        ("refuses", "no Ray cluster is here: start one"),
        ("dies-at-once", "the cluster's driver died (exit status: 1): ModuleNotFoundError: No module named 'loka'"),
    ] {
        let served = Served::new(behaviour);
        let mut window = Window::join(&served.server, 1, None);
        window.until_probed();
        window.until("it is known", |window| window.session.engines.problem("cluster").as_deref() == Some(reason));
        window.submit(Command::SelectEngine { name: "cluster".to_owned() });
        window.until("it is refused", |window| !window.refused.is_empty());
        assert!(window.refused[0].contains(reason), "{:?}", window.refused);
        assert_eq!(window.session.engines.chosen, "cpu");
    }
}

#[test]
fn what_does_not_go_with_a_cluster_is_refused() {
    let (folder, sample) = (TempDir::new().unwrap(), loka_tests::sample());
    for (name, value) in [("--part", Some("1/2")), ("--measure", None), ("--libraries", None)] {
        let probe = ["probe", sample.to_str().unwrap(), "--out", "r.results.parquet", "--engine", "cluster", name];
        let line = run_in(folder.path(), probe.into_iter().chain(value)).refused();
        assert_eq!(line, format!("loka: --engine cluster does not go with {name}"));
    }
}
