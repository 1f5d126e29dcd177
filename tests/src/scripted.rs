//! The workbench with a session that a test makes up: takes what its window is told, gives what it asked for. No engine,
//! no file, no server.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use egui_kittest::{Harness, HarnessBuilder};
use loka::{
    LokaApp,
    link::{Link, Standing},
};
use loka_core::session::{
    Command, Effect, Event,
    shared::{Author, News, Person, Place},
};

pub type Window = Harness<'static, LokaApp>;

/// What a window is told, in its order, and what came of that.
pub struct Script {
    pub news: VecDeque<News>,
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
    pub fn tell(&mut self, news: impl Into<News>) {
        self.news.push_back(news.into());
    }
}

/// Clones are one script.
#[derive(Clone, Default)]
pub struct ScriptedLink {
    pub script: Rc<RefCell<Script>>,
    /// Of a server's folder.
    pub files: Vec<String>,
}

impl ScriptedLink {
    pub fn new(script: Script) -> Self {
        Self { script: Rc::new(RefCell::new(script)), files: Vec::new() }
    }
}

impl Link for ScriptedLink {
    fn run(&mut self, effect: Effect) {
        let mut script = self.script.borrow_mut();
        if let Some(event) = (script.answer)(&effect) {
            script.tell(event);
        }
        script.asked.push(effect);
    }

    fn poll(&mut self) -> Option<News> {
        self.script.borrow_mut().news.pop_front()
    }

    fn busy(&self) -> Option<String> {
        None
    }

    fn submit(&mut self, command: Command) -> Option<Command> {
        self.script.borrow().people.is_none().then_some(command)
    }

    fn me(&self) -> Author {
        self.script.borrow().me.clone()
    }

    fn look(&mut self, place: Place) {
        let looked = &mut self.script.borrow_mut().looked;
        if looked.last() != Some(&place) {
            looked.push(place);
        }
    }

    fn standing(&self) -> Standing {
        let script = self.script.borrow();
        let joined = |people: &Vec<Person>| Standing::Joined { people: people.clone(), me: script.me.clone() };
        script.people.as_ref().map_or(Standing::Here, joined)
    }

    fn suggestions(&self) -> Option<&[String]> {
        self.script.borrow().people.is_some().then_some(&self.files)
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
