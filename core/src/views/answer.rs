//! The plan in words: takes a moment's plan, gives sentences that say where FP8 pays, and of every other GEMM why it
//! does not. Each sentence has the GEMMs that it speaks of, and every GEMM that runs is in one of them.

use std::collections::BTreeMap;

use crate::{
    dispatch::{ChoiceSource, FastestLow, JudgedRows, PassedOver, Pick, WarningKind},
    format::{
        number::{count, counted},
        short,
    },
    model::Gemm,
    views::{PlanView, ReviewStanding, Snapshot, Standings},
};

use super::changed::Changed;

/// Why a GEMM has the kernel that it has, told once for all that have it for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Because {
    /// It runs in low precision.
    Pays,
    /// A faster kernel is too close to the bound to call.
    Uncertain,
    /// Faster kernels err too much.
    Unsafe,
    /// Faster kernels would overdraw the loss budget.
    Budget,
    /// Faster kernels cannot be run where the plan is for, or not at this module.
    NotRunnable,
    /// A person chose high precision.
    ByHand,
    /// A kernel is safe and faster by itself, and the site as a whole is not.
    NotInPlace,
    /// No kernel in low precision is faster.
    Slower,
    /// No kernel in low precision takes its shape.
    Unsupported,
    /// No kernel in low precision has a time, or none was probed.
    Unknown,
}

impl Because {
    /// In a group's head.
    pub fn words(self) -> &'static str {
        match self {
            Self::Pays => "runs in FP8",
            Self::Uncertain => "too close to call",
            Self::Unsafe => "too inaccurate",
            Self::Budget => "beyond the loss budget",
            Self::NotRunnable => "cannot run where the plan is for",
            Self::ByHand => "kept by hand",
            Self::NotInPlace => "faster alone, not in its site",
            Self::Slower => "FP8 gains nothing",
            Self::Unsupported => "no FP8 kernel takes the shape",
            Self::Unknown => "no time in low precision",
        }
    }
}

const SLOW_HOST: &str = "Launched, the host may be too slow to gain that; replayed as CUDA graphs, the step gains it.";

/// One sentence and what it speaks of.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    pub because: Because,
    pub text: String,
    /// Site number and GEMM, in forward order.
    pub gemms: Vec<(usize, Gemm)>,
}

impl Clause {
    /// The sites that it speaks of, by number.
    pub fn sites(&self) -> Vec<usize> {
        let mut sites: Vec<usize> = self.gemms.iter().map(|(at, _)| *at).collect();
        sites.dedup();
        sites
    }
}

/// The answer to "does FP8 pay here, and where not, why?".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The first says what the plan gains.
    pub clauses: Vec<Clause>,
    /// What that gain takes, where it does not come by itself; the plan's warnings say more.
    pub caution: Option<&'static str>,
    /// Three a site; `None`: it does not run.
    because: Vec<Option<Because>>,
}

