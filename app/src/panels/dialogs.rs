//! Asks for a path. Enter does it, Esc closes, and the system's own dialog is a button away.

use std::time::Duration;

use egui::{ComboBox, Id, Key, Modal, RichText, ScrollArea, TextEdit, Ui};
use loka_core::session::{Command, FileKind};

use crate::{
    commands::{Action, FileAction},
    picture::PictureRequest,
    platform::{Ask, Here, Platform as _},
    state::{Dialog, DialogKind, ExportForm, ExportPreview, folder_of},
    theme::number,
    views::Scene,
};

pub fn dialogs_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some(mut dialog) = scene.view.dialog.take() else { return };
    let modal = Modal::new(Id::unique("path dialog")).show(ui.ctx(), |ui| body_ui(ui, scene, &mut dialog));
    match modal.inner {
        DialogAnswer::Go => answer(scene, dialog.kind, vec![dialog.path.trim().to_owned()]),
        DialogAnswer::Browse => scene.view.browse = Some(dialog),
        DialogAnswer::Cancel => {}
        DialogAnswer::Wait if modal.should_close() => {}
        DialogAnswer::Wait => scene.view.dialog = Some(dialog),
    }
}

/// Of the list of what lies on the server.
const FOLDER_HEIGHT: f32 = 160.0;
/// Of the list of what a file cannot say.
const LOSSES_HEIGHT: f32 = 150.0;

enum DialogAnswer {
    Wait,
    Go,
    Browse,
    Cancel,
}

fn body_ui(ui: &mut Ui, scene: &mut Scene<'_>, dialog: &mut Dialog) -> DialogAnswer {
    let (title, about, verb) = words(dialog.kind);
    let served = IN_A_PAGE && scene.connection.is_served();
    ui.set_width(520.0_f32.min(ui.ctx().content_rect().width() - 64.0));
    ui.heading(title);
    ui.label(RichText::new(about).color(scene.theme.weak));
    if let Some(form) = dialog.kind.export_form() {
        form_ui(ui, scene, dialog, form);
    }
    ui.add_space(8.0);
    let (name, hint) = asked_for(dialog.kind, served);
    let label = ui.label(name);
    let field = ui.add(TextEdit::singleline(&mut dialog.path).desired_width(f32::INFINITY).hint_text(hint));
    let field = field.labelled_by(label.id);
    if std::mem::take(&mut dialog.fresh) {
        field.request_focus();
        select_all(ui, field.id, &dialog.path);
    }
    let enter = field.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
    let chosen = if served { in_the_folder_ui(ui, scene, dialog) } else { false };
    let form = dialog.kind.export_form();
    let suffixes = suffixes(scene, form);
    let there = Some(dialog.path.trim()).filter(|_| is_to_write(dialog.kind)).and_then(|path| at_any(path, &suffixes));
    if let Some(there) = &there {
        ui.add_space(4.0);
        existing_ui(ui, scene, dialog, there, &suffixes);
    }
    if let Some(form) = form {
        preview_ui(ui, scene, dialog, form);
    }
    if dialog.kind == DialogKind::Approve {
        ui.add_space(4.0);
        ui.label(format!("You sign as {} ({}).", scene.me.name, scene.me.role.one()));
        if let Some(open) = scene.view.review.left_open() {
            ui.label(RichText::new(open).color(scene.theme.warning));
        }
    }
    ui.add_space(12.0);
    let refused = form.and_then(|form| scene.view.export.problem(form));
    let ready = !dialog.path.trim().is_empty() && !matches!(there, Some(Existing::Folder)) && refused.is_none();
    let verb = if there.is_some() { "Overwrite" } else { verb };
    let mut answer = if chosen || (enter && ready) { DialogAnswer::Go } else { DialogAnswer::Wait };
    ui.horizontal(|ui| {
        // Where a download goes is the browser's own question.
        if !(IN_A_PAGE && is_to_write(dialog.kind)) && browse_ui(ui, scene) {
            answer = DialogAnswer::Browse;
        }
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            let go = ui.add_enabled(ready, egui::Button::new(verb)).on_hover_text("Enter does the same");
            if go.on_disabled_hover_text(refused.unwrap_or("A name is needed first")).clicked() {
                answer = DialogAnswer::Go;
            }
            if ui.button("Cancel").on_hover_text("Esc does the same").clicked() {
                answer = DialogAnswer::Cancel;
            }
        });
    });
    answer
}

/// What is typed takes the place of what is proposed.
fn select_all(ui: &Ui, id: Id, text: &str) {
    use egui::text::{CCursor, CCursorRange};
    let mut state = egui::text_edit::TextEditState::load(ui.ctx(), id).unwrap_or_default();
    let all = CCursorRange::two(CCursor::new(0), CCursor::new(text.chars().count()));
    state.cursor.set_char_range(Some(all));
    state.store(ui.ctx(), id);
}

