//! Whether the plan is one to run: the submitted version, who signed it, who still has to, and the way there.

use egui::{RichText, Ui};
use loka_core::{
    dispatch::Policy,
    plan::standing,
    review::{ApprovalRule, ReviewState, Role},
    session::{Command, Release},
};

use super::words::{state_color, state_glyph, time_of};
use crate::{
    commands::{Action, ReviewAction},
    theme::{number, shorten},
    views::Scene,
};

/// Of a digest, in a line of words.
const DIGEST_CHARACTERS: usize = 19;
/// The most signatures that the menu offers; a policy file can ask for more.
const MOST_OFFERED: u32 = 4;

pub(super) fn standing_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let release = scene.session.reviewing.release.clone();
    match &release {
        Some(release) => release_ui(ui, scene, release),
        None => none_ui(ui, scene),
    }
    rule_ui(ui, scene);
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        progress_ui(ui, scene);
    });
    ui.horizontal_wrapped(|ui| {
        for action in [ReviewAction::RequestApproval, ReviewAction::Approve, ReviewAction::WithdrawRequest] {
            // One way at a time: a version that is up is signed or taken back, not submitted again as it is.
            let shown = match (&release, action) {
                (None, action) => action == ReviewAction::RequestApproval,
                (Some(release), ReviewAction::RequestApproval) => release.changed.is_some(),
                (Some(release), ReviewAction::Approve) => release.changed.is_none(),
                _ => true,
            };
            if shown {
                scene.button_ui(ui, Action::Review(action));
            }
        }
        let asks = release.as_ref().is_none_or(|release| release.changed.is_some());
        if asks && scene.me.role == Role::Owner {
            let field = egui::TextEdit::singleline(&mut scene.view.review.note).hint_text("Note for those who sign");
            let response = ui.add(field.desired_width(ui.available_width().clamp(80.0, 260.0)));
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, true, "Note for the version"));
        }
    });
}

fn none_ui(ui: &mut Ui, scene: &Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new("Draft").strong().size(16.0));
        let text = match &scene.session.document.policy.approval {
            Some(rule) => format!("not submitted for approval yet; the policy asks for {rule}"),
            None => "nobody has to sign it: the policy asks for no approval".to_owned(),
        };
        ui.label(RichText::new(text).color(scene.theme.weak));
    });
}

fn release_ui(ui: &mut Ui, scene: &mut Scene<'_>, release: &Release) {
    let plan = scene.session.reviewing.with_what_was_said(release);
    let keys = scene.session.keys.as_deref();
    let stands = standing(&plan, keys, None);
    let theme = scene.theme;
    ui.horizontal_wrapped(|ui| {
        let (glyph, word, color) = match (&release.changed, stands.is_met()) {
            (Some(_), _) => ("×", "changed since", theme.error),
            (None, true) if stands.rule.is_some() && keys.is_none() => ("●", "approved, keys not checked", theme.text),
            (None, true) => ("●", "approved", state_color(&theme, ReviewState::Agreed)),
            (None, false) => ("○", "waits for approval", theme.warning),
        };
        ui.label(RichText::new(format!("Version {}", release.number)).strong().size(16.0));
        let standing = ui.label(RichText::new(format!("{glyph} {word}")).strong().color(color));
        if keys.is_none() && stands.rule.is_some() {
            let hint = "The signatures are genuine; whose keys they are, no list says here. `loka serve --keys FILE` has \
                        one, and `loka verify --keys FILE` checks the file";
            standing.on_hover_text(hint);
        }
        let text = format!("submitted by {}, {} UTC", shorten(&release.by, 32), time_of(release.at));
        ui.label(RichText::new(text).color(theme.weak));
        let digest = RichText::new(shorten(&release.plan.digest, DIGEST_CHARACTERS)).monospace().color(theme.weak);
        let hint = format!("{}\nEvery signature is of this digest. Click to copy", release.plan.digest);
        if ui.link(digest).on_hover_text(hint).clicked() {
            ui.ctx().copy_text(release.plan.digest.clone());
        }
    });
    if let Some((by, at)) = &release.changed {
        let lost = if release.approvals.is_empty() { "" } else { ", and its approvals do not count for it" };
        let text = format!(
            "{} changed a decision ({} UTC): what is on screen is not version {}{lost}. Undo the change, or put a new \
             version up.",
            shorten(by, 32),
            time_of(*at),
            release.number
        );
        ui.label(RichText::new(text).color(theme.error));
    }
    if !release.note.is_empty() {
        ui.label(RichText::new(shorten(&release.note, 400)).color(theme.text));
    }
    ui.horizontal_wrapped(|ui| {
        for of in &stands.approvals {
            let approval = of.approval;
            let (glyph, color) = match &of.problem {
                Some(_) => ("×", theme.error),
                None => ("●", state_color(&theme, ReviewState::Agreed)),
            };
            let text = format!("{glyph} {} ({})", shorten(&approval.name, 32), of.role);
            let problem =
                of.problem.as_ref().map_or_else(String::new, |problem| format!("\nIt does not count: {problem}"));
            let note = if approval.note.is_empty() { String::new() } else { format!("\n{}", approval.note) };
            let hint = format!("{} UTC, signed with {}{note}{problem}", time_of(approval.at), approval.key);
            ui.label(RichText::new(text).color(color)).on_hover_text(hint);
        }
        if let Some(missing) = stands.missing() {
            ui.label(RichText::new(missing).color(theme.weak));
        }
        if stands.review_changed {
            let hint = "Comments or marks came after a signature; what they say is not what was signed";
            ui.label(RichText::new("written on since").small().color(theme.weak)).on_hover_text(hint);
        }
    });
}

