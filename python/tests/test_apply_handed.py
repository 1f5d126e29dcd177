"""Linears of an nn.Sequential that go by scales that are known beforehand: in training one gives the next one codes. By emulation on
a CPU."""

import copy
import io
import itertools
import pathlib
import pickle
import random
import sys
import tempfile
import unittest
from functools import partial
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ranker
import torch
from test_apply_blocks import MODS, SIZES, Model, batch, modded
from test_apply_training import of_each_example
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from triton_support import interpreted, needs_triton

import loka
from loka import kernels as routing
from loka.kernels import handed, norms
from loka.kernels.delayed import codes, largest
from loka.kernels.native_ops import block_gradient, block_output
from loka.plans import LokaLinear, handing
from loka.plans.straight import steps_of

DELAYED, PROMOTED, BF16 = "cublaslt/fp8-delayed+fast", "cublaslt/fp8-delayed", "cublaslt/bf16"
INTERPRETED = """
import torch
from loka.kernels import handed, norms, triton_norms, triton_tails
torch.manual_seed(0)
for at, tail in enumerate(handed.TAILS):
    for rows, cols, bias in ((48, 256, None), (16, 512, torch.randn(512)), (80, 48 if at else 256, torch.randn(48 if at else 256))):
        z, dh = torch.randn(rows, cols).bfloat16() * 3, torch.randn(rows, cols).bfloat16() * 1e-4
        scale, small = torch.tensor([2.0**-5]), torch.tensor([2.0**-20])
        keep = torch.rand(rows, cols) < 0.5 if rows > 16 else None
        packed, largest = triton_tails.output(z, bias, keep, 1 / scale, at, 1.0 if keep is None else 2.0)
        exact, maxima, _ = handed.output(z, bias, 1 / scale, tail, keep, 0.5)
        of = (z, bias, keep) if tail != "relu" else (handed.gate(packed.view(z.dtype)), None, None)
        dz = triton_tails.gradient(dh, *of, 1 / small, at, True, 1.0 if keep is None else 2.0)
        exact_dz = handed.gradient(dh, z, bias, small, 1 / small, tail, True, keep, 0.0 if keep is None else 0.5)
        if tail == "relu":
            assert float(((of[0] < 0) == (handed.gate(exact) < 0)).float().mean()) > 0.99
            passes = handed.joined(z, bias, tail, keep, 0.5)[0].h
            exact_dz = handed.gradient(dh, passes, None, small, 1 / small, tail, True, None, 0.0 if keep is None else 0.5)
        found = [one.bits for one in handed.taken(packed.view(z.dtype), scale)], dz[:2]
        wanted = [one.bits for one in handed.taken(exact, scale)], [one.bits for one in exact_dz[:2]]
        for ours, theirs in zip(found, wanted):
            straight, turned = (one.contiguous().view(torch.uint8) for one in (ours[0].t(), ours[1]))
            # Of a ReLU, the sign of straight zeros says what passed.
            assert torch.equal(*(one & 0x7F if tail == "relu" and ours is found[0] else one for one in (straight, turned)))
            # It casts to FP8 otherwise than a GPU does, here and there.
            assert float((ours[0].float() == theirs[0].float()).float().mean()) > 0.85, tail
        # BF16's last place, of sums in another order.
        for ours, theirs in ((largest, maxima), (dz[2], exact_dz.maxima)):
            assert abs(float(ours.max()) - float(theirs.max())) <= 0.016 * float(theirs.max())
        assert float((dz[3].sum(0) - exact_dz.sums).norm()) <= 0.05 * float(exact_dz.sums.norm()), tail
for kind, after, (rows, cols) in ((0, "swish", (48, 320)), (1, "relu", (80, 48)), (0, "", (16, 1200)), (1, "gelu", (48, 256))):
    tail = handed.row_normed(norms.ROW_NORMS[kind], after)
    z, dh = (torch.randn(rows, cols) * 3 + 1).bfloat16(), torch.randn(rows, cols).bfloat16() * 1e-4
    bias = torch.randn(cols) if rows < 80 else None
    of = norms.Norm(1 + 0.1 * torch.randn(cols) if rows < 80 else None, 0.1 * torch.randn(cols) if kind == 0 and rows > 16 else None, 1e-5)
    scale, small, by = torch.tensor([2.0**-5]), torch.tensor([2.0**-20]), 2.0 if rows == 48 else 1.0
    keep = torch.rand(rows, cols) < 0.5 if rows == 48 else None
    place = handed.TAILS.index(after) if after else 0
    packed, largest, mean, rstd = triton_norms.output(z, bias, keep, of.weight, of.bias, 1 / scale, place, kind == 0, of.eps, by)
    exact, maxima, stats = handed.output(z, bias, 1 / scale, tail, keep, 1 - 1 / by, of)
    # It cuts BF16 of z + bias off where a GPU rounds.
    assert torch.allclose(rstd, stats.rstd, rtol=1e-2) and (kind == 1 or torch.allclose(mean, stats.mean, atol=0.02))
    dz = triton_norms.gradient(dh, z, bias, keep, of.weight, of.bias, stats.mean, stats.rstd, 1 / small, place, True, by)
    exact_dz = handed.gradient(dh, z, bias, small, 1 / small, tail, True, keep, 1 - 1 / by, of, stats)
    for ours, theirs in (
        ([one.bits for one in handed.taken(packed.view(z.dtype), scale)], [one.bits for one in handed.taken(exact, scale)]),
        (dz[:2], [one.bits for one in exact_dz[:2]]),
    ):
        straight, turned = (one.contiguous().view(torch.uint8) for one in (ours[0].t(), ours[1]))
        assert torch.equal(straight, turned)
        assert float((ours[0].float() == theirs[0].float()).float().mean()) > 0.85, tail
    for ours, theirs in ((largest, maxima), (dz[2], exact_dz.maxima)):
        assert abs(float(ours.max()) - float(theirs.max())) <= 0.016 * float(theirs.max())
    added = dz[3].sum(0)
    for ours, theirs in zip(added, (exact_dz.sums, exact_dz.norm_weight, exact_dz.norm_bias)):
        assert theirs is None or float((ours - theirs).norm()) <= 0.05 * float(theirs.norm()), tail
print("as defined")
"""


