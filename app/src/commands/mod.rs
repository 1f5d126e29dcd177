//! Every user action once: text, tooltip, shortcut. Menus, buttons, shortcuts, the palette and the sheet all
//! read this table. A group of actions is a file: its lines, when each would do something, and what it does.

mod brush;
mod edit;
mod file;
mod graph;
mod heatmap;
mod keys;
mod mods;
mod palette;
mod plan;
mod quadrant;
mod review;
mod run;
mod select;
mod sheet;
mod show;
mod site;
mod steps;
mod table;
mod window;

pub use brush::BrushAction;
pub use edit::EditAction;
pub use file::FileAction;
pub use graph::GraphAction;
pub use heatmap::HeatmapAction;
pub use keys::{Held, Owner, next_pressed, owner_of, shortcut_text, take_arrows, take_presses};
pub use mods::ModsAction;
pub use palette::{Chosen, Finder, Palette, PaletteOutcome, PaletteSource, palette_ui};
pub use plan::PlanAction;
pub use quadrant::{QuadrantAction, nudge};
pub use review::ReviewAction;
pub use run::RunAction;
pub use select::SelectAction;
pub use sheet::{Sheet, sheet_ui};
pub use show::ShowAction;
pub use site::SiteAction;
pub use steps::StepAction;
pub use table::ActionEntry;
pub use window::WindowAction;

use egui::KeyboardShortcut;
use loka_core::{
    dispatch::Policy,
    export::Target,
    model::{Metric, ModKind},
    review::Role,
    session::{Command, ENGINES, Session, engine_title, shared::Author},
};

use crate::{
    layout::Pane,
    platform::{Here, NO_FRAMEWORK_FILES, Platform as _},
    state::{Derived, Dialog, ExportForm, ViewState},
};

/// Something a person can ask of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    File(FileAction),
    /// The plan in the form that this framework reads.
    ExportTo(Target),
    Edit(EditAction),
    Run(RunAction),
    /// By its place in [`ENGINES`].
    UseEngine(usize),
    ToggleMod(ModKind),
    /// By its place in [`Policy::BUILTIN`].
    UsePolicy(usize),
    Select(SelectAction),
    /// What the views show.
    View(ShowAction),
    ShowMetric(Metric),
    Heatmap(HeatmapAction),
    Quadrant(QuadrantAction),
    Brush(BrushAction),
    Graph(GraphAction),
    Site(SiteAction),
    Mods(ModsAction),
    Plan(PlanAction),
    Review(ReviewAction),
    Step(StepAction),
    /// Brings a pane to the front.
    Show(Pane),
    Window(WindowAction),
}

/// Asked for by a panel: an action of the table, files to open, or a command with its own data.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Act(Action),
    /// Whatever kind they are; a trace among them goes first.
    Open(Vec<String>),
    Do(Command),
    /// Reach for the server at once.
    Retry,
}

/// What decides whether an action would do something.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub session: &'a Session,
    /// Who is at the window.
    pub me: &'a Author,
    pub view: &'a ViewState,
    pub derived: &'a Derived,
}

/// What an action may change: the view state, and by the command it gives, the session.
pub struct Doing<'a> {
    pub session: &'a Session,
    pub me: &'a Author,
    pub view: &'a mut ViewState,
    pub finder: &'a mut Finder,
    pub derived: &'a Derived,
    pub ctx: &'a egui::Context,
    /// Commands beside the one that it gives.
    pub also: &'a mut Vec<Command>,
}

impl Doing<'_> {
    fn scope(&self) -> Scope<'_> {
        Scope { session: self.session, me: self.me, view: self.view, derived: self.derived }
    }
}

/// Why whoever is `me` does nothing by what needs that role; `None`: they may.
pub fn not_allowed(me: &Author, needs: Role) -> Option<String> {
    (me.role < needs).then(|| format!("you are {} here: that takes {}", me.role.one(), needs.one()))
}

