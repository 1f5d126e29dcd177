//! Where the session is: who else looks at it, how far it has come, and that its server is away.

use egui::{Frame, Margin, ProgressBar, RichText, Ui};

use crate::{
    commands::Request,
    link::Standing,
    theme::{number, shorten},
    views::Scene,
};

/// Names in a tooltip; of more, a count.
const NAMED: usize = 12;

/// In the top bar; nothing where the session is this window's own.
pub fn standing_ui(ui: &mut Ui, scene: &Scene<'_>) {
    match scene.standing {
        Standing::Here | Standing::Away { .. } => {}
        Standing::Joining { share } => {
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
        Standing::Joined { people, me } => {
            let others = people.iter().filter(|person| person.key != me.key);
            let mut names: Vec<String> = others.map(|person| shorten(&person.name, 32)).collect();
            names.sort();
            let text = match names.len() {
                0 => return,
                1 => format!("with {}", names[0]),
                count => format!("with {} others", number::count(count as u64)),
            };
            let left = names.len().saturating_sub(NAMED);
            names.truncate(NAMED);
            let more = if left > 0 { format!("\nand {left} more") } else { String::new() };
            ui.separator();
            let hover = format!("You are {}. Also here:\n{}{more}", me.name, names.join("\n"));
            ui.label(RichText::new(text).color(scene.theme.weak)).on_hover_text(hover);
        }
    }
}

/// A line over everything while the server is away: what is seen may be out of date.
pub fn away_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Standing::Away { why, seconds_away, retry_in } = scene.standing.clone() else { return };
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