class Handed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def plan(self, kernels=(DELAYED, DELAYED, PROMOTED), mods=MODS, edit=None):
        def change(plan):
            first = plan["sites"][0]
            plan["sites"] = []
            for site, (k, n) in SIZES.items():
                made = copy.deepcopy(first)
                made.update(site=site, k=k, n=n)
                for gemm, kernel in zip(("fprop", "dgrad", "wgrad"), kernels):
                    made[gemm]["kernel"] = kernel if n % 256 == 0 else BF16
                plan["sites"].append(made)
            plan["mods"] = {site: list(mods) for site in SIZES if site != "head"}
            if edit:
                edit({site["site"]: site for site in plan["sites"]})

        return ranker.forged(self.folder, change)

    def applied(self, model=None, together=True, **options):
        model = modded() if model is None else model
        loka.apply(model, self.plan(**options), emulate=True, on_slow_host="warn")
        for module in model.modules() if not together else ():
            module.__dict__.pop("_loka_links", None)
        return model

    def train(self, model, steps=3, wrap=None, rows=64, first=0):
        """Losses and gradients of each step."""
        run = model if wrap is None else wrap(model)
        optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []
        for step in range(first, first + steps):
            x = batch(rows, seed=step)
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.binary_cross_entropy_with_logits(run(x).float(), (x[:, 0] > 0).float())
            loss.backward()
            found.append((float(loss.detach()), [parameter.grad.clone() for parameter in model.parameters()]))
            optimizer.step()
            optimizer.zero_grad()
        return found

    def gives(self, model, rows=64):
        """Sites that give codes in a forward, as the model stands, and those that get them are as many."""
        model, found, taken, self.joined, self.normed = copy.deepcopy(model), [], 0, [], 0
        sites = {id(module.weight): name for name, module in model.named_modules() if isinstance(module, LokaLinear)}
        run = routing.linear

        def seen(x, weight, *options):
            nonlocal taken
            takes_codes, gives, tail, _, norm, _ = options[-6:]
            self.normed += norm is not None
            found.extend([sites[id(weight)]] if gives is not None else [])
            self.joined.extend([sites[id(weight)]] if tail and gives is None else [])
            taken += takes_codes
            return run(x, weight, *options)

        width = next(iter(model.parameters())).shape[1]
        x = torch.randn(rows, width).to(next(iter(model.parameters())).dtype)
        with mock.patch.object(routing, "linear", seen), torch.autocast("cpu", torch.bfloat16):
            model(x)
        self.assertEqual(taken, len(found))
        return found

    def note(self, model, site="mlp.0"):
        return next(row.note for row in loka.resolved(model).rows if row.site == site)


class Codes(unittest.TestCase):
    def test_they_are_those_of_the_steps_apart(self):
        """Against PyTorch's own activations, and their gradients by autograd."""
        act = {"hard_swish": F.hardswish, "relu": F.relu, "swish": F.silu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")}
        scale, small = torch.tensor([2.0**-5]), torch.tensor([2.0**-20])
        for tail in handed.TAILS:
            for bias in (None, torch.randn(512)):
                with self.subTest(tail, biased=bias is not None):
                    z, dh = torch.randn(48, 512).bfloat16() * 3, torch.randn(48, 512).bfloat16() * 1e-4
                    y = (z if bias is None else z + bias.bfloat16()).requires_grad_()
                    if tail == handed.NORMED:
                        h, dz = block_output(y.detach()).bfloat16(), block_gradient(dh, y.detach()).bfloat16()
                    else:
                        h = act[tail](y)
                        (dz,) = torch.autograd.grad(h, y, dh)
                    packed, maxima, _ = handed.output(z, bias, 1 / scale, tail)
                    self.assertEqual((packed.shape, packed.dtype), (z.shape, z.dtype))
                    straight, turned = handed.taken(packed, scale)
                    wanted = codes(h.detach(), 1 / scale, "e4m3").view(torch.uint8)
                    bits = straight.bits.view(torch.uint8)
                    self.assertTrue(torch.equal(turned.bits.view(torch.uint8), bits.t()))
                    if tail == "relu":
                        # A zero's sign says that nothing passes.
                        self.assertTrue(torch.equal(handed.gate(packed) < 0, h <= 0))
                        bits = bits & 0x7F
                    self.assertTrue(torch.equal(bits, wanted))
                    self.assertEqual(float(maxima.max()), float(h.detach().abs().max()))
                    of = (handed.gate(packed), None) if tail == "relu" else (z, bias)
                    straight, turned, maxima, sums, _, _ = handed.gradient(dh, *of, small, 1 / small, tail, True)
                    wanted = codes(dz, 1 / small, "e4m3").view(torch.uint8)
                    self.assertTrue(torch.equal(straight.bits.view(torch.uint8), wanted))
                    self.assertTrue(torch.equal(turned.bits.view(torch.uint8), wanted.t()))
                    self.assertTrue(torch.equal(maxima, largest(dz)))
                    torch.testing.assert_close(sums, dz.float().sum(0), rtol=1e-5, atol=1e-9)

    def test_they_are_those_of_norms_apart(self):
        """Against PyTorch's own norms, and all their gradients by autograd."""
        scale, small, n = torch.tensor([2.0**-5]), torch.tensor([2.0**-20]), 320
        act = {"": lambda x: x, "relu": F.relu, "swish": F.silu}
        for kind, after, affine, far in itertools.product(norms.ROW_NORMS, act, (True, False), (0.0, 100.0)):
            tail = handed.row_normed(kind, after)
            with self.subTest(tail, affine=affine, far=far):
                module = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}[kind](n, eps=1e-5, elementwise_affine=affine)
                for parameter in module.parameters():
                    nn.init.normal_(parameter, 1.0, 0.3)
                bias, keep = torch.randn(n), torch.rand(48, n) < 0.5
                z, dh = (torch.randn(48, n) * 3 + far).bfloat16(), torch.randn(48, n).bfloat16() * 1e-4
                y = (z + bias.bfloat16()).requires_grad_()
                h = act[after](module(y.float())).bfloat16() * keep * 2.0
                dz, *of_norm = torch.autograd.grad(h, (y, *module.parameters()), dh)
                norm = norms.Norm(module.weight, getattr(module, "bias", None), norms.eps_of(module.eps))
                made = handed.output(z, bias, 1 / scale, tail, keep, 0.5, norm)
                found = handed.gradient(dh, z, bias, small, 1 / small, tail, True, keep, 0.5, norm, made.stats)
                for exact, by, (straight, turned), maxima in (
                    (h.detach(), scale, handed.taken(made.h, scale), made.maxima), (dz, small, found[:2], found.maxima)
                ):
                    wanted = codes(exact, 1 / by, "e4m3").float()
                    self.assertLess(float((straight.bits.float() != wanted).float().mean()), 0.002)
                    self.assertTrue(torch.equal(straight.bits.float().t(), turned.bits.float()))
                    self.assertAlmostEqual(float(maxima.max() / exact.abs().max()), 1, delta=0.01)
                torch.testing.assert_close(found.sums, dz.float().sum(0), rtol=1e-2, atol=1e-6)
                ours = [part for part in (found.norm_weight, found.norm_bias) if part is not None]
                self.assertEqual(len(ours), len(of_norm))
                for one, other in zip(ours, of_norm):
                    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)

    @needs_triton
    def test_the_kernels_make_the_same(self):
        interpreted(self, INTERPRETED, "as defined")


