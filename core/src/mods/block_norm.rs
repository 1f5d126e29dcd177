//! BlockNorm: RMS norm over fixed blocks of features, no gain, in place of a norm over the whole row
//! (LoKA §IV-B). Its output is bounded by sqrt(block), and its statistics fit in a GEMM's tile.

use crate::{
    model::{Site, op_name},
    numerics::Step,
};

use super::{Effect, Tail};

/// Features a block.
pub const BLOCK: usize = 256;

/// PyTorch's `rms_norm` takes the type's epsilon when none is given; FP32's, as in the peer model.
pub(super) const EPS: f32 = f32::EPSILON;

/// Blocks of one row of `n` features. A row that is shorter or ragged is one block.
pub fn block_of(n: usize) -> usize {
    if n.is_multiple_of(BLOCK) && n > 0 { BLOCK } else { n }
}

pub(super) fn effect(site: &Site) -> Effect {
    let norm = site.tail.iter().find(|op| matches!(op.op.as_str(), "layer_norm" | "rms_norm"));
    match norm {
        None => Effect::Nothing("no norm in the tail"),
        Some(norm) if block_of(site.n) == BLOCK => {
            Effect::Changes(format!("{} becomes BlockNorm with blocks of {BLOCK}", op_name(&norm.op)))
        }
        Some(norm) => Effect::Changes(format!(
            "{} becomes BlockNorm; n = {} is not a multiple of {BLOCK}, so the row is one block",
            op_name(&norm.op),
            site.n
        )),
    }
}

pub(super) fn change(tail: &mut Tail) {
    let n = tail.features;
    for step in &mut tail.steps {
        if matches!(step, Step::LayerNorm { .. } | Step::RmsNorm { .. }) {
            *step = Step::BlockNorm { eps: EPS, block: block_of(n) };
        }
    }
}
