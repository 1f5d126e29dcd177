//! The workbench in this process, without a window: frames as fast as they come, events in the place of mouse and keys.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use egui::{Event, Key, Modifiers, PointerButton, Pos2};
use egui_kittest::Harness;
use loka::{
    LokaApp,
    driving::{Drive, Look},
    link,
    platform::ThreadExecutor,
};
use loka_core::session::shared::Author;

use crate::{
    player::Playable,
    stage::{PERSON, Stage},
};

pub struct InProcess {
    harness: Harness<'static, LokaApp>,
    drive: Drive,
    told: Arc<Mutex<Option<Look>>>,
    folder: PathBuf,
    pointer: Pos2,
}

impl InProcess {
    pub fn open(stage: &Stage) -> Self {
        let (drive, told) = (Drive::default(), Arc::new(Mutex::new(None)));
        let app = LokaApp::new(Box::new(
            link::InProcess::new(ThreadExecutor::new(Arc::new(|| {}))).with_author(Author::new(1, PERSON)),
        ))
        .with_drive(drive.clone());
        let draw = |ui: &mut egui::Ui, app: &mut LokaApp| {
            app.tick(&ui.ctx().clone());
            app.draw(ui);
        };
        // Time goes as in a window: lines that fade do so in real seconds.
        let builder = Harness::builder().with_size(stage.looks.size).with_max_steps(8).with_step_dt(1.0 / 60.0);
        let mut harness = builder.wgpu().build_ui_state(draw, app);
        let answer = told.clone();
        drive.install(&harness.ctx, move |look| *answer.lock().unwrap() = Some(look));
        harness.state_mut().open(stage.trace.to_string_lossy().into_owned());
        Self { harness, drive, told, folder: stage.traces().to_owned(), pointer: Pos2::ZERO }
    }

    fn event(&mut self, event: Event) {
        self.harness.event(event);
        self.harness.step();
    }

    fn button(&mut self, pressed: bool) {
        let (pos, button) = (self.pointer, PointerButton::Primary);
        self.event(Event::PointerButton { pos, button, pressed, modifiers: Modifiers::NONE });
    }
}

impl Playable for InProcess {
    fn name(&self) -> &'static str {
        "in-process"
    }

    fn look(&mut self) -> Look {
        self.drive.ask();
        loop {
            self.harness.step();
            if let Some(look) = self.told.lock().unwrap().take() {
                return look;
            }
        }
    }

    fn point(&mut self, at: [i32; 2]) {
        self.pointer = Pos2::new(at[0] as f32, at[1] as f32);
        self.event(Event::PointerMoved(self.pointer));
    }

    fn press(&mut self) {
        self.button(true);
    }

    fn release(&mut self) {
        self.button(false);
    }

    fn key(&mut self, keys: &str) {
        let mut modifiers = Modifiers::NONE;
        let mut names = keys.split('+').rev();
        let key = names.next().and_then(Key::from_name).unwrap();
        for name in names {
            modifiers |= match name {
                "Ctrl" => Modifiers::CTRL | Modifiers::COMMAND,
                "Shift" => Modifiers::SHIFT,
                other => panic!("no such modifier: {other}"),
            };
        }
        self.harness.key_press_modifiers(modifiers, key);
        self.harness.step();
    }

    fn type_text(&mut self, text: &str) {
        self.event(Event::Text(text.to_owned()));
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    fn exported(&mut self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.folder.join(name)).ok()
    }

    fn picture(&mut self, path: &Path) -> Result<(), String> {
        let image = self.harness.render()?;
        let file = std::fs::File::create(path).map_err(|error| error.to_string())?;
        let mut encoder = png::Encoder::new(file, image.width(), image.height());
        encoder.set_color(png::ColorType::Rgba);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&image.into_raw()));
        written.map_err(|error| error.to_string())
    }

    fn complaints(&mut self) -> Vec<String> {
        Vec::new()
    }
}
