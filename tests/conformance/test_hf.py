"""Transformers' fine-grained FP8: the config parsed, the toy converted on the meta device.

Loading a whole model asks for a GPU; `replace_with_fp8_linear`, which decides and replaces, does not.
"""

import json
import re
import unittest

import support
import toy
from plans import HIGH, nearest, rotated, schemes, whole

from torch import nn
from transformers import FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import FP8Linear, replace_with_fp8_linear
from transformers.quantizers.quantizers_utils import should_convert_module

CHOICES = [HIGH, whole("deepgemm/blockwise")]
WANTED = {"high": None, "block": ((128, 128), "dynamic")}


def kind(module):
    """(block, activation scheme) of an FP8 linear; None for a plain one."""
    if type(module) is nn.Linear:
        return None
    assert type(module) is FP8Linear
    return tuple(module.block_size), module.activation_scheme


class Config(support.Target, unittest.TestCase):
    target = "hf"
    file = "quantization_config.json"
    skipped = "loading a whole model, which asks for a GPU; the linears are replaced"
    choices = CHOICES
    scaled = "refused"
    nested = "refused"
    # The first name is given another module, the second one keeps what it had.
    shared = "unplanned"

    def became(self, path, model):
        config = FineGrainedFP8Config.from_dict(json.loads(path.read_text(encoding="utf-8")))
        model = model.to("meta")
        replace_with_fp8_linear(model, config.modules_to_not_convert, config)
        return {name: kind(module) for name, module in toy.linears(model).items()}

    def test_without_a_list_of_the_modules(self):
        """What the plan lacks is converted, unless a name of the plan is its end: give the list."""
        path = self.export(rotated(toy.PLANNED, CHOICES), listed=False)
        became = self.became(path, toy.toy())
        self.assertEqual(became["unplanned.0"], WANTED["block"])
        self.assertIsNone(became["x.m.layers.1.fc1"])

    def of(self, kernels):
        return WANTED[schemes(kernels)[0]]

    def lost(self, kernels):
        return WANTED[nearest(schemes(kernels)[0], ("block",))]


class Traps(unittest.TestCase):
    def left(self, *keys):
        return [name for name in toy.all_names() if not should_convert_module(name, list(keys))]

    def test_a_suffix_hits_other_layers(self):
        left = self.left("fc1")
        for name in ("fc1", "head.fc1", "m.layers.10.fc1"):
            self.assertIn(name, left)

    def test_the_parts_before_and_after_a_dot_must_be_whole(self):
        self.assertIn("m.layers.1.fc1", self.left("m.layers.1"))
        self.assertNotIn("m.layers.10.fc1", self.left("m.layers.1"))
        self.assertEqual(self.left("layers.1"), [])

    def test_a_dot_is_any_character(self):
        self.assertIn("mXlayersX1Xfc1", self.left("m.layers.1.fc1"))

    def test_a_name_can_be_no_expression_at_all(self):
        with self.assertRaises(re.error):
            self.left("(half")

    def test_an_anchored_escaped_name_hits_itself_alone(self):
        for name in toy.all_names():
            self.assertEqual(self.left(f"^{re.escape(name)}$"), [name])


if __name__ == "__main__":
    unittest.main()
