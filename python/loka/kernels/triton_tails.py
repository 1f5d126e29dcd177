"""Takes what comes out of a linear with BlockNorm and hard swish behind it; gives FP8 codes of these in both layouts, and
of their gradient, each in one pass, by `triton_kernels`.

Apart, the norm writes BF16 and a cast reads it: 8 bytes an element forward and 10 backward, where these move 4 and 6.
"""

from typing import Any, Callable, Tuple

import torch
import triton
from torch import Tensor
from torch.library import triton_op, wrap_triton

from . import triton_kernels
from .native_ops import BLOCK, EPS
from .triton_casts import on

# Rows and warps of a tile: what was fastest on an H200.
_FORWARD, _BACKWARD = (32, 8), (32, 16)

Wrap = Callable[[Any], Any]


def _plain(kernel: Any) -> Any:
    return kernel


def _programs(z: Tensor, down: int) -> int:
    return int(triton.cdiv(z.shape[0], down)) * (z.shape[1] // BLOCK)


def _output(z: Tensor, inverse: Tensor, wrap: Wrap) -> Tuple[Tensor, Tensor]:
    down, warps = _FORWARD
    programs, (rows, cols) = _programs(z, down), z.shape
    both = torch.empty((rows, 2 * cols), dtype=torch.float8_e4m3fn, device=z.device)
    partials = torch.empty(programs, dtype=torch.float32, device=z.device)
    wrap(triton_kernels.tail_output_kernel)[(programs,)](
        z, inverse, both, partials, rows, cols, rows * cols, BLOCK=BLOCK, EPS=EPS, TILE_ROWS=down, num_warps=warps
    )
    return both, partials


def _gradient(dh: Tensor, z: Tensor, inverse: Tensor, wrap: Wrap) -> Tuple[Tensor, Tensor, Tensor]:
    down, warps = _BACKWARD
    programs, (rows, cols), fp8 = _programs(z, down), z.shape, torch.float8_e4m3fn
    straight = torch.empty((rows, cols), dtype=fp8, device=z.device)
    turned = torch.empty((cols, rows), dtype=fp8, device=z.device)
    partials = torch.empty(programs, dtype=torch.float32, device=z.device)
    wrap(triton_kernels.tail_gradient_kernel)[(programs,)](
        dh, z, inverse, straight, turned, partials, rows, cols, BLOCK=BLOCK, EPS=EPS, TILE_ROWS=down, num_warps=warps
    )
    return straight, turned, partials


@triton_op("loka::tail_output", mutates_args=())
def _output_op(z: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor]:
    return _output(z, inverse, wrap_triton)


@triton_op("loka::tail_gradient", mutates_args=())
def _gradient_op(dh: Tensor, z: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    return _gradient(dh, z, inverse, wrap_triton)


def output(z: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor]:
    """(codes of hard swish(BlockNorm(z)), [rows, cols] and behind these [cols, rows], as FP8 [rows, 2 cols]; the largest of each
    tile) of contiguous BF16 z [rows, cols], by a scale that is known beforehand."""
    if torch.compiler.is_compiling():
        return _output_op(z, inverse)
    with on(z.device):
        return _output(z, inverse, _plain)


def gradient(dh: Tensor, z: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """(codes [rows, cols], turned [cols, rows], the largest of each tile) of the gradient of z, from that of hard
    swish(BlockNorm(z)); all contiguous."""
    if torch.compiler.is_compiling():
        return _gradient_op(dh, z, inverse)
    with on(z.device):
        return _gradient(dh, z, inverse, _plain)


__all__ = ["gradient", "output"]
