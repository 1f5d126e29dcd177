//! Takes a plan, its entries and what feeds what; gives the forward chain as SVG: each site as wide as its time in the
//! baseline, a band a GEMM with its verdict, solid where it runs in FP8. Of any number of sites at most so many shapes.

use std::{collections::BTreeMap, fmt::Write as _};

use maud::{Markup, html};

use crate::{
    format::{
        NAME, line,
        number::{count, micros, times},
    },
    model::{Gemm, Quadrant, Results, SiteId},
    plan::{Plan, PlanSite},
    views::{module, verdict_word},
};

use super::{
    entries::{Entry, by_gemm},
    glyph::shape,
};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 56.0;
const FIELD: f64 = WIDTH - LEFT - 12.0;
/// Room for modules' names.
const NAMES: f64 = 18.0;
const BAND: f64 = 22.0;
const GAP: f64 = 3.0;
/// From this width on a site is drawn by itself; what is narrower shares columns of that width.
const WIDE: f64 = 1.0;
const COLUMN: f64 = 0.5;
/// With more sites each has no tooltip and no feeds of its own.
const TOLD: usize = 300;
/// A module's name is written over that much room.
const NAMED_FROM: f64 = 44.0;
const CHARACTER: f64 = 6.2;
/// A site without a known time still has a place: this share of a mean one.
const LEAST: f64 = 0.05;

/// What a band shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Band {
    verdict: usize,
    low: bool,
}

/// One site on the strip.
struct StripSite<'a> {
    site: &'a PlanSite,
    from: f64,
    to: f64,
    reference_us: f64,
    gemms: [Option<Band>; 3],
}

impl StripSite<'_> {
    fn width(&self) -> f64 {
        self.to - self.from
    }
}

/// `None`: no time is known.
pub fn graph(plan: &Plan, entries: &[Entry], results: &Results) -> Option<Markup> {
    let places = places(plan, entries)?;
    let feeds = feeds(&places, results);
    let deep = if feeds.is_empty() { 4.0 } else { 36.0 };
    let high = NAMES + 3.0 * (BAND + GAP) + deep;
    let total: f64 = places.iter().map(|place| place.reference_us).sum();
    let low = |place: &StripSite<'_>| place.gemms.iter().flatten().filter(|band| band.low).count();
    let num_low: usize = places.iter().map(low).sum();
    let about = format!(
        "The forward chain of {} sites: {} µs a step in the baseline, {} GEMMs in FP8",
        count(places.len()),
        micros(total),
        count(num_low)
    );
    Some(html! {
        (legend(&places))
        figure {
            svg viewBox=(format!("0 0 {WIDTH} {high}")) style="max-width:1080px" role="img" aria-label=(about) {
                (names(&places))
                @for gemm in Gemm::ALL {
                    text class="tick" x=(LEFT - 6.0) y=(format!("{:.1}", top(gemm) + BAND / 2.0 + 4.0)) text-anchor="end" { (gemm.as_str()) }
                    (bands(&places, gemm))
                }
                @if !feeds.is_empty() { path class="feed" d=(feeds) {} }
                @if places.len() <= TOLD { g class="tips" { @for place in &places { (tip(place)) } } }
            }
            figcaption {
                "Sites in forward order, as wide as their time in " (line(plan.policy.baseline.as_str(), NAME)) ", of "
                (micros(total)) " µs a step. A solid band runs in FP8; a pale one shows the best that FP8 offers there."
            }
        }
    })
}

fn top(gemm: Gemm) -> f64 {
    NAMES + f64::from(gemm as u8) * (BAND + GAP)
}

fn places<'a>(plan: &'a Plan, entries: &[Entry]) -> Option<Vec<StripSite<'a>>> {
    let mut known: Vec<(f64, [Option<Band>; 3])> = vec![(0.0, [None; 3]); plan.sites.len()];
    for of_gemm in by_gemm(entries) {
        let Some(first) = of_gemm.first() else { continue };
        let Some((reference_us, bands)) = known.get_mut(first.site as usize) else { continue };
        *reference_us += first.reference_us.filter(|us| us.is_finite() && *us > 0.0).unwrap_or(0.0);
        let chosen = of_gemm.iter().find(|entry| entry.chosen.is_some() && entry.low);
        let best = of_gemm.iter().filter(|entry| entry.low).map(|entry| entry.quadrant.rank()).min();
        let verdict = chosen.map(|entry| entry.quadrant.rank()).or(best);
        bands[first.gemm as usize] = verdict.map(|verdict| Band { verdict, low: chosen.is_some() });
    }
    let total: f64 = known.iter().map(|(us, _)| us).sum();
    if total <= 0.0 {
        return None;
    }
    let least = LEAST * total / known.len() as f64;
    let all: f64 = known.iter().map(|(us, _)| us.max(least)).sum();
    let mut from = LEFT;
    let place = |(site, (reference_us, gemms)): (&'a PlanSite, (f64, [Option<Band>; 3]))| {
        let to = from + FIELD * reference_us.max(least) / all;
        let place = StripSite { site, from, to, reference_us, gemms };
        from = to;
        place
    };
    Some(plan.sites.iter().zip(known).map(place).collect())
}

