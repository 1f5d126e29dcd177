//! The card of a brushed area, for the quadrant and the heatmap alike: what lies in it, in sums that core made, and what
//! can be done with all of it.

use egui::{
    Align, Button, FontId, Frame, Grid, Id, Layout, Link, Margin, Rect, RichText, Role, Sense, Ui, WidgetInfo, Window,
    pos2, vec2,
};
use loka_core::{
    format::short_kernel,
    model::{LatencySource, Quadrant},
    views::{BrushTotals, Column, WorstRow},
};

use crate::{
    commands::{Action, BrushAction},
    layout::Pane,
    theme::{Glyph, SMALL, Term, explained_ui, number, paint_glyph, shorten, source_word, verdict_word, with_terms},
    views::Scene,
};

const WIDTH: f32 = 316.0;
/// About as high as it gets: where it stands first must hold it.
const HEIGHT: f32 = 280.0;
/// Characters that a site's name has room for.
const NAME: usize = 30;

/// Beside `area`, which was brushed in that pane; where a person moved it to, from then on.
pub fn card_ui(ui: &Ui, scene: &mut Scene<'_>, pane: Pane, area: Rect) {
    if scene.view.brush.pane() != Some(pane) || scene.view.brush.drag.is_some() {
        return;
    }
    let Some(totals) = scene.view.brush.totals(scene.derived) else { return };
    let title =
        format!("{} at {}", number::counted(totals.num_gemms, "GEMM"), number::counted(totals.num_sites, "site"));
    // The same one while its area grows.
    let id = Id::unique("brushed area").with(scene.view.brush.begun);
    let frame = Frame::window(ui.style()).inner_margin(Margin::same(10));
    let window = Window::new("Brushed area").id(id).title_bar(false).resizable(false).frame(frame);
    // Until it is drawn egui takes it to be large, and would move it to where that fits.
    let window = window.default_size(vec2(WIDTH, HEIGHT)).default_pos(beside(ui, area));
    let shown = window.constrain_to(ui.ctx().content_rect()).show(ui.ctx(), |ui| {
        ui.set_width(WIDTH);
        ui.spacing_mut().item_spacing = vec2(6.0, 3.0);
        let closed = title_ui(ui, scene, &title);
        verdicts_ui(ui, scene, &totals);
        ui.add_space(2.0);
        sums_ui(ui, scene, &totals);
        ui.separator();
        actions_ui(ui, scene);
        closed
    });
    if shown.and_then(|shown| shown.inner) == Some(true) {
        scene.view.brush.forget();
    }
}

/// `true`: it is to be closed.
fn title_ui(ui: &mut Ui, scene: &Scene<'_>, title: &str) -> bool {
    ui.horizontal(|ui| {
        ui.label(RichText::new(title).strong().color(scene.theme.text));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let action = Action::Brush(BrushAction::Clear);
            let button = ui.add(Button::new(RichText::new("×").size(15.0)).frame(false));
            button.widget_info(|| WidgetInfo::labeled(Role::Button, true, action.text()));
            button.on_hover_text(action.hint(ui.ctx())).clicked()
        })
        .inner
    })
    .inner
}

/// To its right where there is room, else to its left, else in the window's corner.
fn beside(ui: &Ui, area: Rect) -> egui::Pos2 {
    const APART: f32 = 10.0;
    let all = ui.ctx().content_rect();
    let whole = WIDTH + 22.0;
    let left = match () {
        () if area.right() + APART + whole <= all.right() => area.right() + APART,
        () if area.left() - APART - whole >= all.left() => area.left() - APART - whole,
        () => all.right() - whole,
    };
    pos2(left, area.top().min(all.bottom() - HEIGHT - 30.0).max(all.top()))
}

