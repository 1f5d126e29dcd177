"""What must not break a training job, nor make its numbers wrong: every bad thing that a recorder may meet."""

import copy
import io
import pathlib
import pickle
import tempfile
import unittest
import warnings
from unittest import mock

from record_support import batch, loss_of, read, small_model, train

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import loka as package
from loka.record import writer


class Robust(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)
        self.caught = warnings.catch_warnings(record=True)
        self.said = self.caught.__enter__()
        self.addCleanup(self.caught.__exit__, None, None, None)
        warnings.simplefilter("always")

    def recorder(self, model, **options):
        return package.Recorder(model, self.out, **{"every": 1, "name": "small", "history": "all", **options})

    def trace(self):
        return read(self.out / "small-rank0.trace.safetensors")

    def messages(self):
        return [str(each.message) for each in self.said if "loka.Recorder" in str(each.message)]


class Model(Robust):
    def test_the_model_is_the_same_while_recorded_and_after(self):
        model = small_model()
        before = model.state_dict()
        recorder = self.recorder(model).attach()
        self.assertEqual(list(model.state_dict()), list(before))
        self.assertIsInstance(model[0], nn.Linear)
        self.assertEqual(repr(model), repr(small_model()))
        modules = [name for name, _ in model.named_modules()]
        self.assertEqual(modules, [name for name, _ in small_model().named_modules()])
        recorder.detach()
        self.assertTrue(all(type(module) is nn.Linear for module in (model[0], model[3], model[5])))
        self.assertNotIn("_loka_tap", model[0].__dict__)

    def test_copies_and_pickles_are_not_recorded(self):
        model = small_model()
        with self.recorder(model) as recorder:
            twin = copy.deepcopy(model)
            buffer = io.BytesIO()
            torch.save(model, buffer)
            buffer.seek(0)
            loaded = torch.load(buffer, weights_only=False)
            third = pickle.loads(pickle.dumps(model))
            for each in (twin, loaded, third):
                self.assertIs(type(each[0]), nn.Linear)
                self.assertTrue(torch.equal(each[0].weight, model[0].weight))
                each(batch()[0]).sum().backward()
            train(model, recorder, steps=1)
        self.assertEqual(self.trace()[1]["0/input.count"].tolist(), [40])

    def test_a_second_recorder_is_refused_until_the_first_is_gone(self):
        model = small_model()
        first = self.recorder(model).attach()
        with self.assertRaisesRegex(RuntimeError, "another recorder is attached to this model"):
            self.recorder(model).attach()
        with self.assertRaisesRegex(RuntimeError, "attached already"):
            first.attach()
        first.detach()
        with self.recorder(model) as second:
            train(model, second, steps=1)
        self.assertEqual(self.trace()[1]["0/input.count"].tolist(), [40])

    def test_a_subclass_keeps_its_own_forward(self):
        class Doubled(nn.Linear):
            def forward(self, input):
                return 2 * super().forward(input)

        model = Doubled(3, 2)
        x = torch.randn(5, 3)
        expected = model(x)
        with self.recorder(model):
            self.assertTrue(torch.equal(model(x), expected))
        self.assertIs(type(model), Doubled)

    def test_a_layer_whose_backward_needs_its_output(self):
        class Gate(nn.Linear):
            def forward(self, input):
                return torch.sigmoid(super().forward(input))

        torch.manual_seed(0)
        model, x = Gate(3, 2), torch.randn(5, 3)
        model(x).sum().backward()
        expected, model.weight.grad = model.weight.grad, None
        with self.recorder(model):
            model(x).sum().backward()
        self.assertTrue(torch.equal(model.weight.grad, expected))
        self.assertEqual(self.trace()[1]["/input.count"].tolist(), [5])

    def test_an_argument_of_another_name_and_an_output_that_is_no_tensor(self):
        class Named(nn.Linear):
            def forward(self, rows):
                return super().forward(rows)

        class Pair(nn.Linear):
            def forward(self, rows):
                return super().forward(rows), rows

        model = nn.ModuleList([Named(3, 2), Pair(2, 2)])
        with self.recorder(model) as recorder:
            y, _ = model[1](model[0](rows=torch.randn(5, 3)))
            y.sum().backward()
        self.assertEqual([site["id"] for site in self.trace()[0]["sites"]], ["0"])
        self.assertTrue(any("1 of 2 linears never ran: 1" in text for text in recorder.warnings))

    def test_a_layer_that_is_no_linear_of_its_weight_is_left_out(self):
        class Halved(nn.Linear):
            def forward(self, x):
                return super().forward(x)[:, :1]

        model = Halved(3, 2)
        with self.recorder(model) as recorder:
            model(torch.randn(5, 3)).sum().backward()
        self.assertTrue(any("its weight is [2, 3]" in text for text in recorder.warnings))

    def test_a_forward_replaced_on_the_object_is_named(self):
        model = small_model()
        plain = model[0].forward
        model[0].forward = lambda x: plain(x)
        with self.recorder(model) as recorder:
            train(model, recorder, steps=1)
        self.assertEqual([site["id"] for site in self.trace()[0]["sites"]], ["3", "5"])
        self.assertTrue(any("0 is not recorded: its forward was replaced" in text for text in recorder.warnings))

    def test_functional_transforms_pass_by(self):
        model = small_model()
        parameters = dict(model.named_parameters())

        def one(parameters, x):
            return torch.func.functional_call(model, parameters, (x[None],)).sum()

        with self.recorder(model) as recorder:
            grads = torch.func.vmap(torch.func.grad(one), (None, 0))(parameters, batch(4)[0])
            train(model, recorder, steps=1)
        self.assertEqual(tuple(grads["0.weight"].shape), (4, 10, 6))
        self.assertEqual(self.trace()[1]["0/input.count"].tolist(), [40])

    def test_an_input_changed_in_place_afterwards(self):
        # A frozen layer saves no input, so that its caller may change it: the tap must not forbid that.
        model = nn.Linear(4, 4)
        model.weight.requires_grad_(False)
        with self.recorder(model) as recorder:
            for _ in range(3):
                x = torch.randn(10, 4)
                y = model(x)
                x += 1
                (y.sum() + x.sum()).backward()
                recorder.step()
        # The first call is lost, then the tap keeps copies.
        self.assertEqual(self.trace()[1]["/input.count"].tolist(), [20])

    def test_in_place_after_a_layer_of_three_dimensions(self):
        model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 1))
        twin = copy.deepcopy(model)
        x = torch.randn(3, 7, 4)
        twin(x).square().mean().backward()
        with self.recorder(model):
            model(x).square().mean().backward()
        for mine, other in zip(model.parameters(), twin.parameters()):
            self.assertTrue(torch.equal(mine.grad, other.grad))
        self.assertEqual(self.trace()[1]["0/grad_output.count"].tolist(), [21])


