"""NVIDIA Model Optimizer: the recipe loaded by its loader, the toy quantized and calibrated on the CPU."""

import contextlib
import io
import unittest

import support
import toy
from plans import HIGH, schemes, whole

import modelopt.torch.quantization as mtq
import torch
from modelopt.recipe import load_recipe

CHOICES = [HIGH, whole("fbgemm/rowwise"), whole("deepgemm/blockwise")]


def quantizer(module, which):
    """(E4M3 or not, axis or block sizes, dynamic), None where it is off."""
    made = getattr(module, f"{which}_quantizer")
    if not made.is_enabled:
        return None
    # Where there are blocks, calibration has put its own axis in.
    sizes = {key: size for key, size in (made.block_sizes or {}).items() if isinstance(key, int)}
    return made.num_bits in ("e4m3", (4, 3)), sizes or made.axis, made._dynamic


WANTED = {
    "high": (None, None, None),
    "tensor": ((True, None, False), (True, None, False), None),
    "row": ((True, 0, False), (True, {-1: None}, True), None),
    "block": ((True, {-1: 128, -2: 128}, False), (True, {-1: 128}, True), None),
}
"""Of the weight, the input and the output."""


def quantizers(model):
    kinds = ("weight", "input", "output")
    return {name: tuple(quantizer(module, kind) for kind in kinds) for name, module in toy.linears(model).items()}


def apply(config, model):
    def calibrate(model):
        for module in toy.linears(model).values():
            module(torch.ones(2, toy.WIDTH))

    with contextlib.redirect_stdout(io.StringIO()):
        return mtq.quantize(model, config, calibrate)


class Recipe(support.Target, unittest.TestCase):
    target = "modelopt"
    file = "loka.yaml"
    choices = CHOICES

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
        return [name for name, kinds in quantizers(model).items() if kinds[0] is not None]

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
