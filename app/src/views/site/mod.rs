//! Everything about the selected site: what it is and what is around it, every kernel of its GEMMs, the
//! choice, why, and what would change it.

mod around;
mod choice;
mod details;
mod kernels;
mod overriding;

use egui::{Align2, FontId, Rect, RichText, ScrollArea, Sense, Stroke, StrokeKind, Ui, pos2, vec2};
use loka_core::{
    dispatch::ChoiceSource,
    model::{Gemm, Site},
    views::{Column, GemmView, SiteView},
};

use crate::{
    theme::{Glyph, Term, explained, explained_ui, number, paint_glyph, shorten, verdict_word, with_terms},
    views::{
        Scene,
        mods::{at_site_ui, switches_ui},
    },
};

/// A tab's height: the GEMM, and below it what it got.
const TAB: f32 = 38.0;

pub fn site_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let site = scene.view.site.as_ref().and_then(|id| scene.session.site(id)).cloned();
    let metric = scene.view.metric;
    let seen = site.and_then(|site| {
        let view = scene.view.site_view.site(scene.derived, &site.id, metric)?;
        Some((site, view))
    });
    let Some((site, view)) = seen else {
        ui.add_space(8.0);
        ui.label(RichText::new("Select a site to see its kernels").color(scene.theme.weak));
        return;
    };
    ScrollArea::vertical().id_salt("inspector").auto_shrink([false, false]).show(ui, |ui| {
        around::head_ui(ui, scene, &site, &view);
        ui.add_space(6.0);
        let gemm = tabs_ui(ui, scene, &site, &view);
        let seen = &view.gemms[gemm as usize];
        let kernel = looked_at(scene, seen);
        choice::choice_ui(ui, scene, &site, &view, seen);
        ui.add_space(4.0);
        switches_ui(ui, scene, &site);
        // The form stands where the eye is: under a long table it would open out of sight.
        overriding::form_ui(ui, scene, &site, seen);
        kernels::kernels_ui(ui, scene, &site, &view, seen);
        details::details_ui(ui, scene, &site, seen, &kernel);
        ui.separator();
        at_site_ui(ui, scene, &site, gemm);
    });
}

/// The kernel that a person selected, else the chosen one.
fn looked_at(scene: &Scene<'_>, seen: &GemmView) -> loka_core::model::KernelId {
    let column = scene.view.column.as_ref().filter(|column| column.gemm == seen.gemm);
    column.map_or_else(|| seen.first_look(), |column| column.kernel.clone())
}

/// The three GEMMs side by side, each with its verdict and its kernel; gives the one that is shown.
fn tabs_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, view: &SiteView) -> Gemm {
    let shown = scene.view.column.as_ref().map_or(Gemm::Fprop, |column| column.gemm);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        let width = ((ui.available_width() - 12.0) / 3.0).max(40.0);
        for seen in &view.gemms {
            let (rect, response) = ui.allocate_exact_size(vec2(width, TAB), Sense::click());
            let (gemm, is_shown) = (seen.gemm, seen.gemm == shown);
            response.widget_info(|| {
                egui::WidgetInfo::selected(egui::Role::Button, true, is_shown, format!("Inspect {gemm}"))
            });
            paint_tab(ui, scene, rect, seen, is_shown, response.hovered() || response.has_focus());
            let about = with_terms(&tab_hint(seen), [Term::of_gemm(gemm)]);
            if explained(response, &about).clicked() {
                let kernel = seen.first_look();
                scene.view.select(site.id.clone(), Some(Column { gemm, kernel }));
            }
        }
    });
    ui.add_space(2.0);
    let shape = RichText::new(around::gemm_shape(&view.gemms[shown as usize])).small().color(scene.theme.weak);
    explained_ui(ui, shape, "The GEMM's output and the dimension that it sums over: errors grow with it");
    shown
}

fn paint_tab(ui: &Ui, scene: &Scene<'_>, rect: Rect, seen: &GemmView, shown: bool, pointed: bool) {
    let (theme, painter) = (&scene.theme, ui.painter());
    if shown || pointed {
        painter.rect_filled(rect, 4.0, theme.accent.gamma_multiply(if shown { 0.18 } else { 0.08 }));
    }
    let line = if shown { theme.accent } else { theme.line };
    painter.rect_stroke(rect, 4.0, Stroke::new(1.0, line), StrokeKind::Inside);
    let left = rect.left() + 8.0;
    let mut text = left;
    if let Some(quadrant) = seen.verdict {
        let glyph = Glyph { radius: 4.0, ..Glyph::new(quadrant) };
        paint_glyph(painter, pos2(left + 4.0, rect.top() + 12.0), glyph, theme.verdict(quadrant));
        text += 14.0;
    }
    let by_hand = seen.choice.as_ref().is_some_and(|choice| choice.source == ChoiceSource::Override);
    let name = format!("{}{}", seen.gemm, if by_hand { " · set" } else { "" });
    painter.text(pos2(text, rect.top() + 12.0), Align2::LEFT_CENTER, name, FontId::proportional(13.0), theme.text);
    let choice = seen.choice.as_ref().map_or("not chosen", |choice| choice.kernel.recipe());
    let choice = shorten(choice, ((rect.width() - 14.0) / 6.0) as usize);
    let font = FontId::proportional(11.0);
    painter.text(pos2(left, rect.bottom() - 10.0), Align2::LEFT_CENTER, choice, font, theme.weak);
}

fn tab_hint(seen: &GemmView) -> String {
    let verdict = seen.verdict.map_or_else(String::new, |quadrant| match seen.stays_high() {
        true => format!("\nThe nearest in low precision: {}", verdict_word(quadrant)),
        false => format!("\n{}", verdict_word(quadrant)),
    });
    match &seen.choice {
        Some(choice) => format!("{}: {}{verdict}", choice.kernel, choice.reason),
        None => "No choice yet".to_owned(),
    }
}

/// `1.3 µs`.
pub(super) fn micros(us: f64) -> String {
    format!("{} µs", number::micros(us))
}
