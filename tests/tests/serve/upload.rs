//! Files that a page sends to `loka serve`: what is taken and how it lies there, what is refused and leaves nothing.

mod served;

use std::io::Write as _;

use loka_core::session::{Command, FileKind};
use loka_tests::{
    run_in,
    serving::{Answer, Server, Window, add_user},
};
use tempfile::TempDir;

use served::{PLAN, Served, TOKEN, TRACE, drafts, half, is_refused, large, trace, until};

#[test]
fn a_file_is_taken_listed_and_opened() {
    let served = Served::new();
    let (folder, new) = (served.folder(), trace(3));
    let server = served.start(&[]);
    assert_eq!(Window::join(&server, 1, Some(TRACE)).sync.files, [TRACE], "the list is known from now on");
    let answer = server.put("n%C3%A9w%201.trace.safetensors", &new, "");
    assert_eq!((answer.status, drafts(&folder)), (201, 0), "{answer:?}");
    let (name, path) = ("néw 1.trace.safetensors", folder.join("néw 1.trace.safetensors"));
    assert_eq!(std::fs::read(&path).unwrap(), new);
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions()) & 0o777, 0o644);
    let mut window = Window::join(&server, 2, Some(name));
    assert_eq!(window.sync.files, [name, TRACE]);
    window.until_probed();
    assert_eq!(window.session.sites().len(), 3);

    // The same again is there already; another stays away from it.
    assert_eq!(server.put("n%C3%A9w%201.trace.safetensors", &new, "").status, 200);
    is_refused(&server.put("n%C3%A9w%201.trace.safetensors", &trace(2), ""), 409, "another file of that name");
    let changed: Vec<u8> = new.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at + 1 == new.len())).collect();
    is_refused(&server.put("n%C3%A9w%201.trace.safetensors", &changed, ""), 409, "another file of that name");
    assert_eq!((std::fs::read(&path).unwrap(), drafts(&folder)), (new, 0));

    // Rows of that trace, for the session that is open.
    let work = TempDir::new().unwrap();
    let rows = work.path().join("r.results.parquet");
    run_in(work.path(), ["probe".as_ref(), path.as_os_str(), "--out".as_ref(), rows.as_os_str()]).done();
    assert_eq!(server.put("r.results.parquet", &std::fs::read(&rows).unwrap(), "").status, 201);
    window.submit(Command::OpenResults { path: "r.results.parquet".to_owned() });
    window.until("the rows are open", |window| {
        window.session.results_file.as_deref() == Some("r.results.parquet") || !window.refused.is_empty()
    });
    assert!(window.refused.is_empty(), "{:?}", window.refused);
    assert_eq!(server.put("p.PLAN.json", PLAN, "").status, 201);
    let files = Window::join(&server, 3, Some(name)).sync.files;
    assert!(files.iter().any(|file| FileKind::of_name(file) == Some(FileKind::Plan)), "{files:?}");
    assert_eq!(server.get("/files/r.results.parquet", &[]).status, 404, "nothing is given");
}

#[test]
fn names_that_are_no_new_name_are_refused() {
    let served = Served::new();
    let server = served.start(&[]);
    let before = served.all();
    let long = format!("{}.plan.json", "x".repeat(246));
    for (name, status, part) in [
        ("..", 400, "outside"),
        ("../x.plan.json", 400, "outside"),
        ("%2e%2e%2fx.plan.json", 400, "outside"),
        ("..%2f..%2fsecret.plan.json", 400, "outside"),
        ("%2fetc%2fx.plan.json", 400, "outside"),
        ("/etc/x.plan.json", 400, "outside"),
        ("c:x.plan.json", 400, "outside"),
        ("..%5cx.plan.json", 400, "backslash"),
        ("..\\x.plan.json", 400, ""),
        ("a%2fb.plan.json", 400, "no slash"),
        ("a/b.plan.json", 400, "no slash"),
        ("a//b.plan.json", 400, "no name"),
        ("./a.plan.json", 400, "no name"),
        (".", 400, "hidden"),
        (".plan.json", 400, "hidden"),
        ("%2ehidden.plan.json", 400, "hidden"),
        ("a%0ab.plan.json", 400, "control characters"),
        ("a%00.plan.json", 400, "control characters"),
        ("a%7f.plan.json", 400, "control characters"),
        ("a%e2%80%aeb.plan.json", 400, "cannot be seen"),
        ("%20a.plan.json", 400, "cannot be seen"),
        ("%ff.plan.json", 400, "no text"),
        (&long, 400, "longer than 255 bytes"),
        ("a.key.json", 400, "a server takes .trace.safetensors, .results.parquet and .plan.json"),
        ("users.json", 400, "a server takes"),
        ("x.plan.json.sh", 400, "a server takes"),
        ("x.parquet", 400, "a server takes"),
        ("tiny.journal", 400, "a server takes"),
    ] {
        let answer = server.put(name, PLAN, "");
        assert_eq!(answer.status, status, "{name}: {answer:?}");
        // What is no address is refused before it is ours.
        if !part.is_empty() {
            is_refused(&answer, status, part);
        }
        let told = served.around.path().to_string_lossy().into_owned();
        assert!(!answer.text().contains(&told), "{name}: {answer:?}");
    }
    is_refused(&server.put("", PLAN, ""), 404, "no such file");
    assert!(served.all() == before, "{:?}", served.all().keys());
}

