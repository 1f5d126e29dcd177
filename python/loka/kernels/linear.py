"""Takes x, weight, bias and a kernel for each of the three GEMMs; gives what F.linear gives, by those kernels.

x is read by fprop and wgrad, the weight by fprop and dgrad, dy by dgrad and wgrad: an operand that two kernels want
alike is cast once. Scales that are known beforehand (`delayed`) make a cast a pointwise operation.
"""

from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import blocks, delayed
from .casts import Casts, Pair, Quantized, by_known_scale, input_and_weight, straight_and_turned
from ..catalogue import Cast, Numerics, numerics
from .delayed import Scale, Scales
from .gemms import casts_before, product, reads_codes, whole
from .watch import Watch, observe
from .weight_codes import Wanted, WeightCodes

Kernels = Tuple[str, str, str]
"""Kernel ids of fprop, dgrad and wgrad."""


class Options(NamedTuple):
    """How a linear runs, besides its kernels. Plain values: torch.compile guards on each."""

    emulate: bool = False
    """FP8's numbers by arithmetic that runs anywhere, slowly, without the accumulation of FP8 tensor cores."""
    settled: bool = False
    """All scales that are known beforehand are known by now; else one that is not is taken from the tensor itself."""
    stretch: int = 0
    """How many columns the norms before the linear share: maxima are taken along with them. 0: whole rows."""


