//! Other results of the open trace's sites: takes them, gives the plan that they would make under the policy and the mods
//! of now, and the verdicts that are others here. Rows, policy and mods are those of that moment: with
//! [`Session::comparison_is_outdated`] a view says so when they moved on.

use std::sync::Arc;

use crate::{
    dispatch::Overrides,
    engine::contexts,
    model::{ModKind, ModSet, Moment, Results, SiteMods},
    plan::{self, Plan},
    views::{BaselinePlan, Snapshot},
};

use super::{BaselineOf, CommandError, ComparedResults, Effect, Flipped, LogKind, NoticeKind, Session, counted};

impl Session {
    /// Also of another run, where the sites are the same. Overrides are left out: what a person set by hand here was
    /// not decided of those rows.
    pub(super) fn compare_results(&mut self, path: String, results: Results) {
        let problem = match &self.trace {
            None => Some("results are compared with those of a trace: open that first"),
            Some(_) if self.has_site_of(&results) => None,
            Some(_) => Some("these results have no site of this trace"),
        };
        let built = problem.map_or_else(
            || {
                let (document, name) = (&self.document, name_of(&path));
                let (policy, mods, named) = (&document.policy, &document.mods, (name, ""));
                plan::build_for(document.runtime, &results, policy, mods, &Overrides::new(), named)
                    .map_err(|error| error.to_string())
            },
            |problem| Err(problem.to_owned()),
        );
        let plan = match built {
            Ok(built) => built.plan,
            Err(problem) => return self.notices.tell(NoticeKind::Error, format!("{problem}: {path}")),
        };
        let ours = self.results();
        let flips = ours
            .as_ref()
            .map_or(Vec::new(), |ours| plan::flips(&results, ours, &self.document.policy, &self.document.mods));
        let flips = flips.into_iter().map(Flipped::from).collect();
        let compared = ComparedResults { flips, mods: self.document.mods.clone(), num_rows: self.num_shown() };
        self.notices
            .record(LogKind::File, format!("Opened {} to compare with: {path}", counted(results.rows.len(), "row")));
        drop(self.compare_with(Some((path, Arc::new(BaselinePlan::Read(Box::new(plan)))))));
        // Only now: what was compared before is forgotten above.
        self.other_results = Some(Arc::new(compared));
        let Results { mut rows, .. } = results;
        rows.retain(|row| row.mods == *self.document.mods.of(&row.site));
        self.sets.compare(rows);
    }

    /// `at`: when it was asked for, which tells one kept plan from the next.
    pub(super) fn set_baseline(&mut self, of: BaselineOf, at: Moment) -> Result<Vec<Effect>, CommandError> {
        let plan = match of {
            BaselineOf::Now => {
                let name = if at == Moment::default() { "kept".to_owned() } else { format!("kept at {}", minute(at)) };
                self.plan_with(&self.document.mods, format!("the plan {name}"))?
            }
            BaselineOf::Submitted => {
                let release = self.reviewing.release.as_ref().ok_or(CommandError::NotRequested)?;
                let name = format!("version {}", release.number);
                BaselinePlan::Read(Box::new(Plan { name, ..Plan::clone(&release.plan) }))
            }
            BaselineOf::Mods { mods } => {
                let name = format!("the model {}", with_mods(&mods));
                self.plan_with(&SiteMods::from(mods), name)?
            }
        };
        self.notices.record(LogKind::File, format!("Compared with {}", plan.name()));
        Ok(self.compare_with(Some((String::new(), Arc::new(plan)))))
    }

    /// What is decided with those mods by the policy and the overrides of now.
    fn plan_with(&self, mods: &SiteMods, name: String) -> Result<BaselinePlan, CommandError> {
        let now = self.snapshot().ok_or(CommandError::NoTrace)?;
        let mut then = Snapshot::clone(&now);
        if *mods != self.document.mods {
            let (set, contexts) = (self.sets.shown(), contexts(self.sites(), mods));
            let rows = contexts.iter().enumerate();
            then.rows = rows.map(|(at, context)| set.and_then(|set| set.rows_of(at, context).cloned())).collect();
            then.document.mods = mods.clone();
        }
        if !then.has_rows() {
            let with = with_mods(mods.of_others());
            return Err(if now.has_rows() { CommandError::NoRowsWith(with) } else { CommandError::NoRows });
        }
        BaselinePlan::kept(&then, name).map_err(|error| CommandError::Plan(error.to_string()))
    }

    fn has_site_of(&self, results: &Results) -> bool {
        results.meta.manifest.sites.iter().any(|site| self.index().at(&site.id).is_some())
    }

    /// Rows came since, or the policy or the mods are others: it would say something else by now.
    pub fn comparison_is_outdated(&self) -> bool {
        let (Some(compared), Some((_, plan))) = (&self.other_results, &self.other_plan) else { return false };
        *plan.policy() != self.document.policy
            || compared.mods != self.document.mods
            || compared.num_rows != self.num_shown()
    }

    fn num_shown(&self) -> usize {
        self.sets.num_rows(self.sets.shown_origin())
    }
}

/// `2026-11-20 12:00 UTC`.
fn minute(at: Moment) -> String {
    let text = at.to_string();
    let (day, time) = text.split_once('T').unwrap_or((&text, ""));
    format!("{day} {} UTC", time.get(..5).unwrap_or_default())
}

/// `without mods`, `with no bias, BlockNorm`.
pub(super) fn with_mods(mods: &ModSet) -> String {
    let name = |kind: &ModKind| match kind {
        ModKind::BlockNorm => "BlockNorm",
        ModKind::NoBias => "no bias",
        ModKind::HardSwish => "hard swish",
    };
    let names: Vec<&str> = mods.0.iter().map(name).collect();
    if names.is_empty() { "without mods".to_owned() } else { format!("with {}", names.join(", ")) }
}

