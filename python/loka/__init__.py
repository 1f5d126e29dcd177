"""LoKA in Python: which GEMMs of a recommendation model can run in FP8, at what error and for what gain.

    with loka.Recorder(model, out="traces/") as recorder:      # while it trains as ever; recorder.loss(...) around the loss
        train(model, recorder)
    print(recorder.report())                                   # what was recorded, and what was not

    results = loka.probe("traces/", "model.results.parquet")   # the error of every kernel at every GEMM
    plan = loka.plan(results, "model.plan.json")               # a kernel for each, by a policy
    print(loka.apply(model, plan))                             # the plan's kernels under the model's linears
    train(model)
    print(loka.health(model))                                  # errors predicted, and seen in this run

On a CPU the plan's numbers run by `loka.apply(model, plan, emulate=True)`. `loka.mods.apply` changes a model so that more of
it can run in FP8; `loka.freeze` casts weights once, to serve it; `loka.open` starts the workbench. `help(loka.apply)` and so
on have each one's options.

Importing this module imports nothing else; PyTorch is loaded by what needs it.
"""

from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING, List

from .lazily import lazily as _lazily

if TYPE_CHECKING:
    # What `__getattr__` loads, for type checkers and editors. A test holds the two lists against each other.
    from . import mods as mods
    from . import ray as ray
    from .plans import CanaryError as CanaryError
    from .plans import Comparison as Comparison
    from .plans import Health as Health
    from .plans import Plan as Plan
    from .plans import PlanError as PlanError
    from .plans import Resolved as Resolved
    from .plans import apply as apply
    from .plans import compare as compare
    from .plans import freeze as freeze
    from .plans import health as health
    from .plans import load_plan as load_plan
    from .plans import refresh as refresh
    from .plans import resolved as resolved
    from .plans import saturated as saturated
    from .plans import step as step
    from .plans import unapply as unapply
    from .program import Figure as Figure
    from .program import LokaError as LokaError
    from .program import Results as Results
    from .program import Workbench as Workbench
    from .program import find_binary as find_binary
    from .program import load_results as load_results
    from .program import load_trace as load_trace
    from .program import open as open
    from .program import plan as plan
    from .program import probe as probe
    from .record import Recorder as Recorder
    from .record import linear as linear

__version__ = "0.2.0"

_HOME = {
    "CanaryError": "loka.plans",
    "Comparison": "loka.plans",
    "Figure": "loka.program",
    "Health": "loka.plans",
    "LokaError": "loka.program",
    "Plan": "loka.plans",
    "PlanError": "loka.plans",
    "Recorder": "loka.record",
    "Resolved": "loka.plans",
    "Results": "loka.program",
    "Workbench": "loka.program",
    "apply": "loka.plans",
    "compare": "loka.plans",
    "find_binary": "loka.program",
    "freeze": "loka.plans",
    "health": "loka.plans",
    "linear": "loka.record",
    "load_plan": "loka.plans",
    "load_results": "loka.program",
    "load_trace": "loka.program",
    "mods": "loka.mods",
    "open": "loka.program",
    "plan": "loka.program",
    "probe": "loka.program",
    "ray": "loka.ray",
    "refresh": "loka.plans",
    "resolved": "loka.plans",
    "saturated": "loka.plans",
    "step": "loka.plans",
    "unapply": "loka.plans",
}

_NEED_TORCH = {
    "CanaryError", "Comparison", "Health", "Recorder", "Resolved", "apply", "compare", "freeze", "health", "linear", "mods",
    "refresh", "resolved", "saturated", "step", "unapply",
}  # fmt: skip

# What `help(loka)` lists. Without `open`, which `from loka import *` would put in the place of Python's own.
__all__ = [name for name in _HOME if name != "open"]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:
    # Hidden from type checkers: with it in sight every unknown name would be one of Any.
    __getattr__ = _lazily(globals(), _HOME)


def __dir__() -> List[str]:
    """The public names, and no module that happens to be loaded. Where there is no PyTorch, those that do without: what
    asks for each of them, as `help(loka)` does, would end at the first that needs it."""
    here = set(_HOME) if _find_spec("torch") is not None else set(_HOME) - _NEED_TORCH
    return sorted([*here, "__doc__", "__version__"])
