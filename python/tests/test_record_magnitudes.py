"""Squares of a site's operands by octave, against loops over every value."""

import math
import unittest

from record_support import loka  # noqa: F401  Puts the package on the path.

import torch

from loka.record.magnitudes import ALONE, BINS, BLOCK, FEATURE, TENSOR, Magnitudes, tensors

ROWS, K, N = 300, 5, 3


def operands(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, K, generator=generator).mul(3.0).exp()
    grad = torch.randn(ROWS, N, generator=generator) * 1e-4 / x.norm(dim=1, keepdim=True)
    x[:, 2] = 0.0
    x[130:200, 1] = 0.0
    return x.to(dtype), grad.to(dtype)


def apart(x, grad, factor):
    """The same, value by value in Python's floats."""
    found = torch.zeros(2, 4, BINS, dtype=torch.float64)
    x, grad = x.double(), grad.double()
    for operand, (mine, other) in enumerate(((x, grad), (grad, x))):
        unit = factor**2 if operand == 1 else 1.0
        for row in range(len(mine)):
            weight = float(other[row].square().sum()) * factor**2
            for feature in range(mine.shape[1]):
                value = abs(float(mine[row, feature]))
                block = mine[row // 128 * 128 :, feature][:128]
                largest = {TENSOR: mine, FEATURE: mine[:, feature], BLOCK: block, ALONE: mine}
                for scaling, of in largest.items():
                    amax = float(of.abs().max())
                    if value == 0.0:
                        continue
                    octave = min(max(math.ceil(-math.log2(value / amax)), 1) if value < amax else 0, BINS - 1)
                    found[operand, scaling, octave] += value**2 * (unit if scaling == ALONE else weight)
    return found


class SquaresByOctave(unittest.TestCase):
    def added(self, calls, rows=2048, factor=512.0):
        one = torch.ones((), dtype=torch.bool)
        magnitudes = Magnitudes(torch.device("cpu"), rows)
        for index, (x, grad) in enumerate(calls):
            magnitudes.add(x, grad, torch.full((1,), factor), one, index)
        return magnitudes.sums

    def test_every_value_is_counted_where_it_lies(self):
        for dtype in (torch.float32, torch.bfloat16):
            calls = [operands(1, dtype), operands(2, dtype)]
            wanted = sum(apart(x, grad, 512.0) for x, grad in calls)
            torch.testing.assert_close(self.added(calls), wanted, rtol=1e-6, atol=0.0)

    def test_both_operands_weigh_the_same_products(self):
        x, grad = operands(3)
        products = float((x.double().square().sum(1) * grad.double().square().sum(1)).sum()) * 512.0**2
        sums = self.added([(x, grad)])
        for operand in range(2):
            for scaling in (TENSOR, FEATURE, BLOCK):
                self.assertAlmostEqual(float(sums[operand, scaling].sum()) / products, 1.0, places=6)
        self.assertAlmostEqual(float(sums[0, ALONE].sum()) / float(x.double().square().sum()), 1.0, places=6)

    def test_a_part_of_the_rows_stands_for_all(self):
        generator = torch.Generator().manual_seed(4)
        x, grad = torch.randn(4096, 8, generator=generator), torch.randn(4096, 8, generator=generator)
        part, whole = self.added([(x, grad)], rows=1024), self.added([(x, grad)], rows=4096)
        self.assertLess(float((part[:, :3].sum(2) / whole[:, :3].sum(2) - 1).abs().max()), 0.1)

    def test_a_call_that_is_not_finite_is_left_out(self):
        magnitudes = Magnitudes(torch.device("cpu"), 2048)
        x, grad = operands(5)
        x[3, 3] = math.inf
        magnitudes.add(x, grad, torch.ones(1), torch.zeros((), dtype=torch.bool), 0)
        self.assertTrue(bool((magnitudes.sums == 0).all()))

    def test_means_are_over_examples_with_those_that_did_not_come(self):
        x, grad = operands(6)
        sums = self.added([(x, grad)])
        noise = torch.tensor([100.0, 1.0, 1.0, 100.0], dtype=torch.float64)
        found = tensors(sums, noise, 50)
        torch.testing.assert_close(found["noise.input_hist"], sums[0] / 150)
        torch.testing.assert_close(found["noise.grad_output_hist"], sums[1] / 150)
        self.assertEqual(tensors(sums * math.nan, noise, 50), {})


if __name__ == "__main__":
    unittest.main()
