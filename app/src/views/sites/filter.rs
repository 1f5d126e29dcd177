//! The filter's field with its menu of terms, what is wrong beside it, the count, the order.

use egui::{Id, RichText, TextEdit, Ui};
use loka_core::views::{Sort, TERMS};

use crate::{
    commands::{Action, SelectAction},
    theme::{explained, number},
    views::Scene,
};

/// The field, its problem, and the line with count and order.
pub fn filter_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        let menu = 30.0;
        let width = (ui.available_width() - menu).max(60.0);
        let field = TextEdit::singleline(&mut scene.view.filter).id(Id::unique("site filter")).desired_width(width);
        let response = ui.add(field.hint_text("Name, /regex/, verdict:unsafe"));
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, true, "Filter sites"));
        if std::mem::take(&mut scene.view.focus_filter) {
            response.request_focus();
        }
        response.on_hover_text(format!("{}\n{SYNTAX}", Action::Select(SelectAction::Filter).hint(ui.ctx())));
        terms_ui(ui, scene);
    });
    if let Some(problem) = scene.view.sites.problem() {
        let text = format!("{problem}. Nothing is filtered.");
        ui.label(RichText::new(text).small().color(scene.theme.error));
    }
    order_ui(ui, scene);
}

const SYNTAX: &str = "Words must all be in the name; /…/ is a regular expression, \"…\" holds words together.\n\
    verdict: gemm: lib: module: is: ask for more, - before a term turns it round.\n\
    Figures are held against numbers: loss>1e-6 k<64 gain>=1.2 wgrad.mere>.2\n\
    gemm: and lib: also choose the heatmap's columns.";

/// Terms that can be chosen instead of typed.
fn terms_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let button = ui.menu_button("+", |ui| {
        ui.set_min_width(230.0);
        let mut chosen: Option<String> = None;
        let mut item = |ui: &mut Ui, term: &str, about: &str| {
            if ui.button(term).on_hover_text(about).clicked() {
                chosen = Some(term.to_owned());
            }
        };
        for help in TERMS {
            item(ui, help.term, help.about);
        }
        ui.menu_button("lib:…", |ui| {
            for library in &scene.derived.standings.libraries {
                item(ui, &format!("lib:{library}"), "This library's kernels alone");
            }
        });
        let module = scene.view.site.as_ref().and_then(|site| site.as_str().rsplit_once('.'));
        if let Some((module, _)) = module {
            item(ui, &term_of_module(module), "The selected site's module");
        }
        ui.separator();
        if ui.button(Action::Select(SelectAction::ClearFilter).text()).clicked() {
            scene.view.filter.clear();
        }
        if let Some(term) = chosen {
            add_term(&mut scene.view.filter, &term);
        }
    });
    button.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, "Add a filter term"));
    button.response.on_hover_text("Add a term: by verdict, GEMM, library, module or state");
}

/// A name with blanks is quoted.
pub fn term_of_module(path: &str) -> String {
    if path.contains(char::is_whitespace) { format!("module:\"{path}\"") } else { format!("module:{path}") }
}

/// Puts a term behind what is typed, once.
pub fn add_term(filter: &mut String, term: &str) {
    if !filter.split_whitespace().any(|known| known == term) {
        let before = filter.trim_end();
        *filter = if before.is_empty() { term.to_owned() } else { format!("{before} {term}") };
    }
}

pub fn has_term(filter: &str, term: &str) -> bool {
    filter.split_whitespace().any(|known| known == term)
}

/// Puts a term there, or takes it away. Of verdicts there is one: two would show more sites, not fewer.
pub fn turn_term(filter: &mut String, term: &str) {
    let on = has_term(filter, term);
    let others: Vec<&str> = filter.split_whitespace().filter(|known| !known.starts_with("verdict:")).collect();
    *filter = others.join(" ");
    if !on {
        add_term(filter, term);
    }
}

fn order_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let (shown, all) = (scene.view.sites.lines().order.len() as u64, scene.session.index().len() as u64);
    ui.horizontal(|ui| {
        let count = match shown == all {
            true => format!("{} sites", number::count(all)),
            false => format!("{} of {}", number::count(shown), number::count(all)),
        };
        ui.label(RichText::new(count).small().color(scene.theme.weak));
        let selected = scene.view.selected_sites().len();
        if selected > 1 {
            let text = format!("{} selected", number::count(selected as u64));
            ui.label(RichText::new(text).small().color(scene.theme.accent));
        }
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| sort_ui(ui, scene));
    });
}

/// Which order, and how it is arranged.
fn sort_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let order = scene.view.sites.order;
    let mut text = RichText::new(order.sort.label()).small();
    if order.reversed {
        text = RichText::new(format!("{}, reversed", order.sort.label())).small();
    }
    let menu = ui.menu_button(text, |ui| {
        for sort in Sort::ALL {
            if explained(ui.radio(order.sort == sort, sort.label()), &sort.term().text()).clicked() {
                scene.act(Action::Select(SelectAction::of_sort(sort)));
            }
        }
        ui.separator();
        let mut tick = |ui: &mut Ui, on: bool, action: SelectAction| {
            let mut ticked = on;
            let action = Action::Select(action);
            if ui.checkbox(&mut ticked, action.text()).on_hover_text(action.tooltip()).clicked() {
                scene.act(action);
            }
        };
        tick(ui, order.reversed, SelectAction::ReverseOrder);
        tick(ui, order.grouped, SelectAction::GroupByModule);
        ui.separator();
        for action in [SelectAction::CloseFolders, SelectAction::OpenFolders] {
            scene.button_ui(ui, Action::Select(action));
        }
    });
    let label = format!("Order: {}", order.sort.label());
    menu.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, &label));
    menu.response.on_hover_text("In which order sites stand, here and in the heatmap");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_added_once() {
        let mut filter = "mlp ".to_owned();
        add_term(&mut filter, "verdict:unsafe");
        add_term(&mut filter, "verdict:unsafe");
        assert_eq!(filter, "mlp verdict:unsafe");
        turn_term(&mut filter, "verdict:fast");
        assert_eq!(filter, "mlp verdict:fast");
        turn_term(&mut filter, "verdict:fast");
        assert_eq!(filter, "mlp");
        assert_eq!(term_of_module("a b.c"), "module:\"a b.c\"");
    }
}
