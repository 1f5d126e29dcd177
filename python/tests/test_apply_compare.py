"""`loka.compare`: a plan's gradient against BF16's of the same parameters and batch, and nothing else changed by it."""

import copy
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from torch import nn

import loka
from loka.plans import PlanError
from loka.plans.canary import WATCH
from loka.plans.linear import known_scales
from loka.plans.paused import is_paused, pause
from ranker import PLAN, Ranker, batch


class Wider(nn.Module):
    """The ranker of the plans, with what a forward and a backward leave behind: statistics, random numbers, sparse rows."""

    def __init__(self):
        super().__init__()
        self.bottom, self.top = Ranker().bottom, Ranker().top
        self.norm, self.drop = nn.BatchNorm1d(128), nn.Dropout(0.2)
        self.table = nn.Embedding(50, 128, sparse=True)

    def forward(self, x):
        ids = (x[:, 0].abs() * 10).long() % 50
        return self.top(self.drop(self.norm(self.bottom(x + self.table(ids))))).squeeze(-1)


def loss_of(model, x, scale=1.0):
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x)
    return nn.functional.binary_cross_entropy_with_logits(out.float(), (x[:, 0] > 0).float()) * scale


def gradients(model, x):
    model.zero_grad()
    loss_of(model, x).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def applied(model=None, **options):
    model = Ranker() if model is None else model
    loka.apply(model, PLAN, emulate=True, **options)
    return model


