"""LoKA's own kernels as PyTorch ops: takes BF16 tensors and FP8 codes, gives them cast and multiplied.

On a GPU by libloka (`native`); on a CPU the same numerics in plain PyTorch, slowly and without the shorter accumulation
of FP8 tensor cores. Ops of their own, so that torch.compile leaves them whole. No gradients: `fused` has these.

A code stands for code * scale. Scales are FP32: [1] of a tensor, [rows, 1] of rows. `saturated`, Int64 [1], counts on.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor

from . import native
from .catalogue import FORMAT_MAX, Cast
from .scales import fp8_dtype, quantize, to_fp8

BLOCK = 256
"""Columns that share BlockNorm's mean square."""

EPS = 2.0**-23
"""FP32's epsilon, in the norm."""

E4M3 = torch.float8_e4m3fn


@torch.library.custom_op("loka::fp8_cast", mutates_args=())
def fp8_cast(
    x: Tensor, granularity: str, format: str, power_of_two: bool, straight: bool, turned: bool
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """(codes [rows, cols], their scale, codes turned [cols, rows], their scale) of BF16 x; empty where not asked for.
    `granularity`: "row" or "tensor"; turned, a row is a column of x."""
    if x.dtype != torch.bfloat16 or x.dim() != 2:
        _refuse("BF16 of two dimensions", x)
    out = _cast_outputs(x, granularity, format, straight, turned)
    if x.is_cuda:
        if x.numel():
            _cast_native(native.ready(x), granularity, format, power_of_two, out)
        return out
    cast = Cast(format, granularity, power_of_two)
    for wanted, operand, codes, scale in ((straight, x, *out[:2]), (turned, x.t(), *out[2:])):
        if wanted and x.numel():
            bits, found = quantize(operand, cast)
            codes.copy_(bits)
            scale.copy_(found.reshape(scale.shape))
    return out


def _cast_outputs(
    x: Tensor, granularity: str, format: str, straight: bool, turned: bool
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    made = []
    for wanted, (rows, cols) in ((straight, x.shape), (turned, x.shape[::-1])):
        made.append(x.new_empty((rows, cols) if wanted else (0, 0), dtype=fp8_dtype(format)))
        shape = ((1,) if granularity == "tensor" else (rows, 1)) if wanted else (0,)
        made.append(x.new_empty(shape, dtype=torch.float32))
    return tuple(made)


def _cast_native(x: Tensor, granularity: str, format: str, power_of_two: bool, out) -> None:
    codes, scale, codes_t, scale_t = (part if part.numel() else None for part in out)
    flags = native.POWER_OF_TWO * power_of_two + native.AS_E5M2 * (format == "e5m2")
    if granularity == "tensor":
        native.cast("tensorwise", x, codes, scale if scale is not None else scale_t, codes_t, None, flags)
        if scale is not None and scale_t is not None:
            scale_t.copy_(scale)
        return
    if codes is not None:
        native.cast("rowwise", x, codes, scale, None, None, flags)
    if codes_t is not None:
        native.cast("columnwise", x, None, None, codes_t, scale_t, flags)


@fp8_cast.register_fake
def _(x, granularity, format, power_of_two, straight, turned):
    return _cast_outputs(x, granularity, format, straight, turned)


@torch.library.custom_op("loka::static_cast", mutates_args=("saturated",))
def static_cast(x: Tensor, scale: Tensor, saturated: Tensor) -> Tensor:
    """E4M3 codes of BF16 x by a scale known beforehand, [1], a power of two; counts what is beyond 448 * scale."""
    _check(scale, torch.float32, (1,))
    _check(saturated, torch.int64, (1,))
    if x.dtype != torch.bfloat16:
        _refuse("BF16 x", x)
    if not x.is_cuda:
        return _static_codes(x, scale, saturated)
    x = x.contiguous()
    codes = torch.empty(x.shape, dtype=E4M3, device=x.device)
    if x.numel():
        native.call("loka_cast_static", x, x, scale, codes, saturated, x.numel())
    return codes


@static_cast.register_fake
def _(x, scale, saturated):
    return x.new_empty(x.shape, dtype=E4M3)


def _static_codes(x: Tensor, scale: Tensor, saturated: Tensor) -> Tensor:
    # False for NaN, which has a code of its own.
    saturated += ((x.float() / scale).abs() > FORMAT_MAX["e4m3"]).sum()
    return to_fp8(x, scale, "e4m3")


@torch.library.custom_op("loka::fp8_gemm", mutates_args=())
def fp8_gemm(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, fast: bool, tiling: int = -1) -> Tensor:
    """BF16 y [m, n] = x [m, k] times w [n, k] turned: codes with their scales, x in E4M3 or E5M2, w in E4M3. `fast`: the
    tensor cores' own accumulation, else promoted to FP32 every 128 of k. `tiling`: which kernel, from 0 in the order of
    their expected time; -1: the first. n and k are multiples of 16."""
    _check_gemm(x, x_scale, w, w_scale)
    if x.dtype not in (E4M3, torch.float8_e5m2):
        _refuse("codes of x", x)
    y = x.new_empty(x.shape[0], w.shape[0], dtype=torch.bfloat16)
    if not x.is_cuda:
        return y.copy_(_product(x, x_scale, w, w_scale))
    if x.shape[0]:
        flags = native.FAST * fast + native.X_E5M2 * (x.dtype == torch.float8_e5m2)
        flags += native.X_ROW_SCALES * (x_scale.ndim == 2) + native.W_ROW_SCALES * (w_scale.ndim == 2)
        x, w, sizes = native.ready(x), native.ready(w), _sizes(x, w)
        native.call("loka_fp8_gemm", x, x, x_scale, w, w_scale, y, *sizes, flags, tiling)
    return y


@fp8_gemm.register_fake
def _(x, x_scale, w, w_scale, fast, tiling=-1):
    return x.new_empty(x.shape[0], w.shape[0], dtype=torch.bfloat16)


def _product(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor) -> Tensor:
    """In FP32, scales behind the sums as on the tensor cores."""
    right = w_scale if w_scale.ndim == 1 else w_scale.t()
    return (x.float() @ w.float().t()) * x_scale * right


def _sizes(x: Tensor, w: Tensor) -> Tuple[int, int, int]:
    return x.shape[0], w.shape[0], x.shape[1]


def _check_gemm(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, *rest: Optional[Tensor]) -> None:
    """RuntimeError where an address would be read as what it is not."""
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != w.shape[1] or w.dtype != E4M3:
        _refuse(f"x {list(x.shape)} times w {list(w.shape)} turned, w E4M3", w)
    if w.shape[0] % 16 or w.shape[1] % 16:
        _refuse("n and k of multiples of 16 of w [n, k]", w)
    for scale, rows in ((x_scale, x.shape[0]), (w_scale, w.shape[0])):
        _check(scale, torch.float32, (1,), (rows, 1))
    if any(other is not None and other.device != x.device for other in (x_scale, w, w_scale, *rest)):
        raise RuntimeError(f"x is on {x.device}, not all of the others are")


def _check(x: Optional[Tensor], dtype: torch.dtype, *shapes: Tuple[int, ...]) -> None:
    if x is not None and (x.dtype != dtype or tuple(x.shape) not in shapes or not x.is_contiguous()):
        _refuse(f"{dtype} of {' or '.join(str(list(shape)) for shape in shapes)}, contiguous", x)


def _refuse(wanted: str, found: Tensor) -> None:
    raise RuntimeError(f"expected {wanted}, not {found.dtype} of {list(found.shape)}")


@torch.library.custom_op("loka::static_gemm", mutates_args=("saturated",))
def static_gemm(
    x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, bias: Optional[Tensor], saturated: Tensor
) -> Tensor:
    """BF16 y [m, n] = x [m, k] times w [n, k] turned, plus bias [n]: x is BF16 and cast on its way in as `static_cast`
    does, w is codes. Fast accumulation; n and k are multiples of 16."""
    _check_gemm(x, x_scale, w, w_scale, bias, saturated)
    _check_static(x, x_scale, w, bias, saturated)
    y = x.new_empty(x.shape[0], w.shape[0])
    if not x.is_cuda:
        return y.copy_(_static_product(x, x_scale, w, w_scale, bias, saturated))
    if x.shape[0]:
        x, w, flags = native.ready(x), native.ready(w), native.W_ROW_SCALES * (w_scale.ndim == 2)
        sizes = _sizes(x, w)
        native.call("loka_fp8_static_gemm", x, x, x_scale, w, w_scale, bias, y, saturated, *sizes, flags, -1)
    return y


@static_gemm.register_fake
def _(x, x_scale, w, w_scale, bias, saturated):
    return x.new_empty(x.shape[0], w.shape[0])


def _check_static(x: Tensor, x_scale: Tensor, w: Tensor, bias, saturated: Tensor, *others: torch.dtype) -> None:
    if x.dtype not in (torch.bfloat16, *others):
        _refuse("BF16 x", x)
    _check(x_scale, torch.float32, (1,))
    _check(bias, torch.bfloat16, (w.shape[0],))
    _check(saturated, torch.int64, (1,))


def _static_product(x, x_scale, w, w_scale, bias, saturated) -> Tensor:
    codes = x if x.dtype == E4M3 else _static_codes(x, x_scale, saturated)
    sums = _product(codes, x_scale, w, w_scale)
    return sums if bias is None else sums + bias.float()


@torch.library.custom_op("loka::block_gemm", mutates_args=("saturated",))
def block_gemm(
    x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, bias: Optional[Tensor], saturated: Tensor,
    h_scale: Optional[Tensor], keep_z: bool,
) -> Tuple[Tensor, Tensor]:
    """(h, z) [m, n]: z is `static_gemm`'s in FP32, h = hard swish(BlockNorm(z)) in BF16 or, with `h_scale`, a power of
    two, in E4M3; z is stored in BF16, or empty without `keep_z`. x may be E4M3 codes already. n is a multiple of 256."""
    _check_gemm(x, x_scale, w, w_scale, bias, saturated, h_scale)
    _check_static(x, x_scale, w, bias, saturated, E4M3)
    _check(h_scale, torch.float32, (1,))
    if w.shape[0] % BLOCK:
        _refuse(f"n of a multiple of {BLOCK} of w [n, k]", w)
    h, z = _block_outputs(x, w, h_scale, keep_z)
    if not x.is_cuda:
        sums = _static_product(x, x_scale, w, w_scale, bias, saturated)
        out = _tail(sums)
        h.copy_(out if h_scale is None else to_fp8(out, h_scale, "e4m3"))
        return h, z.copy_(sums) if keep_z else z
    if x.shape[0]:
        x, w = native.ready(x), native.ready(w)
        flags = native.W_ROW_SCALES * (w_scale.ndim == 2) + native.X_E4M3 * (x.dtype == E4M3)
        to_bf16, to_codes = (h, None) if h_scale is None else (None, h)
        outputs = (z if keep_z else None, to_bf16, to_codes, h_scale, saturated)
        native.call("loka_fp8_block", x, x, x_scale, w, w_scale, bias, *outputs, *_sizes(x, w), flags)
    return h, z


def _block_outputs(x: Tensor, w: Tensor, h_scale: Optional[Tensor], keep_z: bool) -> Tuple[Tensor, Tensor]:
    m, n = x.shape[0], w.shape[0]
    h = x.new_empty(m, n, dtype=torch.bfloat16 if h_scale is None else E4M3)
    return h, x.new_empty((m, n) if keep_z else (0, 0), dtype=torch.bfloat16)


@block_gemm.register_fake
def _(x, x_scale, w, w_scale, bias, saturated, h_scale, keep_z):
    return _block_outputs(x, w, h_scale, keep_z)


def _normalised(z: Tensor) -> Tuple[Tensor, Tensor]:
    """(y, r) in FP32 by blocks [m, blocks, 256]: y = z r."""
    z = z.float().reshape(z.shape[0], z.shape[1] // BLOCK, BLOCK)
    r = torch.rsqrt(z.square().mean(2, keepdim=True) + EPS)
    return z * r, r


def _tail(z: Tensor) -> Tensor:
    return torch.nn.functional.hardswish(_normalised(z)[0]).reshape(z.shape)


def _check_blocks(z: Tensor) -> None:
    if z.dtype != torch.bfloat16 or z.dim() != 2 or z.shape[1] % BLOCK:
        _refuse(f"BF16 of rows of a multiple of {BLOCK}", z)


@torch.library.custom_op("loka::block_tail", mutates_args=())
def block_tail(z: Tensor) -> Tensor:
    """BF16 h = hard swish(BlockNorm(z)) of BF16 z [m, n], n a multiple of 256."""
    _check_blocks(z)
    h = torch.empty(z.shape, dtype=z.dtype, device=z.device)
    if not z.is_cuda:
        return h.copy_(_tail(z))
    if z.numel():
        native.call("loka_block_norm_hard_swish", z, native.ready(z), h, None, None, *z.shape)
    return h


@block_tail.register_fake
def _(z):
    return z.new_empty(z.shape)


@torch.library.custom_op("loka::block_backward", mutates_args=())
def block_backward(dh: Tensor, z: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """(dz, its E4M3 codes, their scales [m, 1]) from BF16 dh and z [m, n]: the gradient of z, h = hard
    swish(BlockNorm(z)), in BF16, cast by rows in the same pass. n is at most 16,384."""
    _check_blocks(z)
    if dh.shape != z.shape or dh.dtype != z.dtype or dh.device != z.device:
        _refuse(f"dh like z, {z.dtype} of {list(z.shape)}", dh)
    dz, codes, scales = _backward_outputs(z)
    if not z.is_cuda:
        dz.copy_(_gradient(dh, z))
        if z.numel():
            bits, found = quantize(dz, Cast("e4m3", "row", False))
            codes.copy_(bits)
            scales.copy_(found)
    elif z.numel():
        dh, z = native.ready(dh), native.ready(z)
        native.call("loka_block_backward", z, dh, z, dz, codes, scales, None, None, *z.shape)
    return dz, codes, scales


def _backward_outputs(z: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    scales = z.new_empty(z.shape[0], 1, dtype=torch.float32)
    return z.new_empty(z.shape), z.new_empty(z.shape, dtype=E4M3), scales


@block_backward.register_fake
def _(dh, z):
    return _backward_outputs(z)


def _gradient(dh: Tensor, z: Tensor) -> Tensor:
    y, r = _normalised(z)
    slope = torch.where(y <= -3, 0.0, torch.where(y >= 3, 1.0, y / 3 + 0.5))
    g = dh.float().reshape(y.shape) * slope
    return (r * (g - y * (g * y).mean(2, keepdim=True))).reshape(z.shape)


__all__ = [
    "BLOCK", "block_backward", "block_gemm", "block_tail", "fp8_cast", "fp8_gemm", "static_cast", "static_gemm",
]
