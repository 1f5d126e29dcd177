//! The page in Chromium without a screen, served by the real binary; tests/web/driver.mjs moves the mouse.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use loka::driving::Look;
use loka_tests::{here, loka};
use serde_json::{Value, json};

use crate::{
    child::Program,
    player::Playable,
    stage::{PERSON, Stage, pictures},
};

/// `loka serve` of a stage's trace, or of the folder that it lies in.
pub struct BrowserServer {
    program: Program,
    pub link: String,
    /// `127.0.0.1:PORT`.
    pub address: String,
}

impl BrowserServer {
    /// `listen`: an address and a port, 0 for any.
    pub fn start(stage: &Stage, listen: &str) -> Result<Self, String> {
        Self::with(stage, listen, None)
    }

    /// For the people of that list alone.
    pub fn with(stage: &Stage, listen: &str, users: Option<&Path>) -> Result<Self, String> {
        Self::of(&stage.trace, listen, users)
    }

    /// On any port.
    pub fn of_folder(stage: &Stage) -> Result<Self, String> {
        Self::of(stage.traces(), "127.0.0.1:0", None)
    }

    fn of(what: &Path, listen: &str, users: Option<&Path>) -> Result<Self, String> {
        let mut command = Command::new(loka());
        command.args(["serve", "--json", "--listen", listen, "--page"]).arg(page()?).arg(what);
        // A server that comes back has to know the browsers that it had.
        match users {
            Some(users) => command.arg("--users").arg(users),
            None => command.arg("--no-token"),
        };
        let mut program = Program::start(&mut command)?;
        let ready: Value = serde_json::from_str(&program.line()).unwrap();
        let text = |key: &str| ready[key].as_str().unwrap().to_owned();
        let address = text("address").trim_start_matches("http://").trim_end_matches('/').to_owned();
        Ok(Self { program, link: text("link"), address })
    }

    /// At once, without a word to anyone.
    pub fn kill(mut self) {
        self.program.end();
    }
}

pub struct InBrowser {
    // In this order: the browser goes before its server.
    browser: Program,
    _server: Option<BrowserServer>,
    downloads: PathBuf,
    /// Of the person at this browser.
    folder: PathBuf,
}

impl InBrowser {
    /// With a server of its own. An error is what is not there.
    pub fn open(stage: &Stage) -> Result<Self, String> {
        let server = BrowserServer::start(stage, "127.0.0.1:0")?;
        let mut open = Self::of(stage, &server, PERSON)?;
        open._server = Some(server);
        Ok(open)
    }

    /// One more person at that server.
    pub fn of(stage: &Stage, server: &BrowserServer, person: &str) -> Result<Self, String> {
        Self::by(stage, server, &server.link, person)
    }

    /// By a link of their own.
    pub fn by(stage: &Stage, server: &BrowserServer, link: &str, person: &str) -> Result<Self, String> {
        let modules = std::env::var("LOKA_PLAYWRIGHT")
            .map_err(|_| "LOKA_PLAYWRIGHT does not say where playwright-core is: ./test installs it".to_owned())?;
        assert!(link.contains(&server.address), "{link}");
        let address = format!("{link}{}drive&name={person}", if link.contains('?') { '&' } else { '?' });
        let downloads = stage.room(person);
        let mut browser = Command::new("node");
        browser.arg(here("web/driver.mjs")).arg(modules).arg(address).arg(&downloads);
        let density = density();
        browser.args(stage.looks.size.map(|side| side.to_string())).arg(stage.looks.ground).arg(density.to_string());
        let mut open = Self {
            browser: Program::start(&mut browser)?.ending_with_stdin(),
            _server: None,
            downloads,
            folder: stage.traces().to_owned(),
        };
        let look = open.look();
        assert_eq!((look.size, look.pixels_per_point), (stage.looks.size, density), "the page is of another size");
        Ok(open)
    }

    /// As if it was dragged there.
    pub fn drop_file(&mut self, path: &str) {
        self.tell(&json!({"do": "drop", "path": path}));
    }

    /// What stands behind the canvas for screen readers.
    pub fn text(&mut self) -> String {
        self.tell(&json!({"do": "text"})).as_str().unwrap_or_default().to_owned()
    }

    fn tell(&mut self, what: &Value) -> Value {
        let answer: Value = serde_json::from_str(&self.browser.ask(&what.to_string())).unwrap();
        assert!(answer["error"].is_null(), "{what}: {answer}");
        answer["answer"].clone()
    }
}

/// Pixels a point. What a browser takes to draw by software goes by its pixels (.3 s of a core a frame at one a point, .08 at
/// half of one), and what is compared are states and controls: so a page has a quarter of them where nobody wants pictures.
fn density() -> f32 {
    if pictures().is_some() { 1.0 } else { 0.5 }
}

/// As `scripts/build_web.sh` leaves it beside the binary's folder.
fn page() -> Result<PathBuf, String> {
    let page = loka().ancestors().nth(2).map(|target| target.join("web")).unwrap_or_default();
    if page.join("index.html").is_file() {
        return Ok(page);
    }
    Err(format!("there is no page: scripts/build_web.sh makes it: {}", page.display()))
}

impl Playable for InBrowser {
    fn name(&self) -> &'static str {
        "browser"
    }

    fn look(&mut self) -> Look {
        let text = self.tell(&json!({"do": "look"}));
        serde_json::from_str(text.as_str().unwrap()).unwrap()
    }

    fn point(&mut self, at: [i32; 2]) {
        self.tell(&json!({"do": "point", "at": at}));
    }

    fn press(&mut self) {
        self.tell(&json!({"do": "press"}));
    }

    fn release(&mut self) {
        self.tell(&json!({"do": "release"}));
    }

    fn key(&mut self, keys: &str) {
        self.tell(&json!({"do": "key", "keys": keys}));
    }

    fn type_text(&mut self, text: &str) {
        self.tell(&json!({"do": "type", "text": text}));
    }

    /// The server knows its folder alone, and a download has a name.
    fn path(&self, name: &str) -> String {
        name.to_owned()
    }

    fn hand(&mut self, name: &str) -> bool {
        let path = self.folder.join(name);
        self.tell(&json!({"do": "hand", "path": path}));
        true
    }

    fn exported(&mut self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.downloads.join(name)).ok()
    }

    fn picture(&mut self, path: &Path) -> Result<(), String> {
        self.tell(&json!({"do": "picture", "path": path}));
        Ok(())
    }

    fn complaints(&mut self) -> Vec<String> {
        serde_json::from_value(self.tell(&json!({"do": "complaints"}))).unwrap()
    }
}
