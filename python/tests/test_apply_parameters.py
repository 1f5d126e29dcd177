"""Products with parameters that functions read: by a plan's kernels they are what the same linear as a module is, to the bit;
what no kernel can be put under stays as it is, and FP8 for it is refused."""

import copy
import gc
import pathlib
import pickle
import sys
import tempfile
import unittest
import warnings
import weakref
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ranker
import torch
import torch.nn.functional as F
from ranker import Ranker
from test_apply_training import of_each_example
from torch import nn
from torch.utils.checkpoint import checkpoint

import loka
from loka.plans import PlanError, StaleWeights
from loka.plans.parameters import ParameterLinear
from loka.plans.parameters import linears as linears_of
from loka.plans.paused import pause, resume
from loka.plans.warned import CanaryWarning
from loka.products import TRACEABLE

DELAYED = "cublaslt/fp8-delayed"


class Reads(nn.Module):
    """The ranker's bottom, a product with a parameter, and a head."""

    def __init__(self, way="linear"):
        super().__init__()
        self.bottom = Ranker(0).bottom
        weight = torch.randn(64, 128, generator=torch.Generator().manual_seed(3)) / 11
        self.mix = nn.Parameter(weight.t().contiguous() if way in ("matmul", "mm", "addmm") else weight)
        self.bias = nn.Parameter(torch.linspace(-1, 1, 64))
        self.head = nn.Linear(64, 1)
        with torch.no_grad():
            self.head.weight.copy_(torch.linspace(-1, 1, 64))
            self.head.bias.zero_()
        self.way = way

    def forward(self, x):
        return self.head(torch.relu(self.multiplied(self.bottom(x)))).squeeze(-1)

    def multiplied(self, x):
        if self.way == "linear":
            return F.linear(x, self.mix, self.bias)
        if self.way == "by name":
            return F.linear(x, weight=self.mix, bias=self.bias)
        if self.way == "turned":
            return x @ self.mix.t() + self.bias
        if self.way == "transposed":
            return torch.matmul(x, self.mix.transpose(0, 1)) + self.bias
        if self.way == "T":
            return x @ self.mix.T + self.bias
        if self.way == "mm":
            return torch.mm(x, self.mix) + self.bias
        return torch.addmm(self.bias, x, self.mix) if self.way == "addmm" else x @ self.mix + self.bias


class Module(Reads):
    """The same with an nn.Linear, which adds the bias in its own type or has it added after it, in FP32."""

    def __init__(self, adds):
        super().__init__()
        weight, bias = self.mix, self.bias
        del self.mix, self.bias
        self.mix = nn.Linear(128, 64)
        self.mix.weight, self.mix.bias = weight, bias
        if not adds:
            self.mix.bias, self.after = None, bias

    def multiplied(self, x):
        return self.mix(x) if self.mix.bias is not None else self.mix(x) + self.after


class Lists(nn.Module):
    """Two low-rank cross layers, their kernels in lists."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.down = nn.ParameterList([nn.Parameter(torch.randn(32, 128) / 11) for _ in range(2)])
        self.up = nn.ParameterList([nn.Parameter(torch.randn(128, 32) / 6) for _ in range(2)])

    def forward(self, first):
        x = first
        for down, up in zip(self.down, self.up):
            x = first * F.linear(F.linear(x, down), up) + x
        return x.mean(1)


class Plans(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def plan(self, kernel=DELAYED, name="mix", forward=None):
        """The first linear's kernels and those of the head are BF16, bottom.3's and the parameter's `kernel`."""

        def change(plan):
            first, second, mix, head = plan["sites"]
            mix.update(site=name, k=128, n=64)
            head["site"] = "head"
            if forward is not None:
                mix["forward"] = forward
            for site, chosen in ((first, "cublaslt/bf16"), (second, kernel), (mix, kernel), (head, "cublaslt/bf16")):
                for gemm in ("fprop", "dgrad", "wgrad"):
                    site[gemm]["kernel"] = chosen

        return loka.load_plan(ranker.forged(self.folder, change))

    def of_lists(self):
        def change(plan):
            names = ("down.0", "up.0", "down.1", "up.1")
            for site, name in zip(plan["sites"], names):
                k, n = (128, 32) if name.startswith("down") else (32, 128)
                site.update(site=name, k=k, n=n, forward="linear")
                for gemm in ("fprop", "dgrad", "wgrad"):
                    site[gemm]["kernel"] = DELAYED

        return loka.load_plan(ranker.forged(self.folder, change))


