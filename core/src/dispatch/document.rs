//! What a person decides, and can undo: policy, mods, overrides. The steps of undo are in `history.rs`.

use serde::{Deserialize, Serialize};

use crate::{
    dispatch::{Override, Overrides, Policy},
    model::{Gemm, Runtime, SiteId, SiteMods},
};

/// The undoable part of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub policy: Policy,
    /// Where the plan will run.
    #[serde(default)]
    pub runtime: Runtime,
    pub mods: SiteMods,
    #[serde(with = "as_list")]
    pub overrides: Overrides,
}

/// JSON has no tuple keys.
mod as_list {
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Gemm, Override, Overrides, SiteId};

    pub fn serialize<S: Serializer>(overrides: &Overrides, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(overrides)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Overrides, D::Error> {
        let entries = Vec::<((SiteId, Gemm), Override)>::deserialize(deserializer)?;
        Ok(entries.into_iter().collect())
    }
}
