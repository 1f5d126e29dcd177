"""Takes a model that a plan is applied to; has it run in high precision for a while, or for good, and by the plan again.

The linears stay what they are, with kernels, scales and codes: compiled code looks at one flag, so that what was compiled
for the plan is there when it goes on.
"""

from torch import nn

from ..names import unwrapped
from .following import following
from .functional import claim, release
from .linear import PAUSED, LokaLinear
from .parameters import linears
from .report import record_of
from .weights import kept


def pause(model: nn.Module) -> None:
    """From the next forward on every linear runs by PyTorch's own GEMMs, and nothing runs beside the steps."""
    _set(unwrapped(model), True)


def resume(model: nn.Module) -> None:
    """From the next forward on the plan's kernels run, with codes of the weights as they are now. Scales go on from where
    they were. A model that was not paused stays as it is."""
    model = unwrapped(model)
    if is_paused(model):
        _set(model, False)


def is_paused(model: nn.Module) -> bool:
    """Whether its plan does not run now."""
    return any(isinstance(module, LokaLinear) and module._loka_paused for _, module in linears(model))


def _set(model: nn.Module, paused: bool) -> None:
    for _, module in linears(model):
        if isinstance(module, LokaLinear):
            module.__dict__[PAUSED] = paused
    applied, weights, scales = record_of(model), kept(model), following(model)
    if applied is not None and applied.owner is not None:
        if paused:
            release(applied.names, applied.owner)
        else:
            claim(applied.names, applied.routes, applied.owner)
    for beside in (weights, scales):
        if beside is not None:
            beside.rest(paused)


__all__ = ["is_paused", "pause", "resume"]
