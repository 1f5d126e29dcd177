"""FBGEMM GenAI: `torch.ops.fbgemm.f8f8bf16_rowwise` with its Triton `quantize_fp8_row`.

Seen to work: 1.6.0 beside PyTorch 2.11 on an H200. Its signatures: f8f8bf16_rowwise(XQ, WQ, x_scale, w_scale, bias=None,
use_fast_accum=True), XQ [M,K] and WQ [N,K] in E4M3; quantize_fp8_row(a) gives (E4M3, scale a row), the scale
being what the values are multiplied with to read them back.
"""

import os
from typing import Any, Callable, Optional, Tuple

from ..protocol import Refused
from . import TRANSPOSED, Adapter, Calls, Cast, distribution_version, need, not_multiple


AUTOTUNE = "FBGEMM_AUTOTUNE_ENABLE"
"""Looked for by FBGEMM at every call: with it, of whatever value, each shape's tile is the fastest of those tried at the
first call; without it a heuristic chooses."""


class Fbgemm(Adapter):
    library = "fbgemm"
    remedy = "pip install fbgemm-gpu-genai (1.6.0 was seen to work with PyTorch 2.11)"
    kernels = ("fbgemm/rowwise",)

    def version(self) -> Optional[str]:
        return distribution_version("fbgemm-gpu-genai", "fbgemm-gpu", "fbgemm-gpu-nightly")

    def load(self) -> None:
        need("FBGEMM", "fbgemm_gpu")
        need("FBGEMM GenAI", "fbgemm_gpu.experimental.gen_ai")
        casts = need("FBGEMM's Triton casts", "fbgemm_gpu.experimental.gemm.triton_gemm.fp8_gemm")
        version = self.version() or "of unknown version"
        if not hasattr(self.torch.ops.fbgemm, "f8f8bf16_rowwise"):
            raise Refused(f"FBGEMM {version} has no f8f8bf16_rowwise: install fbgemm-gpu-genai")
        if not hasattr(casts, "quantize_fp8_row"):
            raise Refused(f"FBGEMM {version} has no quantize_fp8_row")
        self.quantize = casts.quantize_fp8_row

    def lacks(self, kernel: str) -> Optional[str]:
        if self.environment.capability < (9, 0):
            found = "{}.{}".format(*self.environment.capability)
            return f"f8f8bf16_rowwise needs compute capability 9.0, this GPU has {found}"
        return None

    def refuses(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Optional[str]:
        return not_multiple(gemm, m, k, n, 16)

    def run(self, kernel: str, gemm: str, a: Any, b: Any) -> Any:
        cast_a, cast_b = self._casts(gemm)
        return self._multiply(cast_a(a), cast_b(b))

    def calls(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Calls:
        cast_a, cast_b = self._casts(gemm)
        return Calls(
            full=lambda a, b: self._multiply(cast_a(a), cast_b(b)),
            prepare_a=cast_a,
            prepare_b=cast_b,
            gemm=self._multiply,
            cached=None if gemm == "wgrad" else lambda a, b: self._multiply(cast_a(a), b),
            note="quantize_fp8_row (Triton) and f8f8bf16_rowwise, "
            + (f"the tile autotuned ({AUTOTUNE})" if AUTOTUNE in os.environ else "the tile by its heuristic"),
        )

    def _casts(self, gemm: str) -> Tuple[Cast, Cast]:
        turn_a, turn_b = TRANSPOSED[gemm]
        cast: Callable[[Any, bool], Any] = lambda x, turn: self.quantize(x.t().contiguous() if turn else x)
        return (lambda x: cast(x, turn_a)), (lambda x: cast(x, turn_b))

    def _multiply(self, a: Any, b: Any) -> Any:
        return self.torch.ops.fbgemm.f8f8bf16_rowwise(a[0], b[0], a[1], b[1])


ADAPTER = Fbgemm
