"""compressed-tensors: the config parsed and applied to the toy, each linear's scheme read back."""

import json
import unittest

import support
import toy
from plans import HIGH, schemes, whole

from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config

CHOICES = [HIGH, whole("te/current"), whole("fbgemm/rowwise"), whole("deepgemm/blockwise")]
WANTED = {
    "high": None,
    "tensor": (("tensor", False, None, None), ("tensor", True, None, None)),
    "row": (("channel", False, None, None), ("token", True, None, None)),
    "block": (("block", False, None, [128, 128]), ("group", True, 128, None)),
}
"""Of the weight and the input: strategy, dynamic, group size, block."""


def arguments(args):
    if args is None:
        return None
    assert (args.num_bits, args.type, args.symmetric) == (8, "float", True)
    return str(args.strategy), args.dynamic, args.group_size, args.block_structure


def scheme_of(module):
    scheme = getattr(module, "quantization_scheme", None)
    if scheme is None:
        return None
    assert scheme.output_activations is None
    return arguments(scheme.weights), arguments(scheme.input_activations)


class Groups(support.Target, unittest.TestCase):
    target = "compressed-tensors"
    file = "quantization_config.json"
    choices = CHOICES

    def became(self, path, model):
        config = QuantizationConfig.model_validate(json.loads(path.read_text(encoding="utf-8")))
        apply_quantization_config(model, config, show_progress=False)
        return {name: scheme_of(module) for name, module in toy.linears(model).items()}

    def of(self, kernels):
        return WANTED[schemes(kernels)[0]]

    lost = of


class Traps(unittest.TestCase):
    def hit(self, targets, ignore=(), names=()):
        args = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}
        groups = {"group_0": {"targets": targets, "weights": args}}
        fields = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": groups}
        model = toy.toy(names)
        config = QuantizationConfig.model_validate({**fields, "ignore": list(ignore)})
        apply_quantization_config(model, config, show_progress=False)
        return [name for name, module in model.named_modules() if scheme_of(module) is not None]

    def test_a_regular_expression_that_is_not_anchored_hits_layer_10(self):
        self.assertIn("m.layers.10.fc1", self.hit([r"re:.*layers\.1"]))

    def test_a_module_of_the_name_of_a_class_hits_all_of_that_class(self):
        names = ["Linear", "fc1", "fc2"]
        self.assertEqual(self.hit(["Linear"], names=names), names)
        self.assertEqual(self.hit(["re:^Linear$"], names=names), ["Linear"])

    def test_ignore_wins_over_targets(self):
        self.assertEqual(self.hit(["fc1", "head.fc1"], ["fc1"]), ["head.fc1"])

    def test_a_name_that_matches_nothing_is_only_logged(self):
        self.assertEqual(self.hit(["m.layers.1"]), [])


if __name__ == "__main__":
    unittest.main()
