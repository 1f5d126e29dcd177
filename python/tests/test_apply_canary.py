"""The canary of a plan: what it says of healthy and of broken GEMMs, when it looks, and what it does about them."""

import copy
import dataclasses
import gc
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
import warnings
import weakref
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
import torch._dynamo.testing
import torch.distributed as dist
import torch.multiprocessing
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode

import loka
from loka import listeners
from loka.catalogue import numerics
from loka.kernels import Scale, Switch, Watch, linear
from loka.kernels.scales import quantize
from loka.kernels.watch import FIELDS, ROWS, observe, sample
from loka.names import GEMMS
from loka.plans import CanaryError, CanaryWarning, PlanError
from loka.plans.canary import WATCH, canary_of
from loka.plans.gemm_health import Beyond, Predicted, Seen, json_lines, judge, predicted_of
from loka.plans.linear import wanted_scales
from ranker import PLAN, Ranker, batch
from ranks_support import joined
from test_apply_distributed import FSDP2_ON_CPU, shard
from triton_support import PYTHON, interpreted, needs_triton

STATIC = "loka/fp8-static+fast"
DELAYED = "cublaslt/fp8-delayed+fast"
TENSORWISE = "cublaslt/fp8-tensorwise"

SCALE = 2.0**-6
"""Of bottom.3's x, with room to spare."""
DEAD = 2.0**13
"""A scale under which nothing of it lives."""


def plan(**sites):
    """The ranker's plan with choices of `site__with__dots={gemm: {field: value}}` replaced."""
    loaded = loka.load_plan(PLAN)
    changed = {name.replace("__", "."): gemms for name, gemms in sites.items()}

    def of(site):
        gemms = changed.get(site.site, {})
        choices = {gemm: dataclasses.replace(getattr(site, gemm), **fields) for gemm, fields in gemms.items()}
        return dataclasses.replace(site, **choices)

    return dataclasses.replace(loaded, sites=tuple(map(of, loaded.sites)))


def static(scale):
    """bottom.3's fprop by a static scale."""
    return plan(bottom__3={"fprop": {"kernel": STATIC, "static_scale": scale}})


def following():
    """bottom.3 by scales that follow its operands."""
    return plan(bottom__3={gemm: {"kernel": DELAYED} for gemm in GEMMS})


def loss_of(model, x):
    return nn.functional.binary_cross_entropy_with_logits(model(x), (x[:, 0] > 0).float())


