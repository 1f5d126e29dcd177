//! Takes what a report is of, gives one of its figures by itself: a fragment of HTML with its own style, for a notebook
//! or a page of somebody else's.

use std::str::FromStr;

use maud::{Markup, PreEscaped, html};

use super::{
    Source, colour,
    entries::entries,
    frontier,
    graph::graph,
    grid::Sheet,
    heatmap::heatmap,
    points::Points,
    quadrant::{FIELD, quadrant},
};

/// Of figures, in the report and alone.
pub(super) const SHEET: &str = include_str!("figure.css");

/// What a page around a figure would give it, when it stands alone.
const FRAME: &str = "background:var(--bg);color:var(--fg);max-width:1080px;padding:8px;\
    font:14px/1.45 system-ui,\"Segoe UI\",Roboto,\"Noto Sans\",\"Liberation Sans\",\"DejaVu Sans\",sans-serif;\
    font-variant-numeric:tabular-nums;figcaption,.legend{color:var(--weak);font-size:12.5px}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Errors by site, GEMM and kernel.
    Heatmap,
    /// Error over speed-up.
    Quadrant,
    /// What every threshold of the built-in policies, and of the plan's own, buys and costs.
    Frontier,
    /// The forward chain: where a step's time goes, and what runs in FP8.
    Graph,
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "heatmap" => Ok(Self::Heatmap),
            "quadrant" => Ok(Self::Quadrant),
            "frontier" => Ok(Self::Frontier),
            "graph" => Ok(Self::Graph),
            _ => Err("a figure is heatmap, quadrant, frontier or graph".to_owned()),
        }
    }
}

/// Its HTML. Rules are nested in one class, so that they reach nothing around the figure.
pub fn figure(source: &Source<'_>, which: Figure) -> String {
    let sheet = SHEET.replace(":root", "&");
    let (light, dark) = (colour::style(false), colour::style(true));
    let style = format!(".loka-figure{{{FRAME}{sheet}{light}@media screen and (prefers-color-scheme:dark){{{dark}}}}}");
    html! {
        div class="loka-figure" {
            style { (PreEscaped(style)) }
            (picture(source, which))
        }
    }
    .into_string()
}

fn picture(source: &Source<'_>, which: Figure) -> Markup {
    let plan = source.plan;
    let all = entries(source);
    match which {
        Figure::Heatmap => heatmap(plan, &Sheet::of(plan, &all), &all),
        Figure::Quadrant => match Points::of(plan, &all, FIELD) {
            Some(points) => quadrant(plan, &points),
            None => html! { p { "No kernel in low precision has both an error and a speed-up." } },
        },
        Figure::Frontier => match source.results {
            Some(results) => frontier::frontier(plan, results),
            None => html! { p { "A frontier is of results: none were given." } },
        },
        Figure::Graph => match source.results {
            Some(results) => graph(plan, &all, results).unwrap_or_else(|| html! { p { "No time is known." } }),
            None => html! { p { "A graph is of results: none were given." } },
        },
    }
}
