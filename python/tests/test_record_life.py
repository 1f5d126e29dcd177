"""When a recorder begins, saves and ends: lazy layers, optimizers of one's own, SIGTERM, small calls, shared folders."""

import gc
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
import warnings
import weakref

from record_support import batch, loss_of, read, small_model, train

import models
import torch
from torch import nn

import loka as package
from loka import names


class Life(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore", RuntimeWarning)

    def recorder(self, model, **options):
        return package.Recorder(model, self.out, **{"every": 1, "name": "small", "history": "all", **options})

    def trace(self):
        return read(self.out / "small-rank0.trace.safetensors")


class Gone(Life):
    """Nothing of a model, or of what it computed, is kept by a recorder that is gone."""

    def test_a_model_dies_with_its_last_reference(self):
        for name in ("dlrm", "raw", "stacked", "sequence"):
            with self.subTest(name):
                case = models.CASES[name]
                model = case.model()
                optimizer = torch.optim.SGD(model.parameters(), 0.05)
                with self.recorder(model) as recorder:
                    for step in range(2):
                        *inputs, target = case.batch(16, step)
                        recorder.loss(case.loss(model(*inputs), target)).backward()
                        optimizer.step()
                        optimizer.zero_grad()
                dead = weakref.ref(model)
                del model, optimizer, recorder
                gc.collect()
                self.assertIsNone(dead())


class Lazy(Life):
    def train(self, every):
        case = models.CASES["lazy"]
        model, optimizer = case.model(), None
        with self.recorder(model, every=every) as recorder:
            for step in range(4):
                *inputs, target = case.batch(30, step)
                recorder.loss(case.loss(model(*inputs), target)).backward()
                optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.05)
                optimizer.step()
                optimizer.zero_grad()
        return recorder, model

    def test_training_goes_on_and_the_layer_is_recorded_from_its_second_step(self):
        recorder, model = self.train(every=1)
        self.assertIs(type(model.first), nn.Linear)
        self.assertEqual([text for text in recorder.warnings if "first" in text], recorder.warnings)
        self.assertIn("no weight before its first forward", recorder.warnings[0])
        manifest, tensors = self.trace()
        self.assertEqual([site["id"] for site in manifest["sites"]], ["first", "head"])
        self.assertEqual(int(tensors["first/input.count"]), 90)
        self.assertEqual(int(tensors["head/input.count"]), 120)
        self.assertEqual(manifest["coverage"]["sites"], manifest["coverage"]["flops"])

    def test_not_every_steps_later(self):
        self.train(every=100)
        _, tensors = self.trace()
        self.assertEqual(tensors["first/series.step"].tolist(), [0, 1])
        self.assertEqual(int(tensors["first/input.count"]), 30)


class Ends(Life):
    def test_an_optimizer_of_ones_own_is_said_in_the_second_forward(self):
        def in_place(parameter):
            with torch.no_grad():
                parameter -= 0.05 * parameter.grad

        def by_data(parameter):
            parameter.data = parameter.data - 0.05 * parameter.grad

        for update in (in_place, by_data):
            for zero in (lambda each: setattr(each, "grad", None), lambda each: each.grad.zero_()):
                model = small_model()
                with self.recorder(model) as recorder:
                    for step in range(2):
                        self.assertEqual(recorder.warnings, [])
                        x, target = batch(20, step)
                        recorder.loss(loss_of(model(x), target)).backward()
                        for each in model.parameters():
                            update(each)
                            zero(each)
                    self.assertEqual(len(recorder.warnings), 1)
                    self.assertIn("recorder.step()", recorder.warnings[0])

    def test_optimizers_that_step_within_the_backward(self):
        model = small_model()
        for parameter in model.parameters():
            each = torch.optim.SGD([parameter], 0.05)
            parameter.register_post_accumulate_grad_hook(lambda _, each=each: each.step() or each.zero_grad())
        with self.recorder(model, every=1) as recorder:
            for step in range(4):
                x, target = batch(20, step)
                recorder.loss(loss_of(model(x), target)).backward()
        self.assertEqual((recorder.warnings, recorder.steps), ([], 4))
        rows = {name: tensor.tolist() for name, tensor in self.trace()[1].items() if name.endswith("series.rows")}
        self.assertEqual(set(map(tuple, rows.values())), {(20, 20, 20, 20)})

    def test_the_report_of_steps_that_nobody_ended(self):
        model = small_model()
        with self.recorder(model) as recorder:
            for step in range(3):
                x, target = batch(20, step)
                recorder.loss(loss_of(model(x), target)).backward()
        self.assertIn("3 sites", str(recorder.report()))

    def test_accumulation_is_not_taken_for_that(self):
        for set_to_none in (True, False):
            model = small_model()
            optimizer = torch.optim.SGD(model.parameters(), 0.05)
            with self.recorder(model) as recorder:
                for _ in range(2):
                    for part in range(3):
                        x, target = batch(20, part)
                        (recorder.loss(loss_of(model(x), target)) / 3).backward()
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=set_to_none)
            self.assertEqual(recorder.warnings, [])


