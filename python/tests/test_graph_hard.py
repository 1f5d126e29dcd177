"""Models that are hard to read: control flow on data, wrappers, odd modules; and that reading changes nothing."""

import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from loka import graph

LAYER_NORM = {"op": "layer_norm", "eps": 1e-5, "affine": True}
SWISH, RELU = {"op": "swish"}, {"op": "relu"}


def mlp(k=4, hidden=4, n=1):
    return nn.Sequential(nn.Linear(k, hidden), nn.LayerNorm(hidden), nn.SiLU(), nn.Linear(hidden, n))


class Branching(nn.Module):
    """Control flow on data in one part, and in its middle an MLP that can be read."""

    def __init__(self):
        super().__init__()
        self.mlp = mlp(n=4)
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        y = self.mlp(x)
        return self.last(F.relu(y)) if y.sum() > -1e9 else y


class Partly(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom, self.middle, self.top = nn.Linear(4, 4), Branching(), mlp()

    def forward(self, x):
        return self.top(F.relu(self.middle(F.silu(self.bottom(x)))))


class Wholly(nn.Module):
    """The model's own forward takes a dict and branches on it."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"user": nn.Linear(4, 4), "item": nn.Linear(4, 4)})
        self.top = mlp(8)

    def forward(self, batch):
        found = [F.relu(self.parts[name](value)) for name, value in batch.items()]
        if float(found[0].sum()) < -1:
            raise ValueError("no such rows")
        return self.top(torch.cat(found, 1))


class Untraceable(unittest.TestCase):
    def test_a_part_is_stepped_over_and_read_alone(self):
        facts = graph.read(Partly())
        self.assertEqual(facts.order, ["bottom", "middle.mlp.0", "middle.mlp.3", "middle.last", "top.0", "top.3"])
        self.assertEqual(facts.tail["middle.mlp.0"], [LAYER_NORM, SWISH])
        self.assertEqual(facts.feeds["middle.mlp.0"], ["middle.mlp.3"])
        self.assertEqual(facts.tail["top.0"], [LAYER_NORM, SWISH])
        self.assertEqual(facts.unread, {"bottom", "middle.mlp.3", "middle.last"})
        self.assertEqual(facts.head, {"top.3"})
        self.assertTrue(any(note.startswith("middle is not read through: TraceError") for note in facts.notes))

    def test_an_example_reads_the_rest(self):
        facts = graph.read(Partly(), (torch.randn(3, 4),))
        self.assertEqual(facts.unread, set())
        self.assertEqual((facts.tail["bottom"], facts.feeds["bottom"]), ([SWISH], ["middle.mlp.0"]))
        self.assertEqual((facts.tail["middle.last"], facts.feeds["middle.last"]), ([RELU], ["top.0"]))
        # Its output is read by the sum and by the relu; only the relu reaches the result.
        self.assertEqual((facts.tail["middle.mlp.3"], facts.feeds["middle.mlp.3"]), ([RELU], ["middle.last"]))
        self.assertEqual(facts.head, {"top.3"})

    def test_a_whole_model(self):
        facts = graph.read(Wholly())
        self.assertEqual((facts.tail["top.0"], facts.feeds["top.0"]), ([LAYER_NORM, SWISH], ["top.3"]))
        self.assertEqual(facts.unread, {"parts.user", "parts.item", "top.3"})
        self.assertEqual(facts.head, {"top.3"})
        batch = {"user": torch.randn(2, 4), "item": torch.randn(2, 4)}
        facts = graph.read(Wholly(), (batch,))
        self.assertEqual((facts.unread, facts.head), (set(), {"top.3"}))
        self.assertEqual((facts.tail["parts.item"], facts.feeds["parts.item"]), ([RELU], []))

    def test_an_example_tells_what_the_arguments_are(self):
        class Sized(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

            def forward(self, batch, times, mask=None):
                x = F.relu(self.a(sum(batch[name] for name in sorted(batch))))
                for _ in range(times):
                    x = x if mask is None else x * mask
                return self.b(x)

        facts = graph.read(Sized(), ({"p": torch.randn(2, 4), "q": torch.randn(2, 4)}, 2))
        self.assertEqual((facts.tail["a"], facts.feeds["a"], facts.notes), ([RELU], ["b"], []))

    def test_a_width_that_only_a_forward_knows(self):
        class Flattened(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

            def forward(self, x):
                rows, times, width = x.shape
                return self.b(F.gelu(self.a(x).view(rows * times, width))).view(rows, times)

        facts = graph.read(Flattened())
        self.assertEqual((facts.unread, facts.tail["a"], facts.head), ({"a"}, [], {"b"}))
        note = "a: the width after a reshape of its output is only known when a forward runs"
        self.assertEqual(facts.notes, [note])
        facts = graph.read(Flattened(), (torch.randn(2, 3, 4),))
        self.assertEqual((facts.unread, facts.notes), (set(), []))
        self.assertEqual((facts.tail["a"], facts.feeds["a"]), ([{"op": "gelu"}], ["b"]))

    def test_a_model_that_is_one_linear(self):
        facts = graph.read(nn.Linear(4, 200))
        self.assertEqual((facts.order, facts.tail, facts.head, facts.notes), ([""], {"": []}, {""}, []))

    def test_any_number_of_arguments(self):
        class Joined(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

            def forward(self, *parts):
                return self.b(F.relu(self.a(sum(parts))))

        facts = graph.read(Joined(), (torch.randn(2, 4), torch.randn(2, 4)))
        self.assertEqual((facts.tail["a"], facts.feeds["a"], facts.notes), ([RELU], ["b"], []))

    def test_a_broken_forward_and_a_wrong_example_are_notes(self):
        class Broken(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 4)

            def forward(self, x):
                raise KeyError("out of order")

        facts = graph.read(Broken(), (torch.randn(1, 4),))
        self.assertEqual((facts.tail["a"], facts.unread), ([], {"a"}))
        self.assertTrue(any("the example does not run: KeyError: 'out of order'" in note for note in facts.notes))
        facts = graph.read(nn.Sequential(nn.Linear(4, 1)), (torch.randn(1, 3),))
        self.assertEqual(facts.order, ["0"])

    def test_an_observed_forward_that_raises_leaves_no_hook(self):
        model = Wholly()
        with self.assertRaises(AttributeError), graph.observe(model) as seen:
            model("no batch")
        self.assertIn("the forward that was to be observed did not end", seen.facts().notes)
        self.assertFalse(any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()))


class OddModules(unittest.TestCase):
    def test_multihead_attention(self):
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.proj, self.attention = nn.Linear(4, 8), nn.MultiheadAttention(8, 2, batch_first=True)
                self.top = nn.Linear(8, 1)

            def forward(self, x):
                x = self.proj(x)
                return self.top(self.attention(x, x, x)[0])

        model = Attention()
        with graph.observe(model) as seen:
            model(torch.randn(2, 3, 4))
        for facts in (graph.read(model), seen.facts()):
            self.assertEqual(facts.order, ["proj", "top"])
            self.assertEqual((facts.tail["proj"], facts.feeds["proj"], facts.head), ([], [], {"top"}))
        note = "attention.out_proj is never called: nn.MultiheadAttention has a function of its own for it"
        self.assertIn(note, graph.read(model).notes)

    def test_an_encoder_layer_of_pytorch(self):
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        facts = graph.read(nn.Sequential(layer, nn.Linear(8, 1)), (torch.randn(2, 3, 8),))
        self.assertEqual(facts.order, ["0.linear1", "0.linear2", "1"])
        self.assertEqual((facts.tail["0.linear1"], facts.feeds["0.linear1"]), ([RELU], ["0.linear2"]))
        self.assertEqual((facts.tail["0.linear2"], facts.feeds["0.linear2"]), ([{"op": "residual"}, LAYER_NORM], ["1"]))

    def test_an_encoder_under_a_mask_and_a_decoder_of_pytorch(self):
        class Sequences(nn.Module):
            def __init__(self, first):
                super().__init__()
                options = dict(dropout=0.0, batch_first=True, norm_first=first)
                layer = nn.TransformerEncoderLayer(8, 2, 16, **options)
                self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)
                self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **options), 1)
                self.top = nn.Linear(8, 1)

            def forward(self, x, gone):
                seen = self.encoder(x, src_key_padding_mask=gone)
                return self.top(self.decoder(seen[:, :1], seen, memory_key_padding_mask=gone)[:, 0])

        for first in (False, True):
            facts = graph.read(Sequences(first))
            layers = [f"encoder.layers.{each}" for each in (0, 1)] + ["decoder.layers.0"]
            self.assertEqual(facts.order, [f"{layer}.linear{each}" for layer in layers for each in (1, 2)] + ["top"])
            for layer in layers:
                self.assertEqual((facts.tail[f"{layer}.linear1"], facts.feeds[f"{layer}.linear1"]), ([RELU], [f"{layer}.linear2"]))
                self.assertEqual(facts.tail[f"{layer}.linear2"][0], {"op": "residual"})
            # The norm of the next block is on one branch alone where norms come first.
            self.assertEqual(len(facts.tail["encoder.layers.0.linear2"]), 1 if first else 2)

    def test_subclasses_of_linear_are_sites(self):
        class Mine(nn.Linear):
            def forward(self, x):
                return F.linear(x, self.weight * 2, self.bias)

        model = nn.Sequential(Mine(4, 4), nn.ReLU(), Mine(4, 1))
        facts = graph.read(model)
        self.assertEqual((facts.order, facts.tail["0"], facts.feeds["0"]), (["0", "2"], [RELU], ["2"]))

    def test_functional_linears(self):
        def linear(x, weight, bias=None, *, name):
            if torch.overrides.has_torch_function((x, weight)):
                return torch.overrides.handle_torch_function(linear, (x, weight), x, weight, bias, name=name)
            return F.linear(x, weight, bias)

        linear.__module__ = "loka.record"

        class Functional(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.top = nn.Parameter(torch.randn(6, 4)), nn.Linear(6, 1)

            def forward(self, x):
                return self.top(F.silu(linear(F.linear(x, self.weight[:4]), self.weight, name="mix")))

        model = Functional()
        with graph.observe(model) as seen:
            model(torch.randn(2, 4))
        for facts in (graph.read(model), seen.facts()):
            self.assertEqual((facts.order, facts.tail["mix"], facts.feeds["mix"]), (["mix", "top"], [SWISH], ["top"]))
            self.assertIn("a functional linear is not a site: loka.linear(..., name=...) makes it one", facts.notes)

    def test_linears_that_never_run(self):
        model = nn.Module()
        model.used, model.spare = nn.Linear(4, 1), nn.Linear(4, 1)
        model.__class__ = type("Spare", (nn.Module,), {"forward": lambda self, x: self.used(x)})
        facts = graph.read(model)
        self.assertEqual(facts.order, ["used"])
        self.assertEqual(facts.notes, ["spare is not called in the forward that was read"])

    def test_a_module_that_says_what_it_is(self):
        class Scaled(nn.Module):
            loka_op = {"op": "block_norm", "eps": 1e-6, "block": 2}

            def forward(self, x):
                return x if x.sum() > 0 else -x

        facts = graph.read(nn.Sequential(nn.Linear(4, 4), Scaled(), nn.Linear(4, 1)))
        self.assertEqual((facts.tail["0"], facts.feeds["0"]), ([{"op": "block_norm", "eps": 1e-6, "block": 2}], ["2"]))


class Wrapped(unittest.TestCase):
    def expect(self, facts, prefix=""):
        self.assertEqual(facts.order, [f"{prefix}0", f"{prefix}3"])
        self.assertEqual(facts.tail[f"{prefix}0"], [LAYER_NORM, SWISH])
        self.assertEqual(facts.feeds[f"{prefix}0"], [f"{prefix}3"])
        self.assertEqual((facts.head, facts.notes), ({f"{prefix}3"}, []))

    def test_compiled(self):
        self.expect(graph.read(torch.compile(mlp())))
        whole = nn.Sequential()
        whole.add_module("inner", torch.compile(mlp()))
        self.expect(graph.read(whole), "inner.")
        with graph.observe(whole) as seen:
            whole(torch.randn(2, 4))
        self.expect(seen.facts(), "inner.")

        class Decorated(nn.Module):
            def __init__(self):
                super().__init__()
                self.mlp = mlp()

            @torch.compile
            def forward(self, x):
                return self.mlp(x)

        self.expect(graph.read(Decorated()), "mlp.")
        in_place = mlp()
        in_place.compile()
        self.expect(graph.read(in_place))

    def test_data_parallel_names(self):
        # DDP needs a process group; its wrapper only adds `module.`, as DataParallel's does.
        self.expect(graph.read(nn.DataParallel(mlp())))

    def test_activation_checkpointing(self):
        class Checkpointed(nn.Module):
            def __init__(self):
                super().__init__()
                self.mlp = mlp()

            def forward(self, x):
                return checkpoint(self.mlp, x, use_reentrant=False)

        model = Checkpointed()
        with graph.observe(model) as seen:
            model(torch.randn(2, 4, requires_grad=True))
        self.expect(seen.facts(), "mlp.")
        self.expect(graph.read(model), "mlp.")


class Untouched(unittest.TestCase):
    def test_reading_changes_nothing(self):
        class Busy(nn.Module):
            """Keeps state of every kind, and branches on data so that the example is run."""

            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)
                self.bn, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)
                self.register_buffer("steps", torch.zeros(()))
                self.seen, self.last = [], None

            def forward(self, x):
                self.steps += 1
                self.last = x
                self.seen.append(random.random())
                x = self.drop(self.bn(self.a(x + torch.randn(4))))
                return self.b(x) if x.sum() > -1e9 else x

        for example in (None, (torch.randn(6, 4),)):
            model = Busy()
            hooked = []
            model.a.register_forward_hook(lambda *_: hooked.append(1))
            attributes = {name: set(vars(module)) for name, module in model.named_modules()}
            state = {key: value.clone() for key, value in model.state_dict().items()}
            torch_state, python_state = torch.get_rng_state(), random.getstate()
            facts = graph.read(model, example)
            self.assertEqual(facts.order, ["a", "b"])
            self.assertTrue(torch.equal(torch.get_rng_state(), torch_state))
            self.assertEqual(random.getstate(), python_state)
            for key, value in model.state_dict().items():
                self.assertTrue(torch.equal(value, state[key]), key)
            self.assertEqual((model.seen, model.last, model.training), ([], None, True))
            self.assertEqual({name: set(vars(module)) for name, module in model.named_modules()}, attributes)
            self.assertIs(nn.Module.__setattr__, ORIGINAL_SETATTR)
            self.assertEqual(len(model.b._forward_hooks), 0)
            self.assertTrue(all(parameter.grad is None for parameter in model.parameters()))

    def test_no_data_is_run_without_an_example(self):
        model, ran = mlp(), []
        for module in model.modules():
            module.register_forward_hook(lambda *_: ran.append(1))
        graph.read(model)
        self.assertEqual(ran, [])

    def test_hooks_may_start_and_stop_it(self):
        model, seen = Partly(), []
        begin = model.register_forward_pre_hook(lambda *_: seen.append(graph.observe(model).start()))
        end = model.register_forward_hook(lambda *_: seen[-1].stop(), always_call=True)
        model(torch.randn(3, 4))
        begin.remove()
        end.remove()
        model(torch.randn(3, 4))
        self.assertEqual(seen[0].facts().feeds, graph.read(Partly(), (torch.randn(3, 4),)).feeds)
        self.assertFalse(any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()))

    def test_an_observed_forward_gives_the_same_result_and_gradients(self):
        torch.manual_seed(0)
        model, x = Partly(), torch.randn(3, 4)
        model(x).sum().backward()
        expected = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        with graph.observe(model):
            result = model(x)
        result.sum().backward()
        for parameter, grad in zip(model.parameters(), expected):
            self.assertTrue(torch.equal(parameter.grad, grad))


ORIGINAL_SETATTR = nn.Module.__setattr__


if __name__ == "__main__":
    unittest.main()
