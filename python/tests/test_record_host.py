"""What plain steps take the host of a GPU, on a made-up one: what is timed, what goes into the trace, and what is said of it."""

import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
from torch import nn

import loka
from loka.record import host


class Gpu:
    """Whose steps take `step_ms`; `waits`: it had caught up when it is asked."""

    def __init__(self, step_ms=10.0, waits=True, done=True):
        self.now, self.step_ms, self.waits, self.done = 0.0, step_ms, waits, done
        self.synchronized = 0
        self.after_a_wait, self.is_idle = step_ms, False
        """What a step takes that begins on an idle GPU."""

    def step(self):
        self.now += self.after_a_wait if self.is_idle else self.step_ms
        self.is_idle = False

    def event(self, enable_timing=False):
        return Event(self, enable_timing)

    def synchronize(self, device):
        self.synchronized += 1
        self.is_idle = True


class Event:
    def __init__(self, gpu, timing):
        self.gpu, self.timing, self.at = gpu, timing, None

    def record(self):
        self.at = self.gpu.now

    def query(self):
        return self.gpu.done if self.timing else self.gpu.waits

    def elapsed_time(self, later):
        return later.at - self.at


def trained(gpu, steps, every=10, on_gpu=True, folder=None, graph=False):
    """The recorder of a model that trained so many steps, and its manifest."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    recorder = loka.Recorder(model, out=folder, every=every, name="m")
    recorder._host = host.HostPace(
        recorder._steps, lambda: torch.device("cuda") if on_gpu else None, gpu.synchronize, gpu.event
    )
    with mock.patch.object(host, "is_capturing", lambda: graph), recorder:
        for _ in range(steps):
            loss = recorder.loss(model(torch.randn(64, 16)).square().mean())
            loss.backward()
            gpu.step()
            optimizer.step()
            optimizer.zero_grad()
    with open(recorder.path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return recorder, json.loads(header["__metadata__"]["loka.trace"])


class Paced(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def trained(self, gpu, steps, **options):
        return trained(gpu, steps, folder=self.folder, **options)

    def test_a_slow_host_is_in_the_trace_and_in_the_report(self):
        gpu = Gpu()
        recorder, manifest = self.trained(gpu, 60)
        pace = manifest["run"]["pace"]
        self.assertEqual((pace["steps"], pace["waited"], pace["step_ms"], pace["period_ms"]), (6, 6, 10.0, 10.0))
        self.assertGreater(pace["host_ms"], 0)
        self.assertLess(pace["host_ms"], 1000)
        self.assertEqual(gpu.synchronized, 6)
        self.assertIn("the GPU waits for its host", str(recorder.report()))
        self.assertIn("reduce-overhead", str(recorder.report()))

    def test_what_a_step_takes_among_others_is_of_those_behind_the_one_that_was_timed(self):
        gpu = Gpu()
        gpu.after_a_wait = 14.0
        _, manifest = self.trained(gpu, 60)
        pace = manifest["run"]["pace"]
        self.assertEqual((pace["step_ms"], pace["period_ms"]), (14.0, 10.0))
        # Two steps behind it are enough, one is not.
        self.assertEqual(self.trained(gpu, 60, every=5)[1]["run"]["pace"]["period_ms"], 10.0)
        self.assertNotIn("period_ms", self.trained(gpu, 60, every=4)[1]["run"]["pace"])

    def test_a_host_that_keeps_ahead_is_not_worth_a_line(self):
        recorder, manifest = self.trained(Gpu(waits=False), 60)
        self.assertEqual(manifest["run"]["pace"]["waited"], 0)
        self.assertNotIn("waits for its host", str(recorder.report()))

    def test_a_long_run_is_looked_at_for_a_while(self):
        gpu = Gpu()
        _, manifest = self.trained(gpu, 300)
        self.assertEqual(manifest["run"]["pace"]["steps"], host.MOST)
        self.assertEqual(gpu.synchronized, host.MOST)

    def test_few_steps_all_recorded_ones_and_a_cpu_say_nothing(self):
        self.assertNotIn("pace", self.trained(Gpu(), 20)[1]["run"])
        self.assertNotIn("pace", self.trained(Gpu(), 20, every=1)[1]["run"])
        self.assertNotIn("pace", self.trained(Gpu(), 60, on_gpu=False)[1]["run"])
        self.assertNotIn("pace", self.trained(Gpu(), 60, graph=True)[1]["run"])

    def test_nothing_waits_for_what_the_gpu_has_not_done(self):
        self.assertNotIn("pace", self.trained(Gpu(done=False), 60)[1]["run"])

    def test_nobody_listens_between_the_steps_that_are_timed(self):
        gpu = Gpu()
        before = loka.listeners.listening()
        recorder, _ = self.trained(gpu, 35)
        self.assertEqual(loka.listeners.listening(), before)


if __name__ == "__main__":
    unittest.main()
