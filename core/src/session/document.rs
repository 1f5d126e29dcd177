//! What a person decides, and can undo: policy, mods, overrides. One snapshot a gesture.

use serde::{Deserialize, Serialize};

use crate::{
    dispatch::{Override, Overrides, Policy},
    model::{Gemm, SiteId, SiteMods},
};

/// The undoable part of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub policy: Policy,
    pub mods: SiteMods,
    #[serde(with = "as_list")]
    pub overrides: Overrides,
}

impl Default for Document {
    fn default() -> Self {
        Self { policy: Policy::paper(), mods: SiteMods::default(), overrides: Overrides::new() }
    }
}

/// JSON has no tuple keys.
mod as_list {
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Gemm, Override, Overrides, Serialize, SiteId};

    #[derive(Serialize, Deserialize)]
    struct Entry {
        site: SiteId,
        gemm: Gemm,
        #[serde(flatten)]
        value: Override,
    }

    pub fn serialize<S: Serializer>(overrides: &Overrides, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = overrides.iter();
        serializer.collect_seq(entries.map(|((site, gemm), value)| Entry {
            site: site.clone(),
            gemm: *gemm,
            value: value.clone(),
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Overrides, D::Error> {
        let entries = Vec::<Entry>::deserialize(deserializer)?;
        Ok(entries.into_iter().map(|entry| ((entry.site, entry.gemm), entry.value)).collect())
    }
}

/// Undo and redo. A gesture (a drag, a slider) is one step: its first change takes the snapshot, the
/// rest only move the present.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    past: Vec<Document>,
    future: Vec<Document>,
    /// The gesture that the last change belonged to.
    gesture: Option<u64>,
}

/// Snapshots kept; a document is small.
const DEPTH: usize = 1000;

impl History {
    /// Notes `before` as a state to come back to, unless it belongs to the gesture already noted.
    pub fn note(&mut self, before: &Document, gesture: Option<u64>) {
        if gesture.is_some() && gesture == self.gesture {
            return;
        }
        self.gesture = gesture;
        self.past.push(before.clone());
        self.future.clear();
        if self.past.len() > DEPTH {
            self.past.remove(0);
        }
    }

    pub fn undo(&mut self, present: &Document) -> Option<Document> {
        let earlier = self.past.pop()?;
        self.future.push(present.clone());
        self.gesture = None;
        Some(earlier)
    }

    pub fn redo(&mut self, present: &Document) -> Option<Document> {
        let later = self.future.pop()?;
        self.past.push(present.clone());
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
