"""loka.apply(..., functional=...): linears that run without a module, by the plan's kernels, under their names."""

import copy
import gc
import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from torch import nn

import loka
from functional_support import KERNELS, OTHERS, Functional, Mixed, Unreadable, given, gradients
from loka.kernels import linear as by_kernels
from loka.kernels.named import routed
from loka.plans import PlanError
from ranker import Ranker, batch


class Running(Functional):
    def test_the_plans_kernels_run_it(self):
        model, x = Mixed(), batch()
        loka.apply(model, self.plan(), emulate=True, functional=given(model))
        twin = Mixed()
        twin.load_state_dict(model.state_dict())
        h = x.clone().requires_grad_()
        found = loka.linear(h, model.mix, model.shift, name="mix")
        found.square().sum().backward()
        g = x.clone().requires_grad_()
        expected = by_kernels(g, twin.mix, twin.shift, KERNELS, emulate=True)
        expected.square().sum().backward()
        self.equal(
            [found, h.grad, model.mix.grad, model.shift.grad], [expected, g.grad, twin.mix.grad, twin.shift.grad]
        )
        plain = nn.functional.linear(x, model.mix, model.shift)
        self.assertTrue(1e-3 < (found - plain).norm() / plain.norm() < 0.1)
        self.equal([loka.linear(x, model.mix, model.shift, name="other")], [plain])

    def test_unapply_gives_the_plain_function_back(self):
        model, x = Mixed(), batch()
        before, attributes = gradients(model, x), set(vars(model))
        loka.apply(model, self.plan(), emulate=True, functional=given(model))
        self.assertFalse(torch.equal(model(x), before[0]))
        loka.unapply(model)
        self.assertEqual((routed, set(vars(model))), ({}, attributes))
        self.equal(gradients(model, x), before)
        with self.assertRaises(PlanError):
            loka.resolved(model)
        # And again, by other kernels.
        loka.apply(model, self.plan(OTHERS), emulate=True, functional=given(model))
        expected = by_kernels(x, model.mix, model.shift, OTHERS, emulate=True)
        self.equal([loka.linear(x, model.mix, model.shift, name="mix")], [expected])

    def test_the_state_dict_stays(self):
        model = Mixed()
        state, parameters = copy.deepcopy(model.state_dict()), dict(model.named_parameters())
        loka.apply(model, self.plan(), emulate=True, functional=given(model))
        self.assertEqual(list(model.state_dict()), list(state))
        self.assertTrue(all(torch.equal(value, state[key]) for key, value in model.state_dict().items()))
        self.assertTrue(all(value is parameters[key] for key, value in model.named_parameters()))

    def test_autocast(self):
        model, x = Mixed(), batch()
        loka.apply(model, self.plan(), emulate=True, functional=given(model))
        with torch.autocast("cpu", torch.bfloat16):
            found = loka.linear(x, model.mix, model.shift, name="mix")
            self.assertEqual(found.dtype, torch.bfloat16)
            self.equal([found], [by_kernels(x, model.mix, model.shift, KERNELS, emulate=True)])

    def test_resolved_marks_them(self):
        model = Mixed()
        found = loka.apply(model, self.plan(), emulate=True, functional=given(model))
        self.assertEqual([row.site for row in found.rows], ["bottom.0", "bottom.3", "head", "mix"])
        self.assertEqual([row.functional for row in found.rows], [False, False, False, True])
        row = found.rows[-1]
        self.assertEqual((row.k, row.n, row.kernels, row.note), (128, 64, KERNELS, ""))
        line = next(line for line in str(found).splitlines() if line.startswith("mix"))
        self.assertTrue(line.endswith("  functional"), line)
        self.assertIn("3 of 4 linears run FP8", str(found))
        self.assertEqual(loka.resolved(model), found)

    def test_one_that_is_left_in_high_precision_is_the_plain_function(self):
        model, x = Mixed(), batch()
        plain = loka.linear(x, model.mix, name="mix")
        found = loka.apply(model, self.plan(("cublaslt/bf16",) * 3), emulate=True, functional=given(model))
        self.assertTrue(found.rows[-1].note.startswith("left in high precision: "))
        self.assertIsNone(found.rows[-1].kernels)
        self.equal([loka.linear(x, model.mix, name="mix")], [plain])

    def test_a_weight_of_another_shape_under_the_name(self):
        model = Mixed()
        loka.apply(model, self.plan(), emulate=True, functional=given(model))
        with self.assertRaises(RuntimeError) as raised:
            loka.linear(batch(), torch.zeros(32, 128), name="mix")
        self.assertIn("'mix' runs by a plan for a weight of [64, 128], this one has [32, 128]", str(raised.exception))


