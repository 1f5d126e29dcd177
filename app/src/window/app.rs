//! The window: `logic()` drains events and applies what was asked for; `ui()` reads the state and asks.

use std::collections::BTreeSet;

use egui::{CentralPanel, Frame, Margin, Panel, Ui};
use loka_core::{
    session::{Command, NoticeKind, Session, shared::Place},
    views::Column,
};

use crate::{
    commands::{self, Action, Doing, Finder, Held, Request, Scope},
    driving::{Drive, state_of},
    executor::Wake,
    link::{ConnectionState, Link, Status, Submission},
    panels,
    platform::{BackgroundTasks, Here, Picker, Platform as _, Store},
    settings::SettingsStore,
    state::{Clock, Derived, ViewState, recorded_steps},
    theme::Theme,
    view_cache::{FrontierCache, GraphCache, ViewCache},
    views::{self, Scene},
    window::{
        address::Address,
        housekeeping::Housekeeping,
        script::Script,
        steps::{Done, Step},
    },
};

pub struct LokaApp {
    pub(crate) link: Box<dyn Link>,
    pub(crate) view: ViewState,
    finder: Finder,
    theme: Theme,
    /// Faces and styles were given to the context that draws.
    installed: bool,
    pub(crate) derived: Derived,
    requests: Vec<Request>,
    held: Held,
    gpu: Option<eframe::wgpu::TextureFormat>,
    performed: BTreeSet<Action>,
    /// What could be done again.
    pub(super) done: Done,
    suggestions: Vec<String>,
    /// What is done beside the session: settings, pictures, the clipboard, the system's dialogs.
    pub(crate) housekeeping: Housekeeping,
    /// A program looks on.
    drive: Option<Drive>,
    /// What the command line asked for, until it is done.
    pub(crate) script: Option<Script>,
}

impl LokaApp {
    /// Everything is derived in the frame until [`Self::with_wake`].
    pub fn new(link: Box<dyn Link>) -> Self {
        Self {
            link,
            view: ViewState::default(),
            finder: Finder::default(),
            theme: Theme::dark(),
            installed: false,
            derived: Derived::new(ViewCache::inline(), FrontierCache::inline(), GraphCache::default()),
            requests: Vec::new(),
            held: Held::default(),
            gpu: None,
            performed: BTreeSet::new(),
            done: Done::default(),
            suggestions: Vec::new(),
            housekeeping: Housekeeping::new(BackgroundTasks::inline()),
            drive: None,
            script: None,
        }
    }

    /// Large views and slow work are done beside the frames, where there are threads; what is done calls `wake`.
    #[must_use]
    pub fn with_wake(mut self, wake: Wake) -> Self {
        let (views, curves) = (ViewCache::threaded(wake.clone()), FrontierCache::threaded(wake.clone()));
        self.derived = Derived::new(views, curves, GraphCache::threaded(wake.clone()));
        self.housekeeping.background = BackgroundTasks::waking(wake);
        self
    }

    /// Remembers layout, looks and recent files there, and takes up what is remembered. Without it nothing
    /// outlives the window.
    #[must_use]
    pub fn with_store(mut self, store: std::sync::Arc<dyn Store>) -> Self {
        let (settings_store, settings, problem) = SettingsStore::open(store);
        self.housekeeping.take_up(&mut self.view, settings_store, settings);
        if let Some(problem) = problem {
            self.notify(NoticeKind::Warning, problem);
        }
        self.housekeeping.look_for_recent(&self.view);
        self
    }

    /// The system's file dialogs.
    #[must_use]
    pub fn with_picker(mut self, picker: Box<dyn Picker>) -> Self {
        self.view.no_browse = picker.problem();
        self.housekeeping.picker = Some(picker);
        self
    }