impl Answer {
    /// `last`: of the same rows, and where something else was decided since.
    pub(super) fn of(
        (snapshot, judged): (&Snapshot, &JudgedRows),
        plan: &PlanView,
        standings: &Standings,
        last: Option<(&Self, &Changed)>,
    ) -> Self {
        let Some(decided) = plan.decided.as_ref().filter(|decided| !decided.sites.is_empty()) else {
            return Self::default();
        };
        let reasons = |at: usize| {
            let runs = |gemm: &Gemm| snapshot.sites()[at].runs(*gemm);
            let choice = |gemm| Some(gemm).filter(runs).and_then(|gemm| plan.pick_at(at, gemm));
            Gemm::ALL.map(|gemm| choice(gemm).map(|choice| because(judged, standings, choice, at, gemm)))
        };
        let sites = 0..snapshot.sites().len();
        let mut reason_of: Vec<Option<Because>> = match last {
            Some((last, _)) if last.because.len() == 3 * sites.len() => last.because.clone(),
            _ => Vec::new(),
        };
        match last.filter(|_| !reason_of.is_empty()) {
            Some((_, changed)) => {
                changed.sites().for_each(|at| reason_of[3 * at..3 * at + 3].copy_from_slice(&reasons(at)));
            }
            None => reason_of = sites.flat_map(reasons).collect(),
        }
        let mut found: BTreeMap<Because, Vec<(usize, Gemm)>> = BTreeMap::new();
        found.insert(Because::Pays, Vec::new());
        for (place, because) in reason_of.iter().enumerate().filter_map(|(place, of)| Some((place, (*of)?))) {
            found.entry(because).or_default().push((place / 3, Gemm::ALL[place % 3]));
        }
        let all = found.values().map(Vec::len).sum();
        let totals = &decided.totals;
        let is_slow_host = decided.warnings.iter().any(|warning| warning.kind == WarningKind::SlowHost);
        let clause = |(because, gemms): (Because, Vec<(usize, Gemm)>)| {
            let text = match because {
                Because::Pays => gain(gemms.len(), all, totals.baseline_us, totals.planned_us, totals.speedup),
                Because::Slower => slower((snapshot, judged), &gemms),
                _ => told(because, &gemms),
            };
            Clause { because, text, gemms }
        };
        let caution = is_slow_host.then_some(SLOW_HOST);
        Self { clauses: found.into_iter().map(clause).collect(), caution, because: reason_of }
    }

    /// All sentences in a row.
    pub fn text(&self) -> String {
        let mut texts: Vec<&str> = self.clauses.iter().map(|clause| clause.text.as_str()).collect();
        if let Some(caution) = self.caution {
            texts.insert(1.min(texts.len()), caution);
        }
        texts.join(" ")
    }
}

fn because(judged: &JudgedRows, standings: &Standings, choice: &Pick, at: usize, gemm: Gemm) -> Because {
    if choice.kernel.is_low_precision() {
        return Because::Pays;
    }
    if choice.source == ChoiceSource::Override {
        return Because::ByHand;
    }
    let passed_over = choice.passed_over.iter().filter(|(kernel, _)| kernel.is_low_precision());
    // Of several faster kernels the one that comes nearest to being taken says why.
    let nearest = passed_over.map(|(_, why)| match why {
        PassedOver::Uncertain => Because::Uncertain,
        PassedOver::Budget => Because::Budget,
        PassedOver::Unsafe => Because::Unsafe,
        PassedOver::Runtime | PassedOver::Forward => Because::NotRunnable,
        PassedOver::Override => Because::ByHand,
    });
    nearest.min().unwrap_or_else(|| match standings.best(at, gemm, |_| true) {
        Some(ReviewStanding::SafeFast) => Because::NotInPlace,
        Some(_) if judged.low(at, gemm).any(|row| row.speedup.is_some()) => Because::Slower,
        None if judged.at(at, gemm).iter().any(|row| row.low) => Because::Unsupported,
        _ => Because::Unknown,
    })
}

fn gain(low: usize, all: usize, baseline_us: f64, planned_us: f64, speedup: Option<f64>) -> String {
    if low == 0 {
        return format!("FP8 pays at none of {}: all stay in high precision.", counted(all, "GEMM"));
    }
    let (low, all, saved) = (count(low), counted(all, "GEMM"), baseline_us - planned_us);
    let times = speedup.map_or_else(String::new, |speedup| format!(" ({speedup:.2}x)"));
    if saved > 0.0 {
        let (saved, all_us) = (duration(saved), duration(baseline_us));
        format!("FP8 runs at {low} of {all} and saves {saved} of {all_us} a step{times}.")
    } else {
        format!("FP8 runs at {low} of {all} and saves no time{times}.")
    }
}

