"""Plans of models with mods: the model has them, gets them, or is refused."""

import pathlib
import sys
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from torch import nn

import loka
from loka.plans import PlanError
from ranker import MODDED, PLAN, Ranker, batch


class Mods(unittest.TestCase):
    def test_a_model_without_the_mods_is_refused_with_what_it_lacks(self):
        model = Ranker()
        with self.assertRaises(PlanError) as refused:
            loka.apply(model, MODDED, emulate=True)
        cause = 'the plan was made for the model with mods, 3 linears lack them (mods="apply" applies them)'
        self.assertEqual(str(refused.exception).split("\n  "), [
            f"{cause}: {MODDED}",
            "'bottom.0' still has a bias (no_bias), a norm over whole rows (block_norm), a swish (hard_swish)",
            "'bottom.3' still has a bias (no_bias), a norm over whole rows (block_norm), a swish (hard_swish)",
            "'top.0' still has a bias (no_bias)",
        ])
        self.assertIs(type(model.top[0]), nn.Linear)

    def test_applied_they_are_there_and_the_head_keeps_its_bias(self):
        model = Ranker()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = loka.apply(model, MODDED, mods="apply", emulate=True)
        self.assertEqual((found.num_fp8, found.problems), (3, ()))
        has_bias = [model.get_submodule(row.site).bias is not None for row in found.rows]
        self.assertEqual(has_bias, [False, False, False, True])
        self.assertEqual([type(model.bottom[i]).__name__ for i in (1, 2)], ["BlockNorm", "HardSwish"])
        loka.unapply(model)
        # Now the model has them: checking passes.
        self.assertEqual(loka.apply(model, MODDED, emulate=True), found)

    def test_what_mods_cannot_reach_is_refused_and_nothing_is_changed(self):
        model = Ranker()
        del model.bottom[2]
        model.bottom.insert(2, Functional())
        before, parts = dict(model.named_parameters()), list(model.modules())
        with self.assertRaises(PlanError) as refused:
            loka.apply(model, MODDED, mods="apply", emulate=True)
        cause = '1 linears lack mods of the plan that mods="apply" cannot give them (strict=False goes on)'
        self.assertEqual(str(refused.exception), f"{cause}: {MODDED}\n  'bottom.0' still has a swish (hard_swish)")
        self.assertEqual(list(model.modules()), parts)
        self.assertTrue(all(now is before[name] for name, now in model.named_parameters()))
        self.assertEqual(len(before), len(list(model.named_parameters())))

    def test_what_mods_cannot_reach_is_said(self):
        model = Ranker()
        del model.bottom[2]
        model.bottom.insert(2, Functional())
        with self.assertWarns(UserWarning) as warned:
            found = loka.apply(model, MODDED, mods="apply", emulate=True, strict=False)
        self.assertEqual(found.problems, ("'bottom.0' still has a swish (hard_swish)",))
        self.assertIn(found.problems[0], str(warned.warning))

    def test_mods_come_before_wrappers(self):
        with self.assertRaises(PlanError) as refused:
            loka.apply(nn.DataParallel(Ranker()), MODDED, mods="apply", emulate=True)
        self.assertIn("the plan's mods cannot be applied: the model is in DataParallel", str(refused.exception))

    def test_ignored_the_model_keeps_its_own(self):
        model = Ranker()
        found = loka.apply(model, MODDED, mods="ignore", emulate=True)
        self.assertEqual(found.num_fp8, 3)
        other = Ranker()
        loka.apply(other, PLAN, emulate=True)
        self.assertTrue(torch.equal(model(batch()), other(batch())))


class Functional(nn.Module):
    def forward(self, x):
        return nn.functional.silu(x)


if __name__ == "__main__":
    unittest.main()