class Checkpointed(Robust):
    def test_recomputation_counts_once(self):
        for reentrant in (False, True):
            with self.subTest(reentrant=reentrant):
                counts, means = [], []
                for wrapped in (False, True):
                    model = small_model()
                    x, target = batch()
                    x.requires_grad_()
                    with self.recorder(model) as recorder:
                        output = checkpoint(model, x, use_reentrant=reentrant) if wrapped else model(x)
                        recorder.loss(loss_of(output, target)).backward()
                    tensors = self.trace()[1]
                    counts.append(tensors["3/input.count"].tolist())
                    means.append(tensors["3/grad_output.mean"])
                self.assertEqual(counts, [[40], [40]])
                self.assertTrue(torch.allclose(*means))


class Steps(Robust):
    def test_accumulation_within_a_step_and_only_recorded_steps(self):
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with self.recorder(model, every=2) as recorder:
            for _ in range(4):
                for part in range(3):
                    recorder.loss(loss_of(model(batch(10, part)[0]), batch(10, part)[1])).backward()
                optimizer.step()
        manifest, tensors = self.trace()
        self.assertEqual(tensors["0/series.step"].tolist(), [0, 2])
        self.assertEqual(tensors["0/input.count"].tolist(), [60])
        self.assertEqual(manifest["run"]["step"], 4)

    def test_other_optimizers_do_not_count(self):
        model, other = small_model(), nn.Linear(2, 2)
        mine = torch.optim.SGD(model[0].parameters(), 0.1)
        rest = torch.optim.SGD([*model[3].parameters(), *model[5].parameters()], 0.1)
        foreign = torch.optim.SGD(other.parameters(), 0.1)
        with self.recorder(model) as recorder:
            for step in range(3):
                recorder.loss(loss_of(model(batch(10)[0]), batch(10)[1])).backward()
                foreign.step()
                mine.step()
                rest.step()
            self.assertEqual(recorder.steps, 3)

    def test_steps_by_hand(self):
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with self.recorder(model, every=2) as recorder:
            for _ in range(5):
                recorder.loss(loss_of(model(batch(10)[0]), batch(10)[1])).backward()
                recorder.step()
                optimizer.step()
            self.assertEqual(recorder.steps, 5)
        self.assertEqual(self.trace()[1]["0/series.step"].tolist(), [0, 2, 4])

    def test_no_end_of_a_step_is_said(self):
        model = nn.Linear(2, 1)
        with mock.patch("loka.record.record.OPEN_STEP_CALLS", 3), self.recorder(model) as recorder:
            for _ in range(4):
                model(torch.randn(3, 2)).sum().backward()
        self.assertTrue(any("recorder.step()" in text for text in recorder.warnings))

    def test_attach_and_detach_by_hand_add_up(self):
        model = small_model()
        recorder = self.recorder(model)
        for _ in range(2):
            recorder.attach()
            train(model, recorder, steps=2)
            recorder.detach()
            train(model, recorder, steps=1)
        recorder.close()
        _, tensors = self.trace()
        self.assertEqual(tensors["0/input.count"].tolist(), [160])
        self.assertEqual(tensors["0/series.step"].tolist(), [0, 1, 2, 3])


