"""Takes a linear's operands and a kernel for each of its three GEMMs; gives its forward and its backward, without autograd.

x is read by fprop and wgrad, the weight by fprop and dgrad, dy by dgrad and wgrad: an operand that two kernels want
alike is cast once.
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import blocks, delayed, handed, norms
from .casts import Casts, Pair, Quantized, by_known_scale, input_and_weight, note, note_all, straight_and_turned
from ..catalogue import Cast, Numerics, numerics
from .delayed import Scale
from .gemms import casts_before, product, reads_codes, route, whole
from .watch import observe
from .weight_codes import Wanted

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
    columns: bool = False
    """The model keeps the weight as [k, n]: its gradient is made so, or it would be copied once more."""
    takes_codes: bool = False
    """x is what `handed.output` made of it."""
    tail: str = ""
    """What follows it, of `handed.TAILS`, where the two run as one."""
    dropout: float = 0.0
    """The share of what comes behind its tail that is dropped before it is given."""
    eps: float = 0.0
    """Of the norm over rows in its tail."""
    wide: bool = False
    """What comes behind such a tail is given in FP32, as autocast has it."""


def weight_casts(kernels: Kernels, emulate: bool) -> Optional[Wanted]:
    """How fprop and dgrad read codes of the weight that can be kept between steps; None where neither does."""
    first, second = (reads_codes(kernel, gemm, emulate) for kernel, gemm in zip(kernels, ("fprop", "dgrad")))
    return None if first is None and second is None else (first, second)


class Saved(NamedTuple):
    """What a backward reads of its forward: x for wgrad and the weight for dgrad, each as it is, or its FP8 and the scale, which is
    half the memory; maxima of x, if its scale follows them; x and the weight, `watched`, where GEMMs are checked; a block's z, from before its norm,
    or what a tail is of, z, its bias and what is kept of it, and maxima of what it gives, where that is codes; and `norms.kept` of a norm."""

    for_wgrad: List[Tensor]
    for_dgrad: List[Tensor]
    maxima: List[Tensor]
    watched: List[Tensor]
    z: List[Tensor]
    given: List[Tensor]
    norm: List[Tensor]


class _Operands(NamedTuple):
    """x and the weight as GEMMs read them: straight for fprop, turned for wgrad and dgrad; None where none does, or casts it for
    itself. `x`: as these are to take it. `scale`: the one known beforehand by which x was cast, with its `maxima`."""

    x: Tensor
    x_straight: Optional[Quantized]
    weight_straight: Optional[Quantized]
    x_turned: Optional[Quantized]
    weight_turned: Optional[Quantized]
    scale: Optional[Tensor]
    maxima: Optional[Tensor]


def _operands(
    x: Tensor, weight: Tensor, kernels: Kernels, options: Options, multiplied: bool, keep_x: bool, keep_weight: bool,
    known: Optional[Scale], kept: Pair, shared: Pair = (None, None),
) -> _Operands:
    """`multiplied`: fprop reads them; `keep_x`, `keep_weight`: wgrad and dgrad do. `kept`: codes of the weight from before; `shared`: of x,
    by that scale."""
    fprop, dgrad, wgrad = kernels
    by_fprop = [_cast(fprop, "fprop", operand, options) if multiplied else None for operand in (0, 1)]
    x_wgrad = _cast(wgrad, "wgrad", 1, options) if keep_x else None
    weight_dgrad = _cast(dgrad, "dgrad", 1, options) if keep_weight else None
    straight = (None if _is_static(by_fprop[0]) else by_fprop[0], by_fprop[1] if kept[0] is None else None)
    turned = (None if _is_static(x_wgrad) else x_wgrad, weight_dgrad if kept[1] is None else None)
    if not options.emulate:
        _need_gpu(x, (*by_fprop, x_wgrad, weight_dgrad))
    scale = seen = None
    codes: List[Optional[Quantized]] = [None, None]
    if options.takes_codes:
        assert known is not None, "who is given codes has their scale"
        scale = known.scale
        codes = [*handed.taken(x, scale)]
    elif shared[1] is not None:
        scale = shared[1].scale
        codes = [shared[0] if _is_static(by_fprop[0]) else None, shared[1]]
    elif _is_static(by_fprop[0]) or _is_static(x_wgrad):
        scale, inverse = delayed.current(x, known, "e4m3", options.settled)
        if turned[0] is not None or (keep_x and x_wgrad is None):
            # wgrad reads it as it is, or casts it itself: one x for all.
            x = delayed.realized(x, options.stretch)
        wanted = (_is_static(by_fprop[0]), _is_static(x_wgrad))
        *codes, seen = by_known_scale(x, scale, inverse, *wanted, options.stretch)
    (x_straight, x_turned), (weight_straight, weight_turned) = _casts(x, weight, straight, turned, options.stretch)
    if scale is not None:
        x_straight, x_turned = x_straight or codes[0], x_turned or codes[1]
    return _Operands(x, x_straight, kept[0] or weight_straight, x_turned, kept[1] or weight_turned, scale, seen)


def saved(
    x: Tensor, weight: Tensor, kernels: Kernels, options: Options, need_x: bool, need_weight: bool, known: Optional[Scale]
) -> Saved:
    """What `forward` saves where GEMMs are checked, of x and the weight alone."""
    operands = _operands(x, weight, kernels, options, False, need_weight, need_x, known, (None, None))
    seen = operands.maxima if known is not None else None
    if seen is None and known is not None and _is_static(_cast(kernels[0], "fprop", 0, options)):
        # fprop's cast saw them.
        seen = delayed.largest(x)
    return _saved(operands, weight, need_weight, need_x, seen, [x, weight], [], None, [])


def _saved(
    operands: _Operands, weight: Tensor, keep_x: bool, keep_weight: bool, maxima: Optional[Tensor], watched: List[Tensor],
    z: List[Tensor], given: Optional[Tensor], norm: List[Tensor],
) -> Saved:
    turned = operands.x_turned, operands.weight_turned
    for_wgrad = [] if not keep_x else [operands.x] if turned[0] is None else [*turned[0]]
    for_dgrad = [] if not keep_weight else [weight] if turned[1] is None else [*turned[1]]
    seen, given_maxima = ([] if one is None else [one] for one in (maxima, given))
    return Saved(for_wgrad, for_dgrad, seen, watched, z, given_maxima, norm)


def forward(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], kernels: Kernels, options: Options, keep_x: bool,
    keep_weight: bool, known: Optional[Scale], sums: Optional[Tensor], kept: Pair, is_watched: bool = False,
    gives: Optional[Tensor] = None, norm: Optional[handed.Norm] = None, shared: Pair = (None, None),
) -> Tuple[Tensor, Saved]:
    """(y [m, n] in x's type, what the backward reads) of x [m, k], weight [n, k] and bias [n], which is of a block alone, whose
    output y then is, or of a tail: then y is what comes behind that, with `gives` in codes by a scale of that inverse. `norm`: of a
    tail with one over rows. `shared`: `cast_for` both linears that read this x."""
    fprop = kernels[0]
    if x.size(0) == 0:
        return x.new_empty(0, weight.size(0)), Saved([], [], [], [], [], [], [])
    # Only what its kernel reads: which one that is may have changed since.
    reads = weight_casts(kernels, options.emulate) or (None, None)
    kept = (None if reads[0] is None else kept[0], None if reads[1] is None or not keep_weight else kept[1])
    operands = _operands(x, weight, kernels, options, True, keep_x, keep_weight, known, kept, shared)
    given, x, z = x, operands.x, None
    if operands.x_straight is not None and operands.weight_straight is not None:
        made = product(operands.x_straight, operands.weight_straight, numerics(fprop, "fprop"), options.emulate)
        y = _rows(made, x.size(0))
    elif fprop == blocks.KERNEL:
        keep_z = keep_x or keep_weight or sums is not None
        y, z = blocks.block_forward(x, weight, bias, known, options.emulate, keep_z, None, kept[0])
    else:
        y = whole(fprop, "fprop", x, weight, options.emulate, known, kept[0])
    if sums is not None:
        product_alone = y if z is None else z if bias is None else z - bias
        scale = operands.scale
        by = scale if scale is not None else None if known is None else known.scale
        observe(sums, "fprop", product_alone, x, weight, fprop, by)
    is_followed = known is not None and (keep_x or keep_weight)
    # By name, neither replaced nor cut: PyTorch 2.6 cannot compile that of a named tuple.
    maxima, watched = operands.maxima if is_followed else None, [given, weight] if is_watched else []
    given_maxima = None
    before, of_norm = [] if z is None else [z], []
    if options.tail:
        z = _of(y, given.dtype)
        keep = handed.kept(z, options.dropout)
        if gives is not None:
            behind = handed.output(z, bias, gives, options.tail, keep, options.dropout, norm)
            h = behind.h
        else:
            behind, h = handed.joined(z, bias, options.tail, keep, options.dropout, norm, options.wide)
        y, given_maxima = behind.h, behind.maxima
        if options.tail == "relu":
            # What it lets through says where it did; the next linear has it too.
            before = [h] if gives is not None or keep is None else [h, keep]
        else:
            before = [part for part in (z, bias, keep) if part is not None]
        if norm is not None and behind.stats is not None:
            of_norm = norms.kept(behind.stats, norm)
    before, of_norm = (before, of_norm) if keep_x or keep_weight else ([], [])
    parts = _saved(operands, weight, keep_x, keep_weight, maxima, watched, before, given_maxima, of_norm)
    return y if options.wide else _of(y, given.dtype), parts


class Gradients(NamedTuple):
    """Of x [m, k] in dy's type, the weight [n, k] and the bias [n] in theirs; None of what needs none. And of a norm's own weight and
    bias [n] in FP32, where it has these."""

    x: Optional[Tensor]
    weight: Optional[Tensor]
    bias: Optional[Tensor]
    norm_weight: Optional[Tensor] = None
    norm_bias: Optional[Tensor] = None


def backward(
    dy: Tensor, parts: Saved, kernels: Kernels, options: Options, needs: Tuple[bool, bool, bool], weight_dtype: torch.dtype,
    x_amax: Optional[Tensor], known: Optional[Scale], dgrad_sums: Optional[Tensor], wgrad_sums: Optional[Tensor],
    given_amax: Optional[Tensor] = None,
) -> Gradients:
    """Of dy [m, n], m at least 1; `needs` a gradient: x, weight, bias. `known`: the scale of dy. `x_amax`, `given_amax`: where the
    largest of x is noted, and of what a block gives in codes."""
    _, dgrad, wgrad = kernels
    need_x, need_weight, need_bias = needs
    for_wgrad, for_dgrad, maxima, watched, z, given_maxima, of_norm = parts
    dtype = torch.bfloat16 if options.wide else dy.dtype
    for_dx, for_dw = (numerics(dgrad, "dgrad"), numerics(wgrad, "wgrad"))
    given = None
    by_dgrad = _cast(dgrad, "dgrad", 0, options) if need_x else None
    by_wgrad = _cast(wgrad, "wgrad", 0, options) if need_weight else None
    # All that read dz read it by a scale that is known: always so behind a tail.
    in_codes = len(z) > 0 and options.settled and not watched
    in_codes = in_codes and (not need_x or _is_static(by_dgrad)) and (not need_weight or _is_static(by_wgrad))
    in_codes = in_codes and dy.size(0) % handed.ROWS == 0 and z[0].dtype == torch.bfloat16
    assert in_codes or not options.tail, "who gives codes reads its gradient by a scale that is known"
    if z and not in_codes:
        dy, given = blocks.block_tail_gradient(dy, z[0], options.emulate)
        given = given if for_dx.a == blocks.ROWS else None
    dy_scale: Any = None
    if for_dx.a.granularity == "static" or for_dw.a.granularity == "static":
        dy_scale, inverse = delayed.current(dy, known, "e4m3", options.settled)
    # The scale of x follows from here too: a forward without a backward (evaluation, the first pass of a checkpoint)
    # leaves no mark.
    found = ((maxima, x_amax), (given_maxima, given_amax))
    others = [(part[0], amax) for part, amax in found if part and amax is not None]
    notes = None if known is None else delayed.Notes(known.amax, others)
    straight = turned = db = norm_weight = norm_bias = None
    if in_codes:
        of_codes = options.tail == "relu" and len(given_maxima) > 0
        keep = z[-1] if options.dropout and not of_codes else None
        bias = z[1] if len(z) - (keep is not None) == 2 else None
        passed = handed.gate(z[0]) if of_codes else z[0]
        norm = stats = None
        if of_norm:
            stats, norm = norms.found(of_norm, options.tail, options.eps)
        tail = options.tail or handed.NORMED
        made = handed.gradient(dy, passed, bias, dy_scale, inverse, tail, need_bias, keep, options.dropout, norm, stats, notes)
        straight, turned, db = made.straight, made.turned, made.sums
        norm_weight, norm_bias = made.norm_weight, made.norm_bias
    elif _is_static(by_dgrad) or _is_static(by_wgrad):
        wanted = (_is_static(by_dgrad), _is_static(by_wgrad))
        straight, turned, _ = by_known_scale(dy, dy_scale, inverse, *wanted, options.stretch, notes)
    elif given is not None and by_dgrad is not None:
        straight, by_dgrad = given, None
    if notes is not None and not (in_codes or _is_static(by_dgrad) or _is_static(by_wgrad)):
        note_all(notes, delayed.largest(dy, options.stretch))
    for other, amax in others if notes is None else ():
        note(amax, other)
    rest = (None if _is_static(by_dgrad) else by_dgrad, None if _is_static(by_wgrad) else by_wgrad)
    if rest != (None, None):
        first, second = straight_and_turned(dy, *rest, options.stretch)
        straight, turned = straight or first, turned or second
    dx = dw = None
    if need_x and straight is not None:
        dx = _rows(product(straight, Quantized(*for_dgrad), for_dx, options.emulate), dy.size(0))
    elif need_x and given is not None and dgrad.startswith("loka/"):
        dx = blocks.dgrad_of_codes(given, for_dgrad[0], for_dx.fast, _kept_for(for_dgrad))
    elif need_x:
        static = _static(known, dy_scale)
        dx = whole(dgrad, "dgrad", dy, for_dgrad[0], options.emulate, static, _kept_for(for_dgrad))
    if need_weight and turned is not None:
        dw = wgrad_of_codes(turned, for_wgrad, for_dw, options, weight_dtype)
    elif need_weight and options.columns and route(wgrad, "wgrad", options.emulate) in ("mm", "tf32"):
        dw = whole(wgrad, "wgrad", for_wgrad[0], dy, options.emulate, wanted=weight_dtype).t()
    elif need_weight:
        dw = whole(wgrad, "wgrad", dy, for_wgrad[0], options.emulate, wanted=weight_dtype)
    if watched and dx is not None and dgrad_sums is not None:
        observe(dgrad_sums, "dgrad", dx, dy, watched[1], dgrad, dy_scale)
    if watched and dw is not None and wgrad_sums is not None:
        observe(wgrad_sums, "wgrad", dw, dy, watched[0], wgrad, dy_scale)
    # Last of all: a cast has written what dy is by now.
    db = dy.sum(0) if need_bias and db is None else db
    return Gradients(_as(dx, dtype), _as(dw, weight_dtype), db, norm_weight, norm_bias)


def cast_for(
    x: Tensor, kernels: Sequence[Kernels], options: Options, scale: Tensor, inverse: Tensor
) -> Tuple[Optional[Quantized], Quantized, Tensor]:
    """(codes, where a fprop reads them; turned; maxima) of x by one scale, for linears whose wgrads read x by one that is known."""
    wanted = any(_is_static(_cast(of_one[0], "fprop", 0, options)) for of_one in kernels)
    straight, turned, maxima = by_known_scale(x, scale, inverse, wanted, True, options.stretch)
    assert turned is not None and maxima is not None, "both were asked for"
    return straight, turned, maxima


def wgrad_of_codes(dy: Quantized, x: List[Tensor], how: Numerics, options: Options, wanted: torch.dtype) -> Tensor:
    """dW [n, k] of dy [n, m] and x [k, m], both turned."""
    # Emulated it stays as it is defined; blocks of one operand are no blocks of the other.
    if options.columns and not options.emulate and how.b.granularity in ("tensor", "row", "static"):
        return _turned_product(dy, Quantized(*x), how, wanted)
    return product(dy, Quantized(*x), how, options.emulate, wanted)


def _turned_product(dy: Quantized, x: Quantized, how: Numerics, wanted: torch.dtype) -> Tensor:
    """dW [n, k] of dy [n, m] and x [k, m], as a view of what lies in memory as [k, n]."""
    return product(x, dy, how._replace(a=how.b, b=how.a), False, wanted).t()


def _kept_for(for_dgrad: List[Tensor]) -> Optional[Quantized]:
    """Codes of the weight that dgrad reads itself; None where it has the weight."""
    return Quantized(*for_dgrad) if len(for_dgrad) == 2 else None


def _static(known: Optional[Scale], scale: Any) -> Optional[Scale]:
    """With the scale that this call goes by."""
    return None if known is None else Scale(scale, known.inverse, known.amax, known.saturated)


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
    # By `size`: of a whole shape Dynamo makes each part an output of an autograd function, and fails at one that is a constant.
    return x if x.size(0) == rows else x[:rows]


def _casts(x: Tensor, weight: Tensor, straight: Casts, turned: Casts, stretch: int) -> Tuple[Pair, Pair]:
    if straight == (None, None) and turned == (None, None):
        return (None, None), (None, None)
    return input_and_weight(x, weight, straight, turned, stretch)


def _need_gpu(x: Tensor, casts: Tuple[Optional[Cast], ...]) -> None:
    if not x.is_cuda and any(cast is not None for cast in casts):
        raise RuntimeError(f"x is on {x.device}: FP8 kernels need a CUDA GPU; emulate=True runs their numerics slowly")


__all__ = ["Gradients", "Kernels", "Options", "Saved", "backward", "cast_for", "forward", "saved", "weight_casts", "wgrad_of_codes"]
