//! A step of the tour: a frame around its part of the window and a card with a sentence. Everything else works meanwhile.

use egui::{Align2, Area, Frame, Id, Order, RichText, Stroke, StrokeKind, Ui};

use crate::{commands::Action, state::TOUR, views::Scene};

const WIDTH: f32 = 300.0;

pub fn tour_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some((at, pane, text)) = scene.view.tour.step() else { return };
    if scene.session.trace.is_none() {
        return;
    }
    if scene.view.tour.is_fresh() {
        scene.act(Action::Show(pane));
    }
    let (ctx, accent) = (ui.ctx().clone(), scene.theme.accent);
    let place = scene.view.layout.rect_of(pane).filter(|_| scene.view.layout.is_on_screen(pane));
    if let Some(rect) = place {
        // Over the panes, which are drawn by now, and under the card.
        ctx.layer_painter(ui.layer_id()).rect_stroke(
            rect.shrink(1.0),
            4.0,
            Stroke::new(2.0, accent),
            StrokeKind::Inside,
        );
    }
    // Whoever went elsewhere has the card in the corner of the window.
    let corner = place.unwrap_or(ctx.content_rect()).right_bottom() - egui::vec2(12.0, 12.0);
    let card = Area::new(Id::unique("tour")).order(Order::Middle).pivot(Align2::RIGHT_BOTTOM).fixed_pos(corner);
    card.constrain_to(ctx.content_rect()).show(&ctx, |ui| {
        Frame::popup(ui.style()).stroke(Stroke::new(1.0, accent)).inner_margin(10.0).show(ui, |ui| {
            ui.set_width(WIDTH);
            ui.label(RichText::new(format!("{} · {} of {}", pane.title(), at + 1, TOUR.len())).strong());
            ui.label(text);
            ui.add_space(6.0);
            ui.horizontal(|ui| buttons_ui(ui, scene, at));
        });
    });
}

fn buttons_ui(ui: &mut Ui, scene: &mut Scene<'_>, at: usize) {
    let tour = &mut scene.view.tour;
    if ui.button("Leave the tour").on_hover_text("Esc does the same").clicked() {
        tour.leave();
    }
    ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
        let last = at + 1 == TOUR.len();
        let next = ui.button(if last { "Done" } else { "Next" });
        if next.clicked() {
            tour.next();
        }
        if at > 0 && ui.button("Back").clicked() {
            tour.back();
        }
    });
}