class Matching(Functional):
    def test_without_functional_the_error_hints_at_it(self):
        lines = self.refused(Mixed(), None)
        self.assertTrue(lines[0].startswith("the plan does not fit the model (1 not in the model): "), lines[0])
        expected = "'mix' is not a module of the model but a loka.linear: give functional={'mix': weight}"
        self.assertEqual(lines[1], expected)
        lines = self.refused(Unreadable(), None)
        self.assertEqual(lines[1:3], [
            "'mix' is not in the model",
            "sites that run by loka.linear(..., name=...) are matched where functional={name: weight} is given",
        ])
        self.assertNotIn("functional", "".join(self.refused(Ranker(), None)))
        model = Mixed()
        with self.assertWarns(UserWarning) as warned:
            found = loka.apply(model, self.plan(), emulate=True, strict=False)
        self.assertIn(expected, str(warned.warning))
        self.assertEqual(found.problems, (expected,))
        self.assertEqual((found.num_fp8, routed), (2, {}))

    def test_they_are_compared_like_modules(self):
        model = Mixed()
        wrong = {"mix": model.mix[:32], "spare": torch.zeros(16, 128)}
        lines = self.refused(model, wrong)
        self.assertTrue(lines[0].startswith("the plan does not fit the model (1 not in the plan, 1 of another shape"))
        self.assertEqual(lines[1:3], [
            "'spare' (128 -> 16) is not in the plan", "'mix' is 128 -> 64 in the plan, 128 -> 32 in the model",
        ])
        with self.assertWarns(UserWarning):
            found = loka.apply(model, self.plan(), emulate=True, strict=False, functional=wrong)
        notes = {row.site: row.note for row in found.rows if row.functional}
        self.assertEqual(notes["spare"], "not in the plan")
        self.assertEqual(notes["mix"], "left as it is: it is 128 -> 64 in the plan, 128 -> 32 in the model")
        self.assertEqual(routed, {})

    def test_kernels_that_cannot_run_here(self):
        # Without a GPU.
        model = Mixed()
        with self.assertRaises(PlanError) as refused:
            loka.apply(model, self.plan(), functional=given(model))
        # Those of 'mix' among them.
        of_modules = sum(kernel.startswith("cublaslt/fp8") for site in self.plan().sites
                         for kernel in site.kernels if site.site != "mix")
        self.assertTrue(str(refused.exception).startswith(f"{of_modules + 3} GEMMs of the plan need a CUDA GPU: "))
        found = loka.apply(model, self.plan(), functional=given(model), unavailable="bf16")
        self.assertEqual((found.rows[-1].kernels, routed), (None, {}))

    def test_what_is_no_functional_linear(self):
        lazy = nn.LazyLinear(4)
        lines = self.refused(Mixed(), {
            "head": torch.zeros(1, 64), "a": torch.zeros(4), "b": None, "c": (torch.zeros(4, 4), torch.zeros(3)),
            "d": lazy.weight,
        })
        self.assertEqual(lines, [
            "functional must map names of loka.linear to their weights",
            "'head' is a module of the model",
            "'a' has a weight of 1 dimensions, expected [n, k]: apply the plan before FSDP flattens it",
            "'b' has no weight yet, but a NoneType",
            "'c' has a bias [3], expected [4]",
            "'d' has no weight yet, but a UninitializedParameter",
        ])

    def test_mods_of_the_plan(self):
        model = Mixed()
        modded = self.plan(mods={"mix": ["no_bias"], "head": ["no_bias"]})
        lines = self.refused(model, given(model), modded)
        self.assertEqual(lines[1:], ["'mix' still has a bias (no_bias)"])
        with self.assertRaisesRegex(PlanError, "1 linears lack mods of the plan"):
            loka.apply(model, modded, emulate=True, mods="apply", functional=given(model))
        with self.assertWarns(UserWarning):
            found = loka.apply(model, modded, emulate=True, mods="apply", functional=given(model), strict=False)
        self.assertEqual(found.problems, ("'mix' still has a bias (no_bias)",))
        self.assertIsNotNone(model.head.bias)
        loka.unapply(model)
        without = Mixed(bias=False)
        self.assertEqual(loka.apply(without, modded, emulate=True, functional=given(without, bias=False)).problems, ())


