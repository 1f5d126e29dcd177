"""torchao's FqnToConfig: loaded and applied, each weight quantized on the CPU.

The dynamic FP8 config asks for a GPU before it casts. Only that question is answered for it here: parsing, matching,
dispatch and the cast of the weights are torchao's.
"""

import json
import unittest
from unittest import mock

import support
import toy
from plans import HIGH, schemes, whole

import torch
from torchao.core.config import config_from_dict
from torchao.quantization import FqnToConfig, quant_api, quantize_
from torchao.quantization.quantize_.workflows.float8.float8_tensor import Float8Tensor

CHOICES = [HIGH, whole("cublaslt/fp8-tensorwise+fast"), whole("fbgemm/rowwise"), whole("deepgemm/blockwise")]


def granularity_of(module):
    """(of the activation, of the weight), None for a linear in high precision."""
    weight = module.weight
    if not isinstance(weight, Float8Tensor):
        assert type(weight) is torch.nn.Parameter and weight.dtype == torch.bfloat16
        return None
    return str(weight.act_quant_kwargs.granularity), tuple(weight.scale.shape)


WANTED = {
    "high": None,
    "tensor": ("PerTensor()", (1, 1)),
    "row": ("PerRow(dim=-1)", (toy.WIDTH, 1)),
    "block": ("PerBlock(block_size=[1, 128])", (toy.WIDTH // 128, toy.WIDTH // 128)),
}


def scales(model):
    return {name: granularity_of(module) for name, module in toy.linears(model).items()}


def apply(config, model):
    with mock.patch.object(quant_api, "_check_hardware_support"):
        quantize_(model, config, filter_fn=None)
    return model


class Inference(support.Target, unittest.TestCase):
    target = "torchao-inference"
    file = "fqn_to_config.json"
    skipped = "products in FP8, which need a GPU; the weights are cast"
    choices = CHOICES
    dtype = torch.bfloat16

    def became(self, path, model):
        config = config_from_dict(json.loads(path.read_text(encoding="utf-8")))
        self.assertIsInstance(config, FqnToConfig)
        return scales(apply(config, model))

    def of(self, kernels):
        return WANTED[schemes(kernels)[0]]

    lost = of


def row():
    return quant_api.Float8DynamicActivationFloat8WeightConfig(granularity=quant_api.PerRow())

    def test_what_is_lost_becomes_no_coarser(self):
        chosen = rotated(toy.PLANNED, LOSSY)
        self.refused(chosen)
        path = self.export(chosen, "--allow-loss")
        of = lambda kernels: WANTED[nearest(schemes(kernels)[0], ("tensor", "row", "block"))]
        self.assert_became(became(apply(self.load(path), toy.toy(dtype=torch.bfloat16))), expected_as_one(chosen, of))


class Traps(unittest.TestCase):
    def hit(self, key):
        model = apply(FqnToConfig({key: row()}), toy.toy(dtype=torch.bfloat16))
        return [name for name, made in scales(model).items() if made is not None]

    def test_a_regular_expression_without_its_last_dot_hits_layer_10(self):
        self.assertIn("m.layers.10.fc1", self.hit(r"re:m\.layers\.1.*fc1"))
        self.assertEqual(self.hit(r"re:m\.layers\.1\.fc1"), ["m.layers.1.fc1"])

    def test_a_name_that_matches_nothing_is_passed_over_in_silence(self):
        self.assertEqual(self.hit("m.layers.1.fc3"), [])

    def test_the_default_hits_every_linear(self):
        self.assertEqual(len(self.hit("_default")), len(toy.all_names()))

    def test_without_a_gpu_the_config_asks_for_one(self):
        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        with self.assertRaisesRegex(AssertionError, "compute capability"):
            quantize_(toy.toy(dtype=torch.bfloat16), FqnToConfig({"fc1": row()}), filter_fn=None)


if __name__ == "__main__":
    unittest.main()
