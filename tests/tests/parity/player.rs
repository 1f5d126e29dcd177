//! Takes a scenario and a window, plays its steps by mouse and keys, gives what came of it. Nothing is timed: everything
//! waits until it is so, and says what it saw when it never is.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use loka::driving::{Look, Node};
use serde_json::Value;

use crate::scenario::{Aim, Scenario, ScenarioStep, Wait, is_part};

/// Far more than anything takes, on a slow machine that does other things too.
const LIMIT: Duration = Duration::from_secs(600);

const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Frames in which a window that nobody touches comes to rest.
const REST: u64 = 4;

/// A workbench that can be seen and touched. Places are whole points, each of which is a pixel.
pub trait Playable {
    fn name(&self) -> &'static str;
    fn look(&mut self) -> Look;
    fn point(&mut self, at: [i32; 2]);
    fn press(&mut self);
    fn release(&mut self);
    /// `Ctrl+Shift+Z`: modifiers, then a key as egui names it.
    fn key(&mut self, keys: &str);
    fn type_text(&mut self, text: &str);
    /// How a file beside the trace is named here.
    fn path(&self, name: &str) -> String;
    /// Gives it a file beside the trace as a person picks one; false: it is typed where it lies.
    fn hand(&mut self, _name: &str) -> bool {
        false
    }
    /// A file that was exported under that name, when it is there.
    fn exported(&mut self, name: &str) -> Option<Vec<u8>>;
    fn picture(&mut self, path: &Path) -> Result<(), String>;
    /// What it said was wrong, while it was open.
    fn complaints(&mut self) -> Vec<String>;
}

/// What came of a scenario in one window.
pub struct Played {
    pub window: &'static str,
    pub exports: BTreeMap<String, Vec<u8>>,
    /// Where the session stood after each step that waited for a state.
    pub states: Vec<(usize, Value)>,
    /// At the end.
    pub last: Look,
}

pub fn play(scenario: &Scenario, window: &mut dyn Playable) -> Played {
    let start = Instant::now();
    let mut player = Player { scenario, window, at: 0, exports: BTreeMap::new(), states: Vec::new() };
    player.window.point([1, 1]);
    for (at, step) in scenario.steps.iter().enumerate() {
        player.at = at;
        // Seen with `--nocapture`: which of the windows is where.
        eprintln!(
            "{}: {} {at} of {} at {:.1} s",
            player.window.name(),
            scenario.name,
            scenario.steps.len(),
            start.elapsed().as_secs_f64()
        );
        player.step(step);
    }
    // Nothing is hovered.
    player.window.point([1, 1]);
    let last = player.settled();
    eprintln!("{}: frame {} at {:.1} s", player.window.name(), last.frame, start.elapsed().as_secs_f64());
    let complaints = player.window.complaints();
    assert!(complaints.is_empty(), "{} of {}: {complaints:?}", scenario.name, player.window.name());
    Played { window: player.window.name(), exports: player.exports, states: player.states, last }
}

struct Player<'a> {
    scenario: &'a Scenario,
    window: &'a mut dyn Playable,
    at: usize,
    exports: BTreeMap<String, Vec<u8>>,
    states: Vec<(usize, Value)>,
}

