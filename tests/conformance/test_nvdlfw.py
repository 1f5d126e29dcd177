"""nvdlfw_inspect: the YAML loaded, and every linear asked for by its name, GEMM by GEMM.

The features that the file names are Transformer Engine's, which needs CUDA; nvdlfw_features/ stands in for them.
"""

import contextlib
import tempfile
import unittest

import support
import toy
from plans import BF16, HIGH, schemes, whole

import nvdlfw_inspect.api as debug_api

FEATURES = str(support.HERE / "nvdlfw_features")
GEMMS = ("fprop", "dgrad", "wgrad")
FP8 = "te/current"
CHOICES = [HIGH, whole(FP8), (FP8, FP8, BF16), (FP8, BF16, BF16), (BF16, FP8, FP8), (BF16, BF16, FP8)]


@contextlib.contextmanager
def loaded(config):
    """The debug tool with this file or mapping, as a training run has it."""
    with tempfile.TemporaryDirectory() as logs:
        debug_api.initialize(config, feature_dirs=[FEATURES], log_dir=logs)
        try:
            yield
        finally:
            debug_api.end_debug()


def ask(names):
    """Whether the GEMMs of each stay in FP8, inside an autocast that has FP8 on."""
    answer = debug_api.transformer_engine.fp8_gemm_enabled
    return {name: tuple(answer(name, gemm=gemm) for gemm in GEMMS) for name in names}


class Features(support.Target, unittest.TestCase):
    target = "nvdlfw"
    file = "debug.yaml"
    skipped = "Transformer Engine's own features, which need CUDA: two stand-ins answer"
    choices = CHOICES
    # In FP8, as the run says.
    unlisted = (True, True, True)
    # Which recipe FP8 is, the run says.
    flags = ("--allow-loss",)
    # A module carries one name.
    shared = "none"

    def became(self, path, model):
        with loaded(str(path)):
            return ask(name for name in model.linear_names if name != toy.ALIAS)

    def of(self, kernels):
        return tuple(scheme != "high" for scheme in schemes(kernels))

    lost = of


def section(layers, feature=None):
    feature = feature or {"DisableQuantizationLayer": {"enabled": True}}
    return {"enabled": True, "layers": layers, "transformer_engine": feature}


class Traps(unittest.TestCase):
    def off(self, layers):
        with loaded({"one": section(layers)}):
            return [name for name, on in ask(toy.all_names()).items() if not on[0]]

    def test_a_pattern_without_anchors_hits_layer_10(self):
        self.assertIn("m.layers.10.fc1", self.off({"layer_name_regex_pattern": r"layers\.1"}))
        self.assertIn("x.m.layers.1.fc1", self.off({"layer_name_regex_pattern": r"m\.layers\.1\.fc1"}))
        self.assertEqual(self.off({"layer_name_regex_pattern": r"^(?:m\.layers\.1\.fc1)$"}), ["m.layers.1.fc1"])

    def test_a_layer_type_is_a_substring(self):
        self.assertIn("m.layers.10.fc1", self.off({"layer_types": ["layers.1"]}))

    def test_exact_names_raise_for_every_other_layer(self):
        with self.assertRaises(ValueError):
            self.off({"exact_layer_names": ["fc1"]})

    def test_a_layer_may_be_in_one_section_only(self):
        twice = {"layer_name_regex_pattern": "^fc1$"}
        with loaded({"one": section(twice), "two": section(twice)}), self.assertRaises(ValueError):
            ask(["fc1"])

    def test_a_feature_of_another_name_is_refused(self):
        with self.assertRaises(AssertionError):
            with loaded({"one": section({"layer_name_regex_pattern": "^fc1$"}, {"DisableFp8": {"enabled": True}})}):
                pass
        debug_api.end_debug()

    def test_inferred_names_have_a_prefix_that_plans_lack(self):
        model = toy.toy()
        with loaded({"one": section({"layer_name_regex_pattern": "^fc1$"})}):
            debug_api.infer_and_assign_layer_names(model)
            self.assertEqual(toy.linears(model)["fc1"].name, "model.fc1")
            self.assertEqual(ask(["model.fc1"]), {"model.fc1": (True, True, True)})


if __name__ == "__main__":
    unittest.main()
