"""A recorded training run: what is in its trace, and that it is what the layers saw."""

import json
import pathlib
import tempfile
import types
import unittest
from unittest import mock

from record_support import batch, loka, loka_binary, loss_of, read, small_model, train

import numpy as np
import torch
from torch import nn

import loka as package
from loka.record.options import QUANTILE_PROBS


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

    def recorder(self, model, **options):
        options = {"every": 1, "name": "small", **options}
        return package.Recorder(model, self.out, **{"history": "all", **options})

    def trace(self):
        return read(self.out / "small-rank0.trace.safetensors")


def seen(model, steps=4, size=40, rate=0.05):
    """Inputs and per-example output gradients of each linear, by hooks of our own, of the same training."""
    found = {name: ([], []) for name, module in model.named_modules() if isinstance(module, nn.Linear)}

    def forward(name):
        def hook(_module, args, output):
            found[name][0].append(args[0].detach().double().clone())
            output.register_hook(lambda grad: found[name][1].append(grad.double() * len(grad)))

        return hook

    hooks = [model.get_submodule(name).register_forward_hook(forward(name)) for name in found]

    class Plain:
        @staticmethod
        def loss(value):
            return value

    train(model, Plain, steps, size, rate)
    for hook in hooks:
        hook.remove()
    return {name: [torch.cat(part).numpy() for part in parts] for name, parts in found.items()}


