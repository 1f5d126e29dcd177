"""NVIDIA Model Optimizer: the recipe loaded by its loader, the toy quantized and calibrated on the CPU."""

import contextlib
import io
import unittest

import support
import toy
from measured import sharing
from plans import HIGH, schemes, whole

import modelopt.torch.quantization as mtq
import torch
from modelopt.recipe import load_recipe

CHOICES = [HIGH, whole("fbgemm/rowwise"), whole("deepgemm/blockwise")]


BATCH = (2, toy.WIDTH)
"""Of the calibration: a quantizer of blocks takes no other shape after it."""


def weight_of(made):
    """(E4M3 or not, axis or block sizes), None where it is off."""
    if not made.is_enabled:
        return None
    return made.num_bits == (4, 3) and not made._dynamic, blocks(made) or made.axis


def input_of(made):
    """(E4M3 or not, block sizes, which elements share a scale), None where it is off."""
    return (made.num_bits == (4, 3), blocks(made), sharing(made, BATCH)) if made.is_enabled else None


def blocks(made):
    return {axis: size for axis, size in (made.block_sizes or {}).items() if isinstance(axis, int)}


WANTED = {
    "high": (None, None, None),
    "tensor": ((True, None), (True, {}, "static"), None),
    "row": ((True, 0), (True, {}, "row"), None),
    "block": ((True, {-1: 128, -2: 128}), (True, {-1: 128}, "row"), None),
}
"""Of the weight, the input and the output. The toy's rows are one block wide."""


def quantizers(model):
    return {
        name: (weight_of(module.weight_quantizer), input_of(module.input_quantizer), input_of(module.output_quantizer))
        if hasattr(module, "weight_quantizer")
        else (None, None, None)
        for name, module in toy.linears(model).items()
    }


def apply(config, model):
    def calibrate(model):
        for module in toy.linears(model).values():
            module(torch.ones(BATCH))

    with contextlib.redirect_stdout(io.StringIO()):
        return mtq.quantize(model, config, calibrate)


class Recipe(support.Target, unittest.TestCase):
    target = "modelopt"
    file = "loka.yaml"
    choices = CHOICES
    scaled = "high"

    def became(self, path, model):
        with contextlib.redirect_stdout(io.StringIO()):
            config = load_recipe(str(path)).quantize.model_dump(exclude_unset=True)
        return quantizers(apply(config, model))

    def of(self, kernels):
        return WANTED[schemes(kernels)[0]]

    lost = of


class Traps(unittest.TestCase):
    def enabled(self, *entries):
        model = apply({"quant_cfg": [*entries], "algorithm": "max"}, toy.toy())
        return [name for name, module in toy.linears(model).items() if module.weight_quantizer.is_enabled]

    OFF = {"quantizer_name": "*", "enable": False}
    FP8 = {"num_bits": "e4m3", "axis": None}

    def on(self, name):
        return {"quantizer_name": f"{name}.weight_quantizer", "cfg": self.FP8}

    def test_a_glob_without_its_last_dot_hits_layer_10(self):
        hit = self.enabled(self.OFF, self.on("*layers.1*"))
        self.assertIn("m.layers.10.fc1", hit)

    def test_an_unescaped_bracket_is_a_class_of_characters(self):
        self.assertEqual(self.enabled(self.OFF, self.on("expert[0].up")), ["expert0.up"])
        self.assertEqual(self.enabled(self.OFF, self.on("expert[[]0].up")), ["expert[0].up"])

    def test_the_last_entry_wins(self):
        with self.assertRaisesRegex(RuntimeError, "no weight quantizer is enabled"):
            self.enabled(self.on("fc1"), self.OFF)

    def test_without_denying_all_first_every_linear_is_quantized(self):
        self.assertEqual(len(self.enabled(self.on("fc1"))), len(toy.all_names()))


if __name__ == "__main__":
    unittest.main()
