//! A cell in words: for the tooltip, and for who cannot see it.

use loka_core::{
    model::{LatencySource, SiteId},
    views::{Cell, Column, Fold, Line, Mark, ShownColumn, median},
};

use super::{axis::steps_text, controls::series_title, frame::Frame, table::HeatmapTable};
use crate::{
    theme::{number, source_word, verdict_word},
    views::Scene,
};

/// A site's cell at a shown column.
pub fn cell_text(scene: &Scene<'_>, table: &HeatmapTable, site: usize, shown: usize) -> String {
    let Some(id) = scene.session.index().ids().get(site) else { return String::new() };
    match table.column(shown).zip(table.kernel_at(site, shown)) {
        Some((of, column)) => kernel_text(scene, id, of, &column),
        None => step_text(table, id, site, shown),
    }
}

fn kernel_text(scene: &Scene<'_>, site: &SiteId, of: &ShownColumn, column: &Column) -> String {
    let alike = match of.is_closed() {
        true => format!(", one of {} that compute the same", of.kernels.len()),
        false => String::new(),
    };
    let head = format!("{site} · {}\n{}{alike}", column.gemm, column.kernel);
    let label = scene.view.metric.label();
    let relative = match scene.derived.versus() {
        Some(_) => " over the baseline's",
        None if scene.view.relative => ", relative to BF16",
        None => "",
    };
    match scene.derived.cell(site, column, scene.view.metric, scene.view.relative) {
        Cell::Value { estimate, quadrant } => {
            let choice = scene.derived.plan.pick(site, column.gemm).filter(|choice| choice.kernel == column.kernel);
            let by_hand = scene.session.document.overrides.contains_key(&(site.clone(), column.gemm));
            let chosen = match choice {
                Some(_) if by_hand => " · chosen by hand",
                Some(_) => " · chosen",
                None => "",
            };
            let (value, verdict) = (number::sentence(estimate), verdict_word(quadrant));
            let compared = compared_text(scene, site, column);
            format!("{head}\n{label}{relative} {value}{compared}\n{verdict}{chosen}{}", speed_text(scene, site, column))
        }
        Cell::Missing { reason } => format!("{head}\nNo value: {reason}"),
        Cell::Waiting => format!("{head}\nNot probed yet"),
    }
}

/// Both values behind a quotient, with the kernel that the baseline's is of.
fn compared_text(scene: &Scene<'_>, site: &SiteId, column: &Column) -> String {
    match scene.derived.compared(site, column, scene.view.metric) {
        Some((Cell::Value { estimate, .. }, kernel, base)) => {
            format!("\nNow {}, baseline {} by {kernel}", number::sentence(estimate), number::sentence(base))
        }
        _ => String::new(),
    }
}

/// The kernel's speed there and where it came from.
fn speed_text(scene: &Scene<'_>, site: &SiteId, column: &Column) -> String {
    let row = scene.session.row(site, column.gemm, &column.kernel);
    let Some((row, speedup)) = row.and_then(|row| Some((row, row.speedup()?))) else {
        return format!("\n{}", source_word(LatencySource::None));
    };
    let (times, source) = (number::times(speedup), source_word(row.latency.source));
    format!("\n{times}, {source}\nLatency {}", row.latency.told())
}

fn step_text(table: &HeatmapTable, site: &SiteId, at: usize, shown: usize) -> String {
    let Some((series, columns)) = table.steps().and_then(|series| Some((series, series.columns.get(shown)?))) else {
        return site.to_string();
    };
    let (value, mark) = series.cells().get(at, shown);
    let value = match (mark.has(Mark::VALUE), value.is_finite()) {
        (true, true) => number::plain(f64::from(value)),
        (true, false) => "not finite".to_owned(),
        (false, _) => "not recorded here".to_owned(),
    };
    let most = if columns.0 == columns.1 { "" } else { ", the largest of them" };
    format!("{site}\n{} {}: {value}{most}", series_title(&series.name), steps_text(*columns))
}

/// `row+fast, 4 kernels`, or the only one.
pub fn column_name(table: &HeatmapTable, column: &ShownColumn) -> String {
    match column.kernels.as_slice() {
        [one] => table.grid.columns.get(*one).map_or_else(String::new, |of| of.kernel.to_string()),
        several => format!("{}, {} kernels", column.recipe, several.len()),
    }
}

/// All of a folder's sites at one column.
pub fn folder_text(scene: &Scene<'_>, frame: &Frame, line: &Line, fold: Option<&Fold>, shown: usize) -> String {
    let table = &frame.table;
    let ids = scene.session.index().ids();
    let count = number::count(line.num_sites() as u64);
    let column = match (table.column(shown), table.steps()) {
        (Some(column), _) => format!("{} · {}", column_name(table, column), column.gemm),
        (None, Some(series)) => {
            let steps = series.columns.get(shown).map(|steps| steps_text(*steps)).unwrap_or_default();
            format!("{} {steps}", series_title(&series.name))
        }
        _ => String::new(),
    };
    let head = format!("{} · {count} sites\n{column}", line.path(ids));
    let Some(fold) = fold else { return format!("{head}\nBeing summed up") };
    if fold.num_values == 0 {
        let why = if fold.mark.has(Mark::MISSING) { "none of them has a value" } else { "none is probed yet" };
        return format!("{head}\nNo value: {why}");
    }
    let label = match (&table.series, scene.derived.versus()) {
        (Some(_), _) => "value".to_owned(),
        (None, Some(_)) => format!("{} over the baseline's", scene.view.metric.label()),
        (None, None) => scene.view.metric.label().to_owned(),
    };
    let worst = ids.get(fold.worst_site as usize).map_or("", SiteId::as_str);
    let median = median(table.cells(), frame.lines.sites(line), shown);
    let (value, median) = (number::plain(f64::from(fold.worst)), number::plain(f64::from(median)));
    let known = number::count(fold.num_values);
    let judged = match table.series {
        Some(_) => String::new(),
        None => format!("\n{} unsafe, {} chosen", number::count(fold.num_unsafe), number::count(fold.num_chosen)),
    };
    format!("{head}\nWorst {label} {value} at {worst}\nMedian {median} over {known} with a value{judged}")
}
