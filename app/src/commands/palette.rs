//! Finds an action, a site or a recent file by a few of its characters. What cannot be done now is shown with the
//! reason.

use egui::{Align2, Context, Id, Key, Modal, Modifiers, RichText, Sense, TextEdit, Ui, vec2};
use loka_core::model::SiteId;

use super::{Action, Sheet, WindowAction, shortcut_text};
use crate::{
    settings::RecentFile,
    theme::{ROW, Theme, shorten},
};

const WIDTH: f32 = 520.0;
const SHOWN: usize = 12;
/// Sites and files among them.
const SITES: usize = 5;
const FILES: usize = 3;
/// What was done last comes first, as far as this.
const RECENT: usize = 6;
/// Characters of a name in the list.
const NAME: usize = 60;
/// An action that would do nothing stands behind those as tight that would.
const DISABLED: usize = 2;

/// What is searched for over the window, and what was done before.
#[derive(Clone, Debug, Default)]
pub struct Finder {
    pub palette: Option<Palette>,
    pub sheet: Option<Sheet>,
    /// Actions that were done, the latest first.
    pub recent: Vec<Action>,
}

impl Finder {
    pub fn is_open(&self) -> bool {
        self.palette.is_some() || self.sheet.is_some()
    }

    /// Closes what is on top; false: nothing was open.
    pub fn close(&mut self) -> bool {
        self.palette.take().is_some() || self.sheet.take().is_some()
    }
}

/// What was typed, and the highlighted row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Palette {
    pub typed: String,
    pub at: usize,
    /// What the characters found, until they change: a long list of sites is searched once.
    found: Option<Vec<Chosen>>,
}

/// What can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    Action(Action),
    Site(SiteId),
    File(String),
}

/// What the palette was left with.
pub enum PaletteOutcome {
    Open,
    Closed,
    Chosen(Chosen),
}

/// Where the palette looks.
pub struct PaletteSource<'a> {
    /// Why an action would do nothing; `None`: it would do something.
    pub problem: &'a dyn Fn(Action) -> Option<String>,
    pub sites: &'a [SiteId],
    pub files: &'a [RecentFile],
    /// The latest first.
    pub recent: &'a [Action],
}

pub fn palette_ui(ctx: &Context, theme: &Theme, palette: &mut Palette, source: &PaletteSource<'_>) -> PaletteOutcome {
    let (down, up, enter) = ctx.input_mut(|input| {
        let mut key = |key| input.consume_key(Modifiers::NONE, key);
        (key(Key::ArrowDown), key(Key::ArrowUp), key(Key::Enter))
    });
    let room = ctx.content_rect();
    let top = (room.height() * 0.1).min(80.0);
    let area = Modal::default_area(Id::unique("palette")).anchor(Align2::CENTER_TOP, vec2(0.0, top));
    let modal = Modal::new(Id::unique("palette")).area(area).show(ctx, |ui| {
        ui.set_width(WIDTH.min(room.width() - 64.0));
        let hint = "Find an action, a site or a recent file";
        let field = ui.add(TextEdit::singleline(&mut palette.typed).hint_text(hint).desired_width(f32::INFINITY));
        field.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, true, hint));
        field.request_focus();
        if field.changed() {
            (palette.at, palette.found) = (0, None);
        }
        let found = palette.found.get_or_insert_with(|| source.find(&palette.typed)).clone();
        if down {
            palette.at = (palette.at + 1).min(found.len().saturating_sub(1));
        }
        if up {
            palette.at = palette.at.saturating_sub(1);
        }
        if found.is_empty() {
            ui.label(RichText::new("Nothing matches").color(theme.weak));
        }
        list_ui(ui, theme, source, &found, palette.at, enter)
    });
    match modal.inner {
        Some(chosen) => PaletteOutcome::Chosen(chosen),
        None if modal.should_close() => PaletteOutcome::Closed,
        None => PaletteOutcome::Open,
    }
}

/// What was clicked, or had the highlight when Enter was pressed.
fn list_ui(
    ui: &mut Ui,
    theme: &Theme,
    source: &PaletteSource<'_>,
    found: &[Chosen],
    at: usize,
    enter: bool,
) -> Option<Chosen> {
    let mut chosen = None;
    let rows = egui::ScrollArea::vertical().max_height((ui.ctx().content_rect().height() * 0.7).max(3.0 * ROW));
    rows.show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        for (row, of) in found.iter().enumerate() {
            let line = source.line(of);
            let clicked = row_ui(ui, theme, &line, row == at);
            if line.problem.is_none() && (clicked || (enter && row == at)) {
                chosen = Some(of.clone());
            }
        }
    });
    chosen
}

/// One row as it is read.
struct FoundLine {
    text: String,
    tooltip: String,
    keys: Option<egui::KeyboardShortcut>,
    problem: Option<String>,
}

