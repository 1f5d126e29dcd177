"""The recorder's statistics against the same rows in NumPy's FP64, batch sizes and devices changing."""

import os
import pathlib
import sys
import unittest

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from loka.record import columns
from loka.record.moments import HIST_BINS
from loka.record.options import QUANTILE_PROBS, Options
from loka.record.shard import _covariance, _distribution
from loka.record.site import SiteStats
from loka.record.sketch import from_covariance, from_sketch, test_matrix
from loka.record.weights import MatrixNormal, low_rank, magnitudes

ONE = torch.ones(1)


def batches(sizes, k, n, seed=0):
    """Inputs far from zero and of unlike scales, and gradients that go with them."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(k, k, generator=generator) / k**0.5
    scales, means = torch.logspace(-3, 2, k), torch.linspace(-50, 400, k)
    for size in sizes:
        z = torch.randn(size, k, generator=generator)
        x = (z @ mixing) * scales + means
        yield x, (z @ mixing)[:, :n] * 1e-4 + torch.randn(size, n, generator=generator) * 1e-5


def recorded(pairs, scale=ONE, **options):
    """A site that saw `pairs`, one recorded step each."""
    stats = SiteStats("site", None, Options(**options))
    for index, (x, grad) in enumerate(pairs):
        stats.add(x, grad, index, scale)
    return stats


def relative(found, expected):
    expected = np.asarray(expected, dtype=np.float64)
    return float(np.abs(np.asarray(found, dtype=np.float64) - expected).max() / np.abs(expected).max())


class Against(unittest.TestCase):
    def test_moments_over_batches_of_changing_sizes(self):
        pairs = list(batches([70, 3, 1, 250], 12, 5))
        stats = recorded(pairs, cross_cov=True)
        x = np.concatenate([x.double().numpy() for x, _ in pairs])
        g = np.concatenate([g.double().numpy() * len(g) for _, g in pairs])
        for moments, rows in ((stats.input, x), (stats.grad, g)):
            found = {key: value.numpy() for key, value in _distribution(moments.state(), stats.options).items()}
            self.assertEqual(found["count"][0], 324)
            self.assertLess(relative(found["mean"], rows.mean(0)), 1e-12)
            cov = np.cov(rows.T)
            scale = np.sqrt(np.outer(cov.diagonal(), cov.diagonal()))
            self.assertLess(np.abs((found["cov"] - cov) / scale).max(), 1e-6)
            self.assertAlmostEqual(found["amax"][0] / np.abs(rows).max(), 1.0, places=6)
        cross = (g - g.mean(0)).T @ (x - x.mean(0)) / 323
        self.assertLess(relative(stats.cross.numpy() / 323, cross), 1e-9)

    def test_rows_used_are_spread_the_same_in_both_and_differ_by_step(self):
        pairs = list(batches([103, 103, 103], 6, 4))
        stats = recorded(pairs, rows=50, cross_cov=True)
        x = np.concatenate([x[i % 2 :: 2][:50].double().numpy() for i, (x, _) in enumerate(pairs)])
        g = np.concatenate([g[i % 2 :: 2][:50].double().numpy() * 103 for i, (_, g) in enumerate(pairs)])
        self.assertLess(relative(stats.input.mean, x.mean(0)), 1e-12)
        cross = (g - g.mean(0)).T @ (x - x.mean(0))
        self.assertLess(relative(stats.cross, cross), 1e-9)
        # The largest value is that of all rows, also of those that were not used.
        everything = max(float(x.abs().max()) for x, _ in pairs)
        self.assertAlmostEqual(float(stats.input.counters[2]) / everything, 1.0, places=6)

    def test_quantiles_of_one_batch_are_weibulls_and_average_by_rows(self):
        pairs = list(batches([300, 40], 4, 2))
        stats = recorded(pairs, quantile_every=1)
        found = _distribution(stats.input.state(), stats.options)["quantiles"].numpy()
        each = [np.quantile(x.double().numpy(), QUANTILE_PROBS, axis=0, method="weibull").T for x, _ in pairs]
        self.assertLess(relative(found, (300 * each[0] + 40 * each[1]) / 340), 1e-6)

    def test_outer_quantiles_are_not_pulled_inwards(self):
        generator = torch.Generator().manual_seed(3)
        pairs = [(torch.rand(1024, 1, generator=generator), torch.zeros(1024, 1)) for _ in range(60)]
        found = _distribution(recorded(pairs, quantile_every=1).input.state(), Options())["quantiles"].numpy()[0]
        # Uniform rows: the p-quantile is p. Its standard error here is .001 / sqrt(60) at p = .001.
        self.assertLess(abs(found[0] - 0.001), 4 * 0.001 / 60**0.5)
        self.assertLess(abs(found[-1] - 0.999), 4 * 0.001 / 60**0.5)

    def test_quantiles_take_turns_after_the_first_step(self):
        for turn, steps in ((0, (0, 4, 8)), (1, (0, 3, 7, 11))):
            stats = SiteStats("site", None, Options(quantile_every=4), turn)
            for index, (x, grad) in enumerate(batches([30] * 12, 4, 2)):
                stats.add(x, grad, index, ONE)
            self.assertEqual(float(stats.input.counters[3]), 30 * len(steps))

    def test_a_constant_feature_has_no_variance_and_no_nan(self):
        x = torch.randn(40, 3)
        x[:, 1] = 7e4
        stats = recorded([(x, torch.zeros(40, 2)), (x, torch.zeros(40, 2))])
        cov = _distribution(stats.input.state(), stats.options)["cov"]
        self.assertEqual(float(cov[1, 1]), 0.0)
        self.assertTrue(bool(torch.isfinite(cov).all()))


class Untouched(unittest.TestCase):
    def test_rows_are_left_as_they_are(self):
        for k, n in ((1, 1), (4, 1), (1, 5)):
            for dtype in (torch.float32, torch.float64):
                x, grad = torch.randn(40, k, dtype=dtype), torch.randn(40, n, dtype=dtype)
                before = x.clone(), grad.clone()
                recorded([(x, grad)], scale=torch.tensor([0.5]), quantile_every=1)
                self.assertTrue(torch.equal(x, before[0]) and torch.equal(grad, before[1]))


class Histogram(unittest.TestCase):
    def test_every_bin_of_the_format(self):
        exponents = torch.arange(-40, 40, dtype=torch.float64)
        # At a power of two, and just below the next one.
        values = torch.cat([torch.exp2(exponents), torch.exp2(exponents + 1) * (1 - 2**-24)]).float()
        bins = columns.hist_bins(values)
        expected = torch.arange(1, 81)
        self.assertTrue(torch.equal(bins, torch.cat([expected, expected])))
        odd = torch.tensor([0.0, -0.0, 1e-44, 2.0**-60, 3e38, torch.inf, -torch.inf, torch.nan, -1.0])
        self.assertEqual(columns.hist_bins(odd).tolist(), [0, 0, 1, 1, 80, 81, 81, 81, 41])

    def test_counts_values_after_the_factor(self):
        hist = torch.zeros(HIST_BINS, dtype=torch.int64)
        columns.histogram(torch.tensor([[1.0, 0.0], [4.0, -4.0]]), torch.tensor([0.5]), hist)
        self.assertEqual({i: int(c) for i, c in enumerate(hist) if c}, {0: 1, 40: 1, 42: 2})


class NotFinite(unittest.TestCase):
    def test_such_a_call_changes_only_histogram_and_count_of_skipped(self):
        for value in (torch.inf, -torch.inf, torch.nan):
            for where in (0, 1):
                with self.subTest(value=value, where=where):
                    pairs = list(batches([50, 50], 4, 3))
                    expected = recorded(pairs, cross_cov=True, quantile_every=1)
                    bad = [tensor.clone() for tensor in pairs[0]]
                    bad[where][7, 1] = value
                    stats = recorded([tuple(bad), *pairs[1:]], cross_cov=True, quantile_every=1)
                    stats.add(*pairs[0], 2, ONE)
                    for name in ("input", "grad"):
                        mine, other = getattr(stats, name), getattr(expected, name)
                        self.assertEqual(float(mine.counters[1]), 1.0)
                        self.assertEqual(float(mine.counters[0]), 100.0)
                        self.assertEqual(float(mine.counters[2]), float(other.counters[2]))
                        for part in ("mean", "square", "scatter", "quantile_sum"):
                            self.assertLess(relative(getattr(mine, part), getattr(other, part)), 1e-9, part)
                    self.assertLess(relative(stats.cross, expected.cross), 1e-9)
                    self.assertEqual(int((stats.input, stats.grad)[where].hist[81]), 1)
                    series = stats.tracks[("input_amax", "grad_amax")[where]].values(3)[:, 0]
                    self.assertFalse(bool(torch.isfinite(series[0])), "the series shows the overflow")
                    self.assertTrue(bool(torch.isfinite(series[1:]).all()))

    def test_a_lost_loss_scale_skips_the_call(self):
        stats = recorded(batches([20], 4, 3), scale=torch.zeros(1))
        self.assertEqual(float(stats.grad.counters[1]), 1.0)


class Scaling(unittest.TestCase):
    def test_per_example_gradients(self):
        x, grad = torch.randn(6, 5, 4), torch.randn(6, 5, 3)
        for reduction, factor in (("mean", 6.0), ("sum", 1.0), (0.25, 4.0)):
            with self.subTest(reduction):
                stats = recorded([(x, grad)], scale=torch.tensor([8.0]), loss_reduction=reduction)
                expected = grad.double().reshape(-1, 3).mean(0) * factor / 8
                self.assertLess(relative(stats.grad.mean, expected), 1e-12)
                self.assertEqual(float(stats.grad.counters[0]), 30.0)

    def test_empty_batches_are_nothing(self):
        stats = recorded([(torch.zeros(0, 4), torch.zeros(0, 3))])
        self.assertIsNone(stats.input)


class HeldOut(unittest.TestCase):
    def test_held_out_rows_are_pairs_and_not_in_the_statistics(self):
        pairs = list(batches([50, 60], 4, 3))
        stats = recorded(pairs, held_out=5)
        x, grad = pairs[1]
        self.assertTrue(torch.equal(stats.samples["input"], x[:5]))
        self.assertTrue(torch.allclose(stats.samples["grad_output"], grad[:5] * 60))
        rest = np.concatenate([x[5:].double().numpy() for x, _ in pairs])
        self.assertLess(relative(stats.input.mean, rest.mean(0)), 1e-12)
        self.assertEqual(float(stats.input.counters[0]), 100.0)


class Factors(unittest.TestCase):
    def low_rank(self, k=300, rank=10, seed=1):
        generator = torch.Generator().manual_seed(seed)
        factor = torch.randn(k, rank, generator=generator, dtype=torch.float64) * torch.logspace(1, 0, rank)
        diag = torch.rand(k, generator=generator, dtype=torch.float64)
        return factor, diag

    def test_a_sketch_finds_low_rank_plus_diagonal(self):
        factor, diag = self.low_rank()
        cov = factor @ factor.T + diag.diag()
        omega = test_matrix(300, 40, 0)
        found, rest = from_sketch(cov @ omega, omega, cov.diagonal(), 24, 1e-7)
        again = found @ found.T + rest.diag()
        self.assertLess(float(torch.linalg.matrix_norm(again - cov) / torch.linalg.matrix_norm(cov)), 0.01)
        self.assertTrue(bool((rest >= 0).all()))
        self.assertLess(relative(again.diagonal(), cov.diagonal()), 1e-9)

    def test_a_recorded_sketch_is_close_to_the_exact_covariance(self):
        factor, diag = self.low_rank(k=120, rank=6)
        generator = torch.Generator().manual_seed(2)
        pairs = []
        for size in (400, 150, 700):
            z = torch.randn(size, 6, generator=generator, dtype=torch.float64) @ factor.T
            z += torch.randn(size, 120, generator=generator, dtype=torch.float64) * diag.sqrt() + 30
            pairs.append((z.float(), torch.zeros(size, 2)))
        exact = np.cov(np.concatenate([x.double().numpy() for x, _ in pairs]).T)
        stats = recorded(pairs, limit=64, rank=16, oversample=16)
        self.assertEqual(tuple(stats.input.scatter.shape), (120, 32), "never a square matrix past the limit")
        found = {key: value.double().numpy() for key, value in _covariance(stats.input.state(), stats.options).items()}
        again = found["cov_factor"] @ found["cov_factor"].T + np.diag(found["cov_diag"])
        self.assertLess(np.linalg.norm(again - exact) / np.linalg.norm(exact), 0.02)
        self.assertLess(relative(again.diagonal(), exact.diagonal()), 1e-5)

    def test_an_exact_covariance_is_factored_by_its_leading_eigenvectors(self):
        factor, diag = self.low_rank(k=40, rank=5)
        cov = factor @ factor.T + diag.diag()
        found, rest = from_covariance(cov, 8)
        values, vectors = np.linalg.eigh(cov.numpy())
        best = (vectors[:, -8:] * values[-8:]) @ vectors[:, -8:].T
        self.assertLess(relative((found @ found.T).numpy(), best), 1e-9)
        self.assertLess(relative((found.square().sum(1) + rest).numpy(), cov.diagonal().numpy()), 1e-9)

    def test_no_variance_at_all(self):
        omega = test_matrix(50, 12, 0)
        factor, diag = from_sketch(torch.zeros(50, 12), omega, torch.zeros(50), 8, 1e-7)
        self.assertEqual((float(factor.abs().sum()), float(diag.sum())), (0.0, 0.0))

    def test_the_test_matrix_is_the_same_everywhere(self):
        first = test_matrix(33, 7, 5).clone()
        test_matrix.cache_clear()
        self.assertTrue(torch.equal(first, test_matrix(33, 7, 5)))
        self.assertFalse(torch.equal(first, test_matrix(33, 7, 6)))


class Weights(unittest.TestCase):
    def test_a_matrix_normal_finds_the_covariance_it_was_drawn_from(self):
        generator = torch.Generator().manual_seed(0)
        n, k = 5, 4
        options = {"generator": generator, "dtype": torch.float64}
        row, col = torch.randn(n, n, **options), torch.randn(k, k, **options)
        row, col = row @ row.T + torch.eye(n), 1e-4 * (col @ col.T + torch.eye(k))
        mean = torch.randn(n, k, **options)
        lower, right = torch.linalg.cholesky(row), torch.linalg.cholesky(col)
        normal = MatrixNormal(0.999)
        for step in range(3000):
            normal.update(mean + lower @ torch.randn(n, k, **options) @ right.T)
            if step == 0:
                normal.mean = mean.clone()
        found = {key: value.numpy() for key, value in normal.state().items()}
        self.assertAlmostEqual(float(np.trace(found["weight.row_cov"])) / n, 1.0, places=4)
        expected = np.kron(row.numpy(), col.numpy())
        again = np.kron(found["weight.row_cov"], found["weight.col_cov"])
        self.assertLess(np.linalg.norm(again - expected) / np.linalg.norm(expected), 0.15)
        self.assertLess(np.abs(found["weight.mean"] - mean.numpy()).max(), 0.05)

    def test_a_frozen_weight_stays_finite(self):
        normal = MatrixNormal(0.9)
        for _ in range(50):
            normal.update(torch.ones(3, 4))
        self.assertTrue(all(bool(torch.isfinite(value).all()) for value in normal.state().values()))

    def test_a_low_rank_weight_has_the_signal_and_the_variance_of_the_rest(self):
        generator = torch.Generator().manual_seed(0)
        n, k, rank = 96, 160, 4
        left, right = torch.randn(n, rank, generator=generator), torch.randn(k, rank, generator=generator)
        row = torch.rand(n, generator=generator) + 0.5
        col = 0.01 * (torch.rand(k, generator=generator) + 0.5)
        noise = row.sqrt()[:, None] * torch.randn(n, k, generator=generator) * col.sqrt()
        weight = left @ right.T + noise
        found = {key: value.float() for key, value in low_rank(weight, rank, 8, 0).items()}
        mean = found["weight.mean_left"] @ found["weight.mean_right"].T
        exact = torch.linalg.svdvals(weight.double())[rank:].square().sum().sqrt()
        self.assertLess(float((weight - mean).norm() / exact), 1.02, "what BF16 adds to the best of that rank")
        rest = found["weight.row_cov_diag"][:, None] * found["weight.col_cov_diag"]
        self.assertAlmostEqual(float(rest.sum() / (weight - mean).square().sum()), 1.0, places=4)
        self.assertLess(float((rest / (row[:, None] * col) - 1).abs().mean()), 0.2)
        self.assertTrue(torch.equal(found["weight.mean_left"], low_rank(weight, rank, 8, 0)["weight.mean_left"].float()))

    def test_norms_of_many_at_once(self):
        found = magnitudes([torch.tensor([3.0, -4.0]), None, torch.tensor([[-7.0, 1.0]])], 2.0)
        self.assertTrue(torch.allclose(found, torch.tensor([5.0, -1.0, 50.0**0.5])))
        self.assertEqual(float(magnitudes([torch.tensor([3.0, -4.0])], torch.inf)[0]), 4.0)
        self.assertIsNone(magnitudes([None], 2.0))


if __name__ == "__main__":
    unittest.main()
