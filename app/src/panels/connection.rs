//! Where the session is: who else looks at it, how far it has come, that its server is away, that nothing is kept.

use egui::{Frame, Margin, ProgressBar, RichText, Ui};

use super::people::people_ui;
use crate::{commands::Request, link::ConnectionState, theme::number, views::Scene};

/// In the top bar; nothing where the session is this window's own.
pub fn connection_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    match scene.connection {
        ConnectionState::Here | ConnectionState::Away { .. } => {}
        ConnectionState::Joining { share } => {
            ui.separator();
            match share {
                Some(share) => {
                    ui.add(ProgressBar::new(*share).desired_width(64.0).desired_height(8.0));
                    ui.label(format!("loading {}", number::percent(f64::from(*share))));
                }
                None => {
                    ui.label(RichText::new("Joining…").color(scene.theme.weak));
                }
            }
        }
        ConnectionState::Joined { people, me, waiting } => {
            people_ui(ui, scene, people, me);
            waiting_ui(ui, scene, *waiting);
        }
    }
}

/// What is seen may jump back until it is answered.
fn waiting_ui(ui: &mut Ui, scene: &Scene<'_>, waiting: usize) {
    let text = match waiting {
        0 => return,
        1 => "1 change waits for the server".to_owned(),
        more => format!("{} changes wait for the server", number::count(more as u64)),
    };
    ui.separator();
    ui.label(RichText::new(text).color(scene.theme.warning))
        .on_hover_text("They were sent and are not answered yet. What you see is the session without them.");
}

/// A line over everything while the server is away: what is seen may be out of date.
pub fn away_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let ConnectionState::Away { why, seconds_away, retry_in } = scene.connection.clone() else { return };
    let line = Frame::new().fill(scene.theme.raised).inner_margin(Margin::symmetric(12, 6));
    line.show(ui, |ui| {
        ui.set_min_width(ui.available_width());
        ui.horizontal_wrapped(|ui| {
            ui.label(RichText::new("Away").strong().color(scene.theme.warning));
            let since = number::seconds(seconds_away as f64);
            ui.label(format!("The server has not answered for {since} ({why}). What you see is as it was."));
            let next = match retry_in {
                Some(0) => "Trying again now.".to_owned(),
                Some(seconds) => format!("Trying again in {seconds} s."),
                None => "It is not tried again by itself.".to_owned(),
            };
            ui.label(RichText::new(next).color(scene.theme.weak));
            if ui.button("Try now").on_hover_text("Reach for the server at once").clicked() {
                scene.requests.push(Request::Retry);
            }
        });
    });
}

/// A line over everything while what is decided cannot be kept.
pub fn not_kept_ui(ui: &mut Ui, scene: &Scene<'_>) {
    let Some(problem) = &scene.session.not_kept else { return };
    let line = Frame::new().fill(scene.theme.raised).inner_margin(Margin::symmetric(12, 6));
    line.show(ui, |ui| {
        ui.set_min_width(ui.available_width());
        ui.horizontal_wrapped(|ui| {
            ui.label(RichText::new("Not kept").strong().color(scene.theme.error));
            ui.label(format!("Changes cannot be written: {problem}."));
            let next =
                "They are in memory alone, and gone when LoKA ends; until they are kept nothing can be approved.";
            ui.label(RichText::new(next).color(scene.theme.weak));
        });
    });
}
