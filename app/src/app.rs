//! The window: `logic()` drains events and applies what was asked for; `ui()` reads the state and asks.

use egui::{CentralPanel, Frame, Margin, Panel, Rect, Ui, UiBuilder, pos2};
use loka_core::session::{
    Command, CommandError, Event, NoticeKind, Session,
    view::{Column, SiteVerdict},
};

use crate::{
    commands::{self, Action, Outcome, Request},
    link::Link,
    panels,
    theme::Theme,
    views::{self, Derived, Scene, Tab, ViewState},
};

/// Events may take this long of a frame; the rest waits for the next.
const EVENT_BUDGET: std::time::Duration = std::time::Duration::from_millis(10);

/// From this width on the heatmap and the quadrant stand side by side.
const WIDE: f32 = 1500.0;

pub struct LokaApp {
    session: Session,
    link: Box<dyn Link>,
    view: ViewState,
    theme: Theme,
    derived: Derived,
    requests: Vec<Request>,
    suggestions: Vec<String>,
}

impl LokaApp {
    pub fn new(ctx: &egui::Context, link: Box<dyn Link>) -> Self {
        let theme = Theme::dark();
        theme.apply(ctx);
        let mut app = Self {
            session: Session::default(),
            link,
            view: ViewState::default(),
            theme,
            derived: Derived::default(),
            requests: Vec::new(),
            suggestions: Vec::new(),
        };
        app.command(Command::FindEngines);
        app
    }

