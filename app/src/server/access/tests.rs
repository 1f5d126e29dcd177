//! Names, origins and tokens as an attacker would try them.

use std::time::Duration;

use super::*;

fn names(listen: &str, allowed: &[&str]) -> Names {
    let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
    Names::new(listen.parse().unwrap(), &allowed)
}

#[test]
fn on_loopback_only_loopback_names_are_known() {
    let names = names("127.0.0.1:7878", &["Review.Example"]);
    for host in ["localhost", "LOCALHOST:7878", "localhost.", "127.0.0.1:7878", "127.9.9.9", "[::1]:9000", "[::1]"] {
        assert!(names.knows(host), "{host}");
    }
    assert!(names.knows("review.example:443"));
    for host in [
        "",
        "evil.example",
        "localhost.evil.example",
        "10.0.0.1:7878",
        "user@localhost",
        "localhost:99999",
        "localhost:a",
        "[::1",
        "[::1]x",
        "[fe80::1]",
        "local host",
        "localhost/",
        "127.0.0.1:80:80",
    ] {
        assert!(!names.knows(host), "{host}");
    }
}

#[test]
fn elsewhere_addresses_and_the_own_name_are_known() {
    let names = names("0.0.0.0:7878", &[]);
    for host in ["10.0.0.1:7878", "[fe80::1]:7878", "localhost:7878", &own_name()] {
        assert!(names.knows(host), "{host}");
    }
    assert!(!names.knows("evil.example:7878") && !names.knows(&format!("{}.evil.example", own_name())));
}

#[test]
fn an_origin_is_the_page_that_was_served() {
    let names = names("127.0.0.1:7878", &["review.example"]);
    assert!(names.is_own("http://localhost:7878", "localhost:7878", false));
    assert!(names.is_own("https://localhost:7878", "localhost:7878", true));
    assert!(names.is_own("https://review.example", "127.0.0.1:7878", false), "a proxy renamed the host");
    assert!(names.is_own("http://[::1]:7878", "[::1]:7878", false));
    for origin in [
        "null",
        "",
        "http://localhost:3000",
        "http://localhost",
        "http://127.0.0.1:7878",
        "http://evil.example",
        "ftp://localhost:7878",
        "http://localhost:7878/",
        "http://localhost:7878.evil.example",
        "chrome-extension://localhost:7878",
    ] {
        assert!(!names.is_own(origin, "localhost:7878", false), "{origin}");
    }
    assert!(!names.is_own("http://localhost:7878", "localhost:7878", true), "we speak TLS");
}

#[test]
fn a_door_without_a_token_is_open() {
    let authenticator = Authenticator::new(Key::None);
    assert_eq!(authenticator.standing([127, 0, 0, 1].into(), None, &[], Instant::now()), DoorStanding::Welcome(None));
}

#[test]
fn the_link_the_cookie_and_what_is_wrong() {
    let token = Token::random().unwrap();
    let authenticator = Authenticator::new(Key::Shared(token.clone()));
    let (from, now) = ([10, 0, 0, 1].into(), Instant::now());
    assert_eq!(authenticator.standing(from, None, &[], now), DoorStanding::Stranger);
    assert_eq!(
        authenticator.standing(from, Some(token.text()), &["old"], now),
        DoorStanding::ByLink(token.cookie().to_owned())
    );
    assert_eq!(authenticator.standing(from, None, &["old", token.cookie()], now), DoorStanding::Welcome(None));
    assert_eq!(authenticator.standing(from, Some("wrong"), &[token.cookie()], now), DoorStanding::Wrong);
    assert_eq!(authenticator.standing(from, None, &[token.text()], now), DoorStanding::Wrong);
}

#[test]
fn everybodys_own_token_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.json");
    let (anna, bo, stranger) = (Token::random().unwrap(), Token::random().unwrap(), Token::random().unwrap());
    let mut people = crate::server::People::default();
    people.add("Anna", loka_core::review::Role::Viewer, anna.digest()).unwrap();
    people.add("Bo", loka_core::review::Role::Owner, bo.digest()).unwrap();
    crate::server::user_store::write(&path, &people).unwrap();
    let authenticator = Authenticator::new(Key::Own(Arc::new(UserStore::open(&path).unwrap())));
    let (from, now) = ([127, 0, 0, 1].into(), Instant::now());
    let standing = |link, cookies: &[&str]| authenticator.standing(from, link, cookies, now);
    assert_eq!(standing(None, &[]), DoorStanding::Stranger, "on loopback, too");
    assert_eq!(standing(Some(anna.text()), &[bo.cookie()]), DoorStanding::ByLink(anna.cookie().to_owned()));
    assert_eq!(standing(None, &[anna.cookie()]), DoorStanding::Welcome(Some(anna.digest())));
    assert_eq!(standing(None, &["old", bo.cookie()]), DoorStanding::Welcome(Some(bo.digest())));
    for wrong in [stranger.cookie(), anna.text(), &anna.digest().to_string(), ""] {
        assert_eq!(standing(None, &[wrong]), DoorStanding::Wrong);
    }
    for wrong in [stranger.text(), anna.cookie(), &anna.digest().to_string()] {
        assert_eq!(standing(Some(wrong), &[bo.cookie()]), DoorStanding::Wrong);
    }
}

#[test]
fn guessing_is_slowed_by_address() {
    let token = Token::random().unwrap();
    let authenticator = Authenticator::new(Key::Shared(token.clone()));
    let (from, now) = (IpAddr::from([10, 0, 0, 1]), Instant::now());
    let wrong =
        (0..100).filter(|_| authenticator.standing(from, Some("guess"), &[], now) == DoorStanding::Wrong).count();
    assert_eq!(wrong, limits::WRONG_BURST as usize);
    assert_eq!(authenticator.standing(from, Some("guess"), &[], now), DoorStanding::TooMany);
    assert_eq!(
        authenticator.standing(from, Some(token.text()), &[], now),
        DoorStanding::ByLink(token.cookie().to_owned()),
        "a stranger at the same address locks nobody out"
    );
    assert_eq!(authenticator.standing(from, None, &["old", token.cookie()], now), DoorStanding::Welcome(None));
    assert_eq!(
        authenticator.standing([10, 0, 0, 2].into(), Some("guess"), &[], now),
        DoorStanding::Wrong,
        "another address"
    );
    let later = now + Duration::from_secs(1);
    let wrong =
        (0..100).filter(|_| authenticator.standing(from, Some("guess"), &[], later) == DoorStanding::Wrong).count();
    assert_eq!(wrong, limits::WRONG_PER_SECOND as usize);
}

#[test]
fn many_addresses_cost_a_bounded_memory() {
    let attempts = Attempts::default();
    let now = Instant::now();
    for number in 0..3 * limits::WRONG_ADDRESSES as u32 {
        attempts.note_wrong(IpAddr::V4(number.into()), now);
        attempts.note_wrong(IpAddr::V6((u128::from(number) << 64 | 7).into()), now);
    }
    assert!(attempts.by_address.lock().unwrap().len() <= limits::WRONG_ADDRESSES + 1);
    let of_one: IpAddr = "2001:db8::1".parse().unwrap();
    assert_eq!(network(of_one), network("2001:db8::ffff:1".parse().unwrap()), "one network, one count");
}
