//! The selected kernel in full: every metric with its interval, the latency's parts and origin, how far the
//! sampler can be trusted.

use egui::{Grid, RichText, Ui};
use loka_core::{
    model::{Gemm, Kernel, KernelId, LatencySource, Metric, ResultRow, Site, kernel},
    session::engine_title,
    views::{Faithful, GemmView, site_words},
};

use super::micros;
use crate::{
    theme::{Term, explained_ui, number, source_ui, source_word, term_ui, with_terms},
    views::Scene,
};

pub fn details_ui(ui: &mut Ui, scene: &mut Scene<'_>, site: &Site, seen: &GemmView, kernel: &KernelId) {
    let Some(row) = scene.session.row(&site.id, seen.gemm, kernel).cloned() else { return };
    ui.add_space(6.0);
    let about = seen.line(kernel).map_or("", |line| line.about);
    let name = egui::Label::new(RichText::new(kernel.as_str()).strong()).truncate();
    ui.add(name).on_hover_text(with_terms(about, Term::of_kernel(kernel.as_str())));
    if !row.supported {
        let reason = row.reason.as_deref().unwrap_or("no reason was given");
        ui.label(RichText::new(format!("Unsupported here: {reason}")).color(scene.theme.weak));
        return;
    }
    if let Some(line) = seen.line(kernel).filter(|line| line.is_low && !line.is_taken()) {
        for text in site_words::outlook_lines(line) {
            ui.label(RichText::new(text).small());
        }
    }
    scale_ui(ui, scene, &row);
    metrics_ui(ui, scene, seen, &row);
    if let Some(noise) = row.error.as_ref().and_then(|error| error.noise) {
        ui.label(RichText::new(site_words::noise_words(noise, site.examples())).small());
    }
    drawn_ui(ui, scene, &row);
    fidelity_ui(ui, scene, &row);
    latency_ui(ui, scene, &row);
}

/// The scale that a kernel is given before it has seen the operand.
fn scale_ui(ui: &mut Ui, scene: &Scene<'_>, row: &ResultRow) {
    let Some(known) = row.static_scale else { return };
    let operand = if row.gemm == Gemm::Fprop { "x" } else { "dy" };
    let text = RichText::new(format!("Static scale of {operand} {known}")).small().color(scene.theme.weak);
    let about = "A code stands for code times scale. A step saturates where a value lies beyond 448 times the scale.";
    explained_ui(ui, text, &with_terms(about, [Term::StaticScale, Term::Saturation]));
}

fn metrics_ui(ui: &mut Ui, scene: &Scene<'_>, seen: &GemmView, row: &ResultRow) {
    let weak = scene.theme.weak;
    Grid::new("metrics").num_columns(3).spacing([12.0, 1.0]).show(ui, |ui| {
        let loss = scene.session.trace.as_ref().map_or(0.0, |trace| trace.manifest().loss.value);
        for metric in Metric::ALL {
            let estimate = row.metric(metric);
            // Results of before there were these have nothing to say of them.
            if matches!(metric, Metric::NoiseShare | Metric::Bias) && estimate.is_none() {
                continue;
            }
            let (value, half) = match site_words::metric_words(metric, estimate) {
                (value, _) if metric == Metric::LossCost && row.loss_cost_means_nothing(loss) => {
                    (value, "outside its range".to_owned())
                }
                both => both,
            };
            let bound = (metric == seen.bound.metric).then(|| number::trimmed(seen.bound.limit));
            let name = match bound {
                Some(limit) => format!("{} {} {limit}", metric.label(), metric.sign()),
                None => metric.label().to_owned(),
            };
            term_ui(ui, RichText::new(name).small().color(weak), Term::of_metric(metric));
            let told = ui.label(RichText::new(value).monospace().small());
            if let Some(estimate) = estimate {
                told.on_hover_text(number::sentence(estimate));
            }
            ui.label(RichText::new(half).small().color(weak));
            ui.end_row();
        }
    });
}

fn drawn_ui(ui: &mut Ui, scene: &Scene<'_>, row: &ResultRow) {
    let Some(error) = &row.error else {
        let why = row.reason.as_deref().unwrap_or("not drawn yet");
        ui.label(RichText::new(format!("No error: {why}")).small().color(scene.theme.weak));
        return;
    };
    let skipped = match error.zeros_skipped {
        0 => String::new(),
        zeros => format!(", {} zeros skipped", number::count(zeros)),
    };
    let (draws, by) = (number::count(error.draws), engine_title(&row.engine));
    let text = format!("{draws} draws, {} sampler, {by} engine{skipped}", row.sampler);
    let about = with_terms(&format!("On {}, seed {}.", row.device, row.seed), [Term::Draw, Term::Interval]);
    explained_ui(ui, RichText::new(text).small().color(scene.theme.weak), &about);
}

/// The sampler against rows that it was not fitted on.
fn fidelity_ui(ui: &mut Ui, scene: &Scene<'_>, row: &ResultRow) {
    let both = Faithful::of(row);
    if both.is_empty() {
        let text = "Sampler not checked here: no held-out rows, or the site reads a modified block";
        ui.label(RichText::new(text).small().color(scene.theme.weak));
        return;
    }
    for of in &both {
        ui.label(RichText::new(site_words::faithful_words(of)).small().color(scene.theme.weak)).on_hover_text(format!(
            "How faithful the sampler is. The two may lie {} apart by chance: held-out rows are one batch, with a scatter of its own.",
            number::plain(of.chance)
        ));
        if of.differs {
            ui.label(RichText::new(site_words::unfaithful_words(of)).small().color(scene.theme.warning));
        }
    }
}

fn latency_ui(ui: &mut Ui, scene: &Scene<'_>, row: &ResultRow) {
    let latency = &row.latency;
    let has_tail = kernel(row.kernel.as_str()).is_some_and(Kernel::has_tail);
    // What a kernel with the tail inside replaces was timed beside it, and is in its baseline.
    let tail = if has_tail { "tail by itself" } else { "tail (modelled)" };
    let cached = latency.cached_us.filter(|_| row.static_scale.is_some());
    let parts = [
        ("GEMM", latency.gemm_us),
        ("casts", latency.cast_us),
        ("weight cast before", cached),
        (tail, latency.tail_us),
    ];
    let known = parts.iter().filter_map(|(name, time)| Some(format!("{name} {}", micros((*time)?))));
    let times = known.collect::<Vec<_>>().join(" · ");
    if !times.is_empty() {
        let about = "Each timed by itself: launches overlap, so that they need not add up to the latency";
        let terms = [Some(Term::Casts), cached.map(|_| Term::CachedCast), latency.tail_us.map(|_| Term::Tail)];
        let about = with_terms(about, terms.into_iter().flatten());
        explained_ui(ui, RichText::new(times).small().color(scene.theme.weak), &about);
    }
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        let line = latency_line(row);
        let hint = with_terms(&line, [Term::of_source(latency.source)]);
        source_ui(ui, &scene.theme, latency.source, &line).on_hover_text(hint);
    });
}

/// Where the latency came from. Its note begins with that word where there is one.
fn latency_line(row: &ResultRow) -> String {
    let (note, word) = (row.latency.told(), source_word(row.latency.source));
    match row.latency.source {
        LatencySource::None if note.is_empty() => "No latency".to_owned(),
        LatencySource::None => format!("No latency: {note}"),
        _ if note.starts_with(word) => format!("Latency {note}"),
        _ => format!("Latency {word}{}{note}", if note.is_empty() { "" } else { ": " }),
    }
}
