"""loka.apply: what matches and what does not, what stays as it was, and what is said about it."""

import copy
import io
import pathlib
import sys
import tempfile
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ranker
import torch
from torch import nn

import loka
from loka.plans import LokaLinear, PlanError
from ranker import PLAN, Ranker, batch

ABOUT = "the plan was made for 'ranker “é”' of 74,241 parameters, this model has as many"


class Applying(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def forged(self, change):
        return ranker.forged(self.folder, change)

    def refused(self, model, plan=PLAN, **options):
        """The message's lines; the model must be as it was."""
        before = [type(module) for module in model.modules()]
        with self.assertRaises(PlanError) as refused, warnings.catch_warnings():
            warnings.simplefilter("error")
            loka.apply(model, plan, **{"emulate": True, **options})
        self.assertEqual([type(module) for module in model.modules()], before)
        with self.assertRaises(PlanError):
            loka.resolved(model)
        return str(refused.exception).replace(str(plan), "FILE").split("\n  ")


class Matching(Applying):
    def test_the_table_says_what_every_linear_became(self):
        text = """\
plan 'ranker' DIGEST, emulated: slow, for tests
linear      k    n  fprop                          dgrad                     wgrad
bottom.0  128  256  cublaslt/fp8-rowwise*          cublaslt/fp8-tensorwise*  cublaslt/fp8-rowwise+fast*
bottom.3  256  128  cublaslt/fp8-blockwise*        cublaslt/fp8-blockwise*   cublaslt/fp8-blockwise*
top.0     128   64  cublaslt/fp8-tensorwise+fast*  cublaslt/bf16*            cublaslt/bf16*
top.2      64    1  -                              -                         -                           REASON
* chosen by a person
3 of 4 linears run FP8 in at least one GEMM (7 GEMMs)
which share of FLOPs that is, is not known: the plan does not say how many rows a linear has"""
        plan = loka.load_plan(PLAN)
        text = text.replace("DIGEST", plan.digest[:19])
        text = text.replace("REASON", f"left in high precision: {plan.sites[3].fprop.reason}")
        model = Ranker()
        found = loka.apply(model, PLAN, emulate=True)
        self.assertEqual(str(found), text)
        self.assertEqual(loka.resolved(model), found)
        self.assertEqual((found.digest, found.problems), (plan.digest, ()))
        self.assertIn("kernels=cublaslt/fp8-tensorwise+fast | cublaslt/bf16 | cublaslt/bf16", repr(model.top[0]))

    def test_all_that_does_not_match_is_listed(self):
        def edit(plan):
            plan["sites"][0]["site"] = "bottom.00"
            plan["sites"][2].update(k=128, n=32)

        lines = self.refused(Ranker(), self.forged(edit))
        self.assertEqual(lines, [
            "the plan does not fit the model (1 not in the model, 1 not in the plan, 1 of another shape): FILE",
            "'bottom.00' is not in the model (nearest: 'bottom.0')",
            "'bottom.0' (128 -> 256) is not in the plan",
            "'top.0' is 128 -> 32 in the plan, 128 -> 64 in the model",
            ABOUT,
        ])

    def test_not_strict_warns_once_lists_and_goes_on(self):
        def edit(plan):
            plan["sites"][0]["site"] = "bottom.00"
            plan["sites"][2].update(k=128, n=32)

        model = Ranker()
        with self.assertWarns(UserWarning) as warned:
            found = loka.apply(model, self.forged(edit), strict=False, emulate=True)
        self.assertEqual(len(warned.warnings), 1)
        self.assertEqual(warned.filename, __file__)
        self.assertIn("'bottom.00' is not in the model", str(warned.warning))
        self.assertEqual(len(found.problems), 3)
        self.assertEqual([row.kernels is not None for row in found.rows], [False, True, False, False])
        self.assertEqual(found.rows[0].note, "not in the plan")
        self.assertEqual(found.rows[2].note, "left as it is: it is 128 -> 32 in the plan, 128 -> 64 in the model")
        for problem in found.problems:
            self.assertIn(f"problem: {problem}", str(found))
        self.assertIn("1 of 4 linears run FP8", str(found))

    def test_linears_that_the_recorded_model_did_not_train_stay_in_high_precision(self):
        def unseen(plan):
            plan["sites"] = plan["sites"][:2]

        plan = self.forged(unseen)
        model = Ranker()
        with self.assertWarns(UserWarning) as warned:
            found = loka.apply(model, plan, emulate=True)
        self.assertEqual([warned.filename, len(warned.warnings)], [__file__, 1])
        why = "did not run when the model was recorded, or got no gradient"
        self.assertEqual(str(warned.warning), f"not in the plan, so in high precision: top.0, top.2 ({why})")
        self.assertEqual([row.note for row in found.rows[2:]], [f"not in the plan: {why}"] * 2)
        self.assertEqual((found.problems, type(model.top[0])), ((), nn.Linear))
        # Of a model of another size nobody knows what they are.
        larger = nn.ModuleDict({"bottom": model.bottom, "top": nn.Sequential(nn.Linear(128, 65), nn.ReLU(), nn.Linear(65, 1))})
        loka.unapply(model)
        self.assertEqual(self.refused(larger, plan)[0], "the plan does not fit the model (2 not in the plan): FILE")

    def test_a_plan_that_matches_nothing_is_an_error_even_when_not_strict(self):
        def other(plan):
            for site in plan["sites"]:
                site["site"] = "net." + site["site"]

        lines = self.refused(Ranker(), self.forged(other), strict=False)
        self.assertEqual(lines[0], "no site of the plan fits the model (4 not in the model, 4 not in the plan): FILE")
        self.assertIn("the plan's names have 'net.' more in front than the model's", lines)
        outer = nn.ModuleDict({"ranker": Ranker()})
        hint = "the plan's names have 'ranker.' less in front than the model's"
        self.assertIn(hint, self.refused(outer, strict=False))
        empty = self.forged(lambda plan: plan.update(sites=[]))
        self.assertEqual(self.refused(Ranker(), empty, strict=False)[0][:37], "no site of the plan fits the model (4")
        self.assertEqual(self.refused(nn.Sequential(), strict=False)[0][:37], "no site of the plan fits the model (4")

    def test_names_are_those_inside_wrappers(self):
        model = Ranker()
        compiled = torch.compile(nn.DataParallel(model))
        found = loka.apply(compiled, PLAN, emulate=True)
        self.assertEqual([row.site for row in found.rows], ["bottom.0", "bottom.3", "top.0", "top.2"])
        self.assertEqual(loka.resolved(model), found)
        loka.unapply(compiled)
        self.assertIs(type(model.top[0]), nn.Linear)

    def test_a_linear_that_computes_otherwise_is_not_replaced(self):
        class Scaled(nn.Linear):
            def forward(self, input):
                return 2 * super().forward(input)

        model = Ranker()
        model.top[0] = Scaled(128, 64)
        expected = "'top.0' cannot be replaced: its class Scaled has a forward of its own, which a kernel would bypass"
        self.assertEqual(self.refused(model)[1:], [expected, ABOUT])
        with self.assertWarns(UserWarning):
            found = loka.apply(model, PLAN, strict=False, emulate=True)
        self.assertIs(type(model.top[0]), Scaled)
        self.assertTrue(found.rows[2].note.startswith("left as it is: it cannot be replaced: its class Scaled"))
        model = Ranker()
        model.top[0].forward = lambda input: input
        message = "".join(self.refused(model))
        self.assertIn("'top.0' cannot be replaced: its class Linear has a forward of its own", message)
        model = Ranker()
        model.top[0] = nn.LazyLinear(64)
        self.refused(model)

    def test_the_projection_that_attention_never_calls_is_one_by_its_name(self):
        attention = nn.MultiheadAttention(128, 2)
        model = nn.ModuleDict({"attention": attention, "bottom": Ranker().bottom, "top": Ranker().top})
        found = loka.apply(model, PLAN, emulate=True)
        self.assertEqual([row.note for row in found.rows if row.site == "attention.out_proj"], ["not in the plan"])
        self.assertEqual(found.problems, ())
        loka.unapply(model)

        def planned(plan):
            plan["sites"].append({**plan["sites"][1], "site": "attention.out_proj"})

        found = loka.apply(model, self.forged(planned), emulate=True)
        self.assertEqual([row.site for row in found.rows if row.kernels], ["attention.out_proj", "bottom.0", "bottom.3", "top.0"])

    def test_a_fused_encoder_layer_is_said_to_bypass_its_linears(self):
        layer = nn.TransformerEncoderLayer(128, 2, dim_feedforward=256, batch_first=True, dropout=0.0)

        def planned(plan):
            plan["sites"] = [{**plan["sites"][i], "site": f"linear{i + 1}"} for i in (0, 1)]

        x = batch().unsqueeze(0)
        with torch.no_grad():
            evaluated, trained = layer.eval()(x), layer.train()(x)
        found = loka.apply(layer, self.forged(planned), emulate=True)
        note = "in evaluation PyTorch's fused encoder layer runs it in high precision"
        self.assertEqual([row.note for row in found.rows], ["not in the plan", note, note])
        with torch.no_grad():
            self.assertTrue(torch.equal(layer.eval()(x), evaluated))
            self.assertFalse(torch.equal(layer.train()(x), trained))


class Kernels(Applying):
    def test_kernels_that_cannot_run_here_are_all_listed(self):
        # FP8 needs a GPU; without one every FP8 GEMM of the plan is refused, high precision is not.
        lines = self.refused(Ranker(), emulate=False)
        how = 'emulate=True runs their numerics slowly, unavailable="bf16" runs them in BF16'
        here = "move the model there first" if torch.cuda.is_available() else "there is none here"
        self.assertEqual(lines, [f"7 GEMMs of the plan need a CUDA GPU: {here} ({how}): FILE"])
        self.assertEqual(self.refused(Ranker(), emulate=False, strict=False), lines)

        def edit(plan):
            plan["sites"][0]["wgrad"]["kernel"] = "acme/fp4"

        lines = self.refused(Ranker(), self.forged(edit), emulate=False)
        cause = '7 GEMMs of the plan cannot run here (unavailable="bf16" runs them in BF16): FILE'
        self.assertEqual((lines[0], len(lines)), (cause, 3))
        self.assertTrue(lines[1].startswith("'bottom.0' wgrad: unknown kernel 'acme/fp4'"), lines[1])
        self.assertEqual(lines[2], f"6 more need a CUDA GPU: {here}, or emulate=True runs their numerics slowly")

    def test_an_unknown_kernel_and_a_shape_that_a_kernel_refuses(self):
        def edit(plan):
            plan["sites"][0]["wgrad"]["kernel"] = "acme/fp4\n"
            plan["sites"][3]["fprop"]["kernel"] = "cublaslt/fp8-rowwise"

        lines = self.refused(Ranker(), self.forged(edit))
        self.assertTrue(lines[1].startswith("'bottom.0' wgrad: unknown kernel 'acme/fp4 '"), lines[1])
        self.assertIn("'top.2' fprop: cublaslt/fp8-rowwise fprop: n = 1 is less than 16", lines)

    def test_bf16_may_take_their_place_and_is_said(self):
        def edit(plan):
            plan["sites"][0]["wgrad"]["kernel"] = "acme/fp4"
            plan["sites"][3]["fprop"]["kernel"] = "cublaslt/fp8-rowwise"

        found = loka.apply(Ranker(), self.forged(edit), emulate=True, unavailable="bf16")
        self.assertEqual(found.rows[0].kernels, ("cublaslt/fp8-rowwise", "cublaslt/fp8-tensorwise", "cublaslt/bf16"))
        self.assertTrue(found.rows[0].note.startswith("wgrad in BF16: unknown kernel 'acme/fp4'"))
        self.assertIsNone(found.rows[3].kernels)
        self.assertTrue(found.rows[3].note.startswith("left in high precision: fprop in BF16: "))
        model, x = Ranker(), batch()
        before = model(x)
        found = loka.apply(model, PLAN, unavailable="bf16")
        self.assertEqual(found.num_fp8, 0)
        self.assertTrue(torch.equal(model(x), before))

    def test_options_that_do_not_exist(self):
        message = "mods is 'maybe', it must be one of check, apply, ignore"
        self.assertEqual(self.refused(Ranker(), mods="maybe"), [message])
        self.assertIn("unavailable is 'fp4', it must be one of error, bf16", self.refused(Ranker(), unavailable="fp4"))


class Twice(Applying):
    def test_the_same_plan_twice_is_once(self):
        model = Ranker()
        first = loka.apply(model, PLAN, emulate=True)
        classes = [type(module) for module in model.modules()]
        self.assertEqual(loka.apply(model, loka.load_plan(PLAN), emulate=True), first)
        self.assertEqual([type(module) for module in model.modules()], classes)

    def test_another_plan_waits_for_unapply(self):
        model = Ranker()
        digest = loka.apply(model, PLAN, emulate=True).digest
        other = self.forged(lambda plan: plan.update(name="other"))
        differs = {
            "": {"plan": other, "emulate": True},
            " with emulate=True, not False": {"plan": PLAN, "emulate": False},
            " with unavailable='error', not 'bf16'": {"plan": PLAN, "emulate": True, "unavailable": "bf16"},
        }
        for how, options in differs.items():
            with self.assertRaises(PlanError) as refused:
                loka.apply(model, **options)
            expected = f"plan 'ranker' {digest[:19]} is applied to this model{how}: loka.unapply(model) first"
            self.assertEqual(str(refused.exception), expected)
        loka.unapply(model)
        self.assertEqual(loka.apply(model, other, emulate=True).plan, "other")

    def test_a_part_that_has_a_plan(self):
        model = nn.ModuleDict({"ranker": Ranker()})
        loka.apply(model["ranker"], PLAN, emulate=True)
        with self.assertRaises(PlanError) as refused:
            loka.apply(model, PLAN, emulate=True)
        self.assertIn("a plan is applied to a part of this model, 'ranker.bottom.0'", str(refused.exception))
        with self.assertRaises(PlanError):
            loka.resolved(model)

    def test_resolved_looks_at_the_model_as_it_is_now(self):
        model = Ranker()
        loka.apply(model, PLAN, emulate=True)
        model.top[0] = nn.Linear(128, 64)
        del model.bottom[3]
        found = loka.resolved(model)
        self.assertEqual([row.site for row in found.rows], ["bottom.0", "top.0", "top.2"])
        self.assertEqual((found.rows[1].kernels, found.rows[1].note), (None, "changed after the plan was applied"))
        self.assertEqual(found.problems, ("'bottom.3' was removed from the model after the plan was applied",))
        self.assertEqual(found.num_fp8, 1)


class Staying(Applying):
    """A LoKA-aware linear is the module that it was."""

    def test_state_dict_parameters_names_and_hooks_stay(self):
        model, x = Ranker(), batch()
        state, parameters = copy.deepcopy(model.state_dict()), dict(model.named_parameters())
        modules, calls = dict(model.named_modules()), []
        model.top[0].register_forward_hook(lambda module, args, output: calls.append(output.shape))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loka.apply(model, PLAN, emulate=True)
        self.assertEqual(list(model.state_dict()), list(state))
        self.assertTrue(all(torch.equal(model.state_dict()[key], state[key]) for key in state))
        self.assertTrue(all(value is parameters[key] for key, value in model.named_parameters()))
        self.assertTrue(all(value is modules[key] for key, value in model.named_modules()))
        model(x).sum().backward()
        optimizer.step()
        self.assertEqual(calls, [torch.Size([32, 64])])
        self.assertFalse(torch.equal(model.bottom[0].weight, state["bottom.0.weight"]))
        plain = Ranker(seed=5)
        plain.load_state_dict(model.state_dict())
        self.assertTrue(all(torch.equal(plain.state_dict()[key], model.state_dict()[key]) for key in state))
        loka.unapply(model)
        self.assertTrue(torch.equal(plain(x), model(x)))

    def test_unapply_gives_everything_back_to_the_bit(self):
        model, x = Ranker(), batch()
        before, classes = model(x), [type(m) for m in model.modules()]
        attributes = [set(vars(m)) for m in model.modules()]
        loka.apply(model, PLAN, emulate=True)
        self.assertGreater((model(x) - before).norm() / before.norm(), 1e-3)
        loka.unapply(model)
        self.assertTrue(torch.equal(model(x), before))
        self.assertEqual([type(m) for m in model.modules()], classes)
        self.assertEqual([set(vars(m)) for m in model.modules()], attributes)
        loka.unapply(model)

    def test_subclasses_keep_what_they_are(self):
        class Named(nn.Linear):
            """A linear with a method."""

            def name(self):
                return f"{self.in_features} to {self.out_features}"

        model, x = Ranker(), batch()
        model.top[0] = Named(128, 64)
        before = model(x)
        loka.apply(model, PLAN, emulate=True)
        changed = model.top[0]
        self.assertIsInstance(changed, Named)
        self.assertIsInstance(changed, LokaLinear)
        self.assertEqual((changed.name(), type(changed).__name__), ("128 to 64", "LokaNamed"))
        self.assertEqual(copy.deepcopy(changed).name(), "128 to 64")
        loka.unapply(model)
        self.assertIs(type(model.top[0]), Named)
        self.assertTrue(torch.equal(model(x), before))

    def test_copies_and_pickles_have_the_plan(self):
        model, x = Ranker(), batch()
        model.top[0].__class__ = Widened
        found = loka.apply(model, PLAN, emulate=True)
        expected = model(x)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
            self.assertTrue(torch.equal(other(x), expected))
            self.assertEqual(loka.resolved(other), found)
            self.assertIsInstance(other.top[0], Widened)
            loka.unapply(other)
            self.assertIs(type(other.top[0]), Widened)
        self.assertTrue(torch.equal(model(x), expected))


class Widened(nn.Linear):
    """A subclass that a pickle can name."""


if __name__ == "__main__":
    unittest.main()
