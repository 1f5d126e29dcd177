"""The public API as a type checker must see it: read by mypy (and pyright), never run.

A line that is wrong on purpose carries the error it must give: mypy reports an ignore that nothing needs.
"""

from typing import Optional

import torch
from torch import nn
from typing_extensions import assert_type

import loka
import loka.mods


def right(model: nn.Module, x: torch.Tensor) -> None:
    with loka.Recorder(model, out="run/", every=100) as recorder:
        assert_type(recorder.loss(x), torch.Tensor)
    assert_type(recorder, loka.Recorder)
    results = loka.probe("run/", engine="cpu", sites=["top.*"], progress=lambda done: None)
    assert_type(results, loka.Results)
    assert_type(loka.probe(recorder), loka.Results)
    assert_type(results.heatmap(), loka.Figure)
    plan = loka.plan(results, policy={"name": "mine", "metric": "mere", "max_error": 0.1})
    assert_type(plan, loka.Plan)
    assert_type(loka.load_plan("model.plan.json"), loka.Plan)
    resolved = loka.apply(model, plan, emulate=True, functional={"mix": x, "other": (x, None)})
    assert_type(resolved, loka.Resolved)
    assert_type([row.runs_fp8 for row in resolved.rows], list[bool])
    assert_type(loka.resolved(model), loka.Resolved)
    assert_type(loka.saturated(model), dict[str, dict[str, int]])
    assert_type(loka.health(model), loka.Health)
    assert_type(loka.linear(x, x, name="mix"), torch.Tensor)
    assert_type(loka.mods.apply(model, ["no_bias"]), loka.mods.Changes)
    workbench = loka.open("run/")
    assert_type(workbench.link, Optional[str])
    loka.step(model)
    loka.unapply(model)


def wrong(model: nn.Module, x: torch.Tensor) -> None:
    loka.apply()  # type: ignore[call-arg]  # pyright: ignore
    loka.apply(model, 3)  # type: ignore[arg-type]  # pyright: ignore
    loka.apply(model, "p", emulated=True)  # type: ignore[call-arg]  # pyright: ignore
    loka.Recorder(model)  # type: ignore[call-arg]  # pyright: ignore
    loka.linear(x, x)  # type: ignore[call-arg]  # pyright: ignore
    loka.probe("run/", engine="tpu")  # type: ignore[arg-type]  # pyright: ignore
    loka.plan("r", overrides=["top.0:fprop=cublaslt/bf16"])  # type: ignore[arg-type]  # pyright: ignore
    loka.nothing_of_that_name  # type: ignore[attr-defined]  # pyright: ignore
    loka.resolved(model).rows[0].sight  # type: ignore[attr-defined]  # pyright: ignore
    loka.load_plan("p").digest = ""  # type: ignore[misc]  # pyright: ignore