/// What lies where a file is to be written.
enum Existing {
    Folder,
    File { bytes: u64, age: Option<Duration> },
}

impl Existing {
    /// Not in a page: a download overwrites nothing.
    fn at(path: &str) -> Option<Self> {
        let about = std::fs::metadata(path).ok().filter(|_| !IN_A_PAGE)?;
        if about.is_dir() {
            return Some(Self::Folder);
        }
        let age = about.modified().ok().and_then(|written| written.elapsed().ok());
        Some(Self::File { bytes: about.len(), age })
    }

    fn words(&self) -> String {
        let Self::File { bytes, age } = self else { return "That is a folder: add a name.".to_owned() };
        let age = age.map_or_else(String::new, |age| format!(", written {}", ago(age)));
        format!("There is a file already: {}{age}.", number::bytes(*bytes))
    }
}

fn ago(age: Duration) -> String {
    let minutes = age.as_secs() / 60;
    let of = |count: u64, unit: &str| format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" });
    match minutes {
        0 => "just now".to_owned(),
        1..60 => of(minutes, "minute"),
        60..1440 => of(minutes / 60, "hour"),
        _ => of(minutes / 1440, "day"),
    }
}

/// Of all the files that are to be written there.
fn at_any(path: &str, suffixes: &[String]) -> Option<Existing> {
    suffixes.iter().find_map(|suffix| Existing::at(&format!("{path}{suffix}")))
}

/// What the names of files have behind the one that is asked for.
fn suffixes(scene: &Scene<'_>, form: Option<ExportForm>) -> Vec<String> {
    let preview = form.and_then(|form| scene.view.export.preview(form));
    let known = preview.map(|preview| preview.suffixes.clone()).filter(|known| !known.is_empty());
    known.unwrap_or_else(|| vec![String::new()])
}

/// What the plan is written as.
fn form_ui(ui: &mut Ui, scene: &Scene<'_>, dialog: &mut Dialog, form: ExportForm) {
    ui.add_space(8.0);
    ui.horizontal(|ui| {
        let label = ui.label("As");
        let combo = ComboBox::from_id_salt("export as").selected_text(form.title()).width(200.0).height(400.0);
        let combo = combo.show_ui(ui, |ui| {
            for other in ExportForm::all() {
                if ui.selectable_label(form == other, other.title()).on_hover_text(about(other)).clicked() {
                    dialog.export_as(other);
                }
            }
        });
        combo.response.labelled_by(label.id).on_hover_text("LoKA's own file, one that a framework reads, or a report");
        if let ExportForm::Framework(target) = form {
            let text = RichText::new(format!("proved with {}", target.proved_with())).small().color(scene.theme.weak);
            ui.add(egui::Label::new(text).truncate());
        }
    });
}

/// What a form is, in a line.
fn about(form: ExportForm) -> String {
    match form {
        ExportForm::Plan => {
            "One kernel a GEMM with its reason, as JSON that loka check and loka.apply accept.".to_owned()
        }
        ExportForm::Framework(target) => format!("For {}.", target.about()),
        ExportForm::Report => "One HTML page for people: the plan, its errors, who decided and who signed.".to_owned(),
    }
}

/// Draft or approved, what the file cannot say, and which files there will be: before anything is written.
fn preview_ui(ui: &mut Ui, scene: &mut Scene<'_>, dialog: &Dialog, form: ExportForm) {
    ui.add_space(8.0);
    let (weak, warning, error) = (scene.theme.weak, scene.theme.warning, scene.theme.error);
    let Some(preview) = scene.view.export.preview(form).cloned() else {
        ui.label(RichText::new("What the file would say is being worked out…").color(weak));
        return;
    };
    if !preview.refused.is_empty() {
        for line in &preview.refused {
            ui.label(RichText::new(line).color(error));
        }
        ui.label(RichText::new("Nothing can be written in this form.").color(weak));
        return;
    }
    match preview.status.as_str() {
        "" => ui.label(RichText::new("Nobody has to sign this plan: its policy asks for no approval.").color(weak)),
        status if status.starts_with("DRAFT") => ui.label(RichText::new(status).color(warning)),
        status => ui.label(RichText::new(capitalized(status)).color(scene.theme.text)),
    };
    if let Some(summary) = &preview.summary {
        ui.label(RichText::new(capitalized(summary)).color(weak));
        losses_ui(ui, scene, &preview, form);
        for note in &preview.notes {
            ui.label(RichText::new(format!("Note: {note}")).small().color(weak));
        }
    }
    if preview.suffixes.len() > 1 {
        let name = &dialog.path.trim()[folder_of(dialog.path.trim()).len()..];
        let names: Vec<String> = preview.suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect();
        let text = format!("{} files: {}", names.len(), names.join(", "));
        ui.label(RichText::new(text).small().color(weak));
    }
}

