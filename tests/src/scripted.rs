//! The workbench with a session that a test makes up: takes what its window is told, gives what it asked for. No engine,
//! no file, no server.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use egui_kittest::{Harness, HarnessBuilder};
use loka::{
    LokaApp,
    clock::now,
    link::{ConnectionState, Link, Status, Submission},
};
use loka_core::{
    dispatch::Policy,
    runtime::{Applied, Driver, Executor, Report},
    session::{
        Command, Effect, Event, Session,
        shared::{Author, CommandContext, LinkMessage, Person, Place},
    },
};

pub type Window = Harness<'static, LokaApp>;

/// What a window is told, in its order, and what came of that.
pub struct Script {
    pub news: VecDeque<LinkMessage>,
    pub asked: Vec<Effect>,
    /// What follows of an effect by itself.
    pub answer: fn(&Effect) -> Option<Event>,
    pub me: Author,
    /// Whose session it is on a server; `None`: this window's own.
    pub people: Option<Vec<Person>>,
    /// Where the person was seen to look.
    pub looked: Vec<Place>,
}

impl Default for Script {
    fn default() -> Self {
        let (news, asked, looked) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { news, asked, answer: |_| None, me: Author::program(), people: None, looked }
    }
}

impl Script {
    pub fn tell(&mut self, news: impl Into<LinkMessage>) {
        self.news.push_back(news.into());
    }
}

/// Clones play one script, each with a session of its own.
pub struct ScriptedLink {
    pub script: Rc<RefCell<Script>>,
    /// Of a server's folder.
    pub files: Vec<String>,
    driver: Driver,
    by_paper: bool,
}

impl ScriptedLink {
    pub fn new(script: Script) -> Self {
        Self::of(Rc::new(RefCell::new(script)), Vec::new(), false)
    }

    /// Under the policy whose metric the rows of tests have.
    #[must_use]
    pub fn by_paper(self) -> Self {
        Self::of(self.script, self.files, true)
    }

    fn of(script: Rc<RefCell<Script>>, files: Vec<String>, by_paper: bool) -> Self {
        let mut driver = Driver::new(Box::new(Player(script.clone())), now);
        if by_paper {
            driver.ask(Command::SetPolicy { policy: Policy::paper() });
        }
        Self { script, files, driver, by_paper }
    }
}

impl Default for ScriptedLink {
    fn default() -> Self {
        Self::new(Script::default())
    }
}

impl Clone for ScriptedLink {
    fn clone(&self) -> Self {
        Self::of(self.script.clone(), self.files.clone(), self.by_paper)
    }
}

/// Carries nothing out.
struct Player(Rc<RefCell<Script>>);

impl Executor for Player {
    fn run(&mut self, effect: Effect) {
        let mut script = self.0.borrow_mut();
        if let Some(event) = (script.answer)(&effect) {
            script.tell(event);
        }
        script.asked.push(effect);
    }

    fn poll(&mut self) -> Option<Report> {
        let mut script = self.0.borrow_mut();
        let LinkMessage::Event(event) = script.news.pop_front_if(|news| matches!(news, LinkMessage::Event(_)))? else {
            return None;
        };
        Some(Report::Event(event))
    }
}

impl Link for ScriptedLink {
    fn session(&self) -> &Session {
        self.driver.session()
    }

    fn submit(&mut self, what: Submission) {
        self.driver.set_author(self.script.borrow().me.clone());
        let served = self.script.borrow().people.is_some();
        match what {
            // A server would have its say first.
            Submission::Command(command) if served && !command.is_per_window() => {}
            Submission::Command(command) => self.driver.ask(command),
            Submission::Open(paths) => self.driver.open(paths),
            Submission::Note(event) => self.driver.note(event),
            Submission::Look(place) => {
                let looked = &mut self.script.borrow_mut().looked;
                if looked.last() != Some(&place) {
                    looked.push(place);
                }
            }
            Submission::Retry => {}
        }
    }

    fn poll(&mut self) -> Option<Applied> {
        let next = self.script.borrow_mut().news.pop_front_if(|news| !matches!(news, LinkMessage::Event(_)));
        match next {
            None => self.driver.poll(),
            Some(LinkMessage::Command { by, command, .. }) => {
                let number = self.driver.ordered().heard(by.author.key) + 1;
                self.driver.command(CommandContext { number, ..by }, *command).unwrap();
                Some(Applied::Input)
            }
            Some(other) => panic!("nothing that a script says: {other:?}"),
        }
    }

    fn status(&self) -> Status {
        let script = self.script.borrow();
        let joined = |people: &Vec<Person>| ConnectionState::Joined {
            people: people.clone(),
            me: script.me.clone(),
            waiting: 0,
        };
        Status {
            connection: script.people.as_ref().map_or(ConnectionState::Here, joined),
            busy: None,
            me: script.me.clone(),
            files: script.people.is_some().then(|| self.files.as_slice().into()),
        }
    }
}

/// A window of that size, in points, whose every frame is one of the workbench.
pub fn window(app: LokaApp, size: [f32; 2]) -> Window {
    window_by(Harness::builder().with_size(size).with_max_steps(8), app)
}

pub fn window_by(builder: HarnessBuilder<LokaApp>, app: LokaApp) -> Window {
    let draw = |ui: &mut egui::Ui, app: &mut LokaApp| {
        app.tick(&ui.ctx().clone());
        app.draw(ui);
    };
    builder.build_ui_state(draw, app)
}