#[test]
fn no_other_address_takes_anything() {
    let served = Served::new();
    let server = served.start(&[]);
    let (address, origin) = (&server.address, server.origin());
    for (method, path) in
        [("PUT", "/x.plan.json"), ("PUT", "/file/x.plan.json"), ("POST", "/files/x.plan.json"), ("DELETE", "/files/x")]
    {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{origin}\r\nConnection: close\r\n\r\n");
        is_refused(&server.raw(&head), 405, "Pages are read here");
    }
    assert_eq!(served.all().len(), 3);
}

#[cfg(unix)]
#[test]
fn what_has_the_name_stays_whatever_it_is() {
    use std::os::unix::fs::symlink;
    let served = Served::new();
    let (folder, around) = (served.folder(), served.around.path());
    symlink(around.join("secret.plan.json"), folder.join("out.plan.json")).unwrap();
    symlink(around.join("nowhere.plan.json"), folder.join("gone.plan.json")).unwrap();
    symlink("inside.plan.json", folder.join("in.plan.json")).unwrap();
    symlink("round.plan.json", folder.join("round.plan.json")).unwrap();
    std::fs::create_dir(folder.join("folder.plan.json")).unwrap();
    let before = served.all();
    let server = served.start(&[]);
    for name in ["out.plan.json", "gone.plan.json", "in.plan.json", "round.plan.json", "folder.plan.json"] {
        is_refused(&server.put(name, PLAN, ""), 409, "another file of that name");
        // Not known before it is read.
        let head = server.put_head(name, "Transfer-Encoding: chunked\r\n");
        is_refused(&server.raw(&format!("{head}17\r\n{}\r\n0\r\n\r\n", String::from_utf8_lossy(PLAN))), 409, "another");
    }
    assert!(served.all() == before, "{:?}", served.all().keys());
    assert_eq!(folder.join("gone.plan.json").read_link().unwrap(), around.join("nowhere.plan.json"));
}

#[test]
fn only_our_page_with_the_token_may_send() {
    let served = Served::new();
    let server = served.start(&["--token", TOKEN]);
    let cookie = format!("Cookie: {}", server.cookie(&format!("?token={TOKEN}")));
    let address = &server.address;
    let send = |host: &str, headers: &[&str]| {
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let length = PLAN.len();
        server.raw(&format!(
            "PUT /files/p.plan.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\
             {headers}\r\n{}",
            String::from_utf8_lossy(PLAN)
        ))
    };
    let origin = server.origin();
    for (host, headers, status) in [
        (address.as_str(), vec![origin.as_str()], 401),
        (address, vec![&origin, "Cookie: loka=x"], 401),
        (address, vec![&cookie], 403),
        (address, vec![&cookie, "Origin: null"], 403),
        (address, vec![&cookie, "Origin: http://evil.example"], 403),
        (address, vec![&cookie, &origin, "Origin: http://evil.example"], 403),
        ("evil.example", vec![&cookie, "Origin: http://evil.example"], 403),
    ] {
        let answer = send(host, &headers);
        assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
    }
    assert_eq!(served.all().len(), 3, "nothing was kept");
    assert_eq!(send(address, &[&cookie, &origin]).status, 201);
    assert_eq!(std::fs::read(served.folder().join("p.plan.json")).unwrap(), PLAN);
}

