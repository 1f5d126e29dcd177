//! How views come about: takes a moment, a question and the views of before, gives the new ones, whole on all cores or a part at a
//! time, where frames have to go on in between.

use std::sync::Arc;

use crate::dispatch::{JudgedRows, parallel::join};

use super::{
    Answer, Finding, Grid, ModsEffect, ModsStanding, Now, OpenedTrace, PlanTable, PlanView, QuadrantView, SiteVerdict,
    Snapshot, Standings, Versus, ViewQuery, Views, Worst, changed::Changed, findings::Worth, frontier::ChosenLow,
};

/// Views on their way. Every call has to have the same views of before.
#[derive(Debug)]
pub struct Derivation {
    snapshot: Arc<Snapshot>,
    question: ViewQuery,
    /// Only the question is another.
    same: bool,
    /// Everything is decided as it was, as with another baseline.
    decided: bool,
    /// Where each row stands, and what it shows, is as it was: under another policy, too.
    placed: bool,
    judged: Option<Arc<JudgedRows>>,
    basis: Option<Basis>,
    table: Option<OfTable>,
    sites: Option<OfSites>,
    /// The views of before with another baseline, where that is all that differs.
    compared: Option<Box<Views>>,
    grid: Option<Arc<Grid>>,
}

/// What all else is made of.
#[derive(Debug)]
struct Basis {
    plan: Arc<PlanView>,
    judged: Arc<JudgedRows>,
    versus: Option<Arc<Versus>>,
    /// Since the views of before; `None`: nothing of them is known to stand.
    changed: Option<Changed>,
}

type OfTable = (Arc<PlanTable>, Arc<Vec<Worth>>, Arc<Vec<Finding>>);
type OfSites = (Arc<Standings>, Arc<Vec<SiteVerdict>>, Arc<Answer>, Arc<Vec<Option<ChosenLow>>>);
/// The quadrant as it is asked for and plain, and mods.
type Asked = (Arc<QuadrantView>, Arc<QuadrantView>, Arc<ModsStanding>);

impl Derivation {
    pub fn new(snapshot: Arc<Snapshot>, question: ViewQuery, last: &Views) -> Self {
        let same = last.question.is_some() && last.revision == snapshot.revision;
        let decided = same || last.snapshot.as_ref().is_some_and(|of| of.is_decided_as(&snapshot));
        let placed = last.snapshot.as_ref().is_some_and(|of| of.has_rows_of(&snapshot));
        Self {
            snapshot,
            question,
            same,
            decided,
            placed,
            judged: None,
            basis: None,
            table: None,
            sites: None,
            compared: None,
            grid: None,
        }
    }

    pub fn is_of(&self, trace: &Arc<OpenedTrace>) -> bool {
        Arc::ptr_eq(&self.snapshot.trace, trace)
    }

    /// All of it at once, on all cores.
    pub fn whole(mut self, last: &Views) -> Views {
        if self.same && last.question == Some(self.question) {
            return last.clone();
        }
        let basis = self.decide(self.judge(last), last);
        // What depends on the question is made beside what does not.
        let asked = || (self.grid(&basis, last), self.asked(&basis, last));
        let (table, sites, compared, (grid, asked)) = match (self.same, self.decided) {
            (true, _) => (None, None, None, asked()),
            (false, true) => {
                let (compared, asked) = join(|| self.compared(last), asked);
                (None, None, Some(compared), asked)
            }
            (false, false) => {
                let (table, (sites, asked)) =
                    join(|| self.of_table(&basis, last), || (self.of_sites(&basis, last), asked()));
                (Some(table), Some(sites), None, asked)
            }
        };
        (self.table, self.sites, self.compared, self.grid) = (table, sites, compared, Some(grid));
        self.put_together(basis, asked, last)
    }

    /// The next part; the views with the last of them.
    pub fn step(&mut self, last: &Views) -> Option<Views> {
        if self.same && last.question == Some(self.question) {
            return Some(last.clone());
        }
        let Some(basis) = self.basis.take() else {
            match self.judged.take() {
                None => self.judged = Some(self.judge(last)),
                Some(judged) => self.basis = Some(self.decide(judged, last)),
            }
            return None;
        };
        if !self.decided && self.table.is_none() {
            self.table = Some(self.of_table(&basis, last));
        } else if !self.decided && self.sites.is_none() {
            self.sites = Some(self.of_sites(&basis, last));
        } else if self.decided && !self.same && self.compared.is_none() {
            self.compared = Some(self.compared(last));
        } else if self.grid.is_none() {
            self.grid = Some(self.grid(&basis, last));
        } else {
            let asked = self.asked(&basis, last);
            return Some(self.put_together(basis, asked, last));
        }
        self.basis = Some(basis);
        None
    }

    fn judge(&self, last: &Views) -> Arc<JudgedRows> {
        if self.decided {
            return last.judged.clone();
        }
        let earlier = last.earlier();
        Arc::new(self.snapshot.judged_after(earlier.map(|of| (of.snapshot, of.judged))))
    }