/// A path for each kind of band.
fn bands(places: &[StripSite<'_>], gemm: Gemm) -> Markup {
    let mut paths: BTreeMap<Band, String> = BTreeMap::new();
    for (band, from, to) in parts(places, gemm) {
        let Some(band) = band else { continue };
        let (y, width) = (top(gemm), to - from);
        // Writing to a String cannot fail.
        let _ = write!(paths.entry(band).or_default(), "M{from:.1} {y}h{width:.1}v{BAND}h-{width:.1}z");
    }
    html! {
        @for (band, path) in &paths {
            g class=(if band.low { "solid" } else { "pale" }) { path class=(format!("fill v{}", band.verdict)) d=(path) {} }
        }
    }
}

/// Sites that can be told apart, with a line of the ground between them. Narrower neighbours are taken together until
/// they fill a column, which shows what takes most of it; columns alike are one.
fn parts(places: &[StripSite<'_>], gemm: Gemm) -> Vec<(Option<Band>, f64, f64)> {
    let band = |place: &StripSite<'_>| place.gemms[gemm as usize];
    let mut parts: Vec<(Option<Band>, f64, f64)> = Vec::new();
    let mut rest = places;
    while let Some(first) = rest.first() {
        let fits = |place: &&StripSite<'_>| place.width() < WIDE && place.from - first.from < COLUMN;
        let crowd = rest.iter().take_while(fits).count();
        let (together, others) = rest.split_at(crowd.max(1));
        rest = others;
        if crowd == 0 {
            parts.push((band(first), first.from + 0.5, first.to - 0.5));
            continue;
        }
        let mut widths: BTreeMap<Option<Band>, f64> = BTreeMap::new();
        together.iter().for_each(|place| *widths.entry(band(place)).or_default() += place.width());
        let most = widths.iter().max_by(|a, b| a.1.total_cmp(b.1)).and_then(|(band, _)| *band);
        let to = together.last().map_or(first.to, |last| last.to);
        match parts.last_mut() {
            Some((of, _, end)) if *of == most && *end == first.from => *end = to,
            _ => parts.push((most, first.from, to)),
        }
    }
    parts
}

/// Modules at the least depth that tells any apart, over the sites that they hold.
fn names(places: &[StripSite<'_>]) -> Markup {
    let differs = |depth: &usize| {
        let first = places.first().map(|place| module(&place.site.site, *depth));
        places.iter().any(|place| Some(module(&place.site.site, *depth)) != first)
    };
    let depth = (1..=12).find(differs).unwrap_or(1);
    let runs = places.chunk_by(|a, b| module(&a.site.site, depth) == module(&b.site.site, depth));
    let mut written = Vec::new();
    for run in runs {
        let [Some(first), Some(last)] = [run.first(), run.last()] else { continue };
        let width = last.to - first.from;
        if width >= NAMED_FROM {
            let name = module(&first.site.site, depth).trim_end_matches('.').rsplit('.').next().unwrap_or_default();
            let most = ((width - 6.0) / CHARACTER) as usize;
            let shown: String = line(name, NAME).chars().take(most.max(2)).collect();
            written.push((first.from, width, shown));
        }
    }
    html! {
        @for (from, width, name) in &written {
            path class="rule" d=(format!("M{from:.1} {:.1}h{:.1}", NAMES - 4.0, width - 1.0)) {}
            text class="tick" x=(format!("{:.1}", from + 2.0)) y=(NAMES - 7.0) { (name) }
        }
    }
}

/// Arcs below, from each site's right half to the left half of what reads it.
fn feeds(places: &[StripSite<'_>], results: &Results) -> String {
    let mut path = String::new();
    if places.len() > TOLD {
        return path;
    }
    let at: BTreeMap<&SiteId, &StripSite<'_>> = places.iter().map(|place| (&place.site.site, place)).collect();
    let y = NAMES + 3.0 * (BAND + GAP);
    for site in &results.meta.manifest.sites {
        let Some(from) = at.get(&site.id) else { continue };
        for to in site.feeds.iter().filter_map(|id| at.get(id)) {
            let inside = |place: &StripSite<'_>| (0.3 * place.width()).min(10.0);
            let (x0, x1) = (from.to - inside(from), to.from + inside(to));
            let deep = y + (8.0 + 3.0 * (x1 - x0).abs().max(1.0).log2()).min(38.0);
            let _ = write!(path, "M{x0:.1} {y}C{x0:.1} {deep:.1} {x1:.1} {deep:.1} {x1:.1} {y}");
        }
    }
    path
}

fn tip(place: &StripSite<'_>) -> Markup {
    let of = |gemm: Gemm| {
        let choice = place.site.choice(gemm);
        let speed = choice.speedup.map_or_else(String::new, |speedup| format!(", {}", times(speedup)));
        format!("\n{gemm}: {}{speed}", line(choice.kernel.as_str(), NAME))
    };
    html! {
        rect x=(format!("{:.1}", place.from)) y=(NAMES) width=(format!("{:.1}", place.width())) height=(3.0 * (BAND + GAP)) {
            title { (line(place.site.site.as_str(), NAME)) ": " (micros(place.reference_us)) " µs" (Gemm::ALL.map(of).concat()) }
        }
    }
}

fn legend(places: &[StripSite<'_>]) -> Markup {
    let bands = || places.iter().flat_map(|place| place.gemms).flatten();
    html! {
        div class="legend" {
            @for quadrant in Quadrant::BEST_FIRST {
                @let num = bands().filter(|band| band.verdict == quadrant.rank()).count();
                @if num > 0 { span class="key" { (shape(quadrant)) (verdict_word(quadrant)) " · " (count(num)) } }
            }
        }
    }
}