impl Action {
    /// In the order of the palette and the sheet.
    pub fn all() -> Vec<Self> {
        let mut all: Vec<Self> = FileAction::ALL.iter().map(|of| Self::File(*of)).collect();
        all.extend(Target::ALL.map(Self::ExportTo));
        all.extend(EditAction::ALL.iter().map(|of| Self::Edit(*of)));
        all.extend(RunAction::ALL.iter().map(|of| Self::Run(*of)));
        all.extend((0..ENGINES.len()).map(Self::UseEngine));
        all.extend(ModKind::ALL.map(Self::ToggleMod));
        all.extend((0..Policy::BUILTIN.len()).map(Self::UsePolicy));
        all.extend(SelectAction::ALL.iter().map(|of| Self::Select(*of)));
        all.extend(ShowAction::ALL.iter().map(|of| Self::View(*of)));
        all.extend(Metric::ALL.map(Self::ShowMetric));
        all.extend(HeatmapAction::ALL.iter().map(|of| Self::Heatmap(*of)));
        all.extend(QuadrantAction::ALL.iter().map(|of| Self::Quadrant(*of)));
        all.extend(BrushAction::ALL.iter().map(|of| Self::Brush(*of)));
        all.extend(GraphAction::ALL.iter().map(|of| Self::Graph(*of)));
        all.extend(SiteAction::ALL.iter().map(|of| Self::Site(*of)));
        all.extend(ModsAction::ALL.iter().map(|of| Self::Mods(*of)));
        all.extend(PlanAction::ALL.iter().map(|of| Self::Plan(*of)));
        all.extend(ReviewAction::ALL.iter().map(|of| Self::Review(*of)));
        all.extend(StepAction::ALL.iter().map(|of| Self::Step(*of)));
        all.extend(Pane::ALL.map(Self::Show));
        all.extend(WindowAction::ALL.iter().map(|of| Self::Window(*of)));
        all
    }

    /// What it is called outside of the window: `view.heatmap`, `edit.undo`. It stays when words change.
    pub fn id(self) -> String {
        let (group, name) = match self {
            Self::File(of) => ("file", of.name()),
            Self::ExportTo(target) => ("export", target.as_str()),
            Self::Edit(of) => ("edit", of.name()),
            Self::Run(of) => ("run", of.name()),
            Self::UseEngine(at) => ("engine", ENGINES.get(at).copied().unwrap_or_default()),
            Self::ToggleMod(kind) => ("mod", kind.as_str()),
            Self::UsePolicy(at) => ("policy", Policy::BUILTIN.get(at).copied().unwrap_or_default()),
            Self::Select(of) => ("sites", of.name()),
            Self::View(of) => ("show", of.name()),
            Self::ShowMetric(metric) => ("metric", metric.as_str()),
            Self::Heatmap(of) => ("heatmap", of.name()),
            Self::Quadrant(of) => ("quadrant", of.name()),
            Self::Brush(of) => ("brush", of.name()),
            Self::Graph(of) => ("graph", of.name()),
            Self::Site(of) => ("site", of.name()),
            Self::Mods(of) => ("mods", of.name()),
            Self::Plan(of) => ("plan", of.name()),
            Self::Review(of) => ("review", of.name()),
            Self::Step(of) => ("steps", of.name()),
            Self::Show(pane) => ("view", pane.title()),
            Self::Window(of) => ("window", of.name()),
        };
        format!("{group}.{}", snake(name))
    }

    pub fn of_id(id: &str) -> Option<Self> {
        Self::all().into_iter().find(|action| action.id() == id)
    }

    fn entry(self) -> Option<ActionEntry> {
        match self {
            Self::File(of) => Some(of.entry()),
            Self::Edit(of) => Some(of.entry()),
            Self::Run(of) => Some(of.entry()),
            Self::Select(of) => Some(of.entry()),
            Self::View(of) => Some(of.entry()),
            Self::Heatmap(of) => Some(of.entry()),
            Self::Quadrant(of) => Some(of.entry()),
            Self::Brush(of) => Some(of.entry()),
            Self::Graph(of) => Some(of.entry()),
            Self::Site(of) => Some(of.entry()),
            Self::Mods(of) => Some(of.entry()),
            Self::Plan(of) => Some(of.entry()),
            Self::Review(of) => Some(of.entry()),
            Self::Step(of) => Some(of.entry()),
            Self::Window(of) => Some(of.entry()),
            Self::ExportTo(_)
            | Self::UseEngine(_)
            | Self::ToggleMod(_)
            | Self::UsePolicy(_)
            | Self::ShowMetric(_)
            | Self::Show(_) => None,
        }
    }

    pub fn text(self) -> String {
        match self {
            Self::ExportTo(target) => format!("Export plan for {}…", target.title()),
            Self::UseEngine(at) => format!("Use the {} engine", engine_at(at)),
            Self::ToggleMod(kind) => format!("Toggle {}", mod_name(kind)),
            Self::UsePolicy(at) => format!("Use policy {}", Policy::BUILTIN.get(at).unwrap_or(&"")),
            Self::ShowMetric(metric) => format!("Colour by {}", metric.label()),
            Self::Show(pane) => format!("Show {}", pane.title().to_lowercase()),
            _ => self.entry().map_or("", |entry| entry.text).to_owned(),
        }
    }

