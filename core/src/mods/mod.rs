//! Stage 3. Takes a site's recorded statistics and a set of mods; gives the tail that the modified
//! model has. Each mod is one file that says where it applies and what it changes.
//!
//! A mod changes the model: errors under mods are measured against the *modified* model in high
//! precision, and that model must be trained with them (LoKA §IV).

mod block_norm;
mod fits;
mod hard_swish;
mod no_bias;
mod tail;

pub use fits::{fits, output_bound};
pub use tail::Tail;

use crate::{
    model::{ModKind, ModSet, Site},
    trace::SiteStats,
};

/// What people must be told wherever mods are on.
pub const MUST_BE_TRAINED: &str = "Mods change the model: it must be trained with them.";

/// What one mod does at one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes the tail, as the note says.
    Changes(String),
    /// It leaves the site alone, for this reason.
    Nothing(&'static str),
}

/// What `kind` would do at `site`.
pub fn effect(kind: ModKind, site: &Site) -> Effect {
    match kind {
        ModKind::NoBias => no_bias::effect(site),
        ModKind::BlockNorm => block_norm::effect(site),
        ModKind::HardSwish => hard_swish::effect(site),
    }
}

/// The mods of `set` that change `site`.
pub fn applying(set: &ModSet, site: &Site) -> Vec<ModKind> {
    let changes = |kind: &ModKind| matches!(effect(*kind, site), Effect::Changes(_));
    set.0.iter().copied().filter(changes).collect()
}

/// The tail of the model under `mods`.
pub fn modified_tail(stats: &SiteStats, mods: &ModSet) -> Tail {
    let mut tail = Tail::of(stats);
    for kind in &mods.0 {
        match kind {
            ModKind::NoBias => no_bias::change(&mut tail, &stats.site),
            ModKind::BlockNorm => block_norm::change(&mut tail),
            ModKind::HardSwish => hard_swish::change(&mut tail),
        }
    }
    tail
}

/// Names of the operations after the linear under `mods`, for the cost model, and whether a bias is
/// left. Known from the manifest alone.
pub fn modified_ops(site: &Site, mods: &ModSet) -> (Vec<&'static str>, bool) {
    let bias = site.bias && (site.head || !mods.contains(ModKind::NoBias));
    let ops = site.tail.iter().map(|op| match op.op.as_str() {
        "layer_norm" | "rms_norm" if mods.contains(ModKind::BlockNorm) => "block_norm",
        "swish" if mods.contains(ModKind::HardSwish) => "hard_swish",
        "layer_norm" => "layer_norm",
        "rms_norm" => "rms_norm",
        "block_norm" => "block_norm",
        "swish" => "swish",
        "hard_swish" => "hard_swish",
        "relu" => "relu",
        "sigmoid" => "sigmoid",
        "tanh" => "tanh",
        "gelu" => "gelu",
        "residual" => "residual",
        _ => "other",
    });
    (ops.collect(), bias)
}
