//! What comes from the link: takes events, commands of others and whole sessions, gives them to the session, and
//! does what the window does along with them.

use loka_core::session::{Event, FileKind, NoticeKind, Saved, Session, shared::News};

use crate::{app::LokaApp, link::Standing};

/// News may take this long of a frame; the rest waits for the next.
const BUDGET: std::time::Duration = std::time::Duration::from_millis(3);

impl LokaApp {
    /// What the link has to say, for as long as a frame may take.
    pub(crate) fn take_events(&mut self, ctx: &egui::Context) {
        let budget = Budget::new();
        while let Some(news) = self.link.poll() {
            self.take_news(news);
            if budget.is_spent() {
                ctx.request_repaint();
                break;
            }
        }
        if self.link.is_shared() && !matches!(self.link.standing(), Standing::Joined { .. }) {
            // The next try, and how long the server has been away.
            ctx.request_repaint_after(std::time::Duration::from_millis(250));
        }
        if self.session.is_running() || self.session.is_measuring() || self.link.busy().is_some() {
            // Progress moves even while no rows come.
            ctx.request_repaint_after(std::time::Duration::from_millis(200));
        }
    }

    fn take_news(&mut self, news: News) {
        match news {
            News::Event(event) => self.take_event(*event),
            // Carried out elsewhere, with all that it asked for.
            News::Command { by, seq, command } => drop(self.session.command_by(&by, seq, *command)),
            News::State(saved) => self.take_state(*saved),
            News::Refused(line) => self.session.notify(NoticeKind::Error, line),
        }
    }

    /// Another session, or this one after a time away: what is selected stays where it is the same trace.
    fn take_state(&mut self, saved: Saved) {
        let mut session = Session::restored(saved).in_place_of(&self.session);
        if !self.link.is_shared() {
            // What was found here while the journal was read.
            session.engines = std::mem::take(&mut self.session.engines);
        }
        let path = |session: &Session| session.trace.as_ref().map(|trace| trace.path.clone());
        let same = path(&self.session) == path(&session);
        self.session = session;
        if !same {
            self.view.forget_selection();
        }
        self.opening.answered(FileKind::Trace);
        self.begin_probe();
        self.open_next();
    }

    /// A trace that was just opened is probed, unless rows are to come first or somebody else sees to it.
    fn begin_probe(&mut self) {
        if !self.link.is_shared() && self.session.lacks_rows() && self.opening.may_probe() {
            self.probe_opened();
        }
    }

    fn take_event(&mut self, event: Event) {
        self.link.keep_event(&event);
        let opened = matches!(event, Event::TraceOpened { .. });
        let not_ours = self.opening.event(&event);
        let files = self.chores.before(&event, &self.session);
        self.session.event(event);
        self.keep_whole();
        if let Some(line) = not_ours {
            self.session.notify(NoticeKind::Error, line);
        }
        if let Some(effect) = self.chores.after(files, &self.session, &mut self.view) {
            self.link.run(effect);
        }
        if opened {
            self.view.forget_selection();
            self.begin_probe();
        }
        self.open_next();
    }
}

/// Time for news in one frame. A page has no such clock, and its link answers at once.
struct Budget {
    #[cfg(not(target_arch = "wasm32"))]
    start: std::time::Instant,
}

impl Budget {
    fn new() -> Self {
        Self {
            #[cfg(not(target_arch = "wasm32"))]
            start: std::time::Instant::now(),
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn is_spent(&self) -> bool {
        self.start.elapsed() > BUDGET
    }

    #[cfg(target_arch = "wasm32")]
    fn is_spent(&self) -> bool {
        BUDGET.is_zero()
    }
}
