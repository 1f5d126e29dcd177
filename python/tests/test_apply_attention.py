"""The projections of nn.MultiheadAttention: recorded, and by a plan's kernels what the same linears as modules are, to the bit."""

import copy
import json
import pathlib
import pickle
import sys
import tempfile
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ranker
import torch
import torch.nn.functional as F
from record_support import read
from torch import nn
from torch.utils.checkpoint import checkpoint

import loka
from loka.plans import PlanError
from loka.plans.paused import pause, resume
from loka.plans.warned import CanaryWarning
from loka.products import TRACEABLE

DELAYED, BF16 = "cublaslt/fp8-delayed", "cublaslt/bf16"
WIDTH, HEADS, ROWS, POSITIONS = 64, 4, 6, 5

OF_LAYER = {
    "layer.self_attn.in_proj_weight": (WIDTH, 3 * WIDTH, "linear"),
    "layer.self_attn.out_proj": (WIDTH, WIDTH, "linear"),
    "layer.linear1": (WIDTH, 128, None),
    "layer.linear2": (128, WIDTH, None),
}
HEAD = {"head": (WIDTH, 1, None)}


class Encoded(nn.Module):
    """An encoder layer of PyTorch's and a head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 128, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, 1)
        with torch.no_grad():
            # Zeros at first.
            self.layer.self_attn.in_proj_bias.copy_(torch.linspace(-1, 1, 3 * WIDTH))
            self.layer.self_attn.out_proj.bias.copy_(torch.linspace(-1, 1, WIDTH))

    def forward(self, x, **masks):
        return self.head(self.layer(x, **masks).mean(1)).squeeze(-1)


class Written(nn.Module):
    """What nn.MultiheadAttention does with one input, its projections modules."""

    def __init__(self, attention):
        super().__init__()
        self.in_proj, self.out_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.in_proj.weight, self.in_proj.bias = attention.in_proj_weight, attention.in_proj_bias
        self.out_proj.weight, self.out_proj.bias = attention.out_proj.weight, attention.out_proj.bias
        self.batch_first, self.num_heads = attention.batch_first, HEADS

    def forward(self, x, *_, **__):
        x = x.transpose(0, 1)
        q, k, v = self.in_proj(x).unflatten(-1, (3, WIDTH)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
        heads = (len(x), x.shape[1] * HEADS, WIDTH // HEADS)
        q, k, v = (each.view(heads).transpose(0, 1).unflatten(0, (-1, HEADS)) for each in (q, k, v))
        seen = F.scaled_dot_product_attention(q, k, v).permute(2, 0, 1, 3).reshape(-1, WIDTH)
        return self.out_proj(seen).view(x.shape).transpose(0, 1), None


class Attends(nn.Module):
    """One attention, of an input over another."""

    def __init__(self, call, **options):
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, **options)
        self.call = call

    def forward(self, x):
        return self.call(self.attention, x)


def batch(seed=1):
    return torch.randn(ROWS, POSITIONS, WIDTH, generator=torch.Generator().manual_seed(seed))


def train(model, called=None, steps=3, autocast=True):
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-2), []
    for step in range(steps):
        x = batch(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = (model if called is None else called)(x)
        loss = F.binary_cross_entropy_with_logits(y.float(), (x[:, 0, 0] > 0).float())
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses


class Plans(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def plan(self, sites, kernels=None):
        """Of `{site: (k, n, forward)}`, in FP8 but for what `kernels` says, and the head."""

        def change(plan):
            base, plan["sites"] = plan["sites"][1], []
            for name, (k, n, forward) in sites.items():
                site = {**copy.deepcopy(base), "site": name, "k": k, "n": n}
                if forward is not None:
                    site["forward"] = forward
                for gemm in ("fprop", "dgrad", "wgrad"):
                    site[gemm]["kernel"] = (kernels or {}).get(name, BF16 if name == "head" else DELAYED)
                plan["sites"].append(site)

        return loka.load_plan(ranker.forged(self.folder, change))

    def planned(self, sites=None, model=None):
        model = Encoded() if model is None else model
        loka.apply(model, self.plan({**OF_LAYER, **HEAD} if sites is None else sites), emulate=True)
        return model


class Fp8(Plans):
    def test_it_trains_as_linears_written_out_would(self):
        for autocast in (True, False):
            with self.subTest(autocast=autocast):
                written = Encoded()
                written.layer.self_attn = Written(written.layer.self_attn)
                names = [name.replace("in_proj_weight", "in_proj") for name in OF_LAYER]
                shapes = [(k, n, None) for k, n, _ in OF_LAYER.values()]
                self.planned({**dict(zip(names, shapes)), **HEAD}, written)
                expected = train(written, autocast=autocast)
                model = Encoded()
                found = loka.apply(model, self.plan({**OF_LAYER, **HEAD}), emulate=True)
                self.assertEqual((found.num_fp8, len(found.rows)), (4, 5))
                self.assertEqual(train(model, autocast=autocast), expected)
                # The first one's input needs no gradient.
                self.assertIn("11 of 12 FP8 GEMMs checked, 0 off", str(loka.health(model)))
                mine, other = model.layer.self_attn, written.layer.self_attn
                for one, two in (
                    (mine.in_proj_weight, other.in_proj.weight), (mine.in_proj_bias, other.in_proj.bias),
                    (mine.out_proj.weight, other.out_proj.weight), (mine.out_proj.bias, other.out_proj.bias),
                ):  # fmt: skip
                    torch.testing.assert_close(one, two, rtol=0, atol=0)
                self.assertFalse(torch.equal(mine.in_proj_bias, Encoded().layer.self_attn.in_proj_bias))

    @unittest.skipUnless(TRACEABLE, "PyTorch before 2.10")
    def test_compiled_whole(self):
        for autocast in (True, False):
            eager, model = self.planned(), self.planned()
            compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
            for one, other in zip(train(model, compiled, autocast=autocast), train(eager, autocast=autocast)):
                self.assertAlmostEqual(one, other, delta=3e-3)
            self.assertIn("11 of 12 FP8 GEMMs checked, 0 off", str(loka.health(model)))

    @unittest.skipUnless(TRACEABLE, "PyTorch before 2.10")
    def test_compiled_with_a_checkpoint_around_it(self):
        class Again(Encoded):
            def forward(self, x):
                return self.head(checkpoint(self.layer, x, use_reentrant=False).mean(1)).squeeze(-1)

        eager, model = self.planned(model=Again()), self.planned(model=Again())
        for one, other in zip(train(model, torch.compile(model, backend="aot_eager")), train(eager)):
            self.assertAlmostEqual(one, other, delta=3e-3)
        self.assertIn("11 of 12 FP8 GEMMs checked, 0 off", str(loka.health(model)))

    def test_with_separate_weights(self):
        sites = {f"attention.{each}_proj_weight": (k, WIDTH, "linear") for each, k in (("q", WIDTH), ("k", 32), ("v", 16))}
        sites["attention.out_proj"] = (WIDTH, WIDTH, "linear")

        def over(attention, x):
            return attention(x, x[:, :3, :32], x[:, :3, :16])[0].mean((1, 2))

        model = self.planned(sites, Attends(over, kdim=32, vdim=16, batch_first=True))
        train(model)
        # The input needs no gradient.
        self.assertIn("9 of 12 FP8 GEMMs checked, 0 off", str(loka.health(model)))
        if TRACEABLE:
            losses = train(self.planned(sites, Attends(over, kdim=32, vdim=16, batch_first=True)))
            model = self.planned(sites, Attends(over, kdim=32, vdim=16, batch_first=True))
            for one, other in zip(train(model, torch.compile(model, fullgraph=True, backend="aot_eager")), losses):
                self.assertAlmostEqual(one, other, delta=3e-3)

    def test_whatever_else_is_asked_of_it_is_as_it_was(self):
        # Paused, nothing is in FP8: what is left is the attention itself.
        inputs = batch()
        forbidden = torch.triu(torch.ones(POSITIONS, POSITIONS, dtype=torch.bool), 1)
        padded = torch.arange(POSITIONS).expand(ROWS, -1) >= torch.arange(1, ROWS + 1)[:, None]
        asked = [
            {"need_weights": True}, {"need_weights": True, "average_attn_weights": False}, {"need_weights": False},
            {"need_weights": False, "attn_mask": forbidden, "is_causal": True}, {"attn_mask": forbidden},
            {"key_padding_mask": padded}, {"key_padding_mask": padded, "attn_mask": forbidden, "need_weights": False},
        ]  # fmt: skip
        for options in ({"batch_first": True}, {"dropout": 0.4, "batch_first": True}, {"bias": False, "add_zero_attn": True},
                        {"add_bias_kv": True}):  # fmt: skip
            plain = Attends(lambda attention, x: attention(x, x, x), **options)
            model = self.planned({"attention.in_proj_weight": (WIDTH, 3 * WIDTH, "linear"),
                                  "attention.out_proj": (WIDTH, WIDTH, "linear")}, copy.deepcopy(plain))  # fmt: skip
            pause(model)
            for each in asked:
                found = []
                for one in (plain, model):
                    torch.manual_seed(7)
                    x = inputs if options.get("batch_first") else inputs.transpose(0, 1)
                    found.append(one.attention(x, x, x, **each))
                torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
            for one in (plain.attention, model.attention):
                self.assertEqual(one(inputs[0], inputs[0], inputs[0])[0].shape, (POSITIONS, WIDTH))
        with self.assertRaises(AssertionError):
            model.attention(inputs, inputs, inputs, key_padding_mask=padded[:2])

    def test_the_model_keeps_what_it_is(self):
        model, reference = Encoded(), Encoded()
        names, kind = list(model.state_dict()), type(model.layer.self_attn)
        self.planned(model=model)
        train(model)
        self.assertEqual(list(model.state_dict()), names)
        self.assertEqual([name for name, _ in model.named_modules()], [name for name, _ in reference.named_modules()])
        self.assertIsInstance(model.layer.self_attn, kind)
        x = batch()
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            torch.testing.assert_close(other(x), model(x), rtol=0, atol=0)
            self.assertIsNot(other.layer.self_attn.out_proj, model.layer.self_attn.out_proj)
            with torch.no_grad():
                other.layer.self_attn.out_proj.weight.zero_()
            self.assertFalse(torch.equal(other(x), model(x)))
            loka.unapply(other)
            self.assertIs(type(other.layer.self_attn), kind)
        reference.load_state_dict(model.state_dict())
        pause(model)
        torch.testing.assert_close(model(x), reference(x), rtol=0, atol=0)
        resume(model)
        loka.unapply(model)
        self.assertEqual([type(each) for each in model.modules()], [type(each) for each in reference.modules()])
        torch.testing.assert_close(model(x), reference(x), rtol=0, atol=0)

    def test_functions_that_were_replaced_stay_replaced(self):
        calls, plain = [], F.scaled_dot_product_attention

        def replaced(*args, **kwargs):
            calls.append(1)
            return plain(*args, **kwargs)

        F.scaled_dot_product_attention = replaced
        self.addCleanup(setattr, F, "scaled_dot_product_attention", plain)
        train(self.planned(), steps=1)
        self.assertEqual(len(calls), 1)


class Evaluation(Plans):
    def test_the_fused_layer_stays_in_high_precision_and_says_so(self):
        model, plain = self.planned(), Encoded()
        notes = {row.site: row.note for row in loka.resolved(model).rows}
        for site in OF_LAYER:
            self.assertIn("in evaluation PyTorch's fused encoder layer runs it in high precision", notes[site])
        x = batch()
        with torch.no_grad():
            torch.testing.assert_close(model.eval()(x), plain.eval()(x), rtol=0, atol=0)
            before = torch.backends.mha.get_fastpath_enabled()
            self.addCleanup(torch.backends.mha.set_fastpath_enabled, before)
            torch.backends.mha.set_fastpath_enabled(False)
            self.assertFalse(torch.equal(model(x), plain(x)))
            torch.testing.assert_close(model(x), plain(x), rtol=0.1, atol=0.1)

    def test_an_attention_by_itself_runs_in_fp8(self):
        plain = Attends(lambda attention, x: attention(x, x, x)[0], batch_first=True).eval()
        sites = {"attention.in_proj_weight": (WIDTH, 3 * WIDTH, "linear"), "attention.out_proj": (WIDTH, WIDTH, "linear")}
        model = self.planned(sites, copy.deepcopy(plain))
        x = batch()
        with torch.no_grad():
            y = model(x)
            self.assertFalse(torch.equal(y, plain(x)))
            torch.testing.assert_close(y, plain(x), rtol=0.1, atol=0.05)
        torch.testing.assert_close(y, model(x).detach(), rtol=0, atol=0)

    def test_nested_tensors_of_an_encoder_are_left_to_its_kernel(self):
        class Stack(nn.Module):
            def __init__(self):
                super().__init__()
                self.stack = nn.TransformerEncoder(Encoded().layer, 2)

            def forward(self, x, padding):
                return self.stack(x, src_key_padding_mask=padding)

        sites = {f"stack.layers.{i}{name[5:]}": each for i in (0, 1) for name, each in OF_LAYER.items()}
        plain = Stack().eval()
        model = self.planned(sites, copy.deepcopy(plain))
        padding = torch.arange(POSITIONS).expand(ROWS, -1) >= torch.arange(1, ROWS + 1)[:, None]
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.testing.assert_close(model(batch(), padding), plain(batch(), padding), rtol=0, atol=0)
            nested = torch._nested_tensor_from_mask(batch(), padding.logical_not())
            for attention in (plain.stack.layers[0].self_attn, model.stack.layers[0].self_attn):
                self.assertTrue(attention(nested, nested, nested, need_weights=False)[0].is_nested)

    def test_frozen_it_gives_what_it_gave(self):
        sites = {"attention.in_proj_weight": (WIDTH, 3 * WIDTH, "linear"), "attention.out_proj": (WIDTH, WIDTH, "linear")}
        model = self.planned(sites, Attends(lambda attention, x: attention(x, x, x)[0].mean((1, 2)), batch_first=True))
        train(model)
        model.eval()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            before = model(batch())
            loka.freeze(model, dtype=torch.bfloat16)
            torch.testing.assert_close(model(batch()), before, rtol=0, atol=0)


class Left(Plans):
    def test_over_other_keys_the_input_projection_is_parts(self):
        for over, parts in (
            (lambda attention, x: attention(x[:, -1:], x, x)[0].mean((1, 2)), ("[0:64]", "[64:192]")),
            (lambda attention, x: attention(x, x + 1, x - 1)[0].mean((1, 2)), ("[0:64]", "[64:128]", "[128:192]")),
        ):
            model = Attends(over, batch_first=True)
            recorder = loka.Recorder(model, pathlib.Path(self.folder), every=1, name="cross")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with recorder:
                    train(model)
            forwards = {site["id"]: site["forward"] for site in read(recorder.path)[0]["sites"]}
            expected = {f"attention.in_proj_weight{part}": "parameter" for part in parts}
            self.assertEqual(forwards, {**expected, "attention.out_proj": "linear"})
            shapes = {name: (WIDTH, WIDTH if len(parts) == 3 or "[0" in name else 2 * WIDTH, "parameter") for name in expected}
            sites = {**shapes, "attention.out_proj": (WIDTH, WIDTH, "linear")}
            with self.assertRaisesRegex(PlanError, "is not a module of the model but a parameter that a function reads"):
                loka.apply(Attends(over, batch_first=True), self.plan(sites), emulate=True)
            model = Attends(over, batch_first=True)
            loka.apply(model, self.plan(sites, dict.fromkeys(expected, BF16)), emulate=True)
            train(model)
            self.assertIn("3 of 3 FP8 GEMMs checked", str(loka.health(model)))

    def test_a_plan_for_all_of_it_says_that_none_was_seen(self):
        sites = {"attention.in_proj_weight": (WIDTH, 3 * WIDTH, "linear"), "attention.out_proj": (WIDTH, WIDTH, "linear")}
        model = self.planned(sites, Attends(lambda attention, x: attention(x, x + 1, x)[0].mean((1, 2)), batch_first=True))
        with self.assertWarnsRegex(CanaryWarning, "'attention.in_proj_weight': no product with the parameter was seen"):
            train(model)

    def test_while_it_is_recorded(self):
        model = Encoded()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with loka.Recorder(model, self.folder, name="m"), self.assertRaisesRegex(PlanError, "detach the Recorder first"):
                self.planned(model=model)

    def test_a_projection_without_an_attention(self):
        class Other(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = nn.Module()
                self.attention.out_proj = nn.modules.linear.NonDynamicallyQuantizableLinear(WIDTH, WIDTH)
                self.head = nn.Linear(WIDTH, 1)

        plan = self.plan({"attention.out_proj": (WIDTH, WIDTH, "linear"), **HEAD})
        with self.assertRaisesRegex(PlanError, "its parent reads its weight and never calls it"):
            loka.apply(Other(), plan, emulate=True)


class Recorded(Plans):
    def record(self, model, called=None, name="m"):
        recorder = loka.Recorder(model, self.folder, every=1, name=name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with recorder:
                train(model, called)
        return recorder, *read(recorder.path)

    def test_each_projection_is_a_site_once(self):
        recorder, manifest, _ = self.record(Encoded())
        sites = {site["id"]: (site["k"], site["n"], site.get("forward")) for site in manifest["sites"]}
        self.assertEqual(sites, {**OF_LAYER, **HEAD})
        self.assertEqual({site["examples"] for site in manifest["sites"]}, {ROWS})
        # scaled_dot_product_attention alone has no weight.
        self.assertEqual([each["op"] for each in recorder.coverage["unseen"]], ["scaled_dot_product_attention"])
        self.assertNotIn("never called", json.dumps(manifest))

    @unittest.skipUnless(TRACEABLE, "PyTorch before 2.10")
    def test_compiled_code_records_the_same(self):
        model = Encoded()
        _, manifest, compiled = self.record(model, torch.compile(model, fullgraph=True, backend="aot_eager"), "compiled")
        _, expected, eager = self.record(Encoded())
        for found, other in zip(manifest["sites"], expected["sites"]):
            self.assertEqual(found, other)
        for site in OF_LAYER:
            # By example: positions come first in an attention.
            for key in ("noise.xg2", "noise.mean2"):
                name = f"{site}/{key}"
                torch.testing.assert_close(compiled[name], eager[name], rtol=0.05, atol=0)

    def test_beside_a_plan_it_takes_what_stays_in_high_precision(self):
        attention = "layer.self_attn.in_proj_weight"
        sites = {**OF_LAYER, **HEAD}
        _, _, expected = self.record(Encoded())
        ways = [None] + (["compiled"] if TRACEABLE else [])
        for way in ways:
            model = Encoded()
            loka.apply(model, self.plan(sites, {attention: BF16}), emulate=True)
            called = None if way is None else torch.compile(model, backend="aot_eager")
            _, manifest, found = self.record(model, called, "beside")
            names = {site["id"] for site in manifest["sites"]}
            self.assertEqual(attention in names, way is None)
            if way is None:
                mine = found[f"{attention}/noise.xg2"]
                torch.testing.assert_close(mine, expected[f"{attention}/noise.xg2"], rtol=0.1, atol=0)
            self.assertIn("9 of 9 FP8 GEMMs checked, 0 off", str(loka.health(model)))


if __name__ == "__main__":
    unittest.main()
