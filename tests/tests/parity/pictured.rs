//! `loka open --screenshot`: the real window does what the command line says and leaves its picture, or a line why not.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use loka_tests::{loka, root};

use crate::{
    in_window::{put_on, screen},
    skipped, turn,
};

/// What a run of `loka open` said on stderr of its own, and its exit code.
fn open(display: &str, folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(loka());
    command.arg("open").arg(root("sample-traces/dcnv2-ranker.trace.safetensors")).args(arguments);
    put_on(&mut command, display, folder);
    let output = command.current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let own: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("loka: ")).collect();
    (output.status.code(), own.join("\n"))
}

#[test]
fn a_window_does_as_it_is_told_and_leaves_its_picture() {
    let _turn = turn();
    let (_screen, display) = match screen(1300.0, 900.0) {
        Ok(screen) => screen,
        Err(why) => return skipped("a picture of the window", &why),
    };
    let folder = tempfile::tempdir().unwrap();
    let picture = |name: &str, more: &[&str]| {
        let told = open(&display, folder.path(), &[more, &["--size", "1000x700", "--screenshot", name]].concat());
        assert_eq!(told, (Some(0), String::new()), "{name}");
        let decoder =
            png::Decoder::new(std::io::BufReader::new(std::fs::File::open(folder.path().join(name)).unwrap()));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((frame.width, frame.height), (1000, 700));
        pixels
    };
    let dark = picture("dark.png", &["--do", "view.plan"]);
    let light = picture("light.png", &["--at", "view=plan", "--theme", "light"]);
    let mean = |pixels: &[u8]| pixels.iter().map(|byte| u64::from(*byte)).sum::<u64>() / pixels.len() as u64;
    assert!(mean(&dark) < 110 && mean(&light) > 200, "{} and {}", mean(&dark), mean(&light));

    let told = open(&display, folder.path(), &["--do", "edit.redo", "--screenshot", "none.png"]);
    assert_eq!(told, (Some(2), "edit.redo does nothing: nothing to redo".to_owned()));
    let steps = |text: &str| std::fs::write(folder.path().join("steps.txt"), text).unwrap();
    steps("# a threshold, and the plan\n{\"set_max_error\": {\"value\": 0.02, \"gesture\": null}}\ndo view.plan\n");
    picture("steps.png", &["--steps", "steps.txt"]);
    std::fs::remove_file(folder.path().join("steps.png")).unwrap();
    steps(
        "{\"set_override\": {\"site\": \"no.such\", \"gemm\": \"fprop\", \"kernel\": \"cublaslt/bf16\", \"reason\": \"\"}}\n",
    );
    let told = open(&display, folder.path(), &["--steps", "steps.txt", "--screenshot", "none.png"]);
    assert_eq!(told, (Some(2), "unknown site 'no.such'".to_owned()));
    let mut left: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".png") || name.ends_with(".tmp") || name == "loka")
        .collect();
    left.sort();
    assert_eq!(left, ["dark.png", "light.png"], "no half a picture, and no settings");
}
