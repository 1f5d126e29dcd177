"""Takes x, weight, bias and a kernel for each of the three GEMMs; gives what F.linear gives, by those kernels."""

from typing import List, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .casts import Casts, Pair, Quantized, input_and_weight, straight_and_turned
from .catalogue import Cast, numerics
from .gemms import route, scaled, whole
from .own import Static, Statics

Kernels = Tuple[str, str, str]
"""Kernel ids of fprop, dgrad and wgrad."""


def linear(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], kernels: Kernels, emulate: bool = False,
    statics: Statics = (None, None),
) -> Tensor:
    """x [..., k] times weight [n, k] turned, plus bias [n]: [..., n], in the type that F.linear gives, autocast or not.

    `kernels`: ids of the catalogue for (fprop, dgrad, wgrad). `emulate`: their numerics on any device, slowly, without
    the accumulation of FP8 tensor cores. Differentiable once. The bias is added in the output's type. A NaN or an
    infinity in x, weight or the gradient makes every output that shares its scale NaN. `statics`: of fprop and dgrad,
    for kernels whose scale is known beforehand; they count what saturates.

    Raises ValueError for an unknown kernel, RuntimeError for mixed types and for operands that a kernel cannot take
    (`why_not` tells before)."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight = x.to(dtype), weight.to(dtype)
    if x.dtype != weight.dtype:
        raise RuntimeError(f"x is {x.dtype} and weight is {weight.dtype}: linear wants one type")
    if x.shape[-1] != weight.shape[1]:
        raise RuntimeError(f"x has {x.shape[-1]} features and weight takes {weight.shape[1]}")
    rows = x.reshape(-1, x.shape[-1])
    with torch.autocast(device, enabled=False):
        if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
            # Tensors by themselves: Dynamo does not look for them in tuples.
            flat = [part for static in statics for part in (static or (None, None))]
            y = _Linear.apply(rows, weight, kernels, emulate, *flat)
        else:
            y, _, _ = _forward(rows, weight, kernels, emulate, False, False, statics[0])
        y = y.view(*x.shape[:-1], weight.shape[0])
        return y if bias is None else y + bias.to(y.dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, x: Tensor, weight: Tensor, kernels: Kernels, emulate: bool, x_scale: Optional[Tensor],
        x_saturated: Optional[Tensor], dy_scale: Optional[Tensor], dy_saturated: Optional[Tensor],
    ) -> Tensor:
        need_x, need_weight = ctx.needs_input_grad[:2]
        static = _static(x_scale, x_saturated)
        y, for_wgrad, for_dgrad = _forward(x, weight, kernels, emulate, need_weight, need_x, static)
        ctx.save_for_backward(*for_wgrad, *for_dgrad)
        ctx.dy_scale, ctx.dy_saturated = dy_scale, dy_saturated
        ctx.kernels, ctx.emulate = kernels, emulate
        ctx.saved_of_x = len(for_wgrad)
        ctx.x_shape, ctx.weight_shape = x.shape, weight.shape
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor):
        saved = ctx.saved_tensors  # Once: checkpointing allows no second look.
        for_wgrad, for_dgrad = saved[: ctx.saved_of_x], saved[ctx.saved_of_x :]
        _, dgrad, wgrad = ctx.kernels
        need_x, need_weight = ctx.needs_input_grad[:2]
        if dy.shape[0] == 0:
            dx = dy.new_zeros(ctx.x_shape) if need_x else None
            return dx, dy.new_zeros(ctx.weight_shape) if need_weight else None, *[None] * 6
        dy_dgrad = _native_cast(dgrad, "dgrad", 0, ctx.emulate) if need_x else None
        dy_wgrad = _native_cast(wgrad, "wgrad", 0, ctx.emulate) if need_weight else None
        straight, turned = straight_and_turned(dy, dy_dgrad, dy_wgrad, True)
        dx = dw = None
        if need_x and straight is not None:
            dx = _rows(scaled(straight, Quantized(*for_dgrad), numerics(dgrad, "dgrad")), dy.shape[0])
        elif need_x:
            dx = whole(dgrad, "dgrad", dy, for_dgrad[0], ctx.emulate, _static(ctx.dy_scale, ctx.dy_saturated))
        if need_weight and turned is not None:
            dw = scaled(turned, Quantized(*for_wgrad), numerics(wgrad, "wgrad"))
        elif need_weight:
            dw = whole(wgrad, "wgrad", dy, for_wgrad[0], ctx.emulate)
        return _as(dx, dy.dtype), _as(dw, dy.dtype), *[None] * 6


def _static(scale: Optional[Tensor], saturated: Optional[Tensor]) -> Optional[Static]:
    return None if scale is None or saturated is None else Static(scale, saturated)


def _forward(
    x: Tensor, weight: Tensor, kernels: Kernels, emulate: bool, keep_x: bool, keep_weight: bool,
    static: Optional[Static],
) -> Tuple[Tensor, List[Tensor], List[Tensor]]:
    """(y [m, n] in x's type, what wgrad needs of x, what dgrad needs of the weight): the operand itself, or its FP8
    turned and the scale, which is half the memory."""
    fprop, dgrad, wgrad = kernels
    if x.shape[0] == 0:
        return x.new_empty(0, weight.shape[0]), [], []
    x_wgrad = _native_cast(wgrad, "wgrad", 1, emulate) if keep_x else None
    weight_dgrad = _native_cast(dgrad, "dgrad", 1, emulate) if keep_weight else None
    straight = (_native_cast(fprop, "fprop", 0, emulate), _native_cast(fprop, "fprop", 1, emulate))
    (x_straight, x_turned), (weight_straight, weight_turned) = _casts(x, weight, straight, (x_wgrad, weight_dgrad))
    if x_straight is not None and weight_straight is not None:
        y = _rows(scaled(x_straight, weight_straight, numerics(fprop, "fprop")), x.shape[0])
    else:
        y = whole(fprop, "fprop", x, weight, emulate, static)
    for_wgrad = [] if not keep_x else [x] if x_turned is None else [*x_turned]
    for_dgrad = [] if not keep_weight else [weight] if weight_turned is None else [*weight_turned]
    return _as(y, x.dtype), for_wgrad, for_dgrad


def _native_cast(kernel: str, gemm: str, operand: int, emulate: bool) -> Optional[Cast]:
    """How a GEMM of PyTorch's scaled matmul wants operand 0 (a) or 1 (b); None where it casts for itself."""
    if route(kernel, gemm, emulate) != "scaled":
        return None
    how = numerics(kernel, gemm)
    return how.b if operand else how.a


def _as(x: Optional[Tensor], dtype: torch.dtype) -> Optional[Tensor]:
    """x in that type. Not by a conversion that converts nothing: Dynamo of PyTorch 2.11 then takes the output of an
    autograd function for its input, and its gradient silently for zero."""
    return x if x is None or x.dtype == dtype else x.to(dtype)


def _rows(x: Tensor, rows: int) -> Tensor:
    """Without the rows that padded whole blocks."""
    return x if x.shape[0] == rows else x[:rows]


def _casts(x: Tensor, weight: Tensor, straight: Casts, turned: Casts) -> Tuple[Pair, Pair]:
    if straight == (None, None) and turned == (None, None):
        return (None, None), (None, None)
    _need_gpu(x)
    return input_and_weight(x, weight, straight, turned)


def _need_gpu(x: Tensor) -> None:
    if not x.is_cuda:
        raise RuntimeError(f"x is on {x.device}: FP8 kernels need a CUDA GPU; emulate=True runs their numerics slowly")


__all__ = ["Kernels", "linear"]