/// Shapes with how many rows stand under each.
fn verdicts_ui(ui: &mut Ui, scene: &Scene<'_>, totals: &BrushTotals) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(8.0, 0.0);
        let rows = format!("{}:", number::counted(totals.num_rows, "kernel"));
        let about = "Each kernel at each GEMM counts once, chosen or not";
        explained_ui(ui, RichText::new(rows).small().color(scene.theme.weak), about);
        for quadrant in Quadrant::BEST_FIRST.into_iter().filter(|of| totals.num(*of) > 0) {
            let text = format!("{} {}", number::count(totals.num(quadrant) as u64), verdict_word(quadrant));
            counted_ui(ui, scene, Some(quadrant), &text);
        }
        for (count, what) in [(totals.num_high, "in high precision"), (totals.num_waiting, "not probed yet")] {
            if count > 0 {
                counted_ui(ui, scene, None, &format!("{} {what}", number::count(count as u64)));
            }
        }
    });
}

/// A shape with its words, which no line's end parts.
fn counted_ui(ui: &mut Ui, scene: &Scene<'_>, quadrant: Option<Quadrant>, text: &str) {
    let color = if quadrant.is_some() { scene.theme.text } else { scene.theme.weak };
    let galley = ui.painter().layout_no_wrap(text.to_owned(), FontId::proportional(SMALL), color);
    let shape = if quadrant.is_some() { 13.0 } else { 0.0 };
    let (rect, response) = ui.allocate_exact_size(vec2(shape + galley.size().x, 17.0), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, text));
    ui.painter().galley(pos2(rect.left() + shape, rect.center().y - galley.size().y / 2.0), galley, color);
    if let Some(quadrant) = quadrant {
        let center = pos2(rect.left() + 5.0, rect.center().y);
        paint_glyph(ui.painter(), center, Glyph::new(quadrant), scene.theme.verdict(quadrant));
        response.on_hover_text(Term::of_verdict(quadrant).text());
    }
}

fn sums_ui(ui: &mut Ui, scene: &mut Scene<'_>, totals: &BrushTotals) {
    Grid::new("brushed sums").num_columns(2).min_col_width(76.0).spacing([10.0, 3.0]).show(ui, |ui| {
        line_ui(ui, scene, "Time", &time_text(totals), &time_about(totals));
        let saved = match totals.num_low {
            0 => "nothing: no GEMM here runs in FP8".to_owned(),
            _ => number::micros_of(totals.saved_us, totals.all_saved_us),
        };
        let about = with_terms("Of all that the plan saves, GEMM by GEMM, as in its table", [Term::Saved]);
        line_ui(ui, scene, "Saved", &saved, &about);
        let hand = match totals.num_overrides {
            0 => String::new(),
            count => format!(", {} by hand", number::count(count as u64)),
        };
        let low =
            format!("{} of {}{hand}", number::count(totals.num_low as u64), number::counted(totals.num_gemms, "GEMM"));
        line_ui(ui, scene, "In FP8", &low, &Term::LowPrecision.text());
        line_ui(ui, scene, "Loss cost", &cost_text(totals), &cost_about(totals));
        let about = with_terms("The most of any backward GEMM here that the plan runs in FP8", [Term::NoiseShare]);
        match &totals.noise {
            Some(noise) => worst_ui(ui, scene, "Noise share", noise, &about),
            None if totals.num_backward_low > 0 => line_ui(ui, scene, "Noise share", "not known", &about),
            None => line_ui(ui, scene, "Noise share", "none: no backward GEMM here runs in FP8", &about),
        }
        if let Some(worst) = &totals.worst {
            let about = "The kernel here that errs most against its bound, chosen or not";
            worst_ui(ui, scene, "Worst", worst, about);
        }
    });
}

fn line_ui(ui: &mut Ui, scene: &Scene<'_>, head: &str, text: &str, about: &str) {
    explained_ui(ui, RichText::new(head).color(scene.theme.weak), about);
    ui.label(text);
    ui.end_row();
}