impl Player<'_> {
    fn step(&mut self, step: &ScenarioStep) {
        match step {
            ScenarioStep::Click(target) => self.click(target),
            ScenarioStep::Drag { from, by } => self.drag(from, *by),
            ScenarioStep::Key(keys) => self.window.key(keys),
            ScenarioStep::Type(text) => self.window.type_text(text),
            ScenarioStep::Path(name) => self.path(name),
            ScenarioStep::Wait(wait) => self.wait(wait),
            ScenarioStep::Export(name) => self.export(name),
            ScenarioStep::Sign(name) => self.sign(name),
        }
    }

    fn click(&mut self, target: &Aim) {
        let at = self.place(target);
        self.window.point(at);
        self.window.press();
        self.window.release();
    }

    /// In small steps, as a hand does; let go of when the window has come to rest.
    fn drag(&mut self, from: &Aim, by: [f32; 2]) {
        const STEPS: i32 = 8;
        let start = self.place(from);
        self.window.point(start);
        self.settled();
        self.window.press();
        // Within one frame a press counts where the pointer is at its end: off the line already.
        self.window.look();
        for step in 1..=STEPS {
            let part = |way: f32| (way * step as f32 / STEPS as f32).round() as i32;
            self.window.point([start[0] + part(by[0]), start[1] + part(by[1])]);
            self.window.look();
        }
        self.settled();
        self.window.release();
    }

    fn export(&mut self, name: &str) {
        self.click(&Aim::of("Button", "Export plan…"));
        self.path(name);
        self.click(&Aim::of("Button", "Save"));
        let start = Instant::now();
        let bytes = loop {
            if let Some(bytes) = self.window.exported(name) {
                break bytes;
            }
            let look = self.window.look();
            if start.elapsed() > LIMIT {
                let what = self.named(&format!("{name} was not exported"));
                fail(self.window, &what, &look);
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        self.exports.insert(name.to_owned(), bytes);
    }

    /// Into the dialog that asks for a file: a page has names, of the server's files and of downloads.
    fn path(&mut self, name: &str) {
        let fields = ["Path", "Name"].map(|label| Aim { focused: Some(true), ..Aim::of("TextInput", label) });
        let has_keys = |node: &Node| fields.iter().any(|field| field.fits(node));
        self.until("the path has the keys", |look| look.nodes.iter().any(has_keys));
        self.window.key("Ctrl+A");
        let path = self.window.path(name);
        self.window.type_text(&path);
    }

    fn sign(&mut self, name: &str) {
        if self.window.hand(name) {
            return;
        }
        self.click(&Aim::of("Button", "Approve…"));
        let field = Aim { focused: Some(true), ..Aim::of("TextInput", "Key") };
        self.until("the key's path has the keys", |look| look.nodes.iter().any(|node| field.fits(node)));
        self.window.key("Ctrl+A");
        let path = self.window.path(name);
        self.window.type_text(&path);
        self.click(&Aim::of("Button", "Sign"));
    }

    fn wait(&mut self, wait: &Wait) {
        let ready = |look: &Look| {
            let seen = |target: &Aim| look.nodes.iter().any(|node| target.fits(node));
            wait.seen.as_ref().is_none_or(seen)
                && wait.gone.as_ref().is_none_or(|target| !seen(target))
                && wait.state.as_ref().is_none_or(|part| is_part(part, &look.state))
                && wait.state_is_not.as_ref().is_none_or(|part| !is_part(part, &look.state))
        };
        let look = self.until(&format!("{wait:?}"), ready);
        if !wait.by_pixels && (wait.state.is_some() || wait.state_is_not.is_some()) {
            self.states.push((self.at, look.state));
        }
    }

    /// The middle of the one control that fits, when it can be used and stands still.
    fn place(&mut self, target: &Aim) -> [i32; 2] {
        let found = |look: &Look| {
            let mut fits = look.nodes.iter().filter(|node| target.fits(node) && !node.disabled);
            fits.next().filter(|_| fits.next().is_none()).map(|node| node.bounds)
        };
        let mut before = None;
        let look = self.until(&format!("one {target:?} that can be used"), |look| {
            let now = found(look);
            now.is_some() && std::mem::replace(&mut before, now) == now
        });
        let [left, top, right, bottom] = found(&look).unwrap_or_default();
        let [x, y] = [(left + right) / 2.0, (top + bottom) / 2.0];
        if !(0.0..look.size[0]).contains(&x) || !(0.0..look.size[1]).contains(&y) {
            let what = self.named(&format!("{target:?} is out of sight"));
            fail(self.window, &what, &look);
        }
        [x.round() as i32, y.round() as i32]
    }

    fn settled(&mut self) -> Look {
        let first = self.window.look().frame;
        self.until("a window at rest", |look| look.frame >= first + REST)
    }

    fn until(&mut self, what: &str, ready: impl FnMut(&Look) -> bool) -> Look {
        let what = self.named(what);
        until(self.window, &what, ready)
    }

    fn named(&self, what: &str) -> String {
        format!("{}, step {}: {what} ({})", self.scenario.name, self.at, self.scenario.about)
    }
}

/// Looks until it is so, and fails when it never is.
pub fn until(window: &mut dyn Playable, what: &str, mut ready: impl FnMut(&Look) -> bool) -> Look {
    let (start, mut pause) = (Instant::now(), Duration::from_millis(10));
    loop {
        let look = window.look();
        if ready(&look) {
            return look;
        }
        if start.elapsed() > LIMIT {
            fail(window, what, &look);
        }
        // Every look is a frame drawn by software: a probe that is waited for needs the cores itself.
        std::thread::sleep(pause);
        pause = LONGEST_PAUSE.min(2 * pause);
    }
}

fn listed(nodes: &[Node]) -> String {
    let mut lines: Vec<String> = nodes.iter().map(|node| serde_json::to_string(node).unwrap_or_default()).collect();
    lines.sort();
    lines.join("\n")
}

/// With everything that helps to see why.
fn fail(window: &mut dyn Playable, what: &str, look: &Look) -> ! {
    let place = what.split(':').next().unwrap_or_default().replace([' ', ','], "-");
    let path = std::env::temp_dir().join(format!("loka-{}-{place}.new.png", window.name()));
    let picture = window.picture(&path).map_or_else(|why| why, |()| path.display().to_string());
    let (name, said) = (window.name(), window.complaints());
    let (state, controls) = (&look.state, listed(&look.nodes));
    panic!("{name}: in vain: {what}\npicture: {picture}\nsaid: {said:?}\nstate: {state}\ncontrols:\n{controls}");
}
