//! The policy's two lines: dragged by the pointer, nudged by the arrow keys, named for a screen reader.

use egui::{
    Align2, CursorIcon, FontId, Key, Modifiers, Painter, PointerButton, Pos2, Rect, Response, Sense, Stroke,
    StrokeKind, Ui, WidgetInfo, accesskit, pos2, vec2,
};
use loka_core::{
    review::Role,
    session::Command,
    views::{readable, speedup_at},
};

use super::picture::Picture;
use crate::{
    commands::{nudge, take_arrows},
    state::ThresholdLine,
    theme::{SMALL, number},
    views::Scene,
};

/// Half of the width in which a line is caught.
const REACH: f32 = 5.0;

impl Picture {
    pub fn lines_ui(&self, ui: &mut Ui, scene: &mut Scene<'_>) {
        self.slower_ui(ui, scene);
        for line in [ThresholdLine::Error, ThresholdLine::Speedup] {
            self.line_ui(ui, scene, line);
        }
    }

    /// What a threshold below 1x lets in and is no gain.
    fn slower_ui(&self, ui: &Ui, scene: &Scene<'_>) {
        let (policy, frame) = (&scene.session.document.policy, self.frame());
        let x = |speedup: f64| self.at(speedup, policy.max_error).x.clamp(frame.left(), frame.right());
        let rect = Rect::from_x_y_ranges(x(policy.min_speedup)..=x(1.0), frame.y_range());
        if policy.min_speedup >= 1.0 || rect.width() < 1.0 {
            return;
        }
        let painter = ui.painter_at(rect);
        painter.rect_filled(rect, 0.0, scene.theme.weak.gamma_multiply(0.18));
        label(&painter, scene, rect.center_top() + vec2(0.0, 14.0), Align2::CENTER_TOP, "slower than BF16".to_owned());
    }

    fn line_ui(&self, ui: &mut Ui, scene: &mut Scene<'_>, line: ThresholdLine) {
        let policy = &scene.session.document.policy;
        let (at, frame) = (self.at(policy.min_speedup, policy.max_error), self.frame());
        let (rect, grip, seen) = match line {
            ThresholdLine::Error => {
                let rect = Rect::from_x_y_ranges(frame.x_range(), at.y - REACH..=at.y + REACH);
                (
                    rect,
                    Rect::from_center_size(pos2(frame.left() + 4.0, at.y), vec2(6.0, 16.0)),
                    frame.y_range().contains(at.y),
                )
            }
            ThresholdLine::Speedup => {
                let rect = Rect::from_x_y_ranges(at.x - REACH..=at.x + REACH, frame.y_range());
                (
                    rect,
                    Rect::from_center_size(pos2(at.x, frame.bottom() - 4.0), vec2(16.0, 6.0)),
                    frame.x_range().contains(at.x),
                )
            }
        };
        // Out of sight it still can be reached by Tab and moved by the arrows.
        let rect = if seen { rect.intersect(frame) } else { Rect::from_min_size(frame.left_bottom(), vec2(1.0, 1.0)) };
        let id = ui.scope_id().with(("threshold", line == ThresholdLine::Error));
        // Who may not move it can still point through it.
        let may = scene.not_allowed(Role::Owner).is_none();
        let response = ui.interact(rect, id, if may { Sense::click_and_drag() } else { Sense::CLICK });
        if seen {
            self.paint_line(ui, scene, line, &response, grip);
        }
        self.name(ui, scene, line, &response);
        if may {
            self.dragged(ui, scene, line, &response);
            nudged(ui, scene, line, &response);
        }
        // A point may lie on the line.
        if response.clicked()
            && let Some(number) = response.interact_pointer_pos().and_then(|at| self.pick(at))
        {
            crate::state::select_point(&self.view, scene.view, scene.session, number);
        }
    }

    fn name(&self, ui: &Ui, scene: &Scene<'_>, line: ThresholdLine, response: &Response) {
        let policy = &scene.session.document.policy;
        let (label, value) = match line {
            ThresholdLine::Error => (format!("Error threshold, {}", policy.metric.label()), policy.max_error),
            ThresholdLine::Speedup => ("Speed-up threshold".to_owned(), policy.min_speedup),
        };
        response.widget_info(|| WidgetInfo::slider(true, value, &label));
        ui.ctx().accesskit_node_builder(response.id, |node| {
            node.add_action(accesskit::Action::Increment);
            node.add_action(accesskit::Action::Decrement);
        });
    }

