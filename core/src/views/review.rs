//! What a reviewer looks at first: takes a moment's plan and its table, gives the sites in the order of their risk, and
//! where each stands by what people said of it.

use std::{cmp::Ordering, collections::BTreeMap};

use super::{Flags, PlanTable, PlanView, Snapshot};
use crate::{
    model::{Gemm, LatencySource, Metric, SiteId, SiteIndex},
    plan::fingerprint,
    review::{Review, ReviewState},
};

/// The fingerprints of what one person saw last, by site.
pub type Looked = BTreeMap<SiteId, String>;

/// Why a site deserves a look; the first that holds gives its place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Concern {
    /// A verdict that may fall either way.
    Uncertain,
    /// A person chose what the policy would not.
    AgainstPolicy,
    /// In low precision for a speed-up that nobody measured.
    Modelled,
    /// In low precision: by its loss cost.
    Low,
    /// A person chose high precision.
    Override,
    /// High precision, by the policy.
    Settled,
}

impl Concern {
    pub const ALL: [Self; 6] =
        [Self::Uncertain, Self::AgainstPolicy, Self::Modelled, Self::Low, Self::Override, Self::Settled];

    pub fn word(self) -> &'static str {
        match self {
            Self::Uncertain => "uncertain",
            Self::AgainstPolicy => "against the policy",
            Self::Modelled => "modelled speed",
            Self::Low => "low precision",
            Self::Override => "override",
            Self::Settled => "high precision",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Self::Uncertain => "A verdict is too close to the threshold to call: more draws would tell",
            Self::AgainstPolicy => "An override breaks the policy: loka check refuses it",
            Self::Modelled => "Its speed-up is modelled from other shapes, not measured",
            Self::Low => "It runs in low precision; the largest loss cost comes first",
            Self::Override => "A person chose its kernel",
            Self::Settled => "It stays in high precision, by the policy",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReviewItem {
    /// The site's number.
    pub at: usize,
    /// In their order; never empty.
    pub concerns: Vec<Concern>,
    /// The chosen forward kernel's, the interval's upper end; `None` also where it means nothing.
    pub loss_cost: Option<f64>,
    /// Of the choices as they are.
    pub fingerprint: String,
}

/// Sites, the riskiest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReviewQueue {
    pub items: Vec<ReviewItem>,
    /// By site: its place in `items`.
    places: Vec<u32>,
}

impl ReviewQueue {
    pub fn of(snapshot: &Snapshot, plan: &PlanView, table: &PlanTable) -> Self {
        let mut items: Vec<ReviewItem> =
            (0..snapshot.sites().len()).filter_map(|at| item(snapshot, plan, table, at)).collect();
        items.sort_by(by_risk);
        let mut places = vec![u32::MAX; snapshot.sites().len()];
        for (place, item) in items.iter().enumerate() {
            places[item.at] = place as u32;
        }
        Self { items, places }
    }

    /// Of the site with that number.
    pub fn item(&self, at: usize) -> Option<(usize, &ReviewItem)> {
        let place = *self.places.get(at)? as usize;
        self.items.get(place).map(|item| (place, item))
    }

