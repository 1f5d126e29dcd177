//! Takes what a frame asked for beside its session, pictures, the clipboard, dialogs, settings, begins it in the background, and
//! takes up what came of it.

use loka_core::session::{Command, Event, NoticeKind};

use crate::{
    link::Submission,
    panels::{self, ToWrite},
    picture::{self, PictureFormat, PictureRequest},
    platform::{Here, Platform as _, TaskResult},
    state::{Dialog, DialogKind, ExportForm, ExportState},
    window::{LokaApp, copying, housekeeping::settings_of},
};

impl LokaApp {
    /// Once a frame, before it is drawn.
    pub(crate) fn do_housekeeping(&mut self, ctx: &egui::Context) {
        while let Some(done) = self.housekeeping.background.poll() {
            self.take_up(done, ctx);
        }
        // Files come and go while another program is in front.
        if ctx.input(|input| input.events.contains(&egui::Event::WindowFocused(true))) {
            self.housekeeping.look_for_recent(&self.view);
        }
        let now = ctx.input(|input| input.time);
        self.fade(ctx, now);
        self.begin_copy();
        self.begin_browse();
        self.begin_preview(ctx, now);
        self.begin_picture(ctx);
        self.view.log.stamp(self.link.session().log(), self.housekeeping.clock, now);
        self.keep_settings(ctx, now);
    }

    fn fade(&mut self, ctx: &egui::Context, now: f64) {
        let (over, next) = self.housekeeping.fading.tick(&self.link.session().notices, now);
        over.into_iter().for_each(|id| self.command(Command::DismissNotice { id }));
        wake_in(ctx, next);
    }

    fn keep_settings(&mut self, ctx: &egui::Context, now: f64) {
        let (view, window) = (&self.view, window_size(ctx).or(self.housekeeping.window));
        self.housekeeping.window = window;
        let next =
            self.housekeeping.settings_store.tick(now, || settings_of(view, window), &self.housekeeping.background);
        wake_in(ctx, next);
    }

    fn begin_copy(&mut self) {
        let Some(what) = self.view.copy.take() else { return };
        let seen = (self.link.session(), &self.view, &*self.derived);
        let problem = copying::copy(what, seen, &self.done, &self.housekeeping.background);
        if let Some(problem) = problem {
            self.notify(NoticeKind::Error, problem);
        }
    }

    fn begin_browse(&mut self) {
        let Some(dialog) = self.view.browse.take() else { return };
        let Some(picker) = &self.housekeeping.picker else { return };
        let pick = picker.begin(&panels::ask_of(&dialog));
        self.housekeeping.asked = Some(dialog);
        self.housekeeping.background.run("loka-browse", move || {
            Some(match pick() {
                Ok(paths) => TaskResult::Picked(paths),
                Err(why) => TaskResult::NoDialog(why),
            })
        });
    }

    /// What the dialog says of a file that is about to be exported.
    fn begin_preview(&mut self, ctx: &egui::Context, now: f64) {
        let form = self.view.dialog.as_ref().and_then(|dialog| dialog.kind.export_form());
        let Some(form) = form else {
            if self.view.export.is_used() {
                self.view.export = ExportState::default();
            }
            return;
        };
        if self.view.export.is_behind(self.link.session(), form) {
            wake_in(ctx, Some(1.0));
        }
        if let Some(task) = self.view.export.turn(self.link.session(), form, now) {
            self.housekeeping.background.run("loka-preview", move || {
                task.run();
                Some(TaskResult::Ready)
            });
        }
    }

    /// SVG: the frame before this one drew the shapes. PNG: the picture comes when the window was drawn.
    fn begin_picture(&mut self, ctx: &egui::Context) {
        let Some(wanted) = self.view.picture.wanted.clone() else { return };
        if let Some(drawn) = self.view.picture.drawn.take() {
            self.view.picture.wanted = None;
            return self.write(wanted, move || {
                let (text, omitted) = picture::svg(drawn.rect, &drawn.shapes);
                Ok((text.into_bytes(), omitted))
            });
        }
        let Some(rect) = self.view.layout.rect_of(wanted.pane) else {
            self.view.picture = picture::PictureState::default();
            let text = format!("{} is not on screen: show it to save it", wanted.pane.title());
            return self.notify(NoticeKind::Error, text);
        };
        if wanted.format == PictureFormat::Svg {
            return ctx.request_repaint();
        }
        if self.view.picture.shooting.is_none() {
            // In pixels of the frame that is shot.
            self.view.picture.shooting = Some(rect * ctx.pixels_per_point());
            let reports = self.housekeeping.background.reports();
            // Its report wakes the window.
            ctx.request_screenshot(move |image| reports.send(TaskResult::Shot(image)));
        }
        if Here::IS_PAGE {
            // A page's device hands the picture over when it next draws.
            ctx.request_repaint();
        }
    }

