"""Takes a linear's operands in the step that is checked, under torch.compile; gives its forward and its backward as one operator each.

Compiled code has a variant for that step, which is one in a thousand. What `passes` does there is some thirty operations a GEMM
(scales that are looked for, casts, sums): traced, they took longer to compile than the whole model for all other steps. Here
they run one by one, as they do without torch.compile; nothing is kept from the forward but x and the weight.
"""

from typing import Any, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .delayed import Scale
from .passes import Kernels, Options, backward, forward, saved


def checked(
    x: Tensor, weight: Tensor, kernels: Kernels, options: Options, scales: Sequence[Optional[Tensor]],
    sums: Sequence[Optional[Tensor]],
) -> Tensor:
    """y [m, n] of x [m, k] and weight [n, k]. `scales`: the parts of x's and of dy's, four each; `sums`: of fprop, dgrad and wgrad."""
    y: Tensor = _Checked.apply(  # type: ignore[no-untyped-call]
        x, weight, *scales, *sums, " ".join(kernels), options.emulate, options.stretch
    )
    return y


class _Checked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor,
        x_scale: Optional[Tensor], x_inverse: Optional[Tensor], x_amax: Optional[Tensor], x_saturated: Optional[Tensor],
        dy_scale: Optional[Tensor], dy_inverse: Optional[Tensor], dy_amax: Optional[Tensor],
        dy_saturated: Optional[Tensor],
        fprop_sums: Optional[Tensor], dgrad_sums: Optional[Tensor], wgrad_sums: Optional[Tensor],
        kernels: str, emulate: bool, stretch: int,
    ) -> Tensor:
        # Scales are saved with their versions: a backward after the next `advance` is an error, not another scale.
        ctx.save_for_backward(x, weight, x_scale, x_inverse, dy_scale, dy_inverse)
        # These are written to: what is saved may not be.
        ctx.written = (x_amax, dy_amax, dy_saturated, dgrad_sums, wgrad_sums)
        ctx.how = (kernels, emulate, stretch)
        return _forward(x, weight, x_scale, x_inverse, x_saturated, fprop_sums, kernels, emulate, stretch)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tuple[Optional[Tensor], ...]:
        needs = ctx.needs_input_grad[:2]
        dx, dw = _backward(dy, *ctx.saved_tensors, *ctx.written, *ctx.how, *needs)
        return dx if needs[0] else None, dw if needs[1] else None, *[None] * 14


@torch.library.custom_op("loka::checked_forward", mutates_args=("saturated", "sums"))
def _forward(
    x: Tensor, weight: Tensor, scale: Optional[Tensor], inverse: Optional[Tensor], saturated: Optional[Tensor],
    sums: Optional[Tensor], kernels: str, emulate: bool, stretch: int,
) -> Tensor:
    known = Scale.known(scale, inverse, None, saturated)
    # Compiled code takes autocast apart as it is traced, and runs where it is still on.
    with torch.autocast(x.device.type, enabled=False):
        three, options = _three(kernels), Options(emulate, False, stretch)
        y, _ = forward(x, weight, None, three, options, False, False, known, sums, (None, None))
    return y.contiguous()


@_forward.register_fake
def _(
    x: Tensor, weight: Tensor, scale: Optional[Tensor], inverse: Optional[Tensor], saturated: Optional[Tensor],
    sums: Optional[Tensor], kernels: str, emulate: bool, stretch: int,
) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


@torch.library.custom_op(
    "loka::checked_backward", mutates_args=("x_amax", "dy_amax", "dy_saturated", "dgrad_sums", "wgrad_sums")
)
def _backward(
    dy: Tensor, x: Tensor, weight: Tensor, x_scale: Optional[Tensor], x_inverse: Optional[Tensor],
    dy_scale: Optional[Tensor], dy_inverse: Optional[Tensor], x_amax: Optional[Tensor], dy_amax: Optional[Tensor],
    dy_saturated: Optional[Tensor], dgrad_sums: Optional[Tensor], wgrad_sums: Optional[Tensor],
    kernels: str, emulate: bool, stretch: int, need_x: bool, need_weight: bool,
) -> Tuple[Tensor, Tensor]:
    """(dx, dw), empty where none is needed."""
    none = x.new_empty(0)
    if x.shape[0] == 0:
        return x.new_empty(x.shape) if need_x else none, torch.zeros_like(weight) if need_weight else weight.new_empty(0)
    three, options = _three(kernels), Options(emulate, False, stretch)
    x_known, dy_known = Scale.known(x_scale, x_inverse, x_amax, None), Scale.known(dy_scale, dy_inverse, dy_amax, dy_saturated)
    with torch.autocast(x.device.type, enabled=False):
        parts = saved(x, weight, three, options, need_x, need_weight, x_known)
        needs = (need_x, need_weight, False)
        made = backward(dy, parts, three, options, needs, weight.dtype, x_amax, dy_known, dgrad_sums, wgrad_sums)
    dx, dw = made.x, made.weight
    return none if dx is None else dx.contiguous(), weight.new_empty(0) if dw is None else dw.contiguous()


@_backward.register_fake
def _(
    dy: Tensor, x: Tensor, weight: Tensor, x_scale: Optional[Tensor], x_inverse: Optional[Tensor],
    dy_scale: Optional[Tensor], dy_inverse: Optional[Tensor], x_amax: Optional[Tensor], dy_amax: Optional[Tensor],
    dy_saturated: Optional[Tensor], dgrad_sums: Optional[Tensor], wgrad_sums: Optional[Tensor],
    kernels: str, emulate: bool, stretch: int, need_x: bool, need_weight: bool,
) -> Tuple[Tensor, Tensor]:
    dx = dy.new_empty(x.shape) if need_x else x.new_empty(0)
    return dx, weight.new_empty(weight.shape) if need_weight else weight.new_empty(0)


def _three(kernels: str) -> Kernels:
    """An op takes no list of strings."""
    fprop, dgrad, wgrad = kernels.split()
    return fprop, dgrad, wgrad


__all__ = ["checked"]
