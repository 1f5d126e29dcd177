//! Who else is at the session: takes who is there, gives a word in the top bar that tells what each may do and where
//! they look, and leads there.

use egui::{Button, RichText, ScrollArea, Ui};
use loka_core::session::shared::{Author, Person};

use crate::{
    theme::{number, shorten},
    views::Scene,
};

/// Names in a tooltip; of more, a count.
const NAMED: usize = 12;
const NAME: usize = 32;
const SITE: usize = 48;
/// Points of the menu's height; of more people, the rest is scrolled to.
const MENU: f32 = 320.0;

pub fn people_ui(ui: &mut Ui, scene: &mut Scene<'_>, people: &[Person], me: &Author) {
    let mut others: Vec<&Person> = people.iter().filter(|person| person.key != me.key).collect();
    others.sort_by(|a, b| (&a.name, a.key).cmp(&(&b.name, b.key)));
    let text = match others.as_slice() {
        [] => return,
        [other] => format!("with {}", shorten(&other.name, NAME)),
        others => format!("with {} others", number::count(others.len() as u64)),
    };
    let lines: Vec<String> = others.iter().take(NAMED).map(|person| line(person)).collect();
    let left = others.len().saturating_sub(NAMED);
    let more = if left > 0 { format!("\nand {left} more") } else { String::new() };
    let hover = format!("You are {}, {}. Also here:\n{}{more}", shorten(&me.name, NAME), me.role, lines.join("\n"));
    ui.separator();
    let menu = ui.menu_button(RichText::new(text).color(scene.theme.weak), |ui| {
        ScrollArea::vertical().max_height(MENU).show(ui, |ui| {
            others.iter().for_each(|person| person_ui(ui, scene, person));
        });
    });
    menu.response.on_hover_text(hover);
}

/// `Anna, approver, at net.top.2 in Plan`.
fn line(person: &Person) -> String {
    let mut line = format!("{}, {}", shorten(&person.name, NAME), person.role);
    if let Some(site) = &person.at.site {
        line += &format!(", at {}", shorten(site.as_str(), SITE));
    }
    match (&person.at.site, person.at.view.as_str()) {
        (_, "") => {}
        (Some(_), view) => line += &format!(" in {view}"),
        (None, view) => line += &format!(", in {view}"),
    }
    line
}

fn person_ui(ui: &mut Ui, scene: &mut Scene<'_>, person: &Person) {
    let site = person.at.site.as_ref().filter(|site| scene.session.site(site).is_some());
    // Also for those who hear the menu and see no tooltip.
    ui.label(RichText::new(line(person)).small().color(scene.theme.weak));
    let button = Button::new(format!("Go where {} is", shorten(&person.name, NAME)));
    let response = ui.add_enabled(site.is_some(), button).on_hover_text("Select the site that they look at");
    if response.on_disabled_hover_text("Not now: they look at no site").clicked()
        && let Some(site) = site
    {
        scene.view.select(site.clone(), None);
        scene.view.reveal = true;
        ui.close();
    }
}

#[cfg(test)]
mod tests {
    use loka_core::{model::SiteId, review::Role, session::shared::Place};

    use super::*;

    #[test]
    fn a_line_tells_what_is_known() {
        let of = |site: Option<&str>, view: &str| {
            let at = Place { site: site.map(SiteId::new), view: view.to_owned() };
            line(&Person { key: 1, name: "Anna".to_owned(), role: Role::Approver, at })
        };
        assert_eq!(of(Some("net.top.2"), "Plan"), "Anna, approver, at net.top.2 in Plan");
        assert_eq!(of(Some("net.top.2"), ""), "Anna, approver, at net.top.2");
        assert_eq!(of(None, "Plan"), "Anna, approver, in Plan");
        assert_eq!(of(None, ""), "Anna, approver");
    }
}
