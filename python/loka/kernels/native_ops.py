"""LoKA's own kernels as PyTorch ops: takes BF16 tensors and FP8 codes, gives them cast and multiplied.

On a GPU by libloka (`native`); on a CPU the same numerics in plain PyTorch, slowly and without the shorter accumulation
of FP8 tensor cores. Ops of their own, so that torch.compile leaves them whole. No gradients: `fused` has these.

A code stands for code * scale. Scales are FP32: [1] of a tensor, [rows, 1] of rows. `saturated`, Int64 [1], counts on.
"""

from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

from . import native
from ..catalogue import FORMAT_MAX, Cast
from .scales import fp8_dtype, quantize, spaced, to_fp8

BLOCK = 256
"""Columns that share BlockNorm's mean square."""

EPS = 2.0**-23
"""FP32's epsilon, in the norm."""

E4M3 = torch.float8_e4m3fn

_LIBRARY = torch.library.Library("loka", "FRAGMENT")


def _op(mutates: Tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the op `loka::<name>` of a function. Not by `torch.library.custom_op`, whose wrappers take longer than a
    launch (20 to 35 us a call against 3): so nothing checks that outputs are no inputs, and a gradient that is asked of
    these ops is missing with PyTorch's warning."""

    def made(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        schema = torch.library.infer_schema(function, mutates_args=mutates)
        _LIBRARY.define(name + schema, tags=[torch.Tag.pt2_compliant_tag])
        # On a CPU it is made of operations that have gradients: these must not pass for the op's.
        _LIBRARY.impl(name, torch.no_grad()(function), "CPU")
        # Everywhere else, until libloka has registered its own for GPUs (`native.registered`), with the first call.
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        return getattr(torch.ops.loka, name).default

    return made


def _fake(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Says what the op of that name gives, for tracing."""
    return torch.library.register_fake(f"loka::{name}", lib=_LIBRARY)


@_op()
def fp8_cast(
    x: Tensor, granularity: str, format: str, power_of_two: bool, straight: bool, turned: bool
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """(codes [rows, cols], their scale, codes turned [cols, rows], their scale) of BF16 x; empty where not asked for. Codes lie in
    `spaced` rows.
    `granularity`: "row" or "tensor"; turned, a row is a column of x."""
    if x.dtype != torch.bfloat16 or x.dim() != 2:
        _refuse("BF16 of two dimensions", x)
    out = _cast_outputs(x, granularity, format, straight, turned)
    if native.runs(x):
        if x.numel():
            flags = native.POWER_OF_TWO * power_of_two + native.AS_E5M2 * (format == "e5m2")
            _cast_native(native.ready(x), granularity == "tensor", flags, straight, turned, out)
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
    (rows, cols), by_tensor, dtype = x.shape, granularity == "tensor", fp8_dtype(format)
    if straight:
        codes = spaced(rows, cols, dtype, x.device)
        scale = x.new_empty(1 if by_tensor else (rows, 1), dtype=torch.float32)
    else:
        codes, scale = x.new_empty((0, 0), dtype=dtype), x.new_empty(0, dtype=torch.float32)
    if turned:
        codes_t = spaced(cols, rows, dtype, x.device)
        scale_t = x.new_empty(1 if by_tensor else (cols, 1), dtype=torch.float32)
    else:
        codes_t, scale_t = x.new_empty((0, 0), dtype=dtype), x.new_empty(0, dtype=torch.float32)
    return codes, scale, codes_t, scale_t


def _cast_native(x: Tensor, by_tensor: bool, flags: int, straight: bool, turned: bool, out: Tuple[Tensor, ...]) -> None:
    codes, scale, codes_t, scale_t = out
    if by_tensor:
        native.cast(
            "tensorwise", x, codes if straight else None, scale if straight else scale_t, codes_t if turned else None,
            None, flags,
        )
        if straight and turned:
            scale_t.copy_(scale)
        return
    if straight:
        native.cast("rowwise", x, codes, scale, None, None, flags)
    if turned:
        native.cast("columnwise", x, None, None, codes_t, scale_t, flags)


@_fake("fp8_cast")
def _(
    x: Tensor, granularity: str, format: str, power_of_two: bool, straight: bool, turned: bool
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    return _cast_outputs(x, granularity, format, straight, turned)


@_op(("saturated",))
def static_cast(x: Tensor, scale: Tensor, saturated: Tensor) -> Tensor:
    """E4M3 codes of BF16 x by a scale known beforehand, [1], a power of two; counts what is beyond 448 * scale."""
    _check(scale, torch.float32, 1)
    _check(saturated, torch.int64, 1)
    if x.dtype != torch.bfloat16:
        _refuse("BF16 x", x)
    if not native.runs(x):
        return _static_codes(x, scale, saturated)
    x = x if x.is_contiguous() else x.contiguous()
    codes, count = torch.empty_like(x, dtype=E4M3), x.numel()
    if count:
        native.call("loka_cast_static", x, x, scale, codes, saturated, count)
    return codes


@_fake("static_cast")
def _(x: Tensor, scale: Tensor, saturated: Tensor) -> Tensor:
    return x.new_empty(x.shape, dtype=E4M3)


def _static_codes(x: Tensor, scale: Tensor, saturated: Tensor) -> Tensor:
    # False for NaN, which has a code of its own.
    saturated += ((x.float() / scale).abs() > FORMAT_MAX["e4m3"]).sum()
    return to_fp8(x, scale, "e4m3")


@_op()
def fp8_gemm(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, fast: bool, tiling: int = -1) -> Tensor:
    """BF16 y [m, n] = x [m, k] times w [n, k] turned: codes with their scales, x in E4M3 or E5M2, w in E4M3. `fast`: the
    tensor cores' own accumulation, else promoted to FP32 every 128 of k. `tiling`: which kernel, from 0 in the order of
    their expected time; -1: the first. n and k are multiples of 16."""
    m, n, k = _check_gemm(x, x_scale, w, w_scale)
    is_e5m2 = x.dtype is torch.float8_e5m2
    if not is_e5m2 and x.dtype is not E4M3:
        _refuse("codes of x", x)
    y = x.new_empty((m, n), dtype=torch.bfloat16)
    if not native.runs(x):
        return y.copy_(_product(x, x_scale, w, w_scale))
    if m:
        flags = native.FAST * fast + native.X_E5M2 * is_e5m2
        flags += native.X_ROW_SCALES * (x_scale.dim() == 2) + native.W_ROW_SCALES * (w_scale.dim() == 2)
        x, w = native.with_rows(x), native.with_rows(w)
        pitches = native.pitch(x), native.pitch(w)
        native.call("loka_fp8_gemm", x, x, x_scale, w, w_scale, y, m, n, k, *pitches, flags, tiling)
    return y


@_fake("fp8_gemm")
def _(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, fast: bool, tiling: int = -1) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[0], dtype=torch.bfloat16)


def _product(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor) -> Tensor:
    """In FP32, scales behind the sums as on the tensor cores."""
    right = w_scale if w_scale.ndim == 1 else w_scale.t()
    return (x.float() @ w.float().t()) * x_scale * right


def _check_gemm(
    x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, *rest: Optional[Tensor]
) -> Tuple[int, int, int]:
    """m, n and k. RuntimeError where an address would be read as what it is not."""
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != w.shape[1] or w.dtype is not E4M3:
        _refuse(f"x {list(x.shape)} times w {list(w.shape)} turned, w E4M3", w)
    (m, k), n = x.shape, w.shape[0]
    if n % 16 or k % 16:
        _refuse("n and k of multiples of 16 of w [n, k]", w)
    _check_scale(x_scale, m)
    _check_scale(w_scale, n)
    device = x.device
    for other in (x_scale, w, w_scale, *rest):
        if other is not None and other.device != device:
            raise RuntimeError(f"x is on {device}, not all of the others are")
    return m, n, k


def _check_scale(scale: Tensor, rows: int) -> None:
    """[1] of the tensor, or [rows, 1]."""
    if scale.dim() == 2:
        fits = scale.numel() == rows and scale.shape[1] == 1
    else:
        fits = scale.dim() == 1 and scale.numel() == 1
    if not fits or scale.dtype is not torch.float32 or not scale.is_contiguous():
        _refuse(f"{torch.float32} of [1] or [{rows}, 1], contiguous", scale)


def _check(x: Optional[Tensor], dtype: torch.dtype, size: int) -> None:
    """None, or [size] of that type."""
    if x is not None and (x.dtype is not dtype or x.dim() != 1 or x.numel() != size or not x.is_contiguous()):
        _refuse(f"{dtype} of [{size}], contiguous", x)


def _refuse(wanted: str, found: Tensor) -> None:
    raise RuntimeError(f"expected {wanted}, not {found.dtype} of {list(found.shape)}")


@_op(("saturated",))
def static_gemm(
    x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, bias: Optional[Tensor], saturated: Tensor
) -> Tensor:
    """BF16 y [m, n] = x [m, k] times w [n, k] turned, plus bias [n]: x is BF16 and cast on its way in as `static_cast`
    does, w is codes. Fast accumulation; n and k are multiples of 16."""
    m, n, k = _check_gemm(x, x_scale, w, w_scale, bias, saturated)
    _check_static(x, x_scale, w, bias, saturated)
    y = x.new_empty((m, n))
    if not native.runs(x):
        return y.copy_(_static_product(x, x_scale, w, w_scale, bias, saturated))
    if m:
        x, w, flags = native.with_rows(x), native.with_rows(w), native.W_ROW_SCALES * (w_scale.dim() == 2)
        sizes = m, n, k, native.pitch(x), native.pitch(w)
        native.call("loka_fp8_static_gemm", x, x, x_scale, w, w_scale, bias, y, saturated, *sizes, flags, -1)
    return y


@_fake("static_gemm")
def _(
    x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, bias: Optional[Tensor], saturated: Tensor
) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[0])


def _check_static(x: Tensor, x_scale: Tensor, w: Tensor, bias: Optional[Tensor], saturated: Tensor, *others: torch.dtype) -> None:
    if x.dtype is not torch.bfloat16 and x.dtype not in others:
        _refuse("BF16 x", x)
    _check(x_scale, torch.float32, 1)
    _check(bias, torch.bfloat16, w.shape[0])
    _check(saturated, torch.int64, 1)


def _static_product(
    x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, bias: Optional[Tensor], saturated: Tensor
) -> Tensor:
    codes = x if x.dtype == E4M3 else _static_codes(x, x_scale, saturated)
    sums = _product(codes, x_scale, w, w_scale)
    return sums if bias is None else sums + bias.float()


@_op(("saturated",))
def block_gemm(
    x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, bias: Optional[Tensor], saturated: Tensor,
    h_scale: Optional[Tensor], keep_z: bool,
) -> Tuple[Tensor, Tensor]:
    """(h, z) [m, n]: z is `static_gemm`'s in FP32, h = hard swish(BlockNorm(z)) in BF16 or, with `h_scale`, a power of
    two, in E4M3; z is stored in BF16, or empty without `keep_z`. x may be E4M3 codes already. n is a multiple of 256."""
    m, n, k = _check_gemm(x, x_scale, w, w_scale, bias, saturated, h_scale)
    _check_static(x, x_scale, w, bias, saturated, E4M3)
    _check(h_scale, torch.float32, 1)
    if n % BLOCK:
        _refuse(f"n of a multiple of {BLOCK} of w [n, k]", w)
    h, z = _block_outputs(x, w, h_scale, keep_z)
    if not native.runs(x):
        sums = _static_product(x, x_scale, w, w_scale, bias, saturated)
        out = block_output(sums)
        h.copy_(out if h_scale is None else to_fp8(out, h_scale, "e4m3"))
        return h, z.copy_(sums) if keep_z else z
    if m:
        x, w = native.with_rows(x), native.with_rows(w)
        flags = native.W_ROW_SCALES * (w_scale.dim() == 2) + native.X_E4M3 * (x.dtype is E4M3)
        to_bf16, to_codes = (h, None) if h_scale is None else (None, h)
        outputs = (z if keep_z else None, to_bf16, to_codes, h_scale, saturated)
        sizes = m, n, k, native.pitch(x), native.pitch(w)
        native.call("loka_fp8_block", x, x, x_scale, w, w_scale, bias, *outputs, *sizes, flags)
    return h, z


def _block_outputs(x: Tensor, w: Tensor, h_scale: Optional[Tensor], keep_z: bool) -> Tuple[Tensor, Tensor]:
    m, n = x.shape[0], w.shape[0]
    h = x.new_empty((m, n), dtype=torch.bfloat16 if h_scale is None else E4M3)
    return h, x.new_empty((m, n) if keep_z else (0, 0), dtype=torch.bfloat16)


@_fake("block_gemm")
def _(
    x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, bias: Optional[Tensor], saturated: Tensor,
    h_scale: Optional[Tensor], keep_z: bool,
) -> Tuple[Tensor, Tensor]:
    return _block_outputs(x, w, h_scale, keep_z)


def _normalised(z: Tensor) -> Tuple[Tensor, Tensor]:
    """(y, r) in FP32 by blocks [m, blocks, 256]: y = z r."""
    z = z.float().reshape(z.shape[0], z.shape[1] // BLOCK, BLOCK)
    r = torch.rsqrt(z.square().mean(2, keepdim=True) + EPS)
    return z * r, r


def block_output(z: Tensor) -> Tensor:
    """hard swish(BlockNorm(z)) in FP32."""
    return torch.nn.functional.hardswish(_normalised(z)[0]).reshape(z.shape)


def _check_blocks(z: Tensor) -> None:
    if z.dtype != torch.bfloat16 or z.dim() != 2 or z.shape[1] % BLOCK:
        _refuse(f"BF16 of rows of a multiple of {BLOCK}", z)


@_op()
def block_tail(z: Tensor) -> Tensor:
    """BF16 h = hard swish(BlockNorm(z)) of BF16 z [m, n], n a multiple of 256."""
    _check_blocks(z)
    h = torch.empty_like(z, memory_format=torch.contiguous_format)
    if not native.runs(z):
        return h.copy_(block_output(z))
    if z.numel():
        native.call("loka_block_norm_hard_swish", z, native.ready(z), h, None, None, *z.shape)
    return h


@_fake("block_tail")
def _(z: Tensor) -> Tensor:
    return z.new_empty(z.shape)


@_op()
def block_backward(dh: Tensor, z: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """(dz, its E4M3 codes, their scales [m, 1]) from BF16 dh and z [m, n]: the gradient of z, h = hard
    swish(BlockNorm(z)), in BF16, cast by rows in the same pass. n is at most 16,384."""
    _check_blocks(z)
    if dh.shape != z.shape or dh.dtype != z.dtype or dh.device != z.device:
        _refuse(f"dh like z, {z.dtype} of {list(z.shape)}", dh)
    dz, codes, scales = _backward_outputs(z)
    if not native.runs(z):
        dz.copy_(block_gradient(dh, z))
        if z.numel():
            bits, found = quantize(dz, Cast("e4m3", "row", False))
            codes.copy_(bits)
            scales.copy_(found)
    elif z.numel():
        dh, z = native.ready(dh), native.ready(z)
        native.call("loka_block_backward", z, dh, z, dz, codes, scales, *z.shape)
    return dz, codes, scales


def _backward_outputs(z: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    scales, contiguous = z.new_empty((z.shape[0], 1), dtype=torch.float32), torch.contiguous_format
    dz = torch.empty_like(z, memory_format=contiguous)
    return dz, torch.empty_like(z, dtype=E4M3, memory_format=contiguous), scales


@_fake("block_backward")
def _(dh: Tensor, z: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    return _backward_outputs(z)


def block_gradient(dh: Tensor, z: Tensor) -> Tensor:
    """dz of h = hard swish(BlockNorm(z)), in FP32."""
    y, r = _normalised(z)
    slope = torch.where(y <= -3, 0.0, torch.where(y >= 3, 1.0, y / 3 + 0.5))
    g = dh.float().reshape(y.shape) * slope
    return (r * (g - y * (g * y).mean(2, keepdim=True))).reshape(z.shape)


__all__ = [
    "BLOCK", "EPS", "block_backward", "block_gemm", "block_gradient", "block_output", "block_tail", "fp8_cast", "fp8_gemm",
    "static_cast", "static_gemm",
]