class Saves(Life):
    def test_the_first_one_comes_after_the_first_recorded_step(self):
        model = small_model()
        with self.recorder(model, every=5) as recorder:
            train(model, recorder, steps=1)
            recorder._writer.wait()
            self.assertEqual(self.trace()[0]["run"]["step"], 1)
            train(model, recorder, steps=6)
            recorder._writer.wait()
            self.assertEqual(self.trace()[0]["run"]["step"], 1)
        self.assertEqual(self.trace()[0]["run"]["step"], 7)

    def test_by_time(self):
        model = small_model()
        with self.recorder(model, save_seconds=0.0) as recorder:
            train(model, recorder, steps=3)
            recorder._writer.wait()
            self.assertEqual(self.trace()[0]["run"]["step"], 3)
        with self.assertRaisesRegex(ValueError, "save_seconds is -1"):
            self.recorder(model, save_seconds=-1)

    def run_until_sigterm(self, before):
        """Exit status and output of a job that is told to end in the middle of its fourth step's backward."""
        script = f"""
            import os, signal, sys
            sys.path[:0] = {[str(pathlib.Path(__file__).resolve().parent)]!r}
            from record_support import batch, loss_of, small_model
            import torch, loka
            {before}
            model = small_model()
            optimizer = torch.optim.SGD(model.parameters(), 0.05)
            with loka.Recorder(model, {str(self.out)!r}, every=1, name="small", history="all") as recorder:
                for step in range(8):
                    x, target = batch(20, step)
                    loss = recorder.loss(loss_of(model(x), target))
                    if step == 3:
                        loss.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGTERM))
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    recorder._writer.wait()
            print("went on")
        """
        environment = {"PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[1]), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300,
            env=environment,
        )  # fmt: skip

    def test_on_sigterm_then_the_default_which_ends_the_process(self):
        done = self.run_until_sigterm("")
        self.assertEqual(done.returncode, -signal.SIGTERM, done.stderr)
        manifest, tensors = self.trace()
        self.assertEqual(manifest["run"]["step"], 3)
        self.assertGreaterEqual(int(tensors["0/input.count"]), 60)

    def test_on_sigterm_then_the_handler_that_was_there(self):
        before = 'signal.signal(signal.SIGTERM, lambda *_: print("theirs", flush=True))'
        done = self.run_until_sigterm(before)
        self.assertEqual((done.returncode, done.stdout), (0, "theirs\nwent on\n"), done.stderr)
        self.assertEqual(self.trace()[0]["run"]["step"], 8)

    def test_the_handler_is_put_back(self):
        before = signal.getsignal(signal.SIGTERM)
        one, other = self.recorder(small_model()).attach(), self.recorder(small_model()).attach()
        self.assertIsNot(signal.getsignal(signal.SIGTERM), before)
        one.detach()
        self.assertIsNot(signal.getsignal(signal.SIGTERM), before)
        other.detach()
        self.assertIs(signal.getsignal(signal.SIGTERM), before)
        with self.recorder(small_model(), save_on_sigterm=False):
            self.assertIs(signal.getsignal(signal.SIGTERM), before)


