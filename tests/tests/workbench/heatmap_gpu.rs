//! The heatmap's cells by the shader and by the painter, drawn on the same software renderer: the pictures must be the
//! same where a pixel lies within one colour.

use std::sync::{Mutex, PoisonError};

use egui::{Color32, Rect, pos2, vec2};
use egui_kittest::{Harness, wgpu::WgpuTestRenderer};
use loka::{
    gpu::{ColumnGroup, HeatmapCallback, Palette, Picture, Texel, TextureFormat},
    theme::{Scale, Theme},
};
use loka_core::{model::Metric, views::Mark};

const SIZE: [f32; 2] = [240.0, 200.0];
const COLUMNS: usize = 6;
/// What kittest draws into.
const FORMAT: TextureFormat = TextureFormat::Rgba8Unorm;

fn picture(row: f32, dark: bool, pixels_per_point: f32) -> Picture {
    let theme = Theme::of(dark);
    let value = Mark::VALUE;
    let marks = [
        value,
        value.with(Mark::CHOSEN),
        Mark::MISSING,
        Mark::WAITING,
        value.with(Mark::MODELLED),
        value.with(Mark::CHOSEN).with(Mark::OVERRIDDEN),
    ];
    let rows = 8;
    let texel = |at: usize| {
        let value = 1e-3 * 10f32.powf(3.0 * at as f32 / (rows * COLUMNS) as f32);
        let value = if at == 7 { f32::INFINITY } else { value };
        let row = at / COLUMNS;
        Texel::new(value, marks[(at + row) % marks.len()]).with(Texel::BEYOND, row >= 5).with(Texel::FOLDER, row == 3)
    };
    Picture {
        texels: (0..rows * COLUMNS).map(texel).collect(),
        revision: 1,
        num_columns: COLUMNS,
        rect: Rect::from_min_size(pos2(8.3, 6.7), vec2(220.0, 180.0)),
        top: -5.4,
        row,
        width: 31.7,
        groups: vec![ColumnGroup { left: 2.2, first: 0, count: 4 }, ColumnGroup { left: 137.0, first: 4, count: 2 }],
        scale: Some(Scale::new(Metric::Mere, (1e-3, 1.0))),
        palette: Palette { waiting: theme.raised, hatch: theme.weak, beyond: theme.beyond.gamma_multiply(0.75) },
        has_text: false,
        pixels_per_point,
    }
}

type Pixels = (u32, Vec<[u8; 4]>);

/// One device at a time: a software renderer has the cores to itself.
static DEVICE: Mutex<()> = Mutex::new(());

fn drawn(picture: &Picture, by_shader: bool) -> Pixels {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let picture = picture.clone();
    let draw = move |ui: &mut egui::Ui| {
        let painter = ui.ctx().layer_painter(egui::LayerId::background());
        painter.rect_filled(Rect::EVERYTHING, 0.0, Color32::from_gray(60));
        if by_shader {
            painter.add(HeatmapCallback { picture: picture.clone(), format: FORMAT }.shape());
        } else {
            picture.paint(&painter);
        }
    };
    let builder = Harness::builder().with_size(SIZE).renderer(WgpuTestRenderer::new());
    let mut harness = builder.build_ui(draw);
    harness.run_steps(2);
    let image = harness.render().unwrap();
    (image.width(), image.pixels().map(|pixel| pixel.0).collect())
}

/// The pixel and its neighbours are of one colour: no edge runs through.
fn is_even((width, pixels): &Pixels, x: u32, y: u32) -> bool {
    let at = |x: u32, y: u32| pixels[(y * width + x) as usize];
    let middle = at(x, y);
    (x - 1..=x + 1).all(|x| (y - 1..=y + 1).all(|y| near(at(x, y), middle, 2)))
}

fn near(a: [u8; 4], b: [u8; 4], by: u8) -> bool {
    a.iter().zip(b).all(|(a, b)| a.abs_diff(b) <= by)
}

/// How many even pixels agree, and the first that do not.
fn compare(a: &Pixels, b: &Pixels) -> (usize, Vec<String>) {
    let (width, height) = (a.0, a.1.len() as u32 / a.0);
    let (mut same, mut differ) = (0, Vec::new());
    for y in 1..height - 1 {
        for x in 1..width - 1 {
            let at = (y * width + x) as usize;
            if is_even(a, x, y) && is_even(b, x, y) {
                if near(a.1[at], b.1[at], 4) {
                    same += 1;
                } else {
                    differ.push(format!("{x},{y}: {:?} and {:?}", a.1[at], b.1[at]));
                }
            }
        }
    }
    (same, differ)
}

#[test]
fn shader_and_painter_draw_the_same_picture() {
    for (row, dark) in [(22.3, true), (22.3, false), (7.0, true), (2.0, true)] {
        let picture = picture(row, dark, 1.0);
        let (shader, painter) = (drawn(&picture, true), drawn(&picture, false));
        let colors: std::collections::HashSet<[u8; 4]> = shader.1.iter().copied().collect();
        assert!(colors.len() > 10, "the shader drew {} colours", colors.len());
        let (same, differ) = compare(&shader, &painter);
        assert!(same > 10_000, "row {row}: {same} pixels compared");
        assert!(differ.len() < 40, "row {row}, dark {dark}: {} differ, e.g. {:?}", differ.len(), &differ[..5]);
    }
}

#[test]
fn every_cell_has_its_colour_in_both() {
    let picture = picture(22.3, true, 1.0);
    let (shader, painter) = (drawn(&picture, true), drawn(&picture, false));
    let mut checked = 0;
    for row in 0..picture.num_rows() {
        for column in 0..COLUMNS {
            let texel = picture.texels[row * COLUMNS + column];
            let (Some(color), Some(cell)) = (picture.color(texel), picture.cell(row, column)) else { continue };
            // Left of the middle, where neither the disc nor the notch is.
            let at = pos2(cell.left() + 5.0, cell.center().y);
            if !picture.rect.shrink(2.0).contains(at) {
                continue;
            }
            let place = (at.y as u32 * shader.0 + at.x as u32) as usize;
            let wanted = color.to_array();
            assert!(
                near(shader.1[place], wanted, 3),
                "shader at {row}, {column}: {:?}, not {wanted:?}",
                shader.1[place]
            );
            assert!(near(painter.1[place], wanted, 3), "painter at {row}, {column}");
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn the_diverging_scale_reaches_the_shader() {
    let scale = Scale::relative(Metric::Mere, (0.25, 4.0));
    let picture = Picture {
        texels: [0.25, 1.0, 4.0, 1.0, 0.25, 4.0].map(|value| Texel::new(value, Mark::VALUE)).to_vec().into(),
        scale: Some(scale),
        top: 0.0,
        row: 40.0,
        ..picture(22.0, true, 1.0)
    };
    let (width, pixels) = drawn(&picture, true);
    let at = |column: usize| {
        let center = picture.cell(0, column).unwrap().center();
        pixels[(center.y as u32 * width + center.x as u32) as usize]
    };
    assert!(near(at(1), [245, 245, 245, 255], 3), "no change is white: {:?}", at(1));
    assert!(at(0)[2] > at(0)[0] && at(2)[0] > at(2)[2], "blue and orange: {:?} {:?}", at(0), at(2));
}