def train(model, steps=1, x=None, optimizer=None, rows=64):
    """`steps` steps; gives the canary's warnings."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(steps):
            optimizer.zero_grad()
            loss_of(model, batch(rows, seed=step) if x is None else x).backward()
            optimizer.step()
    return [str(one.message) for one in caught if issubclass(one.category, CanaryWarning)]


def row(model, site, gemm):
    return next(row for row in loka.health(model).rows if (row.site, row.gemm) == (site, gemm))


def applied(plan=PLAN, **options):
    model = Ranker()
    loka.apply(model, plan, emulate=True, **options)
    return model


def seen_of(rel_l2, **sums):
    """The sums of a GEMM that was checked once."""
    base = dict.fromkeys(FIELDS, 0.0)
    base.update(error=rel_l2**2 * 100, reference=100.0, nonzero=1e4, mass=10.0, elements=1e4, answers=1e3, calls=1.0)
    return Seen(*{**base, **sums}.values())


class Verdicts(unittest.TestCase):
    def judge(self, kernel, gemm, predicted, rel_l2, flushed=0.0, beyond=0.0, mass=0.03, lost=0.0, **fields):
        seen = seen_of(rel_l2, saturated=beyond * 1e4, flushed=flushed * 1e4, flushed_mass=mass * 10, lost=lost * 1e3)
        return judge(kernel, gemm, Predicted(*predicted), seen._replace(**fields))

    def test_a_healthy_gemm(self):
        for predicted in ((), (0.06,), (0.041,), (0.036,)):
            self.assertEqual(self.judge(TENSORWISE, "dgrad", predicted, 0.06).word, "ok", predicted)
        # Inputs of large means make a small error, which centred ones at the first step have not.
        self.assertEqual(self.judge(TENSORWISE, "dgrad", (0.01,), 0.06).word, "above")
        self.assertEqual(self.judge(TENSORWISE, "fprop", (0.01,), 0.04).word, "above")
        # Few sizes in dy, whose rounding does not average out: seen of a classifier's first step.
        self.assertEqual(self.judge("cublaslt/fp8-delayed+fast", "wgrad", (0.012,), 0.054).word, "above")
        self.assertEqual(self.judge("cublaslt/fp8-delayed+fast", "wgrad", (0.012,), 0.074).word, "off")

    def test_errors(self):
        off = self.judge(TENSORWISE, "dgrad", (0.041,), 0.98, flushed=1.0)
        self.assertEqual((off.word, off.why), ("off", "rel L2 .98 seen, .041 predicted; 100 % of dy became zero"))
        self.assertEqual(self.judge(TENSORWISE, "dgrad", (0.06,), 0.1001).word, "off")
        self.assertEqual(self.judge(TENSORWISE, "fprop", (0.01,), 0.05).word, "off")
        self.assertEqual(self.judge(TENSORWISE, "fprop", (), 0.14).word, "ok")
        self.assertEqual(self.judge(TENSORWISE, "fprop", (), 0.16).why, "rel L2 .16 seen, none predicted")
        self.assertEqual(self.judge("a/kernel", "fprop", (0.04,), 0.08).word, "off")

    def test_shares(self):
        for predicted, rel_l2, limit in (
            ((0.06,), 0.08, 0.25),
            ((0.06, 0.1), 0.08, 0.15),
            # No more error than rounding makes: what became zero was a tail.
            ((0.06,), 0.06, 0.5),
            ((0.06, 0.1), 0.06, 0.5),
            ((0.06, 0.6), 0.06, 0.65),
        ):
            for flushed, word in ((limit - 0.01, "ok"), (limit + 0.01, "off")):
                self.assertEqual(self.judge(TENSORWISE, "wgrad", predicted, rel_l2, flushed=flushed).word, word, limit)
        # However many, where they are next to nothing together, and the error is that of rounding.
        for rel_l2, mass, word in ((0.06, 0.019, "ok"), (0.06, 0.021, "off"), (0.08, 0.0, "off")):
            self.assertEqual(self.judge(TENSORWISE, "wgrad", (0.06,), rel_l2, flushed=0.7, mass=mass).word, word, (rel_l2, mass))
        tail = self.judge(TENSORWISE, "dgrad", (0.06,), 0.01, flushed=0.708, mass=0.001)
        self.assertEqual((tail.word, tail.why), ("ok", "70.8 % of dy became zero, .1 % of its magnitude"))
        # Unless it is all that many a parameter gets.
        lost = self.judge(TENSORWISE, "wgrad", (0.06,), 0.01, flushed=0.3, mass=0.001, lost=0.3)
        self.assertEqual(lost.why, "rel L2 .01 seen, .06 predicted; 30 % of dy became zero; 30 % of the gradient became zero")
        self.assertEqual([lost.word, self.judge(TENSORWISE, "dgrad", (0.06,), 0.01, lost=0.3).word], ["off", "ok"])
        off = self.judge(STATIC, "fprop", (0.036,), 0.05, beyond=0.002)
        self.assertEqual((off.word, off.why), ("off", "rel L2 .05 seen, .036 predicted; .2 % of x saturates"))
        # A gradient of one magnitude, all of it a little beyond: nothing is lost.
        self.assertEqual(self.judge(STATIC, "dgrad", (0.036,), 0.03, beyond=1.0).word, "ok")

    def test_steps_that_no_check_saw(self):
        seen = seen_of(0.03)
        of = lambda *beyond: judge("cublaslt/fp8-delayed", "dgrad", Predicted(0.04), seen, Beyond(*beyond))
        self.assertEqual(of(0, 1000), ("ok", "", of().severity))
        rare = of(2, 1000, 1.13)
        self.assertEqual((rare.word, rare.why), ("ok", "dy was beyond its scale in 2 of the last 1000 steps, 1.1 times at most"))
        self.assertEqual(of(2, 10, 7.9).word, "ok")
        leap = of(1, 1000, 37.0)
        self.assertEqual((leap.word, leap.why), ("off", "dy was beyond its scale in 1 of the last 1000 steps, 37 times at most"))
        often = of(37, 1000, 5.1)
        self.assertEqual((often.word, often.why), ("off", "dy was beyond its scale in 37 of the last 1000 steps, 5.1 times at most"))

    def test_what_is_no_number(self):
        nan = {"squared_errors": math.nan, "not_finite": 3.0}
        off = self.judge(TENSORWISE, "fprop", (0.04,), 0, **nan)
        self.assertEqual((off.word, off.why), ("off", "3 sampled outputs are not finite, BF16's are"))
        self.assertEqual(self.judge(TENSORWISE, "fprop", (0.04,), 0, squares=math.inf, **nan).word, "unclear")
        self.assertEqual(self.judge(TENSORWISE, "fprop", (0.04,), 0, calls=0.0).word, "not run")
        self.assertEqual(self.judge(TENSORWISE, "fprop", (0.04,), 0, squares=0.0).word, "ok")
        self.assertEqual(self.judge(TENSORWISE, "fprop", (0.04,), 0.5, squares=0.0).word, "off")

    def test_what_a_plan_predicts(self):
        choice = loka.load_plan(PLAN).sites[0].dgrad
        predicted = lambda choice: predicted_of(choice).rel_l2
        self.assertEqual(predicted(choice), 0.05836002753066442)
        told = dataclasses.replace(choice, error={"sqnr_db": 20.0, "mere": 0.3})
        self.assertAlmostEqual(predicted(told), 0.1)
        self.assertIsNone(predicted(dataclasses.replace(choice, error={"mere": 0.3})))
        # Of wgrad, whichever time in training it is.
        by_step = dataclasses.replace(choice, error={"rel_l2": 0.01}, rel_l2_first=0.04, rel_l2_last=0.02)
        self.assertEqual(predicted(by_step), 0.04)

    def test_an_error_is_held_against_the_upper_end_of_its_interval(self):
        choice = dataclasses.replace(loka.load_plan(PLAN).sites[0].dgrad, rel_l2_lo=0.05, rel_l2_hi=0.08)
        told, seen = predicted_of(choice), 0.125
        self.assertEqual(told.interval, (0.05, 0.08))
        self.assertEqual(judge(TENSORWISE, "dgrad", told, seen_of(seen)).word, "ok")
        alone = judge(TENSORWISE, "dgrad", told._replace(interval=(None, None)), seen_of(seen))
        self.assertEqual((alone.word, alone.why), ("off", "rel L2 .12 seen, .058 predicted"))
        self.assertIn(".2 seen, .058 (.05 to .08) predicted", judge(TENSORWISE, "dgrad", told, seen_of(0.2)).why)
        # Which of the two it is like is not known of wgrad; drawn was one.
        self.assertEqual(predicted_of(dataclasses.replace(choice, rel_l2_last=0.09)).interval, (None, None))


class Healthy(unittest.TestCase):
    def test_twenty_steps_without_a_word(self):
        gradients = {"kernel": TENSORWISE, "error": {"rel_l2": 0.058}}
        given = plan(bottom__3={"fprop": {"kernel": STATIC, "static_scale": SCALE}}, top__0={"dgrad": gradients})
        model = applied(given, check_every=1)
        self.assertEqual(train(model, 20, rows=32), [])
        health = loka.health(model)
        self.assertEqual(health.off, ())
        ran = [row for row in health.rows if row.verdict != "not run"]
        # Nothing asks for the gradient of the model's input.
        self.assertEqual(len(health.rows) - len(ran), 1)
        for row in ran:
            self.assertEqual((row.verdict, row.step), ("ok", 19))
            self.assertTrue(0.015 < row.seen < 0.07, row)

    def test_only_every_so_many_steps(self):
        model = applied(check_every=4)
        for step in range(9):
            active = model.bottom[0].__dict__[WATCH].switch.active
            self.assertEqual(active, step % 4 == 0)
            train(model)
            self.assertEqual(row(model, "bottom.0", "fprop").step, step // 4 * 4)

    def test_an_unchecked_step_does_what_it_did(self):
        class Log(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                calls.append(str(function))
                return function(*args, **(kwargs or {}))

        found = []
        for every in (1000, None):
            model = applied(check_every=every)
            optimizer = torch.optim.SGD(model.parameters(), 1e-2)
            train(model, optimizer=optimizer)
            calls = []
            with Log():
                train(model, optimizer=optimizer)
            found.append(calls)
        self.assertEqual(*found)

    def test_evaluation_is_not_looked_at(self):
        model = applied()
        model.eval()(batch())
        self.assertEqual(model.bottom[0].__dict__[WATCH].stats["fprop"].tolist(), [0.0] * len(FIELDS))


class Tails(unittest.TestCase):
    """Seven of ten elements of dy far below what a scale of the tensor can say."""

    def judged(self, gemm, tiny):
        seeded = torch.Generator().manual_seed(0)
        dy, x, weight = (torch.randn(shape, generator=seeded).bfloat16() for shape in ((640, 80), (640, 48), (80, 48)))
        (dy.t() if tiny == "features" else dy)[: 7 * len(dy if tiny == "examples" else dy.t()) // 10] *= 2.0**-40
        other = x.t() if gemm == "wgrad" else weight.t()
        # As a kernel computes it, its scale left in the codes.
        bits, scale = quantize(dy, numerics(TENSORWISE, gemm).a)
        left = bits.double() * scale.double()
        got = (left.t() if gemm == "wgrad" else left) @ other.t().double()
        sums = torch.zeros(len(FIELDS), dtype=torch.float64)
        observe(sums, gemm, got.bfloat16(), dy, x if gemm == "wgrad" else weight, TENSORWISE, None)
        seen = Seen(*sums.tolist())
        self.assertTrue(0.6 < seen.flushed < 0.8 and seen.flushed_mass < 1e-9, seen)
        return judge(TENSORWISE, gemm, Predicted(0.06), seen)

    def test_of_examples_that_a_model_knows_by_heart(self):
        for gemm in ("dgrad", "wgrad"):
            verdict = self.judged(gemm, "examples")
            self.assertEqual(verdict.word, "ok", verdict)
            self.assertIn("of dy became zero, ", verdict.why)

    def test_of_features_whose_weights_then_get_nothing(self):
        verdict = self.judged("wgrad", "features")
        self.assertEqual(verdict.word, "off")
        self.assertTrue(verdict.why.endswith("; 68.8 % of the gradient became zero"), verdict.why)
        self.assertEqual(self.judged("dgrad", "features").word, "ok")


class Sampled(unittest.TestCase):
    """Which rows a check looks at."""

    def test_each_position_of_a_sequence(self):
        for period in range(2, 65):
            for examples in (64, 100, 8192):
                rows = sample(period * examples, torch.device("cpu"))
                self.assertEqual(set((rows % period).tolist()), set(range(period)), (period, examples))

    def test_different_rows_and_always_the_same_ones(self):
        for rows in (*range(1, 1000), 4489, 65536, 2**31):
            taken = sample(rows, torch.device("cpu"))
            self.assertEqual(len(set(taken.tolist())), min(rows, ROWS), rows)
            self.assertTrue(0 <= taken.min() and taken.max() < rows, rows)
            self.assertTrue(torch.equal(taken, sample(rows, torch.device("cpu"))))

    def test_they_are_spread(self):
        for rows in (704, 8192, 90112):
            gaps = sample(rows, torch.device("cpu")).sort().values.diff()
            self.assertLess(gaps.max().item(), 4 * rows / ROWS)

    def test_a_model_of_which_only_the_last_of_eleven_positions_learns(self):
        model = applied(plan(bottom__3={"dgrad": {"kernel": TENSORWISE}}))
        x = torch.randn(64, 11, 128, generator=torch.Generator().manual_seed(0))
        nn.functional.binary_cross_entropy_with_logits(model(x)[:, -1], (x[:, -1, 0] > 0).float()).backward()
        torch.optim.SGD(model.parameters(), 1e-2).step()
        found = row(model, "bottom.3", "dgrad")
        # At a stride of 704 / 64 = 11 every sampled gradient was zero.
        self.assertEqual((found.verdict, found.note), ("ok", ""))
        self.assertTrue(0.015 < found.seen < 0.07, found)

    def test_numbers_of_rows_that_differ_are_one_compiled_variant(self):
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        self.addCleanup(torch._dynamo.reset)
        compiled = torch.compile(observe, fullgraph=True, dynamic=True, backend=counter)
        weight = torch.randn(48, 32, generator=torch.Generator().manual_seed(1))
        for rows in (704, 90, 8192):
            x = torch.randn(rows, 32, generator=torch.Generator().manual_seed(rows))
            found = []
            for look in (observe, compiled):
                found.append(torch.zeros(len(FIELDS), dtype=torch.float64))
                look(found[-1], "fprop", x @ weight.t(), x, weight, TENSORWISE, None)
            self.assertEqual(found[0].tolist(), found[1].tolist())
            self.assertEqual(found[0][FIELDS.index("rows")], rows)
        self.assertEqual(counter.frame_count, 1)


INTERPRETED = textwrap.dedent("""
    import math
    import torch
    from loka.catalogue import numerics
    from loka.kernels import triton_watch
    from loka.kernels.watch import _added, _limits, sample

    torch.manual_seed(0)
    scale, cases = torch.tensor([2.0**-3]), 0
    for rows, cols, depth in ((1, 3, 16), (100, 70, 48), (704, 300, 80)):
        at = sample(rows, torch.device("cpu"))
        for dtype in (torch.bfloat16, torch.float32):
            whole = torch.randn(rows, depth).bfloat16()
            left = whole[at]
            # Saturates or not, a tie at zero and next to it, and what is no number.
            edges = [448, 449, 2.0**-10, 2.0**-10 * 1.01, -(2.0**-10), 0, math.inf, math.nan, -1e30]
            left[0, : len(edges)] = torch.tensor(edges) * scale
            got = torch.randn(rows, 2 * cols).to(dtype)[:, ::2]
            reference = torch.randn(len(at), cols).bfloat16()
            if rows == 100:
                got[at[3], 5], got[at[4], 6] = math.nan, -math.inf
            for kernel in ("loka/fp8-static+fast", "cublaslt/fp8-rowwise"):
                how = numerics(kernel, "fprop")
                static = scale if how.a.granularity == "static" else None
                wanted = _added(got[at], reference, left, whole, rows, how, scale)
                if static is None:
                    wanted[3:5] = 0
                for stored in (left, left.t().contiguous()):
                    found = triton_watch.sums_of(got, at, reference, stored, rows, static, *_limits(how))
                    sums = [0, 1, 4, 6]
                    assert torch.allclose(found[sums], wanted[sums], rtol=1e-12, equal_nan=True), (found, wanted)
                    counts = [at for at in range(len(wanted)) if at not in sums]
                    assert torch.equal(found[counts], wanted[counts]), (kernel, rows, found, wanted)
                    cases += 1
    print(cases, "cases the same")
