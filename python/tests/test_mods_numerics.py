"""BlockNorm and hard swish against a computation in NumPy's FP64, and against the trace's rules."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy
import torch

from loka import mods

EPS = 2.0**-23


def block_norm(x, block, eps=EPS):
    groups = x.astype(numpy.float64).reshape(-1, block)
    return (groups / numpy.sqrt((groups**2).mean(1, keepdims=True) + eps)).reshape(x.shape)


def hard_swish(x):
    return x * numpy.clip(x + 3, 0, 6) / 6


class BlockNorm(unittest.TestCase):
    def test_by_hand(self):
        # Two blocks of two: RMS 3 and 5.
        x = torch.tensor([[3.0, 3.0, -5.0, 5.0]])
        torch.testing.assert_close(mods.BlockNorm(4, 2)(x), torch.tensor([[1.0, 1.0, -1.0, 1.0]]))

    def test_against_numpy(self):
        rng = numpy.random.default_rng(0)
        x = rng.standard_normal((5, 3, 512)) * rng.lognormal(0, 3, (5, 3, 1)) + 1
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 3e-7), (torch.bfloat16, 2**-8)):
            given = torch.from_numpy(x).to(dtype)
            result = mods.BlockNorm(512)(given)
            self.assertEqual((result.dtype, result.shape), (dtype, given.shape))
            expected = block_norm(given.double().numpy(), 256)
            error = numpy.abs(result.double().numpy() - expected) / (numpy.abs(expected) + 1e-6)
            self.assertLess(error.max(), tolerance * 1.01)

    def test_small_rows_in_bf16_take_fp32s_epsilon(self):
        # BF16's own epsilon, 2^-7, would give .011 here.
        x = torch.full((1, 256), 1e-3, dtype=torch.bfloat16)
        given = float(x[0, 0])
        expected = given / (given**2 + EPS) ** 0.5
        self.assertAlmostEqual(float(mods.BlockNorm(256)(x)[0, 0]), expected, delta=expected * 2**-8)

    def test_bounded_by_the_root_of_the_block(self):
        x = torch.zeros(1, 512)
        x[0, 7] = 1e6
        result = mods.BlockNorm(512)(x)
        self.assertAlmostEqual(float(result[0, 7]), 16.0, places=4)
        self.assertEqual(float(result[0, 256:].abs().max()), 0.0)

    def test_blocks_are_those_of_a_plan(self):
        # core/src/mods/block_norm.rs: 256 where it divides the row, else the row.
        cases = {512: 256, 256: 256, 255: 255, 300: 300, 128: 128, 1: 1, 0: 0}
        self.assertEqual({n: mods.block_of(n) for n in cases}, cases)
        self.assertEqual((mods.BLOCK, mods.EPS), (256, EPS))

    def test_gradients(self):
        torch.manual_seed(0)
        x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
        for function in (mods.block_norm, mods.block_norm_hard_swish):
            for block in (4, 8):
                self.assertTrue(torch.autograd.gradcheck(lambda x: function(x, block, 1e-3), (x,)))
        self.assertTrue(torch.autograd.gradgradcheck(lambda x: mods.block_norm(x, 4, 1e-3), (x,)))

    def test_rows_that_do_not_fit(self):
        with self.assertRaisesRegex(ValueError, r"\(2, 6\) has no last dimension that is a multiple of the block 4"):
            mods.block_norm(torch.zeros(2, 6), 4)
        with self.assertRaisesRegex(ValueError, r"BlockNorm\(8\) got rows of 16 features"):
            mods.BlockNorm(8, 4)(torch.zeros(2, 16))

    def test_empty_batches_and_views(self):
        self.assertEqual(mods.BlockNorm(8, 4)(torch.zeros(0, 8)).shape, (0, 8))
        x = torch.randn(8, 5)
        numpy.testing.assert_allclose(mods.block_norm(x.t(), 4).numpy(), block_norm(x.t().numpy(), 4), rtol=1e-6)

    def test_under_autocast_the_type_stays(self):
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(mods.BlockNorm(8, 4)(torch.randn(2, 8)).dtype, torch.float32)
            self.assertEqual(mods.BlockNorm(8, 4)(torch.randn(2, 8).bfloat16()).dtype, torch.bfloat16)


class HardSwish(unittest.TestCase):
    def test_by_hand(self):
        x = torch.tensor([-4.0, -3.0, -1.5, 0.0, 1.5, 3.0, 4.0])
        expected = torch.tensor([0.0, 0.0, -0.375, 0.0, 1.125, 3.0, 4.0])
        torch.testing.assert_close(mods.HardSwish()(x), expected)

    def test_in_place(self):
        x = torch.tensor([1.5])
        self.assertIs(mods.HardSwish(inplace=True)(x), x)

    def test_both_at_once_round_once(self):
        rng = numpy.random.default_rng(1)
        x = torch.from_numpy(rng.standard_normal((16, 64)) * 3)
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 2**-8)):
            given = x.to(dtype)
            expected = hard_swish(block_norm(given.double().numpy(), 16))
            error = numpy.abs(mods.block_norm_hard_swish(given, 16).double().numpy() - expected)
            self.assertLess((error / (numpy.abs(expected) + 1e-3)).max(), tolerance)


class OnTheGpu(unittest.TestCase):
    @unittest.skipUnless(torch.cuda.is_available(), "no CUDA device")
    def test_the_kernels_serve_and_agree(self):
        x = torch.randn(33, 512, device="cuda", dtype=torch.bfloat16)
        self.assertTrue(mods.norm.fused.serves(x, 256))
        expected = hard_swish(block_norm(x.double().cpu().numpy(), 256))
        result = mods.block_norm_hard_swish(x, 256).double().cpu().numpy()
        self.assertLess((numpy.abs(result - expected) / (numpy.abs(expected) + 1e-3)).max(), 2**-8)


if __name__ == "__main__":
    unittest.main()
