//! The real binary in a real window: an X server without a screen, drawn by Mesa's software Vulkan, touched by xdotool.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use loka::driving::Look;
use loka_tests::loka;

use crate::{
    child::Program,
    player::Playable,
    stage::{PERSON, Stage},
};

pub struct InWindow {
    // In this order: the window goes before its screen.
    window: Program,
    _screen: Program,
    display: String,
    folder: PathBuf,
}

/// An X server without a screen, and how it is called. An error is what is not there.
pub fn screen(width: f32, height: f32) -> Result<(Program, String), String> {
    let mut screen = Command::new("Xvfb");
    // The server picks a free number and says it on stdout.
    screen.args(["-displayfd", "1", "-screen", "0", &format!("{width}x{height}x24"), "-nolisten", "tcp"]);
    let mut screen = Program::start(&mut screen)?;
    let display = format!(":{}", screen.line());
    Ok((screen, display))
}

/// A window there, with settings of its own: neither another desktop nor its file dialogs, fonts and scale.
pub fn put_on(window: &mut Command, display: &str, settings: &Path) {
    window.env("DISPLAY", display).env("XDG_CONFIG_HOME", settings).env("WGPU_BACKEND", "vulkan");
    for name in ["WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XMODIFIERS"] {
        window.env_remove(name);
    }
    window.env("WINIT_X11_SCALE_FACTOR", "1").env("LC_ALL", "C.UTF-8").env("USER", PERSON);
}

impl InWindow {
    /// An error is what is not there.
    pub fn open(stage: &Stage) -> Result<Self, String> {
        let [width, height] = stage.looks.size;
        let (screen, display) = screen(width, height)?;
        let xdotool = Command::new("xdotool").arg("version").stdout(Stdio::null()).status();
        xdotool.map_err(|error| format!("{error}: xdotool"))?;
        let settings = stage.room("settings");
        std::fs::create_dir(settings.join("loka")).unwrap();
        let looks = serde_json::json!({"version": 1, "ground": stage.looks.ground, "window": stage.looks.size});
        std::fs::write(settings.join("loka/settings.json"), looks.to_string()).unwrap();
        let mut window = Command::new(loka());
        window.args(["open", "--drive"]).arg(&stage.trace).current_dir(stage.traces());
        put_on(&mut window, &display, &settings);
        let window = Program::start(&mut window)?.ending_with_stdin();
        let mut open = Self { window, _screen: screen, display, folder: stage.traces().to_owned() };
        let look = open.look();
        assert_eq!((look.size, look.pixels_per_point), (stage.looks.size, 1.0), "the window is of another size");
        // There is no window manager to give it the keys.
        let found = open.tool(&["search", "--sync", "--onlyvisible", "--pid", &open.window.id().to_string()]);
        let id = found.lines().next().unwrap_or_default().to_owned();
        open.tool(&["windowmove", &id, "0", "0", "windowfocus", "--sync", &id]);
        Ok(open)
    }

    /// What another program pastes; nothing where nobody owns the clipboard.
    pub fn pasted(&self) -> Result<String, String> {
        let output =
            Command::new("xclip").args(["-o", "-selection", "clipboard"]).env("DISPLAY", &self.display).output();
        Ok(String::from_utf8(output.map_err(|error| format!("{error}: xclip"))?.stdout).unwrap())
    }

    fn tool(&self, arguments: &[&str]) -> String {
        let output = Command::new("xdotool").args(arguments).env("DISPLAY", &self.display).output().unwrap();
        assert!(output.status.success(), "xdotool {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Playable for InWindow {
    fn name(&self) -> &'static str {
        "window"
    }

    fn look(&mut self) -> Look {
        serde_json::from_str(&self.window.ask("look")).unwrap()
    }

    fn point(&mut self, at: [i32; 2]) {
        self.tool(&["mousemove", &at[0].to_string(), &at[1].to_string()]);
    }

    fn press(&mut self) {
        self.tool(&["mousedown", "1"]);
    }

    fn release(&mut self) {
        self.tool(&["mouseup", "1"]);
    }

    fn key(&mut self, keys: &str) {
        self.tool(&["key", &keys.split('+').map(keysym).collect::<Vec<_>>().join("+")]);
    }

    fn type_text(&mut self, text: &str) {
        self.tool(&["type", "--delay", "2", "--", text]);
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    fn exported(&mut self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.folder.join(name)).ok()
    }

    fn picture(&mut self, path: &Path) -> Result<(), String> {
        let mut shot = Command::new("import");
        let shot = shot.args(["-window", "root"]).arg(path).env("DISPLAY", &self.display).status();
        let shot = shot.map_err(|error| format!("{error}: import, of imagemagick"))?;
        if shot.success() { Ok(()) } else { Err("import took no picture".to_owned()) }
    }

    fn complaints(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// As X names it.
fn keysym(key: &str) -> String {
    match key {
        "Ctrl" => "ctrl".to_owned(),
        "Shift" => "shift".to_owned(),
        "Enter" => "Return".to_owned(),
        arrow if arrow.starts_with("Arrow") => arrow["Arrow".len()..].to_owned(),
        character if character.len() == 1 => character.to_lowercase(),
        other => other.to_owned(),
    }
}
