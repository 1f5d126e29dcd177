"""Megatron-LM's per-module precision file: read, matched and parsed by megatron-core.

The layers themselves are Transformer Engine's and need CUDA: what each name is given is compared, no layer is built.
"""

import unittest

import support
import toy
from plans import HIGH, nearest, schemes, whole

from megatron.core.enums import Fp8Recipe
from megatron.core.extensions.transformer_engine import (
    TEQuantizationParams,
    _get_should_context_be_quantized_params,
)
from megatron.core.quantization.quant_config import RecipeConfig
from megatron.core.quantization.utils import get_quant_config_or_none, load_quantization_recipe

CHOICES = [HIGH, whole("te/current"), whole("te/blockwise")]
RECIPES = {"high": "high", "tensor": (Fp8Recipe.tensorwise, "hybrid"), "block": (Fp8Recipe.blockwise, "e4m3")}


def params_of(recipe, name):
    found = get_quant_config_or_none(name, recipe)
    return None if found is None else TEQuantizationParams.parse_from_config(found)


def decision(params):
    """(recipe, format), `high`, or None where the run's own recipe holds."""
    if params is None:
        return None
    assert params.evaluation_recipe is None
    made = params.training_recipe
    # Whatever the run's autocast says, on or off.
    fp8 = {_get_should_context_be_quantized_params(params, True, outside) for outside in (True, False)}
    if made.fp8_quantization_recipe is None:
        assert fp8 == {False}
        return "high"
    assert fp8 == {True}
    return Fp8Recipe(made.fp8_quantization_recipe), made.fp8_format


class Precision(support.Target, unittest.TestCase):
    target = "megatron"
    file = "precision.yaml"
    skipped = "building the layers: they are Transformer Engine's, which needs CUDA"
    choices = CHOICES
    # The run's own recipe.
    unlisted = None
    # A module is built under one name.
    shared = "none"

    def became(self, path, model):
        recipe = load_quantization_recipe(str(path))
        return {name: decision(params_of(recipe, name)) for name in model.linear_names if name != toy.ALIAS}

    def of(self, kernels):
        return RECIPES[schemes(kernels)[0]]

    def lost(self, kernels):
        """One choice for the three GEMMs: the finest, and FP8 only where all are."""
        if "high" in schemes(kernels):
            return "high"
        made = {nearest(scheme, ("tensor", "block")) for scheme in schemes(kernels)}
        return RECIPES["block" if "block" in made else "tensor"]


class Traps(unittest.TestCase):
    def hit(self, *patterns):
        matchers = {
            f"r{index}": {"config": f"c{index}", "type": "glob", "pattern": pattern, "enabled": True}
            for index, pattern in enumerate(patterns)
        }
        configs = {f"c{index}": {"index": index} for index in range(len(patterns))}
        recipe = RecipeConfig.from_config_dict({"configs": configs, "matchers": matchers})
        found = {name: get_quant_config_or_none(name, recipe) for name in toy.all_names()}
        return {name: config.config_key for name, config in found.items() if config is not None}

    def test_a_glob_without_its_last_dot_hits_layer_10(self):
        self.assertIn("m.layers.10.fc1", self.hit("*layers.1*"))
        self.assertNotIn("m.layers.10.fc1", self.hit("*layers.1.*"))

    def test_an_unescaped_bracket_is_a_class_of_characters(self):
        self.assertEqual(list(self.hit("expert[0].up")), ["expert0.up"])

    def test_the_first_matcher_wins(self):
        self.assertEqual(self.hit("*fc1", "fc1")["fc1"], "c0")

    def test_a_config_says_nothing_else(self):
        config = {"transformer_engine_config_type": "TEQuantizationParams", "training_recipe": {}, "loka": "sha256"}
        recipe = RecipeConfig.from_config_dict(
            {
                "configs": {"bf16": config},
                "matchers": {"r0": {"config": "bf16", "type": "glob", "pattern": "fc1", "enabled": True}},
            }
        )
        with self.assertRaises(AssertionError):
            params_of(recipe, "fc1")


if __name__ == "__main__":
    unittest.main()
