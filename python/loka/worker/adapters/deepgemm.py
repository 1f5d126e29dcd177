"""DeepGEMM on Hopper: `fp8_gemm_nt` with FP32 scales, 1x128 activations and gradients, 128x128 weights.

Seen to work: 2.6.1 beside PyTorch 2.11 on an H200. Casts are those of `deep_gemm.utils`, which take no amax below 1e-4:
an operand that is smaller (a small gradient) loses bits there, and that error is the library's. The weight gradient,
1x128 on both sides, is its 1D1D kernel, which adds to an FP32 output: its result is FP32, and where a BF16 one is wanted
a memset stands before the GEMM and a cast behind it, both in its time.
"""

import inspect
from typing import Any, Callable, Optional

from ..protocol import Refused
from . import (
    REDUCED_AND_COLS, TRANSPOSED, Adapter, Calls, Parts, distribution_version, need, not_multiple, operand_shapes,
)

BLOCK = 128
LONGEST = 907 * BLOCK
"""Elements along the reduced dimension. The kernel that turns scales keeps those of 64 rows in shared memory, four bytes
each, in an odd stride: a block more and it wants more than the 227 KB that Hopper has."""

Turned = Callable[[Any, bool], Any]
"""Of an operand, and whether it is turned first."""


class DeepGemm(Adapter):
    library = "deepgemm"
    remedy = "build it from github.com/deepseek-ai/DeepGEMM, 2.1 or later (2.6.1 was seen to work with PyTorch 2.11)"
    kernels = ("deepgemm/blockwise",)

    def version(self) -> Optional[str]:
        return distribution_version("deep_gemm", "deep-gemm")

    def load(self) -> None:
        self.library_module = need("DeepGEMM", "deep_gemm")
        version = self.version() or "of unknown version"
        if not hasattr(self.library_module, "fp8_gemm_nt"):
            raise Refused(f"DeepGEMM {version} has no fp8_gemm_nt, which came with 2.1")
        utils = need("DeepGEMM's casts", "deep_gemm.utils")
        for name in ("per_token_cast_to_fp8", "per_block_cast_to_fp8"):
            cast = getattr(utils, name, None)
            if cast is None or "use_ue8m0" not in inspect.signature(cast).parameters:
                raise Refused(f"DeepGEMM {version} has no {name} with use_ue8m0, which came with 2.1")
        self.per_token, self.per_block = utils.per_token_cast_to_fp8, utils.per_block_cast_to_fp8
        self.align_scales = getattr(self.library_module, "get_mn_major_tma_aligned_tensor", None)

    def lacks(self, kernel: str) -> Optional[str]:
        if self.environment.capability[0] != 9:
            # On Blackwell its scales are powers of two: another recipe.
            return "FP32 scales need compute capability 9.0, this GPU has {}.{}".format(*self.environment.capability)
        return None

    def refuses(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Optional[str]:
        name = REDUCED_AND_COLS[gemm][0]
        reduced = {"m": m, "k": k, "n": n}[name]
        if reduced > LONGEST:
            return f"{name} = {reduced} is above {LONGEST}: DeepGEMM's scales want more shared memory than there is"
        return not_multiple(gemm, m, k, n, BLOCK)

    def run(self, kernel: str, gemm: str, a: Any, b: Any) -> Any:
        cast_a, cast_b, multiply = self.parts(gemm)
        return multiply(cast_a(a), cast_b(b))

    def calls(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Calls:
        cast_a, cast_b, multiply = self.parts(gemm)
        shape_a, shape_b = operand_shapes(gemm, m, k, n)
        fast_a, fast_b = self.compile(cast_a, gemm, "a", shape_a), self.compile(cast_b, gemm, "b", shape_b)
        note = "deep_gemm.utils casts, compiled"
        if gemm == "wgrad":
            to_bf16, out = self.torch.bfloat16, self._zeros(n, k)
            return Calls(
                full=lambda a, b: multiply(fast_a(a), fast_b(b)).to(to_bf16),
                prepare_a=lambda a: self._aligned(cast_a(a)),
                prepare_b=lambda b: self._aligned(cast_b(b)),
                gemm=lambda a, b: self._add_1d(a, b, out),
                note=f"{note}; adds to FP32: the GEMM is that alone, the whole has a memset before and a cast to BF16 after",
            )
        return Calls(
            full=lambda a, b: multiply(fast_a(a), fast_b(b)),
            prepare_a=lambda a: self._aligned(cast_a(a)),
            prepare_b=cast_b,
            gemm=multiply,
            cached=lambda a, b: multiply(fast_a(a), b),
            note=note,
        )

    def parts(self, gemm: str) -> Parts:
        turn_a, turn_b = TRANSPOSED[gemm]
        turned: Turned = lambda x, turn: x.t().contiguous() if turn else x
        token: Turned = lambda x, turn: self.per_token(turned(x, turn), use_ue8m0=False)
        if gemm == "wgrad":
            return (lambda x: token(x, turn_a)), (lambda x: token(x, turn_b)), self._multiply_1d
        block: Turned = lambda x, turn: self.per_block(turned(x, turn), use_ue8m0=False)
        return (lambda x: token(x, turn_a)), (lambda x: block(x, turn_b)), self._multiply

    def _aligned(self, operand: Any) -> Any:
        """Scales as the kernel reads them; otherwise every call of the GEMM turns them first."""
        bits, scales = operand
        return operand if self.align_scales is None else (bits, self.align_scales(scales))

    def _multiply(self, a: Any, b: Any) -> Any:
        torch = self.torch
        out = torch.empty(a[0].shape[0], b[0].shape[0], dtype=torch.bfloat16, device=a[0].device)
        self.library_module.fp8_gemm_nt(a, b, out, disable_ue8m0_cast=True)
        return out

    def _multiply_1d(self, a: Any, b: Any) -> Any:
        return self._add_1d(a, b, self._zeros(a[0].shape[0], b[0].shape[0]))

    def _zeros(self, rows: int, cols: int) -> Any:
        return self.torch.zeros(rows, cols, dtype=self.torch.float32, device="cuda")

    def _add_1d(self, a: Any, b: Any, out: Any) -> Any:
        self.library_module.fp8_gemm_nt(a, b, out, c=out, recipe=(1, 1, BLOCK), disable_ue8m0_cast=True)
        return out


ADAPTER = DeepGemm