/// The list that has to be accepted.
fn losses_ui(ui: &mut Ui, scene: &mut Scene<'_>, preview: &ExportPreview, form: ExportForm) {
    ui.add_space(4.0);
    if preview.losses.is_empty() {
        ui.label(RichText::new(format!("{} can say all of this plan.", form.title())).color(scene.theme.weak));
        return;
    }
    ui.label(RichText::new(format!("What {} cannot say of this plan:", form.title())).strong());
    let area = ScrollArea::vertical().id_salt("losses").max_height(LOSSES_HEIGHT).auto_shrink([false, true]);
    area.show(ui, |ui| {
        for loss in &preview.losses {
            ui.label(RichText::new(format!("loses {loss}")).color(scene.theme.warning));
        }
    });
    let mut accepted = scene.view.export.is_accepted(&preview.losses);
    let hint = "The file is written without these; loka export asks for --allow-loss";
    if ui.checkbox(&mut accepted, "Accept these losses").on_hover_text(hint).changed() {
        scene.view.export.accept(accepted.then_some(&preview.losses));
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

fn existing_ui(ui: &mut Ui, scene: &Scene<'_>, dialog: &mut Dialog, there: &Existing, suffixes: &[String]) {
    ui.horizontal(|ui| {
        ui.label(RichText::new(there.words()).color(scene.theme.warning));
        let is_file = matches!(there, Existing::File { .. });
        if is_file && ui.button("Keep both").on_hover_text("Another name, that is free").clicked() {
            dialog.path = free_name(dialog.path.trim(), |path| at_any(path, suffixes).is_none());
        }
    });
}

/// `a.plan.json` becomes `a-2.plan.json`, or the next number that is free.
fn free_name(path: &str, is_free: impl Fn(&str) -> bool) -> String {
    let name = &path[folder_of(path).len()..];
    // A leading dot is no ending.
    let stem = name.char_indices().skip(1).find(|(_, character)| *character == '.').map_or(name.len(), |(at, _)| at);
    let (before, ending) = path.split_at(path.len() - name.len() + stem);
    let numbered = (2..10_000).map(|number| format!("{before}-{number}{ending}"));
    numbered.into_iter().find(|path| is_free(path)).unwrap_or_else(|| path.to_owned())
}

/// What lies on the server and fits. True: one was clicked, and its name stands in the field.
fn in_the_folder_ui(ui: &mut Ui, scene: &Scene<'_>, dialog: &mut Dialog) -> bool {
    let wanted = match dialog.kind {
        DialogKind::Open => None,
        DialogKind::ComparePlan => Some(FileKind::Plan),
        DialogKind::CompareResults => Some(FileKind::Results),
        _ => return false,
    };
    let fits = |name: &&String| wanted.is_none_or(|wanted| FileKind::of_name(name) == Some(wanted));
    let names: Vec<&String> = scene.suggestions.iter().filter(fits).collect();
    if names.is_empty() {
        return false;
    }
    ui.add_space(8.0);
    ui.label(RichText::new("In the served folder").small().color(scene.theme.weak));
    let mut clicked = false;
    ScrollArea::vertical().max_height(FOLDER_HEIGHT).auto_shrink([false, true]).show(ui, |ui| {
        for name in names {
            if ui.link(name).clicked() {
                (dialog.path, clicked) = (name.clone(), true);
            }
        }
    });
    clicked
}

fn browse_ui(ui: &mut Ui, scene: &Scene<'_>) -> bool {
    let hint = Action::File(FileAction::Browse).tooltip();
    let why = scene.view.no_browse.clone();
    let browse = ui.add_enabled(why.is_none(), egui::Button::new("Browse…")).on_hover_text(hint);
    browse.on_disabled_hover_text(why.unwrap_or_default()).clicked()
}

/// A page opens addresses and gives downloads a name; elsewhere both are paths.
const IN_A_PAGE: bool = Here::IS_PAGE;

fn is_to_write(kind: DialogKind) -> bool {
    let reads = [DialogKind::Open, DialogKind::ComparePlan, DialogKind::CompareResults, DialogKind::Approve];
    !reads.contains(&kind)
}

/// The field's name and what stands in it while it is empty. `served`: files are those of the server.
fn asked_for(kind: DialogKind, served: bool) -> (&'static str, &'static str) {
    if kind == DialogKind::Approve {
        return if IN_A_PAGE { ("Key", "Browse for your key file") } else { ("Key", "Path of your key file") };
    }
    match (IN_A_PAGE, is_to_write(kind)) {
        (false, _) => ("Path", "Path of the file"),
        (true, false) if served => ("Name", "Its name in the served folder, or Browse for a file of this machine"),
        (true, false) => ("Address", "https://…, or Browse for a file of this machine"),
        (true, true) => ("Name", "Name of the download"),
    }
}

fn words(kind: DialogKind) -> (&'static str, String, &'static str) {
    if let DialogKind::Export(form) = kind {
        let title = if form == ExportForm::Report { "Export report" } else { "Export plan" };
        return (title, about(form), "Save");
    }
    let (title, about, verb) = plain_words(kind);
    (title, about.to_owned(), verb)
}

fn plain_words(kind: DialogKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        DialogKind::Open if IN_A_PAGE => {
            ("Open", "A .trace.safetensors, .results.parquet or .plan.json file; it can also be dropped here.", "Open")
        }
        DialogKind::Open => {
            ("Open", "A .trace.safetensors file, a folder of shards, a .results.parquet or a .plan.json file.", "Open")
        }
        DialogKind::ComparePlan => {
            ("Compare with a plan", "A .plan.json file; every difference comes with its reason.", "Compare")
        }
        DialogKind::Approve => (
            "Approve",
            "Signs the submitted version, in your name. The key stays on this machine (loka key new makes one).",
            "Sign",
        ),
        DialogKind::CompareResults => (
            "Compare with results",
            "A .results.parquet file of the same sites: what it would plan, and which verdicts flipped.",
            "Compare",
        ),
        DialogKind::SaveResults => ("Save results", "Every row with its circumstances, as Parquet.", "Save"),
        DialogKind::Export(_) => ("Export plan", "", "Save"),
        DialogKind::SavePicture(_, crate::picture::PictureFormat::Png) => {
            ("Save view as PNG", "The view as it stands on screen, pixel by pixel.", "Save")
        }
        DialogKind::SavePicture(_, crate::picture::PictureFormat::Svg) => {
            ("Save view as SVG", "The view as vectors; its text can be selected.", "Save")
        }
    }
}

/// What the system's dialog is asked for the same question.
pub(crate) fn ask_of(dialog: &Dialog) -> Ask {
    let (title, ..) = words(dialog.kind);
    let folder = folder_of(&dialog.path);
    let name = dialog.path[folder.len()..].to_owned();
    let save = is_to_write(dialog.kind);
    Ask { title: title.to_owned(), save, folder: folder.to_owned(), name }
}

/// Carries out what was asked a path for. To write, the first path counts.
fn answer(scene: &mut Scene<'_>, kind: DialogKind, paths: Vec<String>) {
    if kind == DialogKind::Open {
        return scene.open(paths);
    }
    let Some(path) = paths.into_iter().next() else { return };
    match to_write(kind, path) {
        ToWrite::Command(command) => scene.send(command),
        ToWrite::Picture(wanted) => scene.view.picture.wanted = Some(wanted),
    }
}

/// Who writes a file.
pub(crate) enum ToWrite {
    Command(Command),
    Picture(PictureRequest),
}

pub(crate) fn to_write(kind: DialogKind, path: String) -> ToWrite {
    match kind {
        DialogKind::SavePicture(pane, format) => ToWrite::Picture(PictureRequest { pane, path, format }),
        DialogKind::Export(form) => ToWrite::Command(match form {
            ExportForm::Plan => Command::ExportPlan { path },
            ExportForm::Framework(target) => Command::ExportTo { path, target },
            ExportForm::Report => Command::ExportReport { path },
        }),
        DialogKind::ComparePlan | DialogKind::CompareResults => ToWrite::Command(Command::OpenPlan { path }),
        DialogKind::Approve => ToWrite::Command(Command::Sign { path, note: String::new() }),
        DialogKind::SaveResults | DialogKind::Open => ToWrite::Command(Command::SaveResults { path }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_name_keeps_folder_and_ending() {
        let taken = ["/a.b/ranker-2.plan.json", "/a.b/ranker-3.plan.json"];
        let free = |path: &str| free_name(path, |path| !taken.contains(&path));
        assert_eq!(free("/a.b/ranker.plan.json"), "/a.b/ranker-4.plan.json");
        assert_eq!(free("plan"), "plan-2");
        assert_eq!(free(".hidden"), ".hidden-2");
        assert_eq!(free("é.plan.json"), "é-2.plan.json");
    }

    #[test]
    fn ages_are_said_in_whole_units() {
        let said = [(10, "just now"), (90, "1 minute ago"), (7_300, "2 hours ago"), (100_000, "1 day ago")];
        for (seconds, text) in said {
            assert_eq!(ago(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn what_is_there_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        assert!(Existing::at(&path("new.plan.json")).is_none());
        std::fs::write(path("old.plan.json"), "12345").unwrap();
        let words = Existing::at(&path("old.plan.json")).unwrap().words();
        assert!(words.starts_with("There is a file already: 5 ") && words.ends_with("just now."), "{words}");
        assert!(matches!(Existing::at(&path("")), Some(Existing::Folder)));
    }
}
