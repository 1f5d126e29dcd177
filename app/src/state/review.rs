//! What is seen of the review and not of the plan: the queue as it was made last, what is kept of it, and what is being
//! written.

use std::sync::Arc;

use loka_core::{
    model::SiteId,
    review::ReviewState,
    session::Session,
    views::{Concern, Looked, PlanTable, ReviewQueue, SiteReview},
};

use super::Derived;

/// Which sites are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReviewFilter {
    /// Whatever waits for this person, and whatever is not simply in high precision.
    #[default]
    Risky,
    Waiting,
    NeedsWork,
    Changed,
    All,
}

impl ReviewFilter {
    pub const ALL: [Self; 5] = [Self::Risky, Self::Waiting, Self::NeedsWork, Self::Changed, Self::All];

    pub fn text(self) -> &'static str {
        match self {
            Self::Risky => "To look at",
            Self::Waiting => "Not agreed",
            Self::NeedsWork => "Needs work",
            Self::Changed => "Changed",
            Self::All => "All",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Self::Risky => "Sites that are in low precision, uncertain, or set by hand; and those with open threads",
            Self::Waiting => "Of these, what nobody agreed to as it is",
            Self::NeedsWork => "Somebody asked for a change",
            Self::Changed => "Decided otherwise since you looked",
            Self::All => "Every site, high precision too",
        }
    }

    pub fn keeps(self, concern: Concern, of: SiteReview) -> bool {
        let risky = concern != Concern::Settled || of.open_threads > 0 || of.state == ReviewState::NeedsWork;
        match self {
            Self::Risky => risky || of.changed,
            Self::Waiting => risky && of.waits(),
            Self::NeedsWork => of.state == ReviewState::NeedsWork,
            Self::Changed => of.changed,
            Self::All => true,
        }
    }
}

/// What the queue was made of.
#[derive(Clone, Debug)]
struct MadeQueue {
    table: Arc<PlanTable>,
    queue: Arc<ReviewQueue>,
}

#[derive(Clone, Debug, Default)]
pub struct ReviewPane {
    pub keep: ReviewFilter,
    made: Option<MadeQueue>,
    /// Beside the queue's items; with what they were made of.
    standings: Arc<Vec<SiteReview>>,
    of: Option<(u64, u64, String)>,
    /// Places in the queue.
    pub shown: Arc<Vec<u32>>,
    shown_of: Option<ReviewFilter>,
    /// What is written: a comment on the selected site, on the plan, or an answer.
    pub draft: String,
    pub focus_draft: bool,
    /// The thread that the draft answers.
    pub reply_to: Option<u64>,
    /// The selected line is brought into sight once.
    pub reveal: bool,
    /// Comments on the plan as a whole are shown.
    pub whole: bool,
    pub note: String,
}

impl ReviewPane {
    pub fn queue(&self) -> Option<&Arc<ReviewQueue>> {
        self.made.as_ref().map(|made| &made.queue)
    }

    pub fn standings(&self) -> &[SiteReview] {
        &self.standings
    }

    pub fn standing(&self, at: usize) -> Option<SiteReview> {
        let (place, _) = self.queue()?.item(at)?;
        self.standings.get(place).copied()
    }

    pub fn fingerprint(&self, at: usize) -> Option<&str> {
        self.queue()?.item(at).map(|(_, item)| item.fingerprint.as_str())
    }

    /// Made anew when the plan changed, or what was said of it.
    pub fn refresh(&mut self, session: &Session, derived: &Derived, me: &str) {
        if self.made.as_ref().is_none_or(|made| !Arc::ptr_eq(&made.table, &derived.table)) {
            let Some(snapshot) = &derived.snapshot else { return };
            let queue = Arc::new(ReviewQueue::of(snapshot, &derived.plan, &derived.table));
            self.made = Some(MadeQueue { table: derived.table.clone(), queue });
            self.of = None;
        }
        let Some(made) = &self.made else { return };
        let of = (session.reviewing.revision, session.revision(), me.to_owned());
        if self.of.as_ref() != Some(&of) {
            let (reviewing, none) = (&session.reviewing, Looked::new());
            let looked = reviewing.looked.get(me).unwrap_or(&none);
            self.standings = Arc::new(SiteReview::of_all(session.index(), &reviewing.review, looked, &made.queue));
            (self.of, self.shown_of) = (Some(of), None);
        }
        if self.shown_of != Some(self.keep) {
            let both = made.queue.items.iter().zip(self.standings.iter()).enumerate();
            let kept = both.filter(|(_, (item, of))| self.keep.keeps(item.concerns[0], **of));
            self.shown = Arc::new(kept.map(|(place, _)| place as u32).collect());
            self.shown_of = Some(self.keep);
        }
    }

    /// The site after the one with that number that waits for this person; `back`: before it.
    pub fn next(&self, session: &Session, now: Option<&SiteId>, back: bool) -> Option<SiteId> {
        let queue = self.queue()?;
        let place = now.and_then(|id| session.index().at(id)).and_then(|at| queue.item(at)).map(|(place, _)| place);
        let waits = |place: &usize| {
            let (item, of) = (&queue.items[*place], self.standings[*place]);
            back || ReviewFilter::Waiting.keeps(item.concerns[0], of)
        };
        let all = 0..queue.items.len().min(self.standings.len());
        let next = match (place, back) {
            (None, _) => all.clone().find(waits),
            (Some(place), true) => all.clone().take(place).rev().find(waits),
            // Past the end it begins again: what was passed over waits still.
            (Some(place), false) => all.clone().skip(place + 1).chain(all.take(place)).find(waits),
        };
        next.and_then(|place| session.index().ids().get(queue.items[place].at).cloned())
    }

    /// What a person who signs now leaves open: risky sites that they did not see as they are, and those that somebody
    /// asked to change. `None`: nothing, or the queue was not made yet.
    pub fn left_open(&self) -> Option<String> {
        let both = self.queue()?.items.iter().zip(self.standings.iter());
        let risky: Vec<&SiteReview> =
            both.filter(|(item, of)| ReviewFilter::Risky.keeps(item.concerns[0], **of)).map(|(_, of)| of).collect();
        let unseen = risky.iter().filter(|of| !of.seen).count();
        let work = risky.iter().filter(|of| of.state == ReviewState::NeedsWork).count();
        let threads: u32 = risky.iter().map(|of| of.open_threads).sum();
        let mut open = Vec::new();
        if unseen > 0 {
            open.push(format!("you have not looked at {unseen} of {} risky sites as they are", risky.len()));
        }
        if work > 0 {
            open.push(format!("{work} {} marked as needing work", if work == 1 { "is" } else { "are" }));
        }
        if threads > 0 {
            open.push(format!("{threads} {} open", if threads == 1 { "thread is" } else { "threads are" }));
        }
        let text = open.join("; ");
        let mut characters = text.chars();
        characters.next().map(|first| format!("{}{}.", first.to_uppercase(), characters.as_str()))
    }

    pub fn forget(&mut self) {
        (self.made, self.of, self.shown_of) = (None, None, None);
        (self.standings, self.shown) = (Arc::default(), Arc::default());
        (self.reply_to, self.whole) = (None, false);
        self.draft.clear();
    }
}
