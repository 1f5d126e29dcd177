"""The examples of frameworks' training loops, run: what they record is what a plain loop on the same data records; and
what a recorder reports after a run.

Lightning and the Hugging Face Trainer are the real ones, where they are installed. TorchRec's pipeline and torchtitan's
loop are not: here they are loops of the same shape, written from their sources."""

import contextlib
import importlib.util
import io
import itertools
import pathlib
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
for _folder in (HERE.parents[0], HERE, HERE.parents[0] / "examples"):
    sys.path.insert(0, str(_folder))

import torch
from torch import nn

import loka
from ranker import Ranker, batch
from record_support import read

LOSS = nn.BCEWithLogitsLoss()
SIZE, STEPS = 16, 6


def data(count=STEPS):
    return [(batch(SIZE, seed=seed), (batch(SIZE, seed=seed)[:, 0] > 0).float()) for seed in range(count)]


def installed(name):
    return importlib.util.find_spec(name) is not None


class Printed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)
        self.printed = io.StringIO()
        redirected = contextlib.redirect_stdout(self.printed)
        redirected.__enter__()
        self.addCleanup(redirected.__exit__, None, None, None)


class Loops(Printed):
    def plain(self, accumulate=1):
        """The trace of a loop without a framework."""
        model = Ranker()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        recorder = loka.Recorder(model, self.out / "plain", every=1)
        with recorder:
            for number, (x, target) in enumerate(data(), 1):
                (recorder.loss(LOSS(model(x), target)) / accumulate).backward()
                if number % accumulate == 0:
                    optimizer.step()
                    optimizer.zero_grad()
        return read(recorder.path)

    def assert_same(self, found, expected, prefix=""):
        (manifest, tensors), (plain, others) = found, expected
        self.assertEqual([site["id"] for site in manifest["sites"]], [prefix + site["id"] for site in plain["sites"]])
        self.assertEqual(manifest["run"]["step"], plain["run"]["step"])
        self.assertAlmostEqual(manifest["loss"]["value"], plain["loss"]["value"], places=6)
        compared = 0
        for site in plain["sites"]:
            for name in ("input.mean", "grad_output.mean", "grad_output.second", "grad_output.cov", "input.cov"):
                for key in [f"{site['id']}/{name}"]:
                    if key in others:
                        torch.testing.assert_close(tensors[prefix + key], others[key], rtol=1e-5, atol=1e-7, msg=key)
                        compared += 1
        self.assertGreaterEqual(compared, 4 * len(plain["sites"]), sorted(others)[:12])

    @unittest.skipUnless(installed("pytorch_lightning"), "Lightning is not installed")
    def test_lightning(self):
        import pytorch_lightning as lightning

        from lightning_callback import Record

        class Task(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = Ranker()

            def forward(self, x):
                return self.model(x)

            def training_step(self, rows, _):
                return LOSS(self(rows[0]), rows[1])

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        for accumulate in (1, 2):
            with self.subTest(accumulate=accumulate):
                out = self.out / f"lightning-{accumulate}"
                task = Task()
                record = Record(str(out), every=1)
                trainer = lightning.Trainer(
                    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[record],
                    enable_progress_bar=False, enable_model_summary=False, accumulate_grad_batches=accumulate,
                )  # fmt: skip
                trainer.fit(task, torch.utils.data.DataLoader(data(), batch_size=None, shuffle=False))
                self.assert_same(read(record.recorder.path), self.plain(accumulate), prefix="model.")
                self.assertNotIn("training_step", vars(task))
        self.assertIn("next: loka probe", self.printed.getvalue())

    @unittest.skipUnless(installed("transformers") and installed("accelerate"), "transformers and accelerate are not installed")
    def test_hugging_face(self):
        from transformers import TrainingArguments

        from huggingface_trainer import RecordedTrainer

        class Task(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = Ranker()

            def forward(self, x, labels):
                return {"loss": LOSS(self.model(x), labels)}

        rows = [{"x": x, "labels": target} for xs, targets in data() for x, target in zip(xs, targets)]
        for accumulate in (1, 2):
            with self.subTest(accumulate=accumulate):
                arguments = TrainingArguments(
                    str(self.out / "hf"), num_train_epochs=1, per_device_train_batch_size=SIZE, learning_rate=0.1,
                    report_to=[], save_strategy="no", use_cpu=True, optim="sgd", lr_scheduler_type="constant",
                    train_sampling_strategy="sequential", gradient_accumulation_steps=accumulate, max_grad_norm=0.0,
                    disable_tqdm=True, logging_strategy="no",
                )  # fmt: skip
                trainer = RecordedTrainer(
                    Task(), arguments, train_dataset=rows, record_to=str(self.out / f"traces-{accumulate}"),
                    record_options={"every": 1},
                )  # fmt: skip
                trainer.train()
                self.assert_same(read(trainer.recorder.path), self.plain(accumulate), prefix="model.")

    def test_a_pipeline_as_torchrecs(self):
        from torchrec_pipeline import recorded

        class Task(nn.Module):
            """As DLRMTrain: (losses, (loss, logits, labels))."""

            def __init__(self):
                super().__init__()
                self.model = Ranker()

            def forward(self, rows):
                logits = self.model(rows[0])
                loss = LOSS(logits, rows[1])
                return loss, (loss.detach(), logits.detach(), rows[1])

        class Pipeline:
            """`TrainPipelineSparseDist.progress` without what needs several devices: batches are taken ahead."""

            def __init__(self, model, optimizer):
                self.model, self.optimizer, self.ahead = model, optimizer, []

            def progress(self, batches):
                self.ahead += itertools.islice(batches, 2 - len(self.ahead))
                if not self.ahead:
                    raise StopIteration
                self.optimizer.zero_grad()
                losses, output = self.model(self.ahead.pop(0))
                torch.sum(losses, dim=0).backward()
                self.optimizer.step()
                return output

        model = Task()
        pipeline = Pipeline(model, torch.optim.SGD(model.parameters(), lr=0.1))
        batches = iter(data())
        with recorded(model, str(self.out / "pipeline"), every=1) as recorder:
            with contextlib.suppress(StopIteration):
                while True:
                    pipeline.progress(batches)
        self.assert_same(read(recorder.path), self.plain(), prefix="model.")
        self.assertEqual(len(model._forward_hooks), 0)

    def test_a_loop_as_torchtitans(self):
        from torchtitan_loop import recorded_loss

        class Tokens(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.embedding, self.hidden, self.output = nn.Embedding(50, 32), nn.Linear(32, 32), nn.Linear(32, 50)

            def forward(self, tokens):
                return self.output(torch.relu(self.hidden(self.embedding(tokens))))

        def cross_entropy(logits, labels):
            return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))

        def train(model, loss_fn, accumulate):
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            tokens = torch.randint(0, 50, (4 * accumulate, 8, 13), generator=torch.Generator().manual_seed(1))
            for step in range(0, len(tokens), accumulate):
                optimizer.zero_grad()
                for rows in tokens[step : step + accumulate]:
                    loss = loss_fn(model(rows[:, :-1]), rows[:, 1:]) / accumulate
                    loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()

        recorders = []
        for accumulate in (1, 3):
            model = Tokens()
            recorder = loka.Recorder(model, self.out / str(accumulate), every=1, loss_reduction=1 / 8)
            with recorder:
                train(model, recorded_loss(cross_entropy, recorder), accumulate)
            self.assertEqual(recorder.steps, 4)
            self.assertIn("2 sites at step 4", str(recorder.report()))
            recorders.append(recorder)
        # The first step of the one is the first micro-batch of the other's: of one size, whatever divides the loss.
        one, other = (read(recorder.path)[1]["output/series.grad_amax"][0] for recorder in recorders)
        self.assertLess(abs(float(other / one) - 1), 0.5)


class Report(Printed):
    def test_it_says_what_is_there_and_what_to_do(self):
        model = Ranker()
        model.unused = nn.Linear(128, 128)
        recorder = loka.Recorder(model, self.out, every=1, name="my model")
        self.assertIn("no trace was written yet", str(recorder.report()))
        self.assertIn("not attached", repr(recorder))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with recorder:
            for x, target in data(2):
                recorder.loss(LOSS(model(x), target)).backward()
                optimizer.step()
        report = recorder.report()
        text = str(report)
        self.assertIn("my model: 4 sites at step 2", text)
        self.assertIn("not recorded: unused", text)
        self.assertIn(f"next: loka probe {self.out} --out 'my model.results.parquet'", text)
        self.assertRegex(text, r"(?m)^bottom\.0 +16 +128 +256 +bias · layer_norm · swish")
        # On a CPU what it took is known: nearly all of the time, where every step is recorded.
        self.assertRegex(text, r"(?m)^recording 2 of 2 steps took \d+ % of the run's time, [\d.]+ m?s each: every=[\d_]+ takes 1 %$")
        self.assertIsNone(report.plain_s)
        self.assertLess(len(repr(report)), 300)
        self.assertIn("<td", report._repr_html_())
        self.assertIn("<td", recorder._repr_html_())

    def test_what_a_recorded_step_costs_beside_a_plain_one(self):
        model = Ranker()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with loka.Recorder(model, self.out, every=4) as recorder:
            for x, target in data(9):
                recorder.loss(LOSS(model(x), target)).backward()
                time.sleep(0.01)
                optimizer.step()
        report = recorder.report()
        self.assertEqual(report.recorded, (3, 9))
        self.assertGreater(report.plain_s, 0.01)
        self.assertGreater(report.recording_s, 0)
        self.assertRegex(str(report), r"recording 3 of 9 steps took [\d.]+ % of the run's time, [\d.]+ m?s each \(a step without takes [\d.]+ m?s\)")

    def test_coverage_is_told_where_it_was_counted(self):
        from dataclasses import replace

        recorder = loka.Recorder(Ranker(), self.out, every=1)
        unseen = [{"op": "bmm", "flops": 250, "where": "model.py:31", "name": "mix.weight", "reason": "it has three dimensions"}]
        report = replace(
            recorder.report(), written=True, sites=({"id": "a", "m": 1, "k": 2, "n": 3},),
            coverage={"flops": 1000, "sites": 750, "how": "forward", "unseen": unseen},
        )  # fmt: skip
        self.assertEqual(report.share, 0.75)
        routed = {"id": "expert", "m": 5, "k": 2, "n": 3, "rows": {"min": 2, "mean": 5.5, "max": 9, "steps": 4}}
        self.assertRegex(str(replace(report, sites=(routed,))), r"(?m)^expert +5 \(2 to 9\) +2 +3$")
        # One step in a hundred that costs as much again as six plain ones.
        spent = replace(report, cost=6 / 106, recorded=(10, 1000))
        self.assertIn("recording 10 of 1,000 steps took 5.7 % of the run's time: every=600 takes 1 %", str(spent))
        timed = replace(spent, cost=0.009, recording_s=0.0123, plain_s=0.0016)
        self.assertIn("recording 10 of 1,000 steps took 0.9 % of the run's time, 12.3 ms each (a step without takes 1.6 ms)\n", str(timed))
        self.assertNotIn("of the run's time", str(replace(spent, cost=None)))
        self.assertIn("1 site at step 0, 75 % of the forward's matrix products", str(report))
        self.assertIn("no site: bmm mix.weight at model.py:31, 25 %: it has three dimensions", str(report))


if __name__ == "__main__":
    unittest.main()