class Values(Robust):
    def test_steps_that_are_not_finite_are_counted_skipped_and_said(self):
        model = small_model()
        with self.recorder(model) as recorder:
            for step in range(3):
                x, target = batch(20, step)
                if step == 1:
                    x[3, 2] = torch.inf
                recorder.loss(loss_of(model(x), target)).backward()
                recorder.step()
        manifest, tensors = self.trace()
        self.assertEqual(manifest["sites"][0]["skipped_steps"], 1)
        self.assertEqual(tensors["0/input.count"].tolist(), [40])
        self.assertTrue(bool(torch.isfinite(tensors["0/input.cov"]).all()))
        self.assertEqual(int(tensors["0/input.hist"][81]), 1)
        self.assertTrue(any("not finite" in text for text in self.messages()))
        # The mean loss leaves the broken step out too.
        self.assertTrue(0 < manifest["loss"]["value"] < 5)

    def test_a_run_with_no_finite_row_leaves_the_site_out(self):
        model = small_model()
        with self.recorder(model):
            model(torch.full((4, 6), torch.nan)).sum().backward()
        manifest, tensors = self.trace()
        self.assertEqual(manifest["sites"], [])
        self.assertEqual(manifest["left_out"]["0"], "fewer than two finite rows")

    def test_empty_and_changing_batches(self):
        model = small_model()
        with self.recorder(model) as recorder:
            for size in (8, 0, 3, 8, 1):
                recorder.loss(loss_of(model(batch(size)[0]), batch(size)[1])).backward()
                recorder.step()
        manifest, tensors = self.trace()
        self.assertEqual(tensors["0/input.count"].tolist(), [20])
        self.assertEqual(manifest["sites"][0]["m"], 8)
        self.assertEqual(tuple(tensors["0/series.input_amax"].shape), (5,))


