"""Takes a plan (`*.plan.json`, made by `loka plan`) and a model; runs the model's linears by the plan's kernels."""

from .application import apply, saturated, unapply
from .document import Choice, Plan, Site, load_plan
from .error import PlanError
from .linear import LokaLinear
from .report import Resolved, Row, resolved

__all__ = [
    "Choice", "LokaLinear", "Plan", "PlanError", "Resolved", "Row", "Site", "apply", "load_plan", "resolved", "saturated",
    "unapply",
]