    fn paint_line(&self, ui: &Ui, scene: &Scene<'_>, line: ThresholdLine, response: &Response, grip: Rect) {
        let (policy, theme) = (&scene.session.document.policy, &scene.theme);
        let (at, frame) = (self.at(policy.min_speedup, policy.max_error), self.frame());
        let active = scene.view.drag.is_some_and(|(of, _)| of == line) || response.has_focus() || response.hovered();
        let color = if active { theme.accent } else { theme.text };
        let painter = ui.painter_at(frame);
        let stroke = Stroke::new(1.5, color);
        let place = match line {
            ThresholdLine::Error => {
                painter.hline(frame.x_range(), at.y, stroke);
                pos2(frame.right() - 6.0, at.y - 3.0)
            }
            ThresholdLine::Speedup => {
                painter.vline(at.x, frame.y_range(), stroke);
                at
            }
        };
        painter.rect_filled(grip, 2.0, color);
        if response.has_focus() {
            painter.rect_stroke(grip.expand(2.0), 3.0, Stroke::new(2.0, theme.accent), StrokeKind::Outside);
        }
        if line == ThresholdLine::Error {
            // On the left of the other line where it would lie across it.
            let text = error_text(scene);
            let width = painter.layout_no_wrap(text.clone(), FontId::proportional(SMALL), theme.text).size().x + 8.0;
            let is_across = (place.x - width..place.x).contains(&at.x) && at.x - frame.left() > width + 12.0;
            let right = if is_across { at.x - 6.0 } else { place.x };
            label(&painter, scene, pos2(right, place.y), Align2::RIGHT_BOTTOM, text);
        } else {
            // On the line's other side where there is no room.
            let right = frame.right() - at.x < 48.0;
            let (dx, align) = if right { (-5.0, Align2::RIGHT_CENTER) } else { (5.0, Align2::LEFT_CENTER) };
            label(&painter, scene, pos2(at.x + dx, frame.center().y), align, number::times(policy.min_speedup));
        }
    }

    fn dragged(&self, ui: &Ui, scene: &mut Scene<'_>, line: ThresholdLine, response: &Response) {
        if response.hovered() || response.dragged() {
            let icon =
                if line == ThresholdLine::Error { CursorIcon::ResizeVertical } else { CursorIcon::ResizeHorizontal };
            ui.set_cursor_icon(icon);
        }
        if response.drag_started_by(PointerButton::Primary) {
            scene.view.drag = Some((line, scene.view.next_gesture()));
        }
        let drag = scene.view.drag.filter(|(of, _)| *of == line);
        if let (Some((_, gesture)), Some(pointer)) = (drag, response.interact_pointer_pos()) {
            let [x, y] = self.value(pointer);
            let (policy, gesture) = (&scene.session.document.policy, Some(gesture));
            let command = match line {
                ThresholdLine::Error => {
                    Command::SetMaxError { value: readable(self.view.axis.error_at(y)).max(0.0), gesture }
                }
                ThresholdLine::Speedup => Command::SetMinSpeedup { value: readable(speedup_at(x)), gesture },
            };
            let moved = match &command {
                Command::SetMaxError { value, .. } => *value != policy.max_error,
                Command::SetMinSpeedup { value, .. } => *value != policy.min_speedup,
                _ => false,
            };
            if moved {
                scene.send(command);
            }
        }
        if drag.is_some() && !response.dragged() {
            scene.view.drag = None;
        }
    }
}

/// By the arrows, ten times as far with Shift, and by what a screen reader asks for. All while the line keeps
/// the focus is one step of undo.
fn nudged(ui: &Ui, scene: &mut Scene<'_>, line: ThresholdLine, response: &Response) {
    let id = response.id;
    let asked = |action| ui.input(|input| input.num_accesskit_action_requests(id, action)) as f64;
    let mut steps = asked(accesskit::Action::Increment) - asked(accesskit::Action::Decrement);
    if response.has_focus() {
        take_arrows(ui.ctx(), id);
        let far = if ui.input(|input| input.modifiers.shift) { 10.0 } else { 1.0 };
        let pressed = |key| ui.input_mut(|input| input.count_and_consume_key(Modifiers::NONE, key)) as f64;
        let up = pressed(Key::ArrowUp) + pressed(Key::ArrowRight);
        steps += far * (up - pressed(Key::ArrowDown) - pressed(Key::ArrowLeft));
    } else if scene.view.quadrant.nudging.is_some_and(|(of, _)| of == id) {
        scene.view.quadrant.nudging = None;
    }
    if steps == 0.0 {
        return;
    }
    let gesture = match scene.view.quadrant.nudging {
        Some((of, gesture)) if of == id => gesture,
        _ => scene.view.next_gesture(),
    };
    scene.view.quadrant.nudging = response.has_focus().then_some((id, gesture));
    let command = nudge(scene.scope(), line, steps, Some(gesture));
    scene.send(command);
}

fn error_text(scene: &Scene<'_>) -> String {
    let policy = &scene.session.document.policy;
    let limit = number::trimmed(policy.max_error);
    let metric = policy.metric.label();
    match policy.loss_budget {
        // The forward ones are held to their loss cost, which is not on this axis.
        Some(_) => format!("{metric} {limit}, dgrad and wgrad"),
        None if policy.metric.larger_is_better() => format!("at least {limit} dB"),
        None => format!("{metric} {limit}"),
    }
}

fn label(painter: &Painter, scene: &Scene<'_>, at: Pos2, align: Align2, text: String) {
    let galley = painter.layout_no_wrap(text, FontId::proportional(SMALL), scene.theme.text);
    let rect = align.anchor_size(at, galley.size());
    painter.rect_filled(rect.expand(2.0), 2.0, scene.theme.canvas.gamma_multiply(0.8));
    painter.galley(rect.min, galley, scene.theme.text);
}