#[test]
fn of_people_only_an_owner_may_send() {
    let served = Served::new();
    let users = served.around.path().join("users.json");
    let people = [("Vera", "viewer"), ("Rita", "reviewer"), ("Al", "approver"), ("Olga", "owner")];
    let links = people.map(|(name, role)| add_user(&users, name, role));
    let server = served.start(&["--users", users.to_str().unwrap()]);
    let cookies = links.map(|link| format!("Cookie: {}\r\n", server.cookie(&link)));
    for (cookie, line) in cookies.iter().zip(["Vera is a viewer", "Rita is a reviewer", "Al is an approver"]) {
        is_refused(&server.put("p.plan.json", PLAN, cookie), 403, &format!("{line} here: that takes an owner"));
    }
    assert!(!served.folder().join("p.plan.json").exists());
    let olga = &cookies[3];
    assert_eq!(server.put("p.plan.json", PLAN, olga).status, 201);
    // Who is no owner any longer when the file is there has sent it for nothing.
    let (folder, bytes) = (served.folder(), large(1 << 20));
    let mut stream = half(&server, &folder, "late.trace.safetensors", &bytes, olga);
    let path = users.to_str().unwrap();
    run_in(served.around.path(), ["user", "role", "Olga", "viewer", "--users", path]).done();
    until("her role is known", || server.put("q.plan.json", b"no plan", olga).status == 403);
    stream.write_all(&bytes[bytes.len() / 2..]).unwrap();
    is_refused(&Answer::read(stream), 403, "Olga is a viewer here");
    assert!(!folder.join("late.trace.safetensors").exists() && drafts(&folder) == 0);
}

#[test]
fn what_is_too_large_is_refused_before_it_is_sent_and_while_it_is() {
    let served = Served::new();
    let server = served.start(&["--max-upload", "1"]);
    let most = 1 << 20;
    let head = server.put_head("a.trace.safetensors", &format!("Content-Length: {}\r\n", most + 1));
    is_refused(&server.raw(&head), 413, "larger than the 1 MiB that this server takes (--max-upload)");
    let head = server.put_head("a.trace.safetensors", "Content-Length: 18446744073709551600\r\n");
    is_refused(&server.raw(&head), 413, "larger than");
    let chunked = |bytes: &[u8]| {
        let mut stream = server.connect();
        let head = server.put_head("a.trace.safetensors", "Transfer-Encoding: chunked\r\n");
        stream.write_all(format!("{head}{:x}\r\n", bytes.len()).as_bytes()).unwrap();
        drop(stream.write_all(bytes));
        drop(stream.write_all(b"\r\n0\r\n\r\n"));
        Answer::read(stream)
    };
    is_refused(&chunked(&large(most + 1)), 413, "larger than");
    assert_eq!((served.all().len(), drafts(&served.folder())), (3, 0));
    assert_eq!(chunked(&large(most)).status, 201);
    assert_eq!(server.put("b.trace.safetensors", &large(most), "").status, 201);
}

#[test]
fn a_refused_file_is_heard_out_so_that_its_page_reads_why() {
    let served = Served::new();
    let server = served.start(&[]);
    let mut stream = server.connect();
    let bytes = vec![b'x'; 32 << 20];
    let head = server.put_head("x.exe", &format!("Content-Length: {}\r\n", bytes.len()));
    for head in [head.replace("Connection: close", "Connection: keep-alive"), head] {
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&bytes).unwrap();
    }
    let all = Answer::read(stream);
    is_refused(&Answer { body: all.body[..all.text().find("HTTP/1.1").unwrap()].to_vec(), ..all }, 400, "takes");
}

#[test]
fn what_breaks_off_leaves_nothing() {
    let served = Served::new();
    let (folder, bytes) = (served.folder(), large(3 << 20));
    let mut server = served.start(&[]);
    drop(half(&server, &folder, "a.trace.safetensors", &bytes, ""));
    until("it is gone", || drafts(&folder) == 0);
    let stream = half(&server, &folder, "a.trace.safetensors", &bytes, "");
    assert_eq!(Window::join(&server, 1, Some(TRACE)).sync.files, [TRACE], "nobody is offered a part");
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    is_refused(&Answer::read(stream), 503, "the server is being stopped");
    assert_eq!((served.all().len(), drafts(&folder)), (4, 0), "the trace's journal came along");
}

#[test]
fn who_stops_sending_is_let_go() {
    let served = Served::new();
    let server = served.start(&[]);
    let stream = half(&server, &served.folder(), "a.trace.safetensors", &large(1 << 20), "");
    is_refused(&Answer::read(stream), 408, "too slowly");
    assert_eq!((served.all().len(), drafts(&served.folder())), (3, 0));
}

