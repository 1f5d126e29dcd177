"""Transformer Engine's names where they are in its source, for a file that imports them without CUDA.

Nothing here quantizes: a factory or a quantizer gives a record of what was asked. A name that is not where the file
looks for it is an ImportError, as it would be there.
"""

import contextlib
import sys
import types
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, Optional
from unittest import mock

from torch import nn

FACTORIES = {
    "high_precision_factory": "high", "current_scaling_factory": "tensor", "float8_block_scaling_factory": "block",
    "mxfp8_factory": "mxfp8",
}  # fmt: skip


LINEARS = {"Linear": nn.Linear, "LayerNormLinear": type("LayerNormLinear", (nn.Linear,), {})}
"""So that the toy is a model of its layers."""


@dataclass(frozen=True)
class QuantizerRole:
    module_type: str = ""
    tensor_type: str = ""
    name: str = ""


@dataclass(frozen=True)
class Quantizer:
    """What the tensor is in each of its two directions, in the words of plans.SCHEMES."""

    rowwise: str
    columnwise: str


def identity() -> Quantizer:
    return Quantizer("high", "high")


def hybrid(*, rowwise_quantizer: Quantizer, columnwise_quantizer: Quantizer, columnwise_source: str = "original"):
    assert columnwise_source == "original", "plans are probed with the tensor itself, not with its quantized form"
    return Quantizer(rowwise_quantizer.rowwise, columnwise_quantizer.columnwise)


@dataclass
class CustomRecipe:
    qfactory: Callable[[Optional[QuantizerRole]], Quantizer]


@contextlib.contextmanager
def autocast(enabled: bool = True, recipe: Optional[CustomRecipe] = None) -> Iterator[None]:
    yield


def _factory(kind: str) -> Callable[..., Quantizer]:
    return lambda role: Quantizer(kind, kind)


def _modules() -> Dict[str, types.ModuleType]:
    quantizers = {"HybridQuantizer": hybrid, "IdentityQuantizer": identity}
    front = {"autocast": autocast, "QuantizerRole": QuantizerRole}
    contents: Dict[str, Dict[str, Any]] = {
        "": {},
        ".common": {},
        ".common.recipe": {"CustomRecipe": CustomRecipe},
        ".pytorch": {**front, **quantizers, **LINEARS},
        ".pytorch.quantization": front,
        ".pytorch.custom_recipes": {},
        ".pytorch.custom_recipes.quantizer_factories": {name: _factory(kind) for name, kind in FACTORIES.items()},
        ".pytorch.tensor": {},
        ".pytorch.tensor.hybrid_tensor": {"HybridQuantizer": hybrid},
        ".pytorch.tensor.identity_tensor": {"IdentityQuantizer": identity},
    }
    made = {}
    for name, inside in contents.items():
        module = types.ModuleType(f"transformer_engine{name}")
        module.__dict__.update(inside, __path__=[])
        made[module.__name__] = module
        parent, _, last = module.__name__.rpartition(".")
        if parent:
            setattr(made[parent], last, module)
    return made


def transformer_engine() -> Any:
    """A context in which it can be imported."""
    return mock.patch.dict(sys.modules, _modules())