class Compare(unittest.TestCase):
    def test_each_gradient_as_two_models_have_it(self):
        x = batch(256)
        truth, found = gradients(Ranker(), x), gradients(applied(), x)
        told = loka.compare(model := applied(), lambda: loss_of(model, x))
        self.assertEqual({row.parameter for row in told.rows}, set(truth))
        for row in told.rows:
            mine, other = found[row.parameter], truth[row.parameter]
            self.assertAlmostEqual(row.norm, float(mine.norm()), delta=1e-6)
            self.assertAlmostEqual(row.reference_norm, float(other.norm()), delta=1e-6)
            self.assertAlmostEqual(row.apart, float((mine - other).norm() / other.norm()), delta=1e-5)
        apart = sum(float((found[name] - truth[name]).square().sum()) for name in truth)
        whole = sum(float(truth[name].square().sum()) for name in truth)
        self.assertAlmostEqual(told.apart, (apart / whole) ** 0.5, delta=1e-5)
        self.assertGreater(told.apart, 0.001)
        self.assertAlmostEqual(told.loss, float(loss_of(applied(), x)), places=6)
        self.assertAlmostEqual(told.reference_loss, float(loss_of(Ranker(), x)), places=6)
        differences = [row.difference for row in told.rows]
        self.assertEqual(differences, sorted(differences, reverse=True))

    def test_what_it_says(self):
        x = batch(64)
        told = loka.compare(model := applied(), lambda: loss_of(model, x))
        self.assertRegex(str(told), r"^plan 'ranker[^']*' sha256:\w{12} against BF16: loss \.?\d\S* and \S+, gradient \S+ and \S+, \S+ % apart\n")
        self.assertRegex(str(told).splitlines()[1], r"^parameter +norm +in BF16 +apart +share$")
        self.assertEqual(len(str(told).splitlines()), 2 + len(told.rows))
        self.assertIn("print it for the table", repr(told))
        self.assertIn("<table>", told._repr_html_())

    def test_training_goes_on_as_if_nothing_had_been(self):
        x = batch(128)
        torch.manual_seed(3)
        one = applied(Wider())
        other = copy.deepcopy(one)
        loka.apply(other, PLAN, emulate=True)
        results = []
        for model, looks in ((one, False), (other, True)):
            optimizer = torch.optim.SGD([p for n, p in model.named_parameters()], 0.1)
            torch.manual_seed(7)
            for step in range(4):
                if looks:
                    before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
                    told = loka.compare(model, lambda: loss_of(model, x))
                    self.assertTrue(0 < told.apart < 0.5, told)
                    for kept, parameter in zip(before, model.parameters()):
                        self.assertEqual(kept is None, parameter.grad is None)
                        self.assertTrue(kept is None or torch.equal(kept.to_dense(), parameter.grad.to_dense()))
                # Gradients of two batches: what is there is added to.
                loss_of(model, x).backward()
                if looks:
                    loka.compare(model, lambda: loss_of(model, x))
                loss_of(model, x).backward()
                optimizer.step()
                optimizer.zero_grad()
            results.append({**model.state_dict(), "random": torch.rand(4)})
        for name, value in results[0].items():
            self.assertTrue(torch.equal(value, results[1][name]), name)

    def test_a_scale_that_is_off_is_the_first_row(self):
        x = batch(256)
        model = applied()
        site = next(module for module in model.modules() if isinstance(module, nn.Linear) and hasattr(module, "_loka_kernels"))
        site.__dict__["_loka_kernels"] = ("cublaslt/bf16", "cublaslt/bf16", "cublaslt/fp8-delayed")
        from loka.kernels.delayed import Scale

        device = torch.device("cpu")
        site.__dict__["_loka_scales"] = (Scale.of(2.0**-6, device), Scale.of(2.0**3, device))
        noted = [scale.amax.clone() for scale in known_scales(site)]
        told = loka.compare(model, lambda: loss_of(model, x))
        name = next(name for name, module in model.named_modules() if module is site)
        self.assertEqual(told.rows[0].parameter, f"{name}.weight")
        self.assertGreater(told.rows[0].apart, 0.9)
        self.assertEqual(noted, [scale.amax for scale in known_scales(site)])

    def test_the_canary_does_not_count_it(self):
        """Before the first step, which is checked: its sums are of the step alone."""
        x = batch(64)
        seen = []
        for looks in (False, True):
            model = applied()
            if looks:
                loka.compare(model, lambda: loss_of(model, x))
            loss_of(model, x).backward()
            watches = [module.__dict__.get(WATCH) for module in model.modules() if isinstance(module, nn.Linear)]
            seen.append([sums.clone() for watch in watches if watch is not None for sums in watch.stats.values()])
        self.assertTrue(seen[0])
        self.assertTrue(any(sums.any() for sums in seen[0]))
        for one, other in zip(*seen):
            self.assertTrue(torch.equal(one, other))

    def test_a_model_that_runs_in_bf16_is_left_so(self):
        x = batch(64)
        model = applied()
        pause(model)
        told = loka.compare(model, lambda: loss_of(model, x))
        self.assertGreater(told.apart, 0)
        self.assertTrue(is_paused(model))

    def test_a_compiled_model(self):
        x = batch(64)
        model = applied()
        compiled = torch.compile(model, backend="aot_eager")
        told = loka.compare(compiled, lambda: loss_of(compiled, x))
        self.assertAlmostEqual(told.apart, loka.compare(model, lambda: loss_of(model, x)).apart, delta=1e-4)

    def test_a_loss_that_cannot_be(self):
        x = batch(16)
        with self.assertRaisesRegex(PlanError, "no plan is applied"):
            loka.compare(Ranker(), lambda: None)
        model, elsewhere = applied(), Ranker()
        for loss in (lambda: 1.0, lambda: model(x), lambda: loss_of(model, x).detach()):
            with self.assertRaisesRegex(PlanError, "one number that backward can be called on"):
                loka.compare(model, loss)
        with self.assertRaisesRegex(PlanError, "a loss of this model"):
            loka.compare(model, lambda: loss_of(elsewhere, x))

    def test_a_loss_that_fails_leaves_the_model_as_it_was(self):
        x = batch(16)
        model = applied()
        loss_of(model, x).backward()
        before = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        calls = []

        def fails_in_bf16():
            calls.append(is_paused(model))
            if len(calls) == 2:
                raise RuntimeError("out of clicks")
            return loss_of(model, x)

        with self.assertRaisesRegex(RuntimeError, "out of clicks"):
            loka.compare(model, fails_in_bf16)
        self.assertEqual(calls, [False, True])
        self.assertFalse(is_paused(model))
        for name, parameter in model.named_parameters():
            self.assertTrue(torch.equal(parameter.grad, before[name]))

    def test_a_gradient_that_is_not_finite(self):
        x = batch(16)
        model = applied()
        told = loka.compare(model, lambda: loss_of(model, x) * float("inf"))
        self.assertIn("not finite apart", str(told))


if __name__ == "__main__":
    unittest.main()