def train(model, called=None, steps=3, parts=2):
    """Losses of some steps."""
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-2), []
    for step in range(steps):
        for x in ranker.batch(64, step).chunk(parts):
            with torch.autocast("cpu", torch.bfloat16):
                y = (model if called is None else called)(x)
            loss = F.binary_cross_entropy_with_logits(y.float(), (x[:, 0] > 0).float()) / parts
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses


class Fp8(Plans):
    WAYS = ("linear", "by name", "turned", "transposed", "T", "matmul", "mm", "addmm")

    def word(self, way):
        return "matmul" if way in ("matmul", "mm", "addmm") else "linear"

    def test_it_trains_as_the_same_linear_would_as_a_module(self):
        modules = {}
        for adds in (False, True):
            modules[adds] = Module(adds)
            loka.apply(modules[adds], self.plan(), emulate=True)
        losses = {adds: train(module) for adds, module in modules.items()}
        for way in self.WAYS:
            adds = way in ("linear", "by name", "addmm")
            with self.subTest(way=way):
                model = Reads(way)
                found = loka.apply(model, self.plan(forward=self.word(way)), emulate=True)
                self.assertEqual(found.num_fp8, 2)
                self.assertIn("of a parameter that a function reads", str(found))
                self.assertEqual(train(model), losses[adds])
                self.assertIn("6 of 6 FP8 GEMMs checked, 0 off", str(loka.health(model)))
                weight = model.mix if self.word(way) == "linear" else model.mix.t()
                torch.testing.assert_close(weight, modules[adds].mix.weight, rtol=0, atol=0)

    @unittest.skipUnless(TRACEABLE, "PyTorch before 2.10")
    def test_compiled_whole(self):
        for way in ("linear", "by name", "matmul", "mm", "addmm"):
            with self.subTest(way=way):
                eager, model = Reads(way), Reads(way)
                for each in (eager, model):
                    loka.apply(each, self.plan(forward=self.word(way)), emulate=True)
                compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
                for one, other in zip(train(model, compiled), train(eager)):
                    # Compiled, a norm and its activation run as one with the linear before them: a CPU's autocast rounds in between.
                    self.assertAlmostEqual(one, other, delta=1e-2)
                self.assertIn("6 of 6 FP8 GEMMs checked, 0 off", str(loka.health(model)))

    def test_under_torch_func_it_is_the_model_without_a_plan(self):
        x, model, plain = ranker.batch(6), Reads(), Reads()
        loka.apply(model, self.plan(forward="linear"), emulate=True)
        for one, other in zip(of_each_example(model, x), of_each_example(plain, x)):
            self.assertTrue(torch.equal(one, other))

    def test_a_model_that_has_the_parameter_itself_dies_with_its_last_reference(self):
        for called in (False, True):
            model = Reads()
            loka.apply(model, self.plan(forward="linear"), emulate=True)
            train(model, torch.compile(model, backend="eager") if called and TRACEABLE else None)
            dead = weakref.ref(model)
            del model
            gc.collect()
            self.assertIsNone(dead(), f"compiled: {called}")

    @unittest.skipUnless(TRACEABLE, "PyTorch before 2.10")
    def test_what_compiled_code_hides_is_told(self):
        for way in ("T", "turned", "transposed"):
            model = Reads(way)
            loka.apply(model, self.plan(forward="linear"), emulate=True)
            with self.assertWarnsRegex(CanaryWarning, "'mix': no product with the parameter was seen"):
                train(model, torch.compile(model, backend="aot_eager"), 1)
            self.assertIn("3 of 6 FP8 GEMMs checked", str(loka.health(model)))

    @unittest.skipUnless(TRACEABLE, "PyTorch before 2.10")
    def test_compiled_with_operators_of_a_higher_order(self):
        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(x, weight)
                return F.linear(x, weight)

            @staticmethod
            def backward(ctx, dy):
                x, weight = ctx.saved_tensors
                return torch.mm(dy, weight.t().t()), torch.mm(dy.t(), x)

        class Higher(Reads):
            def multiplied(self, x):
                return Own.apply(x, self.mix) + checkpoint(super().multiplied, x, use_reentrant=False)

        model = Higher()
        with loka.Recorder(model, self.folder, every=1, name="m") as recorder:
            recorded = train(model, torch.compile(model, fullgraph=True, backend="aot_eager"), 1)
        plain, planned = Higher(), Higher()
        for one, other in zip(recorded, train(plain, torch.compile(plain, fullgraph=True, backend="aot_eager"), 1)):
            self.assertAlmostEqual(one, other, delta=2e-3)
        loka.apply(planned, self.plan(forward="linear"), emulate=True)
        train(planned, torch.compile(planned, fullgraph=True, backend="aot_eager"), 2)
        # The forward of a function of one's own comes by; a checkpoint that begins inside does not, compiled or not.
        self.assertIn("4 of 6 FP8 GEMMs checked, 0 off", str(loka.health(planned)))

    def test_lists_of_parameters(self):
        model = Lists()
        before = model(ranker.batch(32))
        loka.apply(model, self.of_lists(), emulate=True)
        self.assertGreater(float((model(ranker.batch(32)) - before).abs().max()), 0)
        train(model)
        # The first one's input needs no gradient.
        self.assertIn("11 of 12 FP8 GEMMs checked, 0 off", str(loka.health(model)))

    def test_codes_are_kept_between_steps(self):
        for way in ("linear", "matmul"):
            model = Reads(way)
            loka.apply(model, self.plan(forward=self.word(way)), emulate=True)
            train(model, steps=1)
            (mix,) = [module for _, module in linears_of(model) if isinstance(module, ParameterLinear)]
            codes = mix._loka_codes
            self.assertEqual(codes.for_fprop.bits.shape, (64, 128))
            self.assertEqual(codes.for_dgrad.bits.shape, (128, 64))
            values = codes.for_fprop.bits.float() * codes.for_fprop.scale
            self.assertLess(float((values - mix.weight).abs().max()), 0.04 * float(mix.weight.abs().max()))

    def test_a_loaded_state_dict_is_what_the_next_forward_reads(self):
        for way in ("linear", "matmul"):
            for assign in (False, True):
                with self.subTest(way=way, assign=assign):
                    losses = []
                    for cast_weights in ("step", "forward"):
                        model = Reads(way)
                        loka.apply(model, self.plan(forward=self.word(way)), emulate=True, cast_weights=cast_weights)
                        train(model, steps=2)
                        other = {name: value * 1.5 for name, value in model.state_dict().items()}
                        with warnings.catch_warnings():
                            warnings.simplefilter("error", StaleWeights)
                            model.load_state_dict(other, assign=assign)
                            losses.append(train(model, steps=2))
                        loka.unapply(model)
                        self.assertFalse(model._load_state_dict_post_hooks)
                    self.assertEqual(*losses)

    def test_the_model_keeps_what_it_is(self):
        model = Reads("matmul")
        names, kind, kept = list(model.state_dict()), type(model), model.mix
        reference = copy.deepcopy(model)
        loka.apply(model, self.plan(forward="matmul"), emulate=True)
        self.assertEqual(list(model.state_dict()), names)
        self.assertEqual([name for name, _ in model.named_modules()], [name for name, _ in reference.named_modules()])
        self.assertIs(model.mix, kept)
        self.assertIsInstance(model, kind)
        train(model)
        x = ranker.batch(16)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            torch.testing.assert_close(other(x), model(x), rtol=0, atol=0)
            loka.unapply(other)
            self.assertIs(type(other), kind)
        reference.load_state_dict(model.state_dict())
        pause(model)
        torch.testing.assert_close(model(x), reference(x), rtol=0, atol=0)
        resume(model)
        self.assertFalse(torch.equal(model(x), reference(x)))
        loka.unapply(model)
        self.assertIs(type(model), kind)
        self.assertNotIn("_loka_products", model.__dict__)
        torch.testing.assert_close(model(x), reference(x), rtol=0, atol=0)

    def test_frozen_it_gives_what_it_gave(self):
        for way in ("linear", "matmul"):
            model = Reads(way)
            loka.apply(model, self.plan(forward=self.word(way)), emulate=True)
            train(model)
            model.eval()
            x = ranker.batch(16)
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                before = model(x)
                loka.freeze(model, dtype=torch.bfloat16)
                torch.testing.assert_close(model(x), before, rtol=0, atol=0)
                # What is loaded is cast once more: the same as cast in the call.
                model.load_state_dict({name: value * 1.5 for name, value in model.state_dict().items()})
                by_codes = model(x)
                (mix,) = [module for _, module in linears_of(model) if isinstance(module, ParameterLinear)]
                self.assertIsNotNone(mix.__dict__.pop("_loka_codes"))
                torch.testing.assert_close(model(x), by_codes, rtol=0, atol=0)

    def test_within_a_checkpoint_that_is_begun_inside_it_stays_in_high_precision(self):
        class Inside(Reads):
            def multiplied(self, x):
                return checkpoint(super().multiplied, x, use_reentrant=False)

        model = Inside()
        loka.apply(model, self.plan(forward="linear"), emulate=True)
        with self.assertWarnsRegex(CanaryWarning, "checkpoints inside of the module"):
            train(model, steps=1)

    def test_a_checkpoint_around_it_is_no_matter(self):
        model = Reads()
        loka.apply(model, self.plan(forward="linear"), emulate=True)
        expected = train(model)
        again = Reads()
        loka.apply(again, self.plan(forward="linear"), emulate=True)
        self.assertEqual(train(again, lambda x: checkpoint(again, x, use_reentrant=False)), expected)

    def test_parts_and_other_functions_are_as_they_were(self):
        class Parts(Reads):
            def multiplied(self, x):
                # The whole once, a part, and the parameter for what is no product.
                whole = F.linear(x, self.mix, self.bias)
                part = torch.cat([F.linear(x, self.mix[:32]), x @ self.mix[32:].t()], 1)
                return whole + part + self.mix.sum()

        model, plain = Parts(), Parts()
        loka.apply(model, self.plan(forward="linear"), emulate=True)
        train(model, steps=1)
        self.assertIn("6 of 6", str(loka.health(model)))
        plain.load_state_dict(model.state_dict())
        product = ParameterLinear._loka_product
        with mock.patch.object(ParameterLinear, "_loka_product", autospec=True, side_effect=product) as calls:
            model(ranker.batch(8))
        self.assertEqual(calls.call_count, 1)