class Names(Functional):
    """They are of the process."""

    def test_two_models_with_one_name(self):
        first, second = Mixed(), Mixed()
        loka.apply(first, self.plan(), emulate=True, functional=given(first))
        expected = (
            "functional 'mix' is of another model that a plan is applied to: the names of loka.linear are of the whole "
            "process; loka.unapply that model first, or give each its own names"
        )
        self.assertEqual(self.refused(second, given(second)), [expected])
        loka.unapply(second)
        self.assertEqual(routed["mix"][0], KERNELS)
        loka.unapply(first)
        self.assertEqual(loka.apply(second, self.plan(), emulate=True, functional=given(second)).num_fp8, 3)

    def test_a_name_that_the_other_leaves_in_high_precision(self):
        first, second = Mixed(), Mixed()
        loka.apply(first, self.plan(("cublaslt/bf16",) * 3), emulate=True, functional=given(first))
        self.assertIn("is of another model", self.refused(second, given(second))[0])

    def test_a_model_that_is_gone_leaves_nothing(self):
        model, x = Mixed(), batch()
        plain = loka.linear(x, model.mix, name="mix")
        weight = model.mix
        loka.apply(model, self.plan(), emulate=True, functional=given(model))
        copied = copy.deepcopy(model)
        model.itself = [model]
        del model
        gc.collect()
        self.assertFalse(torch.equal(loka.linear(x, weight, name="mix"), plain), "the copy is there")
        self.assertEqual(loka.resolved(copied).num_fp8, 3)
        copied.itself = [copied]
        del copied
        # In a cycle, not yet collected: it does not stand in the way.
        other = Mixed()
        loka.apply(other, self.plan(), emulate=True, functional=given(other))
        del other
        gc.collect()
        self.assertEqual(routed, {})
        self.equal([loka.linear(x, weight, name="mix")], [plain])

    def test_the_same_plan_twice_is_once_and_other_names_are_not(self):
        model = Mixed()
        plan = self.plan()
        first = loka.apply(model, plan, emulate=True, functional=given(model))
        self.assertEqual(loka.apply(model, plan, emulate=True, functional=given(model)), first)
        self.assertEqual(loka.apply(model, plan, emulate=True, functional={"mix": model.mix}), first)
        for functional in (None, {**given(model), "more": model.mix}):
            lines = self.refused(model, functional, plan)
            self.assertIn("applied to this model, with other functional linears: loka.unapply(model) first", lines[0])

    def test_a_model_from_a_file_says_that_its_names_have_no_kernels(self):
        model, plan = Mixed(), self.plan()
        found = loka.apply(model, plan, emulate=True, functional=given(model))
        file = io.BytesIO()
        torch.save(model, file)
        loka.unapply(model)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        row = loka.resolved(loaded).rows[-1]
        self.assertEqual((row.kernels, row.note), (None, "changed after the plan was applied: apply it again"))
        self.assertEqual(loka.apply(loaded, plan, emulate=True, functional=given(loaded)), found)
        self.assertEqual(routed["mix"], (KERNELS, True, (64, 128)))


if __name__ == "__main__":
    unittest.main()