fn told(because: Because, gemms: &[(usize, Gemm)]) -> String {
    let (one, count, kinds) = (gemms.len() == 1, count(gemms.len()), kinds(gemms));
    let (have, they) = if one { ("has", "it") } else { ("have", "them") };
    match because {
        Because::Uncertain => {
            format!("{count} {have} a faster kernel too close to its bound to call ({kinds}): more draws would decide.")
        }
        Because::Unsafe => format!("{count} would be faster, and too inaccurate ({kinds})."),
        Because::Budget => format!("{count} would be faster, and the loss budget does not reach for {they} ({kinds})."),
        Because::NotRunnable => {
            format!("{count} {have} a faster kernel that cannot run where this plan is for ({kinds}).")
        }
        Because::ByHand => {
            format!("{count} {} kept in high precision by hand ({kinds}).", if one { "is" } else { "are" })
        }
        Because::Unknown => format!("{count} {have} no time in low precision ({kinds}): measure speeds."),
        Because::NotInPlace => {
            let (are, their) = if one { ("is", "its site") } else { ("are", "their sites") };
            format!("{count} {are} faster alone, and not in {their} as a compiled model runs them ({kinds}).")
        }
        Because::Unsupported => {
            let (has, a) = if one { ("has", "a shape") } else { ("have", "shapes") };
            format!("{count} {has} {a} that no FP8 kernel takes ({kinds}).")
        }
        Because::Pays | Because::Slower => String::new(),
    }
}

/// How far they are from paying, and what of it is casts.
fn slower((snapshot, judged): (&Snapshot, &JudgedRows), gemms: &[(usize, Gemm)]) -> String {
    let best = |(at, gemm): &(usize, Gemm)| Some((judged.fastest_low(*at, *gemm)?, *at, *gemm));
    let best: Vec<(FastestLow, usize, Gemm)> = gemms.iter().filter_map(best).collect();
    let would = best.iter().filter(|(fastest, ..)| fastest.bare_is_faster).count();
    let casts: Vec<f64> = best.iter().filter_map(|(fastest, ..)| fastest.casts()).collect();
    let verb = if gemms.len() == 1 { "gains" } else { "gain" };
    let mut text = format!("{} {verb} nothing by FP8 ({})", count(gemms.len()), kinds(gemms));
    if let Some(share) = median(casts).filter(|share| *share >= 0.05) {
        text +=
            &format!(": casts take {:.0} % of {} time", 100.0 * share, if gemms.len() == 1 { "its" } else { "their" });
        if would > 0 {
            text += &format!(", and without them {} would be faster", count(would));
        }
    }
    let nearest = best.iter().max_by(|(a, ..), (b, ..)| a.speedup.total_cmp(&b.speedup));
    if let Some((fastest, at, gemm)) = nearest {
        let site = &snapshot.sites()[*at].id;
        text += &format!("; the nearest is {site} {gemm} at {}x", short(fastest.speedup));
    }
    text + "."
}

