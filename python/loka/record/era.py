"""Takes a site's running sums of some recorded steps and of those after them; gives the sums of both, so that what is long
past can be left out.

Gradients shrink by orders of magnitude while a model trains, and their squares with them: sums over all steps would be those
of the first few, whose gradients lie in directions that the weights have since grown along. So the sums begin anew after the
1st, 2nd, 4th, 8th ... recorded step, and the ones before the last such place are forgotten: what is saved is of at least the
last half of the recorded steps.
"""

import dataclasses
from typing import Dict, Optional, Tuple

import torch
from torch import Tensor

from loka.record.cross import Cross
from loka.record.magnitudes import Magnitudes
from loka.record.moments import AMAX, COUNT, Moments, full_precision
from loka.record.noise import Noise


@dataclasses.dataclass
class Era:
    """One site's sums over some steps."""

    input: Optional[Moments] = None
    grad: Optional[Moments] = None
    products: Optional[Cross] = None
    noise: Optional[Noise] = None
    magnitudes: Optional[Magnitudes] = None

    def next(self) -> "Era":
        """The same without anything in it."""
        parts = (self.input, self.grad, self.products, self.noise, self.magnitudes)
        return Era(*(None if part is None else part.fresh() for part in parts))  # type: ignore[arg-type]


def begins(recorded: int) -> bool:
    """Whether the sums begin anew after so many recorded steps."""
    return recorded & (recorded - 1) == 0


def first_of(recorded: int) -> int:
    """The first of so many recorded steps whose sums are kept, from 0."""
    return 0 if recorded < 2 else 1 << (recorded.bit_length() - 2)


def moments(before: Optional[Moments], after: Moments) -> Dict[str, Tensor]:
    """The state of both together: Chan's sum of two scatters about their own means."""
    if before is None:
        return after.state()
    a, b = before.state(), after.state()
    both = {name: a[name] + b[name] for name in a}
    both["counters"][AMAX] = torch.maximum(a["counters"][AMAX], b["counters"][AMAX])
    apart, weight = _apart(before, after)
    both["mean"] = before.mean + apart * (b["counters"][COUNT] / both["counters"][COUNT].clamp(min=1.0))
    both["square"] += weight * apart.square()
    far = apart.to(after.wide)
    with full_precision():
        across = far if after.omega is None else far @ after.omega
        both["scatter"].addmm_((weight.to(far) * far)[:, None], across[None, :])
    return both


def products(before: Optional[Era], after: Era) -> Dict[str, Tensor]:
    """The state of both gradients by inputs together."""
    if after.products is None:
        return {}
    if before is None or before.products is None or before.input is None or before.grad is None:
        return after.products.state
    assert after.input is not None and after.grad is not None, "made with their products"
    x, weight = _apart(before.input, after.input)
    grad, _ = _apart(before.grad, after.grad)
    between = after.products.of_one(grad.to(after.grad.wide), (weight * x).to(after.input.wide))
    return {name: before.products.state[name] + after.products.state[name] + between[name] for name in between}


def _apart(before: Moments, after: Moments) -> Tuple[Tensor, Tensor]:
    """How far the means are apart, and what their square counts in the sum of both."""
    a, b = before.counters[COUNT], after.counters[COUNT]
    return after.mean - before.mean, a * b / (a + b).clamp(min=1.0)


__all__ = ["Era", "begins", "first_of", "moments", "products"]