def linear(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], kernels: Kernels, emulate: bool = False,
    scales: Scales = (None, None), settled: bool = False, stretch: int = 0, watch: Optional[Watch] = None,
    codes: Optional[WeightCodes] = None,
) -> Tensor:
    """x [..., k] times weight [n, k] turned, plus bias [n]: [..., n], in the type that F.linear gives, autocast or not.

    `kernels`: ids of the catalogue for (fprop, dgrad, wgrad). `emulate`: their numerics on any device, slowly, without
    the accumulation of FP8 tensor cores. Differentiable once. The bias is added in the output's type. A NaN or an
    infinity in x, weight or the gradient makes every output that shares its scale NaN. `scales`: of x and of dy, for
    kernels whose scale is known beforehand; the backward notes in them how large both were. Without them every call
    takes its own. `settled`, `stretch`: `Options`. `watch`: sums how far each GEMM is from BF16 there. `codes`:
    FP8 of the weight that is kept between steps; what it does not have is cast here. Of
    `loka/fp8-block+fast` the result is the whole block's, with BlockNorm(256) and hard swish behind the bias.

    Raises ValueError for an unknown kernel, RuntimeError for mixed types and for operands that a kernel cannot take
    (`why_not` tells before)."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x = x.to(dtype)
        codes = _fitting(codes, x, weight)
        if not (_takes_wide(x, weight, kernels, emulate) or _has_all(codes, kernels, emulate)):
            weight = weight.to(dtype)
    elif x.dtype != weight.dtype:
        raise RuntimeError(f"x is {x.dtype} and weight is {weight.dtype}: linear wants one type")
    if x.shape[-1] != weight.shape[1]:
        raise RuntimeError(f"x has {x.shape[-1]} features and weight takes {weight.shape[1]}")
    rows = x.reshape(-1, x.shape[-1])
    options = Options(emulate, settled, stretch)
    kept = _flat(_fitting(codes, x, weight))
    with torch.autocast(device, enabled=False):
        # Tensors by themselves: Dynamo does not look for them in tuples.
        known = [part for scale in scales for part in (scale or (None,) * 4)]
        if not any(kernel.startswith("loka/") for kernel in kernels):
            # Nobody counts: two tensors less for compiled code to look after at every call.
            known[3] = known[7] = None
        sums = [None if watch is None else watch.stats.get(gemm) for gemm in ("fprop", "dgrad", "wgrad")]
        # A block adds its bias before its norm.
        inside = bias if kernels[0] == blocks.KERNEL else None
        wanted = x.requires_grad or weight.requires_grad or (inside is not None and inside.requires_grad)
        if torch.is_grad_enabled() and wanted:
            y = _Linear.apply(  # type: ignore[no-untyped-call]
                rows, weight, inside, kernels, options, *known, *sums, *kept
            )
        else:
            y = _forward(rows, weight, inside, kernels, options, False, False, scales[0], sums[0], _codes(*kept)).y
        y = y.view(*x.shape[:-1], weight.shape[0])
        return y if bias is inside or bias is None else y + bias.to(y.dtype)


def _takes_wide(x: Tensor, weight: Tensor, kernels: Kernels, emulate: bool) -> bool:
    """Whether FP8 is made of an FP32 weight in one pass, which rounds it to BF16 on the way as autocast would: where both
    GEMMs that read it want one scale for the whole of it."""
    if (x.dtype, weight.dtype) != (torch.bfloat16, torch.float32):
        return False
    casts = [_cast(kernel, gemm, 1, Options(emulate)) for kernel, gemm in zip(kernels, ("fprop", "dgrad"))]
    return all(cast is not None and cast.granularity == "tensor" for cast in casts)


def weight_casts(kernels: Kernels, emulate: bool) -> Optional[Wanted]:
    """How fprop and dgrad read codes of the weight that can be kept between steps; None where neither does."""
    first, second = (reads_codes(kernel, gemm, emulate) for kernel, gemm in zip(kernels, ("fprop", "dgrad")))
    return None if first is None and second is None else (first, second)


def _fitting(codes: Optional[WeightCodes], x: Tensor, weight: Tensor) -> Optional[WeightCodes]:
    """The codes, where they are what a cast here would give."""
    if codes is None or (weight.dtype if not codes.rounded else torch.bfloat16) != x.dtype:
        return None
    # A replica of DataParallel has the first one's.
    return codes if codes.tensors[0].device == weight.device else None


def _has_all(codes: Optional[WeightCodes], kernels: Kernels, emulate: bool) -> bool:
    """Whether nobody reads the weight itself."""
    return codes is not None and None not in (weight_casts(kernels, emulate) or (None,))


_Kept = Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]]


def _flat(codes: Optional[WeightCodes]) -> _Kept:
    """One tensor less for compiled code to look after where both layouts have the same scale."""
    if codes is None:
        return None, None, None, None
    first, second = codes.for_fprop or (None, None), codes.for_dgrad or (None, None)
    return first[0], first[1], second[0], None if second[1] is first[1] else second[1]


def _codes(
    straight: Optional[Tensor], scale: Optional[Tensor], turned: Optional[Tensor], turned_scale: Optional[Tensor]
) -> Pair:
    """What `_flat` took apart: for fprop, and for dgrad."""
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
        turned_scale: Optional[Tensor],
    ) -> Tensor:
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        x_known = _scale(x_scale, x_inverse, x_amax, x_saturated)
        kept = _codes(straight, straight_scale, turned, turned_scale)
        made = _forward(x, weight, bias, kernels, options, need_weight or need_bias, need_x, x_known, fprop_sums, kept)
        is_watched = any(sums is not None for sums in (fprop_sums, dgrad_sums, wgrad_sums))
        watched = [x, weight] if is_watched else []
        # dy's scale is saved with its version: a backward after the next `advance` is an error, not another scale.
        known = [] if dy_scale is None else [dy_scale, dy_inverse]
        parts = (made.for_wgrad, made.for_dgrad, made.maxima, watched, known, made.z)
        ctx.save_for_backward(*(tensor for part in parts for tensor in part))
        ctx.counts = tuple(len(part) for part in parts)
        # These are written to: what is saved may not be.
        ctx.written = (x_amax, dy_amax, dy_saturated, dgrad_sums, wgrad_sums)
        ctx.kernels, ctx.options = kernels, options
        ctx.x_shape, ctx.weight_shape, ctx.weight_dtype = x.shape, weight.shape, weight.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        return made.y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tuple[Optional[Tensor], ...]:
        saved = list(ctx.saved_tensors)  # Once: checkpointing allows no second look.
        for_wgrad, for_dgrad, maxima, watched, known, z = ([saved.pop(0) for _ in range(count)] for count in ctx.counts)
        x_amax, dy_amax, dy_saturated, dgrad_sums, wgrad_sums = ctx.written
        _, dgrad, wgrad = ctx.kernels
        options = ctx.options
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        nothing, dtype = [None] * 17, dy.dtype
        if dy.shape[0] == 0:
            dx = dy.new_zeros(ctx.x_shape) if need_x else None
            dw = dy.new_zeros(ctx.weight_shape, dtype=ctx.weight_dtype) if need_weight else None
            return dx, dw, dy.new_zeros(ctx.weight_shape[0], dtype=ctx.bias_dtype) if need_bias else None, *nothing
        for_dx, for_dw = (numerics(dgrad, "dgrad"), numerics(wgrad, "wgrad"))
        given = None
        if z:
            dy, given = blocks.block_tail_gradient(dy, z[0], options.emulate)
            given = given if for_dx.a == blocks.ROWS else None
        dy_known = _scale(known[0], known[1], dy_amax, dy_saturated) if known else None
        dy_scale: Any = None
        if for_dx.a.granularity == "static" or for_dw.a.granularity == "static":
            dy_scale, inverse = delayed.current(dy, dy_known, "e4m3", options.settled)
        if maxima:
            # The scale of x follows from here too: a forward without a backward (evaluation, the first pass of a
            # checkpoint) leaves no mark.
            delayed.note(Scale(x_amax, x_amax, x_amax, x_amax), maxima[0])
        straight = turned = None
        by_dgrad = _cast(dgrad, "dgrad", 0, options) if need_x else None
        by_wgrad = _cast(wgrad, "wgrad", 0, options) if need_weight else None
        seen = None
        if _is_static(by_dgrad) or _is_static(by_wgrad):
            wanted = (_is_static(by_dgrad), _is_static(by_wgrad))
            straight, turned, seen = by_known_scale(dy, dy_scale, inverse, *wanted, options.stretch)
        elif given is not None and by_dgrad is not None:
            straight, by_dgrad = given, None
        if dy_known is not None:
            delayed.note(dy_known, delayed.largest(dy, options.stretch) if seen is None else seen)
        rest = (None if _is_static(by_dgrad) else by_dgrad, None if _is_static(by_wgrad) else by_wgrad)
        if rest != (None, None):
            first, second = straight_and_turned(dy, *rest, options.stretch)
            straight, turned = straight or first, turned or second
        dx = dw = None
        if need_x and straight is not None:
            dx = _rows(product(straight, Quantized(*for_dgrad), for_dx, options.emulate), dy.shape[0])
        elif need_x and given is not None and dgrad.startswith("loka/"):
            dx = blocks.dgrad_of_codes(given, for_dgrad[0], for_dx.fast, _kept_for(for_dgrad))
        elif need_x:
            static = _static(dy_known, dy_scale)
            dx = whole(dgrad, "dgrad", dy, for_dgrad[0], options.emulate, static, _kept_for(for_dgrad))
        if need_weight and turned is not None:
            dw = product(turned, Quantized(*for_wgrad), for_dw, options.emulate, ctx.weight_dtype)
        elif need_weight:
            dw = whole(wgrad, "wgrad", dy, for_wgrad[0], options.emulate, wanted=ctx.weight_dtype)
        if watched and dx is not None and dgrad_sums is not None:
            observe(dgrad_sums, "dgrad", dx, dy, watched[1], dgrad, dy_scale)
        if watched and dw is not None and wgrad_sums is not None:
            observe(wgrad_sums, "wgrad", dw, dy, watched[0], wgrad, dy_scale)
        db = dy.sum(0) if need_bias else None
        return _as(dx, dtype), _as(dw, ctx.weight_dtype), _as(db, ctx.bias_dtype), *nothing


def _kept_for(for_dgrad: List[Tensor]) -> Optional[Quantized]:
    """Codes of the weight that dgrad reads itself; None where it has the weight."""
    return Quantized(*for_dgrad) if len(for_dgrad) == 2 else None


def _scale(
    scale: Optional[Tensor], inverse: Optional[Tensor], amax: Optional[Tensor], saturated: Optional[Tensor]
) -> Optional[Scale]:
    # Who has a scale has its inverse; of the others each goes where it is looked at.
    parts: Any = (scale, inverse, amax, saturated)
    return None if scale is None else Scale(*parts)


def _static(known: Optional[Scale], scale: Any) -> Optional[Scale]:
    """With the scale that this call goes by."""
    return None if known is None else Scale(scale, known.inverse, known.amax, known.saturated)


class _Made(NamedTuple):
    """Of the forward: y [m, n] in x's type, of a block its output; what wgrad needs of x and dgrad of the weight: the
    operand itself, or its FP8 and the scale, which is half the memory; maxima of x, if its scale follows them; and a
    block's z, from before its norm."""

    y: Tensor
    for_wgrad: List[Tensor]
    for_dgrad: List[Tensor]
    maxima: List[Tensor]
    z: List[Tensor] = []