    /// Lines of the log are stamped by this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.housekeeping.clock = clock;
        self
    }

    /// Our own shaders draw into textures of this format.
    #[must_use]
    pub fn with_gpu(mut self, format: eframe::wgpu::TextureFormat) -> Self {
        self.gpu = Some(format);
        self
    }

    /// Files to offer while nothing is open.
    #[must_use]
    pub fn with_suggestions(mut self, paths: Vec<String>) -> Self {
        self.suggestions = paths;
        self
    }

    /// Answers to a program that looks on, see [`crate::driving`].
    #[must_use]
    pub fn with_drive(mut self, drive: Drive) -> Self {
        self.drive = Some(drive);
        self
    }

    /// Plays it, see [`crate::window::script`].
    #[must_use]
    pub fn with_script(mut self, script: Script) -> Self {
        self.script = Some(script).filter(|script| !script.is_empty());
        self
    }

    pub fn session(&self) -> &Session {
        self.link.session()
    }

    /// Every action that did something since the window was opened.
    pub fn performed(&self) -> &BTreeSet<Action> {
        &self.performed
    }

    pub fn view(&self) -> &ViewState {
        &self.view
    }

    /// What is drawn now.
    pub fn derived(&self) -> &Derived {
        &self.derived
    }

    pub fn finder(&self) -> &Finder {
        &self.finder
    }

    pub fn view_mut(&mut self) -> &mut ViewState {
        &mut self.view
    }

    /// Opens a trace, results or a plan: by its ending, else by its content.
    pub fn open(&mut self, path: String) {
        self.open_all(vec![path]);
    }

    /// Opens several files, the trace among them first.
    pub fn open_all(&mut self, paths: Vec<String>) {
        self.link.submit(Submission::Open(paths));
    }

    /// The window closes.
    pub fn close(&mut self) {
        self.housekeeping.close(&self.view);
    }

    /// Hands a command to whoever drives the session.
    pub fn command(&mut self, command: Command) {
        self.follow(&command);
        self.link.submit(Submission::Command(command));
    }

    /// Tells a person a line.
    pub fn notify(&mut self, kind: NoticeKind, line: String) {
        self.link.submit(Submission::notice(kind, line));
    }

    /// Asks for an action, as a key or a button would: carried out by the next [`Self::tick`] if it is enabled.
    pub fn act(&mut self, action: Action) {
        self.requests.push(Request::Act(action));
    }

    /// The next frame hands it to whoever drives the session, as something that a person did.
    pub(super) fn ask(&mut self, command: Command) {
        self.requests.push(Request::Do(command));
    }

    /// Something was asked for that the next frame carries out.
    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// What the view does along with a command.
    fn follow(&mut self, command: &Command) {
        match command {
            Command::SetPolicy { policy } => self.view.metric = policy.metric,
            Command::ToggleMod { .. } | Command::SetMaxError { .. } | Command::SetMinSpeedup { .. } => {
                self.view.hint = false;
            }
            _ => {}
        }
    }

    /// Takes events, key presses and requests; draws nothing.
    pub fn tick(&mut self, ctx: &egui::Context) {
        self.take_events(ctx);
        self.take_files(ctx);
        self.held.turn(ctx);
        // A list that is open over it closes first.
        let closes = ctx.input(|input| input.key_pressed(egui::Key::Escape)) && !egui::Popup::is_any_open(ctx);
        self.view.dialog.take_if(|_| closes);
        for request in std::mem::take(&mut self.requests) {
            match request {
                Request::Do(command) => {
                    self.note(Step::Do(Box::new(command.clone())));
                    self.command(command);
                }
                Request::Open(paths) => self.open_all(paths),
                Request::Retry => self.link.submit(Submission::Retry),
                Request::Act(action) => self.perform(action, ctx),
            }
        }
        self.take_keys(ctx);
        self.play(ctx);
        self.play_steps(ctx);
        self.show_where();
        self.do_housekeeping(ctx);
        self.appear(ctx);
        self.view.follow_policy(self.link.session().document.policy.metric);
        self.view.follow_baseline(self.link.session());
        let question = self.view.question();
        if let Some(problem) = self.derived.refresh(self.link.session(), question, &self.view.layout) {
            self.notify(NoticeKind::Error, problem);
        }
        if self.derived.is_halfway() {
            ctx.request_repaint();
        } else if Here::IS_PAGE && self.derived.is_behind() {
            // There is no thread that would wake the window.
            ctx.request_repaint_after(std::time::Duration::from_millis(30));
        }
        self.follow_worst();
    }

    /// Until one of them opens a field, which gets the others.
    fn take_keys(&mut self, ctx: &egui::Context) {
        while self.view.dialog.is_none()
            && let Some(pressed) = commands::next_pressed(ctx)
        {
            let asked = self.wants_keys();
            self.perform(pressed.action, ctx);
            if !asked && self.wants_keys() {
                return self.held.hold_behind(ctx, &pressed);
            }
        }
    }

    /// The recorded step that is looked at moves on, and the heatmap with it.
    fn play_steps(&mut self, ctx: &egui::Context) {
        let session = self.link.session();
        if self.view.steps.is_playing() {
            let steps = recorded_steps(session, self.view.site.as_ref()).unwrap_or_default();
            if let Some(wait) = self.view.steps.tick(ctx.input(|input| input.time), steps) {
                ctx.request_repaint_after(std::time::Duration::from_secs_f64(wait));
            }
        }
        self.view.steps.follow(&mut self.view.heatmap, session);
    }

    /// Others see where this person looks. The link tells them when it is elsewhere.
    fn show_where(&mut self) {
        let view = self.view.layout.active().title().to_owned();
        self.link.submit(Submission::Look(Place { site: self.view.site.clone(), view }));
    }

    /// Something is open, or about to be, that a person types into.
    fn wants_keys(&self) -> bool {
        self.finder.is_open() || self.view.wants_keys()
    }

    fn perform(&mut self, action: Action, ctx: &egui::Context) {
        let me = self.link.status().me;
        let scope = Scope { session: self.link.session(), me: &me, view: &self.view, derived: &self.derived };
        if !action.is_enabled(scope) {
            return;
        }
        self.performed.insert(action);
        let is_step = self.note(Step::Act(action));
        self.housekeeping.note(&mut self.finder, action);
        let session = self.link.session();
        let mut also = Vec::new();
        let mut doing = Doing {
            session,
            me: &me,
            view: &mut self.view,
            finder: &mut self.finder,
            derived: &self.derived,
            ctx,
            also: &mut also,
        };
        let command = action.perform(&mut doing);
        command.into_iter().chain(also).for_each(|command| self.command(command));
        if is_step {
            self.done.left_at(Address::of(&self.view));
        }
    }

    /// For whoever wants to do the same again. True if it is something that can be.
    fn note(&mut self, step: Step) -> bool {
        let trace = self.link.session().trace.as_ref().map(|trace| trace.path.as_str());
        self.done.note(step, Address::of(&self.view), trace)
    }

    fn take_files(&mut self, ctx: &egui::Context) {
        let dropped = ctx.input(|input| input.raw.dropped_files.clone());
        if !dropped.is_empty() {
            self.open_all(dropped.iter().map(|file| file.path().to_string_lossy().into_owned()).collect());
        }
    }

    /// Ground and text size, as asked for.
    fn appear(&mut self, ctx: &egui::Context) {
        if !std::mem::replace(&mut self.installed, true) {
            Theme::install(ctx);
        }
        ctx.set_theme(self.view.ground.preference());
        if ctx.zoom_factor() != self.view.text_size {
            ctx.set_zoom_factor(self.view.text_size);
        }
        self.theme = Theme::of(ctx.theme() == egui::Theme::Dark);
    }

    /// The worst site is selected until every site has rows or a person selects.
    fn follow_worst(&mut self) {
        let Some(worst) = self.derived.worst.clone().filter(|_| self.view.follow_worst) else { return };
        let complete = self.derived.verdicts.iter().all(|of| of.num_known() > 0);
        let gemm = worst.gemm;
        let kernel = self.derived.plan.pick(&worst.site, gemm).map(|choice| choice.kernel.clone());
        self.view.site = Some(worst.site);
        self.view.column = kernel.map(|kernel| Column { gemm, kernel });
        self.view.reveal = true;
        self.view.follow_worst = !complete && self.link.session().is_running();
    }

    /// Draws the whole window into `ui`.
    pub fn draw(&mut self, ui: &mut Ui) {
        let Status { connection, busy, me, files } = self.link.status();
        let active_pane = self.view.layout.active();
        let mut scene = Scene {
            session: self.link.session(),
            derived: &self.derived,
            view: &mut self.view,
            finder: &mut self.finder,
            theme: self.theme,
            me: &me,
            active_pane,
            requests: &mut self.requests,
            gpu: self.gpu,
            vector: false,
            connection: &connection,
            busy: busy.as_deref(),
            suggestions: files.as_deref().unwrap_or(&self.suggestions),
        };
        window_ui(ui, &mut scene);
        panels::overlays_ui(ui, &mut scene);
        if !self.requests.is_empty() {
            // They are applied before the next frame, which must come.
            ui.ctx().request_repaint();
        }
        if let Some(drive) = &self.drive {
            drive.tell(|| state_of(self.link.session(), &self.view, &self.derived, &connection));
        }
    }
}

