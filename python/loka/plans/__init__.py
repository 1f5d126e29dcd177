"""Takes a plan (`*.plan.json`, made by `loka plan`) and a model; runs the model's linears by the plan's kernels.

A plan can be read without PyTorch: what applies it is loaded when it is first asked for.
"""

from typing import TYPE_CHECKING

from ..lazily import lazily
from .document import Choice, Plan, Site, load_plan
from .error import PlanError

if TYPE_CHECKING:
    from .application import apply, saturated, unapply
    from .canary import CanaryError, health, refresh, step
    from .comparison import Comparison, GradientRow, compare
    from .fp8_share import Fp8Share
    from .frozen import FrozenLinear, freeze
    from .gemm_health import Health, HealthRow
    from .linear import LokaLinear
    from .report import Resolved, Row, resolved
    from .warned import CanaryWarning
    from .weights import StaleWeights

_HOME = {
    **dict.fromkeys(("apply", "saturated", "unapply"), "loka.plans.application"),
    **dict.fromkeys(("CanaryError", "health", "refresh", "step"), "loka.plans.canary"),
    **dict.fromkeys(("Comparison", "GradientRow", "compare"), "loka.plans.comparison"),
    "Fp8Share": "loka.plans.fp8_share",
    **dict.fromkeys(("FrozenLinear", "freeze"), "loka.plans.frozen"),
    **dict.fromkeys(("Health", "HealthRow"), "loka.plans.gemm_health"),
    "LokaLinear": "loka.plans.linear",
    **dict.fromkeys(("Resolved", "Row", "resolved"), "loka.plans.report"),
    "CanaryWarning": "loka.plans.warned",
    "StaleWeights": "loka.plans.weights",
}

if not TYPE_CHECKING:
    __getattr__ = lazily(globals(), _HOME)

__all__ = [
    "CanaryError", "CanaryWarning", "Choice", "Comparison", "Fp8Share", "FrozenLinear", "GradientRow", "Health", "HealthRow",
    "LokaLinear", "Plan", "PlanError", "Resolved", "Row", "Site", "StaleWeights", "apply", "compare", "freeze", "health",
    "load_plan", "refresh", "resolved", "saturated", "step", "unapply",
]
