"""Which recorded steps a trace is of: the last half, at least, of them."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
from torch import nn

import loka
from loka.record import era
from loka.record.options import Options
from loka.record.site import SiteStats

ONE = torch.ones(1)


def steps(count, k=24, n=12, rows=40):
    """Gradients that shrink by 4 a step, about means that move."""
    generator = torch.Generator().manual_seed(3)
    for step in range(count):
        x = torch.randn(rows, k, generator=generator) + step
        yield x, (torch.randn(rows, n, generator=generator) + x[:, :n] - step) * 4.0**-step


def of(pairs, first, **options):
    """A site that saw the pairs from `first` on, as if they were the first."""
    stats = SiteStats("site", None, Options(**options))
    for index, (x, grad) in enumerate(pairs):
        if index >= first:
            stats.add(x, grad, index, ONE)
        stats.end_step(index, len(x))
    return stats


class History(unittest.TestCase):
    def test_it_is_of_at_least_the_last_half_of_the_recorded_steps(self):
        self.assertEqual([era.first_of(count) for count in range(1, 10)], [0, 1, 1, 2, 2, 2, 2, 4, 4])
        for count in range(1, 200):
            self.assertLessEqual(2 * era.first_of(count), count)

    def test_the_sums_of_two_spans_are_those_of_all_their_rows(self):
        for options in ({"cross_cov": True}, {"limit": 8, "rank": 2, "oversample": 2, "cross_rank": 1}):
            for count in range(1, 10):
                pairs = list(steps(count))
                recent = of(pairs, 0, **options)
                alone = of(pairs, era.first_of(count), history="all", **options)
                for name, expected in alone.moments().items():
                    for part, value in recent.moments()[name].items():
                        if part == "quantile_sum":
                            # Taken at another few of the steps; the last counter is how many.
                            continue
                        error = (value.double() - expected[part].double())[: 3 if part == "counters" else None].abs().max()
                        self.assertLessEqual(float(error), 1e-9 * float(expected[part].abs().max()), (count, name, part))
                self.assertEqual(recent.crossed().keys(), alone.crossed().keys())
                for part, expected in alone.crossed().items():
                    error = (recent.crossed()[part] - expected).abs().max()
                    self.assertLessEqual(float(error), 1e-9 * float(expected.abs().max()), (count, part))

    def test_quantiles_are_there_whenever_it_is_saved(self):
        for count in range(1, 20):
            for state in of(list(steps(count)), 0, quantile_every=64).moments().values():
                self.assertGreater(float(state["counters"][3]), 0, count)

    def test_a_site_that_is_seldom_called_keeps_what_it_has(self):
        stats = SiteStats("expert", None, Options())
        (x, grad), *_ = steps(1)
        for index in range(40):
            if index == 1:
                stats.add(x, grad, index, ONE)
            stats.end_step(index, len(x))
        self.assertEqual(float(stats.moments()["input"]["counters"][0]), len(x))

    def test_a_trace_says_since_when(self):
        for history, since, rows in (("recent", 6, 3 * 8), ("all", None, 5 * 8)):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
            optimizer = torch.optim.Adam(model.parameters())
            with tempfile.TemporaryDirectory() as folder:
                with loka.Recorder(model, out=folder, every=3, history=history) as recorder:
                    for _ in range(15):
                        recorder.loss(model(torch.randn(8, 16)).square().mean()).backward()
                        optimizer.step()
                        optimizer.zero_grad()
                with open(recorder.path, "rb") as file:
                    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
                self.assertEqual(json.loads(header["__metadata__"]["loka.trace"])["run"].get("since"), since)
                self.assertEqual(float(recorder._record.sites["0"].moments()["input"]["counters"][0]), rows)
        with self.assertRaisesRegex(ValueError, "history is 'half', expected 'recent' or 'all'"):
            loka.Recorder(model, out="nowhere", history="half")


if __name__ == "__main__":
    unittest.main()
