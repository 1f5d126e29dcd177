//! The model's forward chain as a strip: boxes in forward order, each as wide as its time, with its three GEMMs as bands;
//! open modules as brackets above, feeds as arcs below. Only what is in sight is laid out.

mod boxes;
mod feeds;
mod pointer;
mod words;

use std::sync::Arc;

use egui::{RichText, ScrollArea, Ui, vec2};
use loka_core::views::{Graph, GraphItems, GraphLayout};

use crate::{
    commands::{Action, GraphAction},
    theme::number,
    views::{Scene, no_rows},
};

const LEGEND: f32 = 18.0;
const BRACKET: f32 = 14.0;
const NAME: f32 = 16.0;
/// A band's height: no lower than its shape, no higher than looks like a box.
const BAND: (f32, f32) = (11.0, 30.0);

/// Everything that one frame of the graph is drawn from. Heights are in points.
struct Strip {
    graph: Arc<Graph>,
    items: Arc<GraphItems>,
    layout: Arc<GraphLayout>,
    brackets: f32,
    band: f32,
    arcs: f32,
    /// The box that the selected site is in.
    selected: Option<usize>,
}

impl Strip {
    fn height(&self) -> f32 {
        self.brackets + self.box_height() + self.arcs
    }

    fn box_height(&self) -> f32 {
        NAME + 3.0 * self.band
    }
}

pub fn graph_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let modules = scene.view.sites.modules();
    let graph = match scene.derived.graph() {
        Some(graph) if !graph.sites.is_empty() => graph.clone(),
        _ => {
            let why = no_rows(scene).unwrap_or("The sites are on their way");
            ui.add_space(24.0);
            ui.vertical_centered(|ui| ui.label(RichText::new(why).color(scene.theme.weak)));
            return;
        }
    };
    let items = scene.view.graph.items(&graph, &modules, scene.session);
    summary_ui(ui, scene, &graph, &items);
    let room = ui.available_width();
    let layout = scene.view.graph.layout(&items, room);
    let brackets = items.num_levels as f32 * BRACKET;
    let scroll = if layout.total() > room + 0.5 { 12.0 } else { 0.0 };
    let arcs = feeds::deepest(&items);
    let bands = ui.available_height() - LEGEND - brackets - NAME - arcs - scroll - 6.0;
    let selected = scene.view.site.as_ref().and_then(|site| scene.session.index().at(site));
    let selected = selected.and_then(|at| items.item_of(at as u32));
    let band = (bands / 3.0).floor().clamp(BAND.0, BAND.1);
    let strip = Strip { graph, items, layout, brackets, band, arcs, selected };
    strip_ui(ui, scene, &strip);
    legend_ui(ui, scene, &strip);
}

fn strip_ui(ui: &mut Ui, scene: &mut Scene<'_>, strip: &Strip) {
    let width = ui.available_width();
    scene.view.graph.width = width;
    let mut area = ScrollArea::horizontal().id_salt("graph").auto_shrink([false, true]);
    let wanted = scene.view.graph.scroll_to.take().or_else(|| wanted_offset(scene, strip, width));
    if let Some(offset) = wanted {
        area = area.horizontal_scroll_offset(offset);
    }
    // The wheel goes along the chain: there is no other way to go.
    ui.style_mut().always_scroll_the_only_direction = true;
    let output = area.show_viewport(ui, |ui, viewport| {
        let size = vec2(strip.layout.total().max(width - 1.0), strip.height());
        let (rect, response) = ui.allocate_exact_size(size, egui::Sense::hover());
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, words::strip(scene, strip)));
        let visible = strip.layout.visible(viewport.left() - 4.0, viewport.right() + 4.0);
        feeds::feeds_ui(ui, scene, strip, rect, visible.clone());
        boxes::brackets_ui(ui, scene, strip, rect, visible.clone());
        boxes::boxes_ui(ui, scene, strip, rect, visible);
        pointer::pointer_ui(ui, scene, strip, rect);
    });
    scene.view.graph.offset = output.state.clamped_offset().x;
}

/// Where the boxes must be scrolled so that a newly selected one is in sight.
fn wanted_offset(scene: &mut Scene<'_>, strip: &Strip, width: f32) -> Option<f32> {
    if scene.view.graph.seen == scene.view.site {
        return None;
    }
    scene.view.graph.seen = scene.view.site.clone();
    let (left, right) = (strip.layout.left(strip.selected?), strip.layout.right(strip.selected?));
    let offset = scene.view.graph.offset;
    let most = (strip.layout.total() - width).max(0.0);
    let in_sight = left >= offset && right <= offset + width;
    (!in_sight).then(|| (f32::midpoint(left, right) - width / 2.0).clamp(0.0, most))
}