fn row_ui(ui: &mut Ui, theme: &Theme, line: &FoundLine, highlighted: bool) -> bool {
    let height = if line.problem.is_some() { ROW + 14.0 } else { ROW };
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::click());
    let enabled = line.problem.is_none();
    let said = line.problem.as_ref().map_or_else(|| line.text.clone(), |why| format!("{}, not now: {why}", line.text));
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, enabled, &said));
    if highlighted || response.hovered() {
        ui.painter().rect_filled(rect, 4.0, theme.accent.gamma_multiply(0.25));
        if highlighted {
            ui.scroll_to_rect(rect, None);
        }
    }
    let first = rect.left_top() + vec2(8.0, ROW / 2.0);
    let font = |style: egui::TextStyle| style.resolve(ui.style());
    let color = if enabled { theme.text } else { theme.weak };
    let painter = ui.painter().with_clip_rect(rect.intersect(ui.clip_rect()));
    painter.text(first, Align2::LEFT_CENTER, &line.text, font(egui::TextStyle::Body), color);
    if let Some(why) = &line.problem {
        let at = first + vec2(0.0, 15.0);
        painter.text(at, Align2::LEFT_CENTER, format!("Not now: {why}"), font(egui::TextStyle::Small), theme.weak);
    }
    if let Some(shortcut) = &line.keys {
        let keys = shortcut_text(ui.ctx(), shortcut);
        let at = egui::pos2(rect.right() - 8.0, first.y);
        painter.text(at, Align2::RIGHT_CENTER, keys, font(egui::TextStyle::Small), theme.weak);
    }
    response.on_hover_text(&line.tooltip).clicked()
}

impl PaletteSource<'_> {
    /// The tightest match first; without characters, what was done last.
    fn find(&self, typed: &str) -> Vec<Chosen> {
        let typed = typed.trim().to_lowercase();
        let mut found: Vec<Chosen> = self.files(&typed).into_iter().chain(self.sites(&typed)).collect();
        let room = SHOWN.saturating_sub(found.len());
        let actions = self.actions(&typed).into_iter().take(room).map(Chosen::Action);
        // An action is what is looked for most.
        found.splice(0..0, actions);
        found
    }

    /// Characters that are only scattered over a text are looked at where nothing else fits.
    fn actions(&self, typed: &str) -> Vec<Action> {
        let own = [WindowAction::Palette, WindowAction::Back].map(Action::Window);
        let all = Action::all().into_iter().filter(|action| !own.contains(action));
        let recent = |action: &Action| self.recent.iter().take(RECENT).position(|of| of == action).unwrap_or(RECENT);
        let mut scored: Vec<((Fit, usize, usize), Action)> = all
            .filter_map(|action| {
                let (fit, score) = fit(&action.text().to_lowercase(), &action.tooltip().to_lowercase(), typed)?;
                let late = if (self.problem)(action).is_some() { DISABLED } else { 0 };
                Some(((fit, score + late, recent(&action)), action))
            })
            .collect();
        if typed.is_empty() {
            scored.sort_by_key(|((_, score, recent), _)| (*recent, *score));
        } else {
            scored.sort_by_key(|(score, _)| *score);
            let fits = scored.first().is_some_and(|((fit, ..), _)| *fit < Fit::Scattered);
            scored.retain(|((fit, ..), _)| !fits || *fit < Fit::Scattered);
        }
        scored.into_iter().map(|(_, action)| action).collect()
    }

    fn sites(&self, typed: &str) -> Vec<Chosen> {
        let wanted = typed.trim_start_matches("go to site").trim();
        if wanted.is_empty() {
            return Vec::new();
        }
        let has = |site: &&SiteId| contains(site.as_str(), wanted);
        self.sites.iter().filter(has).take(SITES).cloned().map(Chosen::Site).collect()
    }

    fn files(&self, typed: &str) -> Vec<Chosen> {
        let wanted = typed.trim_start_matches("open").trim();
        let has = |file: &&RecentFile| contains(file.name(), wanted) && !(wanted.is_empty() && typed.is_empty());
        self.files.iter().filter(has).take(FILES).map(|file| Chosen::File(file.path.clone())).collect()
    }

    fn line(&self, of: &Chosen) -> FoundLine {
        let plain = |text, tooltip: &str| FoundLine { text, tooltip: tooltip.to_owned(), keys: None, problem: None };
        match of {
            Chosen::Action(action) => FoundLine {
                keys: action.shortcut(),
                problem: (self.problem)(*action),
                ..plain(action.text(), &format!("{}\n{}", action.tooltip(), action.id()))
            },
            Chosen::Site(site) => plain(format!("Go to site {}", shorten(site.as_str(), NAME)), site.as_str()),
            Chosen::File(path) => {
                let file = self.files.iter().find(|file| file.path == *path);
                let name = file.map_or(path.as_str(), RecentFile::name);
                let problem = file.and_then(|file| file.problem.clone());
                FoundLine { problem, ..plain(format!("Open {}", shorten(name, NAME)), path) }
            }
        }
    }
}

/// `wanted` is in lower case.
fn contains(name: &str, wanted: &str) -> bool {
    // Most names need no copy in lower case.
    name.contains(wanted) || name.to_lowercase().contains(wanted)
}