    /// It is said to be there once somebody else would get it.
    fn copy(&self, text: String, what: String, ctx: &egui::Context) {
        let background = &self.housekeeping.background;
        match Here::copy_text(ctx, text.clone()) {
            // At once is before the frame hands it over.
            Ok(()) if !background.is_inline() => background
                .run("loka-copied", move || Some(TaskResult::Copied { outcome: Here::check_copied(&text), what })),
            outcome => background.reports().send(TaskResult::Copied { what, outcome }),
        }
    }

    fn take_up(&mut self, done: TaskResult, ctx: &egui::Context) {
        match done {
            TaskResult::Picked(paths) => self.picked(paths),
            TaskResult::NoDialog(why) => {
                let asked = self.housekeeping.asked.take();
                self.notify(NoticeKind::Warning, why.clone());
                self.view.no_browse = Some(why);
                self.view.dialog = asked.map(|dialog| Dialog { fresh: true, ..dialog });
            }
            TaskResult::Copy { text, what } => self.copy(text, what, ctx),
            TaskResult::Copied { what, outcome: Ok(()) } => {
                self.notify(NoticeKind::Info, format!("{what} is on the clipboard"));
            }
            TaskResult::Copied { what, outcome: Err(why) } => {
                self.notify(NoticeKind::Error, format!("{what} was not copied: {why}"));
            }
            // It woke the window, which looks there with every frame.
            TaskResult::Ready => ctx.request_repaint(),
            TaskResult::Shot(image) => self.shot(&image),
            TaskResult::Written { path, what } => self.link.submit(Submission::Note(Event::Written { path, what })),
            TaskResult::Missing(missing) => self.view.recent.mark(&missing),
            TaskResult::Stored(outcome) => {
                if let Some(line) = self.housekeeping.settings_store.stored(outcome) {
                    self.notify(NoticeKind::Warning, line);
                }
            }
            TaskResult::Failed(line) => self.notify(NoticeKind::Error, line),
        }
    }

    fn picked(&mut self, paths: Vec<String>) {
        let Some(dialog) = self.housekeeping.asked.take() else { return };
        if dialog.kind == DialogKind::Open {
            return self.open_all(paths);
        }
        let Some(path) = paths.into_iter().next() else { return };
        if matches!(dialog.kind, DialogKind::Export(ExportForm::Framework(_))) {
            // Back to what the file cannot say, and to the files that lie beside it.
            self.view.dialog = Some(Dialog { path, fresh: true, ..dialog });
            return;
        }
        match panels::to_write(dialog.kind, path) {
            ToWrite::Command(command) => self.command(command),
            ToWrite::Picture(wanted) => self.view.picture.wanted = Some(wanted),
        }
    }

    fn shot(&mut self, image: &std::sync::Arc<egui::ColorImage>) {
        let state = std::mem::take(&mut self.view.picture);
        let (Some(wanted), Some(rect)) = (state.wanted, state.shooting) else { return };
        let image = image.clone();
        self.write(wanted, move || {
            let part = picture::crop(&image, rect, 1.0).ok_or("nothing of the view was on screen")?;
            Ok((picture::encode(&part)?, 0))
        });
    }

    /// Makes the bytes and writes them, beside the frame.
    fn write(&self, wanted: PictureRequest, bytes: impl FnOnce() -> Result<(Vec<u8>, usize), String> + Send + 'static) {
        self.housekeeping.background.run("loka-picture", move || {
            let (path, word) = (wanted.path, wanted.format.word());
            let written = bytes().and_then(|(bytes, omitted)| Ok((Here::write_file(&path, &bytes)?, omitted)));
            Some(match written {
                Ok(((), 0)) => TaskResult::Written { path, what: word.to_owned() },
                Ok(((), omitted)) => {
                    TaskResult::Written { path, what: format!("{word} without {omitted} images that are no vectors") }
                }
                Err(error) => TaskResult::Failed(format!("The {word} was not written: {error}")),
            })
        });
    }
}

/// The window's size in the system's points; not while it fills the screen.
fn window_size(ctx: &egui::Context) -> Option<[f32; 2]> {
    let (about, zoom) = (ctx.input(|input| input.viewport().clone()), ctx.zoom_factor());
    let filled = [about.maximized, about.fullscreen, about.minimized].contains(&Some(true));
    let size = about.inner_rect.filter(|_| !filled)?.size() * zoom;
    Some([size.x.round(), size.y.round()])
}

fn wake_in(ctx: &egui::Context, seconds: Option<f64>) {
    if let Some(seconds) = seconds {
        ctx.request_repaint_after(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 3600.0)));
    }
}
