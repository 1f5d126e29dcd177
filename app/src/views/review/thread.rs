//! The selected site as a reviewer sees it: why it is in the plan, what changed since they looked, what was said, and
//! their own word.

use egui::{Id, Key, RichText, ScrollArea, TextEdit, Ui};
use loka_core::{
    model::{Gemm, SiteId},
    plan::changed_since,
    review::{Comment, ReviewState, Role},
    session::Command,
};

use super::words::{state_color, state_glyph, time_of};
use crate::{
    commands::{Action, ReviewAction},
    theme::shorten,
    views::Scene,
};

pub(super) fn thread_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let site = scene.view.site.clone().filter(|_| !scene.view.review.whole);
    if site.is_none() && !scene.view.review.whole {
        ui.label(
            RichText::new("Select a site of the queue, or press N for the next that waits").color(scene.theme.weak),
        );
        return;
    }
    ScrollArea::vertical().id_salt("review thread").auto_shrink([false, false]).show(ui, |ui| {
        match &site {
            Some(site) => site_ui(ui, scene, site),
            None => {
                ui.label(RichText::new("The plan as a whole").strong());
            }
        }
        marks_ui(ui, scene, site.as_ref());
        buttons_ui(ui, scene);
        ui.add_space(4.0);
        let review = &scene.session.reviewing.review;
        let threads: Vec<Comment> = review.threads_of(site.as_ref()).cloned().collect();
        for comment in &threads {
            comment_ui(ui, scene, comment);
        }
        draft_ui(ui, scene, site.as_ref());
    });
}

fn site_ui(ui: &mut Ui, scene: &Scene<'_>, site: &SiteId) {
    let theme = scene.theme;
    ui.label(RichText::new(scene.derived.short_name(site, 48)).strong()).on_hover_text(site.as_str());
    for gemm in Gemm::ALL {
        let at = scene.session.index().at(site);
        let Some(choice) = at.and_then(|at| scene.derived.choice_at(at, gemm)) else { continue };
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 6.0;
            ui.label(RichText::new(gemm.to_string()).small().color(theme.weak));
            ui.label(RichText::new(choice.kernel.as_str()).small());
            ui.label(RichText::new(&choice.reason).small().color(theme.weak));
        });
    }
    let now = scene.session.index().at(site).and_then(|at| scene.view.review.fingerprint(at));
    let looked = scene.session.reviewing.looked_at_last(&scene.me.name, site);
    if let Some(text) = looked.zip(now).and_then(|(was, is)| changed_since(was, is)) {
        ui.label(RichText::new(format!("Since you looked: {text}")).color(theme.warning));
    }
}

fn marks_ui(ui: &mut Ui, scene: &Scene<'_>, site: Option<&SiteId>) {
    let theme = scene.theme;
    let now = match site {
        Some(site) => {
            scene.session.index().at(site).and_then(|at| scene.view.review.fingerprint(at)).unwrap_or_default()
        }
        None => "",
    };
    for mark in scene.session.reviewing.review.marks_of(site).filter(|mark| mark.state != ReviewState::Open) {
        let stale = site.is_some() && mark.state == ReviewState::Agreed && mark.of != now;
        let (glyph, color) = (state_glyph(mark.state), state_color(&theme, mark.state));
        let text = format!("{glyph} {}: {}", shorten(&mark.by, 32), mark.state.as_str());
        ui.horizontal_wrapped(|ui| {
            ui.label(RichText::new(text).color(if stale { theme.weak } else { color }));
            ui.label(RichText::new(time_of(mark.at)).small().color(theme.weak));
            if stale {
                let what = changed_since(&mark.of, now).unwrap_or_else(|| "another choice".to_owned());
                ui.label(RichText::new(format!("to what was there before: {what}")).small().color(theme.warning));
            }
        });
    }
}

fn buttons_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        for (action, text) in [
            (ReviewAction::Agree, "Agree"),
            (ReviewAction::NeedsWork, "Needs work"),
            (ReviewAction::Reopen, "Open again"),
            (ReviewAction::Next, "Next"),
        ] {
            scene.button_named_ui(ui, Action::Review(action), text);
        }
    });
}