/// `wgrad 6, dgrad 2`; of one kind its name alone.
fn kinds(gemms: &[(usize, Gemm)]) -> String {
    let counts = Gemm::ALL.map(|gemm| (gemm, gemms.iter().filter(|(_, of)| *of == gemm).count()));
    let mut there: Vec<(Gemm, usize)> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    there.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    match &there[..] {
        [(gemm, count)] if *count == 1 => gemm.to_string(),
        [(gemm, _)] => format!("all {gemm}"),
        _ => there.iter().map(|(gemm, of)| format!("{gemm} {}", count(*of))).collect::<Vec<_>>().join(", "),
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Microseconds below a millisecond.
fn duration(us: f64) -> String {
    if us < 1_000.0 { format!("{} µs", short(us)) } else { format!("{:.2} ms", us / 1_000.0) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        dispatch::testing::{results, row, unsupported},
        model::{KernelId, ResultRow, SiteId},
        session::{Command, Event, Session},
    };

    const LOW: &str = "cublaslt/fp8-rowwise+fast";

    fn answer(session: &Session) -> Answer {
        let snapshot: Arc<Snapshot> = session.snapshot().unwrap();
        let judged = snapshot.judged();
        let standings = Standings::of((&snapshot, &judged), None);
        Answer::of((&snapshot, &judged), &PlanView::of(&snapshot), &standings, None)
    }

    fn opened(rows: Vec<ResultRow>) -> Session {
        let mut session = Session::by_paper();
        let results = Box::new(results(&["a", "b"], rows).into());
        session.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results });
        session
    }

    /// Safe and fast, unsafe and fast, safe and slow, never timed: each is told once, and all of them are.
    #[test]
    fn every_gemm_is_in_one_sentence() {
        let mut session = opened(vec![
            row("a", Gemm::Fprop, LOW, 0.1, Some(1.5), 0.0),
            row("a", Gemm::Dgrad, LOW, 0.9, Some(1.5), 0.0),
            row("a", Gemm::Wgrad, LOW, 0.1, Some(0.8), 0.0),
            row("b", Gemm::Fprop, LOW, 0.1, None, 0.0),
            unsupported("b", Gemm::Dgrad, LOW, "k is 13"),
        ]);
        let told = answer(&session);
        let of = |because| {
            let clause = told.clauses.iter().find(|clause| clause.because == because);
            clause.map(|clause| clause.gemms.clone()).unwrap_or_default()
        };
        assert_eq!(of(Because::Pays), [(0, Gemm::Fprop)]);
        assert_eq!(of(Because::Unsafe), [(0, Gemm::Dgrad)]);
        assert_eq!(of(Because::Slower), [(0, Gemm::Wgrad)]);
        assert_eq!(of(Because::Unsupported), [(1, Gemm::Dgrad)]);
        assert_eq!(of(Because::Unknown), [(1, Gemm::Fprop), (1, Gemm::Wgrad)]);
        assert_eq!(told.clauses.iter().map(|clause| clause.gemms.len()).sum::<usize>(), 6);
        assert!(told.clauses[0].text.starts_with("FP8 runs at 1 of 6 GEMMs and saves "), "{}", told.text());
        assert!(told.text().contains("1 would be faster, and too inaccurate (dgrad)."), "{}", told.text());
        assert!(told.text().contains("; the nearest is a wgrad at .8x."), "{}", told.text());
        let (site, kernel) = (SiteId::new("a"), KernelId::new("cublaslt/bf16"));
        session.command(Command::SetOverride { site, gemm: Gemm::Fprop, kernel, reason: "r".to_owned() }).unwrap();
        let told = answer(&session);
        assert_eq!(told.clauses[0].text, "FP8 pays at none of 6 GEMMs: all stay in high precision.");
        assert!(told.text().contains("1 is kept in high precision by hand (fprop)."), "{}", told.text());
    }

    #[test]
    fn what_a_slow_host_makes_of_the_gain_is_said_right_behind_it() {
        let rows = || vec![row("a", Gemm::Fprop, LOW, 0.1, Some(1.5), 0.0)];
        assert_eq!(answer(&opened(rows())).caution, None);
        let mut session = Session::by_paper();
        let mut results = results(&["a", "b"], rows());
        let pace = serde_json::json!({"steps": 9, "waited": 9, "host_ms": 10.0, "step_ms": 10.2});
        results.meta.manifest.run.extra.insert("pace".to_owned(), pace);
        session.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results: Box::new(results.into()) });
        let told = answer(&session).text();
        assert!(
            told.starts_with("FP8 runs at 1 of 6 GEMMs")
                && told.contains("x). Launched, the host may be too slow to gain that"),
            "{told}"
        );
        session.command(Command::SetRuntime { runtime: crate::model::Runtime::Graph }).unwrap();
        assert_eq!(answer(&session).caution, None);
    }

    #[test]
    fn before_a_plan_there_is_nothing_to_say() {
        assert_eq!(Answer::default().text(), "");
    }
}
