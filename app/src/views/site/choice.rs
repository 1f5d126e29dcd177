//! The choice of one GEMM: the kernel, its reason, runners-up, and what would change it.

use egui::{RichText, Ui};
use loka_core::{
    dispatch::{Choice, ChoiceSource},
    model::{Gemm, KernelId, Site, SiteId},
    session::Touch,
    views::{Column, ErrorOutlook, GemmView, KernelLine, NOT_IN_BASELINE, SiteView, site_words},
};

use super::micros;
use crate::{
    clock::now,
    commands::{Action, EditAction, SiteAction},
    link::ConnectionState,
    theme::{Term, explained_ui, glyph_ui, number, shorten, with_terms},
    views::{Scene, steps::at_step_ui},
};

/// Words for a time past are right for that long.
const AGO_LASTS: std::time::Duration = std::time::Duration::from_secs(30);

pub fn choice_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, view: &SiteView, seen: &GemmView) {
    let Some(choice) = &seen.choice else {
        ui.label(RichText::new("Chosen as soon as there are rows").color(scene.theme.weak));
        return;
    };
    ui.horizontal_wrapped(|ui| {
        let by_hand = choice.source == ChoiceSource::Override;
        let word = if by_hand { "Set by hand:" } else { "Chosen:" };
        ui.label(RichText::new(word).color(scene.theme.weak));
        ui.label(RichText::new(choice.kernel.as_str()).strong());
        if by_hand && scene.view.column.as_ref().is_none_or(|column| column.gemm == seen.gemm) {
            scene.button_ui(ui, Action::Edit(EditAction::ClearOverride));
        }
    });
    let about = with_terms("", Term::in_text(&choice.reason));
    explained_ui(ui, RichText::new(&choice.reason).small().color(scene.theme.weak), &about);
    versus_ui(ui, scene, view, seen);
    touched_ui(ui, scene, site, seen, choice);
    shared_ui(ui, scene, view, seen);
    chain_ui(ui, scene, view, seen);
    runners_up_ui(ui, scene, site, seen, choice);
    verdict_ui(ui, scene, seen);
    let kernel = super::looked_at(scene, seen);
    at_step_ui(ui, scene, &Column { gemm: seen.gemm, kernel });
}

/// What the baseline runs here, and how much more or less is saved now.
fn versus_ui(ui: &mut Ui, scene: &Scene<'_>, view: &SiteView, seen: &GemmView) {
    let Some(versus) = scene.derived.versus() else { return };
    let text = match versus.line(view.at, seen.gemm) {
        None => format!("Against the baseline: {NOT_IN_BASELINE}"),
        Some(then) => {
            let runs = if then.moved { format!("runs {}", then.kernel) } else { "runs the same".to_owned() };
            let saves =
                then.saved_us.map_or_else(|| "saves an unknown time".to_owned(), |us| format!("saves {}", micros(us)));
            let delta = match then.delta_us {
                None => String::new(),
                Some(us) if us.abs() < 1e-6 => ", as much as now".to_owned(),
                Some(us) => format!(", now {} {}", micros(us.abs()), if us > 0.0 { "more" } else { "less" }),
            };
            format!("The baseline {runs}: {saves}{delta}")
        }
    };
    ui.label(RichText::new(text).small().color(scene.theme.accent)).on_hover_text(versus.name.as_str());
}

/// That somebody else set this by hand, or took that back, in a session of several people.
fn touched_ui(ui: &mut Ui, scene: &Scene<'_>, site: &Site, seen: &GemmView, choice: &Choice) {
    let ConnectionState::Joined { me, .. } = scene.connection else { return };
    let touch = scene.session.reviewing.touched.get(&(site.id.clone(), seen.gemm));
    // The same person may have two windows.
    let others = |touch: &&Touch| touch.key != 0 && touch.key != me.key && touch.by != me.name;
    let Some(touch) = touch.filter(others) else { return };
    let did = if choice.source == ChoiceSource::Override { "chose this" } else { "let the policy choose again" };
    let text = format!("{} {did} {}", shorten(&touch.by, 32), number::ago(now().seconds_since(touch.at)));
    ui.label(RichText::new(text).small().color(scene.theme.weak)).on_hover_text(format!("At {}", touch.at));
    ui.ctx().request_repaint_after(AGO_LASTS);
}

/// The casts that this GEMM has in common with another of the site.
fn shared_ui(ui: &mut Ui, scene: &Scene<'_>, view: &SiteView, seen: &GemmView) {
    for cast in view.shared.iter().filter(|cast| cast.gemms.contains(&seen.gemm)) {
        let [a, b] = cast.gemms;
        let saved = micros(cast.saved_us);
        let text =
            format!("Shares the cast of {} between {a} and {b}: saves {saved} (modelled)", cast.operand.symbol());
        ui.label(RichText::new(text).small().color(scene.theme.weak))
            .on_hover_text("Both read the same codes, only laid out differently: one cast writes both");
    }
}