    /// Files to offer while nothing is open.
    #[must_use]
    pub fn with_suggestions(mut self, paths: Vec<String>) -> Self {
        self.suggestions = paths;
        self
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn view(&self) -> &ViewState {
        &self.view
    }

    pub fn view_mut(&mut self) -> &mut ViewState {
        &mut self.view
    }

    /// Opens a trace or results, by the file's ending.
    pub fn open(&mut self, path: String) {
        self.command(panels::open(path));
    }

    /// Applies a command at once; what takes time goes to the link.
    pub fn command(&mut self, command: Command) {
        self.follow(&command);
        match self.session.command(command) {
            Ok(effects) => effects.into_iter().for_each(|effect| self.link.run(effect)),
            // A key pressed once too often is no error.
            Err(CommandError::NothingToUndo | CommandError::NothingToRedo) => {}
            Err(error) => self.session.notify(NoticeKind::Error, error.to_string()),
        }
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
        if self.view.dialog.is_none() {
            self.requests.extend(commands::pressed(ctx).into_iter().map(Request::Act));
        } else if ctx.input(|input| input.key_pressed(egui::Key::Escape)) {
            self.view.dialog = None;
        }
        for request in std::mem::take(&mut self.requests) {
            match request {
                Request::Do(command) => self.command(command),
                Request::Act(action) => self.perform(action, ctx),
            }
        }
        self.switch_theme(ctx);
        self.derived.refresh(&mut self.session, &self.view);
        self.follow_worst();
    }

    fn perform(&mut self, action: Action, ctx: &egui::Context) {
        if !commands::is_enabled(action, &self.session, &self.view) {
            return;
        }
        let columns = &self.derived.heatmap.columns;
        if let Some(command) = commands::perform(action, &self.session, &mut self.view, columns, ctx) {
            self.command(command);
        }
    }

    fn take_events(&mut self, ctx: &egui::Context) {
        let budget = Budget::new();
        while let Some(event) = self.link.poll() {
            let opened = matches!(event, Event::TraceOpened { .. });
            self.session.event(event);
            if opened {
                self.view.forget_selection();
                self.command(Command::StartProbe);
            }
            if budget.is_spent() {
                ctx.request_repaint();
                break;
            }
        }
        if self.session.is_running() || self.session.is_measuring() || self.link.busy().is_some() {
            // Progress moves even while no rows come.
            ctx.request_repaint_after(std::time::Duration::from_millis(200));
        }
    }

    fn take_files(&mut self, ctx: &egui::Context) {
        let dropped = ctx.input(|input| input.raw.dropped_files.clone());
        for file in dropped {
            self.open(file.path().to_string_lossy().into_owned());
        }
    }

    fn switch_theme(&mut self, ctx: &egui::Context) {
        if self.theme.dark != self.view.dark {
            self.theme = Theme::of(self.view.dark);
            self.theme.apply(ctx);
        }
    }

    /// The worst site is selected until every site has rows or a person selects.
    fn follow_worst(&mut self) {
        let Some((worst, gemm)) = self.derived.worst.clone().filter(|_| self.view.follow_worst) else { return };
        let seen = |of: &SiteVerdict| of.num_safe_fast + of.num_safe + of.num_uncertain + of.num_unsafe > 0;
        let complete = self.derived.verdicts.values().all(seen);
        let kernel = self.derived.plan.choice(&worst, gemm).map(|choice| choice.kernel.clone());
        self.view.site = Some(worst);
        self.view.column = kernel.map(|kernel| Column { gemm, kernel });
        self.view.reveal = true;
        self.view.follow_worst = !complete && self.session.is_running();
    }

    /// Draws the whole window into `ui`.
    pub fn draw(&mut self, ui: &mut Ui) {
        let busy = self.link.busy();
        let mut scene = Scene {
            session: &self.session,
            derived: &self.derived,
            view: &mut self.view,
            theme: self.theme,
            requests: &mut self.requests,
            busy: busy.as_deref(),
            suggestions: &self.suggestions,
        };
        window_ui(ui, &mut scene);
        overlays_ui(ui, &mut scene);
        if !self.requests.is_empty() {
            // They are applied before the next frame, which must come.
            ui.ctx().request_repaint();
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

    fn clear_color(&self, _: &egui::Visuals) -> [f32; 4] {
        self.theme.panel.to_normalized_gamma_f32()
    }
}

fn window_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let theme = scene.theme;
    let bar = Frame::new().fill(theme.panel).inner_margin(Margin::symmetric(12, 6));
    let side = Frame::new().fill(theme.panel).inner_margin(Margin::symmetric(8, 8));
    let middle = Frame::new().fill(theme.canvas).inner_margin(Margin::symmetric(12, 8));
    Panel::top("top bar").frame(bar).show(ui, |ui| panels::top_bar_ui(ui, scene));
    if scene.session.trace.is_some() {
        Panel::bottom("plan").frame(bar).show(ui, |ui| panels::plan_line_ui(ui, scene));
    }
    if !scene.session.notices.is_empty() || (scene.view.hint && scene.session.trace.is_some()) {
        Panel::bottom("notices").frame(bar).show(ui, |ui| panels::notices_ui(ui, scene));
    }
    if scene.session.trace.is_none() {
        CentralPanel::default().frame(middle).show(ui, |ui| views::empty_ui(ui, scene));
        return;
    }
    let wide = ui.ctx().content_rect().width() > WIDE;
    let (list, inspector) = if wide { (250.0, 450.0) } else { (200.0, 410.0) };
    let panel = Panel::left(("sites", wide)).frame(side).default_size(list).min_size(150.0).resizable(true);
    panel.show(ui, |ui| panels::site_list_ui(ui, scene));
    let panel =
        Panel::right(("inspector", wide)).frame(side).default_size(inspector).min_size(inspector).resizable(true);
    panel.show(ui, |ui| panels::inspector_ui(ui, scene));
    CentralPanel::default().frame(middle).show(ui, |ui| center_ui(ui, scene, wide));
}

fn center_ui(ui: &mut Ui, scene: &mut Scene<'_>, wide: bool) {
    if wide {
        let all = ui.available_rect_before_wrap();
        let middle = all.left() + all.width() * 0.6;
        let left = Rect::from_min_max(all.min, pos2(middle - 12.0, all.bottom()));
        let right = Rect::from_min_max(pos2(middle + 4.0, all.top()), all.max);
        ui.scope_builder(UiBuilder::new().max_rect(left), |ui| views::heatmap_ui(ui, scene));
        ui.scope_builder(UiBuilder::new().max_rect(right), |ui| views::quadrant_ui(ui, scene));
        return;
    }
    ui.horizontal(|ui| {
        for (tab, text, action) in
            [(Tab::Heatmap, "Heatmap", Action::ShowHeatmap), (Tab::Quadrant, "Quadrant", Action::ShowQuadrant)]
        {
            if ui.selectable_label(scene.view.tab == tab, text).on_hover_text(action.hint(ui.ctx())).clicked() {
                scene.act(action);
            }
        }
    });
    match scene.view.tab {
        Tab::Heatmap => views::heatmap_ui(ui, scene),
        Tab::Quadrant => views::quadrant_ui(ui, scene),
    }
}

/// Dialog, sheet and palette, above everything.
fn overlays_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    panels::dialogs_ui(ui, scene);
    if scene.view.sheet && commands::sheet_ui(ui.ctx(), &scene.theme) {
        scene.view.sheet = false;
    }
    let Some((mut typed, mut at)) = scene.view.palette.take() else { return };
    let enabled = |action: Action| commands::is_enabled(action, scene.session, scene.view);
    let outcome = commands::palette_ui(ui.ctx(), &scene.theme, &mut typed, &mut at, &enabled);
    match outcome {
        Outcome::Open => scene.view.palette = Some((typed, at)),
        Outcome::Closed => {}
        Outcome::Chosen(action) => scene.act(action),
    }
}

/// Time for events in one frame. A page has no such clock, and its link answers at once.
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
        self.start.elapsed() > EVENT_BUDGET
    }

    #[cfg(target_arch = "wasm32")]
    fn is_spent(&self) -> bool {
        EVENT_BUDGET.is_zero()
    }
}
