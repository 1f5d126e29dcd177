"""Training with a plan: each GEMM by its own kernel, autocast, checkpointing, torch.compile, a Recorder beside it."""

import copy
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import numpy as np
import torch
import torch._dynamo.testing
from torch import nn
from torch.utils.checkpoint import checkpoint

import loka
from loka.plans import PlanError
from ranker import PLAN, Ranker, batch, forged

E4M3 = (3, -6, 448.0)
E5M2 = (2, -14, 57344.0)


def rounded(x, kind):
    """To nearest even among the values of an FP8 format, saturating: mantissa bits, least exponent, largest value."""
    mantissa, least, largest = kind
    with np.errstate(divide="ignore"):
        exponent = np.maximum(np.floor(np.log2(np.abs(x))), least)
    step = 2.0 ** (exponent - mantissa)
    return np.clip(np.rint(x / step) * step, -largest, largest)


def scaled(x, kind, axis):
    """FP8 with one scale for all that is along `axis` (None: for the tensor), multiplied back."""
    scale = np.maximum(np.abs(x).max(axis=axis, keepdims=True).astype(np.float32) / np.float32(kind[2]), 1e-12)
    return rounded((x / scale).astype(np.float32).astype(np.float64), kind) * scale.astype(np.float64)


def gradients(model, x):
    model.zero_grad()
    x = x.clone().requires_grad_()
    y = model(x)
    (y * torch.linspace(0.2, 1, y.numel()).reshape(y.shape)).sum().backward()
    return [y.detach(), x.grad, *(parameter.grad.clone() for parameter in model.parameters())]


def of_each_example(model, x):
    """Each parameter's gradients by the examples alone."""
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def output(parameters, x):
        return torch.func.functional_call(model, parameters, (x[None],)).sum()

    return list(torch.func.vmap(torch.func.grad(output), (None, 0))(parameters, x).values())


class Exactly(unittest.TestCase):
    def equal(self, found, expected):
        self.assertEqual(len(found), len(expected))
        for one, other in zip(found, expected):
            self.assertTrue(torch.equal(one, other), (one - other).abs().max())


class Numbers(Exactly):
    def near(self, found, expected):
        """Up to BF16's rounding of the output, and sums in another order."""
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found.detach().double().numpy(), expected, rtol=2**-8, atol=2**-14 * scale)

    def test_each_gemm_runs_by_its_own_kernel(self):
        model = Ranker()
        loka.apply(model, PLAN, emulate=True)
        linear, x = model.bottom[0], batch(rows=48).requires_grad_()
        dy = torch.randn(48, 256, generator=torch.Generator().manual_seed(2)) * 1e-3
        y = linear(x)
        y.backward(dy)
        x64, w64, dy64 = (tensor.detach().double().numpy() for tensor in (x, linear.weight, dy))
        # fprop cublaslt/fp8-rowwise, dgrad cublaslt/fp8-tensorwise, wgrad cublaslt/fp8-rowwise+fast: their numerics are
        # in docs/reference/numerics.md.
        self.near(y - linear.bias, scaled(x64, E4M3, 1) @ scaled(w64, E4M3, 1).T)
        self.near(x.grad, scaled(dy64, E5M2, None) @ scaled(w64, E4M3, None))
        self.near(linear.weight.grad, scaled(dy64, E4M3, 0).T @ scaled(x64, E4M3, 0))
        np.testing.assert_allclose(linear.bias.grad.double().numpy(), dy64.sum(0), rtol=1e-4, atol=1e-6)

    def test_a_step_of_training_learns(self):
        model, x = Ranker(), batch(64)
        loka.apply(model, PLAN, emulate=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        target = (x[:, 0] > 0).float()
        losses = []
        for _ in range(15):
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 2)

    def test_autocast(self):
        model, x = Ranker(), batch()
        with torch.autocast("cpu", torch.bfloat16):
            plain = gradients(model, x)
        loka.apply(model, PLAN, emulate=True)
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(model.top[0](x).dtype, torch.bfloat16)
            found = gradients(model, x)
        self.assertEqual([tensor.dtype for tensor in found], [tensor.dtype for tensor in plain])
        weights = [index for index, tensor in enumerate(found) if tensor.dim() == 2]
        self.assertEqual(len(weights), 5)
        for index in weights:
            error = (found[index] - plain[index]).norm() / plain[index].norm()
            self.assertTrue(1e-3 < error < 0.35, f"{index}: {error}")

    def test_activation_checkpointing_gives_the_same_gradients(self):
        model, x = Ranker(), batch()
        loka.apply(model, PLAN, emulate=True)
        expected = gradients(model, x)
        bottom = model.bottom.forward
        for reentrant in (False, True):
            model.bottom.forward = lambda x: checkpoint(bottom, x, use_reentrant=reentrant)
            self.equal(gradients(model, x), expected)

    def test_under_torch_func_it_is_the_model_without_a_plan(self):
        plain, x = Ranker(), batch(6)
        model = copy.deepcopy(plain)
        loka.apply(model, PLAN, emulate=True)
        self.equal(*(of_each_example(one, x) for one in (model, plain)))
        self.equal(*([torch.func.hessian(lambda x, one=one: one(x).sum())(x)] for one in (model, plain)))


