"""Freezing: the outputs of evaluation to the bit with every weight cast once, what a state_dict holds, the way back, and
what torch.export and AOTInductor make of it."""

import copy
import io
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from torch import nn

import loka
from loka.kernels import cast_once
from loka.plans import PlanError
from loka.plans.frozen import FrozenLinear
from ranker import PLAN, Ranker, batch, forged

SCHEMES = (
    "cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise+fast", "cublaslt/fp8-blockwise", "cublaslt/fp8-delayed",
    "loka/fp8-static+fast", "loka/fp8-rowwise", "pytorch/fp8-tensorwise+fast",
)  # fmt: skip


class Served(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def applied(self, kernel, model=None, scale=2.0**-5):
        """The ranker with that kernel in the forward of its linears that it fits."""

        def change(document):
            for site in document["sites"]:
                if site["site"] not in (("top.0", "top.2") if "blockwise" in kernel else ("top.2",)):
                    site["fprop"].update(kernel=kernel, source="override", static_scale=scale)

        model = (model or Ranker()).eval()
        loka.apply(model, forged(self.folder, change), emulate=True)
        return model


class Freeze(Served):
    def test_outputs_are_the_same_to_the_bit(self):
        for kernel in SCHEMES:
            with self.subTest(kernel):
                model = self.applied(kernel)
                with torch.no_grad():
                    before = model(batch(37))
                    resolved = loka.freeze(model)
                    after = model(batch(37))
                self.assertTrue(torch.equal(before, after), float((before - after).abs().max()))
                self.assertEqual(sum("weight cast once" in row.note for row in resolved.rows), 3, resolved)
                self.assertEqual(resolved.num_fp8, 3)

    def test_under_autocast_the_codes_are_those_of_bf16(self):
        model = self.applied("cublaslt/fp8-rowwise")
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            before = model(batch())
            loka.freeze(model, dtype=torch.bfloat16)
            self.assertTrue(torch.equal(before, model(batch())))
        with self.assertRaisesRegex(RuntimeError, r"frozen for torch\.bfloat16 and is asked for torch\.float32"):
            model(batch())

    def test_a_weight_is_cast_once(self):
        model = self.applied("cublaslt/fp8-rowwise")
        loka.freeze(model)
        with mock.patch.object(cast_once, "quantize", wraps=cast_once.quantize) as quantize:
            model(batch())
        self.assertEqual([call.args[0].shape for call in quantize.call_args_list], [(32, 128), (32, 256), (32, 128)])

    def test_an_output_is_that_of_the_definition(self):
        """Not through the package's own casts: codes read back, their products in FP64."""
        model = self.applied("cublaslt/fp8-rowwise")
        linear = model.bottom[0]
        weight = linear.weight.detach().double()
        loka.freeze(model)
        scale = (linear.weight.detach().abs().amax(1, keepdim=True) / 448).double()
        codes = linear._codes()
        self.assertTrue(torch.equal(codes.bits.double(), (weight / scale).float().to(torch.float8_e4m3fn).double()))
        x = batch()
        x_scale = (x.abs().amax(1, keepdim=True) / 448).double()
        x_codes = (x.double() / x_scale).float().to(torch.float8_e4m3fn).double()
        expected = (x_codes @ codes.bits.double().T) * x_scale * scale.T + linear.bias.double()
        torch.testing.assert_close(linear(x).double(), expected, rtol=2**-7, atol=2**-7)

    def test_the_state_dict_is_the_models_own_unless_asked(self):
        plain = set(Ranker().state_dict())
        model = self.applied("cublaslt/fp8-delayed")
        loka.freeze(model)
        self.assertEqual(set(model.state_dict()), plain)
        saved = self.applied("cublaslt/fp8-delayed")
        loka.freeze(saved, save_codes=True)
        extra = set(saved.state_dict()) - plain
        self.assertEqual(len(extra), 9, extra)
        self.assertEqual(saved.state_dict()["bottom.0.loka_weight_codes"].dtype, torch.uint8)

    def test_other_weights_are_cast_anew(self):
        model, other = self.applied("cublaslt/fp8-rowwise"), self.applied("cublaslt/fp8-rowwise", Ranker(seed=5))
        loka.freeze(model)
        with torch.no_grad():
            expected = other(batch())
            model.load_state_dict(Ranker(seed=5).state_dict())
            self.assertTrue(torch.equal(model(batch()), expected))

    def test_casts_of_the_model_and_copies_leave_codes_alone(self):
        model = self.applied("cublaslt/fp8-rowwise")
        loka.freeze(model)
        with torch.no_grad():
            expected = model(batch())
            self.assertTrue(torch.equal(copy.deepcopy(model)(batch()), expected))
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            self.assertTrue(torch.equal(torch.load(file, weights_only=False)(batch()), expected))
        codes = model.bottom[0]._codes()
        model.half()
        self.assertTrue(torch.equal(model.bottom[0]._codes().scale, codes.scale))
        self.assertTrue(torch.equal(model.bottom[0]._codes().bits.view(torch.uint8), codes.bits.view(torch.uint8)))

    def test_the_way_back(self):
        model = self.applied("cublaslt/fp8-rowwise")
        plain = Ranker().eval()
        loka.freeze(model)
        loka.unapply(model)
        self.assertIs(type(model.bottom[0]), nn.Linear)
        self.assertEqual([name for name, _ in model.named_buffers()], [])
        self.assertTrue(torch.equal(model(batch()), plain(batch())))
        model.train()(batch()).sum().backward()
        self.assertIsNotNone(model.bottom[0].weight.grad)

    def test_dropped_weights_are_gone_and_that_is_said(self):
        model = self.applied("cublaslt/fp8-rowwise")
        with self.assertRaisesRegex(PlanError, "without save_codes=True"):
            loka.freeze(model, weights="drop")
        expected = model(batch())
        loka.freeze(model, weights="drop", save_codes=True)
        self.assertTrue(torch.equal(model(batch()), expected))
        self.assertNotIn("bottom.0.weight", model.state_dict())
        with self.assertRaisesRegex(PlanError, "3 linears have no weights any more, 'bottom.0' among them"):
            loka.unapply(model)
        loaded = self.applied("cublaslt/fp8-rowwise", Ranker(seed=5))
        loka.freeze(loaded, weights="drop", save_codes=True)
        loaded.load_state_dict(model.state_dict())
        self.assertTrue(torch.equal(loaded(batch()), expected))

    def test_what_it_cannot_do_it_says(self):
        with self.assertRaisesRegex(PlanError, r"no plan is applied to this model: loka\.apply"):
            loka.freeze(Ranker())
        model = self.applied("cublaslt/fp8-delayed", scale=None)
        with self.assertRaisesRegex(PlanError, "'bottom.0' has no scale of x yet"):
            loka.freeze(model)
        self.assertNotIsInstance(model.bottom[0], FrozenLinear)
        model = self.applied("cublaslt/fp8-rowwise")
        loka.freeze(model)
        with self.assertRaisesRegex(RuntimeError, "a frozen model is for inference"):
            model.train()(batch())
        self.assertEqual(str(loka.freeze(model.eval())), str(loka.resolved(model)), "twice is once")

    def test_a_forward_in_high_precision_is_left(self):
        model = self.applied("cublaslt/bf16")
        resolved = loka.freeze(model)
        self.assertFalse(any(isinstance(module, FrozenLinear) for module in model.modules()))
        self.assertIn("its forward is in high precision", str(resolved))


class Exported(Served):
    """Emulated, on a CPU: what an export holds, not how fast it is."""

    def test_an_export_has_the_outputs_of_the_model(self):
        for kernel in ("cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise", "cublaslt/fp8-delayed", "loka/fp8-static+fast"):
            with self.subTest(kernel):
                model = self.applied(kernel)
                loka.freeze(model)
                rows = torch.export.Dim("rows", min=2, max=4096)
                with torch.no_grad():
                    program = torch.export.export(model, (batch(),), dynamic_shapes=({0: rows},))
                    for size in (2, 32, 100):
                        self.assertTrue(torch.equal(program.module()(batch(size)), model(batch(size))))

    @unittest.skipIf(torch.__version__.startswith("2.6."), "PyTorch 2.6 writes no program with FP8 in it")
    def test_an_export_survives_its_file(self):
        model = self.applied("cublaslt/fp8-rowwise")
        loka.freeze(model)
        path = pathlib.Path(self.folder) / "model.pt2"
        with torch.no_grad():
            torch.export.save(torch.export.export(model, (batch(),)), path)
            self.assertTrue(torch.equal(torch.export.load(path).module()(batch()), model(batch())))

    @unittest.skipIf(shutil.which("g++") is None, "AOTInductor needs a C++ compiler")
    def test_aot_inductor_runs_it(self):
        model = self.applied("cublaslt/fp8-rowwise")
        loka.freeze(model)
        with torch.no_grad():
            program = torch.export.export(model, (batch(),))
            package = torch._inductor.aoti_compile_and_package(
                program, package_path=str(pathlib.Path(self.folder) / "model.pt2")
            )
            found = torch._inductor.aoti_load_package(package)(batch())
        torch.testing.assert_close(found, model(batch()), rtol=2**-6, atol=2**-6)


if __name__ == "__main__":
    unittest.main()
