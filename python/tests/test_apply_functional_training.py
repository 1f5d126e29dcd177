"""Functional linears under a plan: compiled, compiled again when the plan goes, and recorded at the same time."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
import torch._dynamo.testing

import loka
from functional_support import KERNELS, OTHERS, Alone, Functional, Mixed, given, gradients
from ranker import batch


class Compiled(Functional):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)

    def test_apply_and_unapply_compile_again(self):
        model, x = Alone(), batch()
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(model, fullgraph=True, backend=counter)
        plain = gradients(compiled, x)
        self.assertEqual(counter.frame_count, 1)
        outputs = [plain[0]]
        # The head is not replaced: what changes is the registry alone.
        for count, kernels in ((2, KERNELS), (3, OTHERS)):
            loka.apply(compiled, self.plan(kernels, bottom=False), emulate=True, functional={"mix": model.mix})
            found = gradients(compiled, x)
            self.assertEqual(counter.frame_count, count)
            self.equal(found, gradients(model, x))
            self.assertFalse(any(torch.equal(found[0], other) for other in outputs))
            outputs.append(found[0])
            self.assertEqual(counter.frame_count, count)
            loka.unapply(compiled)
        self.equal(gradients(compiled, x), plain)

    def test_recorded_and_routed_in_one_graph(self):
        model, x = Alone(), batch()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        loka.apply(model, self.plan(bottom=False), emulate=True, functional={"mix": model.mix})
        expected = gradients(model, x)
        with self.recorder(model, {"mix": model.mix}) as recorder:
            self.equal(gradients(compiled, x), expected)
        self.check_trace(recorder, model, x)


class Recorded(Functional):
    """A Recorder and a plan may have the same name, in any order."""

    def test_a_recorder_over_a_plan(self):
        for bias in (True, False):
            model, x = Mixed(bias=bias), batch()
            loka.apply(model, self.plan(), emulate=True, functional=given(model))
            expected = gradients(model, x)
            with self.recorder(model, given(model)) as recorder:
                self.equal(gradients(model, x), expected)
                self.assertEqual(loka.resolved(model).num_fp8, 3)
            self.assertEqual((recorder.warnings, recorder.sites[-1]), ([], "mix"))
            self.equal(gradients(model, x), expected)
            loka.unapply(model)

    def test_changed_in_place_afterwards(self):
        # Without a bias, and of three dimensions, the kernels' result is a view.
        model, x = Mixed(bias=False), batch().reshape(4, 8, 128)
        functional = {"mix": model.mix}
        loka.apply(model, self.plan(), emulate=True, functional=functional)
        loose = [loka.linear(x, model.mix, name="mix").relu_()]
        loose += torch.autograd.grad(loose[0].square().sum(), model.mix)
        with self.recorder(model, functional) as recorder:
            found = [loka.linear(x, model.mix, name="mix").relu_()]
            found += torch.autograd.grad(found[0].square().sum(), model.mix)
        self.equal(found, loose)
        self.assertNotIn("mix", "".join(recorder.warnings))

    def test_a_plan_over_a_recorder(self):
        model, x = Alone(), batch()
        plain = gradients(model, x)
        with self.recorder(model, {"mix": model.mix}) as recorder:
            loka.apply(model, self.plan(bottom=False), emulate=True, functional={"mix": model.mix})
            found = gradients(model, x)
        self.assertFalse(torch.equal(found[0], plain[0]))
        self.check_trace(recorder, model, x)
        self.equal(gradients(model, x), found)
        loka.unapply(model)
        self.equal(gradients(model, x), plain)


if __name__ == "__main__":
    unittest.main()
