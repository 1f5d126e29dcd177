//! `site`: one site, its kernels, the plan's reasons, and what would change its verdicts.

use loka_core::{
    dispatch::ChoiceSource,
    format::number,
    model::{Gemm, Metric, Quadrant, ResultRow, SiteId},
    session::{Session, shared::Place},
    views::{
        ErrorOutlook, GemmView, KernelLine, KernelStanding, SiteView, Snapshot, Views, fed_by, site_words, verdict_word,
    },
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ToolAnswer, object};
use crate::mcp::{
    arguments, figures,
    host::{Host, NoResult},
    message::Request,
};

/// Names in a list.
const NAMED: usize = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedSite {
    site: String,
    gemm: Option<String>,
    metric: Option<String>,
    #[serde(default)]
    all_kernels: bool,
}

pub fn schema() -> Value {
    let metrics = Metric::ALL.map(Metric::as_str);
    let all = "Every kernel that was probed, not only the chosen one, its runners-up and the nearest to be chosen";
    let metric = "The error to tell of each kernel; what the policy holds the GEMM to when left out";
    object(
        json!({
            "site": {"type": "string", "description": "The site's whole name, as `sites` gives it"},
            "gemm": {
                "type": "string", "enum": ["fprop", "dgrad", "wgrad"], "description": "One GEMM alone; all when left out",
            },
            "metric": {"type": "string", "enum": metrics, "description": metric},
            "all_kernels": {"type": "boolean", "default": false, "description": all},
        }),
        &["site"],
    )
}

pub fn perform(host: &mut Host, _: &Request, arguments: Map<String, Value>) -> Result<ToolAnswer, NoResult> {
    let asked: AskedSite = arguments::read(arguments)?;
    let id = arguments::site(host.seat.session(), &asked.site)?;
    let only = asked.gemm.as_deref().map(arguments::gemm).transpose()?;
    let metric = asked.metric.as_deref().map(arguments::metric).transpose()?;
    let views = host.views()?;
    let snapshot = views.snapshot.clone().ok_or("No trace is open")?;
    let view = SiteView::of(&snapshot, &views.plan, &id, metric.unwrap_or(host.metric())).ok_or("No such site")?;
    host.seat.look(Place { site: Some(id.clone()), view: "Site".to_owned() });
    let session = host.seat.session();
    let site = &snapshot.sites()[view.at];
    let tail: Vec<&str> = view.tail.iter().map(|step| step.name.as_str()).collect();
    let fed_by = fed_by(snapshot.sites(), &id);
    let mut lines =
        vec![format!("{}: {}, {} rows a step, {} in, {} out.", site.id, site.class, site.m, site.k, site.n)];
    if !tail.is_empty() {
        lines.push(format!("After it: {}.", tail.join(", ")));
    }
    if !fed_by.is_empty() {
        let names: Vec<&str> = fed_by.iter().take(NAMED).map(SiteId::as_str).collect();
        lines.push(format!("It reads the output of {}.", names.join(", ")));
    }
    lines.extend(view.problem.iter().map(|problem| format!("The recording has a problem here: {problem}.")));
    let seen = Seen { session, snapshot: &snapshot, views: &views, view: &view, metric, all: asked.all_kernels };
    let mut gemms = Vec::new();
    for gemm in view.gemms.iter().filter(|gemm| only.is_none_or(|only| gemm.gemm == only)) {
        if site.runs(gemm.gemm) {
            gemms.push(seen.gemm(gemm, &mut lines));
        } else {
            lines.push(format!("{}: never runs in training.", gemm.gemm));
        }
    }
    for cast in &view.shared {
        let ([a, b], saved) = (cast.gemms, figures::micros(cast.saved_us));
        lines.push(format!("{a} and {b} share the cast of {}: saves {saved} (modelled).", cast.operand.symbol()));
    }
    let (comments, comments_data): (Vec<String>, Vec<Value>) =
        super::review::comments(session, Some(&id)).into_iter().unzip();
    lines.extend(comments);
    let data = json!({
        "site": site.id, "class": site.class, "m": site.m, "k": site.k, "n": site.n, "tail": tail, "reads": fed_by,
        "problem": view.problem, "mods": snapshot.mods_of(view.at), "gemms": gemms, "comments": comments_data,
    });
    Ok(ToolAnswer::new(lines, data))
}

struct Seen<'a> {
    session: &'a Session,
    snapshot: &'a Snapshot,
    views: &'a Views,
    view: &'a SiteView,
    metric: Option<Metric>,
    all: bool,
}

