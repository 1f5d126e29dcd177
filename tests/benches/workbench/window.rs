//! A window without a screen: the program's own `tick` and `draw`, egui's layout and tessellation, and what the
//! renderer uploads where there is an adapter (a software one will do). What the GPU then does is not measured.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use eframe::egui_wgpu::{RenderState, ScreenDescriptor};
use egui::{Event as SessionInput, Pos2, RawInput, Rect, ViewportId, pos2, vec2};
use loka::{LokaApp, link::Link};
use loka_core::{
    runtime::{Executor, Report},
    session::{Effect, Event, Session},
};

use crate::clock;

/// The arrangement for wide windows: heatmap and quadrant side by side.
pub const SIZE: [u32; 2] = [1920, 1080];

/// What one frame cost and asked for.
pub struct Frame {
    pub cpu_ms: f64,
    /// When the next frame is due by itself.
    pub repaint: Duration,
}

pub struct TimedWindow {
    ctx: egui::Context,
    pub app: LokaApp,
    gpu: Option<RenderState>,
    time: f64,
}

impl TimedWindow {
    pub fn new(link: Box<dyn Link>, gpu: bool) -> Self {
        let ctx = egui::Context::default();
        let gpu = gpu.then(|| {
            let setup = egui_kittest::wgpu::default_wgpu_setup();
            egui_kittest::wgpu::create_render_state(setup, eframe::egui_wgpu::RendererOptions::default())
        });
        let wake = ctx.clone();
        let app = LokaApp::new(link).with_wake(std::sync::Arc::new(move || wake.request_repaint()));
        let app = match &gpu {
            Some(state) => app.with_gpu(state.target_format),
            None => app,
        };
        Self { ctx, app, gpu, time: 0.0 }
    }

    pub fn session(&self) -> &Session {
        self.app.session()
    }

    pub fn has_gpu(&self) -> bool {
        self.gpu.is_some()
    }

    /// One frame, a sixtieth of a second after the last.
    pub fn frame(&mut self, events: Vec<SessionInput>) -> Frame {
        self.time += 1.0 / 60.0;
        let size = vec2(SIZE[0] as f32, SIZE[1] as f32);
        let screen_rect = Some(Rect::from_min_size(Pos2::ZERO, size));
        let input = RawInput { screen_rect, time: Some(self.time), events, focused: true, ..RawInput::default() };
        let (ctx, app) = (&self.ctx, &mut self.app);
        let (cpu_ms, (mut output, primitives)) = clock::cpu_ms(|| {
            let mut output = ctx.run_ui(input, |ui| {
                app.tick(&ui.ctx().clone());
                app.draw(ui);
            });
            let shapes = std::mem::take(&mut output.shapes);
            let primitives = ctx.tessellate(shapes, output.pixels_per_point);
            (output, primitives)
        });
        let upload_ms = self.gpu.as_ref().map_or(0.0, |gpu| upload(gpu, &output, &primitives));
        output.textures_delta.clear();
        let repaint = output.viewport_output.get(&ViewportId::ROOT).map_or(Duration::MAX, |of| of.repaint_delay);
        Frame { cpu_ms: cpu_ms + upload_ms, repaint }
    }

    /// Frames until nothing more is asked for and no answer of a thread is awaited.
    pub fn settle(&mut self) {
        let start = Instant::now();
        let (mut quiet, mut since) = (0, start);
        while start.elapsed() < Duration::from_secs(20) {
            if self.frame(Vec::new()).repaint < Duration::from_secs(1) {
                (quiet, since) = (0, Instant::now());
            }
            quiet += 1;
            // Long enough for a thread to answer.
            if quiet > 3 && since.elapsed() > Duration::from_millis(300) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        eprintln!("the window does not come to rest: {:?}", self.ctx.repaint_causes());
    }

    /// A place by its share of the window.
    pub fn at(x: f32, y: f32) -> Pos2 {
        pos2(x * SIZE[0] as f32, y * SIZE[1] as f32)
    }
}

/// Milliseconds of CPU time for textures, vertices and what our own callbacks prepare.
fn upload(gpu: &RenderState, output: &egui::FullOutput, primitives: &[egui::ClippedPrimitive]) -> f64 {
    let mut renderer = gpu.renderer.write();
    for (id, deltas) in &output.textures_delta.set {
        deltas.iter().for_each(|delta| renderer.update_texture(&gpu.device, &gpu.queue, *id, delta));
    }
    let mut encoder = gpu.device.create_command_encoder(&eframe::wgpu::CommandEncoderDescriptor::default());
    let screen = ScreenDescriptor { size_in_pixels: SIZE, pixels_per_point: output.pixels_per_point };
    let (cpu_ms, mut commands) =
        clock::cpu_ms(|| renderer.update_buffers(&gpu.device, &gpu.queue, &mut encoder, primitives, &screen));
    for id in &output.textures_delta.free {
        renderer.free_texture(id);
    }
    commands.push(encoder.finish());
    gpu.queue.submit(commands);
    cpu_ms
}

/// Plays events back; answers a probe with its start.
#[derive(Default)]
pub struct Script {
    pub events: VecDeque<Event>,
    pub probe: Option<u64>,
}

pub struct ScriptedExecutor(pub Rc<RefCell<Script>>);

impl Executor for ScriptedExecutor {
    fn run(&mut self, effect: Effect) {
        if let Effect::Probe { run, .. } = effect {
            self.0.borrow_mut().probe = Some(run);
        }
    }

    fn poll(&mut self) -> Option<Report> {
        self.0.borrow_mut().events.pop_front().map(Report::from)
    }
}
