"""Takes x, weight, bias and a kernel for each of the three GEMMs; gives what F.linear gives, by those kernels.

Scales that are known beforehand (`delayed`) make a cast a pointwise operation.
"""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import blocks
from ..catalogue import numerics
from .casts import Pair, Quantized
from .checked import checked
from .delayed import Scale, Scales
from .gemms import casts_before
from .handed import Norm, is_row_normed
from .padding import cut, padded, short_of
from .passes import Kernels, Options, Saved, backward, forward, weight_casts
from .watch import Watch
from .weight_codes import WeightCodes


def linear(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], kernels: Kernels, emulate: bool = False,
    scales: Scales = (None, None), settled: bool = False, stretch: int = 0, watch: Optional[Watch] = None,
    codes: Optional[WeightCodes] = None, columns: bool = False, takes_codes: bool = False, gives: Optional[Scale] = None,
    tail: str = "", dropout: float = 0.0, norm: Optional[Norm] = None, wide: bool = False,
) -> Tensor:
    """x [..., k] times weight [n, k] turned, plus bias [n]: [..., n], in the type that F.linear gives, autocast or not.

    `kernels`: ids of the catalogue for (fprop, dgrad, wgrad). `emulate`: their numerics on any device, slowly, without
    the accumulation of FP8 tensor cores. Differentiable once. The bias is added in the output's type. A NaN or an
    infinity in x, weight or the gradient makes every output that shares its scale NaN. `scales`: of x and of dy, for
    kernels whose scale is known beforehand; the backward notes in them how large both were. Without them every call
    takes its own. `settled`, `stretch`, `columns`: `Options`. `watch`: sums how far each GEMM is from BF16 there. `codes`:
    FP8 of the weight that is kept between steps; what it does not have is cast here. Of
    `loka/fp8-block+fast` the result is the whole block's, with BlockNorm(256) and hard swish behind the bias.
    `tail`, `dropout`: the result is what comes behind one of `handed.TAILS`, or a `norm` over rows, and a dropout of that share; `gives`: in
    codes by that scale, as `handed.output` lays them out, and x is such codes where it `takes_codes`; `wide`: in FP32. All in training
    alone, m and n multiples of 16, BF16. k and n that no FP8 kernel takes are padded (`padding`), and y is cut.

    Raises ValueError for an unknown kernel, RuntimeError for mixed types and for operands that a kernel cannot take
    (`why_not` tells before)."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x = x.to(torch.get_autocast_dtype(device))
    n = weight.shape[0]
    short_n, short_k = short_of(kernels, n, weight.shape[1])
    if (short_n or short_k) and x.shape[-1] == weight.shape[1]:
        # Under torch.compile the weight is not, where all read codes of it that are kept.
        x, weight, bias = padded(x, weight, bias, short_n, short_k)
    weight, codes = beside(x, x.dtype, weight, kernels, emulate, codes)
    rows = x.reshape(-1, x.shape[-1])
    options = Options(emulate, settled, stretch, columns, takes_codes, tail, dropout, 0.0 if norm is None else norm.eps, wide)
    kept = parts_of(codes)
    with torch.autocast(device, enabled=False):
        # Tensors by themselves: Dynamo does not look for them in tuples.
        known = [part for scale in scales for part in (scale or (None,) * 4)]
        if not any(kernel.startswith("loka/") for kernel in kernels):
            # Nobody counts: two tensors less for compiled code to look after at every call.
            known[3] = known[7] = None
        sums = [None if watch is None else watch.stats.get(gemm) for gemm in ("fprop", "dgrad", "wgrad")]
        is_block = kernels[0] == blocks.KERNEL
        wanted = x.requires_grad or weight.requires_grad or (is_block and bias is not None and bias.requires_grad)
        apart = None
        if torch.is_grad_enabled() and wanted:
            # The first step of a model whose scales follow what they see is such a one.
            in_parts = codes is not None or is_block or takes_codes or tail != ""
            if watch is not None and torch.compiler.is_compiling() and not in_parts:
                y, apart = checked(rows, weight, kernels, options, known, sums), bias
            else:
                y = _Linear.apply(  # type: ignore[no-untyped-call]
                    rows, weight, bias, kernels, options, *known, *sums, *kept,
                    None if gives is None else gives.inverse, None if gives is None else gives.amax,
                    None if norm is None else norm.weight, None if norm is None else norm.bias,
                )
        else:
            # A block adds its bias before its norm.
            inside, apart = (bias, None) if is_block else (None, bias)
            y, _ = forward(rows, weight, inside, kernels, options, False, False, scales[0], sums[0], pair_of(*kept))
        y = y.view(*x.shape[:-1], weight.shape[0])
        y = y if apart is None else y + apart.to(y.dtype)
        return cut(y, n)


def beside(
    x: Tensor, dtype: torch.dtype, weight: Tensor, kernels: Kernels, emulate: bool, codes: Optional[WeightCodes]
) -> Tuple[Tensor, Optional[WeightCodes]]:
    """The weight as GEMMs are to read it beside x, which they read in that type, by autocast or not; and its codes, where they fit."""
    if torch.is_autocast_enabled(x.device.type):
        codes = _fitting(codes, dtype, weight)
        if not (_takes_wide(dtype, weight, kernels, emulate) or _has_all(codes, kernels, emulate)):
            weight = weight.to(dtype)
    elif x.dtype != weight.dtype:
        raise RuntimeError(f"x is {x.dtype} and weight is {weight.dtype}: linear wants one type")
    if x.shape[-1] != weight.shape[1]:
        raise RuntimeError(f"x has {x.shape[-1]} features and weight takes {weight.shape[1]}")
    return weight, _fitting(codes, dtype, weight)


def _takes_wide(dtype: torch.dtype, weight: Tensor, kernels: Kernels, emulate: bool) -> bool:
    """Whether FP8 is made of an FP32 weight in one pass, which rounds it to BF16 on the way as autocast would: where both
    GEMMs that read it want one scale for the whole of it."""
    if (dtype, weight.dtype) != (torch.bfloat16, torch.float32):
        return False
    two = list(zip(kernels, ("fprop", "dgrad")))
    return all(casts_before(*of, emulate) and numerics(*of).b.granularity == "tensor" for of in two)


def _fitting(codes: Optional[WeightCodes], dtype: torch.dtype, weight: Tensor) -> Optional[WeightCodes]:
    """The codes, where they are what a cast here would give."""
    if codes is None or (weight.dtype if not codes.rounded else torch.bfloat16) != dtype:
        return None
    # By field: a property of a named tuple PyTorch 2.6 cannot compile.
    first = codes.for_dgrad if codes.for_fprop is None else codes.for_fprop
    # A replica of DataParallel has the first one's.
    return codes if first is not None and first[0].device == weight.device else None


def _has_all(codes: Optional[WeightCodes], kernels: Kernels, emulate: bool) -> bool:
    """Whether nobody reads the weight itself."""
    return codes is not None and None not in (weight_casts(kernels, emulate) or (None,))


_Kept = Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]]


def parts_of(codes: Optional[WeightCodes]) -> _Kept:
    """One tensor less for compiled code to look after where both layouts have the same scale."""
    if codes is None:
        return None, None, None, None
    first, second = codes.for_fprop or (None, None), codes.for_dgrad or (None, None)
    return first[0], first[1], second[0], None if second[1] is first[1] else second[1]


def pair_of(
    straight: Optional[Tensor], scale: Optional[Tensor], turned: Optional[Tensor], turned_scale: Optional[Tensor]
) -> Pair:
    """What `parts_of` took apart: for fprop, and for dgrad."""
    other = scale if turned_scale is None else turned_scale
    first = None if straight is None or scale is None else Quantized(straight, scale)
    return first, None if turned is None or other is None else Quantized(turned, other)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], kernels: Kernels, options: Options,
        x_scale: Optional[Tensor], x_inverse: Optional[Tensor], x_amax: Optional[Tensor], x_saturated: Optional[Tensor],
        dy_scale: Optional[Tensor], dy_inverse: Optional[Tensor], dy_amax: Optional[Tensor],
        dy_saturated: Optional[Tensor],
        fprop_sums: Optional[Tensor], dgrad_sums: Optional[Tensor], wgrad_sums: Optional[Tensor],
        straight: Optional[Tensor], straight_scale: Optional[Tensor], turned: Optional[Tensor],
        turned_scale: Optional[Tensor], gives_inverse: Optional[Tensor], gives_amax: Optional[Tensor],
        norm_weight: Optional[Tensor], norm_bias: Optional[Tensor],
    ) -> Tensor:
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        x_known = Scale.known(x_scale, x_inverse, x_amax, x_saturated)
        kept = pair_of(straight, straight_scale, turned, turned_scale)
        is_watched = any(sums is not None for sums in (fprop_sums, dgrad_sums, wgrad_sums))
        inside = bias if kernels[0] == blocks.KERNEL or options.tail else None
        keep_x = need_weight or (inside is not None and need_bias)
        norm = Norm(norm_weight, norm_bias, options.eps) if is_row_normed(options.tail) else None
        y, parts = forward(
            x, weight, inside, kernels, options, keep_x, need_x, x_known, fprop_sums, kept, is_watched, gives_inverse, norm
        )
        if bias is not None and inside is None:
            # In here so that its gradient, a sum of dy, comes behind dy's cast: before it, Inductor would compute for the sum
            # whatever makes dy, and once more for the cast.
            y = y + bias.to(y.dtype)
        # dy's scale is saved with its version: a backward after the next `advance` is an error, not another scale.
        known = [] if dy_scale is None else [dy_scale, dy_inverse]
        ctx.save_for_backward(*known, *(tensor for part in parts for tensor in part))
        ctx.counts = (len(known), *(len(part) for part in parts))
        # These are written to: what is saved may not be.
        ctx.written = (x_amax, dy_amax, dy_saturated, dgrad_sums, wgrad_sums, gives_amax)
        ctx.kernels, ctx.options = kernels, options
        # No number of rows, which may be any in compiled code: that is dy's.
        ctx.features, ctx.weight_shape, ctx.weight_dtype = x.shape[1], weight.shape, weight.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.norm_dtypes = tuple(None if part is None else part.dtype for part in (norm_weight, norm_bias))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tuple[Optional[Tensor], ...]:
        tensors = list(ctx.saved_tensors)  # Once: checkpointing allows no second look.
        known, *parts = ([tensors.pop(0) for _ in range(count)] for count in ctx.counts)
        x_amax, dy_amax, dy_saturated, *sums = ctx.written
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        nothing = [None] * 19
        if dy.size(0) == 0:
            # Without a tail: that has rows.
            dx = dy.new_zeros(dy.size(0), ctx.features) if need_x else None
            dw = dy.new_zeros(ctx.weight_shape, dtype=ctx.weight_dtype) if need_weight else None
            return dx, dw, dy.new_zeros(ctx.weight_shape[0], dtype=ctx.bias_dtype) if need_bias else None, *nothing, None, None
        dy_known = Scale.known(known[0], known[1], dy_amax, dy_saturated) if known else None
        needs = (need_x, need_weight, need_bias)
        made = backward(dy, Saved(*parts), ctx.kernels, ctx.options, needs, ctx.weight_dtype, x_amax, dy_known, *sums)
        of_norm = [typed(part, dtype) for part, dtype in zip((made.norm_weight, made.norm_bias), ctx.norm_dtypes)]
        return made.x, made.weight, typed(made.bias, ctx.bias_dtype), *nothing, *of_norm


def typed(x: Optional[Tensor], dtype: torch.dtype) -> Optional[Tensor]:
    return x if x is None or x.dtype == dtype else x.to(dtype)


__all__ = ["beside", "linear", "pair_of", "parts_of", "typed"]