/// As it is called on screen: a file by its name, what is none by what it is.
pub(super) fn baseline_name(path: &str, plan: &BaselinePlan, of_results: bool) -> String {
    match (path.is_empty(), of_results) {
        (true, _) => plan.name().to_owned(),
        (false, true) => format!("the results {}", name_of(path)),
        (false, false) => format!("the plan {}", name_of(path)),
    }
}

/// The last part of a path or an address.
fn name_of(path: &str) -> &str {
    path.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::{results, row},
        model::{Gemm, KernelId, ModKind, ResultRow, Safety, SiteId},
        session::{Command, Effect, Event, SavedSession},
        views::OpenedTrace,
    };

    const FAST: &str = "cublaslt/fp8-rowwise+fast";

    fn made(error: f64) -> Results {
        results(&["a", "b"], vec![row("a", Gemm::Fprop, FAST, error, Some(1.3), 0.0)])
    }

    fn session() -> Session {
        let mut session = Session::by_paper();
        let meta = made(0.1).meta;
        let trace = OpenedTrace { path: "a.trace.safetensors".to_owned(), name: "toy".to_owned(), meta };
        session.event(Event::TraceOpened { trace: Box::new(trace) });
        session
            .event(Event::ResultsOpened { path: "r.results.parquet".to_owned(), results: Box::new(made(0.1).into()) });
        session
    }

    fn compared(session: &mut Session, path: &str, results: Results) {
        session.event(Event::ResultsCompared { path: path.to_owned(), results: Box::new(results) });
    }

    #[test]
    fn a_path_of_results_is_read_for_a_comparison() {
        let mut session = session();
        let open = |path: &str| Command::OpenPlan { path: path.to_owned() };
        let path = "old.results.parquet".to_owned();
        assert_eq!(session.command(open(&path)).unwrap(), [Effect::CompareResults { path }]);
        let path = "old.plan.json".to_owned();
        assert_eq!(session.command(open(&path)).unwrap(), [Effect::LoadPlan { path }]);
    }

    #[test]
    fn other_results_become_a_plan_and_flipped_verdicts() {
        let mut session = session();
        let revision = session.revision();
        compared(&mut session, "runs/old.results.parquet", made(0.4));
        let (path, plan) = session.other_plan.clone().unwrap();
        assert_eq!((path.as_str(), plan.name()), ("runs/old.results.parquet", "old.results.parquet"));
        assert!(session.revision() > revision && !session.comparison_is_outdated());
        let found = session.other_results.clone().unwrap();
        assert_eq!(found.flips.len(), 1);
        let flip = &found.flips[0];
        assert_eq!((flip.site.as_str(), flip.kernel.as_str()), ("a", FAST));
        assert_eq!((flip.before, flip.after, flip.near_tie), (Safety::Unsafe, Safety::Safe, false));
        // Whoever joins sees it, too.
        let saved: SavedSession = postcard::from_bytes(&postcard::to_allocvec(&session.save()).unwrap()).unwrap();
        assert_eq!(Session::restored(saved).other_results, session.other_results);
        session.command(Command::ClosePlan).unwrap();
        assert!(session.other_plan.is_none() && session.other_results.is_none());
    }

    #[test]
    fn a_comparison_ages() {
        let outdated = |change: &dyn Fn(&mut Session)| {
            let mut session = session();
            compared(&mut session, "o.results.parquet", made(0.4));
            change(&mut session);
            session.comparison_is_outdated()
        };
        assert!(!outdated(&|session| {
            let (site, gemm, kernel) = (SiteId::new("a"), Gemm::Fprop, KernelId::new("cublaslt/bf16"));
            session.command(Command::SetOverride { site, gemm, kernel, reason: String::new() }).unwrap();
        }));
        assert!(outdated(&|session| drop(session.command(Command::SetMaxError { value: 0.3, gesture: None }))));
        assert!(outdated(&|session| drop(session.command(Command::ToggleMod { kind: ModKind::NoBias }))));
        assert!(outdated(&|session| {
            let more = vec![row("b", Gemm::Fprop, FAST, 0.1, Some(1.3), 0.0)];
            let results = Box::new(results(&["a", "b"], more).into());
            session.event(Event::ResultsOpened { path: "m.results.parquet".to_owned(), results });
        }));
    }

    #[test]
    fn what_cannot_be_compared_is_a_line() {
        let told = |session: &Session| session.notices.last().map(|notice| notice.text.clone()).unwrap_or_default();
        let mut empty = Session::by_paper();
        compared(&mut empty, "o.results.parquet", made(0.1));
        assert!(told(&empty).ends_with("open that first: o.results.parquet") && empty.other_plan.is_none());
        let mut session = session();
        compared(&mut session, "o.results.parquet", results(&["x"], Vec::<ResultRow>::new()));
        assert_eq!(told(&session), "these results have no site of this trace: o.results.parquet");
        session.command(Command::ToggleMod { kind: ModKind::NoBias }).unwrap();
        compared(&mut session, "o.results.parquet", made(0.1));
        assert!(told(&session).starts_with("the results have no rows with mods 'no_bias'"), "{}", told(&session));
        assert!(session.other_plan.is_none());
        // Another run of the same sites may be compared.
        session.command(Command::ToggleMod { kind: ModKind::NoBias }).unwrap();
        let mut run = made(0.1);
        run.meta.trace_digest = "sha256:11".to_owned();
        compared(&mut session, "o.results.parquet", run);
        assert_eq!(session.other_plan.as_ref().unwrap().1.trace_digest(), "sha256:11");
    }
}