""")


COMPILED = textwrap.dedent("""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from loka.kernels.triton_kernels import observe_kernel

    matrices = dict(got="*bf16", rows="*i64", reference="*bf16", left="*bf16", scale="*fp32", partials="*fp64")
    sizes = dict.fromkeys("cols row_stride col_stride num_errors num_left error_programs whole_rows".split(), "i32")
    for static in (True, False):
        fixed = dict(STATIC=static, LARGEST=448.0, ZERO_TO=2.0**-10, BLOCK=4096)
        source = ASTSource(observe_kernel, {**matrices, **sizes, **dict.fromkeys(fixed, "constexpr")}, fixed)
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
    print("compiled for compute capability 9.0")
""")


@needs_triton
class ByTriton(unittest.TestCase):
    @unittest.skipUnless(torch.__version__ >= (2, 11), "Triton was asked in another way before")
    def test_a_gpu_takes_what_the_interpreter_takes(self):
        # It lets a name be of one type in one branch and of another in the other.
        done = subprocess.run([sys.executable, "-c", COMPILED], env={**os.environ, "PYTHONPATH": str(PYTHON)}, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "compiled for compute capability 9.0"), done.stderr)

    def test_what_plain_operations_say(self):
        interpreted(self, INTERPRETED, "24 cases the same")


class Broken(unittest.TestCase):
    def test_a_scale_that_is_off_by_2_to_the_13(self):
        for scale, why in ((SCALE * 2**13, "% of x became zero"), (SCALE / 2**13, "% of x saturates")):
            model = applied(static(scale))
            said = train(model)
            self.assertEqual(len(said), 1)
            self.assertIn(f"loka: bottom.3 fprop by {STATIC} is off: rel L2 ", said[0])
            self.assertIn(" seen, .037 predicted; ", said[0])
            self.assertIn(why, said[0])
            self.assertGreater(row(model, "bottom.3", "fprop").seen, 0.1)
            self.assertTrue(said[0].endswith(" (on_violation='bf16' would run it in BF16)"))
            self.assertEqual([row.site for row in loka.health(model).off], ["bottom.3"])

    def test_a_first_step_beyond_a_scale_that_follows(self):
        # The plan's is of trained weights, say: the second step is checked too, and goes by what the first has seen.
        model = applied(plan(bottom__3={
            "fprop": {"kernel": DELAYED, "static_scale": SCALE / 16}, "wgrad": {"kernel": DELAYED}
        }))  # fmt: skip
        self.assertEqual(train(model), [])
        first = row(model, "bottom.3", "fprop")
        self.assertGreater(first.saturated, 0)
        self.assertRegex(str(loka.health(model)), r"unclear: x was [0-9.]+ times as large as the plan's scale holds, which follows it")
        self.assertEqual(train(model), [])
        self.assertEqual({row(model, "bottom.3", gemm).verdict for gemm in ("fprop", "wgrad")}, {"ok"})
        self.assertEqual(row(model, "bottom.3", "fprop").step, 1)

    def test_gradients_that_a_scale_has_lost(self):
        model = applied(following(), check_every=1)
        self.assertEqual(train(model, 3), [])
        model.bottom[3]._loka_scales[1].scale.mul_(2.0**13)
        model.bottom[3]._loka_scales[1].inverse.mul_(2.0**-13)
        said = train(model)
        self.assertEqual(len(said), 2)
        for line, gemm in zip(said, ("dgrad", "wgrad")):
            self.assertIn(f"loka: bottom.3 {gemm} by {DELAYED} is off: rel L2 ", line)
            self.assertIn("% of dy became zero", line)

    def test_a_saturating_input(self):
        model = applied(static(SCALE), check_every=2)
        self.assertEqual(train(model, 2), [])
        with torch.no_grad():
            hook = model.bottom[3].register_forward_pre_hook(lambda _, inputs: inputs[0] * 40)
        said = train(model)
        hook.remove()
        self.assertIn("bottom.3 fprop", said[0])
        self.assertIn("of x saturates", said[0])
        self.assertEqual(row(model, "bottom.3", "fprop").verdict, "off")

    def test_gradients_that_leap_between_two_checks(self):
        model = applied(following(), check_every=40)
        optimizer = torch.optim.SGD(model.parameters(), 1e-6)
        self.assertEqual(train(model, 2, optimizer=optimizer), [])
        said = []
        for step in range(2, 42):
            optimizer.zero_grad()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                (loss_of(model, batch(64)) * (64.0 if step % 10 == 5 else 1.0)).backward()
                optimizer.step()
            said += [str(one.message) for one in caught if issubclass(one.category, CanaryWarning)]
        lines = [line for line in said if "bottom.3 dgrad" in line]
        self.assertEqual(len(lines), 1, said)
        self.assertIn("dy was beyond its scale in 4 of the last 40 steps", lines[0])
        self.assertEqual(row(model, "bottom.3", "dgrad").overflow_steps, 4)
        self.assertEqual(row(model, "bottom.3", "fprop").overflow_steps, 0)
        self.assertIsNone(row(model, "bottom.0", "fprop").overflow_steps)

    def test_a_stale_plan(self):
        # What was recorded had no example that is ten million times as large as the others.
        model = applied(plan(bottom__0={"fprop": {"kernel": TENSORWISE}}), check_every=1)
        self.assertEqual(train(model), [])
        x = batch(64)
        x[8] *= 1e7
        said = train(model, x=x)
        self.assertTrue(any("bottom.0 wgrad" in line and "of the gradient became zero" in line for line in said), said)

    def test_it_is_said_again_only_when_it_is_worse(self):
        model = applied(check_every=1)
        seen = seen_of(0.2)
        said = []
        for rel_l2 in (0.2, 0.21, 0.39, 0.41, 0.5, math.nan, math.nan):
            sums = model.bottom[0].__dict__[WATCH].stats["fprop"]
            model.eval()
            sums.copy_(torch.tensor(seen._replace(squared_errors=rel_l2**2 * 100), dtype=torch.float64))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                loka.step(model)
            said.append(len(caught))
        self.assertEqual(said, [1, 0, 0, 1, 0, 1, 0])

    def test_a_warning_ends_no_training(self):
        model = applied(static(DEAD))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss_of(model, batch()).backward()
            torch.optim.SGD(model.parameters(), 1e-2).step()
        self.assertEqual(len(loka.health(model).off), 1)


class Modes(unittest.TestCase):
    def test_bf16(self):
        model = applied(static(DEAD), on_violation="bf16")
        said = train(model)
        self.assertEqual(len(said), 1)
        self.assertTrue(said[0].endswith("; it runs in BF16 from here on"))
        resolved = loka.resolved(model)
        row = next(row for row in resolved.rows if row.site == "bottom.3")
        self.assertEqual(row.kernels, ("cublaslt/bf16", "cublaslt/fp8-blockwise", "cublaslt/fp8-blockwise"))
        self.assertIn(f"fprop was planned by {STATIC}: rel L2 1 seen, .037 predicted", row.note)
        self.assertIn("in BF16 since step 1", row.note)
        plain, x = Ranker(), batch()
        plain.load_state_dict(model.state_dict())
        with torch.no_grad():
            hidden = model.bottom[:3](x)
            error = (model.bottom[3](hidden) - plain.bottom[3](hidden)).norm() / plain.bottom[3](hidden).norm()
        self.assertLess(error, 0.01)
        self.assertEqual(loka.resolved(copy.deepcopy(model)).rows, resolved.rows)
        self.assertEqual(loka.health(model).off[0].site, "bottom.3")
        loka.apply(model, static(DEAD), emulate=True, on_violation="bf16", check_every=1)
        self.assertEqual(train(model, 2), [])
        self.assertNotIn(("bottom.3", "fprop"), [(row.site, row.gemm) for row in loka.health(model).rows])
        loka.unapply(model)
        plain.load_state_dict(model.state_dict())
        self.assertTrue(torch.equal(model(x), plain(x)))

    def test_a_linear_that_has_lost_all_its_fp8(self):
        model = applied(following(), check_every=1, on_violation="bf16")
        train(model)
        for scale in model.bottom[3]._loka_scales:
            scale.scale.mul_(2.0**20)
            scale.inverse.mul_(2.0**-20)
        self.assertEqual(len(train(model)), 3)
        self.assertEqual(loka.resolved(model).rows[1].kernels, ("cublaslt/bf16",) * 3)
        self.assertEqual(model.bottom[3]._loka_scales, (None, None))
        self.assertEqual(train(model, 2), [])

    def test_raise(self):
        model = applied(static(DEAD), on_violation="raise")
        with self.assertRaises(CanaryError) as raised:
            train(model)
        self.assertIsInstance(raised.exception, PlanError)
        first, second = str(raised.exception).split("\n")
        self.assertEqual(first, "1 GEMMs are not as the plan predicted")
        self.assertIn(f"bottom.3 fprop by {STATIC} is off: rel L2 1 seen", second)
        self.assertEqual(loka.health(model).steps, 1)
        train(model)

    def test_never(self):
        for never in (None, 0):
            model = applied(static(DEAD), check_every=never)
            self.assertEqual(train(model), [])
            with self.assertRaisesRegex(PlanError, "this model is not checked: check_every is None"):
                loka.health(model)
            loka.step(model)

    def test_wrong_options(self):
        for options, said in (
            ({"check_every": -1}, "check_every is -1, it must be a number of steps, or None for no check"),
            ({"check_every": True}, "check_every is True"),
            ({"check_every": 2.5}, "check_every is 2.5"),
            ({"on_violation": "stop"}, "on_violation is 'stop', it must be one of warn, bf16, raise"),
        ):
            model = Ranker()
            with self.assertRaises(PlanError) as refused:
                loka.apply(model, PLAN, emulate=True, **options)
            self.assertIn(said, str(refused.exception))
            self.assertEqual(type(model.bottom[0]), nn.Linear)
        for function in (loka.health, loka.step):
            with self.assertRaisesRegex(PlanError, "no plan is applied to this model"):
                function(Ranker())


class Steps(unittest.TestCase):
    def sums(self, model, gemm="fprop"):
        return model.bottom[3].__dict__[WATCH].stats[gemm].tolist()

    def test_accumulation(self):
        model = applied()
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for part in range(3):
            loss_of(model, batch(64, part)).backward()
        for gemm in GEMMS:
            self.assertEqual(self.sums(model, gemm)[-2:], [3, 3 * 64])
        optimizer.step()
        self.assertEqual(self.sums(model), [0.0] * len(FIELDS))
        self.assertEqual([row.verdict for row in loka.health(model).rows].count("ok"), 6)
        loss_of(model, batch()).backward()
        self.assertEqual(self.sums(model), [0.0] * len(FIELDS))

    def test_accumulation_catches_what_one_batch_in_three_does(self):
        model = applied(static(SCALE))
        for scale in (1, 1000, 1):
            hook = model.bottom[3].register_forward_pre_hook(lambda _, inputs: inputs[0] * scale)
            loss_of(model, batch(64)).backward()
            hook.remove()
        with self.assertWarns(CanaryWarning):
            torch.optim.SGD(model.parameters(), 1e-2).step()
        self.assertEqual(row(model, "bottom.3", "fprop").verdict, "off")

    def test_two_optimizers_are_one_step(self):
        model = applied(check_every=1)
        bottom = torch.optim.SGD(model.bottom.parameters(), 1e-2)
        top = torch.optim.Adam(model.top.parameters())
        other = torch.optim.SGD(nn.Linear(2, 2).parameters(), 1e-2)
        for _ in range(3):
            loss_of(model, batch()).backward()
            for optimizer in (other, top, bottom):
                optimizer.step()
        self.assertEqual(loka.health(model).steps, 3)

    def test_two_models_have_their_own(self):
        one, other = applied(check_every=2), applied(check_every=3)
        train(one, 2)
        self.assertEqual([loka.health(model).steps for model in (one, other)], [2, 0])
        train(other, 3)
        self.assertEqual([loka.health(model).steps for model in (one, other)], [2, 3])

    def test_by_hand(self):
        model = applied(static(DEAD), check_every=1)
        loss_of(model, batch()).backward()
        self.assertIn("no step has ended yet", str(loka.health(model)))
        with self.assertWarnsRegex(CanaryWarning, "bottom.3 fprop"):
            loka.step(model)
        train(model, 2)
        self.assertEqual(loka.health(model).steps, 1)

    def test_by_hand_scales_follow_too(self):
        model = applied(following(), check_every=None)
        loss_of(model, batch()).backward()
        before = [scale.scale.item() for scale in model.bottom[3]._loka_scales]
        loka.step(model)
        self.assertEqual(before, [0.0, 0.0])
        self.assertTrue(all(scale.scale.item() > 0 for scale in model.bottom[3]._loka_scales))

    def test_that_nobody_ends_a_step_is_said_once(self):
        model = applied()
        masters = torch.optim.SGD([parameter.detach().clone() for parameter in model.parameters()], 1e-2)
        with mock.patch("loka.steps.FOREIGN_STEPS", 3):
            said = train(model, 7, optimizer=masters)
            idle = applied()
            said_of_idle = train(Ranker(), 7)
        self.assertEqual((len(said), said_of_idle), (1, []))
        self.assertIn("none that holds a weight of the plan: call loka.step(model)", said[0])
        self.assertEqual(loka.health(idle).notes[1:], ())
        self.assertIn(said[0].removeprefix("loka: "), str(loka.health(model)))

    def test_a_step_of_infinities_is_no_check(self):
        # As GradScaler makes them until it has found its scale; with a fused optimizer they count as steps.
        model = applied(check_every=1000)
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for step, factor in enumerate((math.inf, 1.0, 1.0)):
            self.assertEqual(model.bottom[0].__dict__[WATCH].switch.active, step < 2)
            (loss_of(model, batch()) * factor).backward()
            optimizer.zero_grad()
            optimizer.step()
            self.assertEqual(row(model, "bottom.3", "dgrad").verdict, "unclear" if step == 0 else "ok")

    def test_a_grad_scaler(self):
        model = applied(check_every=1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        with warnings.catch_warnings():
            warnings.simplefilter("error", CanaryWarning)
            for _ in range(3):
                scaler.scale(loss_of(model, batch())).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        self.assertEqual(loka.health(model).off, ())
        self.assertEqual(loka.health(model).steps, 3)


class Compiled(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)

    def test_two_variants_and_no_more(self):
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        model = applied(check_every=3)
        compiled = torch.compile(model, fullgraph=True, backend=counter)
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for step in range(8):
            loss_of(compiled, batch(64, step)).backward()
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(counter.frame_count, 2)
        health = loka.health(compiled)
        self.assertEqual({row.step for row in health.rows if row.seen is not None}, {6})
        self.assertEqual([row.verdict for row in health.rows].count("ok"), 6)

    def test_a_checked_step_is_less_to_compile_than_the_others(self):
        sizes = []

        def count(graph, inputs):
            sizes.append(sum(node.op == "call_function" for node in graph.graph.nodes))
            return make_boxed_func(graph.forward)

        model = applied(following())
        compiled = torch.compile(model, fullgraph=True, backend=aot_autograd(fw_compiler=count))
        train(compiled, 2)
        checked, unchecked = sum(sizes[:2]), sum(sizes[2:])
        gemms = sum(row.seen is not None for row in loka.health(compiled).rows)
        self.assertEqual((len(sizes), gemms), (4, 6))
        # Where torch.compile looks into the checks they are 75 operations a GEMM, and compiling takes three times as long.
        self.assertLess(checked, unchecked)

    def test_a_linear_that_is_checked_is_what_it_is_without_a_compiler(self):
        """Two operators there: outputs, gradients, the largest values that scales follow, what saturates, and the sums."""
        for kernels in (
            (DELAYED,) * 3, (STATIC, STATIC, "cublaslt/bf16"), (STATIC, DELAYED, DELAYED), (TENSORWISE,) * 3,
            ("cublaslt/fp8-rowwise",) * 3, ("deepgemm/blockwise", "cublaslt/bf16", "cublaslt/tf32"), ("cublaslt/bf16", DELAYED, TENSORWISE),
        ):
            for dtype in (torch.float32, torch.bfloat16):
                # A plan says the scale of those that do not find one.
                for known in (2.0**-9,) if STATIC in kernels else (0.0, 2.0**-9):
                    with self.subTest(kernels=kernels, dtype=dtype, known=known):
                        eager, compiled = (self.checked(wrap, kernels, dtype, known) for wrap in (lambda run: run, self.traced))
                        for name, one in eager.items():
                            self.assertTrue(torch.equal(one, compiled[name]), name)
                            self.assertEqual(one.dtype, compiled[name].dtype, name)

    def traced(self, run):
        torch._dynamo.reset()
        return torch.compile(run, fullgraph=True, backend="aot_eager")

    def checked(self, wrap, kernels, dtype, known):
        torch.manual_seed(3)
        leaves = [torch.randn(*shape).to(dtype).requires_grad_(True) for shape in ((5, 8, 128), (256, 128), (256,))]
        scales = tuple(Scale.of(known, torch.device("cpu")) if wanted else None for wanted in wanted_scales(kernels))
        watch = Watch(Switch(True), torch.device("cpu"), GEMMS)
        run = wrap(lambda x, weight, bias: linear(x, weight, bias, kernels, True, scales, False, 0, watch))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = run(*leaves)
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(4)).to(y.dtype)
        gradients = torch.autograd.grad(y, leaves, dy)
        found = {"y": y.detach(), **dict(zip(("dx", "dw", "db"), gradients)), **watch.stats}
        for name, scale in zip(("x", "dy"), scales):
            found.update({} if scale is None else {f"{name}'s {part}": one.clone() for part, one in scale._asdict().items()})
        return found

    def test_it_sees_what_eager_sees(self):
        found = []
        for wrap in (lambda model: model, lambda model: torch.compile(model, fullgraph=True, backend="aot_eager")):
            model = applied()
            loss_of(wrap(model), batch(64)).backward()
            torch.optim.SGD(model.parameters(), 1e-2).step()
            found.append([(row.seen, row.flushed, row.verdict) for row in loka.health(model).rows])
        for eager, compiled in zip(*found):
            self.assertEqual(eager[1:], compiled[1:])
            if eager[0] is not None:
                # Before 2.11 PyTorch sums another way where it compiled, even without a plan.
                self.assertAlmostEqual(eager[0], compiled[0], delta=1e-4 * abs(eager[0]))

    def test_it_falls_to_bf16(self):
        model = applied(static(DEAD), on_violation="bf16")
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        self.assertEqual(len(train(compiled)), 1)
        x = batch()
        with torch.no_grad():
            self.assertTrue(torch.allclose(compiled(x), model(x)))
        self.assertEqual(loka.resolved(model).rows[1].kernels[0], "cublaslt/bf16")


class Told(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = pathlib.Path(folder.name) / "health.jsonl"

    def test_json_lines(self):
        self.log.write_text("kept\n")
        model = applied(static(DEAD), check_every=2, health_log=self.log)
        train(model, 4)
        kept, *lines = self.log.read_text().splitlines()
        self.assertEqual((kept, len(lines)), ("kept", 2 * 7))
        found = [json.loads(line) for line in lines]
        self.assertEqual([line["step"] for line in found], [0] * 7 + [2] * 7)
        broken = next(line for line in found if line["verdict"] == "off")
        self.assertEqual((broken["site"], broken["gemm"], broken["kernel"]), ("bottom.3", "fprop", STATIC))
        self.assertEqual((broken["rank"], broken["flushed"]), (0, 1.0))
        self.assertEqual(broken["plan"], loka.load_plan(PLAN).digest)
        self.assertEqual(
            list(broken), ["time", "step", "rank", "plan", "site", "gemm", "kernel", "predicted", "predicted_lo",
                           "predicted_hi", "seen", "saturated", "flushed", "overflow_steps", "verdict", "note"],
        )
        self.assertEqual(loka.health(model).to_json_lines().splitlines(), lines[7:])

    def test_what_is_infinite_is_null(self):
        found = dataclasses.replace(loka.health(applied()).rows[0], seen=math.nan, flushed=math.inf)
        self.assertEqual(json.loads(json_lines([found], "", 0), parse_constant=self.fail)["seen"], None)

    def test_a_file_that_cannot_be_written_is_one_warning(self):
        model = applied(check_every=1, health_log=self.log / "no" / "folder")
        said = train(model, 3)
        self.assertEqual(len(said), 1)
        self.assertIn("health_log cannot be written: No such file or directory: ", said[0])
        self.assertEqual(loka.health(model).steps, 3)

    def test_the_table(self):
        model = applied(static(DEAD))
        train(model)
        health = loka.health(model)
        text = str(health)
        numbers = r" +\.037     1        0 %    100 %     0  off: rel L2"
        self.assertRegex(text, r"bottom\.3  fprop  loka/fp8-static\+fast" + numbers)
        self.assertTrue(text.endswith("6 of 7 FP8 GEMMs checked, 1 off"))
        self.assertEqual(repr(health), "Health(plan 'ranker', 7 FP8 GEMMs, 1 off; print it for the table)")
        self.assertIn("<td>bottom.3</td><td>fprop</td>", health._repr_html_())


class Copies(unittest.TestCase):
    def test_a_copy_is_checked_once_its_plan_is_applied_again(self):
        model = applied()
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
            self.assertIsNone(canary_of(other))
            self.assertFalse(other.bottom[0].__dict__[WATCH].switch.active)
            with self.assertRaisesRegex(PlanError, "or it is a copy"):
                loka.health(other)
            self.assertEqual(train(other), [])
            loka.apply(other, PLAN, emulate=True)
            train(other)
            self.assertEqual(loka.health(other).steps, 1)
            loka.unapply(other)
            self.assertNotIn(WATCH, other.bottom[0].__dict__)
        self.assertEqual(loka.health(model).steps, 0)

    def test_nothing_is_left_of_it(self):
        # What other tests left lying goes now, not in between.
        gc.collect()
        before = listeners.listening()
        model = applied()
        self.assertGreater(listeners.listening(), before)
        loka.unapply(model)
        self.assertIsNone(canary_of(model))
        self.assertNotIn(WATCH, model.bottom[0].__dict__)
        model = applied()
        dead = weakref.ref(model)
        del model
        gc.collect()
        self.assertIsNone(dead())
        self.assertEqual(listeners.listening(), before)

    def test_state_is_as_it_was(self):
        model = applied()
        train(model)
        self.assertEqual(list(model.state_dict()), list(Ranker().state_dict()))
        self.assertEqual(list(model.buffers()), [])


WORLD = 2


def checked_on_two(rank, on_violation):
    """What each rank says, and what runs: on rank 1 alone x is far beyond its static scale."""
    model = nn.parallel.DistributedDataParallel(applied(static(SCALE), on_violation=on_violation, check_every=1))
    hook = model.module.bottom[3].register_forward_pre_hook(lambda _, inputs: inputs[0] * (1000 if rank else 1))
    said = train(model)
    hook.remove()
    return said, loka.resolved(model).rows[1].kernels[0], row(model, "bottom.3", "fprop")


def work(rank, folder):
    torch.set_num_threads(1)
    with joined(rank, folder, WORLD):
        found = {}
        for mode in ("warn", "bf16"):
            said, kernel, seen = checked_on_two(rank, mode)
            found[mode] = [said, kernel, seen.verdict, seen.note]
        try:
            checked_on_two(rank, "raise")
        except CanaryError as error:
            found["raise"] = str(error)
        # Both ranks alike are off: one of them says so.
        found["both"] = train(nn.parallel.DistributedDataParallel(applied(static(DEAD))))
        if FSDP2_ON_CPU:
            model = shard(applied(check_every=1), each_linear=True)
            train(model, 2)
            found["fsdp"] = [loka.health(model).steps, [row.verdict for row in loka.health(model).rows].count("ok")]
        pathlib.Path(folder, f"rank-{rank}.json").write_text(json.dumps(found))


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "PyTorch without gloo")
class Distributed(unittest.TestCase):
    def test_ranks_agree(self):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, (folder,), nprocs=WORLD)
            first, second = (json.loads(pathlib.Path(folder, f"rank-{rank}.json").read_text()) for rank in range(WORLD))
        self.assertEqual(first["warn"][:3], [[], STATIC, "ok"])
        self.assertEqual(second["warn"][1:3], [STATIC, "off"])
        self.assertIn("loka: rank 1: bottom.3 fprop by", second["warn"][0][0])
        self.assertEqual(first["bf16"], [[], "cublaslt/bf16", "ok", "off on another rank; in BF16 since step 1"])
        self.assertEqual(second["bf16"][1:3], ["cublaslt/bf16", "off"])
        self.assertIn(f"bottom.3 fprop by {STATIC} is off: on 1 of 2 ranks, not on this one", first["raise"])
        self.assertIn("of x saturates", second["raise"])
        self.assertEqual(len(first["both"] + second["both"]), 1)
        self.assertEqual([first.get("fsdp"), second.get("fsdp")], [[2, 6] if FSDP2_ON_CPU else None] * 2)


if __name__ == "__main__":
    unittest.main()