class Sound(Handed):
    def test_kernels_that_give_something_else_are_not_used(self):
        """As those of another Triton might: the canary sees the steps apart alone."""
        for found, said in ((lambda *_: False, "they give something else"), (mock.Mock(side_effect=RuntimeError("no\nPTX")), "RuntimeError: no")):
            with mock.patch.object(handing, "sound", found), self.assertWarns(UserWarning) as warned:
                self.assertFalse(handing._is_sound("relu", nn.Linear(16, 16)))
            self.assertIn(f"LoKA's kernels for relu are not used on cpu, each step runs for itself: {said}", str(warned.warning))
        self.assertTrue(handed.sound("relu", torch.device("cpu")))
        with mock.patch.object(handing, "_is_sound", lambda *_: False):
            model = modded()
            planned = {name: (DELAYED,) * 3 for name, module in model.named_modules() if isinstance(module, nn.Linear)}
            self.assertEqual(handing.links_of(model, planned, False, {}), {})
            self.assertEqual(handing.links_of(model, planned, True, {}), {("mlp", "forward"): {0: 3, 3: 6, 6: 9}})


class Training(Handed):
    def test_under_torch_func_each_is_the_module_that_it_is(self):
        model = self.applied()
        self.train(model)
        plain = modded()
        plain.load_state_dict(model.state_dict())
        for one, other in zip(of_each_example(model, batch(32)), of_each_example(plain, batch(32))):
            self.assertTrue(torch.equal(one, other))
        self.assertEqual(self.gives(model), ["mlp.0", "mlp.3"])

    def test_it_trains_as_it_does_apart(self):
        """From the second step on, when scales are known. Both are as far from BF16."""
        truth = self.train(modded())
        model = self.applied()
        self.assertEqual(self.gives(model), [])
        together, apart = self.train(model), self.train(self.applied(together=False))
        self.assertEqual(self.gives(model), ["mlp.0", "mlp.3"])
        self.assertIn("in training 'mlp.3' gets its activation in FP8", self.note(model))
        for (exact, wanted), (loss, ours), (other, theirs) in zip(truth, together, apart):
            self.assertAlmostEqual(loss, exact, delta=0.02)
            self.assertAlmostEqual(loss, other, delta=0.01)
            for one, two, three in zip(wanted, ours, theirs):
                scale = one.norm()
                self.assertLess(float((two - one).norm() / scale), float(1.15 * (three - one).norm() / scale) + 0.01)
        # The head is no reader: it is in BF16.
        self.assertEqual(self.note(model, "mlp.6"), "")

    def test_scales_follow_what_is_handed_on(self):
        models = [self.applied(), self.applied(together=False)]
        scales = []
        for model in models:
            self.train(model, 4)
            # Twenty times the gradients, and weights that BlockNorm takes the size of out again.
            scales.append([float(scale.scale) for at in (0, 3, 6) for scale in model.mlp[at]._loka_scales])
        self.assertEqual(*scales)
        self.assertTrue(all(scale > 0 for scale in scales[0]))

    def test_compiled_it_is_the_same(self):
        wrap = lambda model: torch.compile(model, backend="aot_eager", fullgraph=True)
        eager, compiled = self.train(self.applied()), self.train(self.applied(), wrap=wrap)
        for (_, one), (_, other) in zip(eager, compiled):
            for mine, its in zip(one, other):
                # The compiler runs the last block and what follows it as one, too, and rounds nothing in between.
                self.assertLess(float((mine - its).norm() / mine.norm()), 0.06)

    def test_inductor_compiles_it(self):
        """Handed on and apart. Without checks, too, whose first step is compiled like the others."""
        wanted, wrap = self.train(modded()), lambda model: torch.compile(model, fullgraph=True)
        models = [self.applied(), self.applied(together=False), modded()]
        loka.apply(models[2], self.plan(), emulate=True, on_slow_host="warn", check_every=None)
        for model in models:
            for (loss, ours), (exact, theirs) in zip(self.train(model, wrap=wrap), wanted):
                self.assertAlmostEqual(loss, exact, delta=0.02)
                for one, other in zip(ours, theirs):
                    self.assertLess(float((one - other).norm() / other.norm()), 0.3)

    def test_checkpoints(self):
        class Saves(Model):
            def forward(self, x):
                return self.head(checkpoint(self.mlp, x, use_reentrant=False)).squeeze(-1)

        def saves():
            model = Saves()
            loka.mods.apply(model, MODS)
            return self.applied(model)

        plain = self.train(self.applied())
        for wrap in (None, lambda model: torch.compile(model, backend="aot_eager")):
            for (_, one), (_, other) in zip(plain, self.train(saves(), wrap=wrap)):
                for mine, its in zip(one, other):
                    # The compiler runs the last block and what follows it as one, too, and rounds nothing in between.
                    self.assertLess(float((mine - its).norm() / mine.norm()), 0.06 if wrap else 1e-3)

    def test_bf16_parameters(self):
        model = self.applied(modded().bfloat16())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(batch(seed=step).bfloat16()).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(self.gives(model), ["mlp.0", "mlp.3"])

    def test_copies_and_files_and_back(self):
        model = self.applied()
        kinds = [type(module) for module in modded().modules()]
        self.train(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        plain = copy.deepcopy(model)
        for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
            self.assertEqual(self.gives(other), ["mlp.0", "mlp.3"])
            loka.unapply(other)
            self.assertEqual([type(module) for module in other.modules()], kinds)
            self.assertFalse(any(key.startswith("_loka") for module in other.modules() for key in vars(module)))
        self.assertEqual(self.gives(plain), ["mlp.0", "mlp.3"])


class Apart(Handed):
    """Where codes would meet another reader, all run for themselves, and are right."""

    def setUp(self):
        super().setUp()
        self.model = self.applied()
        self.train(self.model)
        self.assertEqual(self.gives(self.model), ["mlp.0", "mlp.3"])

    def is_right(self, model, rows=64):
        reference = modded()
        reference.load_state_dict(model.state_dict())
        (_, ours), *_ = self.train(model, 1, rows=rows, first=9)
        (_, exact), *_ = self.train(reference, 1, rows=rows, first=9)
        for one, other in zip(ours, exact):
            self.assertLess(float((one - other).norm() / other.norm()), 0.3)

    def test_hooks(self):
        mlp, seen = self.model.mlp, []
        keep = lambda value: seen.append(value.detach())
        for at, (which, register) in enumerate((
            ("Linear", lambda: mlp[0].register_forward_hook(lambda m, i, o: keep(o))),
            ("BlockNorm", lambda: mlp[1].register_forward_pre_hook(lambda m, i: keep(i[0]))),
            ("HardSwish", lambda: mlp[2].register_forward_hook(lambda m, i, o: keep(o))),
            ("Linear", lambda: mlp[3].register_forward_pre_hook(lambda m, i: keep(i[0]))),
            ("Linear", lambda: mlp[3].register_forward_hook(lambda m, i, o: keep(i[0]))),
        )):
            with self.subTest(at):
                handle = register()
                self.assertNotIn("mlp.0", self.gives(self.model))
                self.assertIn(f"not now: {which} has hooks", self.note(self.model))
                with torch.autocast("cpu", torch.bfloat16):
                    z = F.linear(batch(seed=9), mlp[0].weight).float()
                exact = z if at < 2 else block_output(z)
                self.is_right(self.model)
                handle.remove()
                self.assertLess(float((seen[-1].float() - exact).norm() / exact.norm()), 0.06)
        self.assertEqual(self.gives(self.model), ["mlp.0", "mlp.3"])

    def test_rows_that_no_gemm_reads_turned(self):
        self.assertEqual(self.gives(self.model, 63), [])
        self.is_right(self.model, rows=63)
        self.is_right(self.model, rows=16)

    def test_evaluation(self):
        """Parts of the model alone too, as whoever looks at features calls them."""
        self.model.eval()
        reference = modded()
        reference.load_state_dict(self.model.state_dict())
        with torch.autocast("cpu", torch.bfloat16):
            for grad in (True, False):
                with torch.set_grad_enabled(grad):
                    for run in (lambda model: model(batch()), lambda model: model.mlp[:3](batch())):
                        ours, exact = run(self.model).float(), run(reference).float()
                        self.assertLess(float(((ours - exact).norm() / exact.norm()).detach()), 0.1)
            self.model.train()
            with torch.no_grad():
                ours, exact = self.model.mlp[:3](batch()).float(), reference.mlp[:3](batch()).float()
            self.assertLess(float((ours - exact).norm() / exact.norm()), 0.1)

    def test_a_frozen_layer(self):
        self.model.mlp[3].weight.requires_grad_(False)
        self.assertEqual(self.gives(self.model), [])

    def test_a_gemm_that_went_back_to_bf16(self):
        for site, kernels in ((0, (DELAYED, BF16, DELAYED)), (3, (DELAYED, DELAYED, BF16)), (3, (BF16, DELAYED, DELAYED))):
            model = copy.deepcopy(self.model)
            model.mlp[site].__dict__["_loka_kernels"] = kernels
            self.assertNotIn("mlp.0", self.gives(model))
            self.is_right(model)

    def test_a_pause(self):
        told = loka.compare(self.model, lambda: F.binary_cross_entropy_with_logits(self.model(batch()), torch.ones(64)))
        self.assertTrue(all(row.apart < 0.3 for row in told.rows), str(told))
        self.assertEqual(self.gives(self.model), ["mlp.0", "mlp.3"])

    def test_a_recorder(self):
        with loka.Recorder(self.model, out=self.folder, every=1):
            self.is_right(self.model)
        self.assertEqual(self.gives(self.model), ["mlp.0", "mlp.3"])


class NotChained(Handed):
    def none(self, model, wanted=()):
        self.train(model)
        self.assertEqual(self.gives(model), list(wanted))
        reference = modded()

    def test_another_reader(self):
        class Two(Model):
            def forward(self, x):
                h = self.mlp[:3](x)
                return self.head(self.mlp[3:](h)).squeeze(-1) + h.float().sum(1) * 1e-3

        model = Two()
        loka.mods.apply(model, MODS)
        self.none(self.applied(model))

    def test_a_reader_that_reads_more(self):
        """The same linear on something else: that is no codes."""

        class Shares(Model):
            def forward(self, x):
                h = self.mlp[3](self.mlp[:3](x)) + self.mlp[3](x.repeat(1, 4))
                return self.head(self.mlp[4:](h)).squeeze(-1)

        model = Shares()
        loka.mods.apply(model, MODS)
        self.none(self.applied(model))

    def test_a_model_that_runs_twice(self):
        class Twice(Model):
            def forward(self, x):
                return super().forward(x) + super().forward(-x)

        model = Twice()
        loka.mods.apply(model, MODS)
        self.none(self.applied(model), ["mlp.0", "mlp.3"] * 2)

    def test_a_gemm_that_casts_as_it_goes(self):
        def edit(sites):
            sites["mlp.3"]["wgrad"]["kernel"] = "cublaslt/fp8-tensorwise"

        self.none(self.applied(edit=edit))

    def test_a_part_called_by_itself(self):
        """Whoever calls a block by itself gets what it gives; in the whole it hands codes on."""

        class Nested(nn.Module):
            def __init__(self):
                super().__init__()
                made = modded()
                self.mlp, self.head = made.mlp, made.head
                parts = list(made.mlp)
                self.mlp = nn.Sequential()
                for at in (0, 3, 6):
                    self.mlp.add_module(str(at), parts[at])
                    self.mlp.add_module(str(at + 1), nn.Sequential(*parts[at + 1 : at + 3]))

            def forward(self, x):
                return self.head(self.mlp(x)).squeeze(-1)

        model = self.applied(Nested())
        self.none(model, ["mlp.0", "mlp.3"])
        z = torch.randn(64, 256).bfloat16()
        self.assertTrue(torch.equal(model.mlp[1](z), modded().mlp[1:3](z)))


WIDTHS = (64, 128, 192, 64)


class Plain(nn.Module):
    """An MLP as most are written: biases, an activation, no norm."""

    def __init__(self, activation, between=()):
        super().__init__()
        torch.manual_seed(0)
        parts = []
        for k, n in zip(WIDTHS, WIDTHS[1:]):
            parts += [nn.Linear(k, n), activation(), *(make() for make in between)]
        self.mlp, self.head = nn.Sequential(*parts), nn.Linear(WIDTHS[-1], 1)

    def forward(self, x):
        return self.head(self.mlp(x)).squeeze(-1)


class Planned(Handed):
    def plain(self, model, together=True, kernels=(DELAYED, DELAYED, DELAYED), only=None):
        """`only`: the sites that run so, all but the head without it."""

        def change(plan):
            first = plan["sites"][0]
            plan["sites"] = []
            for site, module in model.named_modules():
                if isinstance(module, nn.Linear):
                    made = copy.deepcopy(first)
                    made.update(site=site, k=module.in_features, n=module.out_features)
                    for gemm, kernel in zip(("fprop", "dgrad", "wgrad"), kernels):
                        made[gemm]["kernel"] = kernel if (site != "head" if only is None else site in only) else BF16
                    plan["sites"].append(made)

        loka.apply(model, ranker.forged(self.folder, change), emulate=True, on_slow_host="warn")
        for module in model.modules() if not together else ():
            module.__dict__.pop("_loka_links", None)
        return model

    def linears(self, model):
        return [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and name != "head"]

    def same(self, make, kernels=(DELAYED, DELAYED, DELAYED), steps=3, apart_by=0.02):
        """It trains as it does apart, from the second step on, when scales are known."""
        models = self.plain(make(), True, kernels), self.plain(make(), False, kernels)
        found = []
        for model in models:
            torch.manual_seed(3)
            found.append(self.train(model, steps))
        (together, apart), model = found, models[0]
        for (loss, ours), (other, theirs) in zip(together, apart):
            self.assertAlmostEqual(loss, other, delta=1e-3)
            for one, two in zip(ours, theirs):
                self.assertLessEqual(float((one - two).norm()), apart_by * float(two.norm()))
        return model


class Activations(Planned):
    def test_those_that_most_models_have(self):
        shared = nn.ReLU()
        for name, make in {
            "relu": nn.ReLU, "in place": lambda: nn.ReLU(inplace=True), "one for all": lambda: shared, "swish": nn.SiLU,
            "gelu": nn.GELU, "gelu by tanh": lambda: nn.GELU(approximate="tanh"), "hard swish": nn.Hardswish,
        }.items():  # fmt: skip
            with self.subTest(name):
                model = self.same(lambda: Plain(make))
                self.assertEqual(self.gives(model), self.linears(model)[:2])

    def test_what_does_nothing_may_stand_between(self):
        model = self.same(lambda: Plain(nn.ReLU, [nn.Identity, lambda: nn.Dropout(0.0)]))
        self.assertEqual(self.gives(model), self.linears(model)[:2])

    def test_what_does_something_may_not(self):
        class Doubled(nn.ReLU):
            def forward(self, input):
                return 2 * super().forward(input)

        for activation, between, joined in (
            (nn.ReLU, [lambda: nn.Dropout(0.5)] * 2, 3), (nn.ReLU, [nn.ReLU], 3),
            (nn.Identity, [nn.Tanh], 0), (nn.Identity, [Doubled], 0), (nn.Identity, [lambda: nn.Dropout(0.5), nn.ReLU], 0),
        ):  # fmt: skip
            model = self.same(lambda: Plain(activation, between))
            self.assertEqual((self.gives(model), len(self.joined)), ([], joined))

    def test_a_linear_and_what_follows_it(self):
        """Where nobody reads codes of it, its gradient is made of that of what comes behind."""
        kernels = (BF16, DELAYED, DELAYED)
        for activation in (nn.ReLU, nn.SiLU, nn.GELU):
            make = lambda: Plain(activation, [lambda: nn.Dropout(0.5)])
            model = self.same(make, kernels)
            self.assertEqual((self.gives(model), self.joined), ([], self.linears(model)))
            apart = copy.deepcopy(model).eval()
            vars(apart.mlp).pop("_loka_links")
            with torch.autocast("cpu", torch.bfloat16):
                self.assertTrue(torch.equal(model.eval()(batch()), apart(batch())))
            wrap = lambda model: torch.compile(model, fullgraph=True)
            losses = [loss for loss, _ in self.train(self.plain(make(), kernels=kernels), 4, wrap=wrap)]
            self.assertTrue(all(0.5 < loss < 0.9 for loss in losses), losses)
        mixed = self.same(lambda: Plain(nn.ReLU), (BF16, DELAYED, BF16))
        self.assertFalse(any("_loka_links" in vars(module) for module in mixed.modules()))

    def test_a_dropout(self):
        """It drops what nn.Dropout would, and no other gradient passes."""
        # By other shares PyTorch rounds to BF16 on a CPU what it multiplies by, on a GPU not.
        for share in (0.5, 0.75):
            make = lambda: Plain(nn.ReLU, [lambda: nn.Dropout(share)])
            found = []
            for together in (True, False):
                model = self.plain(make(), together=together)
                torch.manual_seed(3)
                found.append(self.train(model, 4))
                self.assertEqual(self.gives(model), self.linears(model)[:2] if together else [])
            for (loss, ours), (other, theirs) in zip(*found):
                self.assertAlmostEqual(loss, other, delta=2e-3)
                for one, two in zip(ours, theirs):
                    self.assertLessEqual(float((one - two).norm()), 0.01 * float(two.norm()))
        wrap = lambda model: torch.compile(model, fullgraph=True)
        losses = [loss for loss, _ in self.train(self.plain(make()), 6, wrap=wrap)]
        self.assertTrue(all(0.5 < loss < 0.9 for loss in losses), losses)
        # Not in evaluation, and not once it drops nothing.
        model = self.plain(make())
        self.train(model)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        self.assertEqual(self.gives(model), self.linears(model)[:2])

    def test_what_comes_out_may_be_changed_in_place(self):
        """As behind a dropout by itself, or an activation that keeps what went in."""

        class Skips(Plain):
            def forward(self, x):
                y = self.mlp(x)
                y += 1e-3
                return self.head(y).squeeze(-1)

        for activation, between in ((nn.ReLU, [lambda: nn.Dropout(0.5)]), (nn.SiLU, [])):
            for kernels in ((DELAYED,) * 3, (BF16, DELAYED, DELAYED)):
                self.same(lambda: Skips(activation, between), kernels)

    def test_memory(self):
        """What a forward keeps for its backward of activations: no more than in BF16."""

        def kept(model, rows=512):
            found, parameters = {}, {parameter.data_ptr() for parameter in model.parameters()}
            fp8 = {code.data_ptr() for module in model.modules() for pair in (getattr(module, "_loka_codes", None) or ())[:2] if pair for code in pair[:1]}

            def pack(tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in parameters | fp8:
                    found[storage.data_ptr()] = storage.nbytes()
                return tensor

            with torch.autocast("cpu", torch.bfloat16, cache_enabled=False), torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
                y = model(torch.randn(rows, WIDTHS[0]))
            return sum(found.values()), y

        for activation in (nn.ReLU, nn.GELU):
            model = self.plain(Plain(activation))
            self.train(model)
            (ours, _y), (theirs, _z) = kept(model), kept(Plain(activation))
            self.assertLess(ours, 1.02 * theirs)

    def test_sequences_within_sequences(self):
        class Nested(Plain):
            def __init__(self):
                super().__init__(nn.ReLU)
                parts = list(self.mlp)
                self.mlp = nn.Sequential(*(nn.Sequential(*parts[at : at + 2]) for at in (0, 2, 4)))

        model = self.same(Nested)
        self.assertEqual(self.gives(model), self.linears(model)[:2])
        again = copy.deepcopy(model)
        handle = model.mlp[1].register_forward_hook(lambda *_: None)
        self.assertEqual(self.gives(model), [])
        self.train(model)
        handle.remove()
        self.assertEqual(self.gives(model), self.linears(model)[:2])
        wrap = lambda model: torch.compile(model, fullgraph=True)
        self.train(model, wrap=wrap)
        # Parts that are compiled each by itself stay so.
        for part in again.mlp:
            part.compile(backend="aot_eager")
        self.assertEqual(len(handing._flat(again.mlp)), 3)
        self.train(again)
        loka.unapply(again)
        self.assertEqual({type(module) for module in again.modules()}, {type(module) for module in Nested().modules()})

    def test_any_sequence(self):
        """Drawn ones, with dropouts and sequences within: they train as each module by itself."""
        acts = [nn.ReLU, nn.SiLU, nn.GELU, nn.Hardswish, nn.Tanh, nn.Identity, lambda: nn.GELU(approximate="tanh"), lambda: nn.LeakyReLU(0.2)]
        given = joined = 0
        for seed in range(12):
            draw = random.Random(seed)

            def parts(width, depth, draw):
                made = []
                for _ in range(draw.randint(1, 3)):
                    to = draw.choice([32, 48, 64, 256])
                    made.append(nn.Linear(width, to, bias=draw.random() < 0.7))
                    made += [draw.choice((nn.LayerNorm, nn.RMSNorm))(to)] if draw.random() < 0.25 else []
                    made.append(draw.choice(acts)())
                    made += [nn.Dropout(0.5)] if draw.random() < 0.3 else []
                    made += [nn.Identity()] if draw.random() < 0.2 else []
                    width = to
                    if depth and draw.random() < 0.3:
                        inner, width = parts(width, depth - 1, draw)
                        made.append(nn.Sequential(*inner))
                return made, width

            class Drawn(nn.Module):
                def __init__(self):
                    super().__init__()
                    torch.manual_seed(0)
                    inner, width = parts(64, 2, random.Random(seed))
                    self.mlp, self.head = nn.Sequential(*inner), nn.Linear(width, 1)

                def forward(self, x):
                    return self.head(self.mlp(x)).squeeze(-1)

            kernels = draw.choice([(DELAYED,) * 3, (DELAYED,) * 3, (BF16, DELAYED, DELAYED), (DELAYED, BF16, DELAYED)])
            with self.subTest(seed):
                # Of a third step errors that differ in a last place make others, where a ReLU's slope jumps.
                # A CPU's autocast rounds to BF16 between a norm and its activation.
                has_norms = any(type(module) in (nn.LayerNorm, nn.RMSNorm) for module in Drawn().modules())
                model = self.same(Drawn, kernels, 2, 0.2 if has_norms else 0.02)
                given += len(self.gives(model))
                joined += len(self.joined)
        self.assertGreater(min(given, joined), 5)

    def test_a_model_that_calls_the_modules_itself(self):
        """Nothing says who else reads what lies between."""

        class Calls(Plain):
            def forward(self, x):
                seen = []
                for module in self.mlp:
                    x = module(x)
                    seen.append(x.float().mean())
                return self.head(x).squeeze(-1) + sum(seen) * 1e-3

        model = self.same(lambda: Calls(nn.ReLU))
        self.assertEqual(self.gives(model), [])

    def test_a_module_that_is_changed_afterwards(self):
        model = self.plain(Plain(nn.ReLU))
        self.train(model)
        first, second, _ = self.linears(model)
        model.mlp[1] = nn.Tanh()
        self.assertEqual(self.gives(model), [second])
        note = next(row.note for row in loka.resolved(model).rows if row.site == first)
        self.assertIn("not now: what follows it was changed", note)
        self.train(model)
        model.mlp[1] = nn.SiLU()
        self.assertEqual(self.gives(model), [first, second])
        del model.mlp[5], model.mlp[4], model.mlp[3], model.mlp[2]
        model.head = nn.Linear(WIDTHS[1], 1)
        self.assertEqual(self.gives(model), [])

    def test_a_frozen_bias(self):
        def make():
            model = Plain(nn.GELU)
            model.mlp[0].bias.requires_grad_(False)
            return model

        model = self.plain(make())
        optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)
        for step in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                model(batch(seed=step)).float().square().mean().backward()
            self.assertIsNone(model.mlp[0].bias.grad)
            self.assertIsNotNone(model.mlp[2].bias.grad)
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(self.gives(model), self.linears(model)[:2])

    def test_compiled(self):
        """As far from BF16 as it is eager: the compiler rounds elsewhere, and codes are coarse."""
        wrap = lambda model: torch.compile(model, fullgraph=True)
        for activation in (nn.ReLU, nn.GELU):
            truth = self.train(Plain(activation))
            eager, compiled = (self.train(self.plain(Plain(activation)), wrap=how) for how in (None, wrap))
            for (_, wanted), (_, one), (_, other) in zip(truth, eager, compiled):
                for exact, mine, its in zip(wanted, one, other):
                    far = float((mine - exact).norm() / exact.norm())
                    self.assertLess(float((its - exact).norm() / exact.norm()), 1.15 * far + 0.01)


class Normed(nn.Module):
    """A tower as many rankers have: a norm over whole rows behind each linear."""

    def __init__(self, norm=nn.LayerNorm, activation=nn.SiLU, between=(), bias=True):
        super().__init__()
        torch.manual_seed(0)
        parts = []
        for k, n in zip(WIDTHS, WIDTHS[1:]):
            parts += [nn.Linear(k, n, bias=bias), norm(n), activation(), *(make() for make in between)]
        self.mlp, self.head = nn.Sequential(*parts), nn.Linear(WIDTHS[-1], 1)
        for module in self.modules():
            for name in ("weight", "bias"):
                if isinstance(module, (nn.LayerNorm, nn.RMSNorm)) and getattr(module, name, None) is not None:
                    nn.init.normal_(getattr(module, name), float(name == "weight"), 0.2)

    def forward(self, x):
        return self.head(self.mlp(x)).squeeze(-1)


class Norms(Planned):
    """Norms over whole rows."""

    def as_near(self, make, wrap=None, kernels=(DELAYED,) * 3):
        """As far from BF16 as each step by itself; its model. A CPU's autocast rounds where a GPU's has FP32."""
        exact, found = make(), []
        torch.manual_seed(3)
        truth = self.train(exact)
        for together in (True, False):
            model = self.plain(make(), together, kernels)
            torch.manual_seed(3)
            found.append((self.train(model, wrap=wrap), model))
        for (exact, wanted), (loss, ours), (_, theirs) in zip(truth, found[0][0], found[1][0]):
            self.assertAlmostEqual(loss, exact, delta=0.02)
            for one, two, three in zip(wanted, ours, theirs):
                self.assertLess(float((two - one).norm()), 1.3 * float((three - one).norm()) + 0.02 * float(one.norm()))
        return found[0][1]

    def test_those_that_models_have(self):
        for norm, activation in (
            (nn.LayerNorm, nn.SiLU), (nn.LayerNorm, nn.ReLU), (nn.LayerNorm, nn.Identity), (nn.RMSNorm, nn.GELU),
            (partial(nn.RMSNorm, eps=1e-6), nn.SiLU), (partial(nn.LayerNorm, bias=False), nn.ReLU),
            (partial(nn.LayerNorm, elementwise_affine=False), nn.SiLU),
        ):  # fmt: skip
            for bias in (True, False):
                with self.subTest(norm=norm, activation=activation, bias=bias):
                    model = self.as_near(lambda: Normed(norm, activation, bias=bias))
                    self.assertEqual((self.gives(model), self.normed), (self.linears(model)[:2], 2))
                    note = next(row.note for row in loka.resolved(model).rows if row.site == "mlp.0")
                    self.assertIn("in training 'mlp.3' gets its activation in FP8", note)

    def test_compiled(self):
        """The last one, too, which gives nobody codes, and those whose reader runs in BF16."""
        wrap = lambda model: torch.compile(model, fullgraph=True)
        for norm in (nn.LayerNorm, nn.RMSNorm):
            for kernels in ((DELAYED,) * 3, (BF16, DELAYED, DELAYED)):
                model = self.as_near(lambda: Normed(norm), wrap, kernels)
                with mock.patch("torch.compiler.is_compiling", lambda: True):
                    given = self.gives(model)
                self.assertEqual(given, self.linears(model)[:2] if kernels[0] == DELAYED else [])
                # Behind an nn.RMSNorm's last one nobody knows which type is expected.
                self.assertEqual(self.normed, 3 if norm is nn.LayerNorm else 2)

    def test_a_dropout(self):
        self.assertEqual(len(self.gives(self.as_near(lambda: Normed(between=[lambda: nn.Dropout(0.5)])))), 2)

    def test_what_autocast_has_in_fp32_stays_so(self):
        """As on a GPU, where a layer norm gives FP32, and what follows it."""
        model = self.plain(Normed(), kernels=(BF16, DELAYED, DELAYED))
        self.train(model)
        for is_wide in (True, False):
            with mock.patch("torch.compiler.is_compiling", lambda: True), mock.patch.object(handing, "_has_norms_wide", lambda _: is_wide):
                with torch.autocast("cpu", torch.bfloat16):
                    x = batch().requires_grad_()
                    y = model.mlp(x)
                y.sum().backward()
            self.assertEqual((y.dtype, x.grad.dtype), (torch.float32 if is_wide else torch.bfloat16, torch.float32))
            self.assertTrue(all(parameter.grad is not None for parameter in model.mlp.parameters()))

    def test_bf16_parameters(self):
        model = self.plain(Normed().bfloat16())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(batch(seed=step).bfloat16()).float().square().mean().backward()
            self.assertEqual({parameter.grad.dtype for parameter in model.parameters()}, {torch.bfloat16})
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual((self.gives(model), self.normed), (self.linears(model)[:2], 2))

    def test_what_does_not_fit_runs_apart(self):
        class Double(nn.LayerNorm):
            def forward(self, input):
                return 2 * super().forward(input)

        tokens = lambda n: nn.LayerNorm((1, n))
        for norm in (Double, tokens):
            model = self.plain(Normed(norm))
            self.assertFalse(any("_loka_links" in vars(module) for module in model.modules()), norm)
        model = self.plain(Normed())
        self.train(model)
        self.assertEqual(len(self.gives(model)), 2)
        model.mlp[1] = nn.Tanh()
        self.assertEqual(self.gives(model), ["mlp.3"])
        model.mlp[1] = nn.RMSNorm(WIDTHS[1])
        self.assertEqual(self.gives(model), ["mlp.0", "mlp.3"])
        handle = model.mlp[1].register_forward_hook(lambda *_: None)
        self.assertEqual(self.gives(model), ["mlp.3"])
        handle.remove()
        for parameter in model.mlp[1].parameters():
            parameter.requires_grad_(False)
        with torch.autocast("cpu", torch.bfloat16):
            model(batch()).float().square().mean().backward()
        self.assertEqual(self.gives(model), ["mlp.0", "mlp.3"])
        self.assertTrue(model.mlp[1].weight.grad is None and model.mlp[4].weight.grad is not None)

    def test_eps_of_a_norm_without_one(self):
        x = torch.full((16, 64), 1e-4, dtype=torch.bfloat16)
        norm = norms.Norm(None, None, norms.eps_of(None))
        torch.testing.assert_close(norms.normed(x, "rms_norm", norm)[0].bfloat16(), F.rms_norm(x, (64,)), rtol=0.01, atol=0)
        self.assertEqual(norms.eps_of(1e-6), 1e-6)


class Ffn(nn.Module):
    """As blocks are written that are no nn.Sequential."""

    def __init__(self, width=WIDTHS[0], hidden=WIDTHS[1]):
        super().__init__()
        self.w1, self.w2, self.drop, self.fn = nn.Linear(width, hidden), nn.Linear(hidden, width), nn.Dropout(0.5), torch.relu

    def forward(self, x):
        return self.w2(self.drop(F.silu(self.w1(x))))


class OwnFunction(Ffn):
    def forward(self, x):
        x = self.fn(self.w1(x))
        x = self.w2(x)
        return x


class Looks(Ffn):
    def forward(self, x):
        h = F.relu(self.w1(x))
        self.seen = h.detach()
        return self.w2(h)


class Asks(Ffn):
    def forward(self, x):
        h = F.relu(self.w1(x))
        if self.training:
            h = h + 0
        return self.w2(h)


class Residual(Ffn):
    def forward(self, x):
        return x + self.w2(F.relu(self.w1(x)))


class Perceptron(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self._linear, self._activation_fn = nn.Linear(k, n), torch.relu

    def forward(self, input):
        return self._activation_fn(self._linear(input))


class Feeds:
    """As layers are written whose forward has more to do."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTHS[0])

    def forward(self, x):
        return x + self.feed(self.norm(x))


class Method(Feeds, Ffn):
    def feed(self, hidden):
        hidden = self.drop(F.gelu(self.w1(hidden)))
        return self.w2(hidden)

    def unused(self, x, y=1):
        return self.w2(self.w1(x))


class Keyword(Method):
    def forward(self, x):
        return x + self.feed(hidden=self.norm(x))


class Encoder(nn.Module):
    def __init__(self, activation="relu", norm_first=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTHS[0], 2, WIDTHS[1], 0.5, activation, batch_first=True, norm_first=norm_first), 2, enable_nested_tensor=False
        )
        self.head = nn.Linear(WIDTHS[0], 1)

    def forward(self, x):
        return self.head(self.layers(x.view(-1, 16, WIDTHS[0]))[:, 0]).squeeze(-1).repeat_interleave(16)


class Holds(nn.Module):
    def __init__(self, block):
        super().__init__()
        torch.manual_seed(0)
        self.block = block()
        self.head = nn.Linear(WIDTHS[0] if not isinstance(self.block, nn.Sequential) else WIDTHS[-1], 1)

    def forward(self, x):
        return self.head(self.block(x)).squeeze(-1)


class Straight(Planned):
    """Forwards that do nothing but call one behind the other."""

    def comes_back_and_compiles(self, model, block):
        """Of copies of a model that holds that block; and a new one trains compiled."""
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            self.assertEqual(self.gives(other), ["block.w1"])
            loka.unapply(other)
            self.assertIs(type(other.block), block)
            self.assertFalse(any(key.startswith("_loka") for module in other.modules() for key in vars(module)))
        wrap = lambda model: torch.compile(model, fullgraph=True)
        losses = [loss for loss, _ in self.train(self.plain(Holds(block)), 4, wrap=wrap)]
        self.assertTrue(all(0.5 < loss < 0.9 for loss in losses), losses)

    def test_they_are_as_sequences(self):
        for block in (Ffn, OwnFunction):
            with self.subTest(block.__name__):
                model = self.same(lambda: Holds(block))
                self.assertEqual(self.gives(model), ["block.w1"])
                self.assertEqual((type(model.block).__name__, isinstance(model.block, block)), (block.__name__, True))
                z = torch.randn(64, WIDTHS[1]).bfloat16()
                with torch.autocast("cpu", torch.bfloat16):
                    self.assertEqual(model.block.w1(batch()).shape, z.shape)
                self.comes_back_and_compiles(model, block)

    def test_a_sequence_of_perceptrons(self):
        """As torchrec's MLP is made."""
        model = self.same(lambda: Holds(lambda: nn.Sequential(*(Perceptron(k, n) for k, n in zip(WIDTHS, WIDTHS[1:])))))
        self.assertEqual(self.gives(model), self.linears(model)[:2])
        # Where one of them cannot be taken apart, it runs as one by itself.
        handle = model.block[1].register_forward_hook(lambda *_: None)
        self.assertEqual((self.gives(model), self.joined), ([], self.linears(model)))
        handle.remove()
        self.assertEqual(self.gives(model), self.linears(model)[:2])

    def test_whatever_does_more_is_left_alone(self):
        for block in (Looks, Asks, Residual):
            with self.subTest(block.__name__):
                model = self.same(lambda: Holds(block))
                self.assertEqual((self.gives(model), self.joined), ([], []))
                self.assertIs(type(model.block), block)

    def test_other_methods(self):
        model = self.same(lambda: Holds(Method))
        self.assertEqual(self.gives(model), ["block.w1"])
        block = model.block
        self.assertEqual((type(block).__name__, isinstance(block, Method), type(block)._loka_methods), ("Method", True, ("feed",)))
        self.assertIs(type(block).forward, Method.forward)
        self.comes_back_and_compiles(model, Method)
        handle = block.w1.register_forward_hook(lambda *_: None)
        self.assertEqual(self.gives(model), [])
        self.assertIn("not now: Linear has hooks", self.note(model, "block.w1"))
        handle.remove()
        # Called otherwise it runs as it stands.
        self.assertEqual(self.gives(self.same(lambda: Holds(Keyword))), [])
        with torch.autocast("cpu", torch.bfloat16):
            block.eval()
            self.assertTrue(torch.equal(block.feed(batch()), block.w2(F.gelu(block.w1(batch())))))

    def test_encoder_layers(self):
        """The feed-forward part of an nn.TransformerEncoderLayer is a method of its own."""
        for activation, norm_first in (("relu", False), ("gelu", True)):
            made = lambda: Encoder(activation, norm_first)
            parts = {name for name, module in made().named_modules() if name.endswith(("linear1", "linear2"))}
            found = []
            for together in (True, False):
                model = self.plain(made(), together, only=parts)
                torch.manual_seed(3)
                found.append(self.train(model, 3))
                self.assertEqual(self.gives(model), [f"layers.layers.{at}.linear1" for at in (0, 1)] if together else [])
            for (loss, ours), (other, theirs) in zip(*found):
                self.assertAlmostEqual(loss, other, delta=2e-3)
                for one, two in zip(ours, theirs):
                    self.assertLessEqual(float((one - two).norm()), 0.03 * float(two.norm()) + 1e-7)
            losses = [loss for loss, _ in self.train(copy.deepcopy(model), 3, wrap=lambda model: torch.compile(model))]
            self.assertTrue(all(0.3 < loss < 1.5 for loss in losses), losses)
            # Its own forward is what it was: a Recorder beside the plan reads it as it knows it.
            self.assertTrue(all(type(layer).forward is nn.TransformerEncoderLayer.forward for layer in model.layers.layers))
            loka.unapply(model)
            self.assertTrue(all(type(layer) is nn.TransformerEncoderLayer for layer in model.layers.layers))

        self.assertEqual(
            steps_of(nn.TransformerDecoderLayer(16, 2, activation="gelu"), "_ff_block"), ("linear1", "activation", "dropout", "linear2", "dropout3")
        )

    def test_which_forwards_are(self):
        known = {"torch": torch, "nn": nn, "F": F, "relu": F.relu}

        def steps(source):
            found = dict(known)
            exec(f"def forward(self, x{source}", found)
            return steps_of(type("Made", (Ffn,), {"forward": found["forward"]})())

        self.assertEqual(steps("): return self.w2(F.relu(self.w1(x)))"), ("w1", F.relu, "w2"))
        self.assertEqual(steps("): return self.fn(self.drop(torch.nn.functional.gelu(relu(x))))"), (F.relu, F.gelu, "drop", "fn"))
        self.assertEqual(steps("):\n h = self.w1(x)\n h = torch.relu(h)\n return self.w2(h)"), ("w1", torch.relu, "w2"))
        for source in (
            "): return x", ", y=None): return self.w1(x)", ", *y): return self.w1(x)", "): return self.w1(x) + self.w2(x)",
            "): return self.w1(x), x", "):\n self.h = self.w1(x)\n return self.w2(self.h)", "): return F.gelu(self.w1(x), approximate='tanh')",
            "):\n h = self.w1(x)\n g = self.w2(h)\n return h", "):\n for _ in (1, 2): x = self.w1(x)\n return x", "): return print(self.w1(x))",
            "): return super().forward(x)", "): return self.w1.forward(x)", "): return self.w1(x).relu()", "): return self.w1(x) if self.training else x",
            "):\n with torch.no_grad(): return self.w1(x)", "): return F.dropout(self.w1(x))", "): return (lambda h: self.w2(h))(self.w1(x))",
            "): yield self.w1(x)", "):\n global seen\n seen = self.w1(x)\n return self.w2(seen)",
        ):  # fmt: skip
            self.assertIsNone(steps(source), source)
        given = Ffn()
        given.forward = lambda x: x
        self.assertIsNone(steps_of(given))


if __name__ == "__main__":
    unittest.main()
