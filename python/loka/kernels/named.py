"""Takes a linear that runs without a module, by its name; gives its result by the kernels that a plan has for it."""

from typing import Dict, Optional, Tuple

from torch import Tensor

from .linear import linear
from .passes import Kernels

Route = Tuple[Kernels, bool, Tuple[int, int]]
"""Kernels, whether they are emulated, and the weight's shape (n, k). Plain values: torch.compile guards on each, so
that a compiled model is compiled again when its routes change."""

routed: Dict[str, Route] = {}
"""The functional linears of this process that run by a plan's kernels (`loka.apply(..., functional=...)`)."""


def named_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor], name: str, route: Route) -> Tensor:
    """`x` `[..., k]`, `weight` `[n, k]`, `bias` `[n]` give `[..., n]`, as `loka.kernels.linear` does.

    Raises RuntimeError for a weight of another shape: kernels were checked for the plan's, and the name must be
    another linear's."""
    kernels, emulate, shape = route
    if tuple(weight.shape) != shape:
        raise RuntimeError(
            f"loka.linear '{name}' runs by a plan for a weight of {list(shape)}, this one has {list(weight.shape)}: "
            "names are of the whole process, one linear each"
        )
    return linear(x, weight, bias, kernels, emulate)


__all__ = ["Route", "named_linear", "routed"]