/// Who must sign, which is part of the policy.
fn rule_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    if scene.me.role < Role::Owner {
        return;
    }
    let policy = scene.session.document.policy.clone();
    let now = policy.approval.clone();
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new("To be signed by").color(scene.theme.weak));
        let text = people(now.as_ref().map_or(0, |rule| rule.approvers));
        let combo = egui::ComboBox::from_id_salt("approvers").selected_text(text).show_ui(ui, |ui| {
            let mut asked = None;
            for count in 0..=MOST_OFFERED {
                let on = now.as_ref().map_or(0, |rule| rule.approvers) == count;
                if ui.selectable_label(on, people(count)).clicked() {
                    asked = Some(count);
                }
            }
            asked
        });
        combo.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Approvals needed"));
        let own = now.as_ref().is_some_and(|rule| rule.own);
        if let Some(count) = combo.inner.flatten() {
            let rule = now.clone().unwrap_or_else(|| ApprovalRule::of(1));
            let approval = (count > 0).then_some(ApprovalRule { approvers: count, ..rule });
            scene.send(Command::SetPolicy { policy: Policy { approval, ..policy.clone() } });
        }
        if let Some(rule) = now {
            let mut allowed = own;
            let hint = "Whoever decided something in the plan may sign it, too";
            if ui.checkbox(&mut allowed, "authors too").on_hover_text(hint).changed() {
                let approval = Some(ApprovalRule { own: allowed, ..rule });
                scene.send(Command::SetPolicy { policy: Policy { approval, ..policy } });
            }
        }
    });
}

fn people(count: u32) -> String {
    match count {
        0 => "nobody".to_owned(),
        1 => "1 person".to_owned(),
        count => format!("{count} people"),
    }
}

/// How far the review is, and what people hold of the plan as a whole.
fn progress_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let theme = scene.theme;
    let state = &scene.view.review;
    let Some(queue) = state.queue().cloned() else { return };
    let risky = queue.items.iter().zip(state.standings());
    let risky: Vec<_> =
        risky.filter(|(item, of)| crate::state::ReviewFilter::Risky.keeps(item.concerns[0], **of)).collect();
    let count = |wanted: ReviewState| risky.iter().filter(|(_, of)| of.state == wanted).count();
    let (agreed, work) = (count(ReviewState::Agreed), count(ReviewState::NeedsWork));
    let text = format!("{} of {} agreed", agreed, number::counted(risky.len(), "risky site"));
    ui.label(RichText::new(text).color(theme.text));
    if work > 0 {
        let verb = if work == 1 { "needs" } else { "need" };
        ui.label(RichText::new(format!("· {work} {verb} work")).color(theme.error));
    }
    let whole = scene.session.reviewing.review.marks_of(None).cloned();
    for mark in whole.collect::<Vec<_>>() {
        let text = format!("· {} {}: {}", state_glyph(mark.state), shorten(&mark.by, 24), mark.state.as_str());
        let hint = format!("Of the plan as a whole, {} UTC", time_of(mark.at));
        ui.label(RichText::new(text).color(state_color(&theme, mark.state))).on_hover_text(hint);
    }
    let threads = scene.session.reviewing.review.threads_of(None).filter(|of| of.resolved_by.is_none()).count();
    let text =
        if threads == 0 { "Plan as a whole".to_owned() } else { number::counted(threads, "thread") + " on the plan" };
    let hint = "What was said of the plan as a whole, and your own word on it";
    let button = ui.add(egui::Button::selectable(scene.view.review.whole, text).frame_when_inactive(true));
    if button.on_hover_text(hint).clicked() {
        scene.view.review.whole = !scene.view.review.whole;
        scene.view.review.reply_to = None;
    }
}