/// Whose codes x is, and what is stored for whom. The weight gradient reads BF16 whatever the forward GEMM reads.
fn chain_ui(ui: &mut Ui, scene: &mut Scene<'_>, view: &SiteView, seen: &GemmView) {
    let Some(chain) = view.chain.as_ref().filter(|_| seen.gemm != Gemm::Dgrad) else { return };
    if let Some(read) = &chain.reads {
        let text = match seen.gemm {
            Gemm::Fprop => {
                format!("x arrives as codes of scale {}: saves {}", number::trimmed(read.scale), micros(read.saved_us))
            }
            _ if read.beside_bf16 => "x is read in BF16, which is stored beside its codes".to_owned(),
            _ => "x is there as codes alone: this plan is for inference".to_owned(),
        };
        let hint =
            "The site before stores them in its epilogue: no cast on the way in; modelled where no sites were timed";
        links_ui(ui, scene, (&text, hint), "from", std::slice::from_ref(&read.from));
    }
    if let Some(stored) = chain.stores.as_ref().filter(|_| seen.gemm == Gemm::Fprop) {
        let scale = number::trimmed(stored.scale);
        let text = match stored.beside_us {
            Some(us) => format!("Stores BF16, and codes of scale {scale} for {} more", micros(us)),
            None => format!("Stores codes of scale {scale}, and no BF16"),
        };
        let hint = "A byte an element at the bandwidth of a copy; modelled";
        links_ui(ui, scene, (&text, hint), "for", &stored.to);
    }
}

fn links_ui(ui: &mut Ui, scene: &mut Scene<'_>, (text, hint): (&str, &str), word: &str, sites: &[SiteId]) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        ui.label(RichText::new(text).small().color(scene.theme.weak)).on_hover_text(hint);
        ui.label(RichText::new(word).small().color(scene.theme.weak));
        for id in sites {
            let link = ui.link(RichText::new(shorten(id.as_str(), 32)).small());
            let label = format!("Go to {id}");
            link.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Link, true, &label));
            if link.on_hover_text(format!("Select {id}")).clicked() {
                scene.view.select(id.clone(), None);
                scene.view.reveal = true;
            }
        }
    });
}

fn runners_up_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, seen: &GemmView, choice: &Choice) {
    if choice.runners_up.is_empty() {
        return;
    }
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        ui.label(RichText::new("Runners-up:").small().color(scene.theme.weak));
        for kernel in &choice.runners_up {
            kernel_link_ui(ui, scene, site, seen, kernel);
        }
    });
    if let Some((kernel, us)) = &seen.ahead {
        let text = match *us >= 0.0 {
            true => format!("{} ahead of {kernel}", micros(*us)),
            false => format!("{} behind {kernel} alone; what it shares or need not cast makes up for it", micros(-us)),
        };
        ui.label(RichText::new(text).small().color(scene.theme.weak))
            .on_hover_text("In the time of the policy's baseline, as in the totals");
    }
}

fn kernel_link_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, seen: &GemmView, kernel: &KernelId) {
    let link = ui.link(RichText::new(shorten(kernel.as_str(), 32)).small());
    if link.on_hover_text(format!("Look at {kernel}")).clicked() {
        scene.view.select(site.id.clone(), Some(Column { gemm: seen.gemm, kernel: kernel.clone() }));
    }
}

/// What would change the verdict: of the chosen kernel, and where high precision stays, of the nearest.
fn verdict_ui(ui: &mut Ui, scene: &mut Scene<'_>, seen: &GemmView) {
    let chosen = seen.kernels.iter().find(|line| line.is_taken() && line.is_low);
    if let Some(line) = chosen {
        outlook_ui(ui, scene, line);
    }
    let nearest = seen.nearest.map(|at| &seen.kernels[at]).filter(|_| chosen.is_none());
    if let Some(line) = nearest {
        let text = format!("Nearest in low precision: {}", line.kernel);
        ui.add(egui::Label::new(RichText::new(text).small()).truncate());
        outlook_ui(ui, scene, line);
    }
    let undecided = |line: &KernelLine| {
        let open = matches!(line.verdict_margin.error, ErrorOutlook::Uncertain { .. });
        line.is_low && line.unsupported.is_none() && open
    };
    let num = seen.kernels.iter().filter(|line| undecided(line)).count();
    if let Some(draws) = seen.draws_to_ask {
        ui.horizontal_wrapped(|ui| {
            scene.button_ui(ui, Action::Site(SiteAction::DrawMore));
            let open = if num == 0 { "every verdict stands".to_owned() } else { format!("{num} uncertain") };
            let text = format!("up to {} draws each; {open}", number::count(draws));
            ui.label(RichText::new(text).small().color(scene.theme.weak));
        });
    }
}

fn outlook_ui(ui: &mut Ui, scene: &Scene<'_>, line: &KernelLine) {
    ui.horizontal_top(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        glyph_ui(ui, &scene.theme, line.quadrant);
        ui.vertical(|ui| {
            for text in site_words::outlook_lines(line) {
                ui.label(RichText::new(text).small());
            }
        });
    });
}
