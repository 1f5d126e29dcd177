//! `loka serve` from outside: who comes in, what is given, what is refused. Raw requests, as an attacker's would be.

use std::{
    io::{Read as _, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use loka_tests::{
    run_in,
    serving::{Answer, INDEX, PATIENCE, SCRIPT, Server},
    tiny,
};
use tempfile::TempDir;
use tokio_rustls::rustls::{self, pki_types::pem::PemObject as _};

/// A folder with a trace, and a secret beside it.
struct Served {
    around: TempDir,
}

impl Served {
    fn new() -> Self {
        let around = TempDir::new().unwrap();
        std::fs::create_dir(around.path().join("served")).unwrap();
        std::fs::write(around.path().join("secret.txt"), "secret").unwrap();
        tiny::put(&around.path().join("served/tiny.trace.safetensors"), 1);
        Self { around }
    }

    fn folder(&self) -> std::path::PathBuf {
        self.around.path().join("served")
    }
}

/// On loopback, without a token. One a test: what is never dropped would go on serving.
fn open() -> (Served, Server) {
    let served = Served::new();
    let server = Server::start(&served.folder(), ["--allow-host", "review.example"]);
    (served, server)
}

const TOKEN: &str = "a-token-of-thirty-two-characters";

fn with_token(args: &[&str]) -> (Served, Server) {
    let served = Served::new();
    let server = Server::start(&served.folder(), [&["--token", TOKEN], args].concat());
    (served, server)
}

/// On every answer, whatever it is.
#[track_caller]
fn is_strict(answer: &Answer) {
    let policy = answer.header("content-security-policy").unwrap_or_else(|| panic!("no policy: {answer:?}"));
    for part in [
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval';",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "connect-src 'self'",
    ] {
        assert!(policy.contains(part), "{part}: {policy}");
    }
    assert!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(answer.all(name), [value], "{answer:?}");
    }
}

#[test]
fn the_page_is_given_with_its_types_and_its_mark() {
    let (_served, server) = open();
    let index = server.get("/", &[]);
    let marked = INDEX.replace("<!-- loka-serve -->", "<meta name=\"loka-serve\" content=\"1\">");
    assert_eq!((index.status, index.text()), (200, marked));
    assert_eq!(index.header("content-type"), Some("text/html; charset=utf-8"));
    let script = server.get("/loka.js?v=1", &["Accept-Encoding: gzip"]);
    assert_eq!((script.status, script.text().as_str()), (200, SCRIPT));
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    let etag = script.header("etag").unwrap();
    let again = server.get("/loka.js", &[&format!("If-None-Match: {etag}")]);
    assert_eq!((again.status, again.body.len()), (304, 0));
    for answer in [&index, &script, &again] {
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        is_strict(answer);
    }
}

#[test]
fn nothing_else_of_the_disk_is_given() {
    let (_served, server) = open();
    for path in [
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/..%5csecret.txt",
        "//etc/passwd",
        "/etc/passwd",
        "/tiny.trace.safetensors",
        "/./loka.js",
        "/loka%2ejs",
        "/loka.js/",
        "/loka.js%00.html",
        "/index.html.gz",
        "/.",
    ] {
        let answer = server.get(path, &[]);
        assert_eq!(answer.status, 404, "{path}");
        is_strict(&answer);
    }
}

#[test]
fn other_names_are_turned_away() {
    let (_served, server) = open();
    let port = server.address.rsplit(':').next().unwrap();
    let ask = |host: &str| server.raw(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    for host in [&format!("localhost:{port}"), &format!("[::1]:{port}"), "localhost", "review.example"] {
        assert_eq!(ask(host).status, 200, "{host}");
    }
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1.evil.example", "10.1.2.3", "", "a b"] {
        let answer = ask(host);
        assert!(matches!(answer.status, 400 | 403), "{host}: {answer:?}");
        assert!(!answer.head.contains("evil"), "{answer:?}");
    }
    for request in [
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n".to_owned(),
        format!("GET http://evil.example/ HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n"),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
    ] {
        let answer = server.raw(&request);
        assert_eq!(answer.status, 403, "{request}: {answer:?}");
        is_strict(&answer);
    }
}

#[test]
fn only_reading_and_only_from_our_page() {
    let (_served, server) = open();
    let send = |method: &str, more: &str| {
        let host = &server.address;
        server.raw(&format!(
            "{method} / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n{more}\r\n"
        ))
    };
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"] {
        assert_eq!(send(method, "").status, 403, "{method}");
        assert_eq!(send(method, "Origin: http://evil.example\r\n").status, 403, "{method}");
        let answer = send(method, &format!("{}\r\n", server.origin()));
        assert_eq!(answer.status, 405, "{method}");
        is_strict(&answer);
    }
    let head = send("HEAD", "");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn a_websocket_is_for_our_page() {
    let (_served, server) = open();
    let port = server.address.rsplit(':').next().unwrap();
    assert_eq!(server.upgrade(&[&server.origin()]).status, 101);
    assert_eq!(server.upgrade(&["Origin: https://review.example"]).status, 101, "through a proxy");
    for origin in [
        &[][..],
        &["Origin: null"],
        &["Origin: http://evil.example"],
        &["Origin: http://localhost:1"],
        &[&format!("Origin: http://127.0.0.1:{port}.evil.example")],
        &[&server.origin(), "Origin: http://evil.example"],
    ] {
        let answer = server.upgrade(origin);
        assert_eq!(answer.status, 403, "{origin:?}");
        is_strict(&answer);
    }
    assert_eq!(server.get("/live", &[]).status, 400, "not a WebSocket");
}

#[test]
fn a_head_without_end_is_cut_off() {
    let (_served, server) = open();
    let mut stream = server.connect();
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\nX: ", server.address).as_bytes()).unwrap();
    // The connection may be closed while we still send.
    drop(stream.write_all(&vec![b'a'; 64 << 10]));
    let answer = Answer::read(stream);
    assert!(matches!(answer.status, 431 | 400 | 0), "{answer:?}");
    assert_eq!(server.get("/", &[]).status, 200);
}

#[test]
fn who_says_nothing_is_let_go() {
    let (_served, server) = open();
    let start = Instant::now();
    let mut slow = server.connect();
    slow.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
    let mut silent = server.connect();
    for stream in [&mut slow, &mut silent] {
        let mut rest = Vec::new();
        // An answer or none, but an end.
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn the_link_gives_a_cookie_and_the_cookie_the_page() {
    let (_served, server) = with_token(&[]);
    assert_eq!(server.link, format!("http://{}/?token={TOKEN}", server.address));
    for path in ["/", "/loka.js", "/nope"] {
        let stranger = server.get(path, &[]);
        assert_eq!(stranger.status, 401, "{path}");
        assert!(stranger.text().contains("Open the link that `loka serve` printed"), "{stranger:?}");
        is_strict(&stranger);
    }
    let by_link = server.get(&format!("/?site=a%20b&token={TOKEN}&view=plan"), &[]);
    assert_eq!((by_link.status, by_link.header("location")), (303, Some("/?site=a%20b&view=plan")));
    assert_eq!(by_link.header("cache-control"), Some("no-store"));
    is_strict(&by_link);
    let cookie = by_link.header("set-cookie").unwrap().to_owned();
    let port = server.address.rsplit(':').next().unwrap();
    assert!(cookie.starts_with(&format!("loka-{port}=")) && !cookie.contains(TOKEN), "{cookie}");
    for part in ["; HttpOnly", "; SameSite=", "; Path=/"] {
        assert!(cookie.contains(part), "{part}: {cookie}");
    }
    assert!(!cookie.contains("Secure"), "it would not come back over plain HTTP");
    let pair = cookie.split(';').next().unwrap();
    let with = format!("Cookie: other=1; {pair}");
    assert_eq!(server.get("/", &[&with]).status, 200);
    assert_eq!(server.upgrade(&[&with, &server.origin()]).status, 101);
    assert_eq!(server.upgrade(&[&with, "Origin: http://evil.example"]).status, 403);
    assert_eq!(server.upgrade(&[&server.origin()]).status, 401);
}

#[test]
fn a_restart_with_the_same_token_keeps_cookies() {
    let cookie = |server: &Server| {
        let answer = server.get(&format!("/?token={TOKEN}"), &[]);
        answer.header("set-cookie").unwrap().split(';').next().unwrap().split('=').nth(1).unwrap().to_owned()
    };
    let (first, second) = (with_token(&[]), with_token(&[]));
    assert_eq!(cookie(&first.1), cookie(&second.1));
}

#[test]
fn wrong_tokens_are_slow_and_few() {
    let (_served, server) = with_token(&[]);
    let start = Instant::now();
    assert_eq!(server.get("/?token=wrong", &[]).status, 401);
    assert!(start.elapsed() >= Duration::from_millis(200));
    let port = server.address.rsplit(':').next().unwrap();
    let wrong_cookie = format!("Cookie: loka-{port}=wrong");
    assert_eq!(server.get("/", &[&wrong_cookie]).status, 401);
    let guesses: Vec<u16> = std::thread::scope(|scope| {
        let guess = |at: usize| server.get(&format!("/?token=guess-{at}"), &[]).status;
        let threads: Vec<_> = (0..60).map(|at| scope.spawn(move || guess(at))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let compared = guesses.iter().filter(|status| **status == 401).count();
    assert!(guesses.iter().all(|status| matches!(status, 401 | 429)), "{guesses:?}");
    assert!(compared < 50, "{compared} of 60 guesses were compared");
    assert_eq!(server.get("/", &[]).status, 401, "who has nothing is told what to do");
}

#[test]
fn a_stranger_at_the_same_address_locks_nobody_out() {
    let (_served, server) = with_token(&[]);
    let cookie = format!("Cookie: {}", server.cookie(&format!("?token={TOKEN}")));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let server = &server;
        let guess = |at: usize| server.get(&format!("/?token=guess-{at}"), &[]).status;
        let threads: Vec<_> = (0..60).map(|at| scope.spawn(move || guess(at))).collect();
        let right = (0..42).map(|_| server.get("/", &[&cookie]).status).collect();
        threads.into_iter().for_each(|thread| assert!(matches!(thread.join().unwrap(), 401 | 429)));
        right
    });
    assert_eq!(statuses, [200; 42]);
    assert_eq!(server.get(&format!("/?token={TOKEN}"), &[]).status, 303, "and who comes by the link comes in");
}

#[test]
fn a_proxy_that_is_trusted_says_who_guesses() {
    let (_served, server) = with_token(&["--trust-forwarded-for"]);
    let guess = |from: &str| server.get("/?token=guess", &[&format!("X-Forwarded-For: 6.6.6.6, {from}")]).status;
    let all: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..40).map(|_| scope.spawn(|| guess("10.0.0.1"))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.contains(&429), "{all:?}");
    assert_eq!(guess("10.0.0.2"), 401, "another one is counted apart");
}

/// Every user of a machine reaches its loopback.
#[test]
fn loopback_asks_for_a_token_too() {
    let served = Served::new();
    let server = Server::listen(&served.folder(), "localhost:0", [""; 0]);
    let (_, token) = server.link.split_once("/?token=").unwrap_or_else(|| panic!("no token in {}", server.link));
    assert_eq!(server.get("/", &[]).status, 401);
    assert_eq!(server.upgrade(&[&server.origin()]).status, 401);
    assert_eq!(server.get(&format!("/?token={token}"), &[]).status, 303);
    let open = Server::listen(&served.folder(), "localhost:0", ["--no-token"]);
    assert_eq!((open.get("/", &[]).status, open.link.contains("token")), (200, false));
}

#[test]
fn many_that_ask_for_nothing_hold_up_nobody() {
    let (_served, server) = open();
    let half = format!("GET / HTTP/1.1\r\nHost: {}\r\n", server.address);
    let mut crowd = Vec::new();
    for at in 0..600 {
        let mut stream = server.connect();
        // Nothing, half a head, or a head, an answer and nothing more.
        match at % 3 {
            0 => {}
            1 => stream.write_all(half.as_bytes()).unwrap(),
            _ => stream.write_all(format!("{half}\r\n").as_bytes()).unwrap(),
        }
        crowd.push(stream);
    }
    for _ in 0..5 {
        let start = Instant::now();
        assert_eq!(server.get("/", &[]).status, 200);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
    drop(crowd);
}

#[test]
fn other_addresses_need_a_token() {
    let served = Served::new();
    let server = Server::listen(&served.folder(), "0.0.0.0:0", [""; 0]);
    let (_, token) = server.link.split_once("/?token=").unwrap_or_else(|| panic!("no token in {}", server.link));
    assert_eq!(token.len(), 43, "32 bytes in base64");
    assert_eq!(server.get("/", &[]).status, 401);
    assert_eq!(server.get(&format!("/?token={token}"), &[]).status, 303);
    let evil = server.raw("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert_eq!(evil.status, 403);
}

#[test]
fn bad_use_is_one_line() {
    let served = Served::new();
    let (work, folder) = (TempDir::new().unwrap(), served.folder());
    std::fs::write(work.path().join("x.txt"), "no").unwrap();
    std::fs::write(work.path().join("short"), "short").unwrap();
    let page = TempDir::new().unwrap();
    std::fs::write(page.path().join("index.html"), INDEX).unwrap();
    let (folder, page) = (folder.to_str().unwrap(), page.path().to_str().unwrap());
    let (_other, server) = open();
    let busy = &server.address;
    for (args, part) in [
        (vec!["nowhere", "--page", page], "no such file or folder: nowhere"),
        (vec!["x.txt", "--page", page], "x.txt"),
        (vec![folder, "--page", "."], "no index.html in it: ."),
        (vec![folder, "--page", "nowhere"], "no such file or folder: nowhere"),
        (vec![folder, "--page", page, "--listen", busy], "another program listens there"),
        (vec![folder, "--page", page, "--listen", "nonsense"], "no address to listen on"),
        (vec![folder, "--page", page, "--token", "short"], "a token has 16 to 256 characters"),
        (vec![folder, "--page", page, "--token-file", "short"], "a token has 16 to 256 characters"),
        (vec![folder, "--page", page, "--no-token", "--listen", "0.0.0.0:0"], "--no-token is for this machine alone"),
        (vec![folder, "--page", page, "--tls-cert", "x.txt", "--tls-key", "x.txt"], "no certificate in it: x.txt"),
    ] {
        let line = run_in(work.path(), [vec!["serve"], args].concat()).refused();
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn the_address_is_the_last_line_and_a_signal_ends_it_well() {
    let served = Served::new();
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&served.folder(), ["--json"]);
        let object: serde_json::Value = serde_json::from_str(&server.link).unwrap();
        assert_eq!(object["address"], format!("http://{}/", server.address));
        let _idle = server.connect();
        server.signal(signal);
        let start = Instant::now();
        assert_eq!(server.ended(), Some(0), "{signal}");
        assert!(start.elapsed() < Duration::from_secs(8), "{signal}");
        assert_eq!(server.rest(), "");
    }
}

#[test]
fn https_with_a_certificate() {
    let served = Served::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let put = |name: &str, text: &str| {
        let path = served.around.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (certificate, key) = (put("c.pem", &made.cert.pem()), put("k.pem", &made.signing_key.serialize_pem()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |mode| std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        let (folder, page) = (served.folder(), TempDir::new().unwrap());
        std::fs::write(page.path().join("index.html"), INDEX).unwrap();
        let (folder, page) = (folder.to_str().unwrap(), page.path().to_str().unwrap());
        let args = ["serve", folder, "--page", page, "--tls-cert", &certificate, "--tls-key", &key];
        assert!(run_in(served.around.path(), args).refused().contains("others can get at this private key"));
        mode(0o600);
    }
    let server = Server::start(&served.folder(), ["--token", TOKEN, "--tls-cert", &certificate, "--tls-key", &key]);
    assert!(server.link.starts_with("https://"), "{}", server.link);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_file(&certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let port = server.address.rsplit(':').next().unwrap();
    let ask = |path: &str, more: &str| {
        let name = "localhost".try_into().unwrap();
        let connection = rustls::ClientConnection::new(config.clone(), name).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, server.connect());
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n{more}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        Answer::read(stream)
    };
    let answer = ask(&format!("/?token={TOKEN}"), "");
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    assert!(answer.status == 303 && cookie.ends_with("; Secure"), "{answer:?}");
    let pair = cookie.split(';').next().unwrap();
    assert_eq!(ask("/loka.js", &format!("Cookie: {pair}\r\n")).text(), SCRIPT);
    assert_eq!(server.get("/", &[]).status, 0, "plain HTTP gets no answer there");
}
