"""LoKA's own kernels as PyTorch ops, on a CPU: their numbers against numpy and ml_dtypes, gradients against FP64, opcheck,
torch.compile."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import ml_dtypes
import numpy as np
import torch

from loka.kernels import block, native_ops, static_linear
from loka.kernels.fused import block_op, static_linear_op

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
SCALE = torch.tensor([2.0**-6])
"""7 is the largest that does not saturate."""


def random(*shape, seed=0, spread=1.0):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * spread).bfloat16()


def counter():
    return torch.zeros(1, dtype=torch.int64)


def numpy_cast(x, format, axis, scale=None):
    """(codes as FP64, scales) of [rows, cols], a scale a row, or one where `axis` is None."""
    x, largest = x.float().numpy(), np.float32(ml_dtypes.finfo(format).max)
    if scale is None:
        scale = np.maximum(np.abs(x).max(axis=axis, keepdims=True) / largest, np.float32(1e-12))
    codes = np.clip(x / scale, -largest, largest).astype(format).astype(np.float64)
    return codes, np.asarray(scale, np.float64)


def bf16_error(found, expected, slack):
    """The largest error over half a unit of BF16 and what FP32 sums may lose."""
    return float((np.abs(found.double().numpy() - expected) / (np.abs(expected) * 2.0**-8 * 1.01 + slack)).max())


def numpy_tail(z):
    blocks = z.reshape(z.shape[0], -1, 256)
    y = blocks / np.sqrt((blocks**2).mean(2, keepdims=True) + 2.0**-23)
    return (y * np.clip(y + 3, 0, 6) / 6).reshape(z.shape)


class Casts(unittest.TestCase):
    def test_codes_and_scales_are_those_of_ml_dtypes(self):
        x = random(48, 80, spread=3)
        x[3], x[4, 5] = 0, 300
        for granularity, axis in (("row", 1), ("tensor", None)):
            for name, format in (("e4m3", E4M3), ("e5m2", E5M2)):
                out = native_ops.fp8_cast(x, granularity, name, False, True, True)
                for operand, codes, scale in ((x, *out[:2]), (x.t(), *out[2:])):
                    expected, expected_scale = numpy_cast(operand, format, axis)
                    self.assertTrue(np.array_equal(codes.float().numpy(), expected))
                    self.assertTrue(np.array_equal(scale.numpy().flatten(), expected_scale.flatten()))
                    self.assertEqual(scale.shape, (operand.shape[0], 1) if granularity == "row" else (1,))

    def test_what_is_not_asked_for_is_empty(self):
        codes, scale, turned, turned_scale = native_ops.fp8_cast(random(16, 32), "row", "e4m3", False, False, True)
        self.assertEqual((codes.numel(), scale.numel()), (0, 0))
        self.assertEqual((turned.shape, turned_scale.shape), ((32, 16), (32, 1)))

    def test_a_static_cast_counts_what_saturates(self):
        x = torch.tensor([[7.0, 7.03125, -7.03125, float("inf"), float("nan"), 1.0]]).bfloat16()
        saturated = torch.tensor([5])
        codes = native_ops.static_cast(x, SCALE, saturated)
        self.assertEqual(int(saturated), 8)
        self.assertEqual(codes.float()[0, :4].tolist(), [448.0, 448.0, -448.0, 448.0])
        self.assertTrue(codes.float()[0, 4].isnan())
        self.assertEqual(float(codes.float()[0, 5]), 64.0)


class Products(unittest.TestCase):
    def operands(self, m=40, k=96, n=512, seed=0):
        x, w = random(m, k, seed=seed, spread=2), random(n, k, seed=seed + 1, spread=0.1)
        w_codes, w_scale, _, _ = native_ops.fp8_cast(w, "row", "e4m3", False, True, False)
        return x, w, w_codes, w_scale

    def test_fp8_gemm(self):
        x, w, w_codes, w_scale = self.operands()
        for granularity, axis in (("row", 1), ("tensor", None)):
            for name, format in (("e4m3", E4M3), ("e5m2", E5M2)):
                codes, scale, _, _ = native_ops.fp8_cast(x, granularity, name, False, True, False)
                y = native_ops.fp8_gemm(codes, scale, w_codes, w_scale, True)
                (a, a_scale), (b, b_scale) = numpy_cast(x, format, axis), numpy_cast(w, E4M3, 1)
                expected = (a * a_scale) @ (b * b_scale).T
                self.assertEqual(y.dtype, torch.bfloat16)
                self.assertLess(bf16_error(y, expected, 1e-5), 1)

    def expected(self, x, w, bias=None):
        (a, _), (b, b_scale) = numpy_cast(x, E4M3, None, float(SCALE)), numpy_cast(w, E4M3, 1)
        out = (a * float(SCALE)) @ (b * b_scale).T
        return out if bias is None else out + bias.double().numpy()

    def test_static_gemm(self):
        x, w, w_codes, w_scale = self.operands()
        bias, saturated = random(512, seed=9), counter()
        for given in (None, bias):
            y = native_ops.static_gemm(x, SCALE, w_codes, w_scale, given, saturated)
            self.assertLess(bf16_error(y, self.expected(x, w, given), 1e-5), 1)
        beyond = int((x.float().abs() > 7).sum())
        self.assertGreater(beyond, 0)
        self.assertEqual(int(saturated), 2 * beyond)

    def test_block(self):
        x, w, w_codes, w_scale = self.operands()
        bias = random(512, seed=9)
        for given in (None, bias):
            h, z = native_ops.block_gemm(x, SCALE, w_codes, w_scale, given, counter(), None, True)
            expected = self.expected(x, w, given)
            self.assertLess(bf16_error(z, expected, 1e-5), 1)
            self.assertLess(bf16_error(h, numpy_tail(expected), 1e-5), 1)
            self.assertLessEqual(float(h.abs().max()), 16.0)
        # As codes, and from codes.
        to = torch.tensor([2.0**-4])
        codes, none = native_ops.block_gemm(x, SCALE, w_codes, w_scale, None, counter(), to, False)
        tail = numpy_tail(self.expected(x, w))
        wanted = np.clip(tail / 2.0**-4, -448, 448)
        off = np.abs(codes.double().numpy() - wanted) / np.maximum(np.abs(wanted), 2.0**-6)
        self.assertEqual((codes.dtype, none.numel()), (torch.float8_e4m3fn, 0))
        self.assertLessEqual(float(off.max()), 2.0**-4 * 1.01)
        next_w = native_ops.fp8_cast(random(256, 512, seed=5, spread=0.1), "row", "e4m3", False, True, False)[:2]
        h, _ = native_ops.block_gemm(codes, to, *next_w, None, counter(), None, False)
        product = (codes.double().numpy() * 2.0**-4) @ (next_w[0].double() * next_w[1].double()).numpy().T
        self.assertLess(bf16_error(h, numpy_tail(product), 1e-5), 1)

    def test_tail_and_its_gradient(self):
        z, dh = random(24, 512, spread=3), random(24, 512, seed=1)
        h = native_ops.block_tail(z)
        self.assertLess(bf16_error(h, numpy_tail(z.double().numpy()), 1e-6), 1)
        exact = z.double().requires_grad_()
        blocks = exact.view(24, 2, 256)
        y = blocks * torch.rsqrt(blocks.square().mean(2, keepdim=True) + 2.0**-23)
        torch.nn.functional.hardswish(y).view(24, 512).backward(dh.double())
        dz, codes, scales = native_ops.block_backward(dh, z)
        self.assertLess(bf16_error(dz, exact.grad.numpy(), 1e-6), 1)
        expected, expected_scales = numpy_cast(dz, E4M3, 1)
        self.assertTrue(np.array_equal(codes.double().numpy(), expected))
        self.assertTrue(np.array_equal(scales.double().numpy(), expected_scales))

    def test_no_rows(self):
        _, _, w_codes, w_scale = self.operands()
        nothing = random(0, 96)
        self.assertEqual(native_ops.static_gemm(nothing, SCALE, w_codes, w_scale, None, counter()).shape, (0, 512))
        h, z = native_ops.block_gemm(nothing, SCALE, w_codes, w_scale, None, counter(), None, True)
        self.assertEqual((h.shape, z.shape), ((0, 512), (0, 512)))
        self.assertEqual([part.shape[0] for part in native_ops.block_backward(h, z)], [0, 0, 0])
        codes, scale, _, _ = native_ops.fp8_cast(nothing, "row", "e4m3", False, True, False)
        self.assertEqual(native_ops.fp8_gemm(codes, scale, w_codes, w_scale, True).shape, (0, 512))

    def test_what_is_not_as_it_should_be_is_refused(self):
        x, _, w_codes, w_scale = self.operands()
        for wrong in (
            lambda: native_ops.static_gemm(x.float(), SCALE, w_codes, w_scale, None, counter()),
            lambda: native_ops.static_gemm(x, SCALE.double(), w_codes, w_scale, None, counter()),
            lambda: native_ops.static_gemm(x, SCALE, w_codes, w_scale.t(), None, counter()),
            lambda: native_ops.static_gemm(x[:, :80], SCALE, w_codes, w_scale, None, counter()),
            lambda: native_ops.static_gemm(x, SCALE, w_codes, w_scale, None, counter().int()),
            lambda: native_ops.fp8_gemm(x, SCALE, w_codes, w_scale, True),
            lambda: native_ops.fp8_cast(x.float(), "row", "e4m3", False, True, False),
            lambda: native_ops.static_gemm(x, SCALE, w_codes[:500], w_scale[:500], None, counter()),
            lambda: native_ops.block_gemm(x, SCALE, w_codes[:320], w_scale[:320], None, counter(), None, False),
            lambda: native_ops.block_tail(random(4, 300)),
            lambda: native_ops.block_backward(random(4, 256), random(5, 256)),
        ):
            with self.assertRaisesRegex(RuntimeError, "expected"):
                wrong()


class Fused(unittest.TestCase):
    """The differentiable ones."""

    def tensors(self, m=40, k=96, n=256, lead=()):
        x, weight, bias = random(*lead, m, k), random(n, k, seed=1, spread=0.1), random(n, seed=2, spread=0.1)
        dy = random(*lead, m, n, seed=3)
        return (*(each.requires_grad_() for each in (x, weight, bias)), dy)

    def exact(self, x, weight, bias, dy, tail):
        leaves = [each.detach().double().requires_grad_() for each in (x, weight, bias)]
        y = torch.nn.functional.linear(*leaves)
        if tail:
            blocks = y.view(*y.shape[:-1], -1, 256)
            y = torch.nn.functional.hardswish(blocks * torch.rsqrt(blocks.square().mean(-1, keepdim=True) + 2.0**-23))
            y = y.reshape(dy.shape)
        return (y, *torch.autograd.grad(y, leaves, dy.double()))

    def rel_l2(self, found, expected):
        return float((found.detach().double() - expected.detach()).norm() / expected.detach().norm())

    def test_like_the_linear_in_fp64(self):
        for function, tail in ((static_linear, False), (block, True)):
            for lead in ((), (3,)):
                x, weight, bias, dy = self.tensors(lead=lead)
                y = function(x, weight, SCALE, None, bias)
                found = (y, *torch.autograd.grad(y, (x, weight, bias), dy))
                for name, ours, exact in zip(("y", "dx", "dw", "db"), found, self.exact(x, weight, bias, dy, tail)):
                    with self.subTest(function=function.__name__, lead=lead, of=name):
                        self.assertEqual((ours.dtype, ours.shape), (torch.bfloat16, exact.shape))
                        # FP8's own error is .04 an operand, BF16's .003.
                        error = self.rel_l2(ours, exact)
                        self.assertLess(error, 0.01 if name in ("dw", "db") and not tail else 0.08)
                        self.assertGreater(error, 1e-4)

    def test_gradients_are_those_of_their_numerics(self):
        """dgrad against numpy on the codes of the block's own dz."""
        x, weight, bias, dh = self.tensors()
        h, z, _ = block_op(x, weight, SCALE, bias, True)
        dx, dw = torch.autograd.grad(h, (x, weight), dh)
        dz, _, _ = native_ops.block_backward(dh, z.detach())
        (a, a_scale), (b, b_scale) = numpy_cast(dz, E4M3, 1), numpy_cast(weight.detach().t(), E4M3, 1)
        self.assertLess(bf16_error(dx, (a * a_scale) @ (b * b_scale).T, 1e-5), 1)
        self.assertLess(bf16_error(dw, dz.double().numpy().T @ x.detach().double().numpy(), 1e-4), 1)

    def test_saturated_elements_are_counted_on(self):
        x, weight, _, _ = self.tensors()
        with torch.no_grad():
            x[3, 4:7] = 100.0
        for function in (static_linear, block):
            saturated = torch.tensor([2])
            function(x, weight, SCALE, saturated)
            self.assertEqual(int(saturated), 5)

    def test_other_types_are_rounded_first(self):
        x, weight, _, _ = self.tensors()
        for function in (static_linear, block):
            wide = function(x.detach().float(), weight.detach().float(), SCALE)
            self.assertTrue(torch.equal(wide, function(x.detach(), weight.detach(), SCALE)))

    def test_only_gradients_that_are_needed(self):
        for function in (static_linear, block):
            for needs in ((True, False), (False, True)):
                x, weight, bias, dy = self.tensors()
                x.requires_grad_(needs[0])
                weight.requires_grad_(needs[1])
                function(x, weight, SCALE, None, bias).backward(dy)
                self.assertEqual((x.grad is not None, weight.grad is not None), needs)
                self.assertIsNotNone(bias.grad)

    def test_without_gradients_z_is_not_kept(self):
        x, weight, _, _ = self.tensors()
        h, z, _ = block_op(x, weight, SCALE, None, False)
        self.assertEqual(z.numel(), 0)
        with self.assertRaisesRegex(RuntimeError, "keep_z"):
            h.sum().backward()
        with torch.no_grad():
            self.assertTrue(torch.equal(block(x, weight, SCALE), h.detach()))

    def test_the_ops_beneath_have_none_and_pytorch_says_so(self):
        z = random(4, 256).requires_grad_()
        with self.assertWarnsRegex(UserWarning, "loka::block_tail: an autograd kernel was not registered"):
            native_ops.block_tail(z).sum().backward()
        self.assertIsNone(z.grad)

    def test_opcheck(self):
        x, weight, bias, dh = self.tensors()
        w, w_scale, _, _ = native_ops.fp8_cast(weight.detach(), "row", "e4m3", False, True, False)
        codes, x_scale, _, _ = native_ops.fp8_cast(x.detach(), "row", "e4m3", False, True, False)
        z = random(40, 256, seed=7)
        to = torch.tensor([2.0**-4])
        flat = x.detach()
        for op, arguments in (
            (native_ops.fp8_cast, (flat, "row", "e4m3", False, True, True)),
            (native_ops.fp8_cast, (flat, "tensor", "e5m2", False, False, True)),
            (native_ops.static_cast, (flat, SCALE, counter())),
            (native_ops.fp8_gemm, (codes, x_scale, w, w_scale, True)),
            (native_ops.static_gemm, (flat, SCALE, w, w_scale, bias.detach(), counter())),
            (native_ops.block_gemm, (flat, SCALE, w, w_scale, None, counter(), None, True)),
            (native_ops.block_gemm, (flat, SCALE, w, w_scale, None, counter(), to, False)),
            (native_ops.block_tail, (z,)),
            (native_ops.block_backward, (dh, z)),
            (static_linear_op, (x, weight, SCALE, bias)),
            (block_op, (x, weight, SCALE, bias, True)),
        ):
            checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
            # PyTorch 2.11 cannot compare FP8 arguments with what they were.
            given_codes = any(getattr(each, "dtype", None) == w.dtype for each in arguments)
            with self.subTest(op=op):
                torch.library.opcheck(op, arguments, test_utils=checks[given_codes:])

    def test_compiled_whole(self):
        for function in (static_linear, block):
            x, weight, bias, dy = self.tensors()

            def step(x, weight, bias, saturated):
                return function(x, weight, SCALE, saturated, bias) * 2

            found = []
            for run in (step, torch.compile(step, backend="aot_eager", fullgraph=True)):
                saturated = counter()
                y = run(x, weight, bias, saturated)
                found.append((y, *torch.autograd.grad(y, (x, weight, bias), dy), saturated))
            for eager, compiled in zip(*found):
                self.assertTrue(torch.equal(eager, compiled), function.__name__)


if __name__ == "__main__":
    unittest.main()
