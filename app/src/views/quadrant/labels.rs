//! Words around the points: what stands in each quadrant, what colours and marks mean, what is not shown.

use egui::{FontId, Pos2, Rect, RichText, Role, Sense, Ui, WidgetInfo, pos2, vec2};
use loka_core::{
    model::{LatencySource, Quadrant},
    views::Density,
};

use super::{colors, density::density_ui, picture::Picture};
use crate::{
    commands::{Action, QuadrantAction},
    state::ColorBy,
    theme::{Glyph, SMALL, Term, glyph_ui, number, paint_glyph, source_word, verdict_word},
    views::Scene,
};

const CORNERS: [Quadrant; 4] = [Quadrant::SafeFast, Quadrant::SafeSlow, Quadrant::UnsafeFast, Quadrant::UnsafeSlow];

/// "safe & fast · 31 · 40 % of the time".
fn words(scene: &Scene<'_>, quadrant: Quadrant) -> String {
    let shares = &scene.derived.quadrant.shares;
    let count = number::count(shares.num_points(quadrant) as u64);
    let share = shares.time_share(quadrant).map_or_else(String::new, |share| format!(" · {}", number::percent(share)));
    format!("{} · {count}{share}", verdict_word(quadrant))
}

fn about(scene: &Scene<'_>, quadrant: Quadrant) -> String {
    let shares = &scene.derived.quadrant.shares;
    let count = shares.num_points(quadrant);
    let noun = if count == 1 { "point" } else { "points" };
    let mut text = Term::of_verdict(quadrant).text();
    text += &format!("\n{} {noun}: kernels that are {}", number::count(count as u64), verdict_word(quadrant));
    if let Some(share) = shares.time_share(quadrant) {
        text += &format!(
            "\n{} of the BF16 time: a GEMM counts where the kernel stands that the plan runs it by, or, where it stays in \
             high precision, the best that low precision offers it",
            number::percent(share)
        );
    }
    if scene.session.document.policy.loss_budget.is_some() {
        text += "\nForward GEMMs are judged by their loss cost against the budget, not by the line";
    }
    text
}

/// In the outer corner of each quadrant; over the line where the quadrant is narrow, unless that meets the other one's.
pub(super) fn corners_ui(ui: &mut Ui, scene: &Scene<'_>, picture: &Picture) {
    let (policy, frame) = (&scene.session.document.policy, picture.frame());
    let at = picture.at(policy.min_speedup, policy.max_error);
    let at = pos2(at.x.clamp(frame.left(), frame.right()), at.y.clamp(frame.top(), frame.bottom()));
    for quadrant in CORNERS {
        let fast = matches!(quadrant, Quadrant::SafeFast | Quadrant::UnsafeFast);
        let safe = matches!(quadrant, Quadrant::SafeFast | Quadrant::SafeSlow);
        let above = safe == picture.view.axis.higher_is_better();
        let x = if fast { frame.right() } else { frame.left() };
        let y = if above { frame.top() } else { frame.bottom() };
        let room = Rect::from_x_y_ranges(frame.x_range(), Rect::from_two_pos(at, pos2(x, y)).y_range());
        corner_ui(ui, scene, quadrant, room, (fast, above));
    }
}

fn corner_ui(ui: &mut Ui, scene: &Scene<'_>, quadrant: Quadrant, room: Rect, (right, above): (bool, bool)) {
    let text = words(scene, quadrant);
    let galley = ui.painter().layout_no_wrap(text.clone(), FontId::proportional(SMALL), scene.theme.text);
    let size = galley.size() + vec2(22.0, 4.0);
    // Clear of the lines' grips at the frame.
    let room = room.shrink2(vec2(10.0, 9.0));
    if room.width() < 2.0 * size.x || room.height() < size.y {
        return;
    }
    let min = Pos2 {
        x: if right { room.right() - size.x } else { room.left() },
        y: if above { room.top() } else { room.bottom() - size.y },
    };
    let rect = Rect::from_min_size(min, size);
    let painter = ui.painter();
    painter.rect_filled(rect, 3.0, scene.theme.canvas.gamma_multiply(0.8));
    paint_glyph(painter, rect.left_center() + vec2(9.0, 0.0), Glyph::new(quadrant), scene.theme.verdict(quadrant));
    painter.galley(rect.min + vec2(19.0, 2.0), galley, scene.theme.text);
    let response = ui.interact(rect, ui.scope_id().with(("corner", quadrant)), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &text));
    response.on_hover_text(about(scene, quadrant));
}

/// What has no corner of its own, and what the colours are.
pub(super) fn legend_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let by = scene.view.quadrant.color_by;
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(4.0, 0.0);
        let view = &scene.derived.quadrant;
        if let ColorBy::Group(group) = by {
            let colors = colors(&scene.theme, by);
            for (number, (name, count)) in view.groupings[group as usize].groups.iter().enumerate() {
                let (rect, swatch) = ui.allocate_exact_size(vec2(10.0, 14.0), Sense::hover());
                ui.painter().rect_filled(Rect::from_center_size(rect.center(), vec2(9.0, 9.0)), 2.0, colors[number]);
                let text = RichText::new(format!("{name} {}", number::count(*count as u64))).small();
                let label = ui.label(text.color(scene.theme.weak));
                swatch.union(label).on_hover_text(format!("{count} points of this {}", by.word()));
                ui.add_space(6.0);
            }
            ui.separator();
        }
        // What has no corner of its own.
        let all = [Quadrant::Uncertain, Quadrant::SafeUnknown, Quadrant::UnsafeUnknown, Quadrant::Unsupported];
        for quadrant in all {
            let share = view.shares.time_share(quadrant).unwrap_or(0.0);
            if quadrant != Quadrant::Uncertain && share == 0.0 {
                continue;
            }
            glyph_ui(ui, &scene.theme, quadrant);
            let label = ui.label(RichText::new(words(scene, quadrant)).small().color(scene.theme.weak));
            label.on_hover_text(about(scene, quadrant));
            ui.add_space(6.0);
        }
    });
}

pub(super) fn footer_ui(ui: &mut Ui, scene: &mut Scene<'_>, density: Option<&Density>) {
    let view = scene.derived.quadrant.clone();
    let color = scene.theme.weak;
    let weak = |text: String| RichText::new(text).small().color(color);
    ui.horizontal(|ui| {
        let sources = [LatencySource::Measured, LatencySource::Recorded, LatencySource::Modelled];
        for (source, count) in sources.into_iter().zip(view.num_by_source) {
            let (rect, response) = ui.allocate_exact_size(vec2(16.0, 14.0), Sense::hover());
            let glyph = Glyph { quadrant: Quadrant::SafeFast, radius: 3.2, source: Some(source) };
            paint_glyph(ui.painter(), rect.center(), glyph, scene.theme.weak);
            ui.spacing_mut().item_spacing.x = 3.0;
            let label = ui.label(weak(format!("{} {}", number::count(count as u64), source_word(source))));
            response.union(label).on_hover_text(Term::of_source(source).text());
            ui.spacing_mut().item_spacing.x = 8.0;
        }
        if let Some(density) = density {
            density_ui(ui, scene, density);
        }
        if !view.unplaced.is_empty() {
            let action = Action::Quadrant(QuadrantAction::ListUnplaced);
            let text = format!("{} without a place…", number::count(view.unplaced.len() as u64));
            let hint =
                format!("Kernels without a latency or an error: they cannot stand in a quadrant\n{}", action.tooltip());
            if ui.small_button(weak(text)).on_hover_text(hint).clicked() {
                scene.act(action);
            }
        }
    });
}