/// How a text has what was typed, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// The text begins so.
    Begins,
    /// Every word begins a word of the text.
    Words,
    /// Every word is somewhere in it.
    Within,
    /// Every word begins one of the tooltip.
    Tooltip,
    /// The characters are there in order, and no more than that.
    Scattered,
}

/// All in lower case. With how well it fits among those that fit alike; `None`: not at all.
fn fit(text: &str, tooltip: &str, typed: &str) -> Option<(Fit, usize)> {
    let begins = |of: &str, word: &str| {
        let starts =
            |(at, _): &(usize, &str)| of[..*at].chars().next_back().is_none_or(|before| !before.is_alphanumeric());
        of.match_indices(word).find(starts).map(|(at, _)| at)
    };
    let all = |at: &dyn Fn(&str) -> Option<usize>| typed.split_whitespace().map(at).sum::<Option<usize>>();
    if text.starts_with(typed) {
        return Some((Fit::Begins, text.len()));
    }
    if let Some(at) = all(&|word| begins(text, word)) {
        return Some((Fit::Words, at));
    }
    if let Some(at) = all(&|word| text.find(word)) {
        return Some((Fit::Within, at));
    }
    if all(&|word| begins(tooltip, word)).is_some() {
        return Some((Fit::Tooltip, 0));
    }
    spread(text, typed).map(|score| (Fit::Scattered, score))
}

/// How far apart the characters of `typed` lie in `text`; `None` when they are not all there in order.
fn spread(text: &str, typed: &str) -> Option<usize> {
    let mut score = 0;
    let mut rest = text.char_indices();
    let mut last = None;
    for character in typed.chars().filter(|character| !character.is_whitespace()) {
        let (at, _) = rest.find(|(_, found)| *found == character)?;
        score += last.map_or(at / 4, |last: usize| at - last - 1);
        last = Some(at);
    }
    Some(score)
}

#[cfg(test)]
mod tests {
    use loka_core::session::FileKind;

    use super::*;
    use crate::{
        commands::{EditAction, FileAction},
        settings::Recent,
    };

    fn find(typed: &str, recent: &[Action], disabled: Option<Action>) -> Vec<Chosen> {
        let problem = |action| (Some(action) == disabled).then(|| "not now".to_owned());
        let mut files = Recent::default();
        files.add("/runs/clicks.trace.safetensors", FileKind::Trace);
        let sites = ["net.layers.0", "net.Layers.1", "net.top"].map(SiteId::new);
        PaletteSource { problem: &problem, sites: &sites, files: files.files(), recent }.find(typed)
    }

    #[test]
    fn letters_in_order_find_the_tightest_first() {
        let first = |typed| find(typed, &[], None).into_iter().next();
        assert_eq!(first("undo"), Some(Chosen::Action(Action::Edit(EditAction::Undo))));
        assert_eq!(first("svres"), Some(Chosen::Action(Action::File(FileAction::SaveResults))));
        assert_eq!(first("export"), Some(Chosen::Action(Action::File(FileAction::ExportPlan))));
        assert!(find("zzz", &[], None).is_empty());
        assert_eq!(find("", &[], None).len(), SHOWN);
    }

    #[test]
    fn words_come_before_letters_that_are_only_scattered() {
        let texts = |typed| -> Vec<String> {
            let actions = find(typed, &[], None).into_iter().filter_map(|of| match of {
                Chosen::Action(action) => Some(action.text()),
                _ => None,
            });
            actions.collect()
        };
        assert!(texts("loss")[0].to_lowercase().contains("loss"), "{:?}", texts("loss"));
        assert!(texts("svg")[0].to_lowercase().contains("svg"), "{:?}", texts("svg"));
        for typed in ["loss", "svg", "why", "png"] {
            for text in texts(typed) {
                let action = Action::all().into_iter().find(|action| action.text() == text).unwrap();
                let told = format!("{text} {}", action.tooltip()).to_lowercase();
                assert!(told.contains(typed), "{typed}: {text}");
            }
        }
        assert_eq!(fit("save picture", "", "sp"), Some((Fit::Scattered, 4)));
        assert_eq!(fit("copy as tsv", "", "as co"), Some((Fit::Words, 5)));
        assert_eq!(fit("undo", "", "sp"), None);
    }

    #[test]
    fn what_was_done_last_is_first() {
        let recent = [Action::Edit(EditAction::Redo), Action::File(FileAction::ExportPlan)];
        let found = find("", &recent, None);
        assert_eq!(found[..2], recent.map(Chosen::Action));
    }

    #[test]
    fn sites_and_files_are_found_by_name() {
        let sites = |typed| find(typed, &[], None).into_iter().filter(|of| matches!(of, Chosen::Site(_))).count();
        assert_eq!((sites("layers"), sites("go to site top"), sites("")), (2, 1, 0));
        let file = Chosen::File("/runs/clicks.trace.safetensors".to_owned());
        assert!(find("open clicks", &[], None).contains(&file));
        assert!(!find("", &[], None).contains(&file));
    }

    #[test]
    fn what_cannot_be_done_stays_in_the_list() {
        let undo = Action::Edit(EditAction::Undo);
        assert!(find("undo", &[], Some(undo)).contains(&Chosen::Action(undo)));
    }
}
