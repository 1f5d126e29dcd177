"""Which share of a model's FLOPs a plan runs in FP8, against numbers counted by hand."""

import json
import pathlib
import sys
import tempfile
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from torch import nn

import loka
import ranker
from loka.names import GEMMS

FP8 = "cublaslt/fp8-rowwise"
BF16 = "cublaslt/bf16"

IN, WIDE, OUT = 32, 64, 16
POSITIONS = 5


class Sequence(nn.Module):
    """`each` runs at every position, `tower` once an example and twice a step, `head` once."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.each = nn.Linear(IN, WIDE)
        self.tower = nn.Linear(WIDE, WIDE)
        self.head = nn.Linear(WIDE, OUT)

    def forward(self, x):
        x = torch.relu(self.each(x)).mean(1)
        return self.head(torch.relu(self.tower(torch.relu(self.tower(x)))))


def step(model, rows, parts=1):
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for part in range(parts):
        x = torch.randn(rows, POSITIONS, IN, generator=torch.Generator().manual_seed(part))
        model(x).square().mean().backward()
    optimizer.step()


class Share(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def plan(self, sites):
        """`sites`: name -> (m, k, n, (fprop, dgrad, wgrad), calls)."""
        like = json.loads(ranker.PLAN.read_text(encoding="utf-8"))["sites"][3]

        def change(plan):
            plan["sites"] = []
            for name, (m, k, n, kernels, calls) in sites.items():
                site = {"site": name, "m": m, "k": k, "n": n}
                for gemm, kernel in zip(GEMMS, kernels):
                    site[gemm] = {**like["fprop"], "kernel": kernel or BF16, "source": "dispatch"}
                if calls > 1:
                    site["calls"] = calls
                if None in kernels:
                    site["never_runs"] = [gemm for gemm, kernel in zip(GEMMS, kernels) if kernel is None]
                plan["sites"].append({key: value for key, value in site.items() if value is not None})

        return ranker.forged(self.folder, change)

    def usual(self, m=100):
        return self.plan({
            "each": (m * POSITIONS, IN, WIDE, (FP8, None, BF16), 1),
            "tower": (m, WIDE, WIDE, (FP8, FP8, FP8), 2),
            "head": (m, WIDE, OUT, (BF16, BF16, BF16), 1),
        })  # fmt: skip

    # Of one example: each has 2 GEMMs (its input wants no gradient) at 5 positions, tower 3 GEMMs twice, head 3.
    EACH, TOWER, HEAD = 2 * POSITIONS * IN * WIDE, 2 * 2 * WIDE * WIDE, 2 * WIDE * OUT
    ALL = 2 * EACH + 3 * TOWER + 3 * HEAD
    IN_FP8 = EACH + 3 * TOWER

    def test_by_the_plans_rows(self):
        model = Sequence()
        found = loka.apply(model, self.usual(), emulate=True)
        share = found.fp8_share
        self.assertEqual((share.fp8, share.flops), (100 * self.IN_FP8, 100 * self.ALL))
        self.assertEqual((share.step, share.by_plan, share.unknown), (None, 3, ()))
        said = f"{int(1000 * self.IN_FP8 / self.ALL) / 10} % of the FLOPs of the linears run in FP8, by the rows that were planned"
        self.assertEqual(str(found).splitlines()[-1], said)
        self.assertIn(said, found._repr_html_())

    def test_by_the_rows_that_came(self):
        for parts, wrap in ((1, lambda model: model), (3, torch.compile)):
            with self.subTest(parts=parts):
                model = Sequence()
                loka.apply(model, self.usual(), emulate=True)
                step(wrap(model), 48, parts)
                share = loka.resolved(model).fp8_share
                # The head runs no FP8 and is not looked at: its planned rows, at 48 of 100 examples and so many parts.
                self.assertAlmostEqual(share.fp8, parts * 48 * self.IN_FP8)
                self.assertAlmostEqual(share.flops, parts * 48 * self.ALL)
                self.assertEqual((share.step, share.by_plan), (0, 1))
                said = "by the rows of step 0, and the planned ones, in proportion, of 1 linear without FP8"
                self.assertTrue(str(share).endswith(said), share)

    def test_rows_that_are_not_the_plans(self):
        """Recorded at 2 positions, trained at 5."""
        model = Sequence()
        plan = self.plan({
            "each": (200, IN, WIDE, (FP8, None, FP8), 1),
            "tower": (100, WIDE, WIDE, (FP8, BF16, BF16), 2),
            "head": (100, WIDE, OUT, (FP8, FP8, FP8), 1),
        })  # fmt: skip
        loka.apply(model, plan, emulate=True)
        step(model, 48)
        share = loka.resolved(model).fp8_share
        self.assertEqual(share.fp8, 48 * (2 * self.EACH + self.TOWER + 3 * self.HEAD))
        self.assertEqual(share.flops, 48 * self.ALL)
        self.assertEqual(share.by_plan, 0)

    def test_a_frozen_base_has_no_wgrad(self):
        model = Sequence()
        model.tower.weight.requires_grad_(False)
        share = loka.apply(model, self.usual(), emulate=True).fp8_share
        self.assertEqual(share.flops, 100 * (self.ALL - self.TOWER))
        self.assertEqual(share.fp8, 100 * (self.IN_FP8 - self.TOWER))

    def test_a_frozen_model_runs_forward_alone(self):
        model = Sequence()
        loka.apply(model, self.usual(), emulate=True)
        share = loka.freeze(model).fp8_share
        self.assertEqual((share.fp8, share.flops), (100 * (self.EACH + self.TOWER), 100 * (self.EACH + self.TOWER + self.HEAD)))

    def test_nothing_is_guessed_of_what_the_plan_lacks(self):
        plan = self.plan({"each": (500, IN, WIDE, (FP8, None, FP8), 1), "head": (None, WIDE, OUT, (FP8, FP8, FP8), 1)})
        model = Sequence()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            share = loka.apply(model, plan, strict=False, emulate=True).fp8_share
        self.assertEqual((share.fp8, share.flops, share.unknown), (100 * 2 * self.EACH, 100 * 2 * self.EACH, ("tower", "head")))
        said = (
            "100 % of the FLOPs of the linears that are counted run in FP8, by the rows that were planned; "
            "2 linears of unknown rows not: tower, head"
        )
        self.assertEqual(str(share), said)
        step(model, 48)
        share = loka.resolved(model).fp8_share
        self.assertEqual((share.fp8, share.unknown), (48 * (2 * self.EACH + 3 * self.HEAD), ("tower",)))

    def test_a_gemm_that_fell_back_is_no_fp8(self):
        model = Sequence()
        found = loka.apply(model, self.usual(), unavailable="bf16")
        if not torch.cuda.is_available():
            self.assertEqual(found.fp8_share.share, 0.0)
            self.assertTrue(str(found.fp8_share).startswith("0 % of the FLOPs"))

    def test_parameters_that_functions_read_count(self):
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.lead = nn.Linear(IN, IN)
                self.attention = nn.MultiheadAttention(IN, 2, batch_first=True)

            def forward(self, x):
                x = self.lead(x)
                return self.attention(x, x, x, need_weights=False)[0]

        plan = self.plan({
            "lead": (10, IN, IN, (FP8, FP8, FP8), 1),
            "attention.in_proj_weight": (10, IN, 3 * IN, (BF16, BF16, BF16), 1),
            "attention.out_proj": (10, IN, IN, (BF16, BF16, BF16), 1),
        })  # fmt: skip
        share = loka.apply(Attention(), plan, emulate=True).fp8_share
        self.assertEqual((share.share, share.by_plan), (1 / 5, 3))


if __name__ == "__main__":
    unittest.main()