class Contents(Run):
    def test_statistics_are_those_of_the_rows_the_layers_saw(self):
        model = small_model()
        with self.recorder(model, cross_cov=True) as recorder:
            train(model, recorder)
        self.assertEqual(recorder.warnings, [])
        manifest, tensors = self.trace()
        expected = seen(small_model())
        self.assertEqual([site["id"] for site in manifest["sites"]], ["0", "3", "5"])
        for name, (x, grad) in expected.items():
            for part, rows in (("input", x), ("grad_output", grad)):
                key = f"{name}/{part}."
                self.assertEqual(tensors[key + "count"].tolist(), [160])
                np.testing.assert_allclose(tensors[key + "mean"], rows.mean(0), rtol=1e-5, atol=1e-7)
                cov = np.cov(rows.T).reshape(rows.shape[1], -1)
                np.testing.assert_allclose(tensors[key + "cov"], cov, rtol=1e-4, atol=1e-6 * cov.max())
                self.assertAlmostEqual(float(tensors[key + "amax"]) / np.abs(rows).max(), 1.0, places=5)
                self.assertEqual(int(tensors[key + "hist"].sum()), rows.size)
            cross = (grad - grad.mean(0)).T @ (x - x.mean(0)) / 159
            np.testing.assert_allclose(tensors[f"{name}/cross_cov"], cross, atol=1e-5 * np.abs(cross).max())

    def test_manifest(self):
        model = small_model()
        with self.recorder(model, family="mlp", note="a test", heads=["5"], run_id="r1") as recorder:
            train(model, recorder, steps=5)
        manifest, tensors = self.trace()
        self.assertEqual(manifest["version"], 1)
        self.assertEqual(manifest["quantile_probs"], list(QUANTILE_PROBS))
        self.assertEqual((manifest["model"]["name"], manifest["model"]["family"]), ("small", "mlp"))
        self.assertEqual(manifest["model"]["parameters"], sum(each.numel() for each in model.parameters()))
        run = manifest["run"]
        self.assertEqual((run["id"], run["rank"], run["world_size"], run["step"], run["every"]), ("r1", 0, 1, 5, 1))
        site = manifest["sites"][0]
        known = {key: site[key] for key in ("class", "m", "k", "n", "dtype", "bias")}
        expected = {"class": "torch.nn.Linear", "m": 40, "k": 6, "n": 10, "dtype": "f32", "bias": True}
        self.assertEqual(known, expected)
        self.assertTrue(manifest["sites"][2]["head"])
        self.assertTrue(torch.equal(tensors["3/weight"], model[3].weight))
        self.assertTrue(torch.equal(tensors["3/bias"], model[3].bias))
        self.assertEqual(float(tensors["3/weight.amax"]), float(model[3].weight.detach().abs().max()))
        self.assertEqual(int(tensors["3/weight.hist"].sum()), 80)

    def test_steps_recorded_and_series(self):
        model = small_model()
        with self.recorder(model, every=3) as recorder:
            train(model, recorder, steps=8)
        _, tensors = self.trace()
        self.assertEqual(tensors["0/series.step"].tolist(), [0, 3, 6])
        expected = [float(batch(40, step)[0].abs().max()) for step in (0, 3, 6)]
        self.assertEqual(tensors["0/series.input_amax"].tolist(), expected)
        self.assertEqual(tensors["0/input.count"].tolist(), [120])
        for name in ("grad_amax", "weight_amax", "bias_norm"):
            self.assertEqual(tuple(tensors[f"0/series.{name}"].shape), (3,))

    def test_series_of_weights_are_after_the_step(self):
        model = small_model()
        with self.recorder(model) as recorder:
            train(model, recorder, steps=2)
        _, tensors = self.trace()
        self.assertAlmostEqual(float(tensors["0/series.bias_norm"][1]), float(model[0].bias.norm()), places=6)
        self.assertEqual(float(tensors["0/series.weight_amax"][1]), float(model[0].weight.detach().abs().max()))

    def test_training_is_not_changed(self):
        plain, recorded = small_model(), small_model()
        seen(plain)
        with self.recorder(recorded, every=2) as recorder:
            train(recorded, recorder)
        for mine, other in zip(recorded.parameters(), plain.parameters()):
            self.assertTrue(torch.equal(mine, other))

    def test_small_files_by_factors(self):
        model = small_model()
        with self.recorder(model, factor_above=7, rank=4) as recorder:
            train(model, recorder)
        _, tensors = self.trace()
        self.assertIn("0/input.cov", tensors)
        self.assertEqual(tuple(tensors["3/input.cov_factor"].shape), (10, 4))
        x, _ = seen(small_model())["3"]
        factor = tensors["3/input.cov_factor"].double()
        diagonal = factor.square().sum(1) + tensors["3/input.cov_diag"]
        np.testing.assert_allclose(diagonal, x.var(0, ddof=1), rtol=1e-4)

    def test_matrix_normal_weights(self):
        model = small_model()
        with self.recorder(model, weights="matrix_normal") as recorder:
            train(model, recorder)
        _, tensors = self.trace()
        self.assertNotIn("0/weight", tensors)
        shapes = [tuple(tensors[f"0/weight.{part}"].shape) for part in ("mean", "row_cov", "col_cov")]
        self.assertEqual(shapes, [(10, 6), (10, 10), (6, 6)])
        self.assertEqual(recorder.warnings, [])

    def test_low_rank_weights(self):
        model = small_model()
        with self.recorder(model, weights="low_rank", rank=1) as recorder:
            train(model, recorder)
        _, tensors = self.trace()
        self.assertNotIn("0/weight", tensors)
        parts = ("mean_left", "mean_right", "row_cov_diag", "col_cov_diag")
        self.assertEqual([tuple(tensors[f"0/weight.{part}"].shape) for part in parts], [(10, 1), (6, 1), (10,), (6,)])
        self.assertAlmostEqual(float(tensors["0/weight.amax"]), float(model[0].weight.abs().max()), places=5)
        self.assertEqual(recorder.warnings, [])

    def test_the_reader_accepts_every_form(self):
        if loka_binary() is None:
            self.skipTest("no loka binary: set LOKA_BIN")
        forms = (
            {"cross_cov": True, "held_out": 3},
            {"limit": 7, "rank": 4, "oversample": 2},
            {"factor_above": 4, "rank": 3},
            {"weights": "matrix_normal"},
            {"weights": "low_rank", "rank": 1},
        )
        for options in forms:
            with self.subTest(options):
                model = small_model()
                with self.recorder(model, **options) as recorder:
                    train(model, recorder)
                self.assertEqual(recorder.warnings, [])
                result = loka("info", "--deep", "--json", recorder.path)
                self.assertEqual(result.returncode, 0, result.stderr)
                lines = [json.loads(line) for line in result.stdout.splitlines()]
                self.assertEqual([line for line in lines if line.get("problem")], [])
                self.assertIn("3", result.stdout)


