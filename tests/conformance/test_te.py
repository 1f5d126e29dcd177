"""Transformer Engine: matching only. The file is run with stubs of what it imports, for the package needs CUDA; its
quantizer factory is then asked for every tensor of every linear, and what each GEMM's operands are is put together as
Transformer Engine does: fprop reads both rows-first, wgrad both columns-first, dgrad the weight columns-first.
"""

import runpy
import types
import unittest

import stubs
import support
import toy
from plans import BF16, HIGH, nearest, schemes, whole

CURRENT, BLOCK = "te/current", "te/blockwise"
CHOICES = [
    HIGH, whole(CURRENT), whole(BLOCK), (CURRENT, BF16, BF16), (CURRENT, CURRENT, BF16), (BF16, CURRENT, CURRENT),
    (BLOCK, BF16, BLOCK), (CURRENT, BLOCK, BLOCK), (BF16, BF16, BLOCK),
]  # fmt: skip


def gemms(qfactory, name):
    """What fprop, dgrad and wgrad are, in the words of plans.SCHEMES."""
    ask = lambda tensor: qfactory(stubs.QuantizerRole("linear", tensor, name))
    x, weight, gradient = ask("input"), ask("weight"), ask("grad_output")
    operands = (
        (x.rowwise, weight.rowwise), (weight.columnwise, gradient.rowwise), (x.columnwise, gradient.columnwise),
    )  # fmt: skip
    return tuple(one if one == other else (one, other) for one, other in operands)


class Recipe(support.Target, unittest.TestCase):
    target = "te"
    file = "plan_te.py"
    skipped = "everything but matching: Transformer Engine needs CUDA"
    choices = CHOICES
    unlisted = "raises"

    def load(self, path):
        return types.SimpleNamespace(**runpy.run_path(str(path)))

    def became(self, path, model):
        """Of the toy as if its linears were Transformer Engine's: each by the name that the file gave it."""
        with stubs.transformer_engine():
            file = self.load(path)
            recipe = file.apply(model)
            with self.assertRaises(RuntimeError):
                file.check()
            found = {name: gemms(recipe.qfactory, module.name) for name, module in toy.linears(model).items()}
            file.check()
            return found

    def of(self, kernels):
        return schemes(kernels)

    def lost(self, kernels):
        return tuple(nearest(scheme, ("tensor", "block")) for scheme in schemes(kernels))

    def test_another_model_is_refused(self):
        path = self.export({"fc1": whole(CURRENT)}, model=toy.toy(["fc1", "fc2"]))
        with stubs.transformer_engine():
            for names in (["fc2"], ["fc1"], ["fc1", "fc2", "fc3"]):
                with self.assertRaises(ValueError):
                    self.load(path).apply(toy.toy(names))

    def test_it_answers_what_no_linear_asks(self):
        """A role that it does not know must be given a quantizer: None is an error in the middle of a step."""
        path = self.export({"fc1": whole(CURRENT)})
        with stubs.transformer_engine():
            qfactory = self.load(path).qfactory
            self.assertEqual(qfactory(None), stubs.identity())
            for tensor in ("output", "grad_input", "", "something"):
                for module in ("linear", "grouped_linear", "dpa", ""):
                    for name in ("fc1", "elsewhere", ""):
                        self.assertIsInstance(qfactory(stubs.QuantizerRole(module, tensor, name)), stubs.Quantizer)


if __name__ == "__main__":
    unittest.main()
