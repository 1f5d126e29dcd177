"""torchao's FP8 training: the exported file is run, the model's linears are torchao's own afterwards."""

import runpy
import unittest

import support
import toy
from plans import BF16, HIGH, Numerics, numerics, rotated, whole

from torch import nn
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from torchao.float8.config import ScalingGranularity, ScalingType
from torchao.float8.float8_linear import Float8Linear

SCALED = {ScalingGranularity.TENSORWISE: "tensor", ScalingGranularity.AXISWISE: "row"}
FAST = "cublaslt/fp8-tensorwise+fast"
ROW = "fbgemm/rowwise"
CHOICES = [
    HIGH, whole("torchao/tensorwise"), whole("torchao/rowwise"), whole("torchao/rowwise_with_gw_hp"), whole(FAST),
    (FAST, BF16, BF16), (ROW, ROW, BF16), (BF16, ROW, ROW), ("cublaslt/fp8-rowwise",) * 3,
]  # fmt: skip


def gemm(left, right, fast, power_of_two):
    """Of one GEMM, from how its two operands are cast."""
    off = [cast.scaling_type is ScalingType.DISABLED for cast in (left, right)]
    if all(off):
        return Numerics("high")
    assert not any(off)
    scheme = [SCALED[cast.scaling_granularity] for cast in (left, right)]
    one = scheme[0] if scheme[0] == scheme[1] else " x ".join(scheme)
    return Numerics(one, fast, power_of_two)


def numerics_of(module):
    """What torchao's config of a linear does in fprop, dgrad and wgrad."""
    if type(module) is nn.Linear:
        return (Numerics("high"),) * 3
    assert type(module) is Float8Linear
    made = module.config
    rounded = made.round_scales_to_power_of_2
    return (
        gemm(made.cast_config_input, made.cast_config_weight, made.gemm_config_output.use_fast_accum, rounded),
        gemm(
            made.cast_config_grad_output,
            made.cast_config_weight_for_grad_input,
            made.gemm_config_grad_input.use_fast_accum,
            rounded,
        ),
        gemm(
            made.cast_config_grad_output_for_grad_weight,
            made.cast_config_input_for_grad_weight,
            made.gemm_config_grad_weight.use_fast_accum,
            rounded,
        ),
    )


def recipe_of(module):
    """The name of torchao's own recipe that it was made with."""
    names = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
    return next((name for name in names if module.config == Float8LinearConfig.from_recipe_name(name)), None)


class Training(support.Target, unittest.TestCase):
    target = "torchao"
    file = "plan_torchao.py"
    choices = CHOICES
    unlisted = "raises"
    scaled = "raises"
    nested = "raises"

    def apply(self, path, model):
        runpy.run_path(str(path))["apply"](model)
        return model

    def became(self, path, model):
        return {name: numerics_of(module) for name, module in toy.linears(self.apply(path, model)).items()}

    def of(self, kernels):
        return numerics(kernels)

    def lost(self, kernels):
        """Blocks are not in it, and one type of the gradient is for both of its GEMMs."""
        made = [each if each.scheme != "block" else Numerics("high") for each in numerics(kernels)]
        return tuple(made)

    def test_its_own_recipes_are_its_own(self):
        for name in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
            path = self.export({"fc1": whole(f"torchao/{name}")})
            self.assertEqual(recipe_of(toy.linears(self.apply(path, toy.toy()))["fc1"]), name)

    def test_another_model_is_left_as_it_is(self):
        path = self.export({"fc1": whole("torchao/rowwise")}, model=toy.toy(["fc1", "fc2"]))
        for names in (["fc2"], ["fc1"], ["fc1", "fc2", "fc3"]):
            model = toy.toy(names)
            with self.assertRaises(ValueError):
                self.apply(path, model)
            self.assertEqual({type(module) for module in model.children()}, {nn.Linear})


class Traps(unittest.TestCase):
    def test_a_substring_filter_hits_layer_10_too(self):
        """What torchtitan's `filter_fqns` and torchao's own automatic filter do."""
        model = toy.toy()
        keep = ["m.layers.1"]
        convert_to_float8_training(model, module_filter_fn=lambda module, name: not any(part in name for part in keep))
        kept = [name for name, module in toy.linears(model).items() if type(module) is nn.Linear]
        self.assertIn("m.layers.10.fc1", kept)
        self.assertIn("x.m.layers.1.fc1", kept)

    def test_a_shared_linear_is_replaced_under_the_name_that_was_given_alone(self):
        model = toy.toy()
        convert_to_float8_training(model, module_filter_fn=lambda module, name: name == toy.SHARED)
        modules = toy.linears(model)
        self.assertIs(type(modules[toy.SHARED]), Float8Linear)
        self.assertIs(type(modules[toy.ALIAS]), nn.Linear)
        self.assertIs(modules[toy.SHARED].weight, modules[toy.ALIAS].weight)


if __name__ == "__main__":
    unittest.main()