impl eframe::App for LokaApp {
    fn logic(&mut self, ctx: &egui::Context, _: &mut eframe::Frame) {
        self.tick(ctx);
    }

    fn ui(&mut self, ui: &mut Ui, _: &mut eframe::Frame) {
        self.draw(ui);
    }

    /// A picture has no pointer in it, wherever that happens to be.
    fn raw_input_hook(&mut self, _: &egui::Context, input: &mut egui::RawInput) {
        if self.script.as_ref().is_some_and(Script::makes_a_picture) {
            input.events.retain(|event| !is_of_pointer(event));
        }
    }

    fn on_exit(&mut self) {
        self.close();
    }

    fn clear_color(&self, _: &egui::Visuals) -> [f32; 4] {
        self.theme.panel.to_normalized_gamma_f32()
    }
}

fn is_of_pointer(event: &egui::Event) -> bool {
    use egui::Event::{MouseMoved, MouseWheel, PointerButton, PointerMoved};
    matches!(event, PointerMoved(_) | MouseMoved(_) | PointerButton { .. } | MouseWheel { .. })
}

fn window_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let theme = scene.theme;
    let bar = Frame::new().fill(theme.panel).inner_margin(Margin::symmetric(12, 6));
    let middle = Frame::new().fill(theme.canvas).inner_margin(Margin::symmetric(12, 8));
    Panel::top("top bar").frame(bar).show(ui, |ui| panels::top_bar_ui(ui, scene));
    if matches!(scene.connection, ConnectionState::Away { .. }) {
        Panel::top("away").frame(Frame::new()).show(ui, |ui| panels::away_ui(ui, scene));
    }
    if scene.session.not_kept.is_some() {
        Panel::top("not kept").frame(Frame::new()).show(ui, |ui| panels::not_kept_ui(ui, scene));
    }
    if scene.derived.versus().is_some() {
        Panel::top("baseline").frame(Frame::new()).show(ui, |ui| panels::baseline_ui(ui, scene));
    }
    if scene.session.trace.is_some() {
        Panel::bottom("plan").frame(bar).show(ui, |ui| panels::plan_line_ui(ui, scene));
    }
    if panels::shows_hint(ui, scene) {
        Panel::bottom("hint").frame(bar).show(ui, |ui| panels::hint_ui(ui, scene));
    }
    let room = ui.available_rect_before_wrap();
    panels::notices_ui(ui, scene, room);
    if scene.session.trace.is_none() {
        CentralPanel::default().frame(middle).show(ui, |ui| views::empty_ui(ui, scene));
        return;
    }
    CentralPanel::default().frame(Frame::new().fill(theme.raised)).show(ui, |ui| panels::layout_ui(ui, scene));
}
