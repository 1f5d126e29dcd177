//! Takes the selected site's inspection; draws where its values lie, what every format can hold of them after
//! every scaling, what is lost, and which features stand out. A pinned site stands beside it.

mod axis;
mod features;
mod histogram;
mod ranges;

use std::sync::Arc;

use egui::{Label, RichText, ScrollArea, Ui};
use loka_core::{
    model::SiteId,
    session::{Command, Looked},
    views::distribution::{Inspection, Operand, OperandInspection},
};

use super::{
    Scene,
    steps::{self, step_text},
};
use crate::theme::number;
use axis::Axis;

/// One operand of one site, drawn in one of the two styles.
#[derive(Clone, Copy)]
struct ShownOperand<'a> {
    site: &'a SiteId,
    operand: &'a OperandInspection,
}

pub fn distribution_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some(site) = scene.view.site.clone() else {
        ui.label(RichText::new("Select a site to see how its values are distributed.").color(scene.theme.weak));
        return;
    };
    header_ui(ui, scene, &site);
    let Some(inspection) = inspection_ui(ui, scene, &site) else { return };
    let pinned = scene.view.distribution.pinned.clone().filter(|pinned| *pinned != site);
    let beside = pinned.as_ref().and_then(|pinned| inspection_ui(ui, scene, pinned));
    let operand = scene.view.distribution.operand;
    let Some(main) = shown(&inspection, operand) else { return };
    let beside = beside.as_deref().and_then(|inspection| shown(inspection, operand));
    ScrollArea::vertical().id_salt("distribution").auto_shrink([false, false]).show(ui, |ui| {
        if !inspection.series.is_empty() {
            steps::controls_ui(ui, scene);
        }
        body_ui(ui, scene, &inspection, main, beside);
    });
}

fn shown(inspection: &Inspection, operand: Operand) -> Option<ShownOperand<'_>> {
    inspection.operand(operand).map(|operand| ShownOperand { site: &inspection.site.id, operand })
}

/// The operand at the step that is looked at.
struct AtStep {
    step: i64,
    amax: f64,
    text: String,
}

/// `None` without a step, and where the series of this operand has no number there.
fn at_step(inspection: &Inspection, operand: Operand, step: Option<i64>) -> Option<AtStep> {
    let step = step?;
    let (_, amax) = inspection.series(operand.series())?.at(step)?.range?;
    let drift = inspection.drift(operand);
    let mut text = format!("At {}: amax {}", step_text(step), number::plain(amax));
    if let Some(recorded) = drift.and_then(|drift| drift.recorded_amax).filter(|recorded| *recorded > 0.0) {
        text += &format!(", {} the recorded one", number::times(amax / recorded));
    }
    text += &match drift.map(|drift| (drift.format, drift.at(step), &drift.points)) {
        Some((format, Some(at), _)) => format!(
            ". {} with one scale a tensor of that: ≈ {} become zero, ≈ {} subnormal, if only the extremes moved (modelled)",
            format.as_str(),
            number::percent(at.high.underflow),
            number::percent(at.high.subnormal)
        ),
        Some((_, None, Err(why))) => format!(". What casts lose there is not known: {why}"),
        _ => String::new(),
    };
    Some(AtStep { step, amax, text })
}

fn body_ui(
    ui: &mut Ui,
    scene: &mut Scene<'_>,
    inspection: &Inspection,
    main: ShownOperand<'_>,
    beside: Option<ShownOperand<'_>>,
) {
    if let Err(reason) = &main.operand.histogram {
        ui.add_space(8.0);
        ui.label(RichText::new(format!("Nothing to show: {reason}.")).color(scene.theme.weak));
        return;
    }
    let all = scene.view.distribution.all_formats;
    if let Some(by_rank) = &main.operand.by_rank {
        let theme = scene.theme;
        let colour = if by_rank.apart.is_empty() { theme.weak } else { theme.warning };
        let hint = "Merged statistics have one maximum. Whose it is: the largest magnitude of each rank, recorded";
        ui.label(RichText::new(by_rank.sentence()).color(colour)).on_hover_text(hint);
    }
    let axis = Axis::of(main, beside);
    let at = at_step(inspection, main.operand.operand, scene.view.steps.step());
    if let Some(at) = &at {
        ui.label(RichText::new(&at.text).small().color(scene.theme.accent));
    }
    histogram::histogram_ui(ui, scene, axis, main, beside, at.as_ref());
    ranges::ranges_ui(ui, scene, axis, main, beside, all);
    ui.add_space(10.0);
    features::features_ui(ui, scene, main, beside);
}

/// Operands, the pin, the formats.
fn header_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &SiteId) {
    ui.horizontal_wrapped(|ui| {
        for operand in Operand::ALL {
            let hint = match operand {
                Operand::Input => "x, by examples: what fprop reads",
                Operand::Weight => "W, by output features: what fprop reads",
                Operand::GradOutput => "The output's gradient, by examples: what dgrad reads",
            };
            let chosen = scene.view.distribution.operand == operand;
            if ui.selectable_label(chosen, operand.label()).on_hover_text(hint).clicked() {
                scene.view.distribution.operand = operand;
            }
        }
        ui.separator();
        pin_ui(ui, scene, site);
        let hint = "Show what no kernel of the catalogue does here, too, to compare with";
        ui.checkbox(&mut scene.view.distribution.all_formats, "All formats").on_hover_text(hint);
        if !scene.session.document.mods.is_empty() {
            let text = RichText::new("as recorded, without mods").small().color(scene.theme.warning);
            ui.add(Label::new(text))
                .on_hover_text("The trace has no values of the modified model: the probe samples those");
        }
    });
}

fn pin_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &SiteId) {
    let pinned = scene.view.distribution.pinned.clone();
    match pinned {
        Some(pinned) => {
            let name = scene.derived.short_name(&pinned, 28);
            let hint = format!("Stop comparing with {pinned}");
            if ui.button(format!("Unpin {name}")).on_hover_text(hint).clicked() {
                scene.view.distribution.pinned = None;
            }
            if pinned == *site {
                let text = "select another site to compare";
                ui.label(RichText::new(text).small().color(scene.theme.weak));
            }
        }
        None => {
            let hint = "Keep this site here and compare the next one you select with it";
            if ui.button("Pin for comparison").on_hover_text(hint).clicked() {
                scene.view.distribution.toggle_pin(site);
            }
        }
    }
}

/// The inspection where it is there; asks for it, waits for it, or says why there is none. The drift view
/// shares it.
pub(super) fn inspection_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &SiteId) -> Option<Arc<Inspection>> {
    match scene.session.inspections.of(site) {
        Some(Looked::Found(inspection)) => return Some(inspection.clone()),
        Some(Looked::Failed(reason)) => {
            ui.add_space(8.0);
            ui.label(RichText::new(format!("{site} cannot be shown: {reason}")).color(scene.theme.warning));
            if ui.button("Try again").on_hover_text("Read this site from the trace again").clicked() {
                scene.send(Command::InspectSite { site: site.clone() });
            }
        }
        looked => {
            if looked.is_none() {
                scene.send(Command::InspectSite { site: site.clone() });
            }
            ui.horizontal(|ui| {
                ui.spinner();
                ui.label(RichText::new(format!("Reading {site}")).color(scene.theme.weak));
            });
        }
    }
    None
}