class Left(Plans):
    def test_in_high_precision_it_is_left_as_it_is(self):
        for name in ("mix", "mix[0:64]"):
            model = Reads()
            loka.apply(model, self.plan("cublaslt/bf16", name), emulate=True)
            model(torch.randn(4, model.bottom[0].in_features)).sum().backward()
            self.assertIs(type(model), Reads)

    def test_in_high_precision_also_where_the_models_calls_cannot_be_read(self):
        # Data decides what it calls, as a loop over experts does: the graph has a part that nobody can read.
        class Branching(Reads):
            def forward(self, x):
                x = self.bottom(x)
                return self.head(torch.relu(self.multiplied(x if x.sum() > 0 else -x))).squeeze(-1)

        found = loka.apply(Branching(), self.plan("cublaslt/bf16"), emulate=True)
        self.assertEqual(found.problems, ())
        with self.assertRaisesRegex(PlanError, "functional={name: weight}"):
            loka.apply(Branching(), self.plan("cublaslt/fp8-rowwise"), emulate=True)
        self.assertEqual(loka.apply(Branching(), self.plan(forward="linear"), emulate=True).num_fp8, 2)

    def test_what_the_trace_calls_otherwise_is_refused_with_the_reason(self):
        for forward in (None, "parameter"):
            with self.assertRaisesRegex(PlanError, "'mix' is not a module of the model but a parameter that a function"):
                loka.apply(Reads(), self.plan(forward=forward), emulate=True)

    def test_of_another_shape(self):
        with self.assertRaisesRegex(PlanError, "'mix' is 128 -> 64 in the plan, 64 -> 128 in the model"):
            loka.apply(Reads(), self.plan(forward="matmul"), emulate=True)

    def test_a_name_that_is_no_parameter_is_missing_as_ever(self):
        for kernel, forward in (("cublaslt/bf16", None), (DELAYED, "linear")):
            with self.assertRaisesRegex(PlanError, "'mixed' is not in the model"):
                loka.apply(Reads(), self.plan(kernel, "mixed", forward), emulate=True)

    def test_while_it_is_recorded(self):
        model = Reads()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with loka.Recorder(model, self.folder, name="m"), self.assertRaisesRegex(PlanError, "detach the Recorder first"):
                loka.apply(model, self.plan(forward="linear"), emulate=True)


if __name__ == "__main__":
    unittest.main()
