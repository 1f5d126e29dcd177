"""What adapters say when a library is missing, too old, or does not take a shape. No library is run here."""

import pathlib
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from loka.worker import adapters
from loka.worker.adapters import deepgemm, fbgemm, pytorch, torchao, transformer_engine
from loka.worker.timing import MAX_SETS, num_sets


def environment(capability=(9, 0), **torch):
    """An environment with a GPU that nothing is run on."""
    found = adapters.Environment.__new__(adapters.Environment)
    found.torch = types.SimpleNamespace(__version__="2.11.0+cu130", **torch)
    found.reason = None
    found.capability = capability
    found.device_name = "a test double"
    return found


def module(name, **contents):
    made = types.ModuleType(name)
    made.__dict__.update(contents)
    return made


class Missing(unittest.TestCase):
    def test_no_pytorch_is_the_reason_of_every_kernel(self):
        with mock.patch.dict(sys.modules, {"torch": None}):
            missing = adapters.Environment()
        for adapter in adapters.adapters(missing):
            for kernel in adapter.kernels:
                self.assertIn("PyTorch", adapter.why_not(kernel))

    def test_each_library_is_named(self):
        for build, package, name in (
            (torchao.ADAPTER, "torchao", "TorchAO"),
            (deepgemm.ADAPTER, "deep_gemm", "DeepGEMM"),
            (fbgemm.ADAPTER, "fbgemm_gpu", "FBGEMM"),
            (transformer_engine.ADAPTER, "transformer_engine", "Transformer Engine"),
        ):
            with self.subTest(package), mock.patch.dict(sys.modules):
                for known in [known for known in sys.modules if known.split(".")[0] == package]:
                    del sys.modules[known]
                with mock.patch("importlib.import_module", side_effect=ModuleNotFoundError("gone", name=package)):
                    adapter = build(environment())
                    reason = adapter.why_not(adapter.kernels[0])
                self.assertEqual(reason, f"{name} is not installed in {sys.executable}")

    def test_a_library_that_breaks_on_import_says_how(self):
        with mock.patch("importlib.import_module", side_effect=OSError("libcudart.so.12: cannot open\nmore")):
            reason = fbgemm.ADAPTER(environment()).why_not("fbgemm/rowwise")
        self.assertEqual(reason, "FBGEMM does not load: OSError: libcudart.so.12: cannot open")


class TooOld(unittest.TestCase):
    def test_deepgemm_before_2_1(self):
        with mock.patch.dict(sys.modules, {"deep_gemm": module("deep_gemm")}):
            reason = deepgemm.ADAPTER(environment()).why_not("deepgemm/blockwise")
        self.assertIn("has no fp8_gemm_nt, which came with 2.1", reason)

    def test_deepgemm_without_the_scale_option(self):
        modules = {
            "deep_gemm": module("deep_gemm", fp8_gemm_nt=None),
            "deep_gemm.utils": module("deep_gemm.utils", per_token_cast_to_fp8=lambda x: x, per_block_cast_to_fp8=lambda x: x),
        }
        with mock.patch.dict(sys.modules, modules):
            reason = deepgemm.ADAPTER(environment()).why_not("deepgemm/blockwise")
        self.assertIn("no per_token_cast_to_fp8 with use_ue8m0", reason)

    def test_torchao(self):
        with mock.patch.dict(sys.modules, {"torchao": module("torchao")}), mock.patch.object(torchao.TorchAO, "version", lambda self: "0.9.0"):
            self.assertEqual(torchao.ADAPTER(environment()).why_not("torchao/rowwise"), "TorchAO 0.9.0 is older than 0.10")

    def test_transformer_engine_without_the_recipe(self):
        modules = {
            "transformer_engine": module("transformer_engine"),
            "transformer_engine.pytorch": module("transformer_engine.pytorch", fp8_autocast=None, autocast=print),
            "transformer_engine.common": module("transformer_engine.common"),
            "transformer_engine.common.recipe": module("transformer_engine.common.recipe", Float8CurrentScaling=object),
        }
        with mock.patch.dict(sys.modules, modules):
            adapter = transformer_engine.ADAPTER(environment())
            self.assertIsNone(adapter.why_not("te/current"))
            self.assertIn("has no Float8BlockScaling", adapter.why_not("te/blockwise"))

    def test_versions_compare_as_numbers(self):
        self.assertTrue(adapters.at_least("2.11.0+cu130", (2, 10)))
        self.assertTrue(adapters.at_least("0.18.0.dev2026", (0, 10)))
        self.assertFalse(adapters.at_least("0.9.0", (0, 10)))
        self.assertFalse(adapters.at_least(None, (0, 1)))
        self.assertFalse(adapters.at_least("unknown", (0, 1)))


class Hardware(unittest.TestCase):
    def test_a_gpu_without_fp8(self):
        functional = types.SimpleNamespace(scaled_mm=None)
        old = environment((8, 0), _scaled_mm=None, nn=types.SimpleNamespace(functional=functional))
        adapter = pytorch.ADAPTER(old)
        self.assertIsNone(adapter.why_not("pytorch/bf16"))
        self.assertEqual(adapter.why_not("pytorch/fp8-tensorwise+fast"), "FP8 needs compute capability 8.9, this GPU has 8.0")

    def test_rowwise_and_blockwise_want_hopper(self):
        functional = types.SimpleNamespace(scaled_mm=None)
        ada = pytorch.ADAPTER(environment((8, 9), _scaled_mm=None, nn=types.SimpleNamespace(functional=functional)))
        self.assertIsNone(ada.why_not("pytorch/fp8-tensorwise+fast"))
        self.assertIn("9.0", ada.why_not("pytorch/fp8-rowwise+fast"))
        self.assertIn("9.0", ada.why_not("pytorch/fp8-blockwise"))


class Shapes(unittest.TestCase):
    def test_the_refused_size_is_named_as_loka_names_it(self):
        adapter = torchao.ADAPTER(environment())
        self.assertEqual(adapter.refuses("torchao/rowwise", "fprop", 8, 100, 64), "k = 100 is not a multiple of 16")
        self.assertEqual(adapter.refuses("torchao/rowwise", "wgrad", 8, 64, 64), "m = 8 is not a multiple of 16")
        self.assertIsNone(adapter.refuses("torchao/rowwise_with_gw_hp", "wgrad", 8, 64, 64))
        self.assertIsNone(adapter.refuses("torchao/rowwise", "dgrad", 7, 64, 64))

    def test_blocks_want_128(self):
        self.assertEqual(deepgemm.ADAPTER(environment()).refuses("deepgemm/blockwise", "fprop", 1, 256, 192), "n = 192 is not a multiple of 128")

    def test_bf16_takes_anything(self):
        self.assertIsNone(pytorch.ADAPTER(environment()).refuses("pytorch/bf16", "wgrad", 7, 5, 3))


class Sets(unittest.TestCase):
    def test_buffers_pass_three_times_the_l2(self):
        l2 = 60 * 2**20
        for bytes_per_set in (2**20, 10**6, 5 * 10**8):
            count = num_sets(bytes_per_set, l2)
            self.assertGreater(count * bytes_per_set, 3 * l2)
        self.assertEqual(num_sets(512, l2), MAX_SETS)
        self.assertEqual(num_sets(10**9, l2), 2)


if __name__ == "__main__":
    unittest.main()
