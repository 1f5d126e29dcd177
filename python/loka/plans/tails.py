"""Takes what stands behind a linear, or behind two whose results are multiplied; gives which of the kernels' tails or gates that is in
training, and how large a share a dropout behind it drops.
"""

from typing import Any, NamedTuple, Optional, Sequence, Tuple

from torch import nn

from ..kernels import GATES, LINEAR, NORMED, TAILS, is_row_normed, row_normed
from ..mods.norm import BLOCK, EPS
from .straight import ACTIVATIONS, Fork

_ACTIVATIONS = {nn.ReLU: "relu", nn.SiLU: "swish", nn.Hardswish: "hard_swish", nn.Sigmoid: "sigmoid"}
NORMS = {nn.LayerNorm: "layer_norm", nn.RMSNorm: "rms_norm"}
_ALONE = frozenset(TAILS) - {NORMED}
"""Tails that are one activation."""


class Gate(NamedTuple):
    """What follows each of two linears, of `GATES`, and the share of their product that is dropped."""

    first: str
    second: str
    dropout: float


def tail_of(modules: Sequence[Any]) -> Tuple[str, float]:
    """(which of `handed.TAILS` these modules are in training, what share a dropout behind it drops); ("", 0) where they are none."""
    kinds, dropout = [], 0.0
    for module in modules:
        share = _dropped(module)
        if share is None:
            kind = _kind(module)
            # Behind a dropout nothing follows.
            kinds += [kind if not dropout else "other"] if kind else []
        elif share:
            kinds += ["other"] if dropout or not kinds else []
            dropout = share
    if kinds == ["block_norm", "hard_swish"]:
        return NORMED, dropout
    tail = row_normed(*kinds) if len(kinds) == 2 else kinds[0] if len(kinds) == 1 else ""
    return (tail, dropout) if tail in _ALONE or is_row_normed(tail) else ("", 0.0)


def gate_of(fork: Fork, modules: Sequence[Any]) -> Optional[Gate]:
    """What a fork of modules, and those behind its product, are in training; None where that is not known."""
    first, second = _behind_linear(fork.first), _behind_linear(fork.second)
    if not (first and second) or fork.first[0] is fork.second[0] or fork.first[0].out_features != fork.second[0].out_features:
        return None
    dropout = 0.0
    for module in modules:
        share = _dropped(module)
        if (share is None and _kind(module)) or (share and dropout):
            return None
        dropout = share or dropout
    return Gate(first, second, dropout)


def _behind_linear(branch: Sequence[Any]) -> str:
    """Which of `GATES` follows the linear of a branch; nothing where it is another one, or no linear."""
    if not isinstance(branch[0], nn.Linear):
        return ""
    kinds = [kind for kind in map(_kind, branch[1:]) if kind]
    kind = kinds[0] if kinds else LINEAR
    return kind if len(kinds) < 2 and kind in GATES else ""


def _dropped(module: Any) -> Optional[float]:
    """The share that a dropout drops in training, which may be nothing; None for what is no dropout."""
    if type(module) is not nn.Dropout or "forward" in module.__dict__:
        return None
    share = float(module.p) if module.training else 0.0
    # All of it: there is no factor for what is left.
    return share if share < 1.0 else None


def _kind(module: Any) -> str:
    """Nothing for a module that gives what it gets."""
    if not isinstance(module, nn.Module):
        return ACTIVATIONS.get(module, "other")
    if "forward" in module.__dict__:
        return "other"
    # Of the very class: a subclass may do anything.
    cls = type(module)
    if cls is nn.Identity:
        return ""
    if cls is nn.GELU:
        return "gelu_tanh" if getattr(module, "approximate") == "tanh" else "gelu"
    if cls in _ACTIVATIONS:
        return _ACTIVATIONS[cls]
    if cls in NORMS:
        # Over more than the last dimension it takes rows together.
        return NORMS[cls] if len(getattr(module, "normalized_shape")) == 1 else "other"
    said: Any = getattr(module, "loka_op", None) or {}
    if said.get("op") == "hard_swish":
        return "hard_swish"
    if said.get("op") == "block_norm" and said["block"] == BLOCK and abs(said["eps"] / EPS - 1) < 1e-3:
        return "block_norm"
    return "other"


__all__ = ["Gate", "NORMS", "gate_of", "tail_of"]
