//! What to know of the plan, worth most first: each a link to its GEMMs, with what it is worth and a button that does
//! something about it.

use std::collections::BTreeSet;

use egui::{Button, Label, Link, RichText, ScrollArea, Ui};
use loka_core::{
    model::SiteId,
    review::Role,
    session::Command,
    views::{Column, Finding, Remedy},
};

use crate::{
    commands::{Action, RunAction, SiteAction},
    layout::Pane,
    theme::number,
    views::Scene,
};

pub fn findings_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let findings = scene.derived.findings.clone();
    if findings.is_empty() {
        let text = "Nothing to find: every GEMM has the fastest kernel that was probed, or FP8 gains nothing there.";
        ui.label(RichText::new(text).color(scene.theme.weak));
        return;
    }
    ScrollArea::vertical().id_salt("findings").auto_shrink([false, false]).show(ui, |ui| {
        for finding in findings.iter() {
            finding_ui(ui, scene, finding);
            ui.separator();
        }
    });
}

fn finding_ui(ui: &mut Ui, scene: &mut Scene<'_>, finding: &Finding) {
    let hint = |ui: &mut Ui| _ = ui.label(format!("Select {}", number::counted(finding.gemms.len(), "GEMM")));
    let text = RichText::new(&finding.text).color(scene.theme.text);
    if ui.add(Link::new(text)).on_hover_ui(hint).clicked() {
        select(scene, finding);
    }
    ui.horizontal(|ui| {
        if let Some(us) = finding.saves_us {
            let worth = RichText::new(format!("up to {} µs a step", number::micros(us))).strong();
            ui.add(Label::new(worth)).on_hover_text("Saved if it comes as hoped for, alone: findings may share GEMMs");
        }
        if let Some(cost) = finding.loss_cost {
            ui.label(RichText::new(format!("loss cost {}", number::plain(cost))).color(scene.theme.weak));
        }
        if let Some(remedy) = &finding.remedy {
            remedy_ui(ui, scene, finding, remedy);
        }
    });
}

fn select(scene: &mut Scene<'_>, finding: &Finding) {
    let Some((at, gemm)) = finding.gemms.first().copied() else { return };
    let ids = scene.session.index().ids();
    let named: BTreeSet<SiteId> = finding.gemms.iter().filter_map(|(at, _)| ids.get(*at).cloned()).collect();
    let kernel = scene.derived.plan.pick_at(at, gemm).map(|choice| choice.kernel.clone());
    if let Some(first) = ids.get(at).cloned() {
        scene.view.select(first, kernel.map(|kernel| Column { gemm, kernel }));
        scene.view.selection = named;
        scene.view.reveal = true;
    }
}

fn remedy_ui(ui: &mut Ui, scene: &mut Scene<'_>, finding: &Finding, remedy: &Remedy) {
    let ids = scene.session.index().ids();
    let running = scene.session.is_running() || scene.session.is_measuring();
    let (text, command) = match remedy {
        Remedy::Frontier => return scene.button_ui(ui, Action::Show(Pane::Frontier)),
        Remedy::Measure => return scene.button_ui(ui, Action::Run(RunAction::MeasureSpeeds)),
        Remedy::Draw { site, draws } => {
            let Some(id) = ids.get(*site).cloned() else { return };
            (format!("Draw {draws} at {id}"), Command::ProbeMore { site: id, max_draws: *draws })
        }
        Remedy::Threshold { max_error } => {
            let metric = scene.session.document.policy.metric.label();
            let text = format!("Set {metric} to {}", number::trimmed(*max_error));
            (text, Command::SetMaxError { value: *max_error, gesture: None })
        }
        Remedy::ClearOverrides => {
            let at = finding.gemms.iter().filter_map(|(at, gemm)| Some((ids.get(*at)?.clone(), *gemm))).collect();
            ("Leave them to the policy".to_owned(), Command::ClearOverrides { at })
        }
    };
    let draws = matches!(remedy, Remedy::Draw { .. });
    let waits = (draws && running).then(|| "something runs: let it end, or cancel it".to_owned());
    let refused = scene.not_allowed(Role::Owner).or(waits);
    let response = ui.add_enabled(refused.is_none(), Button::new(text));
    let hint = if draws { Action::Site(SiteAction::DrawMore).tooltip() } else { "One step of undo".to_owned() };
    let response = response.on_hover_text(hint).on_disabled_hover_text(refused.unwrap_or_default());
    if response.clicked() {
        scene.send(command);
    }
}
