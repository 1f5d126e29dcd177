//! Cases whose answers were taken from Python 3.11's re with the rule of transformers 5.23.

use super::*;

const NAMES: [&str; 22] = [
    "m.layers.1.fc1",
    "m.layers.10.fc1",
    "m.layers.1",
    "m",
    "mm",
    "a.b",
    "aXb",
    "aXb.c",
    "a\nb",
    "a",
    "b",
    "bc",
    "x",
    "x\n",
    "x\\Z",
    "",
    "m.layers.1.fc1.y",
    "é.b",
    "éXb",
    "q.fc2",
    "q.fc2x",
    "m\n",
];

/// A key and which of the names it skips.
const CASES: [(&str, &[&str]); 15] = [
    ("m.layers.1", &["m.layers.1.fc1", "m.layers.1", "m.layers.1.fc1.y"]),
    ("layers.1", &["m.layers.1"]),
    ("fc1", &["m.layers.1.fc1", "m.layers.10.fc1"]),
    ("m.layers.1.fc1", &["m.layers.1.fc1", "m.layers.1.fc1.y"]),
    ("m\\.layers\\.1\\.fc1\\Z", &["m.layers.1.fc1"]),
    ("m\\.layers\\.1\\Z", &["m.layers.1"]),
    ("m.layers.*", &["m.layers.1.fc1", "m.layers.10.fc1", "m.layers.1", "m.layers.1.fc1.y"]),
    ("m", &["m.layers.1.fc1", "m.layers.10.fc1", "m.layers.1", "m", "mm", "m.layers.1.fc1.y", "m\n"]),
    ("a.b", &["a.b", "aXb", "aXb.c"]),
    ("a|b", &["a.b", "a", "b"]),
    ("m.layers.1.", &["m.layers.1.fc1", "m.layers.10.fc1", "m.layers.1.fc1.y"]),
    (
        "",
        &[
            "m.layers.1.fc1",
            "m.layers.10.fc1",
            "m.layers.1",
            "m",
            "mm",
            "a.b",
            "aXb",
            "aXb.c",
            "a\nb",
            "a",
            "b",
            "bc",
            "x",
            "x\n",
            "x\\Z",
            "",
            "m.layers.1.fc1.y",
            "é.b",
            "éXb",
            "q.fc2",
            "q.fc2x",
            "m\n",
        ],
    ),
    ("x\\Z", &["x", "x\\Z"]),
    ("é.b", &["é.b", "éXb"]),
    (".*fc2", &["q.fc2"]),
];

#[test]
fn as_transformers_skips() {
    for (key, expected) in CASES {
        let list = SkipList::new(&[key.to_owned()]).unwrap();
        let hits: Vec<&str> = NAMES.into_iter().filter(|name| !list.hits_by_definition(name).is_empty()).collect();
        assert_eq!(hits, expected, "{key:?}");
    }
}

#[test]
fn the_fast_way_is_the_definition() {
    let keys: Vec<String> = CASES.iter().map(|(key, _)| (*key).to_owned()).collect();
    let list = SkipList::new(&keys).unwrap();
    for name in NAMES.into_iter().chain(crate::export::testing::HOSTILE) {
        assert_eq!(list.hits(name), list.hits_by_definition(name), "{name:?}");
    }
}