impl Seen<'_> {
    fn gemm(&self, of: &GemmView, lines: &mut Vec<String>) -> Value {
        let (bound, metric) = (of.bound, self.metric.unwrap_or(of.bound.metric));
        lines.push(String::new());
        lines.push(format!(
            "{} ({} x {} -> {}), held to {} {} {}; the plan saves {} here:",
            of.gemm,
            of.rows,
            of.reduced,
            of.cols,
            bound.metric.label(),
            bound.metric.at_most(),
            number::trimmed(bound.limit),
            figures::maybe_micros(self.saved(of.gemm)),
        ));
        lines.extend(self.choice_words(of));
        let (mut kernels, mut left_out, mut may_settle) = (Vec::new(), 0, false);
        for (at, line) in of.kernels.iter().enumerate() {
            let nearest = of.nearest == Some(at);
            let baseline = line.kernel == self.snapshot.document.policy.baseline;
            if !(self.all || nearest || baseline || line.standing != KernelStanding::Other) {
                left_out += 1;
                continue;
            }
            let row = self.snapshot.row(self.view.at, of.gemm, &line.kernel);
            let why = of.choice.as_ref().and_then(|choice| choice.passed_over.get(&line.kernel));
            let why = why.map(|why| format!(", passed over: {}", why.as_str())).unwrap_or_default();
            let loss = self.snapshot.loss();
            lines.push(kernel_words(line, row, (metric, loss), (nearest, &why)));
            kernels.push(kernel_data(line, row, (metric, loss), nearest));
            may_settle |=
                line.quadrant == Quadrant::Uncertain && line.verdict_margin.error != ErrorOutlook::MeansNothing;
        }
        if left_out > 0 {
            lines.push(format!("  {left_out} other kernels were probed (all_kernels tells them)"));
        }
        if let Some(draws) = of.draws_to_ask.filter(|_| may_settle) {
            lines.push(format!("  {draws} draws are expected to settle what is uncertain (draw_more)"));
        }
        json!({
            "gemm": of.gemm, "rows": of.rows, "reduced": of.reduced, "cols": of.cols,
            "bound": {"metric": bound.metric.as_str(), "limit": bound.limit},
            "choice": of.choice.as_ref().map(|choice| json!({
                "kernel": choice.kernel, "by": choice.source, "reason": choice.reason, "runners_up": choice.runners_up,
                "passed_over": choice.passed_over,
            })),
            "verdict": of.verdict.map(verdict_word), "kernels": kernels, "kernels_left_out": left_out,
            "saved_us": self.saved(of.gemm), "draws_to_ask": of.draws_to_ask,
        })
    }

    fn choice_words(&self, of: &GemmView) -> Vec<String> {
        let Some(choice) = &of.choice else { return vec!["  chosen as soon as there are rows".to_owned()] };
        let by_hand = choice.source == ChoiceSource::Override;
        let by = if by_hand { "set by hand" } else { "chosen" };
        let mut lines = vec![format!("  {by}: {}. {}", choice.kernel, choice.reason)];
        let id = self.snapshot.index.ids()[self.view.at].clone();
        if let Some(touch) = self.session.reviewing.touched.get(&(id, of.gemm)).filter(|_| by_hand) {
            lines.push(format!("  by {} at {}", touch.by, touch.at));
        }
        if let Some((runner_up, ahead)) = &of.ahead {
            lines.push(if *ahead < 0.0 {
                let behind = figures::micros(-ahead);
                format!("  alone it is {behind} slower than {runner_up}: what its site takes as a whole decides")
            } else {
                format!("  ahead of {runner_up} by {}", figures::micros(*ahead))
            });
        }
        lines
    }

    fn saved(&self, gemm: Gemm) -> Option<f64> {
        let mut lines = self.views.table.lines.iter();
        lines.find(|line| (line.at, line.gemm) == (self.view.at, gemm)).and_then(|line| line.saved_us)
    }
}

/// `loss`: the trace's.
fn kernel_words(
    line: &KernelLine,
    row: Option<&ResultRow>,
    (metric, loss): (Metric, f64),
    (nearest, why): (bool, &str),
) -> String {
    let standing = match line.standing {
        KernelStanding::Chosen => " [chosen]",
        KernelStanding::Overridden => " [set by hand]",
        KernelStanding::RunnerUp(_) => " [runner-up]",
        KernelStanding::Other if nearest => " [nearest to be chosen]",
        KernelStanding::Other => "",
    };
    if let Some(reason) = &line.unsupported {
        return format!("  - {}{standing}: cannot run here: {reason}", line.kernel);
    }
    let error = row.and_then(|row| row.metric(metric)).map_or_else(
        || format!("{} not known", metric.label()),
        |estimate| {
            let origin = row.map(figures::of_row).unwrap_or_default();
            let draws = line.draws.map(|draws| format!(", {draws} draws")).unwrap_or_default();
            format!("{} ({origin}{draws})", figures::error_words(row, (metric, estimate), loss))
        },
    );
    let mut text =
        format!("  - {}{standing}: {}{why}; {error}; {}", line.kernel, verdict_word(line.quadrant), time_words(line));
    if line.is_low {
        let [error, speed] = site_words::outlook_lines(line);
        text += &format!(". {error}. {speed}");
    }
    text
}

fn time_words(line: &KernelLine) -> String {
    let Some(us) = line.latency_us else { return "no time".to_owned() };
    let range = line.latency_range_us.map(|(lo, hi)| format!(" ({} to {})", number::micros(lo), number::micros(hi)));
    let casts = line.parts.map(|parts| format!(", of it casts {}", figures::micros(parts.casts_us)));
    let speedup = line.speedup.map(|speedup| format!(", {} of BF16's speed", number::times(speedup)));
    format!(
        "{}{}{}{}, {}",
        figures::micros(us),
        range.unwrap_or_default(),
        casts.unwrap_or_default(),
        speedup.unwrap_or_default(),
        line.source.as_str()
    )
}

fn kernel_data(line: &KernelLine, row: Option<&ResultRow>, (metric, loss): (Metric, f64), nearest: bool) -> Value {
    json!({
        "kernel": line.kernel, "about": line.about, "low_precision": line.is_low, "unsupported": line.unsupported,
        "verdict": verdict_word(line.quadrant), "taken": line.is_taken(), "nearest_to_be_chosen": nearest,
        "error": row.and_then(|row| Some(figures::error_of(row, (metric, row.metric(metric)?), loss))),
        "draws": line.draws, "latency": row.map(|row| figures::latency(&row.latency)), "speedup": line.speedup,
        "casts_us": line.parts.map(|parts| parts.casts_us),
        "what_would_change": line.is_low.then(|| site_words::outlook_lines(line)),
    })
}
