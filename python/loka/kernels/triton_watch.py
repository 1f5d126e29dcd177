"""Takes the sampled rows of one GEMM on a GPU; gives their sums for `watch`, in one launch and a sum over its programs.

The values are those of `watch`'s plain operations, which are some thirty launches a GEMM: a host that makes them for all
GEMMs of a step takes several times the step. Needs Triton.
"""

import contextlib
from typing import Any, Dict, Optional

import torch
from torch import Tensor

from . import triton_kernels

_BLOCK = 4096


def sums_of(
    got: Tensor, rows: Tensor, reference: Tensor, left: Tensor, whole_rows: int, scale: Optional[Tensor], largest: float,
    zero_to: float,
) -> Tensor:
    """FP64, as `watch.FIELDS`. `got` [any, cols] has its `rows` (Int64) looked at; `reference` [rows, cols] and `left`, the
    same rows of the left operand in any order, have no gaps. `scale`: FP32 [1] of `left`, or None: then nothing is saturated
    and nothing becomes zero here."""
    row_stride, col_stride = got.stride()
    errors = -(-reference.numel() // _BLOCK)
    programs = errors - (-left.numel() // _BLOCK)
    options: Dict[str, Any] = dict(STATIC=scale is not None, LARGEST=largest, ZERO_TO=zero_to, BLOCK=_BLOCK)
    partials = torch.empty(programs, triton_kernels.WATCH_FIELDS.value, dtype=torch.float64, device=got.device)
    with torch.cuda.device(got.device) if got.is_cuda else contextlib.nullcontext():
        triton_kernels.observe_kernel[(programs,)](
            got, rows, reference, left, left if scale is None else scale, partials, reference.shape[1], row_stride,
            col_stride, reference.numel(), left.numel(), errors, whole_rows, **options,
        )
    return partials.sum(0)


__all__ = ["sums_of"]
