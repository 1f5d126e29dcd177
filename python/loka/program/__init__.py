"""The `loka` program from Python and notebooks: takes traces and results, gives results, plans, DataFrames and figures.

    results = loka.probe("traces/")
    results.heatmap()
    plan = loka.plan(results, policy="loss-budget", out="model.plan.json")

The program is started and listened to; nothing here computes. None of it needs PyTorch but `plan`, which gives the same
`loka.plans.Plan` as `load_plan`.
"""

from .binary import LokaError, find_binary
from .figures import Figure
from .frames import load_results, load_trace
from .opening import Workbench, open
from .planning import plan
from .probing import probe
from .results import Results

__all__ = [
    "Figure", "LokaError", "Results", "Workbench", "find_binary", "load_results", "load_trace", "open", "plan", "probe",
]
