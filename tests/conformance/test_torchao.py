"""torchao's FP8 training: the exported file is run, the model's linears are torchao's own afterwards."""

import runpy
import unittest

import support
import toy
from plans import HIGH, granularity, rotated, whole
from support import expected

from torch import nn
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from torchao.float8.float8_linear import Float8Linear

RECIPES = {"tensor": "tensorwise", "row": "rowwise", "row-gw-hp": "rowwise_with_gw_hp", "high": None}
CHOICES = [HIGH, whole("torchao/tensorwise"), whole("torchao/rowwise"), whole("torchao/rowwise_with_gw_hp")]


def recipe_of(module):
    """The recipe that torchao made it with; None for a plain linear."""
    if type(module) is nn.Linear:
        return None
    assert type(module) is Float8Linear
    names = [name for name in RECIPES.values() if name and module.config == Float8LinearConfig.from_recipe_name(name)]
    return names[0] if len(names) == 1 else module.config


def became(model):
    return {name: recipe_of(module) for name, module in toy.linears(model).items()}


class Training(support.Conformance):
    target = "torchao"
    file = "plan_torchao.py"

    def apply(self, path, model):
        runpy.run_path(str(path))["apply"](model)
        return model

    def test_every_linear_has_the_recipe_of_the_plan(self):
        for by in range(len(CHOICES)):
            chosen = rotated(toy.PLANNED, CHOICES, by)
            path = self.export(chosen)
            with self.subTest(by=by):
                model = self.apply(path, toy.toy())
                wanted = expected(chosen, lambda kernels: RECIPES[granularity(kernels[0])])
                self.assert_became(became(model), wanted)


class Traps(unittest.TestCase):
    def test_a_substring_filter_hits_layer_10_too(self):
        """What torchtitan's `filter_fqns` and torchao's own automatic filter do."""
        model = toy.toy()
        keep = ["m.layers.1"]
        convert_to_float8_training(model, module_filter_fn=lambda module, name: not any(part in name for part in keep))
        kept = [name for name, recipe in became(model).items() if recipe is None]
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
