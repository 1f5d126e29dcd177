"""AMD Quark: the config parsed, the toy quantized on the CPU, each linear's quantizers read back."""

import contextlib
import io
import json
import unittest

import support
import toy
from plans import HIGH, granularity, rotated, whole
from support import expected

import torch
from quark.torch import ModelQuantizer
from quark.torch.quantization.config.config import QConfig
from quark.torch.quantization.nn.modules.quantize_linear import QuantLinear

CHOICES = [HIGH, whole("te/current"), whole("fbgemm/rowwise")]
WANTED = {
    "high": (None, None, None),
    "tensor": (("fp8_e4m3", "per_tensor", None, False), ("fp8_e4m3", "per_tensor", None, True), None),
    "row": (("fp8_e4m3", "per_channel", 0, False), ("fp8_e4m3", "per_channel", -1, True), None),
}
"""Of the weight, the input and the output: type, scheme, axis, dynamic."""


def quantizer(made):
    if made is None:
        return None
    return made.dtype.value, made.qscheme.value, made.ch_axis, "Dynamic" in type(made).__name__


def quantizers(module):
    if not isinstance(module, QuantLinear):
        assert type(module) is torch.nn.Linear
        return None, None, None
    kinds = (module._weight_quantizer, module._input_quantizer, module._output_quantizer)
    return tuple(quantizer(made) for made in kinds)


def became(model):
    return {name: quantizers(module) for name, module in toy.linears(model).items()}


def apply(fields, model):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return ModelQuantizer(QConfig.from_dict(fields)).quantize_model(model.eval())


class Config(support.Conformance):
    target = "quark"
    file = "quark.json"

    def test_every_linear_has_the_quantizers_of_the_plan(self):
        for by in range(len(CHOICES)):
            chosen = rotated(toy.PLANNED, CHOICES, by)
            path = self.export(chosen)
            with self.subTest(by=by):
                model = apply(json.loads(path.read_text(encoding="utf-8")), toy.toy())
                wanted = expected(chosen, lambda kernels: WANTED[granularity(kernels[0])])
                self.assert_became(became(model), wanted)


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
    def hit(self, layers=(), exclude=(), everywhere=None):
        fields = {
            "global_quant_config": layer(everywhere), "layer_quant_config": {name: layer(tensor()) for name in layers},
            "layer_type_quant_config": {}, "exclude": list(exclude), "algo_config": None, "quant_mode": "eager_mode",
        }  # fmt: skip
        return [name for name, kinds in became(apply(fields, toy.toy())).items() if kinds[0] is not None]

    def test_a_glob_hits_layer_10(self):
        self.assertIn("m.layers.10.fc1", self.hit(["*layers.1*"]))
        self.assertIn("m.layers.10.fc1", self.hit(["*fc1"]))

    def test_an_unescaped_bracket_is_a_class_of_characters(self):
        self.assertEqual(self.hit(["expert[0].up"]), ["expert0.up"])
        self.assertEqual(self.hit(["expert[[]0].up"]), ["expert[0].up"])

    def test_the_global_config_is_for_all_that_is_not_listed(self):
        hit = self.hit(everywhere=tensor(), exclude=["fc1"])
        self.assertEqual(set(toy.all_names()) - set(hit), {"fc1"})

    def test_the_second_name_of_a_shared_linear_is_asked_for_by_itself(self):
        self.assertEqual(self.hit([toy.SHARED]), [toy.SHARED])


if __name__ == "__main__":
    unittest.main()
