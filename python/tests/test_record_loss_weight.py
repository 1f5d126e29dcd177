"""What the Recorder says of a loss that is so many times a log loss."""

import contextlib
import os
import pathlib
import sys
import tempfile
import unittest
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
from torch import nn
from torch.nn import functional as F

import loka

ROWS, TASKS = 512, 4


class Tasks(nn.Module):
    def __init__(self, tasks=TASKS, apart=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(32, 1) for _ in range(tasks)] if apart else [nn.Linear(32, tasks)])

    def forward(self, x):
        x = self.body(x)
        return torch.cat([head(x) for head in self.heads], 1)


def bce(z, y, **how):
    return F.binary_cross_entropy_with_logits(z.float(), y, **how)


def alone(z, y):
    """Each task by itself, a second one by those that clicked."""
    return bce(z[:, 0], y[:, 0]) + bce(z[y[:, 0] > 0, 1], y[y[:, 0] > 0, 1])


class Said(unittest.TestCase):
    def said(self, loss, model=None, compiled=False, autocast=False, labels=None, **options):
        torch.manual_seed(0)
        model = model or Tasks()
        run = torch.compile(model, backend="aot_eager") if compiled else model
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with loka.Recorder(model, out=folder, every=2, **options) as recorder:
                for _ in range(6):
                    x = torch.randn(ROWS, 16)
                    y = (torch.rand(ROWS, TASKS) < torch.sigmoid(x[:, :TASKS])).float() if labels is None else labels(x)
                    with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
                        z = run(x)
                    recorder.loss(loss(z, y)).backward()
                    optimizer.step()
                    optimizer.zero_grad()
        return [each for each in recorder.warnings if "log loss" in each]

    def test_a_mean_over_tasks(self):
        for kind in ({}, {"compiled": True, "autocast": True}, {"model": Tasks(apart=True)}):
            (said,) = self.said(bce, **kind)
            self.assertIn("the loss is 0.25 times the log loss of what heads.0", said)
            self.assertIn("loss_reduction=1 / (4 * examples)", said)

    def test_what_it_asks_for_is_enough(self):
        self.assertEqual(self.said(bce, loss_reduction=1 / (4 * ROWS)), [])

    def test_a_weight(self):
        (said,) = self.said(lambda z, y: 0.1 * bce(z, y) * TASKS, autocast=True)
        self.assertRegex(said, r"the loss is 0\.1(00)? times .*loss_reduction=1 / \(10 \* examples\)")
        (said,) = self.said(lambda z, y: 2.5 * TASKS * bce(z, y))
        self.assertIn("loss_reduction=2.5 / examples", said)

    def test_sums_of_tasks_and_losses_of_other_kinds_are_let_be(self):
        self.assertEqual(self.said(lambda z, y: bce(z, y) * TASKS), [])
        self.assertEqual(self.said(lambda z, y: bce(z, y, reduction="none").sum(1).mean(), autocast=True), [])
        self.assertEqual(self.said(F.mse_loss), [])
        self.assertEqual(self.said(lambda z, y: F.cross_entropy(z, y), labels=lambda x: x[:, :TASKS].argmax(1)), [])
        weighted = lambda z, y: (bce(z, y, reduction="none") * torch.rand(ROWS, 1)).mean()
        self.assertEqual(self.said(weighted), [])
        soft = lambda x: torch.sigmoid(3 * x[:, :TASKS])
        self.assertEqual(self.said(bce, labels=soft), [])

    def test_a_task_of_those_that_clicked(self):
        (said,) = self.said(alone, Tasks(2, apart=True))
        # Of half the examples, so its gradients are twice as large: 1 and 2 times, by their squares.
        times = float(said.split("the loss is ")[1].split(" times")[0])
        self.assertTrue(1.3 < times < 1.8, said)

    def test_a_scale_that_nobody_told_of(self):
        (said,) = self.said(lambda z, y: bce(z, y) * TASKS * 2.0**16)
        self.assertIn("the loss is 6.55e+04 times", said)


if __name__ == "__main__":
    unittest.main()
