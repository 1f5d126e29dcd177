//! No bias: biases go everywhere but in the final prediction layers (LoKA §IV-A).

use crate::{model::Site, numerics::Step};

use super::{Effect, Tail};

pub(super) fn effect(site: &Site) -> Effect {
    if site.head {
        Effect::Nothing("a final prediction layer keeps its bias")
    } else if site.bias {
        Effect::Changes("the bias is dropped".to_owned())
    } else {
        Effect::Nothing("this site has no bias")
    }
}

pub(super) fn change(tail: &mut Tail, site: &Site) {
    if !site.head {
        tail.steps.retain(|step| !matches!(step, Step::Bias(_)));
    }
}
