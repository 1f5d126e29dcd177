//! Pictures of every view at a fixed size, drawn by a software renderer and compared with those in
//! tests/pictures. `LOKA_PICTURES=keep` writes them anew: look at what changed before committing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{cell::RefCell, collections::VecDeque, fs::File, io::BufReader, path::PathBuf, rc::Rc};

use eframe::egui_wgpu::RendererOptions;
use egui_kittest::{Harness, wgpu::WgpuTestRenderer};
use loka::{LokaApp, commands::Action, layout::Pane, link::Link, theme::Ground};
use loka_core::{
    model::{Gemm, KernelId, ModKind},
    session::{Command, Effect, Event, shared::News, view::Column},
};
use loka_tests::{big, here};

/// Channels may differ by this much, and pixels by more than it in this share: renderers round differently.
const CLOSE: i32 = 40;
const SHARE: f64 = 0.003;

struct Quiet(Rc<RefCell<VecDeque<Event>>>);

impl Link for Quiet {
    fn run(&mut self, effect: Effect) {
        if let Effect::Inspect { trace, site } = effect {
            let outcome = Err("these made-up results have no trace".to_owned());
            self.0.borrow_mut().push_back(Event::SiteInspected { trace, other: None, site, outcome });
        }
    }

    fn poll(&mut self) -> Option<News> {
        self.0.borrow_mut().pop_front().map(News::from)
    }

    fn busy(&self) -> Option<String> {
        None
    }
}

/// `None` where there is nothing to draw with.
fn window(size: [f32; 2], ground: Ground, opened: bool) -> Harness<'static, LokaApp> {
    let results = Box::new(big::results(36, 11));
    let events = if opened {
        vec![Event::ResultsOpened { path: "ranker.results.parquet".to_owned(), results: results.clone() }]
    } else {
        Vec::new()
    };
    let state =
        egui_kittest::wgpu::create_render_state(egui_kittest::wgpu::default_wgpu_setup(), RendererOptions::PREDICTABLE);
    let mut app = LokaApp::new(Box::new(Quiet(Rc::new(RefCell::new(events.into()))))).with_gpu(state.target_format);
    app.view_mut().ground = ground;
    app.view_mut().hint = false;
    let draw = |ui: &mut egui::Ui, app: &mut LokaApp| {
        app.tick(&ui.ctx().clone());
        app.draw(ui);
    };
    let builder = Harness::builder().with_size(size).with_max_steps(8);
    let mut harness = builder.renderer(WgpuTestRenderer::from_render_state(state)).build_ui_state(draw, app);
    harness.run_steps(6);
    if opened {
        let site = results.meta.manifest.sites[7].id.clone();
        let column = Column { gemm: Gemm::Fprop, kernel: KernelId::new("cublaslt/fp8-blockwise") };
        harness.state_mut().view_mut().select(site, Some(column));
        for notice in harness.state().session().notices.clone() {
            harness.state_mut().command(Command::DismissNotice { id: notice.id });
        }
        harness.run_steps(4);
    }
    harness
}

fn show(harness: &mut Harness<'_, LokaApp>, pane: Pane) {
    harness.state_mut().act(Action::Show(pane));
    harness.run_steps(6);
}

fn path(name: &str) -> PathBuf {
    here("pictures").join(format!("{name}.png"))
}

fn compare(harness: &mut Harness<'_, LokaApp>, name: &str) -> Option<String> {
    let image = harness.render().unwrap();
    let (width, height, drawn) = (image.width(), image.height(), image.into_raw());
    if std::env::var("LOKA_PICTURES").is_ok_and(|wanted| wanted == "keep") {
        write(&path(name), width, height, &drawn);
        return None;
    }
    let (kept_width, kept_height, kept) = read(&path(name));
    if (width, height) != (kept_width, kept_height) {
        return Some(format!("{name}: {width} x {height} instead of {kept_width} x {kept_height}"));
    }
    let far = |(a, b): &(&[u8], &[u8])| a.iter().zip(*b).any(|(a, b)| (i32::from(*a) - i32::from(*b)).abs() > CLOSE);
    let differing = drawn.chunks(4).zip(kept.chunks(4)).filter(far).count();
    let share = differing as f64 / f64::from(width * height);
    if share <= SHARE {
        return None;
    }
    let new = std::env::temp_dir().join(format!("{name}.new.png"));
    write(&new, width, height, &drawn);
    Some(format!("{name}: {:.2} % of the pixels differ; see {}", 100.0 * share, new.display()))
}

fn write(path: &std::path::Path, width: u32, height: u32, pixels: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut encoder = png::Encoder::new(File::create(path).unwrap(), width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_compression(png::Compression::High);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
}

fn read(path: &std::path::Path) -> (u32, u32, Vec<u8>) {
    let file = File::open(path).unwrap_or_else(|error| panic!("{error}: {}", path.display()));
    let mut reader = png::Decoder::new(BufReader::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (info.width, info.height, pixels)
}

#[test]
fn every_view_looks_as_it_did() {
    let mut problems = Vec::new();
    for (ground, word) in [(Ground::Dark, "dark"), (Ground::Light, "light")] {
        let mut harness = window([1280.0, 800.0], ground, true);
        for pane in [Pane::Heatmap, Pane::Quadrant, Pane::Plan, Pane::Mods] {
            show(&mut harness, pane);
            problems.extend(compare(&mut harness, &format!("{}-{word}", pane.title().to_lowercase())));
        }
    }
    let mut harness = window([1280.0, 800.0], Ground::Dark, true);
    for pane in [Pane::Frontier, Pane::Distribution, Pane::Drift] {
        show(&mut harness, pane);
        problems.extend(compare(&mut harness, &pane.title().to_lowercase()));
    }
    harness.state_mut().command(Command::ToggleMod { kind: ModKind::BlockNorm });
    show(&mut harness, Pane::Mods);
    problems.extend(compare(&mut harness, "mods-on"));
    let mut harness = window([1920.0, 1080.0], Ground::Dark, true);
    problems.extend(compare(&mut harness, "wide"));
    let mut harness = window([400.0, 700.0], Ground::Dark, true);
    problems.extend(compare(&mut harness, "narrow"));
    let mut harness = window([1280.0, 800.0], Ground::Light, false);
    problems.extend(compare(&mut harness, "empty"));
    assert!(problems.is_empty(), "{problems:#?}");
}
