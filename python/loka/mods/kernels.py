"""Triton kernels of BlockNorm with or without hard swish: contiguous [..., n] in and out, FP32 inside.

A program takes a few blocks of features; offsets are 64 bits wide, as activations pass 2^31 elements.
"""

from typing import Tuple

import torch
import triton
import triton.language as tl

ELEMENTS = 4096
"""Elements a program: blocks of 256 go 16 at a time."""


@triton.jit
def _forward(x_ptr, out_ptr, num_blocks, block, eps, HARD_SWISH: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < num_blocks) & (column < block)
    x = tl.load(x_ptr + row * block + column, mask=inside, other=0.0).to(tl.float32)
    inverse = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / block + eps)
    y = x * inverse[:, None]
    if HARD_SWISH:
        y = y * tl.minimum(tl.maximum(y + 3.0, 0.0), 6.0) / 6.0
    tl.store(out_ptr + row * block + column, y.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    x_ptr, grad_ptr, out_ptr, num_blocks, block, eps,
    HARD_SWISH: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < num_blocks) & (column < block)
    offset = row * block + column
    x = tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    inverse = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / block + eps)
    y = x * inverse[:, None]
    if HARD_SWISH:
        # PyTorch's choice at the two corners, -3 and 3: the slope of the middle part.
        slope = tl.where(y < -3.0, 0.0, tl.where(y <= 3.0, y / 3.0 + 0.5, 1.0))
        grad = grad * slope
    along = tl.sum(grad * y, axis=1) / block
    result = (grad - y * along[:, None]) * inverse[:, None]
    tl.store(out_ptr + offset, result.to(out_ptr.dtype.element_ty), mask=inside)


def forward(x: torch.Tensor, out: torch.Tensor, block: int, eps: float, hard_swish: bool) -> None:
    """Writes `out` from `x`."""
    num_blocks, rows, width, warps = _sizes(x, block)
    with torch.cuda.device_of(x):
        _forward[(triton.cdiv(num_blocks, rows),)](
            x, out, num_blocks, block, eps, hard_swish, rows, width, num_warps=warps
        )


def backward(
    x: torch.Tensor, grad_output: torch.Tensor, grad_input: torch.Tensor, block: int, eps: float, hard_swish: bool
) -> None:
    """Writes `grad_input` from `x` and `grad_output`."""
    num_blocks, rows, width, warps = _sizes(x, block)
    with torch.cuda.device_of(x):
        _backward[(triton.cdiv(num_blocks, rows),)](
            x, grad_output, grad_input, num_blocks, block, eps, hard_swish, rows, width, num_warps=warps
        )


def _sizes(x: torch.Tensor, block: int) -> Tuple[int, int, int, int]:
    """Blocks in all, blocks a program, a block's width in registers, and warps: 32 elements a thread."""
    width = triton.next_power_of_2(block)
    rows = max(1, ELEMENTS // width)
    return x.numel() // block, rows, width, max(4, rows * width // 1024)


__all__ = ["backward", "forward"]