/// With the row's name as a way to it.
fn worst_ui(ui: &mut Ui, scene: &mut Scene<'_>, head: &str, worst: &WorstRow, about: &str) {
    explained_ui(ui, RichText::new(head).color(scene.theme.weak), about);
    ui.vertical(|ui| {
        ui.spacing_mut().item_spacing.y = 1.0;
        let (value, half) = number::with_interval(worst.error);
        let half = half.map_or_else(String::new, |half| format!(" ± {half}"));
        let metric = if head == worst.metric.label() { String::new() } else { format!("{} ", worst.metric.label()) };
        ui.label(format!("{metric}{value}{half}"));
        let Some(site) = scene.session.index().ids().get(worst.at).cloned() else { return };
        let short = short_kernel(worst.kernel.as_str());
        let text = format!("{} {}, {short}", shorten(site.as_str(), NAME.saturating_sub(short.len() / 2)), worst.gemm);
        let link = ui.add(Link::new(RichText::new(text).small()));
        if link.on_hover_text(format!("Select {site} · {}\n{}", worst.gemm, worst.kernel)).clicked() {
            scene.view.select(site, Some(Column { gemm: worst.gemm, kernel: worst.kernel.clone() }));
            scene.view.reveal = true;
        }
    });
    ui.end_row();
}

fn time_text(totals: &BrushTotals) -> String {
    let Some(share) = totals.time_share().filter(|_| totals.baseline_us > 0.0) else {
        return "not known".to_owned();
    };
    format!("{}, {} of the step", number::micros_of(totals.baseline_us, totals.step_us), number::percent(share))
}

fn time_about(totals: &BrushTotals) -> String {
    let sources = [LatencySource::Measured, LatencySource::Recorded, LatencySource::Modelled];
    let known = sources.into_iter().zip(totals.sources).filter(|(_, count)| *count > 0);
    let known: Vec<String> =
        known.map(|(of, count)| format!("{} {}", number::count(count as u64), source_word(of))).collect();
    let known = if known.is_empty() { String::new() } else { format!("\n{}", known.join(", ")) };
    let untimed = match totals.num_untimed {
        0 => String::new(),
        count => format!("\n{} without a time", number::counted(count, "GEMM")),
    };
    format!("These GEMMs in BF16, every call of a step counted, of all GEMMs of the model{known}{untimed}")
}

fn cost_text(totals: &BrushTotals) -> String {
    let outside = match totals.num_cost_out_of_range {
        0 => String::new(),
        count => format!("; {} outside its range", number::counted(count, "GEMM")),
    };
    let Some(cost) = totals.loss_cost else {
        return match totals.num_forward {
            0 => "none: no forward GEMM is in it".to_owned(),
            _ => format!("not known{outside}"),
        };
    };
    let share = totals
        .budget
        .filter(|budget| *budget > 0.0)
        .map_or_else(String::new, |budget| format!(", {} of the budget", number::percent(cost.hi / budget)));
    format!("{}, at most {}{share}{outside}", number::plain(cost.value), number::plain(cost.hi))
}

fn cost_about(totals: &BrushTotals) -> String {
    let budget = totals
        .budget
        .map_or_else(String::new, |budget| format!("; the policy allows the whole plan {}", number::plain(budget)));
    let text = format!("In units of the loss, of the kernels that the plan runs at the forward GEMMs here{budget}");
    with_terms(&text, [Term::LossCost])
}

/// What is greyed says why.
fn actions_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(4.0, 4.0);
        for (action, text) in [
            (BrushAction::Override, "Override…"),
            (BrushAction::KeepHigh, "Keep in BF16…"),
            (BrushAction::Leave, "Leave to the policy"),
            (BrushAction::DrawMore, "Draw more"),
            (BrushAction::NeedsWork, "Needs work"),
            (BrushAction::Select, "Select"),
            (BrushAction::Filter, "Filter to it"),
            (BrushAction::Copy, "Copy table"),
        ] {
            button_ui(ui, scene, action, text);
        }
    });
}

fn button_ui(ui: &mut Ui, scene: &mut Scene<'_>, action: BrushAction, text: &str) {
    let action = Action::Brush(action);
    let problem = action.problem(scene.scope());
    let hint = action.hint(ui.ctx());
    let why = problem.as_ref().map_or_else(String::new, |problem| format!("{hint}\nNot now: {problem}"));
    let button = ui.add_enabled(problem.is_none(), Button::new(RichText::new(text).small()));
    if button.on_hover_text(hint).on_disabled_hover_text(why).clicked() {
        scene.act(action);
    }
}
