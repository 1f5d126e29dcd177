"""LoKA in Python: record a training run, change a model, apply a plan.

Importing this module imports nothing else; PyTorch is loaded by what needs it.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Recorder": "loka.record",
    "linear": "loka.record",
    "mods": "loka.mods",
    "apply": "loka.plans",
    "unapply": "loka.plans",
    "resolved": "loka.plans",
    "saturated": "loka.plans",
    "health": "loka.plans",
    "step": "loka.plans",
    "refresh": "loka.plans",
    "load_plan": "loka.plans",
}


def __getattr__(name: str) -> Any:
    """Loads `loka.apply` and the like when they are first asked for (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'loka' has no attribute '{name}'")
    module = importlib.import_module(home)
    value = module if name == "mods" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list:
    return sorted([*globals(), *_HOME])
