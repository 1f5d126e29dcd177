//! A review as it grows: marks of people on sites and on the plan, and what they wrote. Nothing here is undone: what
//! was said was said.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Gemm, Moment, SiteId};

/// Characters of a comment.
pub const TEXT_CHARACTERS: usize = 10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewState {
    #[default]
    Open,
    Agreed,
    NeedsWork,
}

impl ReviewState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Agreed => "agreed",
            Self::NeedsWork => "needs work",
        }
    }
}

/// What one person holds of one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// `None`: of the plan as a whole.
    pub site: Option<SiteId>,
    pub by: String,
    pub at: Moment,
    pub state: ReviewState,
    /// What was on screen then, by its fingerprint: a mark says nothing of a choice that came later.
    pub of: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comment {
    /// Counts from 1.
    pub id: u64,
    /// `None`: of the plan as a whole.
    pub site: Option<SiteId>,
    pub gemm: Option<Gemm>,
    /// The comment that begins the thread; `None`: this one does.
    pub reply_to: Option<u64>,
    pub by: String,
    pub at: Moment,
    pub text: String,
    /// Who closed the thread that it begins.
    pub resolved_by: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Review {
    #[serde(with = "as_list")]
    marks: BTreeMap<(Option<SiteId>, String), Mark>,
    pub comments: Vec<Comment>,
}

impl Review {
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.comments.is_empty()
    }

    pub fn num_marks(&self) -> usize {
        self.marks.len()
    }

    /// By place and person.
    pub fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.marks.values()
    }

    pub fn marks_of(&self, site: Option<&SiteId>) -> impl Iterator<Item = &Mark> {
        let site = site.cloned();
        let of = site.clone();
        self.marks.range((site, String::new())..).map(|(_, mark)| mark).take_while(move |mark| mark.site == of)
    }

    pub fn mark_of(&self, site: Option<&SiteId>, by: &str) -> Option<&Mark> {
        self.marks.get(&(site.cloned(), by.to_owned()))
    }

    /// In place of the person's earlier one there.
    pub fn set_mark(&mut self, mark: Mark) {
        self.marks.insert((mark.site.clone(), mark.by.clone()), mark);
    }

    /// Where a place stands whose choice has the fingerprint `now`: somebody's doubt counts whatever it was of, an
    /// agreement only while what was agreed to is what is there.
    pub fn state_of(&self, site: Option<&SiteId>, now: &str) -> ReviewState {
        let mut state = ReviewState::Open;
        for mark in self.marks_of(site) {
            match mark.state {
                ReviewState::NeedsWork => return ReviewState::NeedsWork,
                ReviewState::Agreed if mark.of == now => state = ReviewState::Agreed,
                ReviewState::Agreed | ReviewState::Open => {}
            }
        }
        state
    }

    pub fn comment(&self, id: u64) -> Option<&Comment> {
        self.comments.iter().find(|comment| comment.id == id)
    }

    /// The comments that begin threads there, in the order in which they were written.
    pub fn threads_of<'a>(&'a self, site: Option<&'a SiteId>) -> impl Iterator<Item = &'a Comment> {
        self.comments.iter().filter(move |comment| comment.site.as_ref() == site && comment.reply_to.is_none())
    }

    pub fn replies_to(&self, id: u64) -> impl Iterator<Item = &Comment> {
        self.comments.iter().filter(move |comment| comment.reply_to == Some(id))
    }

    pub fn next_id(&self) -> u64 {
        self.comments.last().map_or(1, |last| last.id + 1)
    }
}

/// JSON has no tuple keys.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::{Mark, SiteId};

    type Marks = BTreeMap<(Option<SiteId>, String), Mark>;

    pub fn serialize<S: Serializer>(marks: &Marks, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(marks.values())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Marks, D::Error> {
        let marks = Vec::<Mark>::deserialize(deserializer)?;
        Ok(marks.into_iter().map(|mark| ((mark.site.clone(), mark.by.clone()), mark)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(site: Option<&str>, by: &str, state: ReviewState, of: &str) -> Mark {
        let site = site.map(SiteId::new);
        Mark { site, by: by.to_owned(), at: Moment(0), state, of: of.to_owned() }
    }

    #[test]
    fn an_agreement_is_with_what_was_there() {
        let mut review = Review::default();
        let site = SiteId::new("a");
        assert_eq!(review.state_of(Some(&site), "1"), ReviewState::Open);
        review.set_mark(mark(Some("a"), "Anna", ReviewState::Agreed, "1"));
        assert_eq!(review.state_of(Some(&site), "1"), ReviewState::Agreed);
        assert_eq!(review.state_of(Some(&site), "2"), ReviewState::Open);
        review.set_mark(mark(Some("a"), "Bo", ReviewState::NeedsWork, "1"));
        assert_eq!(review.state_of(Some(&site), "2"), ReviewState::NeedsWork);
        review.set_mark(mark(Some("a"), "Bo", ReviewState::Open, "2"));
        assert_eq!(review.state_of(Some(&site), "1"), ReviewState::Agreed);
        assert_eq!(review.state_of(Some(&SiteId::new("b")), "1"), ReviewState::Open);
        assert_eq!(review.state_of(None, "1"), ReviewState::Open);
    }

    #[test]
    fn reads_what_it_wrote() {
        let mut review = Review::default();
        review.set_mark(mark(None, "Anna", ReviewState::NeedsWork, "x"));
        review.set_mark(mark(Some("b"), "Anna", ReviewState::Agreed, "y"));
        let text = serde_json::to_string(&review).unwrap();
        assert_eq!(serde_json::from_str::<Review>(&text).unwrap(), review);
        let bytes = postcard::to_allocvec(&review).unwrap();
        assert_eq!(postcard::from_bytes::<Review>(&bytes).unwrap(), review);
        assert_eq!(review.marks_of(Some(&SiteId::new("b"))).count(), 1);
    }
}