    pub fn tooltip(self) -> String {
        match self {
            Self::ExportTo(target) => format!("For {} (loka export --to {target})", target.about()),
            Self::UseEngine(_) => {
                "Probe with this engine; rows of the other are kept apart and come back with it".to_owned()
            }
            Self::ToggleMod(_) => {
                "Probe the model as it would be with this change everywhere; it must be trained with it".to_owned()
            }
            Self::UsePolicy(at) => policy_about(at).to_owned(),
            Self::ShowMetric(_) => "Colour the heatmap by this metric".to_owned(),
            Self::Show(pane) => pane.about().to_owned(),
            _ => self.entry().map_or("", |entry| entry.tooltip).to_owned(),
        }
    }

    /// In a page without those that the browser keeps.
    pub fn shortcut(self) -> Option<KeyboardShortcut> {
        self.entry_shortcut().filter(|shortcut| !(Here::IS_PAGE && keys::is_browsers(shortcut)))
    }

    /// As the table has it.
    fn entry_shortcut(self) -> Option<KeyboardShortcut> {
        match self {
            Self::Show(pane) => keys::of_pane(pane),
            _ => self.entry().and_then(|entry| entry.shortcut),
        }
    }

    /// The tooltip with its shortcut.
    pub fn hint(self, ctx: &egui::Context) -> String {
        match self.shortcut() {
            Some(shortcut) => format!("{} ({})", self.tooltip(), shortcut_text(ctx, &shortcut)),
            None => self.tooltip(),
        }
    }

    /// Why it would do nothing now, in a line; `None`: it would do something.
    pub fn problem(self, scope: Scope<'_>) -> Option<String> {
        let refused = not_allowed(scope.me, self.needs());
        if refused.is_some() {
            return refused;
        }
        match self {
            Self::File(of) => of.problem(scope),
            Self::Edit(of) => of.problem(scope),
            Self::Run(of) => of.problem(scope),
            Self::Select(of) => of.problem(scope),
            Self::View(of) => of.problem(scope),
            Self::Heatmap(of) => of.problem(scope),
            Self::Quadrant(of) => of.problem(scope),
            Self::Brush(of) => of.problem(scope),
            Self::Graph(of) => of.problem(scope),
            Self::Site(of) => of.problem(scope),
            Self::Mods(of) => of.problem(scope),
            Self::Plan(of) => of.problem(scope),
            Self::Review(of) => of.problem(scope),
            Self::Step(of) => of.problem(scope),
            Self::Window(of) => of.problem(scope),
            Self::ExportTo(_) => NO_FRAMEWORK_FILES.map(str::to_owned).or_else(|| no_rows(scope)),
            Self::UseEngine(at) => run::engine_problem(scope.session, at),
            Self::ToggleMod(_) => no_trace(scope),
            Self::UsePolicy(_) | Self::ShowMetric(_) | Self::Show(_) => None,
        }
    }

    /// The least role that it does something for.
    fn needs(self) -> Role {
        let owner = match self {
            Self::Review(of) => return of.needs(),
            Self::Brush(of) => return of.needs(),
            Self::Edit(_) | Self::UseEngine(_) | Self::ToggleMod(_) | Self::UsePolicy(_) | Self::Mods(_) => true,
            Self::Run(of) => of != RunAction::ShowEngines,
            Self::Select(of) => of.decides(),
            Self::Site(of) => of == SiteAction::DrawMore,
            Self::Quadrant(of) => of == QuadrantAction::Adopt,
            Self::Plan(of) => of.is_owners(),
            _ => false,
        };
        if owner { Role::Owner } else { Role::Viewer }
    }

    pub fn is_enabled(self, scope: Scope<'_>) -> bool {
        self.problem(scope).is_none()
    }

    /// The heading that it stands under in the sheet.
    pub fn area(self) -> &'static str {
        match self {
            Self::File(_) | Self::ExportTo(_) => "Files and clipboard",
            Self::Edit(_) | Self::ToggleMod(_) | Self::UsePolicy(_) | Self::Mods(_) | Self::Plan(_) => "Plan",
            Self::Run(_) | Self::UseEngine(_) => "Engine",
            Self::Select(_) | Self::Site(_) | Self::Brush(_) => "Sites",
            Self::View(_)
            | Self::ShowMetric(_)
            | Self::Heatmap(_)
            | Self::Quadrant(_)
            | Self::Graph(_)
            | Self::Step(_) => "What is shown",
            Self::Review(_) => "Review",
            Self::Show(_) => "Views",
            Self::Window(_) => "Window",
        }
    }

    /// Carries the view's part out; gives the session's part.
    pub fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        match self {
            Self::File(of) => of.perform(doing),
            Self::Edit(of) => of.perform(doing),
            Self::Run(of) => of.perform(doing),
            Self::Select(of) => of.perform(doing),
            Self::View(of) => of.perform(doing),
            Self::Heatmap(of) => of.perform(doing),
            Self::Quadrant(of) => of.perform(doing),
            Self::Brush(of) => of.perform(doing),
            Self::Graph(of) => of.perform(doing),
            Self::Site(of) => of.perform(doing),
            Self::Mods(of) => of.perform(doing),
            Self::Plan(of) => of.perform(doing),
            Self::Review(of) => of.perform(doing),
            Self::Step(of) => of.perform(doing),
            Self::Window(of) => of.perform(doing),
            Self::ExportTo(target) => {
                doing.view.dialog = Some(Dialog::export(doing.session, ExportForm::Framework(target)));
                None
            }
            Self::UseEngine(at) => {
                let name = ENGINES.get(at).map(|name| (*name).to_owned());
                name.map(|name| Command::SelectEngine { name })
            }
            Self::ToggleMod(kind) => Some(Command::ToggleMod { kind }),
            Self::UsePolicy(at) => {
                let policy = Policy::BUILTIN.get(at).and_then(|name| Policy::builtin(name).ok());
                policy.map(|policy| Command::SetPolicy { policy })
            }
            Self::ShowMetric(metric) => {
                doing.view.choose_metric(metric);
                None
            }
            Self::Show(pane) => {
                doing.view.layout.show(pane);
                None
            }
        }
    }
}

