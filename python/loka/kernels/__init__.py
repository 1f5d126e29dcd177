"""FP8 numerics and routing: a linear whose three GEMMs run by the kernels that a plan names.

    fprop, dgrad, wgrad = "cublaslt/fp8-tensorwise+fast", "cublaslt/fp8-rowwise+fast", "cublaslt/bf16"
    y = loka.kernels.linear(x, weight, bias, (fprop, dgrad, wgrad))

Kernel ids -> `catalogue` (their numerics) -> `available` (can it run here) -> `linear` (autograd) -> `passes`
-> `casts` and `gemms`, or `emulate` on any device.
"""

from .available import why_not
from .blocks import KERNEL as BLOCK
from .blocks import UNFUSED, in_codes
from ..catalogue import KERNELS, Cast, Numerics, numerics
from .delayed import History, Overflow, Scale, Scales
from .fused import block, static_linear
from .gated import GATES, LINEAR
from .gated import sound as gate_sound
from .gated_linear import Branch, gated_linear
from .handed import NORMED, TAILS, Norm, is_row_normed, row_normed, sound
from .handed import ROWS as HANDED_ROWS
from .linear import linear
from .norms import eps_of as norm_eps
from .padding import BF16, bf16_linear, cut, short_of
from .passes import Kernels, Options, weight_casts
from .watch import Switch, Watch
from .weight_codes import Wanted, WeightCache, WeightCodes, can_keep

__all__ = [
    "BF16", "BLOCK", "Branch", "Cast", "GATES", "HANDED_ROWS", "History", "KERNELS", "Kernels", "LINEAR", "NORMED", "Norm", "Numerics", "Options",
    "Overflow", "Scale", "Scales", "Switch", "TAILS", "UNFUSED", "Wanted", "Watch", "WeightCache", "WeightCodes", "bf16_linear", "block", "can_keep", "cut",
    "gate_sound", "gated_linear", "in_codes", "is_row_normed", "linear", "norm_eps", "numerics", "row_normed", "short_of", "sound", "static_linear",
    "weight_casts", "why_not",
]