def _forward(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], kernels: Kernels, options: Options, keep_x: bool,
    keep_weight: bool, known: Optional[Scale], sums: Optional[Tensor], kept: Pair,
) -> _Made:
    fprop, dgrad, wgrad = kernels
    if x.shape[0] == 0:
        return _Made(x.new_empty(0, weight.shape[0]), [], [], [])
    by_fprop = (_cast(fprop, "fprop", 0, options), _cast(fprop, "fprop", 1, options))
    x_wgrad = _cast(wgrad, "wgrad", 1, options) if keep_x else None
    weight_dgrad = _cast(dgrad, "dgrad", 1, options) if keep_weight else None
    # Only what its kernel reads: which one that is may have changed since.
    reads = weight_casts(kernels, options.emulate) or (None, None)
    kept = (None if reads[0] is None else kept[0], None if reads[1] is None or not keep_weight else kept[1])
    straight = (None if _is_static(by_fprop[0]) else by_fprop[0], by_fprop[1] if kept[0] is None else None)
    turned = (None if _is_static(x_wgrad) else x_wgrad, weight_dgrad if kept[1] is None else None)
    if not options.emulate:
        _need_gpu(x, (*by_fprop, x_wgrad, weight_dgrad))
    scale = seen = z = None
    if _is_static(by_fprop[0]) or _is_static(x_wgrad):
        scale, inverse = delayed.current(x, known, "e4m3", options.settled)
        if turned[0] is not None or (keep_x and x_wgrad is None):
            # wgrad reads it as it is, or casts it itself: one x for all.
            x = delayed.realized(x, options.stretch)
        wanted = (_is_static(by_fprop[0]), _is_static(x_wgrad))
        *codes, seen = by_known_scale(x, scale, inverse, *wanted, options.stretch)
    (x_straight, x_turned), (weight_straight, weight_turned) = _casts(x, weight, straight, turned, options.stretch)
    weight_straight, weight_turned = kept[0] or weight_straight, kept[1] or weight_turned
    if scale is not None:
        x_straight, x_turned = x_straight or codes[0], x_turned or codes[1]
    how = numerics(fprop, "fprop")
    if x_straight is not None and weight_straight is not None:
        y = _rows(product(x_straight, weight_straight, how, options.emulate), x.shape[0])
    elif fprop == blocks.KERNEL:
        keep_z = keep_x or keep_weight or sums is not None
        y, z = blocks.block_forward(x, weight, bias, known, options.emulate, keep_z, None, kept[0])
    else:
        y = whole(fprop, "fprop", x, weight, options.emulate, known, kept[0])
    if sums is not None:
        product_alone = y if z is None else z if bias is None else z - bias
        by = scale if scale is not None else None if known is None else known.scale
        observe(sums, "fprop", product_alone, x, weight, fprop, by)
    for_wgrad = [] if not keep_x else [x] if x_turned is None else [*x_turned]
    for_dgrad = [] if not keep_weight else [weight] if weight_turned is None else [*weight_turned]
    maxima = [seen] if seen is not None and known is not None and (keep_x or keep_weight) else []
    before_norm = [z] if z is not None and (keep_x or keep_weight) else []
    return _Made(_of(y, x.dtype), for_wgrad, for_dgrad, maxima, before_norm)


