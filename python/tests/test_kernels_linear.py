"""loka.kernels.linear as a drop-in for F.linear: types, shapes, gradients, autocast, checkpointing, torch.compile."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from loka.kernels import linear

FP8 = ("cublaslt/fp8-tensorwise+fast", "cublaslt/fp8-rowwise+fast", "cublaslt/fp8-blockwise")
MIXED = ("cublaslt/fp8-rowwise", "cublaslt/bf16", "cublaslt/fp8-tensorwise")
BF16 = ("cublaslt/bf16",) * 3


def tensors(*lead, k=128, n=256, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    make = lambda *shape: torch.randn(*shape, generator=generator).to(dtype)
    parameters = (tensor.requires_grad_() for tensor in (make(*lead, k), make(n, k) * 0.1, make(n)))
    return (*parameters, make(*lead, n))


def rel_l2(found, expected):
    return float((found.detach().float() - expected.detach().float()).norm() / expected.detach().float().norm())


class DropIn(unittest.TestCase):
    def both(self, x, weight, bias, dy, kernels, wanted=None):
        wanted = wanted or tuple(t for t in (x, weight, bias) if t is not None and t.requires_grad)
        ours = lambda: linear(x, weight, bias, kernels, emulate=True)
        for function in (ours, lambda: functional.linear(x, weight, bias)):
            y = function()
            yield (y, *torch.autograd.grad(y, wanted, dy.to(y.dtype)))

    def assert_like(self, *arguments, limit=0.08, **options):
        for ours, plain in zip(*self.both(*arguments, **options)):
            self.assertEqual((ours.dtype, ours.shape), (plain.dtype, plain.shape))
            self.assertLess(rel_l2(ours, plain), limit)

    def test_leading_dimensions_and_row_counts(self):
        for lead in ((64,), (3, 5), (2, 3, 7), (1,), (17,), ()):
            for kernels in (FP8, MIXED):
                x, weight, bias, dy = tensors(*lead)
                with self.subTest(lead=lead, kernels=kernels):
                    self.assert_like(x, weight, bias, dy, kernels)

    def test_types(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            x, weight, bias, dy = tensors(32, dtype=dtype)
            with self.subTest(dtype=dtype):
                self.assert_like(x, weight, bias, dy, FP8)
                self.assert_like(x, weight, None, dy, BF16, limit=0.01)

    def test_autocast(self):
        x, weight, bias, dy = tensors(4, 8)
        with torch.autocast("cpu", torch.bfloat16):
            (y, *gradients), (plain, *expected) = self.both(x, weight, bias, dy, FP8)
        self.assertEqual((y.dtype, plain.dtype), (torch.bfloat16, torch.bfloat16))
        for ours, other in zip(gradients, expected):
            self.assertEqual(ours.dtype, torch.float32)
            self.assertLess(rel_l2(ours, other), 0.08)

    def test_emulation_keeps_fp32_products_under_autocast(self):
        x, weight, _, _ = tensors(8)
        kernels = ("cublaslt/fp8-rowwise",) * 3
        expected = linear(x.bfloat16(), weight.bfloat16(), None, kernels, emulate=True)
        with torch.autocast("cpu", torch.bfloat16):
            self.assertTrue(torch.equal(linear(x, weight, None, kernels, emulate=True), expected))

    def test_only_gradients_that_are_needed(self):
        for needs in ((True, False, False), (False, True, False), (False, False, True), (True, True, False)):
            x, weight, bias, dy = tensors(16)
            for tensor, need in zip((x, weight, bias), needs):
                tensor.requires_grad_(need)
            with self.subTest(needs=needs):
                self.assert_like(x, weight, bias, dy, FP8)

    def test_without_gradients(self):
        x, weight, bias, _ = tensors(16)
        with torch.no_grad():
            y = linear(x, weight, bias, FP8, emulate=True)
        self.assertFalse(y.requires_grad)
        self.assertTrue(torch.equal(y, linear(x, weight, bias, FP8, emulate=True)))

    def test_empty_batch(self):
        for lead in ((0,), (3, 0)):
            x, weight, bias, dy = tensors(*lead)
            y = linear(x, weight, bias, FP8, emulate=True)
            dx, dw, db = torch.autograd.grad(y, (x, weight, bias), dy)
            self.assertEqual((y.shape, dx.shape), (torch.Size([*lead, 256]), x.shape))
            self.assertFalse(dw.any() or db.any())

    def test_strided_operands(self):
        x, weight, bias, dy = tensors(16)
        wide = torch.randn(128, 16, requires_grad=True)
        self.assert_like(wide.t(), weight, bias, dy, FP8, wanted=(wide, weight))
        y = linear(x, weight, None, FP8, emulate=True)
        y.sum().backward()  # The gradient is one number, expanded.
        self.assertEqual(x.grad.shape, x.shape)

    def test_weight_that_changes_before_the_backward_is_seen_as_it_was_or_refused(self):
        x, weight, _, dy = tensors(16)
        y = linear(x, weight, None, FP8, emulate=True)
        with torch.no_grad():
            weight.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.backward(dy)

    def test_checkpointing(self):
        x, weight, bias, dy = tensors(16)
        run = lambda x: linear(functional.relu(x), weight, bias, FP8, emulate=True)
        plain = torch.autograd.grad(run(x), (x, weight, bias), dy)
        again = torch.autograd.grad(checkpoint(run, x, use_reentrant=False), (x, weight, bias), dy)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain, again)))

    def test_errors(self):
        x, weight, bias, dy = tensors(16)
        with self.assertRaisesRegex(ValueError, "unknown kernel 'fp7'"):
            linear(x, weight, bias, ("fp7",) * 3)
        with self.assertRaisesRegex(RuntimeError, "x is torch.bfloat16 and weight is torch.float32"):
            linear(x.bfloat16(), weight, bias, FP8)
        with self.assertRaisesRegex(RuntimeError, "x has 64 features and weight takes 128"):
            linear(x[:, :64], weight, bias, FP8)
        with self.assertRaisesRegex(RuntimeError, "need a CUDA GPU; emulate=True"):
            linear(x, weight, bias, FP8)
        y = linear(x, weight, bias, FP8, emulate=True)
        (dx,) = torch.autograd.grad(y, x, dy.requires_grad_(), create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "differentiate twice"):
            dx.sum().backward()


class Compiled(unittest.TestCase):
    """Traced whole. The backend "aot_eager" runs the traced forward and backward without generating code."""

    def check(self, kernels, dtype, emulate, sizes):
        torch._dynamo.reset()
        run = lambda x, weight, bias: linear(functional.relu(x), weight, bias, kernels, emulate).sin()
        compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
        for size in sizes:
            x, weight, bias, dy = tensors(size, dtype=dtype, seed=size)
            outputs = [function(x, weight, bias) for function in (run, compiled)]
            found = [(y, *torch.autograd.grad(y, (x, weight, bias), dy)) for y in outputs]
            for eager, traced in zip(*found):
                self.assertTrue(torch.equal(eager, traced))
                self.assertTrue(traced.any())

    def test_emulated(self):
        self.check(FP8, torch.float32, True, (16, 24, 33))

    def test_the_gradient_of_a_bias_comes_behind_the_casts_of_dy(self):
        """Before them, Inductor would compute what makes dy for that sum, and once more for the casts."""
        from torch._dynamo.backends.common import aot_autograd

        order = []

        def read(graph, _):
            named = {"mm": "product", "leaky_relu_backward": "activation", "sum": "bias"}
            targets = [str(node.target).split(".")[1] for node in graph.graph.nodes if str(node.target).startswith("aten.")]
            order.extend(named[target] for target in targets if target in named)
            return graph

        kernels = ("cublaslt/fp8-rowwise",) * 3
        parameters = [each for seed in (0, 1) for each in tensors(4, k=128, n=128, seed=seed)[1:3]]

        def forward(x):
            hidden = functional.leaky_relu(linear(x, *parameters[:2], kernels, emulate=True))
            return linear(hidden, *parameters[2:], kernels, emulate=True)

        called = torch.compile(forward, backend=aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=read), fullgraph=True)
        called(tensors(4)[0].detach()).sum().backward()
        self.assertEqual(order, ["product", "product", "bias", "activation", "product", "bias"])

    def test_batches_of_any_size(self):
        # A number that a module keeps is one that may change, to Dynamo, and no autograd function of PyTorch 2.11 takes it.
        torch._dynamo.reset()
        for kernels in (FP8, ("cublaslt/fp8-delayed",) * 3, ("cublaslt/fp8-rowwise",) * 3):
            run = lambda x, weight, bias: linear(x, weight, bias, kernels, emulate=True).sin()
            compiled = torch.compile(run, backend="aot_eager", dynamic=True, fullgraph=True)
            for size in (32, 48, 64):
                x, weight, bias, dy = tensors(size, seed=size)
                found = [torch.autograd.grad(each(x, weight, bias), (x, weight, bias), dy) for each in (run, compiled)]
                for eager, traced in zip(*found):
                    self.assertTrue(torch.equal(eager, traced))

    def test_nothing_to_convert(self):
        # Dynamo of PyTorch 2.11 takes a conversion that converts nothing for the autograd function's input, and makes
        # all gradients zero, silently.
        self.check(BF16, torch.bfloat16, False, (16,))

    def test_autocast_and_no_grad(self):
        torch._dynamo.reset()
        run = lambda x, weight: linear(x, weight, None, MIXED, emulate=True)
        compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
        x, weight, _, _ = tensors(16)
        with torch.autocast("cpu", torch.bfloat16):
            self.assertTrue(torch.equal(compiled(x, weight), run(x, weight)))
        with torch.no_grad():
            self.assertTrue(torch.equal(compiled(x, weight), run(x, weight)))


if __name__ == "__main__":
    unittest.main()
