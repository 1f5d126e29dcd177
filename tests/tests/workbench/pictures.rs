//! Pictures of every view at a fixed size, drawn by a software renderer and compared with those in
//! tests/pictures. `LOKA_PICTURES=keep` writes them anew: look at what changed before committing.

use std::{cell::RefCell, fs::File, io::BufReader, path::PathBuf, rc::Rc};

use eframe::egui_wgpu::RendererOptions;
use egui_kittest::{Harness, wgpu::WgpuTestRenderer};
use loka::{LokaApp, commands::Action, layout::Pane, state::BrushShape, theme::Ground};
use loka_core::{
    model::{Gemm, KernelId, ModKind, Moment, ResultsBySite, Safety},
    review::{Approval, ApprovalRule, ReviewState, Role, SecretKey},
    session::{
        Command, Effect, Event,
        shared::{Author, CommandContext, LinkMessage},
    },
    views::{
        BrushedRows, Column,
        drift::{Checkpoint, Followed},
    },
};
use loka_tests::{
    big, here,
    scripted::{self, Script, ScriptedLink},
};

/// Channels may differ by this much, and pixels by more than it in this share: renderers round differently.
const CLOSE: i32 = 40;
const SHARE: f64 = 0.003;

type Told = Rc<RefCell<Script>>;

fn no_trace(effect: &Effect) -> Option<Event> {
    if let Effect::ReadCheckpoints { trace, followed } = effect {
        return Some(Event::CheckpointsRead { trace: trace.clone(), outcome: Ok(checkpoints(trace, followed)) });
    }
    let Effect::Inspect { trace, site } = effect else { return None };
    let outcome = Err("these made-up results have no trace".to_owned());
    Some(Event::SiteInspected { trace: trace.clone(), other: None, site: site.clone(), outcome })
}

/// Nine of a run, the seventh of them the open one: two have no results, and from the fifth on more and more is unsafe.
fn checkpoints(open: &str, followed: &Followed) -> Vec<Checkpoint> {
    let safety = |at: usize, gemm: usize| match gemm * 7 % 10 {
        of if of + at >= 12 => Safety::Unsafe,
        of if of + at >= 11 => Safety::Uncertain,
        _ => Safety::Safe,
    };
    let at = |at: usize| Checkpoint {
        path: if at == 6 { open.to_owned() } else { format!("ranker-{at}.trace.safetensors") },
        step: 1_500 * (at as u64 + 3),
        verdicts: match at {
            2 | 8 => Err("no results lie beside it: probe it, or watch the folder with --keep-rows".to_owned()),
            _ => Ok((0..followed.gemms.len()).map(|gemm| Some(safety(at, gemm))).collect()),
        },
    };
    (0..9).map(at).collect()
}

/// `None` where there is nothing to draw with.
fn window(size: [f32; 2], ground: Ground, opened: bool) -> Harness<'static, LokaApp> {
    told(size, ground, opened).0
}

fn of_results(num_sites: usize, size: [f32; 2], ground: Ground) -> Harness<'static, LokaApp> {
    of_many(num_sites, size, ground, true).0
}

/// With what more can be told to it.
fn told(size: [f32; 2], ground: Ground, opened: bool) -> (Harness<'static, LokaApp>, Told) {
    of_many(36, size, ground, opened)
}

fn of_many(num_sites: usize, size: [f32; 2], ground: Ground, opened: bool) -> (Harness<'static, LokaApp>, Told) {
    let results: Box<ResultsBySite> = Box::new(big::results(num_sites, 11).into());
    let link = ScriptedLink::new(Script { answer: no_trace, ..Script::default() }).by_paper();
    let script = link.script.clone();
    if opened {
        let path = "ranker.results.parquet".to_owned();
        script.borrow_mut().tell(Event::ResultsOpened { path, results: results.clone() });
    }
    let state =
        egui_kittest::wgpu::create_render_state(egui_kittest::wgpu::default_wgpu_setup(), RendererOptions::PREDICTABLE);
    let mut app = LokaApp::new(Box::new(link)).with_gpu(state.target_format);
    app.view_mut().ground = ground;
    app.view_mut().hint = false;
    let builder = Harness::builder().with_size(size).with_max_steps(8);
    let mut harness = scripted::window_by(builder.renderer(WgpuTestRenderer::from_render_state(state)), app);
    harness.run_steps(6);
    if opened {
        let site = results.meta.manifest.sites[7].id.clone();
        let column = Column { gemm: Gemm::Fprop, kernel: KernelId::new("cublaslt/fp8-blockwise") };
        harness.state_mut().view_mut().select(site, Some(column));
        let notices = harness.state().session().notices.to_vec();
        for notice in notices {
            harness.state_mut().command(Command::DismissNotice { id: notice.id });
        }
        harness.run_steps(4);
    }
    (harness, script)
}

