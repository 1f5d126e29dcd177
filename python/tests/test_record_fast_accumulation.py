"""What fast accumulation cuts off a weight's gradient: against the tensor core's rule, done instruction by instruction."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy
import torch

from loka.record.gradient_norm import GradientNorm, cut_by_fast_accumulation


def by_the_rule(a, b):
    """[m, s] each, gives the sums over m as docs/concepts/method.md says the tensor core makes them, in FP64."""
    total = numpy.zeros(a.shape[1])
    for start in range(0, len(a), 32):
        terms = numpy.concatenate([a[start : start + 32] * b[start : start + 32], total[None]])
        exponent = numpy.floor(numpy.log2(numpy.maximum(numpy.abs(terms).max(0), 1e-300)))
        grid = 2.0 ** (exponent - 13)
        total = (numpy.trunc(terms / grid) * grid).sum(0)
    return total


def clicks(m, seed=0):
    """x and dy as behind a ReLU and a log loss, on E4M3's grid: x is positive, three in ten rows of dy have the other sign
    and their sum is nearly nothing."""
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(m, 48, generator=generator) + 1).clamp(min=0)
    clicked = torch.rand(m, 1, generator=generator) < 0.3
    head = torch.randn(1, 32, generator=generator)
    dy = torch.where(clicked, -0.7, 0.3) * head * (1 + 0.2 * torch.randn(m, 32, generator=generator))
    return [side.to(torch.float8_e4m3fn).float() for side in (x, dy)]


class Cuts(unittest.TestCase):
    def test_as_the_rule_has_it(self):
        for m in (1000, 20_000):
            x, dy = clicks(m)
            a, b = dy.repeat_interleave(48, 1), x.repeat(1, 32)
            exact = (a.double() * b.double()).sum(0).numpy()
            lost = exact - by_the_rule(a.double().numpy(), b.double().numpy())
            found = cut_by_fast_accumulation(a, b).double().numpy()
            off = numpy.linalg.norm(found - lost) / numpy.linalg.norm(lost)
            self.assertLess(off, 0.15)

    def test_nothing_of_signs_that_average_out_and_much_of_those_that_do_not(self):
        generator = torch.Generator().manual_seed(1)
        draw = lambda: torch.randn(20_000, 64, generator=generator).to(torch.float8_e4m3fn).float()
        a, b = draw(), draw()
        share = cut_by_fast_accumulation(a, b).norm() / (a * b).sum(0).norm()
        self.assertLess(float(share), 0.01)
        x, dy = clicks(20_000)
        of_clicks = cut_by_fast_accumulation(dy[:, :32], x[:, :32]).norm() / (dy[:, :32] * x[:, :32]).sum(0).norm()
        self.assertGreater(float(of_clicks), 0.03)

    def test_the_series_is_that_of_the_whole_gradient(self):
        m = 8192
        x, dy = clicks(m)
        norm = GradientNorm(torch.device("cpu"), seed=0)
        one = torch.tensor(1.0)
        norm.add([(x.bfloat16(), dy.bfloat16() / m)], m, one, one * m, torch.tensor(True), 0)
        values = {name: float(track.row(0)) for name, track in norm.tracks.items()}
        gradient = dy.double().t() @ x.double() / m
        a, b = (dy.double().repeat_interleave(48, 1).numpy(), x.double().repeat(1, 32).numpy())
        lost = gradient.flatten().numpy() - by_the_rule(a, b) / m
        self.assertAlmostEqual(values["weight_grad_norm"] / float(gradient.norm()), 1, delta=0.01)
        self.assertAlmostEqual(values["weight_grad_fast"] / float(numpy.linalg.norm(lost)), 1, delta=0.15)


if __name__ == "__main__":
    unittest.main()
