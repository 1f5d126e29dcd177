"""Takes the maxima that a step has seen, on a GPU; moves all scales that follow them on, in one launch.

The values are those of `delayed.History`'s plain operations, to the bit: these are some fifteen launches, and a host that
makes them after every optimizer step is what a fast GPU waits for. Needs Triton.
"""

import contextlib
from typing import Any, Dict, Sequence

import torch
import triton
from torch import Tensor

from . import triton_kernels
from ..catalogue import FORMAT_MAX
from .delayed import DECAY, HEADROOM, LEAST, MOST, RANGE

_BLOCK = 128


class Launch:
    """Scales of one device. `seen`: FP32 [1] each, zeros after a call; `decaying` FP32 [n]; `scale` and `inverse` FP32
    [n, any], of which the first column is written; `overflow` FP32 [n, 2]."""

    def __init__(self, seen: Sequence[Tensor], decaying: Tensor, scale: Tensor, inverse: Tensor, overflow: Tensor) -> None:
        self._keep = list(seen)
        self._device = decaying.device
        addresses = torch.tensor([one.data_ptr() for one in seen], dtype=torch.int64, device=self._device)
        self._grid = (triton.cdiv(len(self._keep), _BLOCK),)
        self._arguments = (addresses, decaying, scale, inverse, overflow, len(self._keep))
        self._options: Dict[str, Any] = dict(
            STRIDE=scale.stride(0), DECAY=DECAY, FACTOR=HEADROOM / FORMAT_MAX["e4m3"], RANGE=RANGE, LEAST=LEAST, MOST=MOST,
            BLOCK=_BLOCK,
        )  # fmt: skip

    def __call__(self) -> None:
        with torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext():
            triton_kernels.advance_kernel[self._grid](*self._arguments, **self._options)


__all__ = ["Launch"]
