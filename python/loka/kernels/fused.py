"""Takes BF16 x, a weight and a scale of x known beforehand; gives a linear, or a linear with BlockNorm and hard swish
behind it, by LoKA's own kernels and with gradients.

    y = loka.kernels.static_linear(x, weight, scale)      fprop: x cast on its way in; dgrad: FP8 by rows; wgrad: BF16
    h = loka.kernels.block(x, weight, scale)              the same, hard swish(BlockNorm(y)) in the same kernel

The scale, FP32 [1], is a power of two: x beyond 448 * scale saturates, and is counted. Runs on compute capability 9.0
by libloka, and on a CPU by the same numerics in plain PyTorch; works under torch.compile and in CUDA graphs.
"""

from typing import Any, Optional, Tuple, overload

import torch
from torch import Tensor

from .native_ops import BLOCK, block_backward, block_gemm, fp8_cast, fp8_gemm, static_gemm

_ROW = ("row", "e4m3", False)


def static_linear(
    x: Tensor, weight: Tensor, scale: Tensor, saturated: Optional[Tensor] = None, bias: Optional[Tensor] = None
) -> Tensor:
    """BF16 [..., n] = x [..., k] times weight [n, k] turned, plus bias [n]; k and n multiples of 16. Saturated elements
    of x are added to `saturated`, Int64 [1]. Other types than BF16 are rounded to it first."""
    run: Any = static_linear_op if torch.compiler.is_compiling() else _StaticLinear.apply
    y, count = run(_rows(x), _bf16(weight), scale, _bf16(bias))
    if saturated is not None:
        saturated.add_(count)
    return y.view(*x.shape[:-1], weight.shape[0])


def block(
    x: Tensor, weight: Tensor, scale: Tensor, saturated: Optional[Tensor] = None, bias: Optional[Tensor] = None
) -> Tensor:
    """BF16 [..., n] = hard swish(BlockNorm(x times weight turned, plus bias)), blocks of 256 columns; n a multiple of
    256, k of 16. |h| is at most 16: with 2^-4 the next one's scale saturates nothing. Else as `static_linear`."""
    given = (x, weight) if bias is None else (x, weight, bias)
    keep_z = torch.is_grad_enabled() and any(each.requires_grad for each in given)
    run: Any = block_op if torch.compiler.is_compiling() else _Block.apply
    h, _, count = run(_rows(x), _bf16(weight), scale, _bf16(bias), keep_z)
    if saturated is not None:
        saturated.add_(count)
    return h.view(*x.shape[:-1], weight.shape[0])


def _rows(x: Tensor) -> Tensor:
    return _bf16(x.reshape(-1, x.shape[-1]))


@overload
def _bf16(x: Tensor) -> Tensor: ...


@overload
def _bf16(x: Optional[Tensor]) -> Optional[Tensor]: ...


def _bf16(x: Optional[Tensor]) -> Optional[Tensor]:
    return x if x is None or x.dtype == torch.bfloat16 else x.to(torch.bfloat16)


def _static_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """(y [m, n], how many elements of x saturated, Int64 [1]) of BF16 x [m, k] and weight [n, k]."""
    w, w_scale, _, _ = fp8_cast(weight, *_ROW, True, False)
    count = torch.zeros(1, dtype=torch.int64, device=x.device)
    return static_gemm(x, scale, w, w_scale, bias, count), count


static_linear_op = torch.library.custom_op("loka::static_linear", _static_linear, mutates_args=())


@static_linear_op.register_fake
def _(x: Tensor, weight: Tensor, scale: Tensor, bias: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], weight.shape[0]), x.new_empty(1, dtype=torch.int64)


def _block(
    x: Tensor, weight: Tensor, scale: Tensor, bias: Optional[Tensor], keep_z: bool
) -> Tuple[Tensor, Tensor, Tensor]:
    """(h [m, n], z [m, n] or empty, how many elements of x saturated). Without z there is no gradient."""
    w, w_scale, _, _ = fp8_cast(weight, *_ROW, True, False)
    count = torch.zeros(1, dtype=torch.int64, device=x.device)
    return (*block_gemm(x, scale, w, w_scale, bias, count, None, keep_z), count)


block_op = torch.library.custom_op("loka::block", _block, mutates_args=())


@block_op.register_fake
def _(
    x: Tensor, weight: Tensor, scale: Tensor, bias: Optional[Tensor], keep_z: bool
) -> Tuple[Tensor, Tensor, Tensor]:
    shape = (x.shape[0], weight.shape[0])
    return x.new_empty(shape), x.new_empty(shape if keep_z else (0, 0)), x.new_empty(1, dtype=torch.int64)


def _linear_setup(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    x, weight, _, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight)


def _linear_backward(ctx: Any, dy: Optional[Tensor], _count: Any) -> Tuple[Optional[Tensor], ...]:
    if dy is None:
        return None, None, None, None
    x, weight = ctx.saved_tensors
    codes = fp8_cast(dy, *_ROW, True, False)[:2] if ctx.needs_input_grad[0] else None
    return _gradients(ctx, x, weight, dy, codes)


def _gradients(ctx: Any, x: Tensor, weight: Tensor, dy: Tensor, codes: Any) -> Tuple[Optional[Tensor], ...]:
    """Of x, weight, scale and bias: dgrad by FP8 rows, `codes` those of dy with their scales; wgrad in BF16."""
    needs_x, needs_weight, _, needs_bias = ctx.needs_input_grad[:4]
    dx = dw = db = None
    if needs_x:
        turned = fp8_cast(weight, *_ROW, False, True)[2:]
        dx = fp8_gemm(*codes, *turned, True)
    if needs_weight:
        dw = torch.mm(dy.t(), x)
    if needs_bias:
        db = dy.sum(0)
    return dx, dw, None, db


def _block_setup(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    x, weight, _, _, keep_z = inputs
    ctx.set_materialize_grads(False)
    ctx.keep_z = keep_z
    ctx.save_for_backward(x, weight, output[1])


def _block_backward(
    ctx: Any, dh: Optional[Tensor], through_z: Optional[Tensor], _count: Any
) -> Tuple[Optional[Tensor], ...]:
    if not ctx.keep_z:
        raise RuntimeError("loka::block was called without keep_z: there is nothing to take gradients from")
    if dh is None and through_z is None:
        return None, None, None, None, None
    x, weight, z = ctx.saved_tensors
    if dh is not None:
        dz, *codes = block_backward(dh, z)
    if through_z is not None:
        # Nobody but a caller of the op itself reads z.
        dz = through_z if dh is None else dz + through_z
        codes = fp8_cast(dz, *_ROW, True, False)[:2]
    return (*_gradients(ctx, x, weight, dz, codes), None)


class _StaticLinear(torch.autograd.Function):
    """The op as eager code runs it: without the wrappers of a custom op, which take longer than the launches."""

    forward: Any = staticmethod(_static_linear)
    setup_context: Any = staticmethod(_linear_setup)
    backward: Any = staticmethod(_linear_backward)


class _Block(torch.autograd.Function):
    """Likewise."""

    forward: Any = staticmethod(_block)
    setup_context: Any = staticmethod(_block_setup)
    backward: Any = staticmethod(_block_backward)


static_linear_op.register_autograd(_linear_backward, setup_context=_linear_setup)
block_op.register_autograd(_block_backward, setup_context=_block_setup)

__all__ = ["BLOCK", "block", "static_linear"]
