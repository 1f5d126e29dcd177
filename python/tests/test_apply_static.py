"""A plan with LoKA's own kernels and static scales: what runs, what it counts, what is refused."""

import copy
import ctypes
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ranker
import torch
from ranker import Ranker, batch

import loka
from loka import kernels
from loka.plans import PlanError

STATIC = "loka/fp8-static+fast"


class Static(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def scaled(self, scale):
        def change(plan):
            plan["sites"][1]["fprop"].update(kernel=STATIC, static_scale=scale)

        return ranker.forged(self.folder, change)

    def plan(self, fprop=STATIC, dgrad=STATIC, wgrad="loka/fp8-rowwise+fast"):
        """The ranker's plan with these kernels at bottom.3."""

        def change(plan):
            site = next(site for site in plan["sites"] if site["site"] == "bottom.3")
            for gemm, kernel in (("fprop", fprop), ("dgrad", dgrad), ("wgrad", wgrad)):
                site[gemm]["kernel"] = kernel
                if kernel == STATIC:
                    site[gemm].update(static_scale=2.0**-6, saturation=1e-4)

        return ranker.forged(self.folder, change)

    def step(self, model, x):
        model.zero_grad()
        y = model(x)
        y.square().mean().backward()
        return [y.detach(), *(parameter.grad.clone() for parameter in model.parameters())]

    def test_it_runs_by_the_plans_scales(self):
        model, x = Ranker(), batch()
        loka.apply(model, self.plan(), emulate=True)
        site = model.bottom[3]
        seen = {}
        site.register_forward_hook(lambda _, inputs, output: seen.update(x=inputs[0], y=output))
        self.step(model, x)
        codes = (seen["x"] / 2.0**-6).clamp(-448, 448).to(torch.float8_e4m3fn).float()
        w, w_scale = kernels.scales.quantize(site.weight, kernels.Cast("e4m3", "row", False))
        expected = codes @ w.float().t() * 2.0**-6 * w_scale.t()
        self.assertTrue(torch.equal(seen["y"], expected.bfloat16().float() + site.bias))

    def test_saturated_elements_are_counted_and_told(self):
        model, x = Ranker(), batch()
        loka.apply(model, self.plan(), emulate=True)
        self.assertEqual(loka.saturated(model), {"bottom.3": {"fprop": 0, "dgrad": 0}})
        sent = torch.full((32, 256), 8.0, requires_grad=True)
        y = model.bottom[3](sent)
        y.backward(torch.full_like(y, 8.0) * (torch.arange(128) < 3))
        # That of dy is found in the first step, and follows: nothing is beyond it.
        self.assertEqual(loka.saturated(model), {"bottom.3": {"fprop": 32 * 256, "dgrad": 0}})
        self.assertNotIn("_loka_scales", model.state_dict())
        self.assertEqual(list(dict(model.named_buffers())), [])

    def test_compiled_it_is_the_same_and_counts(self):
        found, plain = [], []
        for wrap in (lambda model: model, lambda model: torch.compile(model, backend="aot_eager", fullgraph=True)):
            model, x = Ranker(), batch() * 40
            plain.append(self.step(wrap(model), x))
            loka.apply(model, self.plan(fprop=STATIC, dgrad=STATIC, wgrad="cublaslt/bf16"), emulate=True)
            found.append((*self.step(wrap(model), x), loka.saturated(model)))
        # Before 2.11 PyTorch itself sums another way where it compiled: one rounding to BF16 may then fall on the other side.
        slack = 0.0 if all(map(torch.equal, *plain)) else 2.0**-8
        for eager, compiled in zip(found[0][:-1], found[1][:-1]):
            self.assertLessEqual(float((eager - compiled).abs().max()), slack * float(eager.abs().max()))
        self.assertEqual(found[0][-1], found[1][-1])

    def test_copies_and_files_keep_the_scale(self):
        model = Ranker()
        loka.apply(model, self.plan(), emulate=True)
        expected = model(batch())
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
            self.assertTrue(torch.equal(other(batch()), expected))
            self.assertEqual(loka.saturated(other), {"bottom.3": {"fprop": 0, "dgrad": 0}})
        loka.unapply(model)
        self.assertEqual(loka.saturated(model), {})

    def test_a_model_without_memory_yet_has_its_scales_where_it_will_run(self):
        model = Ranker().to("meta")
        loka.apply(model, self.plan(), emulate=True)
        where = "cuda" if torch.cuda.is_available() else "cpu"
        self.assertEqual([one.scale.device.type for one in model.bottom[3]._loka_scales], [where] * 2)

    def refused(self, plan, **options):
        with self.assertRaises(PlanError) as refused:
            loka.apply(Ranker(), plan, **{"emulate": True, **options})
        return str(refused.exception)

    def test_what_cannot_be_is_refused_with_its_reason(self):
        block = self.refused(self.plan(fprop="loka/fp8-block+fast"))
        self.assertIn("n = 128 is not a multiple of 256", block)
        self.assertIn("wgrad: it reads both operands transposed", self.refused(self.plan(wgrad=STATIC)))
        for scale, said in ((0.3, "0.3"), (-0.5, "-0.5"), (2.0**-101, "3.9443e-31")):
            refused = self.refused(self.scaled(scale))
            self.assertIn(f"static_scale is {said}, it must be a power of two from 2^-100 to 2^100", refused)
        loka.apply(Ranker(), self.plan(fprop="loka/fp8-tensorwise+fast"), emulate=True)

    def test_a_plan_without_the_scale_is_refused(self):
        def change(plan):
            plan["sites"][1]["fprop"]["kernel"] = STATIC

        self.assertIn("the plan has no static_scale", self.refused(ranker.forged(self.folder, change)))

    def test_a_functional_linear_has_no_place_for_the_count(self):
        from loka.kernels import why_not
        from loka.plans.application import _unscaled
        from loka.plans.document import Choice
        from loka.plans.functional import FunctionalLinear

        self.assertIsNone(why_not(STATIC, "fprop", 256, 128, torch.device("cpu"), True))
        choice = Choice(STATIC, "dispatch", "", static_scale=0.5)
        self.assertIn("a loka.linear has none", _unscaled(choice, "fprop", FunctionalLinear(torch.zeros(128, 256))))

    @unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
    def test_without_a_gpu_the_reason_is_that(self):
        self.assertIn("GEMMs of the plan need a CUDA GPU: there is none here", self.refused(self.plan(), emulate=False))


class Header(unittest.TestCase):
    def test_what_is_called_is_what_the_header_declares(self):
        from loka.kernels import native

        text = (pathlib.Path(__file__).resolve().parents[2] / "capi" / "loka.h").read_text()
        version = int(re.search(r"LOKA_ABI_VERSION (\d+)", text)[1])
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        simple = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64}
        pointers = {
            "const char *": ctypes.c_char_p,
            "const loka_operand *": ctypes.POINTER(native.Operand),
            "uint64_t *bytes": ctypes.POINTER(ctypes.c_uint64),
        }

        def type_of(argument):
            argument = " ".join(argument.split())
            if "*" not in argument:
                return simple[argument.split()[0]]
            return next((kind for start, kind in pointers.items() if argument.startswith(start)), ctypes.c_void_p)

        declared = {
            name: [type_of(argument) for argument in arguments.split(",")]
            for name, arguments in re.findall(r"\bint32_t (loka_\w+)\(([^)]*)\);", text)
        }
        # By others' programs alone.
        uncalled = {"loka_transpose_codes", "loka_cast_static_turned", "loka_block_backward_static", native.REGISTER}
        self.assertEqual({name: kinds for name, kinds in declared.items() if name not in uncalled}, native.SIGNATURES)
        self.assertEqual(version, native.ABI_VERSION)
        fields = re.search(r"struct loka_operand \{(.*?)\}", text, flags=re.S)[1]
        found = [field.split()[-1].lstrip("*") for field in fields.split(";") if field.strip()]
        self.assertEqual(found, [name for name, _ in native.Operand._fields_])
        self.assertEqual(ctypes.sizeof(native.Operand), 80)
        self.assertEqual(native._PACKED.size, 80)
        native._PACKED.pack_into(native._scratch.operand, 0, *range(1, 14))
        packed = [getattr(native._scratch.operand, name) for name, _ in native.Operand._fields_]
        self.assertEqual(packed, list(range(1, 14)))
        for name in ("FAST", "X_E5M2", "X_ROW_SCALES", "W_ROW_SCALES", "X_E4M3", "POWER_OF_TWO", "AS_E5M2"):
            self.assertEqual(int(re.search(rf"LOKA_{name} = (\d+)", text)[1]), getattr(native, name), name)


