"""Tails, feeds and heads of small models against what a reader of their code would write down."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
import torch.nn.functional as F
from torch import nn

from loka import graph

SWISH, RELU = {"op": "swish"}, {"op": "relu"}
LAYER_NORM = {"op": "layer_norm", "eps": 1e-5, "affine": True}
EPS32 = 2.0**-23


class HandBlockNorm(nn.Module):
    """As people write it: no module of ours."""

    def __init__(self, dim, block):
        super().__init__()
        self.block = block if dim % block == 0 else dim

    def forward(self, x):
        return F.rms_norm(x.reshape(-1, self.block), (self.block,)).view(x.shape)


def norm_of(kind, dim):
    return {"ln": nn.LayerNorm, "rms": nn.RMSNorm, "block": lambda dim: HandBlockNorm(dim, 8)}[kind](dim)


class Interaction(nn.Module):
    """A Wukong's FMB."""

    def __init__(self, n, d, k, hidden, out, norm):
        super().__init__()
        self.factors = nn.Parameter(torch.randn(n, k))
        self.out, self.d = out, d
        self.norm0 = norm_of(norm, n * k)
        self.mlp = nn.Sequential(
            nn.Linear(n * k, hidden), norm_of(norm, hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), norm_of(norm, hidden), nn.SiLU(), nn.Linear(hidden, out * d),
        )

    def forward(self, x):
        product = torch.matmul(x, torch.matmul(x.transpose(1, 2), self.factors))
        return self.mlp(self.norm0(product.flatten(1))).view(-1, self.out, self.d)


class Layer(nn.Module):
    def __init__(self, n, d, norm):
        super().__init__()
        self.fmb = Interaction(n, d, 2, 24, 3, norm)
        self.lcb = nn.Parameter(torch.randn(n - 3, n))
        self.ln = norm_of(norm, d)

    def forward(self, x):
        y = torch.cat([self.fmb(x), self.lcb @ x], 1)
        return self.ln(y + x)


