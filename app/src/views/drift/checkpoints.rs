//! Takes the checkpoints of the open trace's run; draws a bar of verdicts each along the run, with what flipped since the one
//! before, and holds the open trace against the one that is clicked.

use egui::{Align2, FontId, Rect, RichText, Role, ScrollArea, Sense, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2};
use loka_core::{
    format::number::counted_as,
    model::Safety,
    review,
    session::{Command, Looked},
    views::{
        Column,
        drift::{Followed, SafetyFlip, TimelinePoint, VerdictCounts},
    },
};

use crate::{
    beside::beside,
    executor::name_of,
    theme::{number, shorten},
    views::{Scene, steps::safety_color},
};

const HEIGHT: f32 = 72.0;
/// The bar within it; above stands what got worse, below the step.
const BAR: (f32, f32) = (14.0, 56.0);
const WIDTH: (f32, f32) = (34.0, 84.0);
/// Flips that are listed by name.
const LISTED: usize = 12;

pub(super) fn checkpoints_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some(followed) = scene.view.drift.followed(scene.derived) else { return };
    if scene.session.trace.is_none() || followed.gemms.is_empty() {
        return;
    }
    ui.horizontal(|ui| {
        ui.label(RichText::new("Checkpoints of this run").strong());
        if matches!(scene.session.inspections.checkpoints(), Some((_, Looked::Found(_) | Looked::Failed(_)))) {
            read_ui(ui, scene, &followed);
        }
    });
    let weak = scene.theme.weak;
    match scene.session.inspections.checkpoints() {
        Some((_, Looked::Failed(reason))) => {
            ui.label(RichText::new(reason).color(weak));
        }
        Some((of, Looked::Found(_))) => {
            // Another policy, other mods, another choice: the bars stay until they are those of now.
            let settled = !scene.derived.is_behind() && scene.session.run.as_ref().is_none_or(|run| !run.running);
            if settled && *of != followed {
                read(scene, &followed);
            }
            if let Some(points) = scene.view.drift.timeline(scene.session, scene.derived) {
                points_ui(ui, scene, &followed, &points);
            }
        }
        looked => {
            if looked.is_none() {
                read(scene, &followed);
            }
            ui.label(RichText::new("Reading them").color(weak));
        }
    }
    ui.add_space(10.0);
}

fn read(scene: &mut Scene<'_>, followed: &Followed) {
    scene.send(Command::ReadCheckpoints { followed: Box::new(followed.clone()) });
}

fn read_ui(ui: &mut Ui, scene: &mut Scene<'_>, followed: &Followed) {
    if ui.button("Read again").on_hover_text("Look for checkpoints and results beside the open trace again").clicked() {
        read(scene, followed);
    }
}

fn points_ui(ui: &mut Ui, scene: &mut Scene<'_>, followed: &Followed, points: &[TimelinePoint]) {
    let gemms = counted_as(followed.gemms.len(), "GEMM", "GEMMs");
    let text = match points.len() {
        0 | 1 => format!("No other trace of this run lies beside it. Its plan has {gemms} in FP8 to follow."),
        _ => format!(
            "Verdicts of the {gemms} that the plan runs in FP8, by the results beside each trace. Click one to hold this trace against it."
        ),
    };
    ui.label(RichText::new(text).small().color(scene.theme.weak));
    if points.len() < 2 {
        return;
    }
    let width = (ui.available_width() / points.len() as f32).clamp(WIDTH.0, WIDTH.1);
    let mut picked = None;
    ScrollArea::horizontal().id_salt("checkpoints").show(ui, |ui| {
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 0.0;
            for point in points {
                if point_ui(ui, scene, point, width) {
                    picked = Some(point.path.clone());
                }
            }
        });
    });
    if let Some(path) = picked {
        if scene.session.trace_path() == Some(path.as_str()) {
            scene.view.drift.compared = None;
        } else {
            scene.view.drift.compare_with(path);
        }
    }
    let compared = scene.view.drift.compared.clone();
    let looked_at = points.iter().position(|point| Some(&point.path) == compared.as_ref());
    if let Some(at) = looked_at {
        selected_ui(ui, scene, followed, &points[at], points[..at].iter().rev().find(|point| point.counts.is_ok()));
    }
}

/// True when it was clicked.
fn point_ui(ui: &mut Ui, scene: &Scene<'_>, point: &TimelinePoint, width: f32) -> bool {
    let (rect, response) = ui.allocate_exact_size(vec2(width, HEIGHT), Sense::click());
    let (theme, painter) = (&scene.theme, ui.painter());
    let is_open = scene.session.trace_path() == Some(point.path.as_str());
    let is_looked_at = scene.view.drift.compared.as_deref() == Some(point.path.as_str());
    let bar =
        Rect::from_min_max(pos2(rect.left() + 4.0, rect.top() + BAR.0), pos2(rect.right() - 4.0, rect.top() + BAR.1));
    if let Ok(counts) = &point.counts {
        let mut bottom = bar.bottom();
        for (safety, count) in parts(counts) {
            let height = bar.height() * count as f32 / counts.all().max(1) as f32;
            let part = Rect::from_min_max(pos2(bar.left(), bottom - height), pos2(bar.right(), bottom));
            painter.rect_filled(part, 0.0, safety_color(scene, safety));
            bottom -= height;
        }
    }
    let outline = match (is_looked_at || response.has_focus(), is_open) {
        (true, _) => Stroke::new(2.0, theme.accent),
        (false, true) => Stroke::new(2.0, ui.visuals().text_color()),
        (false, false) => Stroke::new(1.0, theme.line),
    };
    painter.rect_stroke(bar, 0.0, outline, StrokeKind::Outside);
    let font = FontId::proportional(10.5);
    let worse = point.flips.iter().filter(|flip| flip.to > flip.from).count();
    if worse > 0 {
        let color = safety_color(scene, Safety::Unsafe);
        painter.text(
            bar.center_top() - vec2(0.0, 1.0),
            Align2::CENTER_BOTTOM,
            format!("+{worse}"),
            font.clone(),
            color,
        );
    }
    let color = if is_open { ui.visuals().text_color() } else { theme.weak };
    painter.text(bar.center_bottom() + vec2(0.0, 2.0), Align2::CENTER_TOP, short_step(point.step), font, color);
    let told = told(point, is_open);
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, &told));
    let clicked = response.clicked();
    response.on_hover_text(format!("{}\n{told}", point.path));
    clicked
}