class Library(unittest.TestCase):
    """Where libloka is looked for, each time in a process of its own."""

    def load(self, **environment):
        code = "from loka.kernels import native\ntry:\n    native.library(); print('loaded')\n"
        code += "except native.NativeError as error:\n    print(error)"
        root = str(pathlib.Path(__file__).resolve().parents[1])
        environment = {**os.environ, "PYTHONPATH": root, **environment}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def test_an_absent_one_is_told_with_how_to_build_it(self):
        said = self.load(LOKA_LIBRARY="/nowhere/libloka.so")
        self.assertEqual(
            said,
            "libloka.so was not found: there is no /nowhere/libloka.so (cargo build --release -p loka_capi builds it; "
            "LOKA_LIBRARY names it elsewhere)",
        )

    def test_another_library_is_none(self):
        other = next(pathlib.Path(torch.__file__).parent.glob("lib/libc10.so"))
        self.assertIn("is no libloka", self.load(LOKA_LIBRARY=str(other)))

    def test_the_one_that_cargo_built(self):
        from loka.kernels import native

        if not any(path.exists() for path in native.candidates()):
            self.skipTest("no libloka.so: cargo build -p loka_capi")
        self.assertEqual(self.load(), "loaded")
        # On a machine without a driver it says so; nothing is raised on the way.
        if not torch.cuda.is_available():
            self.assertIn("NVIDIA driver", native.why_not(torch.device("cuda", 0)))


if __name__ == "__main__":
    unittest.main()
