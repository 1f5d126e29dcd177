"""A host that is slower than its GPU, on a made-up clock: when it is found out, what is tried, and what comes of it."""

import contextlib
import copy
import pathlib
import sys
import unittest
import warnings
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
import torch._dynamo.testing

import loka
from loka import lag
from loka.kernels.replayed import Replayed
from loka.plans import CanaryWarning, PlanError, host, pace, trial
from loka.plans.paused import is_paused
from loka.plans.trial import Times, Trial
from ranker import PLAN, Ranker, batch
from test_apply_canary import following, loss_of

FOUND = 2 + 4
"""Steps until a slow host is found out, in these tests."""


class Gpu:
    """A GPU whose steps take as long as a test says. `behind`: it has not caught up with its host when it is asked."""

    def __init__(self, plan=8.0, bf16=6.0, behind=False):
        self.plan, self.bf16, self.behind = plan, bf16, behind
        self.now, self.asked = 0.0, 0

    def event(self):
        return Event(self)

    def step(self, model):
        self.now += self.bf16 if is_paused(model) else self.plan


class Event:
    def __init__(self, gpu):
        self.gpu, self.at = gpu, None

    def record(self):
        self.at = self.gpu.now

    def query(self):
        self.gpu.asked += 1
        return not self.gpu.behind

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return later.at - self.at


