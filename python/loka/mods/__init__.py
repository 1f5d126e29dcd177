"""Mods: changes that make a model safer to compute in low precision (LoKA §IV). Takes a model, changes it in place.

    changes = loka.mods.apply(model, ["no_bias", "block_norm", "hard_swish"], keep=["top.*"])
    print(changes)

A changed model is another model: it must be trained with its mods.
"""

from .activation import HardSwish
from .changes import Change, Changes
from .norm import BLOCK, EPS, BlockNorm, block_norm, block_norm_hard_swish, block_of
from .surgery import MODS, apply

__all__ = [
    "BLOCK", "EPS", "MODS", "BlockNorm", "Change", "Changes", "HardSwish", "apply", "block_norm",
    "block_norm_hard_swish", "block_of",
]
