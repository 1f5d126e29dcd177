"""Takes the maxima that a step has seen, on a GPU; moves all scales that follow them on, in one launch. Finds the scale of one tensor.

The values are those of the plain operations in `delayed`, to the bit: these are some fifteen launches a step, a dozen a tensor and
six, and a host that makes them is what a fast GPU waits for. Needs Triton.
"""

from typing import Any, Dict, Optional, Sequence, Tuple

import torch
import triton
from torch import Tensor

from . import triton_casts, triton_kernels
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
        with triton_casts.on(self._device):
            triton_kernels.advance_kernel[self._grid](*self._arguments, **self._options)


def find(x: Tensor, known: Optional[Tensor], format: str) -> Tuple[Tensor, Tensor]:
    """`delayed.scale_now`, in two launches."""
    scale, inverse = (torch.empty(1, dtype=torch.float32, device=x.device) for _ in range(2))
    partials = triton_casts.amax(x.contiguous())
    options: Dict[str, Any] = dict(
        PARTIALS=partials.numel(), KNOWN=known is not None, FACTOR=HEADROOM / FORMAT_MAX[format], LEAST=LEAST, MOST=MOST
    )
    with triton_casts.on(x.device):
        triton_kernels.find_scale_kernel[(1,)](partials, partials if known is None else known, scale, inverse, **options)
    return scale, inverse


__all__ = ["Launch", "find"]
