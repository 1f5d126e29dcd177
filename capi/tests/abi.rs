//! The library as training code sees it: takes the header, gives whether the library exports what it declares with the
//! same types, and whether a C program that calls it gets the launches that it should.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const SOURCES: [&str; 5] = [
    include_str!("../src/lib.rs"),
    include_str!("../src/casts.rs"),
    include_str!("../src/gemms.rs"),
    include_str!("../src/blocks.rs"),
    include_str!("../src/torch.rs"),
];

/// libloka.so of this build. Cargo links no test with it, and so builds none for them.
fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let found = Some(deps.join("../libloka.so")).filter(|path| path.exists());
    found.expect("no libloka.so of this build: cargo build -p loka_capi")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert!(output.status.success(), "{command:?}: {}{}", text(output.stdout), text(output.stderr));
    text(output.stdout)
}

/// C without comments and preprocessor lines.
fn header() -> String {
    let mut text = std::fs::read_to_string(Path::new(ROOT).join("loka.h")).unwrap();
    while let Some((start, end)) =
        text.find("/*").and_then(|start| Some((start, text[start..].find("*/")? + start + 2)))
    {
        text.replace_range(start..end, " ");
    }
    text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// `const void *` and `const float *x` become `const void*` and `const float*`.
fn c_type(text: &str, is_named: bool) -> String {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let last = words.pop().unwrap();
    let stars = last.chars().take_while(|c| *c == '*').count();
    if !is_named {
        words.push(last);
        return words.join(" ").replace(" *", "*");
    }
    words.join(" ").replace(" *", "*") + &"*".repeat(stars)
}

/// Result and arguments of each function, as C has them.
fn declared() -> BTreeMap<String, Vec<String>> {
    let text = header();
    let mut found = BTreeMap::new();
    for statement in text.split(';').filter(|statement| statement.contains('(')) {
        let (head, arguments) = statement.split_once('(').unwrap();
        let head = head.rsplit(['{', '}']).next().unwrap();
        let name = head.rsplit([' ', '*', '\n']).next().unwrap().to_owned();
        let arguments = arguments.split(')').next().unwrap();
        let mut types = vec![c_type(head, true)];
        types.extend(arguments.split(',').filter(|item| item.trim() != "void").map(|item| c_type(item, true)));
        found.insert(name, types);
    }
    found
}

/// A Rust type of the boundary as C has it.
fn as_c(text: &str) -> String {
    match text.trim() {
        "i32" => "int32_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "f32" => "float",
        "c_void" => "void",
        "c_char" => "char",
        "CastOperand" => "loka_operand",
        "StaticCastMemory" => "loka_static_operand",
        pointer => {
            let inner = pointer.strip_prefix("*const ").map(|inner| format!("const {}*", as_c(inner)));
            return inner
                .or_else(|| pointer.strip_prefix("*mut ").map(|inner| format!("{}*", as_c(inner))))
                .unwrap_or_else(|| panic!("{pointer} has no place in a C ABI"));
        }
    }
    .to_owned()
}

/// The same of what the sources define.
fn defined() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for source in SOURCES {
        for part in source.split("extern \"C\" fn ").skip(1) {
            let (name, rest) = part.split_once('(').unwrap();
            let (arguments, rest) = rest.split_once(')').unwrap();
            let result = rest.split('{').next().unwrap().trim().trim_start_matches("-> ");
            let mut types = vec![as_c(result)];
            let items = arguments.split(',').map(str::trim).filter(|item| !item.is_empty());
            types.extend(items.map(|item| as_c(item.split_once(':').unwrap().1)));
            found.insert(name.to_owned(), types);
        }
    }
    found
}

#[test]
fn the_header_declares_what_the_library_defines_and_exports() {
    assert_eq!(declared(), defined());
    assert!(declared().len() >= 10, "{:?}", declared());
    let exported: BTreeSet<String> = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library()))
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned))
        .filter(|name| !name.starts_with('_'))
        .collect();
    assert_eq!(exported, declared().into_keys().collect(), "and nothing else");
}