/// From the bottom up.
fn parts(counts: &VerdictCounts) -> [(Safety, usize); 3] {
    [(Safety::Unsafe, counts.unsafe_), (Safety::Uncertain, counts.uncertain), (Safety::Safe, counts.safe)]
}

/// As much of a step as fits under a bar: `850`, `12.5k`, `1.2M`.
fn short_step(step: u64) -> String {
    match step {
        0..10_000 => number::count(step),
        10_000..100_000 if !step.is_multiple_of(1_000) => format!("{:.1}k", step as f64 / 1e3),
        10_000..1_000_000 => format!("{}k", step / 1_000),
        _ => format!("{:.1}M", step as f64 / 1e6),
    }
}

fn told(point: &TimelinePoint, is_open: bool) -> String {
    let open = if is_open { ", the open trace" } else { "" };
    let step = number::count(point.step);
    let counts = match &point.counts {
        Err(reason) => return format!("Step {step}{open}: {reason}"),
        Ok(counts) => counts,
    };
    let missing = if counts.missing == 0 { String::new() } else { format!(", {} without a row", counts.missing) };
    let counts = format!("{} safe, {} uncertain, {} unsafe{missing}", counts.safe, counts.uncertain, counts.unsafe_);
    let worse = point.flips.iter().filter(|flip| flip.to > flip.from).count();
    let flips = match (worse, point.flips.len() - worse) {
        (0, 0) => String::new(),
        (worse, 0) => format!("; {worse} got worse since the one before"),
        (0, better) => format!("; {better} got better since the one before"),
        (worse, better) => format!("; {worse} got worse and {better} better since the one before"),
    };
    format!("Step {step}{open}: {counts}{flips}")
}

fn selected_ui(
    ui: &mut Ui,
    scene: &mut Scene<'_>,
    followed: &Followed,
    point: &TimelinePoint,
    before: Option<&TimelinePoint>,
) {
    ui.horizontal_wrapped(|ui| {
        ui.label(told(point, false)).on_hover_text(&point.path);
        if ui.button("Open it").on_hover_text("Open this checkpoint in place of the open trace").clicked() {
            scene.open(vec![point.path.clone()]);
        }
        let barred = match &point.counts {
            Err(reason) => Some(reason.clone()),
            Ok(_) => scene.not_allowed(review::Role::Owner),
        };
        let button = ui.add_enabled(barred.is_none(), egui::Button::new("As baseline"));
        let hint = "Every view shows what differs from this checkpoint's results";
        if button.on_hover_text(hint).on_disabled_hover_text(barred.unwrap_or_default()).clicked() {
            scene.send(Command::OpenPlan { path: beside(&point.path, "results.parquet") });
        }
    });
    let Some(before) = before.filter(|_| !point.flips.is_empty()) else { return };
    let since = format!("Since step {} ({}):", number::count(before.step), shorten(name_of(&before.path), 40));
    ui.label(RichText::new(since).small().color(scene.theme.weak));
    for flip in point.flips.iter().take(LISTED) {
        flip_ui(ui, scene, followed, *flip);
    }
    if let Some(more) = point.flips.len().checked_sub(LISTED + 1) {
        ui.label(RichText::new(format!("and {} more", more + 1)).small().color(scene.theme.weak));
    }
}

fn flip_ui(ui: &mut Ui, scene: &mut Scene<'_>, followed: &Followed, flip: SafetyFlip) {
    let Some(of) = followed.gemms.get(flip.at) else { return };
    let site = scene.session.index().ids().get(of.site as usize).cloned();
    let (Some(site), Some(kernel)) = (site, followed.kernels.get(usize::from(of.kernel))) else { return };
    ui.horizontal(|ui| {
        let name = shorten(&scene.derived.short_name(&site, 28), 28);
        let link = ui.link(format!("{name} {}", of.gemm)).on_hover_text(format!("Select {site} {}, {kernel}", of.gemm));
        if link.clicked() {
            let column = Column { gemm: of.gemm, kernel: kernel.clone() };
            scene.view.select(site.clone(), Some(column));
            scene.view.reveal = true;
        }
        ui.label(format!("{} →", flip.from.as_str()));
        ui.label(RichText::new(flip.to.as_str()).color(safety_color(scene, flip.to)));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_fit_under_a_bar() {
        let steps = [0, 850, 9_999, 12_000, 12_345, 999_999, 1_250_000].map(short_step);
        assert_eq!(steps, ["0", "850", "9,999", "12k", "12.3k", "999k", "1.2M"]);
    }
}