class Gradients(Run):
    def test_accumulation_and_loss_scale_are_taken_out(self):
        whole, parts = small_model(), small_model()
        x, target = batch(64)
        with self.recorder(whole) as recorder:
            train(whole, recorder, steps=1, size=64)
        _, expected = self.trace()
        with self.recorder(parts) as recorder:
            optimizer = torch.optim.SGD(parts.parameters(), 0.05)
            for half in (slice(0, 32), slice(32, 64)):
                loss = recorder.loss(loss_of(parts(x[half]), target[half]))
                (loss / 2 * 4096).backward()
            optimizer.step()
        manifest, tensors = self.trace()
        self.assertEqual(manifest["run"]["step"], 1)
        for name in ("0", "3", "5"):
            self.assertEqual(tensors[f"{name}/grad_output.count"].tolist(), [64])
            for part in ("mean", "cov"):
                one, other = tensors[f"{name}/grad_output.{part}"], expected[f"{name}/grad_output.{part}"]
                self.assertLess(float((one - other).abs().max() / other.abs().max()), 1e-5)
        self.assertAlmostEqual(manifest["loss"]["value"], float(loss_of(small_model()(x), target)), places=6)

    def test_a_summed_loss_gives_the_same(self):
        models = small_model(), small_model()
        x, target = batch(30)
        found = []
        for model, reduction in zip(models, ("mean", "sum")):
            with self.recorder(model, loss_reduction=reduction) as recorder:
                loss = nn.functional.binary_cross_entropy_with_logits(model(x), target, reduction=reduction)
                recorder.loss(loss).backward()
            found.append(self.trace())
        (one, mine), (other, theirs) = found
        self.assertAlmostEqual(one["loss"]["value"], other["loss"]["value"], places=6)
        self.assertTrue(torch.allclose(mine["0/grad_output.cov"], theirs["0/grad_output.cov"], rtol=1e-4))

    def test_without_a_loss_the_budget_is_nothing_and_it_is_said(self):
        model = small_model()
        x, target = batch()
        with self.recorder(model) as recorder:
            loss_of(model(x), target).backward()
        manifest, _ = self.trace()
        self.assertEqual((manifest["loss"]["name"], manifest["loss"]["value"]), ("not recorded", 0.0))
        self.assertIn("high precision", manifest["loss"]["note"])
        self.assertTrue(any("no loss was recorded" in text for text in recorder.warnings))

    def test_the_mean_loss_given_by_hand(self):
        model = small_model()
        with self.recorder(model, loss_value=0.25, loss_name="log_loss") as recorder:
            train(model, recorder)
        self.assertEqual(self.trace()[0]["loss"], {"name": "log_loss", "value": 0.25})

    def test_a_loss_of_many_values_is_refused(self):
        with self.recorder(small_model()) as recorder:
            with self.assertRaisesRegex(ValueError, r"shape \[2\]"):
                recorder.loss(torch.zeros(2, requires_grad=True))


class Calls(Run):
    def test_evaluation_is_not_recorded(self):
        model = small_model()
        x, _ = batch()
        with self.recorder(model) as recorder:
            train(model, recorder, steps=1)
            with torch.no_grad():
                model(x * 100)
            model.eval()
            model(x * 100).sum().backward()
            model.train()
        _, tensors = self.trace()
        self.assertEqual(tensors["0/input.count"].tolist(), [40])
        self.assertLess(float(tensors["0/input.amax"]), 50)

    def test_a_shared_layer_called_twice_adds_rows_in_pairs(self):
        torch.manual_seed(0)
        layer = nn.Linear(4, 4)
        x = torch.randn(30, 4)
        with self.recorder(layer, cross_cov=True) as recorder:
            y = layer(layer(x))
            recorder.loss(y.square().sum(1).mean()).backward()
        _, tensors = self.trace()
        with torch.no_grad():
            inner = nn.functional.linear(x, layer.weight, layer.bias).double()
            outer = nn.functional.linear(inner.float(), layer.weight, layer.bias).double()
            grads = torch.cat([2 * outer, 2 * outer @ layer.weight.double()]).numpy()
            rows = torch.cat([inner, x.double()]).numpy()
        self.assertEqual(tensors["/input.count"].tolist(), [60])
        cross = (grads - grads.mean(0)).T @ (rows - rows.mean(0)) / 59
        np.testing.assert_allclose(tensors["/cross_cov"], cross, rtol=1e-3, atol=1e-5)

    def test_a_layer_that_never_runs_is_named(self):
        model = small_model()
        model.register_module("spare", nn.Linear(3, 3))
        model.forward = lambda x: nn.Sequential(*list(model)[:6])(x)
        with self.recorder(model) as recorder:
            train(model, recorder)
        manifest, _ = self.trace()
        self.assertEqual(manifest["never_ran"], ["spare"])
        self.assertNotIn("spare", [site["id"] for site in manifest["sites"]])
        self.assertTrue(any("spare" in text for text in recorder.warnings))

    def test_functional_linears_by_name(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(3, 5))
                self.bias = nn.Parameter(torch.randn(3))

            def forward(self, x):
                return package.linear(x, self.weight, self.bias, name="mine")

        torch.manual_seed(0)
        model = Model()
        x = torch.randn(20, 5)
        with self.recorder(model, functional={"mine": (model.weight, model.bias)}) as recorder:
            recorder.loss(model(x).square().mean()).backward()
        manifest, tensors = self.trace()
        self.assertEqual(manifest["sites"][0]["class"], "torch.nn.functional.linear")
        self.assertTrue(torch.equal(tensors["mine/weight"], model.weight))
        np.testing.assert_allclose(tensors["mine/input.mean"], x.double().mean(0), atol=1e-12)
        plain = nn.functional.linear(x, model.weight, model.bias)
        self.assertTrue(torch.equal(package.linear(x, model.weight, model.bias, name="mine"), plain))

    def test_frozen_layers_have_inputs_and_no_gradients(self):
        model = small_model()
        for parameter in model[0].parameters():
            parameter.requires_grad_(False)
        with self.recorder(model) as recorder:
            train(model, recorder)
        _, tensors = self.trace()
        self.assertEqual(tensors["0/input.count"].tolist(), [160])
        self.assertFalse(any(name.startswith("0/grad_output") for name in tensors))
        self.assertIn("3/grad_output.cov", tensors)

    def test_autocast_is_the_compute_type(self):
        model = small_model()
        x, target = batch()
        with self.recorder(model) as recorder:
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model(x), target)
            recorder.loss(loss).backward()
        manifest, tensors = self.trace()
        self.assertEqual([site["dtype"] for site in manifest["sites"]], ["bf16"] * 3)
        # The rows are what the layer received, before autocast rounded them.
        np.testing.assert_allclose(tensors["0/input.mean"], x.double().mean(0), atol=1e-12)
        self.assertEqual(tensors["0/weight"].dtype, torch.float32)