/// What there is, in a line, and what folds it.
fn summary_ui(ui: &mut Ui, scene: &mut Scene<'_>, graph: &Graph, items: &GraphItems) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        let sites = number::counted(graph.sites.len(), "site");
        let boxes = match items.all.len() == graph.sites.len() {
            true => sites,
            false => format!("{sites} in {}", number::counted_as(items.all.len(), "box", "boxes")),
        };
        ui.label(RichText::new(boxes).color(scene.theme.text));
        let times = if graph.baseline_us > 0.0 {
            format!("{} a step", number::micros_of(graph.planned_us, graph.baseline_us))
        } else {
            "no time is known yet: boxes are alike".to_owned()
        };
        ui.label(RichText::new(times).color(scene.theme.weak)).on_hover_text(words::times(graph));
        if graph.num_untimed > 0 && graph.baseline_us > 0.0 {
            let text = format!("{} without a time", number::counted(graph.num_untimed, "GEMM"));
            ui.label(RichText::new(text).color(scene.theme.weak)).on_hover_text("They are in no box's width");
        }
        let feeds = match (graph.feeds.len(), graph.num_codes()) {
            (0, _) => "no feed was recorded".to_owned(),
            (all, 0) => number::counted(all, "feed"),
            (all, codes) => format!("{}, {} in FP8 codes", number::counted(all, "feed"), number::count(codes as u64)),
        };
        ui.label(RichText::new(feeds).color(scene.theme.weak)).on_hover_text(words::FEEDS);
        if items.num_levels > 0 || items.all.len() < graph.sites.len() {
            ui.separator();
            scene.button_named_ui(ui, Action::Graph(GraphAction::FoldAll), "Fold all");
            scene.button_named_ui(ui, Action::Graph(GraphAction::OpenAll), "Open all");
        }
        if scene.view.graph.zoom > 1.0 {
            scene.button_named_ui(ui, Action::Graph(GraphAction::ResetZoom), "Reset zoom");
        }
    });
}

/// What fills, lines and marks mean.
fn legend_ui(ui: &mut Ui, scene: &Scene<'_>, strip: &Strip) {
    let theme = &scene.theme;
    ui.horizontal(|ui| {
        ui.set_height(LEGEND);
        ui.spacing_mut().item_spacing.x = 5.0;
        let word = |ui: &mut Ui, text: &str| {
            ui.label(RichText::new(text).small().color(theme.weak));
            ui.add_space(6.0);
        };
        let swatch = |ui: &mut Ui, width: f32| ui.allocate_exact_size(vec2(width, 12.0), egui::Sense::hover()).0;
        let green = theme.verdict(loka_core::model::Quadrant::SafeFast);
        let painter = ui.painter().clone();
        painter.rect_filled(swatch(ui, 14.0), 2.0, green);
        word(ui, "runs in FP8");
        boxes::pale(&painter, swatch(ui, 14.0), green);
        word(ui, "could, stays in high precision");
        let rect = swatch(ui, 18.0);
        feeds::arc(&painter, (rect.left() + 2.0, rect.right() - 3.0), rect.top(), 9.0, feeds::plain(theme));
        word(ui, "feeds");
        if strip.graph.num_codes() > 0 {
            let rect = swatch(ui, 18.0);
            feeds::arc(&painter, (rect.left() + 2.0, rect.right() - 3.0), rect.top(), 9.0, feeds::codes(theme));
            word(ui, "FP8 codes");
        }
        if strip.graph.sites.iter().any(|site| site.shared.contains(&true)) {
            let rect = swatch(ui, 8.0);
            boxes::tie(&painter, rect.center().x, (rect.top() + 1.0, rect.bottom() - 1.0), theme.text);
            word(ui, "share a cast");
        }
        if strip.items.all.iter().any(|item| item.num_mods > 0) {
            boxes::diamond(&painter, swatch(ui, 10.0).center(), theme.accent);
            word(ui, "mod");
        }
        if strip.items.all.iter().any(|item| item.by_hand > 0) {
            let rect = swatch(ui, 10.0);
            ui.painter().circle_stroke(rect.center(), 3.0, egui::Stroke::new(1.5, theme.text));
            word(ui, "by hand");
        }
    });
}
