"""What the tests of functional linears under a plan share: two models, their plan, and how results are compared."""

import gc
import tempfile
import unittest

import ranker
import torch
from safetensors import safe_open
from torch import nn

import loka
from loka.kernels import linear as by_kernels
from loka.kernels.named import routed
from loka.plans import PlanError
from ranker import Ranker

KERNELS = ("cublaslt/fp8-rowwise", "cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise+fast")
OTHERS = ("cublaslt/fp8-tensorwise", "cublaslt/bf16", "cublaslt/bf16")


class Mixed(nn.Module):
    """The ranker's bottom, a linear 128 -> 64 without a module, and a head."""

    def __init__(self, seed=0, bias=True):
        super().__init__()
        self.bottom = Ranker(seed).bottom
        self.mix = nn.Parameter(torch.randn(64, 128) / 11)
        self.shift = nn.Parameter(torch.randn(64)) if bias else None
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        x = loka.linear(self.bottom(x), self.mix, self.shift, name="mix")
        return self.head(x.relu_()).squeeze(-1)


class Unreadable(Mixed):
    """What it calls depends on data."""

    def forward(self, x):
        return super().forward(x) if x.sum() < 1e9 else -super().forward(x)


class Alone(nn.Module):
    """No module but one, which stays in high precision: all FP8 is functional."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.mix, self.head = nn.Parameter(torch.randn(64, 128) / 11), nn.Linear(64, 1)

    def forward(self, x):
        return self.head(torch.sin(loka.linear(x, self.mix, name="mix"))).squeeze(-1)


def given(model, bias=True):
    return {"mix": (model.mix, model.shift) if bias else model.mix}


def gradients(model, x):
    """Of the inputs and every parameter, after the output."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    y = model(x)
    (y * torch.linspace(0.2, 1, y.numel())).sum().backward()
    return [y.detach(), x.grad, *(each.grad.clone() for each in model.parameters())]


class Functional(unittest.TestCase):
    """Begins and ends with no name routed."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.addCleanup(gc.collect)
        gc.collect()
        self.assertEqual(routed, {})

    def plan(self, kernels=KERNELS, bottom=True, **changes):
        """The ranker's, with `mix` for `top.0` and `head` for `top.2`."""

        def change(plan):
            mix, head = plan["sites"][2:]
            mix.update(site="mix", k=128, n=64)
            head["site"] = "head"
            for gemm, kernel in zip(("fprop", "dgrad", "wgrad"), kernels):
                mix[gemm]["kernel"] = kernel
            plan["sites"] = plan["sites"] if bottom else [mix, head]
            plan.update(changes)

        return loka.load_plan(ranker.forged(self.folder, change))

    def refused(self, model, functional, plan=None, **options):
        """The message's lines; nothing is routed by it."""
        before = dict(routed), [type(module) for module in model.modules()]
        with self.assertRaises(PlanError) as refused:
            loka.apply(model, plan or self.plan(), emulate=True, functional=functional, **options)
        self.assertEqual((dict(routed), [type(module) for module in model.modules()]), before)
        return str(refused.exception).split("\n  ")

    def recorder(self, model, functional):
        options = {"every": 1, "loss_reduction": "sum", "loss_value": 0.5}
        return loka.Recorder(model, self.folder, functional=functional, **options)

    def check_trace(self, recorder, model, x):
        """One step of `gradients(Alone(), x)` by KERNELS, as numbers that nothing of the recorder made."""
        self.assertEqual(recorder.warnings, [])
        y = by_kernels(x, model.mix, None, KERNELS, emulate=True).detach()
        dy = torch.linspace(0.2, 1, len(x))[:, None] * model.head.weight.detach() * torch.cos(y)
        with safe_open(recorder.path, "pt") as file:
            for key, rows in (("input", x), ("grad_output", dy)):
                self.assertEqual(int(file.get_tensor(f"mix/{key}.count")), len(x))
                mean = file.get_tensor(f"mix/{key}.mean")
                torch.testing.assert_close(mean, rows.double().mean(0), rtol=1e-5, atol=1e-7)

    def equal(self, found, expected):
        self.assertEqual(len(found), len(expected))
        for one, other in zip(found, expected):
            self.assertTrue(torch.equal(one, other), (one - other).abs().max())
