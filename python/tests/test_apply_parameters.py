"""Plans of traces in which products with a parameter are sites: they stay as they are, and FP8 for them is refused."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ranker
import torch
from torch import nn

import loka
from loka.plans import PlanError
from ranker import Ranker


class Reads(nn.Module):
    """The ranker's bottom, a product with a parameter, and a head."""

    def __init__(self):
        super().__init__()
        self.bottom = Ranker(0).bottom
        self.mix = nn.Parameter(torch.randn(64, 128) / 11)
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(torch.relu(nn.functional.linear(self.bottom(x), self.mix))).squeeze(-1)


class Parameters(unittest.TestCase):
    def plan(self, kernel, name="mix"):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)

        def change(plan):
            mix, head = plan["sites"][2:]
            mix.update(site=name, k=128, n=64)
            head["site"] = "head"
            for gemm in ("fprop", "dgrad", "wgrad"):
                mix[gemm]["kernel"] = kernel

        return loka.load_plan(ranker.forged(folder.name, change))

    def test_in_high_precision_it_is_left_as_it_is(self):
        for name in ("mix", "mix[0:64]"):
            model = Reads()
            loka.apply(model, self.plan("cublaslt/bf16", name), emulate=True)
            model(torch.randn(4, model.bottom[0].in_features)).sum().backward()

    def test_in_high_precision_also_where_the_models_calls_cannot_be_read(self):
        # Data decides what it calls, as a loop over experts does: the graph has a part that nobody can read.
        class Branching(Reads):
            def forward(self, x):
                x = self.bottom(x)
                return self.head(torch.relu(nn.functional.linear(x if x.sum() > 0 else -x, self.mix))).squeeze(-1)

        found = loka.apply(Branching(), self.plan("cublaslt/bf16"), emulate=True)
        self.assertEqual(found.problems, ())
        with self.assertRaisesRegex(PlanError, "functional={name: weight}"):
            loka.apply(Branching(), self.plan("cublaslt/fp8-rowwise"), emulate=True)

    def test_in_fp8_it_is_refused_with_the_reason(self):
        with self.assertRaisesRegex(PlanError, "'mix' is not a module of the model but a parameter that a function"):
            loka.apply(Reads(), self.plan("cublaslt/fp8-rowwise"), emulate=True)

    def test_a_name_that_is_no_parameter_is_missing_as_ever(self):
        with self.assertRaisesRegex(PlanError, "'mixed' is not in the model"):
            loka.apply(Reads(), self.plan("cublaslt/bf16", "mixed"), emulate=True)


if __name__ == "__main__":
    unittest.main()