    fn decide(&self, judged: Arc<JudgedRows>, last: &Views) -> Basis {
        let snapshot = &self.snapshot;
        let plan = match self.decided {
            true => last.plan.clone(),
            false => Arc::new(PlanView::of_judged(snapshot, &judged, last.earlier())),
        };
        if let Some(baseline) = &snapshot.baseline {
            baseline.plan.seen(snapshot, &plan);
        }
        let versus = if self.same { last.versus.clone() } else { Versus::of(snapshot, &plan).map(Arc::new) };
        let changed = last.earlier().filter(|_| self.placed && !self.decided);
        let changed = changed.and_then(|earlier| Changed::since(earlier, (snapshot, &judged), &plan));
        Basis { plan, judged, versus, changed }
    }

    fn compared(&self, last: &Views) -> Box<Views> {
        Box::new(last.against(&self.snapshot))
    }

    fn of_table(&self, Basis { plan, judged, changed, .. }: &Basis, last: &Views) -> OfTable {
        let rows = (&*self.snapshot, &**judged);
        let earlier = last.earlier().map(|earlier| (earlier, &*last.table));
        let table = PlanTable::of(rows, plan, earlier);
        let worth = Worth::of_all(rows, plan, &table, changed.as_ref().map(|changed| (&last.worth[..], changed)));
        let findings = Finding::all(rows, plan, &table, &worth);
        (Arc::new(table), Arc::new(worth), Arc::new(findings))
    }

    fn of_sites(&self, Basis { plan, judged, changed, .. }: &Basis, last: &Views) -> OfSites {
        let (snapshot, changed) = (&*self.snapshot, changed.as_ref());
        let rows = (snapshot, &**judged);
        let standings = Standings::of(rows, changed.map(|changed| (&*last.standings, changed)));
        let verdicts = changed.map(|changed| (&last.verdicts[..], changed));
        let verdicts = SiteVerdict::of_all(snapshot, &standings, verdicts);
        let answer = Answer::of(rows, plan, &standings, changed.map(|changed| (&*last.answer, changed)));
        let low = ChosenLow::of_all(snapshot, plan, changed.map(|changed| (&last.low[..], changed)));
        (Arc::new(standings), Arc::new(verdicts), Arc::new(answer), Arc::new(low))
    }

    fn grid(&self, Basis { plan, judged, versus, changed }: &Basis, last: &Views) -> Arc<Grid> {
        let question = self.question;
        let divided = |versus: bool| question.relative || (question.versus && versus);
        let as_asked = last.question == Some(question) && !divided(versus.is_some()) && !divided(last.versus.is_some());
        let filled = Some(&*last.grid).filter(|_| self.placed && as_asked);
        let against = versus.as_deref().filter(|_| question.versus);
        let filled = filled.map(|of| (of, changed.as_ref()));
        Arc::new(Grid::of((&*self.snapshot, &**judged), plan, question, (against, filled)))
    }

    fn asked(&self, Basis { plan, judged, versus, changed }: &Basis, last: &Views) -> Asked {
        let (snapshot, question, same) = (&self.snapshot, self.question, self.same);
        let gemm_changed = last.question.is_none_or(|asked| asked.gemm != question.gemm);
        let plain = match !self.decided || gemm_changed {
            true => {
                let placed = Some(&*last.plain).filter(|_| self.placed && !gemm_changed);
                let placed = placed.map(|of| (of, changed.as_ref()));
                Arc::new(QuadrantView::of((&**snapshot, &**judged), plan, question.gemm, placed))
            }
            false => last.plain.clone(),
        };
        let kept = same && !gemm_changed && last.question.is_some_and(|asked| asked.versus == question.versus);
        let quadrant = match kept {
            true => last.quadrant.clone(),
            false => {
                let against = versus.as_deref().filter(|_| question.versus);
                let shown = against.map(|versus| Arc::new(plain.against(snapshot, plan, versus)));
                shown.unwrap_or_else(|| plain.clone())
            }
        };
        (quadrant, plain, if same { last.mods.clone() } else { ModsStanding::of(snapshot, &last.mods) })
    }

    fn put_together(&mut self, basis: Basis, (quadrant, plain, mods): Asked, last: &Views) -> Views {
        let Basis { plan, judged, versus, changed } = basis;
        let snapshot = &self.snapshot;
        let views = match (self.table.take(), self.sites.take()) {
            (Some((table, worth, findings)), Some((standings, verdicts, answer, low))) => Views {
                revision: snapshot.revision,
                answer,
                snapshot: Some(snapshot.clone()),
                sources: table.sources(),
                verdicts,
                // Errors are the rows', whatever is decided of them.
                worst: changed.map_or_else(|| Worst::of(snapshot, &judged), |_| last.worst.clone()),
                now: Now::of(&plan, snapshot.document.policy.metric, &low),
                findings,
                worth,
                low,
                standings,
                table,
                mods_effect: ModsEffect::of(snapshot, &plan).map(Arc::new),
                plan,
                judged,
                ..Views::default()
            },
            _ => self.compared.take().map_or_else(|| last.clone(), |views| *views),
        };
        let grid = self.grid.take().unwrap_or_default();
        Views { quadrant, plain, mods, grid, versus, question: Some(self.question), ..views }
    }
}

/// As a page makes them.
#[cfg(test)]
pub(super) fn by_parts(snapshot: &Arc<Snapshot>, question: ViewQuery, last: &Views) -> Views {
    let mut derivation = Derivation::new(snapshot.clone(), question, last);
    loop {
        if let Some(views) = derivation.step(last) {
            return views;
        }
    }
}
