"""Takes x, and of two linears that read it and whose results are multiplied the operands and kernels; gives that product, by those kernels.

x is cast once, by the first one's scale; both note how large it was. The product, and the gradients of what comes out of both linears,
are one pass each (`gated`).
"""

from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..catalogue import numerics
from . import gated, handed
from .casts import Quantized
from .delayed import Notes, Scale, Scales
from .gemms import product
from .linear import beside, pair_of, parts_of, typed
from .passes import Kernels, Options, cast_for, forward, wgrad_of_codes
from .weight_codes import WeightCodes


class Branch(NamedTuple):
    """One of the two linears, and which of `gated.GATES` follows it. `scales`: of x and of dy; both are known."""

    weight: Tensor
    bias: Optional[Tensor]
    kernels: Kernels
    scales: Scales
    codes: Optional[WeightCodes]
    activation: str
    columns: bool = False


def gated_linear(
    x: Tensor, first: Branch, second: Branch, emulate: bool = False, stretch: int = 0, dropout: float = 0.0, gives: Optional[Scale] = None
) -> Tensor:
    """What comes behind x [..., k] as `gated` has it, and behind a dropout of that share: [..., n], in BF16, or with `gives` in codes by
    that scale. In training alone, m a multiple of 16; dgrad and wgrad of both by kernels whose scales are known beforehand, fprop by none
    of LoKA's own."""
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    of_both: List[Any] = []
    for one in (first, second):
        weight, codes = beside(x, dtype, one.weight, one.kernels, emulate, one.codes)
        (x_scale, dy_scale), options = one.scales, Options(emulate, True, stretch, one.columns)
        assert x_scale is not None and dy_scale is not None, "both are known"
        # Tensors by themselves: Dynamo does not look for them in tuples.
        of_both += [weight, one.bias, one.kernels, one.activation, options, x_scale.scale, x_scale.inverse, x_scale.amax]
        of_both += [dy_scale.scale, dy_scale.inverse, dy_scale.amax, *parts_of(codes)]
    given = (None, None) if gives is None else (gives.inverse, gives.amax)
    with torch.autocast(device, enabled=False):
        y: Tensor = _Gated.apply(x.reshape(-1, x.shape[-1]), dropout, *given, *of_both)  # type: ignore[no-untyped-call]
        return y.view(*x.shape[:-1], first.weight.shape[0])


_FIRST, _SIZE = 4, 15
"""Where what `_Gated` is told of the two begins, and how much of each."""


class _Side(NamedTuple):
    """What `_Gated` is told of each linear, as `gated_linear` lines it up."""

    weight: Tensor
    bias: Optional[Tensor]
    kernels: Kernels
    activation: str
    options: Options
    x_scale: Tensor
    x_inverse: Tensor
    x_amax: Tensor
    dy_scale: Tensor
    dy_inverse: Tensor
    dy_amax: Tensor
    straight: Optional[Tensor]
    straight_scale: Optional[Tensor]
    turned: Optional[Tensor]
    turned_scale: Optional[Tensor]


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dropout: float, gives_inverse: Optional[Tensor], gives_amax: Optional[Tensor], *of_both: Any
    ) -> Tensor:
        sides = _Side(*of_both[:_SIZE]), _Side(*of_both[_SIZE:])
        first, second = sides
        ctx.dtype, need_x = x.dtype, ctx.needs_input_grad[0]
        # In here: what both dgrads make is added up in x's own type, as it is of linears apart.
        x = x if x.dtype == torch.bfloat16 else x.to(torch.bfloat16)
        straight, turned, maxima = cast_for(x, (first.kernels, second.kernels), first.options, first.x_scale, first.x_inverse)
        known = Scale.known(first.x_scale, first.x_inverse, None, None)
        halves, weights = [], []
        for one in sides:
            kept = pair_of(one.straight, one.straight_scale, one.turned, one.turned_scale)
            z, parts = forward(x, one.weight, None, one.kernels, one.options, True, need_x, known, None, kept, shared=(straight, turned))
            halves.append(gated.Half(z, one.bias, one.activation))
            weights += parts.for_dgrad
        keep, given = handed.kept(halves[0].z, dropout), None
        if gives_inverse is None:
            h = gated.joined(halves[0], halves[1], keep, dropout)
        else:
            h, given = gated.output(halves[0], halves[1], gives_inverse, keep, dropout)
        # Scales are saved with their versions: a backward after the next `advance` is an error, not another scale.
        scales = (first.dy_scale, first.dy_inverse, second.dy_scale, second.dy_inverse)
        ctx.save_for_backward(
            *scales, turned.bits, turned.scale, halves[0].z, first.bias, halves[1].z, second.bias, keep, maxima, given, *weights
        )
        # These are written to: what is saved may not be.
        ctx.written = (first.x_amax, first.dy_amax, second.x_amax, second.dy_amax, gives_amax)
        ctx.dropout, ctx.activations = dropout, (first.activation, second.activation)
        ctx.how = tuple((one.kernels, one.options, one.weight.dtype) for one in sides)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor) -> Tuple[Optional[Tensor], ...]:
        tensors = ctx.saved_tensors  # Once: checkpointing allows no second look.
        (scale, inverse, other_scale, other_inverse, x, x_scale), weights = tensors[:6], tensors[13:]
        z, bias, other_z, other_bias, keep, maxima, given = tensors[6:13]
        x_amax, amax, other_x_amax, other_amax, gives_amax = ctx.written
        needs = ctx.needs_input_grad
        need_x, need_biases = needs[0], (needs[_FIRST + 1], needs[_FIRST + _SIZE + 1])
        # The scale of x follows from here, as in `passes.backward`; of both.
        notes = Notes(amax, [(maxima, x_amax)] + ([] if given is None else [(given, gives_amax)]))
        other_notes = Notes(other_amax, [(maxima, other_x_amax)])
        first, second = gated.Half(z, bias, ctx.activations[0]), gated.Half(other_z, other_bias, ctx.activations[1])
        made = gated.gradient(
            dh, first, second, scale, inverse, other_scale, other_inverse, any(need_biases), keep, ctx.dropout, notes, other_notes
        )
        dx: Any = None
        gradients: List[Optional[Tensor]] = []
        for at in (0, 1):
            dz, (kernels, options, weight_dtype) = made[at], ctx.how[at]
            if need_x:
                by_weight = Quantized(*weights[2 * at : 2 * at + 2])
                part = typed(product(dz.straight, by_weight, numerics(kernels[1], "dgrad"), options.emulate), ctx.dtype)
                dx = part if dx is None else dx + part
            dw = wgrad_of_codes(dz.turned, [x, x_scale], numerics(kernels[2], "wgrad"), options, weight_dtype)
            db = typed(dz.sums, (bias, other_bias)[at].dtype) if need_biases[at] else None
            gradients += [typed(dw, weight_dtype), db, *[None] * (_SIZE - 2)]
        return dx, None, None, None, *gradients


__all__ = ["Branch", "gated_linear"]
