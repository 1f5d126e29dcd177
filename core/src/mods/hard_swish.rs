//! Hard swish: `x ReLU6(x + 3) / 6` in place of `x sigmoid(x)` (LoKA §IV-C).

use crate::{model::Site, numerics::Step};

use super::{Effect, Tail};

pub(super) fn effect(site: &Site) -> Effect {
    if site.tail.iter().any(|op| op.op == "swish") {
        Effect::Changes("swish becomes hard swish".to_owned())
    } else {
        Effect::Nothing("no swish in the tail")
    }
}

pub(super) fn change(tail: &mut Tail) {
    for step in &mut tail.steps {
        if *step == Step::Swish {
            *step = Step::HardSwish;
        }
    }
}