class SmallThings(Life):
    def test_one_that_is_never_attached_says_so(self):
        model = small_model()
        recorder = self.recorder(model)
        train(model, recorder, steps=2)
        recorder.close()
        self.assertEqual(len(recorder.warnings), 1, recorder.warnings)
        self.assertIn("recorder.attach()", recorder.warnings[0])
        self.assertEqual(list(self.out.iterdir()), [])

    def test_held_out_rows_of_calls_that_are_too_small(self):
        for size, kept in ((20, 9), (5, 1), (3, 0)):
            model = small_model()
            with self.recorder(model, held_out=16) as recorder:
                train(model, recorder, steps=2, size=size)
            said = [text for text in recorder.warnings if "held_out=16" in text]
            self.assertEqual(len(said), 1, recorder.warnings)
            self.assertIn(f"0 has {size}, of which {kept} are kept, and 2 more sites", said[0])
            tensors = self.trace()[1]
            self.assertEqual(len(tensors.get("0/sample.input", ())), kept)
            self.assertEqual(int(tensors["0/input.count"]), 2 * (size - kept))
        with self.recorder(small_model(), held_out=16) as recorder:
            train(recorder.model, recorder, steps=1, size=34)
        self.assertEqual(recorder.warnings, [])

    def test_two_runs_in_one_folder(self):
        for name in ("one", "one", "two"):
            model = small_model()
            with self.recorder(model, name=name) as recorder:
                train(model, recorder, steps=1)
            said = [text for text in recorder.warnings if "one-rank0.trace.safetensors, of another run" in text]
            self.assertEqual(len(said), int(name == "two"), recorder.warnings)
        self.assertIn("give each run a folder of its own", said[0])

    def test_a_model_under_fsdp2_keeps_its_name(self):
        from torch.distributed.fsdp import FSDPModule

        wrapped = type("FSDPDLRM", (FSDPModule, models.DLRM), {})
        self.assertIs(names.author_class(wrapped), models.DLRM)
        self.assertIs(names.author_class(models.DLRM), models.DLRM)


class CompiledExperts(Life):
    def test_as_many_variants_as_without_a_recorder(self):
        """Sixteen experts behind a graph break share their compiled forwards; past eight, PyTorch gives up."""
        import torch._dynamo
        import torch._dynamo.testing
        from torch._dynamo.utils import counters

        found = []
        for recorded in (False, True):
            torch._dynamo.reset()
            self.addCleanup(torch._dynamo.reset)
            counters.clear()
            case = models.CASES["norms"]
            torch.manual_seed(0)
            model = models.SparseMoE(experts=16)
            optimizer = torch.optim.SGD(model.parameters(), 0.05)
            counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
            compiled = torch.compile(model, backend=counter, dynamic=True)
            recorder = self.recorder(compiled, every=2)
            if recorded:
                recorder.attach()
            for step in range(6):
                x, target = case.batch(200, step)
                recorder.loss(case.loss(compiled(x), target)).backward()
                optimizer.step()
                optimizer.zero_grad()
            recorder.close()
            found.append((counter.frame_count, dict(counters["recompile_limit"])))
        (alone, limits), (beside, beside_limits) = found
        self.assertEqual(beside_limits, limits)
        # PyTorch 2.15 compiles nothing of such a loop by itself.
        self.assertIn(beside, (alone, 9) if alone == 0 else (alone,))
        # Steps 0, 2 and 4.
        tensors = self.trace()[1]
        rows = sum(int(tensors[f"experts.{i}.0/series.rows"].sum()) for i in range(16) if f"experts.{i}.0/weight" in tensors)
        self.assertEqual(rows, 600)


if __name__ == "__main__":
    unittest.main()
