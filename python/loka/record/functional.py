"""Takes a linear that runs without a module; gives its result, recorded under a name when a recorder knows it."""

from typing import Dict, Optional

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from loka.record.taps import Tap, tapped

named: Dict[str, Tap] = {}
"""The taps of attached recorders' functional linears (`Recorder(..., functional={name: weight})`)."""


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *, name: str) -> Tensor:
    """`F.linear(x, weight, bias)`: `x` `[..., k]`, `weight` `[n, k]`, `bias` `[n]` give `[..., n]`.

    While a recorder is attached that was given `functional={name: weight}`, or `{name: (weight, bias)}`, its
    recorded steps record this call as the site `name`. Other names, and other times, are the plain function."""
    if has_torch_function((x, weight)):
        # So that whoever follows the model's operations (`loka.graph`) sees this call with its name.
        return handle_torch_function(linear, (x, weight), x, weight, bias, name=name)
    y = F.linear(x, weight, bias)
    tap = named.get(name)
    if tap is not None and tap.switch.active:
        return tapped(y, x, tap)
    return y


__all__ = ["linear", "named"]