    /// Of the plan as a whole.
    pub fn fingerprint(&self) -> String {
        let mut all: Vec<&ReviewItem> = self.items.iter().collect();
        all.sort_by_key(|item| item.at);
        let text: Vec<&str> = all.iter().map(|item| item.fingerprint.as_str()).collect();
        crate::model::sha256_of(text.join("\n").as_bytes())
    }
}

fn by_risk(a: &ReviewItem, b: &ReviewItem) -> Ordering {
    let cost = |item: &ReviewItem| item.loss_cost.filter(|cost| !cost.is_nan()).unwrap_or(0.0);
    let first = a.concerns.first().cmp(&b.concerns.first());
    first.then_with(|| cost(b).total_cmp(&cost(a))).then_with(|| a.at.cmp(&b.at))
}

fn item(snapshot: &Snapshot, plan: &PlanView, table: &PlanTable, at: usize) -> Option<ReviewItem> {
    let choices = Gemm::ALL.map(|gemm| plan.pick_at(at, gemm));
    let [Some(fprop), Some(dgrad), Some(wgrad)] = choices else { return None };
    let lines = table.lines.get(3 * at..3 * at + 3)?;
    let any = |flag: Flags| lines.iter().any(|line| line.flags.has(flag));
    let row = |gemm: Gemm| snapshot.row(at, gemm, &choices[gemm as usize]?.kernel);
    let low = |gemm: Gemm| lines[gemm as usize].flags.has(Flags::LOW);
    let modelled = |gemm: Gemm| low(gemm) && row(gemm).is_some_and(|row| row.latency.source == LatencySource::Modelled);
    let unsure = |gemm: Gemm| low(gemm) && lines[gemm as usize].verdict == crate::model::Quadrant::Uncertain;
    let against = Gemm::ALL.into_iter().any(|gemm| {
        let line = &lines[gemm as usize];
        let broken = line.flags.has(Flags::OUT_OF_RANGE) || line.margin.is_some_and(|margin| margin < 0.0);
        broken && line.flags.has(Flags::OVERRIDE)
    });
    let holds = |concern: &Concern| match concern {
        Concern::Uncertain => any(Flags::UNCERTAIN) || Gemm::ALL.into_iter().any(unsure),
        Concern::AgainstPolicy => against,
        Concern::Modelled => Gemm::ALL.into_iter().any(modelled),
        Concern::Low => any(Flags::LOW),
        Concern::Override => any(Flags::OVERRIDE),
        Concern::Settled => false,
    };
    let mut concerns: Vec<Concern> = Concern::ALL.into_iter().filter(holds).collect();
    if concerns.is_empty() {
        concerns.push(Concern::Settled);
    }
    let loss_cost = row(Gemm::Fprop).and_then(|row| row.figure(Metric::LossCost, snapshot.loss())).map(|cost| cost.hi);
    let got = [fprop, dgrad, wgrad].map(|pick| (&pick.kernel, pick.source));
    let fingerprint = fingerprint(got, snapshot.mods_of(at));
    Some(ReviewItem { at, concerns, loss_cost, fingerprint })
}

/// Where one site stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteReview {
    pub state: ReviewState,
    /// This person saw it, and it is another now.
    pub changed: bool,
    /// This person saw it as it is.
    pub seen: bool,
    pub open_threads: u32,
}

impl SiteReview {
    /// Of every item of the queue, for one person.
    pub fn of_all(index: &SiteIndex, review: &Review, looked: &Looked, queue: &ReviewQueue) -> Vec<Self> {
        let ids = index.ids();
        let mut found: Vec<Self> =
            queue.items.iter().map(|item| Self::of(review, looked, &ids[item.at], &item.fingerprint)).collect();
        for comment in review.comments.iter().filter(|of| of.reply_to.is_none()) {
            let at = comment.site.as_ref().filter(|_| comment.resolved_by.is_none()).and_then(|id| index.at(id));
            if let Some((place, _)) = at.and_then(|at| queue.item(at)) {
                found[place].open_threads += 1;
            }
        }
        found
    }

    fn of(review: &Review, looked: &Looked, site: &SiteId, now: &str) -> Self {
        let looked = looked.get(site);
        Self {
            state: review.state_of(Some(site), now),
            changed: looked.is_some_and(|looked| looked != now),
            seen: looked.is_some_and(|looked| looked == now),
            open_threads: 0,
        }
    }

    /// Something is left to do here for this person.
    pub fn waits(&self) -> bool {
        self.changed || self.state != ReviewState::Agreed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::{results, row},
        model::{KernelId, ResultRow},
        session::{
            Command, Event, Session,
            shared::{Author, CommandContext},
        },
        views::{ViewQuery, Views},
    };

    const LOW: &str = "cublaslt/fp8-rowwise";

    fn session() -> Session {
        let with = |site: &str, error: f64, cost: f64, source: LatencySource| {
            let mut row = row(site, Gemm::Fprop, LOW, error, Some(1.3), cost);
            row.latency.source = source;
            row
        };
        let rows: Vec<ResultRow> = vec![
            with("settled", 0.9, 1e-6, LatencySource::Measured),
            with("cheap", 0.01, 1e-7, LatencySource::Measured),
            with("dear", 0.01, 1e-5, LatencySource::Measured),
            with("modelled", 0.01, 1e-9, LatencySource::Modelled),
            with("forced", 0.9, 1e-6, LatencySource::Measured),
            with("edge", 0.2, 1e-6, LatencySource::Measured),
        ];
        let mut session = Session::by_paper();
        let results = results(&["settled", "cheap", "dear", "modelled", "forced", "edge"], rows);
        session.event(Event::ResultsOpened { path: "r".to_owned(), results: Box::new(results.into()) });
        let (site, kernel) = (SiteId::new("forced"), KernelId::new(LOW));
        session.command(Command::SetOverride { site, gemm: Gemm::Fprop, kernel, reason: "r".to_owned() }).unwrap();
        session
    }

