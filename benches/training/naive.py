"""Takes a model; turns every linear whose dims allow it into tensorwise FP8: what a careless switch does.

Written against PyTorch alone and not against LoKA, so that the arm it makes is an independent witness. Forward E4M3 x
E4M3 with fast accumulation, gradients E5M2, each operand scaled by its current largest magnitude (TorchAO's defaults).
Without FP8 products (a CPU) the operands are rounded the same and multiplied in FP32.
"""

from typing import Any, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_FLOOR = 1e-12
"""Smallest amax: an all-zero tensor must not give an infinite scale."""


def cast(x: Tensor, dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
    """(codes, scale) with x ~ codes * scale; one scale a tensor, casts saturate."""
    largest = torch.finfo(dtype).max
    scale = x.abs().amax().float().clamp_min(_FLOOR) / largest
    return (x / scale).clamp(-largest, largest).to(dtype), scale


def product(a: Tuple[Tensor, Tensor], b: Tuple[Tensor, Tensor], fast: bool, dtype: torch.dtype) -> Tensor:
    """a (M, K) times b (N, K) transposed, both row-major codes: (M, N)."""
    if a[0].is_cuda:
        # FP32 inputs come out as BF16 and widen: cuBLASLt's FP8 products with a BF16 output are what libraries run.
        scales = {"scale_a": a[1], "scale_b": b[1]}
        return torch._scaled_mm(a[0], b[0].t(), **scales, out_dtype=torch.bfloat16, use_fast_accum=fast).to(dtype)
    return ((a[0].float() @ b[0].float().t()) * (a[1] * b[1])).to(dtype)


class NaiveLinear(torch.autograd.Function):
    """x (M, K), weight (N, K) -> (M, N), its three products in tensorwise FP8."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(cast(x, _E4M3), cast(weight, _E4M3), True, x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        codes, scale = cast(grad.contiguous(), _E5M2)
        weight_codes, weight_scale = cast(weight, _E4M3)
        x_codes, x_scale = cast(x, _E4M3)
        # Both products of the gradient want their operands K-major, so each is transposed to memory.
        grad_x = product((codes, scale), (weight_codes.t().contiguous(), weight_scale), False, x.dtype)
        grad_weight = product((codes.t().contiguous(), scale), (x_codes.t().contiguous(), x_scale), False, weight.dtype)
        return grad_x, grad_weight


class Fp8Linear(nn.Linear):
    """An nn.Linear that computes in tensorwise FP8."""

    def forward(self, x: Tensor) -> Tensor:
        y = NaiveLinear.apply(x.reshape(-1, x.shape[-1]), self.weight)
        y = y if self.bias is None else y + self.bias
        return y.view(*x.shape[:-1], self.out_features)


class PaddedFp8Linear(nn.Linear):
    """The same for a width that is no multiple of 16: the weight is padded with zero rows."""

    def forward(self, x: Tensor) -> Tensor:
        padded = functional.pad(self.weight, (0, 0, 0, -self.out_features % 16))
        y = NaiveLinear.apply(x.reshape(-1, x.shape[-1]), padded)[:, : self.out_features]
        y = y if self.bias is None else y + self.bias
        return y.reshape(*x.shape[:-1], self.out_features)


def convert(model: nn.Module, heads: bool = False) -> int:
    """Changes the class of every linear that FP8 can run, in place; with `heads` those of odd width too. Gives their
    number."""
    changed = 0
    for module in model.modules():
        if type(module) is nn.Linear and module.in_features % 16 == 0:
            if module.out_features % 16 == 0:
                module.__class__, changed = Fp8Linear, changed + 1
            elif heads:
                module.__class__, changed = PaddedFp8Linear, changed + 1
    return changed