class Wukong(nn.Module):
    def __init__(self, norm, n=6, d=16):
        super().__init__()
        self.layers = nn.Sequential(Layer(n, d, norm), Layer(n, d, norm))
        self.top = nn.Sequential(nn.Linear(n * d, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, x):
        return self.top(self.layers(x).flatten(1)).squeeze(1)


class Model(nn.Module):
    """A model from modules by name and a function of them: one test, one forward."""

    def __init__(self, forward, **modules):
        super().__init__()
        self.run = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.run(self, x)


class WithLoss(Model):
    """One that takes labels too."""

    def forward(self, x, labels):
        return self.run(self, x, labels)


def both(case, model, *example):
    """The facts from a trace, after a check that an observed forward gives the same."""
    facts = graph.read(model)
    case.assertEqual(facts.unread, set(), facts.notes)
    with graph.observe(model) as seen:
        model(*example)
    observed = seen.facts()
    for name in ("order", "tail", "feeds", "head", "names"):
        case.assertEqual(getattr(facts, name), getattr(observed, name), name)
    for name in ("gamma", "beta"):
        case.assertEqual({site: id(p) for site, p in getattr(facts, name).items()},
                         {site: id(p) for site, p in getattr(observed, name).items()}, name)
    return facts


class Wukongs(unittest.TestCase):
    def check(self, norm, entry, modules):
        model = Wukong(norm)
        facts = both(self, model, torch.randn(4, 6, 16))
        expected = [f"layers.{layer}.fmb.mlp.{index}" for layer in (0, 1) for index in (0, 3, 6)] + ["top.0", "top.2"]
        self.assertEqual(facts.order, expected)
        for layer in (0, 1):
            base = f"layers.{layer}.fmb.mlp"
            for index in (0, 3):
                self.assertEqual(facts.tail[f"{base}.{index}"], [entry, SWISH])
                self.assertEqual(facts.feeds[f"{base}.{index}"], [f"{base}.{index + 3}"])
                norm_name = f"{base}.{index + 1}" if modules else ""
                self.assertEqual(facts.names[f"{base}.{index}"], [norm_name, f"{base}.{index + 2}"])
            self.assertEqual((facts.tail[f"{base}.6"], facts.feeds[f"{base}.6"]), ([], []))
        self.assertEqual((facts.tail["top.0"], facts.feeds["top.0"]), ([RELU], ["top.2"]))
        self.assertEqual((facts.tail["top.2"], facts.feeds["top.2"]), ([], []))
        self.assertEqual(facts.head, {"top.2"})
        self.assertEqual(facts.notes, [])
        return model, facts

    def test_layer_norm(self):
        model, facts = self.check("ln", LAYER_NORM, modules=True)
        mlp = model.layers[1].fmb.mlp
        self.assertIs(facts.gamma["layers.1.fmb.mlp.3"], mlp[4].weight)
        self.assertIs(facts.beta["layers.1.fmb.mlp.3"], mlp[4].bias)
        self.assertNotIn("layers.1.fmb.mlp.6", facts.gamma)

    def test_rms_norm(self):
        model, facts = self.check("rms", {"op": "rms_norm", "eps": EPS32, "affine": True}, modules=True)
        self.assertIs(facts.gamma["layers.0.fmb.mlp.0"], model.layers[0].fmb.mlp[1].weight)
        self.assertEqual(facts.beta, {})

    def test_block_norm_by_hand(self):
        _, facts = self.check("block", {"op": "block_norm", "eps": EPS32, "block": 8}, modules=False)
        self.assertEqual(facts.gamma, {})


class Operations(unittest.TestCase):
    def tail(self, operation, n=4, rows=(3,), **modules):
        """Tail and feeds of `a` in b(operation(a(x)))."""
        model = Model(lambda m, x: m.b(operation(m, m.a(x))), a=nn.Linear(5, n), b=nn.Linear(n, 2), **modules)
        facts = both(self, model, torch.randn(*rows, 5))
        self.assertEqual(facts.order, ["a", "b"])
        self.assertEqual(facts.head, {"b"})
        return facts.tail["a"], facts.feeds["a"]

    def test_activations_as_functions_methods_and_modules(self):
        cases = {
            "swish": (F.silu, nn.SiLU(), lambda y: y * torch.sigmoid(y), lambda y: y.sigmoid() * y),
            "hard_swish": (F.hardswish, nn.Hardswish()),
            "relu": (F.relu, torch.relu, nn.ReLU(), nn.ReLU(inplace=True), lambda y: y.relu_(), lambda y: y.relu()),
            "sigmoid": (F.sigmoid, torch.sigmoid, nn.Sigmoid(), lambda y: y.sigmoid()),
            "tanh": (F.tanh, torch.tanh, nn.Tanh()),
            "gelu": (F.gelu, nn.GELU()),
        }
        for op, ways in cases.items():
            for index, way in enumerate(ways):
                with self.subTest(op=op, way=index):
                    held = {"act": way} if isinstance(way, nn.Module) else {}
                    self.assertEqual(self.tail(lambda m, y: way(y), **held), ([{"op": op}], ["b"]))

    def test_gelu_by_tanh_says_so(self):
        expected = [{"op": "gelu", "approximate": "tanh"}], ["b"]
        self.assertEqual(self.tail(lambda m, y: F.gelu(y, approximate="tanh")), expected)

    def test_functional_norms_with_the_models_parameters(self):
        norm = nn.LayerNorm(4, eps=1e-3)
        model = Model(
            lambda m, x: m.b(F.silu(F.layer_norm(m.a(x), (4,), m.norm.weight, m.norm.bias, 1e-3))),
            a=nn.Linear(5, 4), b=nn.Linear(4, 1), norm=norm,
        )
        facts = both(self, model, torch.randn(3, 5))
        self.assertEqual(facts.tail["a"], [{"op": "layer_norm", "eps": 1e-3, "affine": True}, SWISH])
        self.assertIs(facts.gamma["a"], norm.weight)
        self.assertIs(facts.beta["a"], norm.bias)

    def test_norms_without_gain(self):
        entry = {"op": "layer_norm", "eps": 1e-5, "affine": False}
        self.assertEqual(self.tail(lambda m, y: F.layer_norm(y, (4,))), ([entry], ["b"]))
        self.assertEqual(self.tail(lambda m, y: F.layer_norm(y, y.shape[-1:])), ([entry], ["b"]))
        self.assertEqual(self.tail(lambda m, y: F.layer_norm(y, (y.size(-1),))), ([entry], ["b"]))
        entry = {"op": "rms_norm", "eps": 1e-6, "affine": False}
        self.assertEqual(self.tail(lambda m, y: m.norm(y), norm=nn.RMSNorm(4, 1e-6, False)), ([entry], ["b"]))

    def test_a_norm_over_more_than_the_features_is_other(self):
        self.assertEqual(self.tail(lambda m, y: F.layer_norm(y, (3, 4))), ([{"op": "other"}], []))
        self.assertEqual(self.tail(lambda m, y: m.norm(y), norm=nn.LayerNorm((3, 4))), ([{"op": "other"}], []))

    def test_a_second_gain_is_other(self):
        norms = {"n1": nn.LayerNorm(4), "n2": nn.RMSNorm(4)}
        self.assertEqual(self.tail(lambda m, y: m.n2(m.n1(y)), **norms), ([LAYER_NORM, {"op": "other"}], []))

    def test_what_changes_nothing_is_passed(self):
        passing = (
            lambda m, y: y.contiguous(), lambda m, y: y.float(), lambda m, y: y.to(torch.float32),
            lambda m, y: y.clone(), lambda m, y: m.i(y), lambda m, y: y.reshape(-1, 4), lambda m, y: y.view(y.shape),
            lambda m, y: y.view(y.size(0), y.size(-1)), lambda m, y: F.dropout(y, 0.5, False),
            lambda m, y: F.dropout(y, 0.0),
        )
        for index, operation in enumerate(passing):
            with self.subTest(index):
                self.assertEqual(self.tail(operation, i=nn.Identity()), ([], ["b"]))

    def test_rows_of_a_sequence_may_be_flattened(self):
        found = self.tail(lambda m, y: F.relu(y.reshape(-1, 4)), rows=(3, 2))
        self.assertEqual(found, ([RELU], ["b"]))

    def test_what_mixes_rows_or_features_ends_it(self):
        ending = (
            lambda m, y: torch.cat([y, y], 0), lambda m, y: y.reshape(-1, 2, 2).transpose(1, 2).reshape(-1, 4),
            lambda m, y: y @ m.square, lambda m, y: y[:2], lambda m, y: y.view(-1, 2).repeat(1, 2),
            lambda m, y: y.sum(0, keepdim=True),
        )
        for index, operation in enumerate(ending):
            with self.subTest(index):
                self.assertEqual(self.tail(operation, square=nn.Parameter(torch.randn(4, 4))), ([], []))

    def test_dropout_in_training_is_other(self):
        dropout = nn.Dropout(0.5)
        self.assertEqual(self.tail(lambda m, y: m.drop(y), drop=dropout), ([{"op": "other"}], []))
        self.assertEqual(self.tail(lambda m, y: F.dropout(y)), ([{"op": "other"}], []))
        self.assertEqual(self.tail(lambda m, y: m.drop(y), drop=dropout.eval()), ([], ["b"]))

    def test_other_operations(self):
        for operation in (lambda m, y: F.leaky_relu(y), lambda m, y: y * 2, lambda m, y: y + 1, lambda m, y: m.bn(y)):
            self.assertEqual(self.tail(operation, bn=nn.BatchNorm1d(4)), ([{"op": "other"}], []))

    def test_a_users_function_of_a_known_name_is_not_the_known_one(self):
        self.assertEqual(self.tail(lambda m, y: relu(y)), ([{"op": "other"}], []))

    def test_in_place_with_the_result_let_go(self):
        def forward(m, y):
            m.act(y)
            return y

        self.assertEqual(self.tail(forward, act=nn.ReLU(inplace=True)), ([RELU], ["b"]))

    def test_a_check_on_the_side_is_no_reader(self):
        def checked(m, y):
            torch.isfinite(y).all()
            return F.relu(y)

        self.assertEqual(self.tail(checked), ([RELU], ["b"]))


def relu(x):
    """A user's own."""
    return torch.exp(x)


class Branches(unittest.TestCase):
    def test_residual(self):
        model = Model(lambda m, x: m.b(F.relu(m.norm(m.a(x) + x))), a=nn.Linear(4, 4), b=nn.Linear(4, 1),
                      norm=nn.LayerNorm(4))
        facts = both(self, model, torch.randn(3, 4))
        self.assertEqual(facts.tail["a"], [{"op": "residual"}, LAYER_NORM, RELU])
        self.assertEqual(facts.feeds["a"], ["b"])

    def test_residual_in_place_and_of_two_linears(self):
        def forward(m, x):
            y = m.a(x)
            y += m.b(x)
            return m.c(y)

        facts = both(self, Model(forward, a=nn.Linear(4, 3), b=nn.Linear(4, 3), c=nn.Linear(3, 1)), torch.randn(2, 4))
        self.assertEqual((facts.tail["a"], facts.tail["b"]), ([{"op": "residual"}],) * 2)
        self.assertEqual((facts.feeds["a"], facts.feeds["b"]), (["c"], ["c"]))

    def test_a_bias_added_by_hand_is_no_residual(self):
        model = Model(lambda m, x: m.b(m.a(x) + m.norm.bias), a=nn.Linear(4, 4), b=nn.Linear(4, 1),
                      norm=nn.LayerNorm(4))
        self.assertEqual(both(self, model, torch.randn(3, 4)).tail["a"], [{"op": "other"}])

    def test_cross_layers_of_dcn(self):
        def forward(m, x):
            y = x * m.a(x) + x
            return m.top(x * m.b(y) + y)

        facts = both(self, Model(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4), top=nn.Linear(4, 1)), torch.randn(3, 4))
        self.assertEqual(facts.tail, {"a": [{"op": "other"}], "b": [{"op": "other"}], "top": []})
        self.assertEqual(facts.feeds, {"a": [], "b": [], "top": []})
        self.assertEqual(facts.head, {"top"})

    def test_two_readers(self):
        model = Model(lambda m, x: (m.b(h := F.relu(m.a(x))), m.c(h)), a=nn.Linear(4, 4), b=nn.Linear(4, 1),
                      c=nn.Linear(4, 40))
        facts = both(self, model, torch.randn(3, 4))
        self.assertEqual((facts.tail["a"], facts.feeds["a"]), ([RELU], ["b", "c"]))
        self.assertEqual(facts.head, {"b", "c"})

    def test_a_norm_on_one_branch_is_not_its_tail(self):
        model = Model(lambda m, x: m.b(m.norm(h := m.a(x))) + h, a=nn.Linear(4, 4), b=nn.Linear(4, 4),
                      norm=nn.LayerNorm(4))
        facts = both(self, model, torch.randn(3, 4))
        self.assertEqual((facts.tail["a"], facts.feeds["a"]), ([], []))

    def test_attention_by_hand(self):
        def forward(m, x):
            q, k, v = (part.view(2, 3, 2, 4).transpose(1, 2) for part in (m.q(x), m.k(x), m.v(x)))
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 3, 8)
            return m.top(m.o(mixed).mean(1))

        model = Model(forward, q=nn.Linear(8, 8), k=nn.Linear(8, 8), v=nn.Linear(8, 8), o=nn.Linear(8, 8),
                      top=nn.Linear(8, 1))
        facts = both(self, model, torch.randn(2, 3, 8))
        self.assertEqual(facts.order, ["q", "k", "v", "o", "top"])
        self.assertTrue(all(not facts.tail[site] and not facts.feeds[site] for site in facts.order))
        self.assertEqual(facts.head, {"top"})

    def test_heads(self):
        wide = Model(lambda m, x: torch.softmax(m.a(x), -1), a=nn.Linear(4, 100))
        self.assertEqual(both(self, wide, torch.randn(2, 4)).head, {"a"})
        towers = Model(lambda m, x: (m.a(x) * m.b(x)).sum(-1), a=nn.Linear(4, 100), b=nn.Linear(4, 100))
        self.assertEqual(both(self, towers, torch.randn(2, 4)).head, set())
        loss = WithLoss(lambda m, x, y: F.cross_entropy(m.a(x), y), a=nn.Linear(4, 100))
        facts = both(self, loss, torch.randn(2, 4), torch.tensor([1, 2]))
        self.assertEqual((facts.head, facts.tail["a"]), ({"a"}, []))


class Shared(unittest.TestCase):
    def test_calls_that_agree(self):
        model = Model(lambda m, x: m.b(F.relu(m.a(x))) + m.b(F.relu(m.a(x * 2))), a=nn.Linear(4, 4), b=nn.Linear(4, 1))
        facts = both(self, model, torch.randn(3, 4))
        self.assertEqual((facts.order, facts.tail["a"], facts.feeds["a"]), (["a", "b"], [RELU], ["b"]))

    def test_calls_that_differ(self):
        model = Model(lambda m, x: m.b(F.relu(m.a(x))) + m.b(m.a(x)), a=nn.Linear(4, 4), b=nn.Linear(4, 1))
        facts = both(self, model, torch.randn(3, 4))
        self.assertEqual((facts.tail["a"], facts.feeds["a"]), ([], []))
        self.assertIn("a is called 2 times and followed by different operations: no tail is kept", facts.notes)

    def test_a_linear_that_reads_itself_feeds_nothing_before_it(self):
        model = Model(lambda m, x: m.a(F.relu(m.a(F.relu(m.a(x))))), a=nn.Linear(4, 4))
        self.assertEqual(graph.read(model).feeds["a"], [])


if __name__ == "__main__":
    unittest.main()