    fn standings(session: &Session, queue: &ReviewQueue, me: &str) -> Vec<SiteReview> {
        let (reviewing, none) = (&session.reviewing, Looked::new());
        let looked = reviewing.looked.get(me).unwrap_or(&none);
        SiteReview::of_all(session.index(), &reviewing.review, looked, queue)
    }

    fn queue(session: &Session) -> ReviewQueue {
        let question = ViewQuery { metric: Metric::Mere, gemm: None, relative: false, versus: false };
        let views = Views::of(&session.snapshot().unwrap(), question, &Views::default());
        ReviewQueue::of(&session.snapshot().unwrap(), &views.plan, &views.table)
    }

    #[test]
    fn the_riskiest_come_first() {
        let session = session();
        let queue = queue(&session);
        let ids = session.index().ids();
        let order: Vec<(&str, Concern)> = queue.items.iter().map(|of| (ids[of.at].as_str(), of.concerns[0])).collect();
        assert_eq!(
            order,
            [
                ("edge", Concern::Uncertain),
                ("forced", Concern::AgainstPolicy),
                ("modelled", Concern::Modelled),
                ("dear", Concern::Low),
                ("cheap", Concern::Low),
                ("settled", Concern::Settled),
            ]
        );
        assert_eq!(queue.item(1).unwrap().0, 4);
    }

    /// A loss cost that means nothing puts a site before no other, and a person's choice of it is against the policy.
    #[test]
    fn a_loss_cost_outside_its_range_is_no_cost() {
        let costs = |site: &str, cost: f64| row(site, Gemm::Fprop, LOW, 0.01, Some(1.3), cost);
        let mut session = Session::by_paper();
        let results = results(&["beyond", "within"], vec![costs("beyond", 0.06), costs("within", 0.04)]);
        session.event(Event::ResultsOpened { path: "r".to_owned(), results: Box::new(results.into()) });
        let order = |session: &Session| -> Vec<(usize, Concern, Option<f64>)> {
            queue(session).items.iter().map(|of| (of.at, of.concerns[0], of.loss_cost)).collect()
        };
        let within = (1, Concern::Low, Some(1.1 * 0.04));
        assert_eq!(order(&session), [within, (0, Concern::Low, None)]);
        let (site, kernel) = (SiteId::new("beyond"), KernelId::new(LOW));
        session.command(Command::SetOverride { site, gemm: Gemm::Fprop, kernel, reason: "r".to_owned() }).unwrap();
        let policy = crate::dispatch::Policy::loss_budget();
        session.command(Command::SetPolicy { policy }).unwrap();
        let first = &queue(&session).items[0];
        assert_eq!((first.at, first.loss_cost), (0, None));
        assert_eq!(first.concerns[..2], [Concern::Uncertain, Concern::AgainstPolicy]);
    }

    #[test]
    fn a_change_is_told_to_who_saw_it_otherwise() {
        let mut session = session();
        let anna = Author::new(1, "Anna");
        let by = || CommandContext::numbered(anna.clone(), 1);
        let before = queue(&session);
        let (place, item) = before.item(1).unwrap();
        let (site, of) = (SiteId::new("cheap"), item.fingerprint.clone());
        let agree = Command::Mark { site: Some(site.clone()), state: ReviewState::Agreed, of };
        session.command_by(&by(), 1, agree).unwrap();
        let say = Command::Comment { site: Some(site.clone()), gemm: None, reply_to: None, text: "why".to_owned() };
        session.command_by(&by(), 2, say).unwrap();
        let now = standings(&session, &before, "Anna")[place];
        assert_eq!((now.state, now.seen, now.changed, now.open_threads), (ReviewState::Agreed, true, false, 1));
        drop(session.command(Command::SetMaxError { value: 0.001, gesture: None }));
        let after = queue(&session);
        let (place, _) = after.item(1).unwrap();
        let now = standings(&session, &after, "Anna")[place];
        assert_eq!((now.state, now.changed), (ReviewState::Open, true));
        assert!(now.waits() && !standings(&session, &after, "Bo")[place].changed);
        assert_ne!(before.fingerprint(), after.fingerprint());
    }
}
