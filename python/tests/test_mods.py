"""Model surgery: what changes, what is left alone and why, and what a state_dict then holds."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
import torch.nn.functional as F
from torch import nn

import loka
from loka import graph, mods

ALL = ["no_bias", "block_norm", "hard_swish"]


class Model(nn.Module):
    """An MLP with norms, a norm and a swish that follow no linear, and one swish for all."""

    def __init__(self, hidden=512):
        super().__init__()
        swish = nn.SiLU()
        self.norm0 = nn.LayerNorm(6)
        self.mlp = nn.Sequential(
            nn.Linear(6, hidden), nn.LayerNorm(hidden), swish, nn.Linear(hidden, 300), nn.RMSNorm(300), swish,
            nn.Linear(300, 6),
        )
        self.gate = nn.SiLU(inplace=True)
        self.top = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        return self.top(self.gate(x * self.mlp(self.norm0(x)))).squeeze(1)


def rows(changes, changed=True):
    return {(row.mod, row.module) for row in changes.rows if bool(row.left_alone) != changed}


def why_not(changes, mod, module):
    (row,) = [row for row in changes.rows if (row.mod, row.module) == (mod, module)]
    return row.left_alone


class Surgery(unittest.TestCase):
    def test_all_mods(self):
        model = Model()
        changes = mods.apply(model, ALL)
        self.assertEqual(rows(changes), {
            ("no_bias", "mlp.0"), ("no_bias", "mlp.3"), ("no_bias", "mlp.6"), ("no_bias", "top.0"),
            ("block_norm", "mlp.1"), ("block_norm", "mlp.4"), ("hard_swish", "mlp.2"), ("hard_swish", "gate"),
        })
        self.assertEqual(why_not(changes, "no_bias", "top.2"), "a final prediction layer keeps its bias")
        self.assertEqual(why_not(changes, "block_norm", "norm0"), "it follows no linear (everywhere=True takes it too)")
        self.assertEqual((model.mlp[1].block, model.mlp[4].block), (256, 300))
        self.assertIs(model.mlp[2], model.mlp[5])
        self.assertIsInstance(model.mlp[2], mods.HardSwish)
        self.assertTrue(model.gate.inplace)
        self.assertEqual(list(model.state_dict()), [
            "norm0.weight", "norm0.bias", "mlp.0.weight", "mlp.3.weight", "mlp.6.weight", "top.0.weight",
            "top.2.weight", "top.2.bias",
        ])

    def test_a_trace_then_shows_the_mods(self):
        model = Model()
        mods.apply(model, ALL)
        facts = graph.read(model)
        eps = 2.0**-23
        self.assertEqual(facts.tail["mlp.0"], [{"op": "block_norm", "eps": eps, "block": 256}, {"op": "hard_swish"}])
        self.assertEqual(facts.tail["mlp.3"], [{"op": "block_norm", "eps": eps, "block": 300}, {"op": "hard_swish"}])
        self.assertEqual(facts.feeds["mlp.0"], ["mlp.3"])

    def test_twice_says_already(self):
        model = Model()
        mods.apply(model, ALL)
        again = mods.apply(model, ALL)
        self.assertEqual(again.changed, [])
        self.assertEqual(why_not(again, "no_bias", "mlp.0"), "already without")
        self.assertEqual(why_not(again, "block_norm", "mlp.1"), "already block norm")
        self.assertEqual(why_not(again, "hard_swish", "gate"), "already hard swish")

    def test_everywhere(self):
        model = Model()
        changes = mods.apply(model, ["block_norm"], everywhere=True, block=3)
        self.assertEqual(rows(changes), {("block_norm", "norm0"), ("block_norm", "mlp.1"), ("block_norm", "mlp.4")})
        self.assertEqual([norm.block for norm in (model.norm0, model.mlp[1], model.mlp[4])], [3, 512, 3])

    def test_modes_and_places(self):
        model = Model().eval()
        model.alias = model.mlp[1]
        mods.apply(model, ["block_norm"])
        self.assertIs(model.alias, model.mlp[1])
        self.assertFalse(model.mlp[1].training)

    def test_the_table(self):
        text = str(mods.apply(Model(), ALL))
        lines = [line.split() for line in text.splitlines()]
        self.assertEqual(lines[0], ["module", "mod", "before", "after"])
        self.assertIn("mlp.0 no_bias Linear(6, 512, bias=True) Linear(6, 512, bias=False)".split(), lines)
        self.assertIn("mlp.1 block_norm LayerNorm(512) BlockNorm(512, block=256)".split(), lines)
        ragged = "mlp.4 block_norm RMSNorm(300) BlockNorm(300, block=300): 300 is not a multiple of 256, one block"
        self.assertIn(ragged.split(), lines)
        self.assertIn("8 changed, 2 left alone".split(), lines)
        self.assertIn("Mods change the model: it must be trained with them.".split(), lines)

    def test_functions_are_left_alone(self):
        class Functional(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

            def forward(self, x):
                return self.b(F.silu(F.layer_norm(self.a(x), (4,))))

        changes = mods.apply(Functional(), ALL)
        reason = "functional: there is no module to replace"
        self.assertEqual(why_not(changes, "block_norm", "after a"), reason)
        self.assertEqual(why_not(changes, "hard_swish", "after a"), reason)
        self.assertEqual(rows(changes), {("no_bias", "a")})

    def test_multihead_attention_keeps_its_bias(self):
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention, self.top = nn.MultiheadAttention(4, 1), nn.Linear(4, 1)

            def forward(self, x):
                return self.top(self.attention(x, x, x)[0])

        changes = mods.apply(Attention(), ["no_bias"])
        reason = "nn.MultiheadAttention uses it in a function of its own"
        self.assertEqual(why_not(changes, "no_bias", "attention.out_proj"), reason)

    def test_a_frozen_base_keeps_its_bias(self):
        model = Model()
        model.mlp[0].requires_grad_(False)
        model.mlp[3].weight.requires_grad_(False)
        changes = mods.apply(model, ["no_bias"])
        for base in ("mlp.0", "mlp.3"):
            self.assertEqual(why_not(changes, "no_bias", base), "it is frozen: nothing would learn to do without its bias")
        self.assertEqual([model.mlp[at].bias is None for at in (0, 3, 6)], [False, False, True])

    def test_a_compiled_model_is_changed_inside(self):
        model = Model()
        mods.apply(torch.compile(model), ALL)
        self.assertIsNone(model.mlp[0].bias)
        alone = nn.Sequential(nn.Linear(4, 4), torch.compile(nn.LayerNorm(4)), nn.Linear(4, 1))
        changes = mods.apply(alone, ["block_norm"])
        self.assertEqual(changes.rows[0].left_alone, "it is compiled on its own: apply mods before torch.compile")

    def test_what_cannot_be_read_is_said(self):
        class Dynamic(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.norm, self.b = nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1)

            def forward(self, x):
                y = self.norm(self.a(x))
                return self.b(y) if y.sum() > -1e9 else y

        changes = mods.apply(Dynamic(), ["block_norm"])
        self.assertEqual(changes.rows[0].left_alone,
                         "it follows no linear that could be read (everywhere=True takes it too)")
        self.assertIn("note: the model cannot be traced: TraceError", str(changes))
        changes = mods.apply(Dynamic(), ["block_norm"], example=(torch.randn(2, 4),))
        self.assertEqual(rows(changes), {("block_norm", "norm")})

    def test_it_is_loka_mods(self):
        self.assertIs(loka.mods, mods)


class Keep(unittest.TestCase):
    def test_names_patterns_and_modules(self):
        for keep in (["mlp.0"], ["mlp.[0]"], [lambda model: model.mlp[0]]):
            model = Model()
            changes = mods.apply(model, ALL, keep=[wanted(model) if callable(wanted) else wanted for wanted in keep])
            self.assertIsNotNone(model.mlp[0].bias)
            self.assertEqual(why_not(changes, "no_bias", "mlp.0"), "kept")
            self.assertEqual(why_not(changes, "block_norm", "mlp.1"), "it follows mlp.0, which is kept")
            self.assertIsNone(model.mlp[3].bias)

    def test_all_that_is_inside(self):
        model = Model()
        changes = mods.apply(model, ALL, keep=["mlp"])
        self.assertEqual(rows(changes), {("no_bias", "top.0"), ("hard_swish", "gate")})

    def test_nothing_found_is_an_error_that_lists_near_names(self):
        model = Model()
        with self.assertRaisesRegex(ValueError, r"keep: no module is named 'tops\.2'; near: top\.2"):
            mods.apply(model, ALL, keep=["mlp.0", "tops.2"])
        self.assertIsNotNone(model.mlp[3].bias)
        with self.assertRaisesRegex(ValueError, "keep: the Linear is not in the model"):
            mods.apply(model, ALL, keep=[nn.Linear(1, 1)])


class BySite(unittest.TestCase):
    def test_a_plans_mapping(self):
        model = Model()
        changes = mods.apply(model, {"mlp.0": ["no_bias", "block_norm"], "mlp.6": ["block_norm"], "top.2": ["no_bias"]})
        self.assertEqual(rows(changes), {("no_bias", "mlp.0"), ("block_norm", "mlp.1")})
        # A plan names no_bias for every site, and was measured with the bias of the head.
        self.assertEqual(why_not(changes, "no_bias", "top.2"), "a final prediction layer keeps its bias")
        self.assertIsNotNone(model.top[2].bias)
        self.assertEqual(why_not(changes, "block_norm", "mlp.6"), "no norm in its tail")
        self.assertIsInstance(model.mlp[4], nn.RMSNorm)
        self.assertIsInstance(model.mlp[2], nn.SiLU)

    def test_an_unknown_site_or_mod_is_an_error(self):
        model = Model()
        with self.assertRaisesRegex(ValueError, "the model has no linear 'mlp.01'; near: mlp.0"):
            mods.apply(model, {"mlp.0": ["no_bias"], "mlp.01": ["no_bias"]})
        with self.assertRaisesRegex(ValueError, "there is no mod 'nobias'; there are no_bias, block_norm, hard_swish"):
            mods.apply(model, ["nobias"])
        self.assertIsNotNone(model.mlp[0].bias)

    def test_a_distributed_model_is_refused(self):
        with self.assertRaisesRegex(ValueError, "the model is in DataParallel, which keeps its parameters"):
            mods.apply(nn.DataParallel(Model()), ALL)


class Training(unittest.TestCase):
    def test_a_step(self):
        torch.manual_seed(0)
        model = Model(hidden=256)
        mods.apply(model, ALL)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = torch.randn(32, 6), torch.rand(32).round()
        losses = []
        for _ in range(20):
            loss = F.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] - 0.02)
        self.assertTrue(all(parameter.grad is not None for parameter in model.parameters()))

    def test_compiled_whole(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.SiLU(), nn.Linear(16, 1))
        mods.apply(model, ALL, block=8)
        x = torch.randn(4, 8)
        compiled = torch.compile(model, fullgraph=True)
        result = compiled(x)
        result.sum().backward()
        grads = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        expected = model(x)
        expected.sum().backward()
        torch.testing.assert_close(result, expected)
        for parameter, grad in zip(model.parameters(), grads):
            torch.testing.assert_close(grad, parameter.grad)


if __name__ == "__main__":
    unittest.main()