class Failures(Robust):
    def test_a_full_disk_warns_once_and_leaves_the_last_trace(self):
        model = small_model()
        with self.recorder(model, save_every=2) as recorder:
            train(model, recorder, steps=2)
            recorder._writer.wait()
            good = (self.out / "small-rank0.trace.safetensors").read_bytes()
            with mock.patch.object(writer, "save_file", side_effect=OSError(28, "No space left on device")):
                train(model, recorder, steps=6)
                recorder._writer.wait()
            self.assertEqual((self.out / "small-rank0.trace.safetensors").read_bytes(), good)
            self.assertEqual(sum("No space left" in text for text in self.messages()), 1)
            self.assertEqual(recorder.steps, 8)
        # There was room again at the end.
        self.assertEqual(self.trace()[0]["run"]["step"], 8)
        self.assertEqual([path.name for path in self.out.iterdir()], ["small-rank0.trace.safetensors"])

    def test_a_partial_file_is_removed(self):
        def half(_tensors, path, metadata):
            pathlib.Path(path).write_bytes(b"half")
            raise OSError(28, "No space left on device")

        with mock.patch.object(writer, "save_file", side_effect=half):
            model = small_model()
            with self.recorder(model) as recorder:
                train(model, recorder, steps=1)
        self.assertEqual(list(self.out.iterdir()), [])

    def test_a_folder_that_cannot_be_made(self):
        (self.out / "file").write_text("in the way")
        model = small_model()
        with package.Recorder(model, self.out / "file" / "run", every=1) as recorder:
            train(model, recorder, steps=1)
        self.assertEqual(len(self.messages()), 1)

    def test_an_error_in_recording_costs_one_site(self):
        model = small_model()
        from loka.record.site import SiteStats

        add = SiteStats.add

        def broken(stats, *args):
            if stats.name == "3":
                raise RuntimeError("CUDA out of memory")
            return add(stats, *args)

        twin = small_model()
        with mock.patch.object(SiteStats, "add", broken), self.recorder(model) as recorder:
            train(model, recorder, steps=2)
        with self.recorder(twin) as other:
            pass
        train(twin, other, steps=2)
        self.assertTrue(torch.equal(model[0].weight, twin[0].weight))
        manifest, _ = self.trace()
        self.assertEqual([site["id"] for site in manifest["sites"]], ["0", "5"])
        self.assertIn("out of memory", manifest["failed"]["3"])
        self.assertEqual(sum("is not recorded" in text for text in self.messages()), 1)

    def test_an_exception_in_training_comes_through_and_what_was_recorded_is_saved(self):
        model = small_model()
        with self.assertRaisesRegex(KeyError, "mine"):
            with self.recorder(model) as recorder:
                train(model, recorder, steps=2)
                raise KeyError("mine")
        self.assertIs(type(model[0]), nn.Linear)
        self.assertEqual(self.trace()[0]["run"]["step"], 2)

    def test_an_exception_in_the_first_forward_is_the_users_and_the_next_one_is_counted(self):
        class Failing(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 1)
                self.fails = True

            def forward(self, x):
                x = self.first(x)
                if self.fails:
                    raise KeyError("mine")
                return self.last(x)

        model = Failing()
        with self.recorder(model) as recorder:
            with self.assertRaisesRegex(KeyError, "mine"):
                model(torch.randn(40, 6))
            model.fails = False
            train(model, recorder, steps=2)
        self.assertEqual(dict(model._forward_hooks), {})
        coverage = self.trace()[0]["coverage"]
        self.assertEqual(coverage["flops"], coverage["sites"])
        self.assertEqual(coverage["flops"], 2 * 40 * (6 * 8 + 8))

    def test_warnings_that_are_errors_do_not_end_training(self):
        model = small_model()
        warnings.simplefilter("error", RuntimeWarning)
        with mock.patch.object(writer, "save_file", side_effect=OSError(28, "No space left on device")):
            with self.recorder(model, save_every=1) as recorder:
                train(model, recorder, steps=2)
        self.assertTrue(any("No space left" in text for text in recorder.warnings))

    def test_what_is_no_model_is_said(self):
        with self.assertRaisesRegex(TypeError, "model is a str, expected a torch.nn.Module"):
            package.Recorder("model", self.out)

    def test_warnings_are_of_the_users_line(self):
        (self.out / "other-rank0.trace.safetensors").touch()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            package.Recorder(small_model(), self.out, name="mine").attach().detach()
        self.assertEqual([each.filename for each in caught], [__file__])

    def test_bad_options_are_refused_at_once(self):
        model = small_model()
        for options, text in (
            ({"every": 0}, "every is 0"),
            ({"rows": 1}, "covariance needs two"),
            ({"weights": "all"}, "snapshot"),
            ({"loss_reduction": "max"}, "loss_reduction"),
            ({"loss_value": float("nan")}, "loss_value"),
            ({"functional": {"0": model[0].weight}}, "which is a module"),
        ):
            with self.subTest(options), self.assertRaisesRegex(ValueError, text):
                self.recorder(model, **options)


if __name__ == "__main__":
    unittest.main()
