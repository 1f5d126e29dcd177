"""FP8 numerics and routing: a linear whose three GEMMs run by the kernels that a plan names.

    fprop, dgrad, wgrad = "cublaslt/fp8-tensorwise+fast", "cublaslt/fp8-rowwise+fast", "cublaslt/bf16"
    y = loka.kernels.linear(x, weight, bias, (fprop, dgrad, wgrad))

Kernel ids -> `catalogue` (their numerics) -> `available` (can it run here) -> `linear` (autograd) -> `casts` and
`gemms`, or `emulate` on any device.
"""

from .available import why_not
from .catalogue import KERNELS, Cast, Numerics, numerics
from .fused import block, static_linear
from .linear import Kernels, linear
from .own import Static, Statics

__all__ = [
    "Cast", "KERNELS", "Kernels", "Numerics", "Static", "Statics", "block", "linear", "numerics", "static_linear",
    "why_not",
]
