"""Takes a plan (`*.plan.json`, made by `loka plan`) and a model; runs the model's linears by the plan's kernels.

A plan can be read without PyTorch: what applies it is loaded when it is first asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .document import Choice, Plan, Site, load_plan
from .error import PlanError

if TYPE_CHECKING:
    from .application import apply, saturated, unapply
    from .canary import CanaryError, CanaryWarning, health, refresh, step
    from .frozen import FrozenLinear, freeze
    from .gemm_health import Health, HealthRow
    from .linear import LokaLinear
    from .report import Resolved, Row, resolved
    from .weights import StaleWeights

_HOME = {
    **dict.fromkeys(("apply", "saturated", "unapply"), "application"),
    **dict.fromkeys(("CanaryError", "CanaryWarning", "health", "refresh", "step"), "canary"),
    **dict.fromkeys(("FrozenLinear", "freeze"), "frozen"),
    **dict.fromkeys(("Health", "HealthRow"), "gemm_health"),
    "LokaLinear": "linear",
    **dict.fromkeys(("Resolved", "Row", "resolved"), "report"),
    "StaleWeights": "weights",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Loads what applies plans when it is first asked for (PEP 562)."""
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'loka.plans' has no attribute '{name}'")
        value = getattr(importlib.import_module(f".{home}", __name__), name)
        globals()[name] = value
        return value


__all__ = [
    "CanaryError", "CanaryWarning", "Choice", "FrozenLinear", "Health", "HealthRow", "LokaLinear", "Plan", "PlanError",
    "Resolved", "Row", "Site", "StaleWeights", "apply", "freeze", "health", "load_plan", "refresh", "resolved", "saturated",
    "step", "unapply",
]
