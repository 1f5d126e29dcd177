"""BlockNorm: takes rows [..., n], gives each block of `block` features divided by its root mean square; no gain.

In place of a norm over the whole row (LoKA §IV-B). The result is bounded by sqrt(block), and the statistics of a
block fit in a GEMM's tile.
"""

from typing import Any, Dict

import torch
from torch import nn

from . import fused

BLOCK = 256
"""Features a block."""

EPS = torch.finfo(torch.float32).eps
"""FP32's epsilon for every type: BF16's own, .0078, would shrink rows whose RMS is below .1."""


def block_of(n: int, block: int = BLOCK) -> int:
    """Features a block of a row of `n`. A row that is shorter or ragged is one block."""
    return block if n > 0 and n % block == 0 else n


def block_norm(x: torch.Tensor, block: int, eps: float = EPS) -> torch.Tensor:
    """`x` [..., n] with every `block` features divided by sqrt(mean of squares + eps), in x's type.

    `n` must be a multiple of `block` (ValueError). Computed in FP32 (FP64 for FP64). In eager mode on CUDA one
    Triton launch forward and one backward; under torch.compile plain operations, which the compiler fuses.
    """
    _check(x, block)
    if fused.serves(x, block):
        return fused.launched(x, block, eps, False)
    return _normalised(x, block, eps).to(x.dtype).reshape(x.shape)


def block_norm_hard_swish(x: torch.Tensor, block: int, eps: float = EPS) -> torch.Tensor:
    """Hard swish of `block_norm(x, block, eps)`, rounded once: the same launches as the norm alone."""
    _check(x, block)
    if fused.serves(x, block):
        return fused.launched(x, block, eps, True)
    return nn.functional.hardswish(_normalised(x, block, eps)).to(x.dtype).reshape(x.shape)


def _check(x: torch.Tensor, block: int) -> None:
    if x.dim() == 0 or block < 1 or x.shape[-1] % block:
        raise ValueError(f"{tuple(x.shape)} has no last dimension that is a multiple of the block {block}")


def _normalised(x: torch.Tensor, block: int, eps: float) -> torch.Tensor:
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // block, block)
    groups = groups if groups.dtype == torch.float64 else groups.float()
    return groups * torch.rsqrt((groups * groups).mean(dim=-1, keepdim=True) + eps)


class BlockNorm(nn.Module):
    """`block_norm` of rows of `dim` features. No parameters: nothing of it is in a state_dict."""

    def __init__(self, dim: int, block: int = BLOCK, eps: float = EPS):
        super().__init__()
        self.dim, self.block, self.eps = dim, block_of(dim, block), eps

    @property
    def loka_op(self) -> Dict[str, Any]:
        """As a trace's tail has it."""
        return {"op": "block_norm", "eps": self.eps, "block": self.block}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != self.dim:
            raise ValueError(f"BlockNorm({self.dim}) got rows of {x.shape[-1]} features")
        return block_norm(x, self.block, self.eps)

    def extra_repr(self) -> str:
        return f"{self.dim}, block={self.block}"


__all__ = ["BLOCK", "EPS", "BlockNorm", "block_norm", "block_norm_hard_swish", "block_of"]