#[test]
fn flags_and_codes_of_the_header_are_those_of_the_kernels() {
    let text = header();
    let value = |name: &str| -> u32 {
        let rest = text.split_once(&format!("{name} = ")).unwrap_or_else(|| panic!("{name}")).1;
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    let source = SOURCES.concat();
    for name in ["FAST", "X_E5M2", "X_ROW_SCALES", "W_ROW_SCALES", "X_E4M3"] {
        assert!(source.contains(&format!("const {name}: u32 = {};", value(&format!("LOKA_{name}")))), "{name}");
    }
    let outcome = include_str!("../src/outcome.rs");
    for name in ["OK", "REFUSED", "MISSING", "FAILED", "LOST", "BUG"] {
        assert!(outcome.contains(&format!("const {name}: i32 = {};", value(&format!("LOKA_{name}")))), "{name}");
    }
    let casts = include_str!("../../kernels/src/casts.rs");
    for name in ["POWER_OF_TWO", "AS_E5M2"] {
        assert!(casts.contains(&format!("pub const {name}: u32 = {};", value(&format!("LOKA_{name}")))), "{name}");
    }
    let version = std::fs::read_to_string(Path::new(ROOT).join("loka.h")).unwrap();
    let version = version.split_once("LOKA_ABI_VERSION ").unwrap().1.lines().next().unwrap().to_owned();
    assert!(SOURCES[0].contains(&format!("const ABI_VERSION: u32 = {version};")));
}

/// Names that `symbols!` lists in a source of core.
fn listed(file: &str) -> Vec<String> {
    let path = Path::new(ROOT).join("../core/src/engine/cuda").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("fn ")?.split_once('('));
    let names = names.map(|(name, _)| name.to_owned());
    names.filter(|name| name.starts_with("cu") || name.starts_with("nvrtc")).filter(|name| name != "cubin").collect()
}

/// One library that is all of NVIDIA's, under the names by which they are looked for.
fn stand_ins(folder: &Path) {
    let bodies = include_str!("stand_ins.c");
    let rest = ["driver.rs", "nvrtc.rs"].into_iter().flat_map(listed);
    let rest: String =
        rest.filter(|name| !bodies.contains(&format!("int {name}("))).map(|name| format!("DONE({name})\n")).collect();
    let source = folder.join("stand_ins.c");
    std::fs::write(&source, format!("{bodies}{rest}")).unwrap();
    for name in ["libcuda.so.13", "libnvrtc.so.13"] {
        run(Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).arg(folder.join(name)).arg(&source));
    }
}

#[test]
fn a_program_in_c_gets_the_launches_that_it_asks_for() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("abi");
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    stand_ins(&folder);
    let program = folder.join("calls");
    let strict = ["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic"];
    run(Command::new("cc")
        .args(strict)
        .arg("-I")
        .arg(ROOT)
        .arg(Path::new(ROOT).join("tests/calls.c"))
        .arg(library())
        .args(["-o"])
        .arg(&program)
        .arg("-pthread"));
    run(Command::new("c++")
        .args(["-x", "c++", "-fsyntax-only", "-Wall", "-Werror", "-pedantic"])
        .arg(Path::new(ROOT).join("loka.h")));
    let paths = std::env::join_paths([folder.clone(), library().parent().unwrap().to_owned()]).unwrap();
    let call = || run(Command::new(&program).env("LD_LIBRARY_PATH", &paths).env("XDG_CACHE_HOME", &folder));
    let (first, second) = (call(), call());
    let without = |text: &str| -> String {
        text.lines().filter(|line| !line.contains("compiling")).map(|line| format!("{line}\n")).collect()
    };
    assert_eq!(without(&first), include_str!("calls.txt"));
    assert_eq!(second, without(&first), "the second run compiles nothing");
    assert!(first.contains("compiling cast_rowwise.cu"));
}