def _cast(kernel: str, gemm: str, operand: int, options: Options) -> Optional[Cast]:
    """How a GEMM wants operand 0 (a) or 1 (b) cast before it; None where it casts for itself."""
    if not casts_before(kernel, gemm, options.emulate):
        return None
    how: Numerics = numerics(kernel, gemm)
    return how.b if operand else how.a


def _is_static(cast: Optional[Cast]) -> bool:
    return cast is not None and cast.granularity == "static"


def _as(x: Optional[Tensor], dtype: torch.dtype) -> Optional[Tensor]:
    return None if x is None else _of(x, dtype)


def _of(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in that type. Not by a conversion that converts nothing: Dynamo of PyTorch 2.11 then takes the output of an
    autograd function for its input, and its gradient silently for zero."""
    return x if x.dtype == dtype else x.to(dtype)


def _rows(x: Tensor, rows: int) -> Tensor:
    """Without the rows that padded whole blocks."""
    return x if x.shape[0] == rows else x[:rows]


def _casts(x: Tensor, weight: Tensor, straight: Casts, turned: Casts, stretch: int) -> Tuple[Pair, Pair]:
    if straight == (None, None) and turned == (None, None):
        return (None, None), (None, None)
    return input_and_weight(x, weight, straight, turned, stretch)


def _need_gpu(x: Tensor, casts: Tuple[Optional[Cast], ...]) -> None:
    if not x.is_cuda and any(cast is not None for cast in casts):
        raise RuntimeError(f"x is on {x.device}: FP8 kernels need a CUDA GPU; emulate=True runs their numerics slowly")


__all__ = ["Kernels", "Options", "linear", "weight_casts"]
