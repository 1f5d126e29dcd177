//! `loka` where there is no display: whoever asks for the workbench gets an address to open in a browser, and one sentence
//! why; what no page can do is refused with the command that serves.

use std::{fs, io::Read as _};

use loka_tests::{serving::Server, tiny};
use tempfile::TempDir;

const TRACE: &str = "r.trace.safetensors";
const NO_DISPLAY: &str = "there is no display here (DISPLAY and WAYLAND_DISPLAY are not set)";

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    tiny::put(&folder.path().join(TRACE), 1);
    folder
}

/// Ended as a person ends it; what it said on stderr.
fn ended(mut server: Server) -> String {
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    let mut said = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

#[test]
fn the_workbench_is_served_and_the_address_printed() {
    let folder = folder();
    let served = |args: &[&str]| Server::without_display(folder.path(), args).unwrap();
    let server = served(&["open", TRACE]);
    let token = server.link.split_once("/?token=").unwrap_or_else(|| panic!("no token: {}", server.link)).1;
    let cookie = server.cookie(&format!("?token={token}"));
    let page = server.get("/", &[&format!("Cookie: {cookie}")]);
    assert!(page.status == 200 && page.text().contains("<body>LoKA</body>"), "{page:?}");
    assert_eq!(server.get("/", &[]).status, 401, "nobody comes in without it");

    // Beside it another one, of nothing that was named; and of results the trace beside them.
    let other = served(&["--json", "open"]);
    assert_ne!(other.address, server.address);
    assert!(other.link.starts_with("{\"address\":\"http://127.0.0.1:"), "{}", other.link);
    fs::write(folder.path().join("r.results.parquet"), "not read before a page asks for the trace").unwrap();
    let of_results = served(&["open", "r.results.parquet"]);
    for server in [server, other, of_results] {
        let said = ended(server);
        assert_eq!(said.lines().filter(|line| line.contains(NO_DISPLAY)).count(), 1, "{said}");
        assert!(said.starts_with(&format!("No window: {NO_DISPLAY}. The workbench is served to browsers")), "{said}");
    }
}

/// As a stranger begins. A build of the tests has no page in it, one that was installed has.
#[test]
fn a_bare_loka_serves_the_folder_that_it_is_in() {
    match Server::without_display(folder().path(), &[]) {
        Ok(server) => assert!(ended(server).contains(NO_DISPLAY)),
        Err(run) => {
            let line = run.refused();
            assert!(line.starts_with(&format!("loka: {NO_DISPLAY}: this build has no page in it")), "{line}");
        }
    }
}

#[test]
fn what_no_page_does_is_refused_with_the_command_that_serves() {
    let folder = folder();
    fs::create_dir(folder.path().join("elsewhere")).unwrap();
    for name in ["p.plan.json", "elsewhere/r.results.parquet"] {
        fs::write(folder.path().join(name), "never read").unwrap();
    }
    let refused = |args: &[&str]| match Server::without_display(folder.path(), args) {
        Ok(_) => panic!("{args:?} is served"),
        Err(run) => run.refused(),
    };
    for args in [&["--screenshot", "a.png"][..], &["--do", "view.plan"], &["--at", "view=plan"], &["--size", "800x600"]]
    {
        let line = refused(&[&["open", TRACE], args].concat());
        assert!(line.starts_with(&format!("loka: {NO_DISPLAY}")) && line.contains("loka serve"), "{line}");
    }
    let line = refused(&["open", TRACE, "p.plan.json"]);
    assert!(line.contains("a page begins with one trace: loka serve TRACE"), "{line}");
    for name in ["p.plan.json", "elsewhere/r.results.parquet"] {
        let line = refused(&["open", name]);
        assert!(line.contains("loka serve FOLDER") && line.ends_with(name), "{line}");
    }
    assert_eq!(refused(&["open", "none.results.parquet"]), "loka: no such file or folder: none.results.parquet");
    assert!(!folder.path().join("a.png").exists());
}
