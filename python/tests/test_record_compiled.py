"""A compiled model under a recorder: two variants, no graph break, the same statistics as in eager mode."""

import pathlib
import tempfile
import unittest
import warnings
from unittest import mock

from record_support import batch, loss_of, read, small_model

import torch
import torch._dynamo
import torch._dynamo.testing
from torch.utils.checkpoint import checkpoint

import loka as package
from loka.products import TRACEABLE


class Reads(torch.nn.Module):
    """Of parameters that functions read."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.bias = torch.nn.Parameter(torch.randn(10, 6) / 3), torch.nn.Parameter(torch.linspace(-1, 1, 10))
        self.second = torch.nn.Parameter(torch.randn(10, 10) / 3)
        self.many = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(8, 10) / 3)])
        self.last = torch.nn.Linear(8, 1)

    def forward(self, x):
        y = torch.relu(torch.nn.functional.linear(x, self.weight, self.bias)) @ self.second
        return self.last(torch.relu(torch.nn.functional.linear(y, self.many[0])))


class Compiled(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

    def run_steps(self, model, call, steps=7, every=3):
        """Tensors of a trace, of a recorder on `model` while `call` runs it."""
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        with package.Recorder(model, self.out, every=every, name="small", cross_cov=True) as recorder:
            for step in range(steps):
                x, target = batch(24, step)
                recorder.loss(loss_of(call(x), target)).backward()
                optimizer.step()
                optimizer.zero_grad()
        self.assertEqual(recorder.warnings, [])
        return read(recorder.path)[1]

    def assert_same(self, mine, other):
        self.assertEqual(sorted(mine), sorted(other))
        for name, value in other.items():
            scale = max(float(value.double().abs().max()), 1e-12)
            self.assertLess(float((mine[name].double() - value.double()).abs().max()) / scale, 1e-4, name)

    def test_compiled_before_attach_gives_what_eager_gives(self):
        eager = small_model()
        expected = self.run_steps(eager, eager)
        model = small_model()
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(model, fullgraph=True, backend=counter)
        loss_of(compiled(batch(24)[0]), batch(24)[1]).backward()
        model.zero_grad()
        self.assertEqual(counter.frame_count, 1)
        found = self.run_steps(compiled, compiled)
        self.assert_same(found, expected)
        # One variant that records and one that does not; the steps in between compile nothing.
        self.assertEqual(counter.frame_count, 3)
        compiled(batch(24)[0])
        self.assertEqual(counter.frame_count, 3, "after detach the first variant serves again")

    def test_two_forwards_before_one_backward(self):
        def twice(call):
            return lambda x: call(x) * 0.5 + call(x + 1)

        eager = small_model()
        expected = self.run_steps(eager, twice(eager))
        model = small_model()
        found = self.run_steps(model, twice(torch.compile(model, fullgraph=True, backend="aot_eager")))
        means = [name for name in expected if name.endswith((".mean", ".cov"))]
        self.assert_same({name: found[name] for name in means}, {name: expected[name] for name in means})

    def test_code_that_is_partly_compiled_under_autocast_computes_with_its_own_weights(self):
        class Routed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 1)

            def forward(self, x):
                y = torch.relu(self.first(x))
                rows = (y[:, 0] > 0).nonzero()[:, 0]
                return torch.zeros(len(x), 1).index_add(0, rows, self.second(y[rows]).float())

        model = Routed()
        call = torch.compile(model, backend="aot_eager")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with package.Recorder(model, self.out, every=1, name="routed") as recorder:
                for step in range(3):
                    with torch.autocast("cpu", torch.bfloat16):
                        out = call(batch(24, step)[0])
                        self.assertIs(type(model.first(batch(24)[0])), torch.Tensor)
                    recorder.loss(out.square().mean()).backward()
                    recorder.step()
        self.assertEqual([site["id"] for site in read(recorder.path)[0]["sites"]], ["first", "second"])

    def test_a_layer_that_is_read_thrice_is_no_step_without_an_end(self):
        class Again(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 1)

            def forward(self, x):
                for _ in range(3):
                    x = torch.relu(self.layer(x))
                return self.last(x)

        model = Again()
        compiled = []

        def call(x):
            # After the recorder was attached, as in a loop that compiles its model itself.
            compiled.append(torch.compile(model, backend="aot_eager"))
            return compiled[0](x)

        self.run_steps(model, call)

    @unittest.skipUnless(TRACEABLE, "PyTorch before 2.10")
    def test_products_with_parameters_give_what_eager_gives(self):
        eager = Reads()
        expected = self.run_steps(eager, eager)
        manifest = read(self.out / "small-rank0.trace.safetensors")[0]
        forwards = {site["id"]: site.get("forward") for site in manifest["sites"]}
        self.assertEqual(forwards, {"weight": "linear", "second": "matmul", "many.0": "linear", "last": None})
        model = Reads()
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        found = self.run_steps(model, torch.compile(model, fullgraph=True, backend=counter))
        self.assertEqual(sorted(found), sorted(expected))
        self.assert_same(found, expected)
        compiled = read(self.out / "small-rank0.trace.safetensors")[0]
        self.assertEqual({site["id"]: site.get("forward") for site in compiled["sites"]}, forwards)
        self.assertEqual([site["bias"] for site in compiled["sites"]], [site["bias"] for site in manifest["sites"]])
        self.assertEqual(compiled["coverage"]["sites"], compiled["coverage"]["flops"])
        self.assertEqual(counter.frame_count, 2)

    def test_flops_are_counted_of_a_model_that_is_compiled_outside(self):
        counts = []
        for way in ("before", "attached", "in place"):
            model, folder = small_model(), self.out / way
            run = model if way == "in place" else None if way == "attached" else torch.compile(model, backend="aot_eager")
            if way == "in place":
                model.compile(backend="aot_eager")
            inner = model._compiled_call_impl
            with package.Recorder(model, folder, every=1, name="small") as recorder:
                run = run or torch.compile(model, backend="aot_eager")
                for step in range(2):
                    x, target = batch(24, step)
                    recorder.loss(loss_of(run(x), target)).backward()
                    recorder.step()
            coverage = read(recorder.path)[0]["coverage"]
            counts.append((coverage["how"], coverage["flops"], coverage["sites"]))
            self.assertIs(model._compiled_call_impl, inner)
        flops = 2 * 24 * (6 * 10 + 10 * 8 + 8)
        self.assertEqual(counts, [("fake", flops, flops)] * 3)

    def test_examples_of_positions_flattened_into_rows(self):
        class Flat(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = torch.nn.Linear(2, 6), torch.nn.Linear(6, 3)

            def forward(self, x):
                y = self.last(torch.relu(self.first(x.reshape(-1, 2))))
                return y.reshape(len(x), -1).mean(1)

        model = Flat()
        run = torch.compile(model, backend="aot_eager")
        with package.Recorder(model, self.out, every=1, name="flat") as recorder:
            recorder.loss(run(batch(24)[0]).square().mean()).backward()
            recorder.step()
        sites = read(recorder.path)[0]["sites"]
        self.assertEqual([(site["m"], site["examples"]) for site in sites], [(72, 24)] * 2)

    def test_why_flops_are_not_counted(self):
        model = small_model()
        call = torch.compile(lambda x: model(x), backend="aot_eager")
        with package.Recorder(model, self.out, every=1, name="small") as recorder:
            for step in range(2):
                x, target = batch(24, step)
                recorder.loss(loss_of(call(x), target)).backward()
                recorder.step()
        manifest, _ = read(recorder.path)
        self.assertNotIn("coverage", manifest)
        self.assertTrue(any("give the Recorder what torch.compile returned" in note for note in manifest["notes"]), manifest["notes"])

    def test_no_cuda_graphs_in_pieces_while_attached(self):
        from torch._inductor import config

        if not hasattr(config, "graph_partition"):
            self.skipTest("this PyTorch makes no CUDA graphs in pieces")
        self.addCleanup(setattr, config, "graph_partition", config.graph_partition)
        config.graph_partition = True
        with mock.patch.object(torch.cuda, "is_available", lambda: True):
            first = package.Recorder(small_model(), self.out, name="first").attach()
            second = package.Recorder(small_model(), self.out, name="second").attach()
            first.detach()
            self.assertFalse(config.graph_partition)
            second.detach()
            second.detach()
        self.assertTrue(config.graph_partition)

    def test_inductor_with_checkpointing_inside(self):
        class Checkpointed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = small_model()

            def forward(self, x):
                return checkpoint(self.inner, x, use_reentrant=False)

        eager, model = Checkpointed(), Checkpointed()
        expected = self.run_steps(eager, eager, steps=2, every=2)
        found = self.run_steps(model, torch.compile(model, fullgraph=True), steps=2, every=2)
        self.assert_same(found, expected)

    def test_the_loss_inside_of_the_compiled_step(self):
        model = small_model()
        x, target = batch(24)
        recorder = package.Recorder(model, self.out, every=1, name="small").attach()

        def whole(x, target):
            return recorder.loss(loss_of(model(x), target)) / 4

        torch.compile(whole, fullgraph=True, backend="aot_eager")(x, target).backward()
        recorder.close()
        manifest, tensors = read(recorder.path)
        self.assertAlmostEqual(manifest["loss"]["value"], float(loss_of(small_model()(x), target)), places=5)
        twin = small_model()
        twin(x)
        with package.Recorder(twin, self.out, every=1, name="twin") as other:
            other.loss(loss_of(twin(x), target)).backward()
        expected = read(other.path)[1]
        self.assertTrue(torch.allclose(tensors["3/grad_output.cov"], expected["3/grad_output.cov"], rtol=1e-3))


if __name__ == "__main__":
    unittest.main()