def graph_facts(model, **changes):
    """What a reader of the model's structure would give."""
    facts = types.SimpleNamespace(
        order=["0", "3", "5"],
        tail={"0": [{"op": "layer_norm", "eps": 1e-5, "affine": True}, {"op": "swish"}], "3": [{"op": "relu"}]},
        feeds={"0": ["3"], "3": ["5"], "5": []},
        head={"5"},
        gamma={"0": model[1].weight},
        beta={"0": model[1].bias},
        unread=set(),
        notes=[],
    )
    facts.__dict__.update(changes)
    return facts


class Structure(Run):
    def recorded(self, facts, **options):
        model = small_model()
        graph = types.SimpleNamespace(read=lambda model: facts(model))
        with mock.patch("loka.record.graph_reader.graph", graph):
            with self.recorder(model, **options) as recorder:
                train(model, recorder)
        manifest, tensors = self.trace()
        return recorder, {site["id"]: site for site in manifest["sites"]}, tensors, model

    def test_tail_feeds_head_and_the_norms_gain(self):
        recorder, sites, tensors, model = self.recorded(graph_facts)
        self.assertEqual([op["op"] for op in sites["0"]["tail"]], ["layer_norm", "swish"])
        self.assertEqual((sites["0"]["feeds"], sites["3"]["feeds"]), (["3"], ["5"]))
        self.assertEqual([sites[name]["head"] for name in ("0", "3", "5")], [False, False, True])
        self.assertTrue(torch.equal(tensors["0/tail.gamma"], model[1].weight))
        self.assertTrue(torch.equal(tensors["0/tail.beta"], model[1].bias))
        self.assertEqual(recorder.warnings, [])

    def test_what_the_user_says_comes_first(self):
        options = {"tails": {"3": [{"op": "gelu"}]}, "feeds": {"3": []}, "heads": ["3"]}
        _, sites, _, _ = self.recorded(graph_facts, **options)
        self.assertEqual((sites["3"]["tail"], sites["3"]["feeds"], sites["3"]["head"]), ([{"op": "gelu"}], [], True))

    def test_a_norm_whose_gain_is_not_known_ends_the_tail(self):
        recorder, sites, tensors, _ = self.recorded(lambda model: graph_facts(model, gamma={}, beta={}))
        self.assertEqual(sites["0"]["tail"], [{"op": "other"}])
        self.assertNotIn("0/tail.gamma", tensors)
        self.assertTrue(any("gain" in text for text in recorder.warnings))

    def test_a_feed_that_cannot_be_is_dropped_and_said(self):
        recorder, sites, _, _ = self.recorded(graph_facts, feeds={"5": ["0"], "3": ["0", "5"], "0": ["5"]})
        self.assertEqual([sites[name]["feeds"] for name in ("0", "3", "5")], [[], ["5"], []])
        self.assertEqual(sum("cannot feed" in text for text in recorder.warnings), 3)

    def test_with_the_reader_of_this_installation(self):
        try:
            import loka.graph  # noqa: F401
        except ImportError:
            self.skipTest("no loka.graph")
        model = small_model()
        with self.recorder(model) as recorder:
            train(model, recorder)
        sites = {site["id"]: site for site in self.trace()[0]["sites"]}
        self.assertEqual([op["op"] for op in sites["0"]["tail"]], ["layer_norm", "swish"])
        self.assertEqual(sites["3"]["feeds"], ["5"])


if __name__ == "__main__":
    unittest.main()
