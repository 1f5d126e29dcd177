"""Takes a kernel's id and a GEMM; gives its numerics: what it does to both operands and to the output.

The same catalogue as `core/src/model/kernel.rs`, which probes measure and plans name. Plain tuples of strings, so that
torch.compile folds every decision made on them into the graph.
"""

from typing import Dict, NamedTuple, Tuple

GEMMS = ("fprop", "dgrad", "wgrad")
"""The three GEMMs of a linear, as plans name them."""

FORMAT_MAX = {"e4m3": 448.0, "e5m2": 57344.0}
"""Largest finite value of each FP8 format."""

SCALE_FLOOR = 1e-12
"""Scales are kept from zero, so that a row of zeros does not divide by it."""

BLOCK = 128
"""Length of a block of the blockwise recipes."""


class Cast(NamedTuple):
    """What happens to one operand before the product, read as [rows, reduced]."""

    format: str
    """"tf32", "bf16", "e4m3" or "e5m2"."""
    granularity: str
    """What shares a scale: "none" (no scale), "tensor", "row", "block_1x128", "block_128x128", or "static": one for the
    tensor, known before it is: a plan's, or one that follows the tensors of earlier steps."""
    power_of_two: bool
    """The scale is rounded up to a power of two."""


class Numerics(NamedTuple):
    """One GEMM of one kernel. a and b are fprop: x, W; dgrad: dy, W turned; wgrad: dy turned, x turned."""

    a: Cast
    b: Cast
    fast: bool
    """The tensor core's own accumulation of about 14 bits from beginning to end; else added to FP32 every 128."""
    output: str
    """"bf16", or "f32" of "tf32" and of the block, whose sums go straight into its norm."""


# Kernel: (scheme, the directions that accumulate fast). "+2" ends a scheme with power-of-two scales.
_KERNELS: Dict[str, Tuple[str, str]] = {
    "cublaslt/tf32": ("tf32", "never"),
    "cublaslt/bf16": ("bf16", "never"),
    "cublaslt/fp8-tensorwise": ("tensorwise", "never"),
    "cublaslt/fp8-tensorwise+fast": ("tensorwise", "always"),
    "cublaslt/fp8-rowwise": ("rowwise", "never"),
    "cublaslt/fp8-rowwise+fast": ("rowwise", "always"),
    "cublaslt/fp8-blockwise": ("blockwise", "never"),
    "cublaslt/fp8-delayed": ("delayed", "never"),
    "cublaslt/fp8-delayed+fast": ("delayed", "always"),
    "loka/fp8-tensorwise": ("tensorwise", "never"),
    "loka/fp8-tensorwise+fast": ("tensorwise", "always"),
    "loka/fp8-rowwise": ("rowwise", "never"),
    "loka/fp8-rowwise+fast": ("rowwise", "always"),
    "loka/fp8-static+fast": ("static", "always"),
    "loka/fp8-block+fast": ("static_block", "always"),
    "pytorch/bf16": ("bf16", "never"),
    "pytorch/fp8-tensorwise+fast": ("tensorwise", "always"),
    "pytorch/fp8-rowwise+fast": ("rowwise", "always"),
    "pytorch/fp8-blockwise": ("blockwise", "never"),
    "torchao/tensorwise": ("tensorwise", "fprop"),
    "torchao/rowwise": ("rowwise+2", "fprop"),
    "torchao/rowwise_with_gw_hp": ("rowwise_with_gw_hp+2", "fprop"),
    "deepgemm/blockwise": ("blockwise", "never"),
    "fbgemm/rowwise": ("rowwise", "always"),
    "te/current": ("tensorwise", "fprop"),
    "te/blockwise": ("blockwise+2", "never"),
}

KERNELS: Tuple[str, ...] = tuple(_KERNELS)
"""Every kernel id, in display order."""


def numerics(kernel: str, gemm: str) -> Numerics:
    """The numerics of `kernel` ("cublaslt/fp8-rowwise+fast") in `gemm` ("fprop", "dgrad" or "wgrad").

    Raises ValueError for an id that is not in the catalogue."""
    if kernel not in _KERNELS:
        raise ValueError(f"unknown kernel '{kernel}'")
    name, accumulation = _KERNELS[kernel]
    fast = accumulation == "always" or (accumulation == "fprop" and gemm == "fprop")
    scheme, power_of_two = name.removesuffix("+2"), name.endswith("+2")
    if scheme in ("tf32", "bf16"):
        cast = Cast(scheme, "none", False)
        return Numerics(cast, cast, False, "f32" if scheme == "tf32" else "bf16")
    if scheme == "tensorwise":
        # The gradient is a in both gradients' GEMMs: E5M2 for its range.
        gradient = "e4m3" if gemm == "fprop" else "e5m2"
        return Numerics(Cast(gradient, "tensor", False), Cast("e4m3", "tensor", False), fast, "bf16")
    if scheme == "blockwise":
        a = Cast("e4m3", "block_1x128", power_of_two)
        return Numerics(a, a if gemm == "wgrad" else Cast("e4m3", "block_128x128", power_of_two), fast, "bf16")
    if scheme == "delayed":
        known = Cast("e4m3", "static", True)
        return Numerics(known, known if gemm == "wgrad" else Cast("e4m3", "tensor", False), fast, "bf16")
    if scheme in ("static", "static_block"):
        a = Cast("e4m3", "static", True)
        return Numerics(a, Cast("e4m3", "row", False), fast, "bf16" if scheme == "static" else "f32")
    row = Cast("e4m3", "row", power_of_two)
    if scheme == "rowwise_with_gw_hp" and gemm == "wgrad":
        return Numerics(Cast("bf16", "none", False), Cast("bf16", "none", False), False, "bf16")
    if scheme == "rowwise_with_gw_hp" and gemm == "dgrad":
        return Numerics(row, Cast("e4m3", "tensor", power_of_two), fast, "bf16")
    return Numerics(row, row, fast, "bf16")


def multiple_of(kernel: str, gemm: str) -> int:
    """What the sizes along the reduced dimension and the output's columns must be a multiple of."""
    cast = numerics(kernel, gemm).a
    if cast.format not in FORMAT_MAX:
        return 1
    # Transformer Engine fills the last block up itself.
    return BLOCK if cast.granularity == "block_1x128" and not kernel.startswith("te/") else 16


__all__ = ["BLOCK", "Cast", "FORMAT_MAX", "KERNELS", "Numerics", "SCALE_FLOOR", "multiple_of", "numerics"]
