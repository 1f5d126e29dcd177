//! A plan as rows: one a site and GEMM.

use loka_core::{
    dispatch::{Choice, ChoiceSource},
    model::{Gemm, Metric},
    plan::{Plan, PlanSite},
    tables::Columns,
};

/// Fills the columns of the table `plans`. A GEMM that never runs has a row, with `runs` false.
pub fn plan_columns(columns: &mut impl Columns, plan: &Plan) {
    let rows: Vec<(&PlanSite, Gemm, &Choice)> =
        plan.sites.iter().flat_map(|site| Gemm::ALL.map(|gemm| (site, gemm, site.choice(gemm)))).collect();
    let mods: Vec<String> =
        rows.iter().map(|(site, ..)| plan.mods.get(&site.site).map_or_else(String::new, ToString::to_string)).collect();
    let size = |size: Option<usize>| size.map(|size| size as i64);
    columns.text("site", rows.iter().map(|(site, ..)| Some(site.site.as_str())));
    columns.text("gemm", rows.iter().map(|(_, gemm, _)| Some(gemm.as_str())));
    columns.text("kernel", rows.iter().map(|(_, _, choice)| Some(choice.kernel.as_str())));
    columns.text("library", rows.iter().map(|(_, _, choice)| Some(choice.kernel.library())));
    columns.text("recipe", rows.iter().map(|(_, _, choice)| Some(choice.kernel.recipe())));
    columns.text("mods", mods.iter().map(|mods| Some(mods.as_str())));
    columns.int("m", rows.iter().map(|(site, ..)| size(site.m)));
    columns.int("k", rows.iter().map(|(site, ..)| size(site.k)));
    columns.int("n", rows.iter().map(|(site, ..)| size(site.n)));
    columns.int("calls", rows.iter().map(|(site, ..)| size(Some(site.calls))));
    columns.flag("runs", rows.iter().map(|(site, gemm, _)| !site.never_runs.contains(gemm)));
    columns.text("source", rows.iter().map(|(_, _, choice)| Some(source_of(choice))));
    columns.text("reason", rows.iter().map(|(_, _, choice)| Some(choice.reason.as_str())));
    columns.float("speedup", rows.iter().map(|(_, _, choice)| choice.speedup));
    columns.float("flushed", rows.iter().map(|(_, _, choice)| choice.flushed));
    for metric in Metric::ALL {
        columns.float(metric.as_str(), rows.iter().map(|(_, _, choice)| choice.error.get(&metric).copied()));
    }
}

/// As plans have it.
fn source_of(choice: &Choice) -> &'static str {
    match choice.source {
        ChoiceSource::Dispatch => "dispatch",
        ChoiceSource::Override => "override",
    }
}
