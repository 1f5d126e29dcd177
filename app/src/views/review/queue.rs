//! Sites in the order of their risk, one line each: where it stands, its name, why it is there.

use egui::{Align2, Button, FontId, RichText, ScrollArea, Sense, Ui, vec2};
use loka_core::{
    review::ReviewState,
    views::{Concern, ReviewItem, SiteReview},
};

use super::words;
use crate::{
    state::ReviewFilter,
    theme::{ROW, number},
    views::Scene,
};

pub(super) fn queue_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    filters_ui(ui, scene);
    let (shown, queue) = (scene.view.review.shown.clone(), scene.view.review.queue().cloned());
    let Some(queue) = queue else { return };
    if shown.is_empty() {
        let text = match scene.view.review.keep {
            ReviewFilter::Risky => "Every site stays in high precision: nothing here can go wrong by this plan",
            ReviewFilter::Waiting => "Nothing waits for you: every risky site was agreed to as it is",
            ReviewFilter::NeedsWork => "Nobody asked for a change",
            ReviewFilter::Changed => "Nothing changed since you looked",
            ReviewFilter::All => "There are no sites",
        };
        ui.label(RichText::new(text).color(scene.theme.weak));
        return;
    }
    ui.spacing_mut().item_spacing.y = 0.0;
    let selected = scene.view.site.as_ref().and_then(|id| scene.session.index().at(id));
    let mut area = ScrollArea::vertical().id_salt("review queue").auto_shrink([false, false]);
    if std::mem::take(&mut scene.view.review.reveal)
        && let Some(place) = shown.iter().position(|place| Some(queue.items[*place as usize].at) == selected)
    {
        area = area.vertical_scroll_offset((place as f32 * ROW - ui.available_height() / 2.0).max(0.0));
    }
    area.show_rows(ui, ROW, shown.len(), |ui, visible| {
        for place in &shown[visible] {
            let item = &queue.items[*place as usize];
            let of = scene.view.review.standings().get(*place as usize).copied().unwrap_or_default();
            line_ui(ui, scene, item, of, Some(item.at) == selected);
        }
    });
}

fn filters_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0;
        let state = &scene.view.review;
        let all: Vec<(Concern, SiteReview)> = state.queue().map_or_else(Vec::new, |queue| {
            let concerns = queue.items.iter().map(|item| item.concerns[0]);
            concerns.zip(state.standings().iter().copied()).collect()
        });
        for keep in ReviewFilter::ALL {
            let count = all.iter().filter(|(concern, of)| keep.keeps(*concern, *of)).count();
            let text = format!("{} {}", keep.text(), number::count(count as u64));
            let on = scene.view.review.keep == keep;
            let response = ui.add(Button::selectable(on, text)).on_hover_text(keep.about());
            let label = format!("Review: {}", keep.text().to_lowercase());
            response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, on, &label));
            if response.clicked() {
                scene.view.review.keep = keep;
            }
        }
    });
}

fn line_ui(ui: &mut Ui, scene: &mut Scene<'_>, item: &ReviewItem, of: SiteReview, selected: bool) {
    let Some(site) = scene.session.index().ids().get(item.at).cloned() else { return };
    let theme = scene.theme;
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::click());
    let why = why_of(item);
    let said = format!("{site}: {}, {why}{}", of.state.as_str(), beside(of));
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, selected, &said));
    let painter = ui.painter().with_clip_rect(rect.intersect(ui.clip_rect()));
    if selected || response.hovered() || response.has_focus() {
        painter.rect_filled(rect, 3.0, theme.accent.gamma_multiply(if selected { 0.2 } else { 0.08 }));
    }
    let middle = rect.left_center();
    let glyph = words::state_glyph(of.state);
    let color = words::state_color(&theme, of.state);
    painter.text(middle + vec2(10.0, 0.0), Align2::CENTER_CENTER, glyph, FontId::proportional(13.0), color);
    let right = beside(of);
    let right = right.trim_start_matches(", ");
    let galley = painter.layout_no_wrap(right.to_owned(), FontId::proportional(11.0), theme.warning);
    let room = rect.width() - galley.size().x - 34.0;
    painter.galley(rect.right_center() - vec2(galley.size().x + 6.0, galley.size().y / 2.0), galley, theme.warning);
    // Two thirds for the name: the reason is in the tooltip, too.
    let characters = ((room * 0.6) / 6.6) as usize;
    let name = scene.derived.short_name(&site, characters.max(8));
    let name =
        painter.text(middle + vec2(24.0, 0.0), Align2::LEFT_CENTER, name, FontId::proportional(13.0), theme.text);
    let left = (name.right() + 8.0).max(rect.left() + 24.0 + room * 0.5);
    let characters = ((rect.left() + 24.0 + room - left) / 5.8).max(0.0) as usize;
    let color = if item.concerns[0] < Concern::Modelled { theme.warning } else { theme.weak };
    let at = egui::pos2(left, middle.y);
    painter.text(at, Align2::LEFT_CENTER, short_why(item, characters), FontId::proportional(11.0), color);
    let hint = item.concerns.iter().map(|concern| format!("\n{}: {}", concern.word(), concern.about()));
    if response.on_hover_text(format!("{site}{}", hint.collect::<String>())).clicked() {
        scene.view.select(site, None);
        scene.view.reveal = true;
        (scene.view.review.whole, scene.view.review.reply_to) = (false, None);
    }
}

fn why_of(item: &ReviewItem) -> String {
    let words: Vec<&str> = item.concerns.iter().map(|concern| concern.word()).collect();
    let cost = item.loss_cost.filter(|cost| *cost > 0.0 && item.concerns[0] < Concern::Settled);
    cost.map_or_else(|| words.join(", "), |cost| format!("{}, costs {}", words.join(", "), number::plain(cost)))
}

/// The first reason, and where there is room what it costs: no number is cut.
fn short_why(item: &ReviewItem, characters: usize) -> String {
    let word = item.concerns[0].word();
    let cost = item.loss_cost.filter(|cost| *cost > 0.0 && item.concerns[0] < Concern::Settled);
    let whole = cost.map_or_else(|| word.to_owned(), |cost| format!("{word} · {}", number::plain(cost)));
    if whole.chars().count() <= characters {
        return whole;
    }
    let kept: String = word.chars().take(characters).collect();
    if kept.len() == word.len() { kept } else { format!("{}…", kept.trim_end()) }
}

fn beside(of: SiteReview) -> String {
    let changed = if of.changed { ", changed" } else { "" };
    let threads = match of.open_threads {
        0 => String::new(),
        count => format!(", {}", number::counted(count as usize, "thread")),
    };
    let unseen = if !of.seen && !of.changed && of.state == ReviewState::Open { ", new" } else { "" };
    format!("{changed}{threads}{unseen}")
}