fn comment_ui(ui: &mut Ui, scene: &mut Scene<'_>, begun: &Comment) {
    let theme = scene.theme;
    let replies: Vec<Comment> = scene.session.reviewing.review.replies_to(begun.id).cloned().collect();
    let frame = egui::Frame::new().fill(theme.panel).corner_radius(4).inner_margin(8).outer_margin(2);
    frame.show(ui, |ui| {
        ui.set_min_width(ui.available_width());
        if let Some(by) = &begun.resolved_by {
            let head = format!("Closed by {}: {}", shorten(by, 24), shorten(first_line(&begun.text), 48));
            egui::CollapsingHeader::new(RichText::new(head).small().color(theme.weak))
                .id_salt(("closed", begun.id))
                .show(ui, |ui| said_all_ui(ui, scene, begun, &replies));
        } else {
            said_all_ui(ui, scene, begun, &replies);
        }
        ui.horizontal(|ui| {
            let may = scene.me.role >= Role::Reviewer;
            let reply = ui.add_enabled(may, egui::Button::new("Reply").small());
            reply.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, may, format!("Reply to {}", begun.by)));
            if reply.clicked() {
                (scene.view.review.reply_to, scene.view.review.focus_draft) = (Some(begun.id), true);
            }
            let closed = begun.resolved_by.is_some();
            let text = if closed { "Open again" } else { "Close thread" };
            let close = ui.add_enabled(may, egui::Button::new(text).small());
            close.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, may, format!("{text} of {}", begun.by)));
            if close.clicked() {
                scene.send(Command::Resolve { comment: begun.id, resolved: !closed });
            }
        });
    });
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn said_all_ui(ui: &mut Ui, scene: &Scene<'_>, begun: &Comment, replies: &[Comment]) {
    said_ui(ui, scene, begun);
    for reply in replies {
        ui.indent(("reply", reply.id), |ui| said_ui(ui, scene, reply));
    }
}

/// Text as it is: nothing in it is markup.
fn said_ui(ui: &mut Ui, scene: &Scene<'_>, comment: &Comment) {
    let theme = scene.theme;
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new(shorten(&comment.by, 32)).strong());
        ui.label(RichText::new(time_of(comment.at)).small().color(theme.weak));
        if let Some(gemm) = comment.gemm {
            ui.label(RichText::new(gemm.to_string()).small().color(theme.accent));
        }
    });
    ui.add(egui::Label::new(&comment.text).wrap().selectable(true));
}

fn draft_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: Option<&SiteId>) {
    if scene.me.role < Role::Reviewer {
        ui.label(RichText::new("A viewer looks: a reviewer's role is needed to comment").color(scene.theme.weak));
        return;
    }
    let reply_to = scene.view.review.reply_to;
    let hint = match (reply_to, site) {
        (Some(_), _) => "Your answer",
        (None, Some(_)) => "Comment on this site",
        (None, None) => "Comment on the plan",
    };
    let id = Id::unique("review draft");
    // Taken before the field takes it for a new line, and by the key's own modifiers: in a slow frame they are let go of
    // by its end.
    let sent = ui.memory(|memory| memory.has_focus(id))
        && ui.input_mut(|input| input.consume_key(egui::Modifiers::COMMAND, Key::Enter));
    let field = TextEdit::multiline(&mut scene.view.review.draft).id(id).desired_rows(2);
    let response = ui.add(field.desired_width(f32::INFINITY).hint_text(hint));
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::MultilineTextInput, true, "Comment"));
    let wanted = std::mem::take(&mut scene.view.review.focus_draft);
    if wanted {
        response.request_focus();
    }
    let ready = !scene.view.review.draft.trim().is_empty();
    let mut send = false;
    let below = ui.horizontal(|ui| {
        let text = if reply_to.is_some() { "Send answer" } else { "Send comment" };
        send = ui.add_enabled(ready, egui::Button::new(text)).on_hover_text("Ctrl+Enter does the same").clicked();
        if reply_to.is_some() && ui.button("Cancel").on_hover_text("Begin a new thread instead").clicked() {
            scene.view.review.reply_to = None;
        }
    });
    if wanted {
        // With its button: long threads push both out of sight.
        ui.scroll_to_rect(response.rect.union(below.response.rect), None);
    }
    if ready && (send || sent) {
        let text = std::mem::take(&mut scene.view.review.draft).trim().to_owned();
        let gemm =
            scene.view.column.as_ref().map(|column| column.gemm).filter(|_| site.is_some() && reply_to.is_none());
        scene.view.review.reply_to = None;
        scene.send(Command::Comment { site: site.cloned(), gemm, reply_to, text });
        ui.memory_mut(|memory| memory.surrender_focus(id));
    }
}
