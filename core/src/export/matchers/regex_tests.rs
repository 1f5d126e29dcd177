//! Cases whose answers were taken from Python 3.11's re.

use super::*;

const NAMES: [&str; 29] = [
    "m.layers.1.fc1",
    "m.layers.10.fc1",
    "",
    "a",
    "b",
    "ab",
    "abc",
    "ac",
    "b.c",
    "aXb",
    "aab",
    "a\n",
    "a\nb",
    "a b",
    "acd",
    "bd",
    "[0]",
    "a-b",
    "é",
    "x*",
    "xa",
    "ba",
    "a.c",
    "b.d",
    "ax.c",
    "\n",
    "a$b",
    "a\\b",
    "A",
];

/// A pattern and which of the names re.search, re.match and re.fullmatch find it in: bit 0 is the first name.
#[rustfmt::skip]
const CASES: [(&str, [u32; 3]); 30] = [
    ("layers\\.1", [0x3, 0x0, 0x0]),
    ("^m\\.layers\\.1\\.fc1$", [0x1, 0x1, 0x1]),
    ("m\\.layers\\.1\\..*", [0x1, 0x1, 0x1]),
    (".*layers\\.1", [0x3, 0x3, 0x0]),
    ("\\A(?:a|b\\.c|)\\Z", [0x10c, 0x10c, 0x10c]),
    ("(?:a|ab)c?", [0xd72_7eeb, 0xd42_7ee8, 0xe8]),
    ("a|b", [0xdf2_fffb, 0xde2_fff8, 0x18]),
    ("a.b", [0xc02_2600, 0xc02_2600, 0xc02_2600]),
    ("a+b", [0x460, 0x460, 0x420]),
    ("a*", [0x1fff_ffff, 0x1fff_ffff, 0xc]),
    ("ab?c", [0x40c0, 0x40c0, 0xc0]),
    ("\\Aa\\Z", [0x8, 0x8, 0x8]),
    ("a$", [0x30_0808, 0x808, 0x8]),
    ("a\\Z", [0x30_0008, 0x8, 0x8]),
    ("^a", [0xd42_7ee8, 0xd42_7ee8, 0x8]),
    ("a\\ b", [0x2000, 0x2000, 0x2000]),
    ("a\\\nb", [0x1000, 0x1000, 0x1000]),
    ("", [0x1fff_ffff, 0x1fff_ffff, 0x4]),
    ("(a|b)(c|d)", [0xc0c0, 0xc080, 0x8080]),
    ("(?:a|b)$", [0xc32_3e38, 0x818, 0x18]),
    ("\\[0\\]", [0x1_0000, 0x1_0000, 0x1_0000]),
    ("a\\-b", [0x2_0000, 0x2_0000, 0x2_0000]),
    ("é", [0x4_0000, 0x4_0000, 0x4_0000]),
    ("x\\*", [0x8_0000, 0x8_0000, 0x8_0000]),
    ("a$b", [0x0, 0x0, 0x0]),
    ("b^", [0x0, 0x0, 0x0]),
    ("(?:(?:a|b)\\.(?:c|d))\\Z", [0xc0_0100, 0xc0_0100, 0xc0_0100]),
    (".", [0x1dff_fffb, 0x1dff_fffb, 0x1004_0018]),
    ("a|", [0x1fff_ffff, 0x1fff_ffff, 0xc]),
    ("a\\\\b", [0x800_0000, 0x800_0000, 0x800_0000]),
];

fn named(bits: u32) -> Vec<&'static str> {
    NAMES.into_iter().enumerate().filter(|(bit, _)| (bits >> bit) & 1 == 1).map(|(_, name)| name).collect()
}

#[test]
fn as_python_matches() {
    for (text, [search, start, full]) in CASES {
        let pattern = Pattern::new(text).unwrap();
        let found = |matches: &dyn Fn(&str) -> bool| NAMES.into_iter().filter(|name| matches(name)).collect::<Vec<_>>();
        assert_eq!(found(&|name| pattern.search(name)), named(search), "search {text:?}");
        assert_eq!(found(&|name| pattern.matches_start(name)), named(start), "match {text:?}");
        assert_eq!(found(&|name| pattern.fullmatch(name)), named(full), "fullmatch {text:?}");
    }
}

/// What is listed as the only names is what the slow way finds.
#[test]
fn literals_are_all_that_matches() {
    for (text, [search, start, full]) in CASES {
        let pattern = Pattern::new(text).unwrap();
        for ((from_start, to_end), found) in [((false, false), search), ((true, false), start), ((true, true), full)] {
            if let Some(literals) = pattern.literals(from_start, to_end) {
                let listed: Vec<&str> = NAMES.into_iter().filter(|name| literals.iter().any(|l| l == name)).collect();
                assert_eq!(listed, named(found), "{text:?}");
            }
        }
    }
}

#[test]
fn escaped_as_python_escapes() {
    for (name, escaped) in [
        ("a.b", "a\\.b"),
        ("(x)", "\\(x\\)"),
        ("[0]{1}", "\\[0\\]\\{1\\}"),
        ("a+b*c?", "a\\+b\\*c\\?"),
        ("^$|", "\\^\\$\\|"),
        ("\\", "\\\\"),
        ("-&~# \t\n\u{d}\u{b}\u{c}", "\\-\\&\\~\\#\\ \\\t\\\n\\\u{d}\\\u{b}\\\u{c}"),
        ("_/:;<=>@!\"%',`é\u{2028}", "_/:;<=>@!\"%',`é\u{2028}"),
        ("0aZ", "0aZ"),
    ] {
        assert_eq!(escape_regex(name), escaped);
    }
    for name in NAMES.into_iter().chain(crate::export::testing::HOSTILE) {
        let pattern = Pattern::new(&escape_regex(name)).unwrap();
        assert_eq!(pattern.literals(true, true), Some(vec![name.to_owned()]));
        assert!(NAMES.into_iter().all(|other| pattern.fullmatch(other) == (name == other)), "{name:?}");
    }
}

#[test]
fn what_is_not_known_is_not_guessed() {
    for text in [r"\d", "[ab]", "a{2}", "(?=a)", "(a)*", "a**", "a+?", "(", ")", "a(b", "*", "\\", r"\b", "(?P<x>a)"] {
        assert!(Pattern::new(text).is_err(), "{text:?}");
    }
    let deep = "(".repeat(5_000);
    assert!(Pattern::new(&deep).is_err(), "no stack is spent on it");
}
