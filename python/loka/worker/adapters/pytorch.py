"""PyTorch itself: torch.mm, and torch._scaled_mm / torch.nn.functional.scaled_mm with casts written in PyTorch.

The casts are the usual few lines that users compile; the GEMMs are cuBLASLt's or CUTLASS's, as PyTorch picks.
"""

from typing import Any, Optional, Tuple

from . import TORCH, TRANSPOSED, Adapter, Calls, Parts, at_least, not_multiple, operand_shapes

Scaled = Tuple[Any, Any]
"""FP8 and its scales."""

SCALE_FLOOR = 1e-12
BLOCK = 128


class PyTorch(Adapter):
    library = "pytorch"
    remedy = TORCH
    kernels = ("pytorch/bf16", "pytorch/fp8-tensorwise+fast", "pytorch/fp8-rowwise+fast", "pytorch/fp8-blockwise")

    def version(self) -> Optional[str]:
        return self.environment.torch_version

    def lacks(self, kernel: str) -> Optional[str]:
        if kernel == "pytorch/bf16":
            return None
        torch, capability = self.torch, self.environment.capability
        found = "{}.{}".format(*capability)
        if not hasattr(torch, "_scaled_mm"):
            return f"PyTorch {self.version()} has no _scaled_mm"
        if capability < (8, 9):
            return f"FP8 needs compute capability 8.9, this GPU has {found}"
        if kernel == "pytorch/fp8-rowwise+fast" and capability < (9, 0):
            return f"rowwise scales need compute capability 9.0, this GPU has {found}"
        if kernel == "pytorch/fp8-blockwise":
            if not hasattr(torch.nn.functional, "scaled_mm") or not at_least(self.version(), (2, 10)):
                return f"blockwise scales need PyTorch 2.10, this is {self.version()}"
            if capability[0] != 9:
                return f"PyTorch's blockwise scales need compute capability 9.0, this GPU has {found}"
        return None

    def refuses(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Optional[str]:
        if kernel == "pytorch/bf16":
            return None
        return not_multiple(gemm, m, k, n, BLOCK if kernel == "pytorch/fp8-blockwise" else 16)

    def run(self, kernel: str, gemm: str, a: Any, b: Any) -> Any:
        cast_a, cast_b, multiply = self._parts(kernel, gemm)
        return multiply(cast_a(a), cast_b(b))

    def calls(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Calls:
        cast_a, cast_b, multiply = self._parts(kernel, gemm)
        if kernel == "pytorch/bf16":
            # No cast: the three figures are one measurement.
            return Calls(full=multiply, note="torch.mm")
        shape_a, shape_b = operand_shapes(gemm, m, k, n)
        fast_a, fast_b = self.compile(cast_a, kernel, gemm, "a", shape_a), self.compile(cast_b, kernel, gemm, "b", shape_b)
        return Calls(
            full=lambda a, b: multiply(fast_a(a), fast_b(b)),
            prepare_a=cast_a,
            prepare_b=cast_b,
            gemm=multiply,
            cached=None if gemm == "wgrad" else lambda a, b: multiply(fast_a(a), b),
            note="scaled_mm, casts compiled",
        )

    def _parts(self, kernel: str, gemm: str) -> Parts:
        """(cast of a, cast of b, GEMM of what they give)."""
        torch = self.torch
        turn_a, turn_b = TRANSPOSED[gemm]
        if kernel == "pytorch/bf16":
            return self._bf16(gemm)
        if kernel == "pytorch/fp8-tensorwise+fast":
            # The gradient is a in both gradients' GEMMs: E5M2 for its range.
            first = torch.float8_e4m3fn if gemm == "fprop" else torch.float8_e5m2
            cast_a = lambda x: tensorwise(torch, x, first, turn_a)
            cast_b = lambda x: tensorwise(torch, x, torch.float8_e4m3fn, turn_b)
            return cast_a, cast_b, self._scaled
        if kernel == "pytorch/fp8-rowwise+fast":
            return (lambda x: rowwise(torch, x, turn_a)), (lambda x: rowwise(torch, x, turn_b)), self._scaled
        cast_a = lambda x: blocks_1x128(torch, x, turn_a)
        if gemm == "wgrad":
            return cast_a, (lambda x: blocks_1x128(torch, x, turn_b)), self._blockwise_1d
        return cast_a, (lambda x: blocks_128x128(torch, x, turn_b)), self._blockwise_2d

    def _bf16(self, gemm: str) -> Parts:
        torch = self.torch
        cast = lambda x: x.to(torch.bfloat16)
        multiply = {
            "fprop": lambda a, b: torch.mm(a, b.t()),
            "dgrad": lambda a, b: torch.mm(a, b),
            "wgrad": lambda a, b: torch.mm(a.t(), b),
        }[gemm]
        return cast, cast, multiply

    def _scaled(self, a: Any, b: Any) -> Any:
        (a, scale_a), (b, scale_b) = a, b
        return self.torch._scaled_mm(
            a, b.t(), scale_a, scale_b.t(), out_dtype=self.torch.bfloat16, use_fast_accum=True
        )

    def _blockwise_2d(self, a: Any, b: Any) -> Any:
        functional = self.torch.nn.functional
        kind = functional.ScalingType
        (a, scale_a), (b, scale_b) = a, b
        return functional.scaled_mm(
            a, b.t(), scale_a, kind.BlockWise1x128, scale_b.t(), kind.BlockWise128x128, output_dtype=self.torch.bfloat16
        )

    def _blockwise_1d(self, a: Any, b: Any) -> Any:
        functional = self.torch.nn.functional
        kind = functional.ScalingType
        (a, scale_a), (b, scale_b) = a, b
        # Scales of 1x128 blocks are [cols, reduced / 128] for b too: not turned, as the 128x128 ones are.
        return functional.scaled_mm(
            a, b.t(), scale_a, kind.BlockWise1x128, scale_b, kind.BlockWise1x128, output_dtype=self.torch.bfloat16
        )


def _to_fp8(x: Any, scale: Any, fp8: Any, largest: float) -> Any:
    # Clamped before the conversion: eager PyTorch up to 2.11 does not saturate.
    return (x.float() / scale).clamp(-largest, largest).to(fp8)


def tensorwise(torch: Any, x: Any, fp8: Any, turn: bool) -> Scaled:
    """(FP8, one scale)."""
    largest = torch.finfo(fp8).max
    scale = (x.abs().amax().float() / largest).clamp(min=SCALE_FLOOR)
    cast = _to_fp8(x, scale, fp8, largest)
    return (cast.t().contiguous() if turn else cast), scale


def rowwise(torch: Any, x: Any, turn: bool) -> Scaled:
    """(E4M3, one scale a row [rows, 1])."""
    x = x.t() if turn else x
    largest = torch.finfo(torch.float8_e4m3fn).max
    scale = (x.abs().amax(1, keepdim=True).float() / largest).clamp(min=SCALE_FLOOR)
    return _to_fp8(x, scale, torch.float8_e4m3fn, largest).contiguous(), scale


def blocks_1x128(torch: Any, x: Any, turn: bool) -> Scaled:
    """(E4M3, scales [rows, reduced / 128], adjacent along the rows as cuBLASLt wants them)."""
    x = x.t() if turn else x
    rows, reduced = x.shape
    largest = torch.finfo(torch.float8_e4m3fn).max
    blocks = x.reshape(rows, reduced // BLOCK, BLOCK)
    scale = (blocks.abs().amax(2, keepdim=True).float() / largest).clamp(min=SCALE_FLOOR)
    cast = _to_fp8(blocks, scale, torch.float8_e4m3fn, largest).reshape(rows, reduced).contiguous()
    return cast, scale.squeeze(2).t().contiguous().t()


def blocks_128x128(torch: Any, x: Any, turn: bool) -> Scaled:
    """(E4M3, scales [rows / 128, reduced / 128], padded along the reduced side to a multiple of 4)."""
    x = x.t() if turn else x
    rows, reduced = x.shape
    largest = torch.finfo(torch.float8_e4m3fn).max
    blocks = x.reshape(rows // BLOCK, BLOCK, reduced // BLOCK, BLOCK)
    scale = (blocks.abs().amax((1, 3), keepdim=True).float() / largest).clamp(min=SCALE_FLOOR)
    cast = _to_fp8(blocks, scale, torch.float8_e4m3fn, largest).reshape(rows, reduced).contiguous()
    scale = scale.reshape(rows // BLOCK, reduced // BLOCK)
    return cast, torch.nn.functional.pad(scale, (0, -scale.shape[1] % 4)).contiguous()


ADAPTER = PyTorch