/// A review half way: a version is up, one of two signed it, sites are agreed to and doubted, and one thread is open.
fn reviewed(harness: &mut Harness<'_, LokaApp>, script: &Told) {
    let person = |key: u64, name: &str, role: Role| Author { role, ..Author::new(key, name) };
    let (olga, anna, bo) =
        (person(2, "Olga", Role::Owner), person(3, "Anna", Role::Approver), person(4, "Bo", Role::Reviewer));
    let mut minute = 0;
    let mut say = |harness: &mut Harness<'_, LokaApp>, who: &Author, command: Command| {
        minute += 1;
        let by = CommandContext {
            at: Moment::of_seconds(1_795_176_000 + 60 * minute),
            ..CommandContext::numbered(who.clone(), 1)
        };
        script.borrow_mut().tell(LinkMessage::Command { by, seq: 1, command: Box::new(command) });
        harness.run_steps(3);
    };
    let mut policy = harness.state().session().document.policy.clone();
    policy.approval = Some(ApprovalRule::of(2));
    say(harness, &olga, Command::SetPolicy { policy });
    show(harness, Pane::Review);
    say(harness, &olga, Command::RequestApproval { note: "For the nightly ranker, from Monday on".to_owned() });
    let queue = harness.state().view().review.queue().unwrap().clone();
    let id = |at: usize| harness.state().session().sites()[at].id.clone();
    let places: Vec<_> = queue.items.iter().map(|item| (id(item.at), item.fingerprint.clone())).collect();
    let mark = |place: usize, state| {
        let (site, of) = places[place].clone();
        Command::Mark { site: Some(site), state, of }
    };
    say(harness, &anna, mark(0, ReviewState::Agreed));
    say(harness, &bo, mark(1, ReviewState::NeedsWork));
    say(harness, &anna, mark(2, ReviewState::Agreed));
    let at = |reply_to, text: &str| {
        let site = Some(places[1].0.clone());
        Command::Comment { site, gemm: Some(Gemm::Fprop), reply_to, text: text.to_owned() }
    };
    say(harness, &bo, at(None, "This speed-up is modelled: can we measure it before Monday?"));
    say(harness, &olga, at(Some(1), "The H200 is free tonight, I will."));
    let key = SecretKey::new("Anna", &[7; 32]).unwrap();
    let signed_at = Moment::of_seconds(1_795_176_600);
    let statement = harness.state().session().reviewing.statement(&anna, signed_at, String::new()).unwrap();
    say(harness, &anna, Command::Approve { approval: Box::new(Approval::sign(statement, &key)) });
    harness.state_mut().view_mut().select(places[1].0.clone(), None);
    harness.run_steps(4);
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
        for pane in [Pane::Heatmap, Pane::Quadrant, Pane::Plan, Pane::Mods, Pane::Graph] {
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
    let mut harness = of_results(2_400, [1280.0, 800.0], Ground::Light);
    show(&mut harness, Pane::Quadrant);
    let view = &harness.state().derived().quadrant;
    assert!(view.points.len() > 20_000, "{}", view.points.len());
    let corners = [[0.05, -0.7], [0.2, -1.1]];
    let set = BrushedRows::of_points(view, corners[0], corners[1]);
    harness.state_mut().view_mut().brush.take(set, BrushShape::Box(corners), false);
    harness.run_steps(6);
    problems.extend(compare(&mut harness, "quadrant-brushed"));
    let mut harness = window([400.0, 700.0], Ground::Dark, true);
    problems.extend(compare(&mut harness, "narrow"));
    let mut harness = window([1280.0, 800.0], Ground::Light, false);
    problems.extend(compare(&mut harness, "empty"));
    for (ground, name) in [(Ground::Dark, "checkpoints-dark"), (Ground::Light, "checkpoints-light")] {
        let mut harness = window([1280.0, 800.0], ground, true);
        harness.state_mut().view_mut().site = None;
        show(&mut harness, Pane::Drift);
        harness.state_mut().view_mut().drift.compare_with("ranker-5.trace.safetensors".to_owned());
        harness.run_steps(6);
        problems.extend(compare(&mut harness, name));
    }
    for (size, ground, name) in [
        ([1280.0, 800.0], Ground::Dark, "review-dark"),
        ([1280.0, 800.0], Ground::Light, "review-light"),
        ([1920.0, 1080.0], Ground::Dark, "review-wide"),
    ] {
        let (mut harness, coming) = told(size, ground, true);
        reviewed(&mut harness, &coming);
        problems.extend(compare(&mut harness, name));
    }
    assert!(problems.is_empty(), "{problems:#?}");
}