#[test]
fn content_of_another_kind_is_refused() {
    let served = Served::new();
    let server = served.start(&[]);
    let key = b"{\"format\": \"loka-key\"}".as_slice();
    for (name, bytes, part) in [
        ("a.trace.safetensors", b"%PDF-1.7".as_slice(), "no trace, as its name says: it looks like a PDF document"),
        ("a.trace.safetensors", PLAN, "its name says trace, its content plan"),
        ("a.results.parquet", &trace(1), "its name says results, its content trace"),
        ("a.plan.json", b"", "it looks like an empty file"),
        ("a.plan.json", b"{}", "it looks like JSON of another program"),
        ("a.plan.json", key, "its name says plan, its content key"),
        ("a.results.parquet", &vec![7; 1 << 20], "a binary file of another program"),
    ] {
        is_refused(&server.put(name, bytes, ""), 415, part);
    }
    assert_eq!((served.all().len(), drafts(&served.folder())), (3, 0));
}

#[test]
fn a_server_of_one_trace_and_one_that_was_told_so_take_nothing() {
    let served = Served::new();
    let one = Server::start(&served.folder().join(TRACE), [""; 0]);
    is_refused(
        &one.put("p.plan.json", PLAN, ""),
        403,
        "started for one trace and takes no files: start it with a folder",
    );
    let none = served.start(&["--max-upload", "0"]);
    is_refused(&none.put("p.plan.json", PLAN, ""), 403, "takes no files (--max-upload 0)");
    assert_eq!(served.all().len(), 3);
}

#[test]
fn two_come_in_at_a_time() {
    let served = Served::new();
    let (folder, bytes) = (served.folder(), large(1 << 20));
    let server = served.start(&[]);
    let mut first = half(&server, &folder, "1.trace.safetensors", &bytes, "");
    let second = half(&server, &folder, "2.trace.safetensors", &bytes, "");
    is_refused(&server.put("p.plan.json", PLAN, ""), 503, "2 files are on their way to this server already");
    first.write_all(&bytes[bytes.len() / 2..]).unwrap();
    assert_eq!(Answer::read(first).status, 201);
    assert_eq!(server.put("p.plan.json", PLAN, "").status, 201);
    drop(second);
    until("the second is gone", || drafts(&folder) == 0);
    // Two of one name: the later one finds the first there.
    let [mut one, mut other] = [(); 2].map(|()| half(&server, &folder, "3.trace.safetensors", &bytes, ""));
    one.write_all(&bytes[bytes.len() / 2..]).unwrap();
    assert_eq!(Answer::read(one).status, 201);
    other.write_all(&vec![b'x'; bytes.len() / 2]).unwrap();
    is_refused(&Answer::read(other), 409, "another file of that name");
}

#[test]
fn a_folder_that_lists_all_it_can_takes_no_more() {
    let served = Served::new();
    for number in 0..1000 {
        std::fs::write(served.folder().join(format!("{number}.plan.json")), PLAN).unwrap();
    }
    let server = served.start(&[]);
    is_refused(&server.put("p.plan.json", PLAN, ""), 507, "the 1000 files that a server lists");
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_and_a_disk_that_take_nothing_are_a_line() {
    use std::os::unix::fs::PermissionsExt as _;
    let served = Served::new();
    let folder = served.folder();
    // Larger files fail as on a full disk, and the signal that says so is not heard.
    let small = ["sh", "-c", "trap '' XFSZ; ulimit -f 600; exec \"$0\" \"$@\""];
    let server = Server::under(&small, &folder, "127.0.0.1:0", [""; 0]);
    let answer = server.put("a.trace.safetensors", &large(2 << 20), "");
    is_refused(&answer, 507, "the server's disk takes no more of it");
    assert_eq!((served.all().len(), drafts(&folder)), (3, 0));

    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    // Who may do everything may write there, too.
    let probe = folder.join("probe");
    let root = std::fs::write(&probe, "").and_then(|()| std::fs::remove_file(probe)).is_ok();
    let starter: &[&str] = if root { &["setpriv", "--bounding-set", "-dac_override"] } else { &[] };
    let server = Server::under(starter, &folder, "127.0.0.1:0", [""; 0]);
    is_refused(&server.put("p.plan.json", PLAN, ""), 403, "no permission to write into the folder that it serves");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!((served.all().len(), drafts(&folder)), (3, 0));
}
