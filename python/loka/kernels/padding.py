"""Takes kernels and a linear's sizes; gives how many zeros its features want, so that FP8 runs at any number of them.

FP8 tensor cores read 16 elements at a time along the reduced dimension and store rows of multiples of 16. Zeros add nothing to a
sum and change no largest value. x, the weight and dy are padded as they are, before anything is cast: a cast of rows that begin
at any byte takes two to five times as long, and so does a BF16 GEMM, whose rows want multiples of 8 (docs/engineering/kernels.md).
torch.compile pads in whatever kernel makes x or dy.
"""

from typing import Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import linear, pad

from ..catalogue import multiple_of

MULTIPLE = 16
"""Elements that FP8 tensor cores read at a time along the reduced dimension: turned rows are padded to it, too."""
NARROWEST = 16
"""Of fewer features FP8 would multiply mostly zeros."""

SIZES = {"fprop": ("k", "n"), "dgrad": ("n", "k"), "wgrad": ("k",)}
"""The fixed sizes that a GEMM reduces or stores in rows, as LoKA's planner has them. Examples (m) are padded when they
come; the n rows that wgrad stores may be any number, but for blockwise scales: with n = 8 or 24 PyTorch 2.11's scaled
matmul gave NaN on an H200, and with n = 1 none was found."""

BF16 = ("cublaslt/bf16",) * 3
BF16_MULTIPLE = 8
LARGE = 2**16
"""Elements of a weight from which on BF16's GEMMs are padded: smaller ones are no slower than what pads them."""
LARGE_EAGER = 2**34
"""Multiplications from which on they are where each operation is a launch: before, the host takes as long for what pads them."""

_OURS = ("cublaslt/", "loka/", "pytorch/")


def pads(kernel: str, gemm: str) -> bool:
    """Whether features may be any number from NARROWEST on: our casts, but for whole blocks of 128, which would be too much, and
    blocks whose norm goes over what is there."""
    return kernel.startswith(_OURS) and not kernel.startswith("loka/fp8-block") and multiple_of(kernel, gemm) == MULTIPLE


def short_of(kernels: Sequence[str], n: int, k: int) -> Tuple[int, int]:
    """How many zeros the weight [n, k] wants behind its n and its k: none where no kernel asks for any."""
    if n % MULTIPLE == 0 and k % MULTIPLE == 0:
        return 0, 0
    for kernel, gemm in zip(kernels, ("fprop", "dgrad", "wgrad")):
        if pads(kernel, gemm) and (k % MULTIPLE or gemm != "wgrad"):
            # wgrad alone may store fewer rows.
            return -n % MULTIPLE if n >= NARROWEST else 0, -k % MULTIPLE
    if tuple(kernels) == BF16 and min(n, k) >= NARROWEST and n * k >= LARGE:
        return -n % BF16_MULTIPLE, -k % BF16_MULTIPLE
    return 0, 0


def padded(x: Tensor, weight: Tensor, bias: Optional[Tensor], short_n: int, short_k: int) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """With as many zeros behind n and k."""
    # Padding by nothing would copy.
    bias = pad(bias, (0, short_n)) if bias is not None and short_n else bias
    return pad(x, (0, short_k)) if short_k else x, pad(weight, (0, short_k, 0, short_n)), bias


def cut(y: Tensor, n: int) -> Tensor:
    """Without what was padded, and without gaps, as whoever takes a view of it expects."""
    return y if y.shape[-1] == n else y[..., :n].contiguous()


def bf16_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """F.linear, in BF16 of widths that its GEMMs want."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x = x.to(torch.get_autocast_dtype(device))
    is_worth = torch.compiler.is_compiling() or x.numel() * weight.shape[0] >= LARGE_EAGER
    # Parts of a weight on several devices are padded by nobody.
    fits = x.dtype == torch.bfloat16 and type(weight) in (Tensor, Parameter)
    short = short_of(BF16, *weight.shape) if is_worth and fits else (0, 0)
    if short == (0, 0) or x.shape[-1] != weight.shape[1]:
        return linear(x, weight, bias)
    return cut(linear(*padded(x, weight, bias, *short)), weight.shape[0])


__all__ = ["BF16", "MULTIPLE", "NARROWEST", "SIZES", "bf16_linear", "cut", "padded", "pads", "short_of"]
