"""Takes a linear that runs without a module, and its name; gives its result, recorded and by a plan's kernels where
a recorder or a plan knows the name."""

from typing import Dict, Optional

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from loka.kernels.named import named_linear, routed
from loka.record.taps import Tap, tapped

named: Dict[str, Tap] = {}
"""The taps of attached recorders' functional linears (`Recorder(..., functional={name: weight})`)."""


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *, name: str) -> Tensor:
    """`F.linear(x, weight, bias)`: `x` `[..., k]`, `weight` `[n, k]`, `bias` `[n]` give `[..., n]`.

    While a recorder is attached that was given `functional={name: weight}`, or `{name: (weight, bias)}`, its
    recorded steps record this call as the site `name`. While a plan is applied that was given the same mapping,
    `loka.apply(model, plan, functional=...)`, the plan's kernels for the site `name` run it, recorded or not. Other
    names, and other times, are the plain function. Names are of the whole process: give each linear its own.

    Raises RuntimeError where a plan runs the name and was applied for a weight of another shape."""
    if has_torch_function((x, weight)):
        # So that whoever follows the model's operations (`loka.graph`) sees this call with its name.
        return handle_torch_function(linear, (x, weight), x, weight, bias, name=name)
    route = routed.get(name)
    y = F.linear(x, weight, bias) if route is None else named_linear(x, weight, bias, name, route)
    tap = named.get(name)
    if tap is not None and tap.switch.active:
        return tapped(y, x, tap, weight)
    return y


__all__ = ["linear", "named"]
