"""What a forward pass did, however it was read: calls of operations, and the values that they read and make.

A value is a number for one tensor at one moment: an operation in place makes a new value of the same tensor.
"""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Set, Tuple

import torch

SITE = "site"
"""A linear layer."""
SAME = "same"
"""Every row and feature as before: a copy, a cast, an idle dropout."""
RESHAPE = "reshape"
"""The same numbers in another shape."""
STRUCTURE = "structure"
"""Moves, joins, reduces or multiplies tensors: the rows of one linear end here."""
OPAQUE = "opaque"
"""A module that could not be read; what it does to its inputs is unknown."""
LEAVES = "leaves"
"""The result of a module that was read alone: who reads it is unknown."""
OUTPUT = "output"
"""The model's result."""

NORMS = ("layer_norm", "rms_norm", "block_norm")
ACTIVATIONS = ("swish", "hard_swish", "relu", "sigmoid", "tanh", "gelu")


@dataclass(frozen=True)
class Op:
    """One operation. `kind` is one of the above, or an `op` of a trace's tail.

    `features` is the width that a norm normalises, or the last dimension that a reshape gives (None: unknown).
    """

    kind: str
    eps: Optional[float] = None
    block: Optional[int] = None
    gamma: Optional[torch.Tensor] = None
    beta: Optional[torch.Tensor] = None
    features: Optional[int] = None
    inplace: bool = False
    approximate: Optional[str] = None
    function: str = ""

    def entry(self) -> Dict[str, object]:
        """As a trace's manifest has it."""
        entry: Dict[str, object] = {"op": self.kind}
        if self.kind in NORMS:
            entry["eps"] = self.eps
        if self.kind == "block_norm":
            entry["block"] = self.block
        if self.kind in ("layer_norm", "rms_norm"):
            entry["affine"] = self.gamma is not None
        if self.approximate is not None:
            entry["approximate"] = self.approximate
        return entry


@dataclass(eq=False)
class Call:
    """One call. `reads` and `values` are in order; the first value that a site reads is its input."""

    op: Op
    reads: Tuple[int, ...]
    values: Tuple[int, ...]
    site: str = ""
    name: str = ""
    """The module's name, or nothing for a function."""
    inner: Tuple[str, ...] = ()
    """Sites inside an opaque module."""


@dataclass
class Flow:
    """The calls of one forward pass, in order."""

    calls: List[Call] = field(default_factory=list)
    features: Dict[int, int] = field(default_factory=dict)
    """The last dimension of a value, where it is known."""
    notes: List[str] = field(default_factory=list)
    held: Set[int] = field(default_factory=set)
    """Values that the forward put into attributes of modules: who reads them there is unknown."""
    num_values: int = 0

    def new_value(self, features: Optional[int] = None) -> int:
        self.num_values += 1
        if features is not None:
            self.features[self.num_values] = features
        return self.num_values

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


__all__ = [
    "ACTIVATIONS", "LEAVES", "NORMS", "OPAQUE", "OUTPUT", "RESHAPE", "SAME", "SITE", "STRUCTURE", "Call", "Flow", "Op",
]