/// `ForgetRecent`, `Site times` and `rel-l2` as `forget_recent`, `site_times` and `rel_l2`.
fn snake(name: &str) -> String {
    let mut id = String::new();
    for character in name.chars() {
        if character.is_uppercase() && id.ends_with(|before: char| before.is_lowercase()) {
            id.push('_');
        }
        id.push(if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '_' });
    }
    id
}

/// The one line for everything that needs a trace.
fn no_trace(scope: Scope<'_>) -> Option<String> {
    scope.session.trace.is_none().then(|| "open a trace first".to_owned())
}

/// The one line for everything that needs rows.
fn no_rows(scope: Scope<'_>) -> Option<String> {
    no_trace(scope).or_else(|| (!scope.session.has_rows()).then(|| "there are no rows yet".to_owned()))
}

/// The one line for everything that needs a selected site.
fn no_site(scope: Scope<'_>) -> Option<String> {
    no_trace(scope).or_else(|| scope.view.site.is_none().then(|| "select a site first".to_owned()))
}

fn engine_at(at: usize) -> &'static str {
    ENGINES.get(at).map_or("", |name| engine_title(name))
}

fn mod_name(kind: ModKind) -> &'static str {
    match kind {
        ModKind::NoBias => "no bias",
        ModKind::BlockNorm => "BlockNorm",
        ModKind::HardSwish => "hard swish",
    }
}

fn policy_about(at: usize) -> &'static str {
    match Policy::BUILTIN.get(at) {
        Some(&"paper") => "MERE below .2 and more than 1.05×, every GEMM on its own (LoKA)",
        Some(&"balanced") => {
            "Forward within .02 % of the loss, backward within .01 of its gradients' noise and bias, more than 1.05×"
        }
        Some(&"rel-l2") => "Relative L2 below .05, bias of gradients below .01, more than 1.05×, every GEMM on its own",
        _ => "The fastest plan whose loss cost stays within .02 % of the loss",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_has_words_and_no_two_share_a_key() {
        let mut seen: Vec<(KeyboardShortcut, Action)> = Vec::new();
        for action in Action::all() {
            let (text, tooltip) = (action.text(), action.tooltip());
            assert!(!text.is_empty() && !tooltip.is_empty(), "{action:?}");
            assert!(!text.ends_with('.') && !tooltip.contains('!'), "{action:?}");
            let Some(shortcut) = action.shortcut() else { continue };
            let other = seen.iter().find(|(known, _)| *known == shortcut);
            assert!(other.is_none(), "{action:?} and {other:?} share a key");
            seen.push((shortcut, action));
        }
    }

    #[test]
    fn every_action_has_an_id_of_its_own_that_leads_back_to_it() {
        for action in Action::all() {
            let id = action.id();
            let plain = |of: char| of.is_ascii_lowercase() || of.is_ascii_digit() || of == '_' || of == '.';
            assert!(id.chars().all(plain) && id.split('.').all(|part| !part.is_empty()), "{id}");
            assert_eq!(Action::of_id(&id), Some(action), "{id}");
        }
        assert_eq!(Action::Edit(EditAction::Undo).id(), "edit.undo");
        assert_eq!(Action::Show(Pane::Heatmap).id(), "view.heatmap");
        assert_eq!((snake("ForgetRecent"), snake("rel-l2")), ("forget_recent".to_owned(), "rel_l2".to_owned()));
    }

    #[test]
    fn no_two_actions_have_the_same_text() {
        let mut texts: Vec<String> = Action::all().into_iter().map(Action::text).collect();
        texts.sort();
        let all = texts.len();
        texts.dedup();
        assert_eq!(texts.len(), all);
    }
}
