//! What a site hands on and takes, as a plan says it.

use serde::{Deserialize, Serialize};

use crate::model::SiteId;

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    Bf16,
    /// Codes of one static scale.
    E4m3,
}

impl Form {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::E4m3 => "e4m3",
        }
    }
}

/// What a site's forward GEMM reads and stores, where either is codes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    pub reads: Form,
    /// Whose codes it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SiteId>,
    /// After the site's tail.
    pub stores: Vec<Form>,
    /// Of the stored codes: a power of two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_scale: Option<f64>,
    /// The cast that is not needed, less the codes that are stored beside BF16: as timed at the site that stores them, where
    /// whole sites were, else modelled, in the time of the policy's baseline. Below 0 where a site only stores them.
    pub saved_us: f64,
}

impl Chain {
    pub fn reads_codes(&self) -> bool {
        self.reads == Form::E4m3
    }

    pub fn stores_bf16(&self) -> bool {
        self.stores.contains(&Form::Bf16)
    }

    pub fn stores_codes(&self) -> bool {
        self.stores.contains(&Form::E4m3)
    }

    /// In a few words: "reads e4m3 from net.0, stores bf16 + e4m3".
    pub fn summary(&self) -> String {
        let forms: Vec<&str> = self.stores.iter().map(|form| form.as_str()).collect();
        let from = self.from.as_ref().map_or_else(String::new, |from| format!(" from {from}"));
        format!("reads {}{from}, stores {}", self.reads.as_str(), forms.join(" + "))
    }

    /// True where another says the same but for the time.
    pub fn is_like(&self, other: &Self) -> bool {
        Self { saved_us: other.saved_us, ..self.clone() } == *other
    }
}
