//! A window without a screen: the program's own `tick` and `draw`, egui's layout and tessellation, and what the
//! renderer uploads where there is an adapter (a software one will do). A GPU also draws, into a texture of the window's size.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use eframe::{
    egui_wgpu::{RenderState, ScreenDescriptor},
    wgpu,
};
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
    /// From handing a GPU the frame's commands until it is drawn, on the wall; None where the processor would draw.
    pub gpu_ms: Option<f64>,
    /// When the next frame is due by itself.
    pub repaint: Duration,
}

pub struct TimedWindow {
    ctx: egui::Context,
    pub app: LokaApp,
    gpu: Option<RenderState>,
    /// What a GPU draws into.
    target: Option<wgpu::TextureView>,
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
        let target = gpu.as_ref().filter(|state| draws(state)).map(target);
        Self { ctx, app, gpu, target, time: 0.0 }
    }

    /// What uploads and, if it is a GPU, draws.
    pub fn adapter(&self) -> String {
        let Some(state) = &self.gpu else { return "no GPU".to_owned() };
        let name = state.adapter.get_info().name;
        if self.target.is_some() { format!("drawn by {name}") } else { format!("uploads to {name}, not drawn") }
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
        let (upload_ms, gpu_ms) =
            self.gpu.as_ref().map_or((0.0, None), |gpu| upload(gpu, self.target.as_ref(), &output, &primitives));
        output.textures_delta.clear();
        let repaint = output.viewport_output.get(&ViewportId::ROOT).map_or(Duration::MAX, |of| of.repaint_delay);
        Frame { cpu_ms: cpu_ms + upload_ms, gpu_ms, repaint }
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

/// Whether an adapter is a GPU: drawing by software would say nothing of a window.
fn draws(state: &RenderState) -> bool {
    state.adapter.get_info().device_type != wgpu::DeviceType::Cpu
}

/// A texture of the window's size.
fn target(state: &RenderState) -> wgpu::TextureView {
    let [width, height] = SIZE;
    let texture = state.device.create_texture(&wgpu::TextureDescriptor {
        label: Some("the window"),
        size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: state.target_format,
        usage: wgpu::TextureUsages::RENDER_ATTACHMENT,
        view_formats: &[],
    });
    texture.create_view(&wgpu::TextureViewDescriptor::default())
}

/// Milliseconds of CPU time for textures, vertices, what our own callbacks prepare and, where there is a target, the drawing's
/// commands; and how long the GPU then takes.
fn upload(
    gpu: &RenderState,
    target: Option<&wgpu::TextureView>,
    output: &egui::FullOutput,
    primitives: &[egui::ClippedPrimitive],
) -> (f64, Option<f64>) {
    let mut renderer = gpu.renderer.write();
    for (id, deltas) in &output.textures_delta.set {
        deltas.iter().for_each(|delta| renderer.update_texture(&gpu.device, &gpu.queue, *id, delta));
    }
    let screen = ScreenDescriptor { size_in_pixels: SIZE, pixels_per_point: output.pixels_per_point };
    let (cpu_ms, commands) = clock::cpu_ms(|| {
        let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut commands = renderer.update_buffers(&gpu.device, &gpu.queue, &mut encoder, primitives, &screen);
        if let Some(view) = target {
            let color = wgpu::RenderPassColorAttachment {
                view,
                depth_slice: None,
                resolve_target: None,
                ops: wgpu::Operations { load: wgpu::LoadOp::Clear(wgpu::Color::BLACK), store: wgpu::StoreOp::Store },
            };
            let of = wgpu::RenderPassDescriptor { color_attachments: &[Some(color)], ..Default::default() };
            renderer.render(&mut encoder.begin_render_pass(&of).forget_lifetime(), primitives, &screen);
        }
        commands.push(encoder.finish());
        commands
    });
    for id in &output.textures_delta.free {
        renderer.free_texture(id);
    }
    let submitted = Instant::now();
    gpu.queue.submit(commands);
    let gpu_ms = target.map(|_| {
        gpu.device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        1e3 * submitted.elapsed().as_secs_f64()
    });
    (cpu_ms, gpu_ms)
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
