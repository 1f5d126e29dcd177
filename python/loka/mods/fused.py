"""The eager CUDA path of BlockNorm, alone or with hard swish: says when it serves, and is an autograd function."""

import functools
from typing import Any, Optional, Tuple

import torch

MAX_BLOCK = 16384
"""A block is held in one program's registers."""

_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def serves(x: torch.Tensor, block: int) -> bool:
    """True when the kernels take `x`: an ordinary CUDA tensor in eager mode, with Triton installed."""
    if torch.compiler.is_compiling() or not x.is_cuda:
        return False
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or torch._C._are_functorch_transforms_active():
        # A fake or distributed tensor has no memory to hand to a kernel; vmap has no rule for one.
        return False
    return x.dtype in _TYPES and 0 < x.numel() and block <= MAX_BLOCK and _kernels() is not None


@functools.lru_cache(maxsize=None)
def _kernels() -> Optional[Any]:
    try:
        from . import kernels
    except ImportError:
        return None
    return kernels


class BlockNormFunction(torch.autograd.Function):
    """Saves the input alone: the backward pass finds the block's RMS again rather than read it back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, block: int, eps: float, hard_swish: bool) -> torch.Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x)
        ctx.settings = block, eps, hard_swish
        out = torch.empty_like(x)
        kernels = _kernels()
        assert kernels is not None, "serves() was asked first"
        kernels.forward(x, out, block, eps, hard_swish)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor) -> Tuple[torch.Tensor, None, None, None]:
        (x,) = ctx.saved_tensors
        block, eps, hard_swish = ctx.settings
        grad_input = torch.empty_like(x)
        kernels = _kernels()
        assert kernels is not None, "serves() was asked first"
        kernels.backward(x, grad_output.contiguous(), grad_input, block, eps, hard_swish)
        return grad_input, None, None, None


def launched(x: torch.Tensor, block: int, eps: float, hard_swish: bool) -> torch.Tensor:
    """BlockNorm of `x`, with hard swish or without, by one launch."""
    result: torch.Tensor = BlockNormFunction.apply(x, block, eps, hard_swish)  # type: ignore[no-untyped-call]
    return result


__all__ = ["MAX_BLOCK", "BlockNormFunction", "launched", "serves"]