class SlowHost(unittest.TestCase):
    def setUp(self):
        steps = mock.patch.multiple(pace, FIRST=2, WINDOW=4, EVERY=1000)
        turns = mock.patch.multiple(trial, ROUNDS=2, SKIPPED=2, TIMED=4, STEPS=24)
        for each in (steps, turns):
            each.start()
            self.addCleanup(each.stop)

    def applied(self, gpu, plan=PLAN, room=True, model=None, **options):
        """A model that takes the test's GPU for its own."""
        model = model or Ranker()
        with mock.patch.object(torch.cuda, "is_available", lambda: True), \
                mock.patch.object(lag, "is_capturing", lambda: False):  # fmt: skip
            with _no_gpu_elsewhere():
                loka.apply(model, plan, emulate=True, **options)
        watch = host.host_watch(model)
        if watch is not None:
            watch._pace._lag._make = watch._event = gpu.event
            watch._device = lambda: torch.device("cuda")
            watch._room = lambda device: room
        return model

    def train(self, model, gpu, steps, compiled=None, optimizer=None):
        optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(steps):
                optimizer.zero_grad()
                loss_of(model if compiled is None else compiled, batch(64, seed=step)).backward()
                gpu.step(model)
                optimizer.step()
        return [str(one.message) for one in caught if issubclass(one.category, CanaryWarning)]

    def test_a_plan_that_is_slower_goes(self):
        gpu, told = Gpu(plan=8.75, bf16=6.33), []
        model = self.applied(gpu, following())
        told += self.train(model, gpu, FOUND)
        self.assertEqual((told, is_paused(model)), ([], False))
        self.assertIn("fp8", str(loka.resolved(model)))
        told += self.train(model, gpu, trial.STEPS + 5)
        self.assertEqual(len(told), 1, told)
        self.assertIn("8.75 ms a step by the plan, 6.33 in BF16", told[0])
        self.assertIn("reduce-overhead", told[0])
        self.assertTrue(is_paused(model))
        resolved = loka.resolved(model)
        self.assertEqual(resolved.num_fp8, 0)
        self.assertIn("in BF16 since step 30: slow host", str(resolved))
        self.assertIn("8.75 ms", loka.health(model).notes[-1])
        self.assertEqual(loka.health(model).off, ())
        # What runs now is PyTorch's own, to the bit.
        other = Ranker()
        other.load_state_dict(model.state_dict())
        x = batch(16)
        self.assertTrue(torch.equal(model(x), other(x)))
        loka.unapply(model)
        self.assertIs(type(model.bottom[0]), torch.nn.Linear)
        self.assertNotIn("_loka_paused", model.bottom[0].__dict__)

    def test_a_plan_that_is_faster_stays(self):
        gpu = Gpu(plan=6.0, bf16=6.5)
        model = self.applied(gpu, following())
        self.assertEqual(self.train(model, gpu, FOUND + trial.STEPS + 5), [])
        self.assertFalse(is_paused(model))
        self.assertIn("faster all the same: 6 ms a step by the plan, 6.5 in BF16", loka.health(model).notes[-1])
        self.assertGreater(loka.resolved(model).num_fp8, 0)

    def test_a_plan_that_gains_nothing_stays_and_is_told_of(self):
        gpu = Gpu(plan=6.01, bf16=6.0)
        model = self.applied(gpu)
        told = self.train(model, gpu, FOUND + trial.STEPS + 5)
        self.assertEqual((len(told), is_paused(model)), (1, False))
        self.assertIn("gains nothing", told[0])

    def test_on_request_it_is_only_told(self):
        gpu = Gpu()
        model = self.applied(gpu, on_slow_host="warn")
        told = self.train(model, gpu, FOUND + trial.STEPS)
        self.assertEqual((len(told), is_paused(model)), (1, False))
        self.assertIn("the GPU waits for the host", told[0])
        self.assertEqual(gpu.asked, pace.WINDOW, "the first steps compile, and the others are not looked at")

    def test_without_memory_for_bf16_it_is_only_told(self):
        gpu = Gpu()
        model = self.applied(gpu, room=False)
        told = self.train(model, gpu, FOUND + trial.STEPS)
        self.assertEqual((len(told), is_paused(model)), (1, False))
        self.assertIn("no memory", told[0])

    def test_a_host_that_keeps_ahead_tries_nothing(self):
        gpu = Gpu(behind=True)
        model = self.applied(gpu)
        self.assertEqual(self.train(model, gpu, FOUND + trial.STEPS), [])
        self.assertEqual(gpu.now, 8.0 * (FOUND + trial.STEPS))

    def test_a_model_on_the_cpu_is_not_looked_at(self):
        gpu = Gpu()
        model = self.applied(gpu)
        host.host_watch(model)._device = lambda: None
        self.assertEqual(self.train(model, gpu, FOUND + trial.STEPS), [])
        self.assertEqual(gpu.asked, 0)
        self.assertIsNone(host.host_watch(self.plain()))

    def plain(self):
        model = Ranker()
        loka.apply(model, PLAN, emulate=True)
        return model if not torch.cuda.is_available() else Ranker()

    def test_another_models_optimizer_is_not_meant(self):
        gpu, other = Gpu(), Ranker()
        self.applied(gpu)
        self.assertEqual(self.train(other, gpu, FOUND + trial.STEPS), [])
        self.assertEqual(gpu.asked, 0)

    def test_steps_ended_by_hand_count(self):
        gpu = Gpu()
        model = self.applied(gpu)
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            loka.step(model)
            for step in range(FOUND + trial.STEPS):
                loss_of(model, batch(64, step)).backward()
                gpu.step(model)
                optimizer.step()
                loka.step(model)
        # The pace is asked for in front of an optimizer that is known to train the model: by hand none is.
        self.assertFalse(is_paused(model))

    def test_what_training_gets_is_bf16s(self):
        # From the decision on: the same steps as a model that never had a plan, from the same state.
        gpu = Gpu()
        model = self.applied(gpu, following())
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        self.train(model, gpu, FOUND + trial.STEPS, optimizer=optimizer)
        other = Ranker()
        other.load_state_dict(model.state_dict())
        self.train(model, gpu, 5, optimizer=optimizer)
        self.train(other, gpu, 5)
        for one, two in zip(model.parameters(), other.parameters()):
            self.assertTrue(torch.equal(one, two))

    def test_weights_are_fresh_after_a_turn(self):
        # Codes are not made while nobody reads them, and are when somebody does.
        gpu = Gpu(plan=5.0)
        model = self.applied(gpu, following(), check_every=1)
        told = self.train(model, gpu, FOUND + trial.STEPS + 3)
        self.assertEqual([line for line in told if "changed outside" in line], [])
        self.assertEqual(loka.health(model).off, ())
        self.assertTrue(any(row.verdict == "ok" for row in loka.health(model).rows))

    def test_unapplied_in_the_middle(self):
        gpu = Gpu()
        model = self.applied(gpu)
        self.train(model, gpu, FOUND + trial.SKIPPED + trial.TIMED + 1)
        self.assertTrue(is_paused(model))
        self.assertIn("while that is timed", str(loka.resolved(model)))
        loka.unapply(model)
        self.assertFalse(is_paused(model))
        self.assertEqual(self.train(model, gpu, trial.STEPS), [])

    def test_applied_again_it_is_tried_again_only_where_it_was_not(self):
        gpu = Gpu()
        model = self.applied(gpu)
        self.train(model, gpu, FOUND + trial.STEPS)
        self.assertTrue(is_paused(model))
        self.applied(gpu, model=model)
        self.assertTrue(is_paused(model), "the same call again is nothing new")
        self.applied(gpu, model=model, on_slow_host="warn")
        self.assertFalse(is_paused(model))
        self.assertGreater(loka.resolved(model).num_fp8, 0)

    def test_a_copy_is_as_it_is_until_its_plan_is_applied(self):
        gpu = Gpu()
        model = self.applied(gpu)
        self.train(model, gpu, FOUND + trial.STEPS)
        other = copy.deepcopy(model)
        self.assertTrue(is_paused(other))
        self.assertIn("slow host", str(loka.resolved(other)))
        self.applied(gpu, model=other)
        self.assertFalse(is_paused(other))
        self.assertTrue(is_paused(model))

    def test_frozen_it_serves_by_the_plan(self):
        gpu = Gpu()
        model = self.applied(gpu)
        self.train(model, gpu, FOUND + trial.STEPS)
        self.assertIn("weight cast once", str(loka.freeze(model)))
        self.assertFalse(is_paused(model))

    def test_only_words_that_there_are(self):
        with self.assertRaisesRegex(PlanError, "on_slow_host is 'fp8', it must be one of bf16, warn"):
            loka.apply(Ranker(), PLAN, emulate=True, on_slow_host="fp8")

    def test_compiled_once_for_each(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        gpu = Gpu(plan=5.0)
        model = self.applied(gpu)
        compiled = torch.compile(model, fullgraph=True, backend=counter)
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        self.train(model, gpu, FOUND, compiled, optimizer)
        before = counter.frame_count
        self.train(model, gpu, trial.STEPS + 5, compiled, optimizer)
        self.assertEqual(counter.frame_count, before + 1)


class Turns(unittest.TestCase):
    def test_medians_of_what_is_timed(self):
        """Slow first steps of a turn, and odd ones, are nobody's."""
        gpu, turns = Gpu(), []
        tried = Trial(turns.append, gpu.event)
        times, step = None, 0
        while times is None:
            at = step % (trial.SKIPPED + trial.TIMED)
            odd = at < trial.SKIPPED - 1 or at % 6 == 5
            gpu.now += 1000.0 if odd else 4.0 if tried.in_bf16 else 5.0
            times = tried.end_step()
            step += 1
        self.assertEqual(times, Times(plan=5.0, bf16=4.0))
        self.assertEqual(step, trial.STEPS)
        self.assertEqual(turns, [True, False] * (trial.ROUNDS - 1) + [True])

    def test_words(self):
        self.assertEqual(str(Times(8.754, 123.4)), "8.75 ms a step by the plan, 123 in BF16")


class Launches(unittest.TestCase):
    def test_without_a_gpu_each_is_made_every_time(self):
        made = []
        replayed = Replayed([lambda: made.append(1), lambda: made.append(2)], torch.device("cpu"))
        for _ in range(4):
            replayed()
        self.assertEqual(made, [1, 2] * 4)


@contextlib.contextmanager
def _no_gpu_elsewhere():
    """Only the watch of the host believes in the GPU."""
    from loka import capturing

    with mock.patch.object(capturing.torch.cuda, "is_current_stream_capturing", lambda: False):
        yield


if __name__ == "__main__":
    unittest.main()
