"""What a trace says of a loss that is so many times a log loss, and what Probe makes of it."""

import contextlib
import json
import os
import pathlib
import sys
import tempfile
import unittest
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
from torch import nn
from torch.nn import functional as F

from record_support import loka as loka_program, loka_binary, read

import loka

ROWS, TASKS = 512, 4


class Tasks(nn.Module):
    def __init__(self, tasks=TASKS, apart=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(32, 1) for _ in range(tasks)] if apart else [nn.Linear(32, tasks)])

    def forward(self, x):
        x = self.body(x)
        return torch.cat([head(x) for head in self.heads], 1)


def bce(z, y, **how):
    return F.binary_cross_entropy_with_logits(z.float(), y, **how)


def alone(z, y):
    """Each task by itself, a second one by those that clicked."""
    return bce(z[:, 0], y[:, 0]) + bce(z[y[:, 0] > 0, 1], y[y[:, 0] > 0, 1])


class Said(unittest.TestCase):
    def setUp(self):
        # Of models that a test makes itself.
        torch.manual_seed(0)

    def times(self, loss, model=None, compiled=False, autocast=False, labels=None, costs=False, steps=12, rate=2e-2, wide=1.0, **options):
        """How many times a log loss the trace says that it is."""
        torch.manual_seed(0)
        model = model or Tasks()
        run = torch.compile(model, backend="aot_eager") if compiled else model
        optimizer = torch.optim.Adam(model.parameters(), rate)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with loka.Recorder(model, out=folder, every=2, **options) as recorder:
                for _ in range(steps):
                    x = wide * torch.randn(ROWS, 16)
                    y = (torch.rand(ROWS, TASKS) < torch.sigmoid(x[:, :TASKS])).float() if labels is None else labels(x)
                    with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
                        z = run(x)
                    recorder.loss(loss(z, y)).backward()
                    optimizer.step()
                    optimizer.zero_grad()
            self.assertFalse([each for each in recorder.warnings if "loss" in each], recorder.warnings)
            self.report = str(recorder.report())
            (trace,) = pathlib.Path(folder).glob("*.trace.safetensors")
            self.costs = self.costs_of(trace) if costs else None
            times = read(trace)[0]["loss"].get("weight")
        self.assertEqual(times is not None, "times the log loss of the heads' predictions" in self.report)
        return times

    def costs_of(self, trace):
        """Site -> the loss cost of FP8 as Probe tells it, over the loss."""
        asked = ("--kernels", "cublaslt/fp8-rowwise", "--engine", "cpu", "--max-draws", 16, "--out", f"{trace}.results.parquet")
        ran = loka_program("probe", trace, *asked, "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        rows = [line for line in map(json.loads, ran.stdout.splitlines()) if line.get("gemm") == "fprop" and line["error"]]
        return {row["site"]: row["error"]["loss_cost"]["value"] / read(trace)[0]["loss"]["value"] for row in rows}

    @unittest.skipIf(loka_binary() is None, "no loka binary: set LOKA_BIN")
    def test_loss_costs_go_by_it(self):
        self.times(lambda z, y: bce(z, y) * TASKS, costs=True)
        whole = self.costs
        # Adam trains the same by a loss that is a quarter.
        self.times(bce, costs=True)
        self.assertEqual(list(whole), ["body.0"])
        for site, cost in whole.items():
            self.assertAlmostEqual(self.costs[site] / cost, 1.0, delta=0.02, msg=site)

    def test_a_mean_over_tasks(self):
        for kind in ({}, {"compiled": True, "autocast": True}, {"model": Tasks(apart=True)}):
            self.assertAlmostEqual(self.times(bce, **kind), 0.25, delta=0.01)
            self.assertIn("(a mean over 4 tasks or tokens?): loss costs go by that", self.report)

    def test_what_is_told_by_hand_is_enough(self):
        self.assertIsNone(self.times(bce, loss_reduction=1 / (4 * ROWS)))
        self.assertNotIn("times the log loss", self.report)

    def test_a_weight(self):
        self.assertAlmostEqual(self.times(lambda z, y: 0.1 * bce(z, y) * TASKS, autocast=True), 0.1, delta=0.005)
        self.assertAlmostEqual(self.times(lambda z, y: 2.5 * TASKS * bce(z, y)), 2.5, delta=0.01)
        self.assertIn("(a weight?)", self.report)

    def test_sums_of_tasks_and_losses_of_other_kinds_are_let_be(self):
        self.assertIsNone(self.times(lambda z, y: bce(z, y) * TASKS))
        self.assertIsNone(self.times(lambda z, y: bce(z, y, reduction="none").sum(1).mean(), autocast=True))
        self.assertIsNone(self.times(F.mse_loss))
        self.assertIsNone(self.times(lambda z, y: F.cross_entropy(z, y), labels=lambda x: x[:, :TASKS].argmax(1)))
        weighted = lambda z, y: (bce(z, y, reduction="none") * torch.rand(ROWS, 1)).mean()
        self.assertIsNone(self.times(weighted))
        # At z = 0 this has a gradient of two values, as a log loss has.
        focal = lambda z, y: ((1 - torch.exp(-bce(z, y, reduction="none"))) ** 2 * bce(z, y, reduction="none")).mean()
        self.assertIsNone(self.times(focal))
        hinge = lambda z, y: F.relu(1 - z * (2 * y - 1)).mean()
        self.assertIsNone(self.times(hinge))
        soft = lambda x: torch.sigmoid(3 * x[:, :TASKS])
        self.assertIsNone(self.times(bce, labels=soft))

    def test_a_model_that_tells_no_two_examples_apart(self):
        model = Tasks()
        nn.init.zeros_(model.heads[0].weight)
        self.assertIsNone(self.times(lambda z, y: F.relu(1 - z * (2 * y - 1)).mean(), model=model, steps=1))
        self.assertIsNone(self.times(bce, model=Tasks(), steps=1, rate=0.0, wide=1e-3))

    def test_a_task_of_those_that_clicked(self):
        # Of half the examples, so its gradients are twice as large: 1 and 2 times, by their squares.
        times = self.times(alone, Tasks(2, apart=True))
        self.assertTrue(1.3 < times < 1.8, times)

    def test_a_scale_that_nobody_told_of(self):
        self.assertAlmostEqual(self.times(lambda z, y: bce(z, y) * TASKS * 2.0**16) / 2**16, 1.0, delta=0.01)


if __name__ == "__main__":
    unittest.main()
