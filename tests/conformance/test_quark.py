"""AMD Quark: the config parsed, the toy quantized on the CPU, each linear's quantizers read back."""

import contextlib
import io
import json
import unittest

import support
import toy
from measured import sharing
from plans import HIGH, nearest, schemes, whole

import torch
from quark.torch import ModelQuantizer
from quark.torch.quantization.config.config import QConfig
from quark.torch.quantization.nn.modules.quantize_linear import QuantLinear
from quark.torch.quantization.tensor_quantize import DynamicScaledFakeQuantize

CHOICES = [HIGH, whole("te/current"), whole("fbgemm/rowwise")]
WANTED = {
    "high": (None, None, None),
    "tensor": (("per_tensor", None), "tensor", None),
    "row": (("per_channel", 0), "row", None),
}
"""Of the weight its scheme and axis, of the input which elements of [rows, features] share a scale, of the output."""


def weight_of(made):
    assert made.dtype.value == "fp8_e4m3" and not isinstance(made, DynamicScaledFakeQuantize)
    return made.qscheme.value, made.ch_axis


def quantizers(module):
    if not isinstance(module, QuantLinear):
        assert type(module) is torch.nn.Linear
        return None, None, None
    kinds = (module._weight_quantizer, module._input_quantizer, module._output_quantizer)
    return tuple(made and of(made) for made, of in zip(kinds, (weight_of, sharing, sharing)))


def became(model):
    return {name: quantizers(module) for name, module in toy.linears(model).items()}


def apply(fields, model):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return ModelQuantizer(QConfig.from_dict(fields)).quantize_model(model.eval())


class Config(support.Target, unittest.TestCase):
    target = "quark"
    file = "quark.json"
    choices = CHOICES
    scaled = "refused"
    nested = "refused"
    # It asks for the second name too, and puts a module of its own there.
    shared = "unplanned"

    def became(self, path, model):
        return became(apply(json.loads(path.read_text(encoding="utf-8")), model))

    def of(self, kernels):
        return WANTED[schemes(kernels)[0]]

    def lost(self, kernels):
        return WANTED[nearest(schemes(kernels)[0], ("tensor", "row"))]


def tensor():
    return {
        "dtype": "fp8_e4m3", "is_dynamic": False, "qscheme": "per_tensor", "ch_axis": None, "group_size": None,
        "symmetric": True, "round_method": "half_even", "scale_type": "float", "scale_format": None,
        "scale_calculation_mode": None, "mx_element_dtype": None, "observer_cls": "PerTensorMinMaxObserver",
        "is_scale_quant": False,
    }  # fmt: skip


def layer(weight):
    return {"weight": weight, "input_tensors": None, "output_tensors": None, "bias": None, "target_device": None}


class Traps(unittest.TestCase):
    def fields(self, layers=(), exclude=(), everywhere=None):
        return {
            "global_quant_config": layer(everywhere), "layer_quant_config": {name: layer(tensor()) for name in layers},
            "layer_type_quant_config": {}, "exclude": list(exclude), "algo_config": None, "quant_mode": "eager_mode",
        }  # fmt: skip

    def hit(self, *layers, **others):
        kinds = became(apply(self.fields(*layers, **others), toy.toy()))
        return [name for name, (of_weight, *_) in kinds.items() if of_weight is not None]

    def test_a_glob_hits_layer_10(self):
        self.assertIn("m.layers.10.fc1", self.hit(["*layers.1*"]))
        self.assertIn("m.layers.10.fc1", self.hit(["*fc1"]))

    def test_an_unescaped_bracket_is_a_class_of_characters(self):
        self.assertEqual(self.hit(["expert[0].up"]), ["expert0.up"])
        self.assertEqual(self.hit(["expert[[]0].up"]), ["expert[0].up"])

    def test_the_global_config_is_for_all_that_is_not_listed(self):
        hit = self.hit(everywhere=tensor(), exclude=["fc1"])
        self.assertEqual(set(toy.all_names()) - set(hit), {"fc1"})

    def test_axis_1_is_one_scale_a_column(self):
        """What its own preset `ptpc_fp8` has, for inputs [batch, rows, features] of one example."""
        observer = {"qscheme": "per_channel", "observer_cls": "PerChannelMinMaxObserver", "is_dynamic": True}
        found = {}
        for axis in (0, 1):
            of_layer = {**layer(tensor()), "input_tensors": {**tensor(), **observer, "ch_axis": axis}}
            fields = {**self.fields(), "layer_quant_config": {"fc1": of_layer}}
            found[axis] = became(apply(fields, toy.toy()))["fc1"][1]
        self.assertEqual(found, {0: "row", 1: "column"})

    def test_the_second_name_of_a_shared_linear_is_asked_for_by_itself(self):
        self.assertEqual(self.hit([toy.SHARED]), [toy.SHARED])


if __name__ == "__main__":
    unittest.main()
