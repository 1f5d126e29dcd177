"""Takes a plan (`*.plan.json`, made by `loka plan`) and a model; runs the model's linears by the plan's kernels."""

from .application import apply, saturated, unapply
from .canary import CanaryError, CanaryWarning, health, refresh, step
from .document import Choice, Plan, Site, load_plan
from .error import PlanError
from .frozen import FrozenLinear, freeze
from .gemm_health import Health, HealthRow
from .linear import LokaLinear
from .report import Resolved, Row, resolved
from .weights import StaleWeights

__all__ = [
    "CanaryError", "CanaryWarning", "Choice", "FrozenLinear", "Health", "HealthRow", "LokaLinear", "Plan", "PlanError",
    "Resolved", "Row", "Site", "StaleWeights", "apply", "freeze", "health", "load_plan", "refresh", "resolved", "saturated",
    "step", "unapply",
]