class Compiled(Exactly):
    """With AOT autograd and no code generation, which is what tells graph breaks and costs seconds, not minutes."""

    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)

    def test_one_graph_and_the_numbers_of_eager(self):
        model, x = Ranker(), batch()
        # Not SiLU: PyTorch 2.6 traces its gradient in parts, which round otherwise than eager's one operator.
        model.bottom[2], model.bottom[5] = nn.Hardswish(), nn.Hardswish()
        loka.apply(model, PLAN, emulate=True)
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(model, fullgraph=True, backend=counter)
        found = gradients(compiled, x)
        self.assertEqual(counter.frame_count, 1)
        self.equal(found, gradients(model, x))

    def test_a_plan_after_compile_is_compiled_in_and_out(self):
        model, x = Ranker(), batch()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        plain = compiled(x).detach()
        loka.apply(compiled, PLAN, emulate=True)
        self.assertTrue(torch.equal(compiled(x), model(x)))
        self.assertFalse(torch.equal(compiled(x), plain))
        loka.unapply(compiled)
        self.assertTrue(torch.equal(compiled(x), plain))


class Recorded(Exactly):
    """A Recorder gives a linear another class too: the two must come off in the order in which they went on."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_a_recorder_over_a_plan(self):
        model, x = Ranker(), batch()
        loka.apply(model, PLAN, emulate=True)
        expected = gradients(model, x)
        recorder = loka.Recorder(model, out=self.folder, every=1).attach()
        self.equal(gradients(model, x), expected)
        self.assertEqual(loka.resolved(model).num_fp8, 3)
        with self.assertRaises(PlanError) as refused:
            loka.unapply(model)
        self.assertEqual(
            str(refused.exception),
            "3 linears of the plan are being recorded, 'bottom.0' among them: detach the Recorder before the plan is "
            "unapplied",
        )
        copied = copy.deepcopy(model)
        recorder.detach()
        for each in (model, copied):
            self.equal(gradients(each, x), expected)
            loka.unapply(each)
            self.assertTrue(all(type(module).__module__.startswith("torch.") for module in each.bottom))

    def test_a_plan_over_a_recorder_is_refused(self):
        model = Ranker()
        recorder = loka.Recorder(model, out=self.folder, every=1).attach()
        with self.assertRaises(PlanError) as refused:
            loka.apply(model, PLAN, emulate=True)
        self.assertIn("'top.0' cannot be replaced: it is being recorded: detach the Recorder", str(refused.exception))
        recorder.detach()
        self.assertEqual(loka.apply(model, PLAN, emulate=True).num_fp8, 3)


class Experts(nn.Module):
    """Each row goes to one of two."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Parameter(torch.randn(64, 2) / 8)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)) for _ in range(2)])

    def forward(self, x):
        chance, at = (x @ self.gate).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (at == number).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, (expert(x[rows]) * chance[rows, None]).to(out.dtype))
        return out


class Routed(unittest.TestCase):
    def test_compiled_experts_whose_rows_change(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(torch._dynamo.reset)

        def change(plan):
            for at, site in enumerate(plan["sites"]):
                k, n = (64, 128) if at % 2 == 0 else (128, 64)
                site.update(site=f"experts.{at // 2}.{at % 2 * 2}", k=k, n=n)
                for gemm in ("fprop", "dgrad", "wgrad"):
                    site[gemm]["kernel"] = "cublaslt/fp8-delayed"

        def losses(model, call):
            optimizer, found = torch.optim.Adam(model.parameters(), lr=1e-3), []
            for step in range(6):
                x = torch.randn(128, 64, generator=torch.Generator().manual_seed(step))
                with torch.autocast("cpu", torch.bfloat16):
                    loss = (call(x).float() - 1).square().mean()
                loss.backward()
                found.append(loss.item())
                optimizer.step()
                optimizer.zero_grad()
            return found

        plan = loka.load_plan(forged(folder.name, change))
        eager, model = Experts(), Experts()
        for each in (eager, model):
            loka.apply(each, plan, emulate=True)
        for one, other in zip(losses(model, torch.compile(model, backend="aot_eager")), losses(eager, eager)):
            self.assertAlmostEqual(one, other, delta=2e-3)
        self.assertIn("0 off", str(loka.health(model)))


class AnyBatch(unittest.TestCase):
    def test_one_as_large_as_a_layer_is_wide(self):
        """Under dynamic=True sizes that are alike are taken for one. That of a weight's codes is none that changes."""

        def change(plan):
            for site in plan["sites"]:
                for gemm in ("fprop", "dgrad", "wgrad"):
                    site[gemm]["kernel"] = "cublaslt/bf16" if site["site"] == "top.2" else "cublaslt/fp8-delayed"

        for width in (64, 128):
            with self.subTest(width=width), tempfile.TemporaryDirectory() as folder:
                torch._dynamo.reset()
                model = Ranker()
                loka.apply(model, forged(folder, change), emulate=True)
                called = torch.compile(model, backend="aot_eager", dynamic=True, fullgraph=True)
                optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
                # Checked, then by scales that are known.
                for rows in (width, width, 33):
                    with torch.autocast("cpu", torch.bfloat16):
                        out = called(batch(rows))
                    out.float().sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()


if __name__ == "__main__":
    unittest.main()
