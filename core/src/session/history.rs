//! Undo and redo: takes a document before and after a change, keeps what differs, gives the document back. A
//! gesture (a drag, a slider) is one step: its first change makes the step, the rest only move the present.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::{
    dispatch::{Document, Override, Policy},
    model::{Gemm, Runtime, SiteId, SiteMods},
};

/// Steps kept.
const DEPTH: usize = 1000;

/// What leads from one document to another. A document with ten thousand overrides changes by one of them, so
/// a step holds that one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Difference {
    policy: Option<Policy>,
    runtime: Option<Runtime>,
    mods: Option<SiteMods>,
    /// `None`: there is none any longer.
    overrides: Vec<((SiteId, Gemm), Option<Override>)>,
}

impl Difference {
    fn between(from: &Document, to: &Document) -> Self {
        let mut overrides: Vec<_> = to
            .overrides
            .iter()
            .filter(|(key, value)| from.overrides.get(key) != Some(value))
            .map(|(key, value)| (key.clone(), Some(value.clone())))
            .collect();
        let gone = from.overrides.keys().filter(|key| !to.overrides.contains_key(key));
        overrides.extend(gone.map(|key| (key.clone(), None)));
        Self {
            policy: (from.policy != to.policy).then(|| to.policy.clone()),
            runtime: (from.runtime != to.runtime).then_some(to.runtime),
            mods: (from.mods != to.mods).then(|| to.mods.clone()),
            overrides,
        }
    }

    fn apply(self, document: &mut Document) {
        if let Some(policy) = self.policy {
            document.policy = policy;
        }
        if let Some(runtime) = self.runtime {
            document.runtime = runtime;
        }
        if let Some(mods) = self.mods {
            document.mods = mods;
        }
        for (key, value) in self.overrides {
            match value {
                Some(value) => drop(document.overrides.insert(key, value)),
                None => drop(document.overrides.remove(&key)),
            }
        }
    }
}

/// Both ways from the present.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    past: VecDeque<Difference>,
    /// What was undone, until something else is changed.
    future: Vec<Difference>,
    /// What the present was when the gesture of the last change began.
    gesture: Option<(u64, Box<Document>)>,
}

impl History {
    /// Changes the document so that it can be undone; false: it is as it was.
    pub fn change(
        &mut self,
        document: &mut Document,
        gesture: Option<u64>,
        change: impl FnOnce(&mut Document),
    ) -> bool {
        let before = document.clone();
        change(document);
        let changed = *document != before;
        if changed {
            self.note(&before, document, gesture);
        }
        changed
    }

    /// Notes that `before` became `after`; a change of the gesture already noted belongs to its step.
    pub fn note(&mut self, before: &Document, after: &Document, gesture: Option<u64>) {
        self.future.clear();
        if let (Some(id), Some((known, start))) = (gesture, &self.gesture)
            && id == *known
        {
            if *after == **start {
                // Dragged back to where it began: there is nothing to undo.
                (self.gesture, _) = (None, self.past.pop_back());
            } else if let Some(last) = self.past.back_mut() {
                // The step leads from where the drag is now to where it began.
                *last = Difference::between(after, start);
            }
            return;
        }
        self.gesture = gesture.map(|id| (id, Box::new(before.clone())));
        self.past.push_back(Difference::between(after, before));
        if self.past.len() > DEPTH {
            self.past.pop_front();
        }
    }

    /// The document one step earlier. It ends a gesture: a drag that goes on is a step of its own.
    pub fn undo(&mut self, present: &Document) -> Option<Document> {
        let back = self.past.pop_back()?;
        let (earlier, forth) = stepped(present, back);
        self.future.push(forth);
        self.gesture = None;
        Some(earlier)
    }

    pub fn redo(&mut self, present: &Document) -> Option<Document> {
        let forth = self.future.pop()?;
        let (later, back) = stepped(present, forth);
        self.past.push_back(back);
        self.gesture = None;
        Some(later)
    }

    pub fn can_undo(&self) -> bool {
        !self.past.is_empty()
    }

    pub fn can_redo(&self) -> bool {
        !self.future.is_empty()
    }
}

/// Where a step leads, and the step back from there.
fn stepped(present: &Document, step: Difference) -> (Document, Difference) {
    let mut other = present.clone();
    step.apply(&mut other);
    let back = Difference::between(&other, present);
    (other, back)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KernelId;

    fn with(document: &Document, change: impl FnOnce(&mut Document)) -> Document {
        let mut changed = document.clone();
        change(&mut changed);
        changed
    }

    #[test]
    fn every_kind_of_change_is_undone_and_redone() {
        let first = Document::default();
        let key = (SiteId::new("a"), Gemm::Fprop);
        let value = Override { kernel: KernelId::new("cublaslt/bf16"), reason: "why".to_owned() };
        let second = with(&first, |document| drop(document.overrides.insert(key.clone(), value.clone())));
        let third = with(&second, |document| {
            document.policy.max_error = 0.1;
            document.overrides.clear();
        });
        let mut history = History::default();
        history.note(&first, &second, None);
        history.note(&second, &third, None);
        assert_eq!(history.undo(&third), Some(second.clone()));
        assert_eq!(history.undo(&second), Some(first.clone()));
        assert_eq!(history.undo(&first), None);
        assert_eq!(history.redo(&first), Some(second.clone()));
        assert_eq!(history.redo(&second), Some(third));
        assert!(!history.can_redo() && history.can_undo());
    }

    #[test]
    fn a_gesture_is_one_step_back_to_where_it_began() {
        let pulled = |max_error| with(&Document::default(), |document| document.policy.max_error = max_error);
        let mut history = History::default();
        history.note(&Document::default(), &pulled(0.3), Some(1));
        history.note(&pulled(0.3), &pulled(0.4), Some(1));
        history.note(&pulled(0.4), &pulled(0.5), Some(2));
        assert_eq!(history.undo(&pulled(0.5)), Some(pulled(0.4)));
        assert_eq!(history.undo(&pulled(0.4)), Some(Document::default()));
        assert_eq!(history.redo(&Document::default()), Some(pulled(0.4)));
        assert!(history.can_redo());
    }

    #[test]
    fn a_drag_back_to_where_it_began_is_no_step() {
        let pulled = |max_error| with(&Document::default(), |document| document.policy.max_error = max_error);
        let mut history = History::default();
        history.note(&Document::default(), &pulled(0.3), None);
        history.note(&pulled(0.3), &pulled(0.4), Some(1));
        history.note(&pulled(0.4), &pulled(0.3), Some(1));
        // It goes on: a step from there.
        history.note(&pulled(0.3), &pulled(0.5), Some(1));
        assert_eq!(history.undo(&pulled(0.5)), Some(pulled(0.3)));
        assert_eq!(history.undo(&pulled(0.3)), Some(Document::default()));
        assert!(!history.can_undo());
    }
}
